"""A terminal of the sandbox's own, joined to the user's: for `fumehood run` when it is used by a person.

The program gets the far end of a fresh pseudo-terminal, never the user's own: it may set modes and read keys
as it likes, and cannot push characters into the shell that started us. The user's terminal is raw meanwhile,
so Ctrl-C is a key that reaches the program as SIGINT; window changes are passed on. The user's modes are
restored however this ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import termios
import tty
from collections.abc import AsyncIterator

_CHUNK = 65536


def wanted() -> bool:
    """Whether a person sits there: standard input, output and error are all terminals."""
    return all(os.isatty(fd) for fd in (0, 1, 2))


@contextlib.asynccontextmanager
async def joined() -> AsyncIterator[int]:
    """The program's end of a new terminal, as a descriptor for its standard streams; joined to ours
    until the block ends.
    """
    ours, theirs = pty.openpty()
    loop = asyncio.get_running_loop()
    modes = termios.tcgetattr(0)
    os.set_blocking(ours, False)

    def resize() -> None:
        fcntl.ioctl(ours, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))

    def from_user() -> None:
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(ours, os.read(0, _CHUNK))

    resize()
    tty.setraw(0)
    output = asyncio.create_task(_copy_out(ours))
    loop.add_reader(0, from_user)
    loop.add_signal_handler(signal.SIGWINCH, resize)
    try:
        yield theirs
    finally:
        loop.remove_reader(0)
        loop.remove_signal_handler(signal.SIGWINCH)
        os.close(theirs)  # the last other end: what the program wrote is still read, then the copy ends
        await output
        os.close(ours)
        termios.tcsetattr(0, termios.TCSADRAIN, modes)


async def _copy_out(terminal: int) -> None:
    """Everything the program writes, to our standard output, until its side is closed (EIO on Linux)."""
    from fumehood.isolate import readable

    while True:
        await readable(terminal)
        try:
            data = os.read(terminal, _CHUNK)
        except BlockingIOError:
            continue
        except OSError:
            return
        if not data:
            return
        while data:
            data = data[os.write(1, data) :]
