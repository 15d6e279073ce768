"""Tells `setups.py` which set-ups this session's tests need, so that two run at once; ends them with it."""

from __future__ import annotations

import pytest

from tests.isolate import setups


def pytest_collection_finish(session: pytest.Session) -> None:
    """In the order of the tests; the parameter is empty for what runs without a cage."""
    asked = [
        str(item.callspec.params["setup"] or "control")
        for item in session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and "setup" in item.callspec.params
    ]
    setups.WANTED[:] = dict.fromkeys(asked)


def pytest_sessionfinish() -> None:
    """However the session ended."""
    setups.end_all()
