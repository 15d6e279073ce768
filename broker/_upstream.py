"""Connections of HTTP/1.1 messages: an idle one of the call whose peer was vetted for this very request, or a
new one.

Not here: HTTP/2 towards the host (_h2_upstream.py).
"""

from __future__ import annotations

from fumehood.broker._call import BrokerCall, Permit
from fumehood.broker._dial import PinnedBackend
from fumehood.broker._exchange import Exchange
from fumehood.broker._forward import Connection
from fumehood.broker._target import Target


class PlainUpstream:
    """One request at a time on each connection."""

    def __init__(self, call: BrokerCall) -> None:
        self._call = call

    async def open(self, target: Target, permit: Permit, *, fresh: bool) -> Connection:
        """See `Upstream.open`."""
        exchange = None if fresh else self._call.take_idle(target, permit)
        if exchange is None:
            backend = PinnedBackend(self._call.broker.dialer, permit.decision)
            stream = await backend.connect_tcp(target.host.text, target.port)
            if target.scheme == "https":
                stream = await stream.start_tls(self._call.broker.tls, server_hostname=target.host.text)
            exchange = Exchange(stream)
        return exchange

    async def release(self, target: Target, permit: Permit, connection: Connection) -> None:
        """Keep a clean connection for the next request, close any other."""
        assert isinstance(connection, Exchange)
        if connection.is_reusable:
            self._call.keep_idle(target, permit, connection)
        else:
            await connection.aclose()
