"""Descriptors through a socket, whatever other processes of this user have under way.

What a user's processes have sent each other and nobody has taken yet is counted together, and compared with
the limit on open files of whoever sends (unix(7), ETOOMANYREFS). A tool can fill its own, smaller limit, and
must not keep its host from starting other calls.
"""

from __future__ import annotations

import errno
import resource
import socket
from collections.abc import Sequence


def send_with_descriptors(sock: socket.socket, data: bytes, fds: Sequence[int]) -> int:
    """Send one message with descriptors; how many of its bytes were sent.

    Where the user has too many under way, once more under this process's hard limit, which stands for that
    moment. Raises OSError.
    """
    try:
        return socket.send_fds(sock, [data], list(fds))
    except OSError as error:
        if error.errno != errno.ETOOMANYREFS:
            raise
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        return socket.send_fds(sock, [data], list(fds))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
