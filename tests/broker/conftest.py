"""Fixtures of the broker's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.world import Authority, World, open_world


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="session")
def trust(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return authority.write(tmp_path_factory.mktemp("ca") / "ca.pem")


@pytest.fixture
def world(authority: Authority, trust: Path) -> Iterator[World]:
    """A fresh small internet."""
    with open_world(authority, trust) as world:
        yield world
