"""Runners that tests share: starting one costs a process, and scripts don't see each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from fumehood.sandbox import ScriptRunner, ToolSignature

TOOLS = {
    name: ToolSignature(name)
    for name in ("echo", "slow", "broken", "fetch-metrics", "docs.search", "never", "gate")
}


@pytest.fixture(scope="module")
async def runner() -> AsyncIterator[ScriptRunner]:
    """A runner with one uncaged worker."""
    async with ScriptRunner(workers=1) as made:
        yield made


@pytest.fixture(scope="module", params=["worker", "in-process"])
async def either(request: pytest.FixtureRequest) -> AsyncIterator[ScriptRunner]:
    """A runner with a worker, and one that runs engines in this process: the same must hold of both."""
    async with ScriptRunner(workers=1, in_process=request.param == "in-process") as made:
        yield made


async def call_tool(name: str, args: object) -> Any:
    """The granted tools of most tests."""
    if name == "broken":
        raise RuntimeError("secret")
    return args
