"""Small files of /proc and /sys, read at a third of the price of `open`."""

from __future__ import annotations

import os

_MOST = 65536


def read_small(path: str) -> bytes:
    """A file that one read returns whole. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _MOST)
    finally:
        os.close(fd)
