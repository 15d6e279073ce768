"""Shared fixtures."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """anyio's pytest plugin runs every async test on asyncio, the runtime the host uses."""
    return "asyncio"
