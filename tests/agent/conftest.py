"""Fixtures of the agent tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fumehood.agent import ContentStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ContentStore]:
    """A content store in a folder of its own."""
    with ContentStore(tmp_path / "content") as opened:
        yield opened
