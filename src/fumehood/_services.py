"""What the host does for a running tool: fetch through the broker, events and log lines to the log, content
to the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fumehood._toolspec import scrubbed

if TYPE_CHECKING:
    from fumehood.agent import ContentStore, EventLog
    from fumehood.broker import BrokerCall
    from fumehood.isolate import Doors


class CallServices:
    """Serves one call; implements `fumehood.isolate.Services`.

    secrets: name -> value of what the tool was given, scrubbed from everything that goes to the log. files:
    the parts of what the call left and was collected.
    """

    def __init__(
        self,
        log: EventLog,
        store: ContentStore,
        network: BrokerCall,
        *,
        execution_id: str,
        call_id: str,
        tool: str,
        owner: str,
        secrets: Mapping[str, str],
    ) -> None:
        self._log, self._store, self._network = log, store, network
        self._ids = {"execution_id": execution_id, "call_id": call_id}
        self._tool, self._owner = tool, owner
        self._secrets = {name: value for name, value in secrets.items() if len(value) >= 4}
        self.files: list[dict[str, Any]] = []

    async def doors(self, doors: Doors) -> None:
        """The call's own network: every name and connection in it is the broker's to decide."""
        from fumehood.broker import NetSockets

        await self._network.attach(
            NetSockets(doors.dns_udp, doors.dns_tcp, doors.listeners, doors.proxy, doors.watches)
        )

    async def fetch(self, request: Mapping[str, Any], body: bytes) -> tuple[Mapping[str, Any], bytes]:
        """One `ctx.fetch`.

        A malformed request is refused like any other: with a reason, and on the record.
        """
        from fumehood.broker import EgressRefused, FetchRequest

        headers = request.get("headers")
        pairs = (
            tuple(
                (str(pair[0]), str(pair[1])) for pair in headers if isinstance(pair, list) and len(pair) == 2
            )
            if isinstance(headers, list)
            else ()
        )
        try:
            reply = await self._network.fetch(
                FetchRequest(
                    method=str(request.get("method", "GET")),
                    url=str(request.get("url", "")),
                    headers=pairs,
                    body=body,
                )
            )
        except EgressRefused as refused:
            kind = "failed" if refused.reason == "upstream" else "refused"
            return {"t": kind, "reason": refused.reason, "message": str(refused)}, b""
        listed = [[name, value] for name, value in reply.headers]
        return {"t": "reply", "status": reply.status, "headers": listed, "url": reply.url}, reply.body

    async def event(self, kind: str, data: Any) -> None:
        """One `ctx.emit`, on disk before the next frame of the child is read (R010)."""
        await self._log.record(
            "TOOL_EVENT",
            {"tool": self._tool, "kind": kind, "data": scrubbed(data, self._secrets)},
            **self._ids,
        )

    async def put(self, data: bytes, media_type: str) -> Mapping[str, Any]:
        """One `ctx.put`: bytes into the store, the address back."""
        stored = await self._stored(data, media_type)
        if isinstance(stored, str):
            return {"t": "failed", "reason": "store", "message": f"ctx.put: {stored}"}
        return {"t": "stored", **stored}

    async def collect(self, name: str, data: bytes) -> str | None:
        """One file that the call left: into the store and a part of the result, or why not."""
        from fumehood.agent import type_of_file

        media_type = type_of_file(name, data)
        stored = await self._stored(data, media_type)
        if isinstance(stored, str):
            return stored
        kind = media_type.partition("/")[0]
        self.files.append(
            {
                "type": kind if kind in ("image", "audio") else "file",
                "media_type": media_type,
                "name": name,
                "source": {"kind": "ref", "ref": stored},
            }
        )
        return None

    async def _stored(self, data: bytes, media_type: str) -> dict[str, Any] | str:
        """Address and size of content that is in the store and on record; or why it is not."""
        from fumehood.agent import StorageError, media_fault

        if (fault := media_fault(media_type, data)) is not None:
            return fault
        try:
            stored = await asyncio.to_thread(self._store.put, data, media_type, owner=self._owner)
        except (ValueError, StorageError) as error:
            return str(error)
        kept = {"address": stored.address, "size": stored.size}
        await self._log.record(
            "CONTENT_STORED", {"tool": self._tool, **kept, "media_type": stored.media_type}, **self._ids
        )
        return kept

    async def log(self, text: str) -> None:
        """One `ctx.log` line."""
        await self._log.record(
            "TOOL_EVENT",
            {"tool": self._tool, "kind": "log", "data": scrubbed(text, self._secrets)},
            **self._ids,
        )
