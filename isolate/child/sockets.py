"""What a tool in Python hears where no network is: the kernel's words ("Address family not supported by
protocol", "Permission denied", "name resolution") help nobody.

Guarantees: the error keeps its type and its number, and says why. Without namespaces seccomp refuses IP
sockets, and `ctx.fetch` is what leads out (design D11); with them, a tool without `egress` has a network of
nothing. Only words: the refusal is the kernel's and does not depend on what stands here. Programs of other
languages get the bare number.
"""

from __future__ import annotations

import errno
import socket
from typing import Any

USE_FETCH = "this sandbox has no network of its own; use ctx.fetch"
NO_EGRESS = "this tool has no `egress`, and so no network"
_REFUSED = (errno.EACCES, errno.ENETUNREACH)
_IP = (-1, socket.AF_INET, socket.AF_INET6)


def say(why: str) -> None:
    """Make the errors of making and connecting an IP socket, and of looking up a name, end with `why`."""
    make, dial, look_up = socket.socket.__init__, socket.socket.connect, socket.getaddrinfo

    def init(
        self: socket.socket, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None
    ) -> None:
        try:
            make(self, family, type, proto, fileno)
        except OSError as error:
            if error.errno != errno.EAFNOSUPPORT or family not in _IP:
                raise
            raise OSError(error.errno, f"{error.strerror}: {why}") from None

    def connect(self: socket.socket, address: Any) -> None:
        try:
            dial(self, address)
        except OSError as error:
            if error.errno not in _REFUSED or self.family not in _IP:
                raise
            raise OSError(error.errno, f"{error.strerror}: {why}") from None

    def getaddrinfo(*words: Any, **named: Any) -> Any:
        try:
            return look_up(*words, **named)
        except socket.gaierror as error:
            raise socket.gaierror(error.errno, f"{error.strerror}: {why}") from None

    socket.socket.__init__ = init  # type: ignore[method-assign]
    socket.socket.connect = connect  # type: ignore[method-assign,assignment]
    socket.getaddrinfo = getaddrinfo
