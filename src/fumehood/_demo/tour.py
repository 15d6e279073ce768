"""The calls of the demo, each with a check of its own: what must happen is written here, and a demo that sees
something else fails.

Nothing is staged: the calls go through `Host` as those of any program, and what is said of them comes from
their results, the log, the store, the name server's list of questions and the servers' counts of connections.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fumehood._demo.world import METRICS, PUBLIC, VAULT, World
from fumehood._host import Host
from fumehood._result import CallResult
from fumehood.policies.errors import FumehoodError
from fumehood.sandbox import Limits

Told = tuple[str, str, bool]

GONE_WITHIN_S = 1.0  # a process that is there longer after its call is a finding


@dataclass(frozen=True, slots=True)
class Call:
    """One real call. what: in two words, why it was made."""

    what: str
    result: CallResult


@dataclass(frozen=True, slots=True)
class Line:
    """One thing the demo shows. verdict: done, refused, killed, nothing or not believed. held:
    whether it came out as it must.
    """

    section: str
    what: str
    verdict: str
    why: str
    held: bool


@dataclass
class Tour:
    """The calls so far."""

    host: Host
    world: World
    calls: list[Call] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)

    async def call(self, what: str, tool: str, value: Any) -> CallResult:
        result = await self.host.call(tool, value, execution_id="demo", principal="you")
        self.calls.append(Call(what, result))
        return result

    async def eval(self, what: str, script: str, **options: Any) -> CallResult:
        result = await self.host.eval(script, execution_id="demo", principal="you", **options)
        self.calls.append(Call(what, result))
        return result


async def take_tour(tour: Tour) -> AsyncGenerator[Line, None]:
    """Every call in order; each line as soon as it is known."""
    for section, part in (
        ("Honest tools", _honest),
        ("A hostile tool", _hostile),
        ("A name server that lies", _lying_names),
        ("A tool that lies about itself", _liar),
        ("A script a model wrote", _script),
    ):
        async for what, (verdict, why, held) in part(tour):
            line = Line(section, what, verdict, why, held)
            tour.lines.append(line)
            yield line


# -- honest --------------------------------------------------------------------------------------------------


async def _honest(tour: Tour) -> AsyncIterator[tuple[str, Told]]:
    yield "module tool", await _metrics(tour)
    yield "command tool", await _words(tour)
    yield "media tool", await _chart(tour)
    if tour.host.has_doors:
        yield "unmodified clients", await _unmodified(tour)


async def _metrics(tour: Tour) -> Told:
    result = await tour.call("module tool", "metrics", {"url": tour.world.metrics_url})
    token = tour.world.tokens["METRICS_TOKEN"]
    seen = [request.header("authorization") for request in tour.world.metrics.seen]
    rows = [event.data for event in tour.host.log.events(call_id=result.call_id)]
    held = (
        result.outcome == "ok"
        and result.value == {"status": 200, "busiest": {"host": "web-2", "cpu": 0.87}}
        and seen == [f"Bearer {token}"]
        and result.events == [{"kind": "METRICS_SAMPLED", "data": {"rows": 3}}]
        and [row["pinned"] for row in result.egress] == [METRICS]
        and token not in str(result.to_json()) + str(rows)
    )
    why = f"ctx.fetch with its one credential, pinned to {METRICS}; an event; the value: web-2 is busiest"
    return "done", why if held else _unexpected(result), held


async def _words(tour: Tour) -> Told:
    result = await tour.call("command tool", "words", {"text": "a program every Debian has"})
    held = result.outcome == "ok" and result.value == 6
    return "done", "wc -w counted 6 words of the input on its stdin" if held else _unexpected(result), held


async def _chart(tour: Tour) -> Told:
    result = await tour.call("media tool", "chart", {"url": tour.world.chart_url})
    image = tour.world.image
    if result.outcome != "ok" or not isinstance(result.value, dict):
        return "done", _unexpected(result), False
    stored = result.value["image"]
    kept = await asyncio.to_thread(tour.host.store.get, stored["address"])
    held = kept == image and base64.b64encode(image)[:40].decode() not in str(result.to_json())
    why = f"{stored['size']} bytes stored; the result holds only {stored['address'][:19]}…"
    return "done", why, held


async def _unmodified(tour: Tour) -> Told:
    result = await tour.call("unmodified", "unmodified", {"url": tour.world.metrics_url})
    value = result.value
    held = (
        result.outcome == "ok"
        and isinstance(value, dict)
        and len(set(value.values())) == 1
        and "urllib" in value
    )
    why = (
        f"{', '.join(sorted(value))} reached the allowed host, no proxy setting, no line changed"
        if held
        else _unexpected(result)
    )
    return "done", why, held


# -- hostile -------------------------------------------------------------------------------------------------


async def _hostile(tour: Tour) -> AsyncIterator[tuple[str, Told]]:
    world = tour.world
    outside = world.folder / "tools" / "was-here"
    secret = world.folder / "secrets" / "images-token"
    yield (
        "another host",
        await _refused(tour, "other-host", {"url": world.vault_url}, "not-listed", "vault.internal"),
    )
    yield "the metadata address", await _refused(tour, "metadata", {}, "metadata", None)
    yield "a raw socket", await _raw_socket(tour)
    yield (
        "another's credential",
        await _attempt(tour, "credential", {"paths": [str(secret)]}, _no_credential),
    )
    yield "our environment", await _attempt(tour, "environment", {}, _own_environment)
    yield "/etc/shadow", await _attempt(tour, "shadow", {}, _no_file)
    yield (
        "its own code",
        await _attempt(tour, "overwrite", {"path": str(outside)}, lambda r: _not_written(r, outside)),
    )
    yield "a fork that stays", await _fork(tour)
    yield "an endless loop", await _attempt(tour, "loop", {}, _stopped)


async def _attempt(
    tour: Tour, attempt: str, more: dict[str, Any], judge: Callable[[CallResult], Told]
) -> Told:
    result = await tour.call(attempt, "hostile", {"attempt": attempt, **more})
    return judge(result)


async def _refused(tour: Tour, attempt: str, more: dict[str, Any], reason: str, name: str | None) -> Told:
    """A fetch that policy refuses, with its reason, before anything was asked or connected."""
    result = await tour.call(attempt, "hostile", {"attempt": attempt, **more})
    reasons = [row["reason"] for row in result.egress]
    asked = name in tour.world.dns.names
    held = (
        reasons == [reason]
        and not asked
        and tour.world.vault.connections == 0
        and result.outcome == "tool_error"
    )
    why = f"{reason}; the name was never looked up" if name else f"{reason}; no rule can allow it"
    return "refused", why if held else _unexpected(result), held


async def _raw_socket(tour: Tour) -> Told:
    address = [VAULT, tour.world.vault.port]
    result = await tour.call("raw-socket", "hostile", {"attempt": "raw-socket", "address": address})
    held = result.outcome == "tool_error" and tour.world.vault.connections == 0
    said = (result.error or {}).get("message", "")
    return (
        "refused",
        f"{said or 'no way out'}; the server saw no connection" if held else _unexpected(result),
        held,
    )


def _no_credential(result: CallResult) -> Told:
    held = result.outcome == "ok" and result.value == {"IMAGES_TOKEN": None, "files": []}
    return (
        "nothing",
        "not in its environment, no process of ours in /proc, no file" if held else _unexpected(result),
        held,
    )


def _own_environment(result: CallResult) -> Told:
    value = result.value if isinstance(result.value, dict) else {}
    held = value.get("parent") == [] and set(value.get("environ", ["?"])) == {"LANG", "PATH"}
    return "nothing", "it sees PATH and LANG, and no process above it" if held else _unexpected(result), held


def _no_file(result: CallResult) -> Told:
    error = result.error or {}
    held = result.outcome == "tool_error" and error.get("type") in ("FileNotFoundError", "PermissionError")
    return "refused", str(error.get("message", "")) if held else _unexpected(result), held


def _not_written(result: CallResult, path: Path) -> Told:
    error = result.error or {}
    held = result.outcome == "tool_error" and not path.exists()
    text = str(error.get("message", "")).partition(":")[0]
    return "refused", f"{text}; nothing was written" if held else _unexpected(result), held


def _stopped(result: CallResult) -> Told:
    held = result.outcome == "limit" and result.reason == "timeout"
    return (
        "killed",
        f"limit (timeout) after {result.usage.wall_ms:.0f} ms" if held else _unexpected(result),
        held,
    )


async def _fork(tour: Tour) -> Told:
    """The grandchild is seen from outside while the call runs (else this would prove nothing), and
    is gone when it has ended.
    """
    name = f"fh-{secrets.token_hex(6)}"  # prctl(2) takes 15 characters; another demo may run beside this one
    running = asyncio.ensure_future(tour.call("fork", "hostile", {"attempt": "fork", "name": name}))
    seen = False
    while not running.done() and not seen:
        seen = bool(await asyncio.to_thread(_named, name))
    result = await running
    deadline = time.monotonic() + GONE_WITHIN_S
    while (left := await asyncio.to_thread(_named, name)) and time.monotonic() < deadline:
        pass  # SIGKILL was sent before the result came; the kernel takes a moment to carry it out
    held = result.outcome == "ok" and seen and not left
    why = "seen from outside while the call ran; gone when it had ended"
    return "killed", why if held else f"seen: {seen}, left: {left}; {_unexpected(result)}", held


def _named(name: str) -> list[str]:
    """Processes of this machine that call themselves `name` and still run."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if (folder / "comm").read_text().strip() == name and ") Z " not in (
                    folder / "stat"
                ).read_text():
                    found.append(folder.name)
            except OSError:
                pass  # it ended while we looked
    return found


