"""The bytes after a protocol switch: both ways until either side ends, counted, and masked on their way back.

Guarantees: a secret that is split over two reads is masked too, when the rest comes within _PAUSE; what only
looks like the start of one is held back no longer than that.
Not here: frames, which are not looked into; who may switch (_forward.py).
"""

from __future__ import annotations

import asyncio

import httpcore

from fumehood.broker._child import ChildStream
from fumehood.broker._dial import PinnedStream
from fumehood.broker._secrets import Scrubber
from fumehood.policies.rules import EgressRule

_PAUSE = 0.05  # seconds; a message that a host sends at once arrives within it


async def relay_switched(
    child: ChildStream, host: PinnedStream, scrubber: Scrubber, rule: EgressRule | None
) -> str | None:
    """Relay until the end; "sent" or "received" when that way went over the rule's cap."""
    over: list[str] = []

    async def up() -> None:
        left = rule.max_request if rule is not None else None
        while data := await child.read():
            if left is not None and (left := left - len(data)) < 0:
                over.append("sent")
                return
            await host.write(data)

    async def down() -> None:
        left = rule.max_response if rule is not None else None
        while True:
            try:
                data = await host.read(65536, _PAUSE if scrubber.is_holding else None)
            except httpcore.ReadTimeout:
                await child.write(b"".join(scrubber.finish()))
                continue
            if not data:
                await child.write(b"".join(scrubber.finish()))
                return
            if left is not None and (left := left - len(data)) < 0:
                over.append("received")
                return
            if data := scrubber.feed(data):
                await child.write(data)

    tasks = [asyncio.ensure_future(up()), asyncio.ensure_future(down())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return over[0] if over else None
