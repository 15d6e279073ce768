"""A folder per call on the host, for the tiers that have no private /tmp: made fresh, owned by the call's
user, removed with everything in it.

Its size is not bounded (the layer `mount` says so in the result). Removal trusts nothing inside: no link is
followed, depth does not matter.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from fumehood.isolate.child.janitor import remove_tree


class Scratch:
    """The folders of one host."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="fumehood-"))
        self.root.chmod(0o711)  # a slot's user must be able to pass through, not to list

    def make(self, owner: int | None) -> Path:
        """A new folder, mode 0700, of user `owner` (None: ours)."""
        folder = Path(tempfile.mkdtemp(dir=self.root))
        if owner is not None:
            os.chown(folder, owner, owner)
        return folder

    def remove(self, folder: Path) -> None:
        """Remove a call's folder.

        rm(1) and chmod(1) descend by directory descriptors, so no swap or depth leads them astray.
        """
        remove_tree(str(folder))

    def close(self) -> None:
        """Remove what is left."""
        self.remove(self.root)