# -- lies ----------------------------------------------------------------------------------------------------


async def _lying_names(tour: Tour) -> AsyncIterator[tuple[str, Told]]:
    names = ("rebind.example", "rebind.example", "intranet.example", "clouds.example", "mixed.example")
    result = await tour.call("lying names", "reader", {"urls": [f"http://{name}/" for name in names]})
    said = result.value if isinstance(result.value, list) else []
    rows = list(result.egress)
    for at, (name, reason, answer) in enumerate(
        (
            ("rebind.example", None, f"{PUBLIC}, public: dialled that very address"),
            ("rebind.example again", "not-public", f"now it says {VAULT}"),
            ("intranet.example", "not-public", f"it says {VAULT}"),
            ("clouds.example", "metadata", "it says 169.254.169.254"),
            ("mixed.example", "mixed-answers", f"it says {PUBLIC} and {VAULT}"),
        )
    ):
        row = rows[at] if at < len(rows) else {}
        one = said[at] if at < len(said) else {}
        if reason is None:
            held = row.get("outcome") == "allow" and row.get("pinned") == PUBLIC and one.get("status") == 200
        else:
            held = row.get("reason") == reason and one.get("refused") == reason
        held = held and tour.world.vault.connections == 0
        why = f"{reason}: {answer}" if reason else answer
        yield name, ("refused" if reason else "done", why if held else _unexpected(result), held)


