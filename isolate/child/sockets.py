"""What a tool in Python hears where no network namespace can be had and seccomp refuses IP sockets (design
D11).

Guarantees: the error keeps its type and its number, and names `ctx.fetch`, which still leads out. Only words:
the refusal is the kernel's and does not depend on what stands here. Programs of other languages get the bare
number; the host names the refused system call for them.
"""

from __future__ import annotations

import errno
import socket
from typing import Any

WAY_OUT = "this sandbox has no network of its own; use ctx.fetch"


def name_the_way_out() -> None:
    """Make the errors of `socket.socket` and of looking up a name say what to use instead."""
    make, look_up = socket.socket.__init__, socket.getaddrinfo

    def init(
        self: socket.socket, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None
    ) -> None:
        try:
            make(self, family, type, proto, fileno)
        except OSError as error:
            if error.errno != errno.EAFNOSUPPORT or family not in (-1, socket.AF_INET, socket.AF_INET6):
                raise
            raise OSError(error.errno, f"{error.strerror}: {WAY_OUT}") from None

    def getaddrinfo(*words: Any, **named: Any) -> Any:
        try:
            return look_up(*words, **named)
        except socket.gaierror as error:
            raise socket.gaierror(error.errno, f"{error.strerror}: {WAY_OUT}") from None

    socket.socket.__init__ = init  # type: ignore[method-assign]
    socket.getaddrinfo = getaddrinfo
