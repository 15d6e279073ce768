"""Layer `seccomp-notify`: the host answers refused system calls itself, so that it can name them
(seccomp_unotify(2)).

The answer is always EPERM: nothing is ever allowed here that the filter refuses. Only calls that no honest
program makes are sent to the listener; a tool that floods it is cut off after MAX_NAMED, whereupon the kernel
answers ENOSYS without us.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import select
import struct
from collections.abc import Callable

MAX_NAMED = 64
"""Refused system calls of one call that are named; what comes after is refused without a name."""

_RECEIVE, _SEND = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND
# id, pid, flags, number, architecture, instruction pointer, arguments
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_RESPONSE = struct.Struct("=QqiI")  # id, value, error, flags


class Listener:
    """One child's refused system calls. names: number -> name; told: called with each name."""

    def __init__(self, fd: int, names: dict[int, str], told: Callable[[str], None]) -> None:
        self._fd, self._names, self._told = fd, names, told
        self._left = MAX_NAMED
        os.set_blocking(fd, False)
        asyncio.get_running_loop().add_reader(fd, self._answer)

    def _answer(self) -> None:
        buffer = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._fd, _RECEIVE, buffer)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EINTR, errno.ENOENT) or self._nobody_left():
                self.close()
            return  # ENOENT: the caller was killed before we looked
        identity, _, _, number, *_ = _NOTIFICATION.unpack(buffer)
        self._told(self._names.get(number, f"number {number}"))
        try:
            fcntl.ioctl(self._fd, _SEND, bytearray(_RESPONSE.pack(identity, 0, -errno.EPERM, 0)))
        except OSError:
            return  # killed meanwhile
        self._left -= 1
        if self._left == 0:
            self.close()

    def _nobody_left(self) -> bool:
        """Whether every process under the filter has ended: the descriptor stays readable for ever then."""
        poll = select.poll()
        poll.register(self._fd, 0)
        return any(event & select.POLLHUP for _, event in poll.poll(0))

    def close(self) -> None:
        """Stop listening; the kernel refuses with ENOSYS from now on."""
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
