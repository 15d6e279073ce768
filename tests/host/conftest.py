"""Fixtures of the command line's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.conftest import authority, trust, world  # noqa: F401 - fixtures of the doors' tests
from tests.host.cli import Cli


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """The command line in an empty folder, without a configuration of anybody's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Cli(tmp_path, capsys, monkeypatch)