async def _liar(tour: Tour) -> AsyncIterator[tuple[str, Told]]:
    result = await tour.call("forged result", "liar", {"lie": "result"})
    held = result.value == "all is well" and result.tier != "unbreakable" and result.usage.wall_ms > 0
    why = (
        f'it claimed the tier "unbreakable" and 0 ms; the host says {result.tier} and '
        f"{result.usage.wall_ms:.0f} ms"
    )
    yield "in its result", ("not believed", why if held else _unexpected(result), held)
    result = await tour.call("forged frame", "liar", {"lie": "frame"})
    held = result.outcome == "sandbox_error" and result.reason == "protocol"
    yield (
        "in its frames",
        (
            "killed",
            "protocol: bytes that are no frame end the call" if held else _unexpected(result),
            held,
        ),
    )
    result = await tour.call("no JSON", "liar", {"lie": "value"})
    held = result.outcome == "tool_error"
    text = f"tool_error: {(result.error or {}).get('type')}, a set is no JSON"
    yield "in what it returns", ("refused", text if held else _unexpected(result), held)


# -- scripts -------------------------------------------------------------------------------------------------

SCRIPT = """
const samples = [];
for (let i = 0; i < 3; i++) samples.push(await tool("metrics", input));
return { calls: samples.length, busiest: samples[0].busiest.host };
"""


async def _script(tour: Tour) -> AsyncIterator[tuple[str, Told]]:
    if importlib.util.find_spec("wasmtime") is None:
        return  # the extra "sandbox" is not installed, and `Host.eval` would say so
    url = {"url": tour.world.metrics_url}
    result = await tour.eval("script", SCRIPT, tools=["metrics"], input=url)
    held = result.outcome == "ok" and result.value == {"calls": 3, "busiest": "web-2"}
    why = "in WASM, in a caged worker: three calls of the tool it was granted, one small value"
    yield "three calls in one", ("done", why if held else _unexpected(result), held)
    result = await tour.eval("not granted", "return await tool('chart', input)", tools=["metrics"])
    held = result.outcome == "tool_error" and "chart" in str((result.error or {}).get("message"))
    why = "chart is configured, but this script was not given it"
    yield "a tool not granted", ("refused", why if held else _unexpected(result), held)
    result = await tour.eval("endless script", "for (;;) {}", limits=Limits(wall_s=0.5))
    yield "an endless script", _stopped(result)


def _unexpected(result: CallResult) -> str:
    said = (result.error or {}).get("message") or result.value
    return f"UNEXPECTED: {result.outcome} ({result.reason}): {said}"


async def verify_log(tour: Tour) -> tuple[bool, str]:
    """Whether the log verifies, and what the check says."""
    try:
        verified = await asyncio.to_thread(tour.host.log.verify)
    except FumehoodError as error:
        return False, str(error)
    return verified.ok, verified.message
