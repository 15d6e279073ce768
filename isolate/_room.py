"""Whether a call that failed had run out of room: in its own /tmp or /dev/shm, which is its limit, or in a
folder that it was granted, which is the host's to know.

Asked of the kernel from outside. A command's process is gone when that is asked: its two places are held by
descriptors from the start.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fumehood.isolate._child import Child
from fumehood.isolate._spec import ToolSpec


class Room:
    """The places that one call may write to. Close it."""

    def __init__(self, child: Child, spec: ToolSpec) -> None:
        self._child, self._grants = child, tuple(spec.write)
        self._own: list[str | int] = []
        self._held: list[int] = []
        if not child.namespaced:
            self._grants += (Path(child.tmp),)  # a folder of the host's, without a size of its own
        else:
            places = [f"/proc/{child.pid}/root{place}" for place in ("/tmp", "/dev/shm")]
            if spec.kind == "command":
                for place in places:
                    with contextlib.suppress(OSError):
                        self._held.append(os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
            self._own = [*self._held] if spec.kind == "command" else [*places]

    def is_used_up(self, said: Mapping[str, Any] | None) -> bool:
        """Whether the call's own places have no byte or no inode left, or had none when the tool failed.

        The number of the error is the child's word, and harmless: it could have filled them as well.
        """
        if any(_full(place) for place in self._own if place in self._held or not self._child.gone):
            return True
        return bool(self._own) and not self._grants and (said or {}).get("errno") == errno.ENOSPC

    def full_grant(self, said: Mapping[str, Any] | None) -> str | None:
        """What to do about a granted folder without room; None when none is known."""
        for path in self._grants:
            if _full(str(path)):
                return f"the file system of {path} has no room left: free some, or grant a folder elsewhere"
        if self._grants and (said or {}).get("errno") == errno.EDQUOT:
            places = ", ".join(map(str, self._grants))
            return f"a disk quota is used up in one of: {places}; raise it, or grant a folder elsewhere"
        return None

    def close(self) -> None:
        """Let the places go."""
        while self._held:
            os.close(self._held.pop())


def _full(place: str | int) -> bool:
    try:
        state = os.statvfs(place)
    except OSError:
        return False
    # Some file systems count no files: none are left of none.
    return state.f_bavail == 0 or (state.f_files > 0 and state.f_favail == 0)
