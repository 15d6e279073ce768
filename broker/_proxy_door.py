"""The proxy door: HTTP (absolute-form), CONNECT and SOCKS5 on one port, for clients that are configured for a
proxy.

Guarantees: the target decides, a Host that disagrees is refused; each request on a kept connection is judged;
SOCKS5 takes CONNECT only, and names go through the same grammar. The caller is known by the socket it came
on, so there is no password to steal: what a client sends as one is read, not looked at and not kept.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import replace

from fumehood.broker._addresses import parse_address
from fumehood.broker._call import BrokerCall
from fumehood.broker._child import ChildSocket
from fumehood.broker._head import BadHead, RequestHead
from fumehood.broker._http_door import Place, serve_http
from fumehood.broker._names import SyntheticNames
from fumehood.broker._proxy_target import proxy_target
from fumehood.broker._refusal import http_refusal, raw_refusal, send_and_close
from fumehood.broker._target import BadTarget, Target, target_of
from fumehood.broker._tunnel import serve_tunnel
from fumehood.broker._types import EgressRefused
from fumehood.policies.names import Host

FIRST_BYTE = 30.0  # seconds a client may take to say anything
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_SOCKS4_NO = b"\0\x5b" + bytes(6)  # request rejected or failed
_SOCKS_OK, _SOCKS_DENIED, _SOCKS_UNREACHABLE, _SOCKS_COMMAND, _SOCKS_ADDRESS = (
    0,
    2,
    4,
    7,
    8,
)  # RFC 1928 section 6


def proxy_environment(port: int) -> Mapping[str, str]:
    """The variables that lead clients to the door on 127.0.0.1:`port`:

    both cases, http:// for all (socks5h breaks some), no exceptions.
    """
    url = f"http://127.0.0.1:{port}"
    names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
    found = {name: url for both in names for name in (both, both.lower())}
    return {
        **found,
        "GRPC_PROXY": url,
        "grpc_proxy": url,
        "NO_PROXY": "",
        "no_proxy": "",
        "NODE_USE_ENV_PROXY": "1",
        "JAVA_TOOL_OPTIONS": " ".join(
            f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort={port}" for scheme in ("http", "https")
        )
        + " -Dhttp.nonProxyHosts=",
    }


async def serve_proxy(call: BrokerCall, child: ChildSocket, names: SyntheticNames | None = None) -> None:
    """Serve one connection to the proxy port until it ends.

    names: what stand-in addresses mean, for SOCKS clients that look names up by themselves.
    """
    first = await child.peek(FIRST_BYTE)
    if first[:1] == b"\x05":
        await _Socks(call, child, names).serve()
        return
    if first and not b"A" <= first[:1] <= b"Z":  # SOCKS4, TLS to the proxy, noise: answered, not waited out
        bad = BadTarget("malformed", "the proxy speaks HTTP and SOCKS5")
        refused = await call.refuse_text("", bad, "proxy")
        answer = raw_refusal(first, refused) if first[0] == 22 else http_refusal(refused)
        answer = _SOCKS4_NO if first[0] == 4 else answer
        await send_and_close(child.sock, answer)
        return
    head = await serve_http(call, child, Place("proxy"))
    if head is None:
        await send_and_close(child.sock, b"")
        return
    await _serve_connect(call, child, head)


async def _serve_connect(call: BrokerCall, child: ChildSocket, head: RequestHead) -> None:
    async def opened() -> None:
        await child.write(_ESTABLISHED)

    try:
        await serve_tunnel(call, child, proxy_target(head), "proxy", opened=opened)
    except (BadTarget, BadHead) as bad:
        reason = bad.reason if isinstance(bad, BadTarget) else "malformed"
        refused = await call.refuse_text(head.target, BadTarget(reason, bad.what), "proxy")
        await send_and_close(child.sock, http_refusal(refused))
    except EgressRefused as refused:
        await send_and_close(child.sock, http_refusal(refused))


class _Socks:
    """SOCKS5 (RFC 1928) without authentication; a client that insists may send any password (RFC 1929)."""

    def __init__(self, call: BrokerCall, child: ChildSocket, names: SyntheticNames | None) -> None:
        self._call, self._child, self._names = call, child, names

    async def serve(self) -> None:
        methods = (await self._take(2))[1]
        offered = await self._take(methods)
        if 0 in offered:
            await self._child.write(b"\x05\x00")
        elif 2 in offered:
            await self._child.write(b"\x05\x02")
            await self._take((await self._take(2))[1])  # the version and the user name
            await self._take((await self._take(1))[0])  # the password
            await self._child.write(b"\x01\x00")
        else:
            what = f"SOCKS5 with the methods {list(offered[:16])} only; it takes none, or a password"
            await self._call.refuse_text("", BadTarget("malformed", what), "proxy")
            await send_and_close(self._child.sock, b"\x05\xff")
            return
        version, command, reserved, kind = await self._take(4)
        try:
            target = await self._target(kind)
            if (version, reserved) != (5, 0):
                raise BadTarget(
                    "malformed", f"a SOCKS request with version {version} and {reserved} after it"
                )
            if command != 1:
                raise BadTarget("malformed", f"SOCKS5 command {command}; CONNECT only")
        except BadTarget as bad:
            await self._call.refuse_text(f"SOCKS5 command {command}", bad, "proxy")
            code = (
                _SOCKS_COMMAND if command != 1 else _SOCKS_ADDRESS if kind not in (1, 3, 4) else _SOCKS_DENIED
            )
            await send_and_close(self._child.sock, _reply(code))
            return
        try:
            await serve_tunnel(self._call, self._child, target, "proxy", opened=self._opened)
        except EgressRefused as refused:
            reached = refused.reason in ("no-answer", "upstream")
            await send_and_close(self._child.sock, _reply(_SOCKS_UNREACHABLE if reached else _SOCKS_DENIED))

    async def _opened(self) -> None:
        await self._child.write(_reply(_SOCKS_OK))

    async def _target(self, kind: int) -> Target:
        if kind == 1:
            host = socket.inet_ntop(socket.AF_INET, await self._take(4))
        elif kind == 4:
            host = f"[{socket.inet_ntop(socket.AF_INET6, await self._take(16))}]"
        elif kind == 3:
            name = await self._take((await self._take(1))[0])
            host = name.decode("latin-1")
        else:
            raise BadTarget("malformed", f"SOCKS5 address type {kind}")
        port = int.from_bytes(await self._take(2), "big")
        if kind == 3 and (not host.isascii() or host.startswith("[")):
            raise BadTarget("malformed", "a SOCKS5 name is ASCII")
        target = target_of(host, port)
        if self._names is not None and target.host.is_literal:
            meant = self._names.name_of(parse_address(target.host.text))
            return replace(target, host=Host(meant, "name")) if meant is not None else target
        return target

    async def _take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = await self._child.read()
            if not more:
                raise ConnectionResetError("the client left inside the SOCKS greeting")
            data += more
        self._child.unread(data[count:])
        return data[:count]


def _reply(code: int) -> bytes:
    return bytes((5, code, 0, 1, 0, 0, 0, 0, 0, 0))
