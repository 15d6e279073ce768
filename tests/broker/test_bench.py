"""The broker's benchmark: that every figure is there and every missing peer named. No figure is judged."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from fumehood.agent import EventLog
from fumehood.broker._bench import DurableLines, run
from fumehood.broker._bench_load import Generator
from fumehood.broker._bench_peers import WHERE_FROM, NoPeer, peer
from fumehood.broker._records import Row

pytestmark = pytest.mark.anyio
RATES = {
    "connect_new_per_s", "plain_new_per_s", "plain_keep_alive_per_s", "gets_in_tunnel_per_s", "bulk_gb_per_s",
}  # fmt: skip


def program(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


async def test_a_run_without_peers_names_each_and_has_every_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin", "squid", "exit 3")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    logs: list[Path] = []

    def log(folder: Path) -> EventLog:
        logs.append(folder)
        return EventLog(folder / "log.sqlite3")

    with anyio.fail_after(120):
        found = await run(quick=True, folder=tmp_path, log=log)
    assert found["not_run"] == {**WHERE_FROM, "squid": "installed, but it ended with 3"}
    assert set(found) == {"direct", "fumehood", "not_run", "targets"} and len(logs) == 1
    ours = found["fumehood"]
    assert set(ours) == RATES | {
        "same_request_without_broker_ms", "fetch_kept_ms", "fetch_new_call_ms", "fetch_kept_added_p50_ms",
        "idle_tunnels_mb_per_1000",
    }  # fmt: skip
    assert all(isinstance(ours[name], int | float) for name in RATES) and any(ours[name] for name in RATES)
    for aim in found["targets"].values():
        assert set(aim) == {"target", "measured", "met"}
        assert (aim["measured"] is None) == (aim["met"] is None)
    beside = [name for name, aim in found["targets"].items() if aim["met"] is None]
    assert beside == ["CONNECTs a second, against squid's", "kept requests a second, against squid's"]


async def test_a_peer_that_is_not_there_when_it_is_asked_ends_the_question_and_not_the_run() -> None:
    with anyio.fail_after(60), Generator() as generator:
        with pytest.raises(ConnectionRefusedError):
            await generator.load(1, [b"x"], False, 0.05)
        with pytest.raises(ConnectionRefusedError):
            await generator.bulk(1, 1, b"")
        assert await generator.bulk(generator.origin, 8, b"") > 0


def test_a_peer_is_started_stopped_and_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoPeer, match="apt install tinyproxy"), peer("tinyproxy", 1, tmp_path):
        raise AssertionError("it is not there")


async def test_the_stand_in_for_a_log_outlives_a_caller_that_gives_up(tmp_path: Path) -> None:
    import asyncio

    log = DurableLines(tmp_path)
    waiting = asyncio.ensure_future(log.record("EGRESS_ALLOWED", {}))
    await asyncio.sleep(0)
    waiting.cancel()
    with anyio.fail_after(5):
        assert await log.record_many([Row("EGRESS_CLOSED", {}, None, None)] * 2) == ["2", "3"]
    log.close()
    assert (tmp_path / "log.jsonl").read_text().count("\n") == 3
