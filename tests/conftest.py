"""Shared fixtures."""

from __future__ import annotations

import signal

import pytest

# A shell starts what it sends to the background with these ignored, and so does nohup; every program that the
# tests start would inherit that, and not hear them.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number is signal.SIGINT else signal.SIG_DFL)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """anyio's pytest plugin runs every async test on asyncio, the runtime the host uses."""
    return "asyncio"
