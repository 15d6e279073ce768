"""Runs a coroutine for a verb: signals end it in order, a slow one shows that it lives.

Ctrl-C, SIGTERM and SIGHUP cancel the coroutine, so a Host inside closes and takes its children with it; then
the process ends with 128 + signal. A second Ctrl-C does not wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from fumehood._cli._settings import Settings

T = TypeVar("T")
PROGRESS_AFTER_S = 2.0
"""A call that is quicker than this shows nothing: a spinner that flashes is noise."""


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PASSED = (signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_HARMLESS = (signal.SIGCONT, signal.SIGWINCH)  # passed on too; whoever has no use for them ignores them
DESCRIPTORS = 65_536
GRACE_S = 5.0
"""What a program that was told to end has for it."""


def run_async(work: Coroutine[Any, Any, T], take: Callable[[int], bool] | None = None) -> T:
    """The coroutine's result. Raises SystemExit(128 + signal) after a signal, once everything is
    cleaned up.

    take: is offered every signal first, True when it went where it belongs. A program that was told to end so
    and is deaf to it ends with us, GRACE_S later or with the second signal of the kind.
    """
    caught: list[int] = []
    taken: set[int] = set()

    async def inner() -> T:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(work)

        def stop(number: int) -> None:
            if take is not None and not caught and number not in taken and take(number):
                if number in _ENDING:
                    taken.add(number)
                    loop.call_later(GRACE_S, stop, number)
                return
            if caught or number in _PASSED:  # the second time: no more patience
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)
            caught.append(number)
            task.cancel()

        def pause() -> None:
            # The command has a session of its own: whoever stops us, as a shell's Ctrl-Z, means it as well.
            # What makes us go on is passed on.
            assert take is not None
            take(signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)

        with contextlib.ExitStack() as stack:
            if take is not None:
                for number in _HARMLESS:
                    loop.add_signal_handler(number, take, number)
                    stack.callback(loop.remove_signal_handler, number)
                if signal.getsignal(signal.SIGTSTP) is not signal.SIG_IGN:
                    loop.add_signal_handler(signal.SIGTSTP, pause)
                    stack.callback(loop.remove_signal_handler, signal.SIGTSTP)
            for number in _ENDING if take is None else (*_ENDING, *_PASSED):
                if signal.getsignal(number) is signal.SIG_IGN:
                    continue  # nohup, or a shell's background job: the caller wants it ignored
                loop.add_signal_handler(number, stop, number)
                stack.callback(loop.remove_signal_handler, number)
            return await task

    _allow_descriptors()
    try:
        return asyncio.run(inner())
    except asyncio.CancelledError:
        if caught:
            raise SystemExit(128 + caught[0]) from None
        raise


def _allow_descriptors() -> None:
    """As many descriptors as this process may ask for, within reason: the usual 1024 are two calls' worth of
    connections. What a tool may have is set for each call.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextlib.contextmanager
def progress(settings: Settings, text: str) -> Iterator[None]:
    """A spinner on stderr while the block runs, after two seconds, when a person is watching.

    Inside a running loop or without one; there Ctrl-C is an exception, so that the cursor comes back.
    """
    if settings.quiet or settings.format == "json" or not sys.stderr.isatty():
        yield
        return
    from fumehood._cli._output import Output

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    status = Output(settings).err.status(text)
    timer = threading.Timer(PROGRESS_AFTER_S, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # one that is just starting it has done so
        status.stop()
