"""From a decision to a connected socket: the only place where the broker opens a connection.

Guarantees: only addresses in `decision.vetted` are tried, in order, the next one 250 ms after the last (RFC
8305) or at once when it fails; the peer's address is checked after connecting; no name is resolved here and
no proxy variable is read. `PinnedBackend` is the same thing behind httpcore's network backend, so httpcore,
httpx and httpx2 pools dial pinned as well.
Before editing: keep `Dialer.dial` the one function of the broker that connects; a test looks for others.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import typing
from collections.abc import Callable, Iterable
from pathlib import Path

import httpcore

from fumehood.broker._addresses import Address, parse_address
from fumehood.broker._turns import Turns
from fumehood.broker._types import EgressDecision

HEAD_START = 0.25  # seconds an attempt has before the next address is tried beside it (RFC 8305 section 8)
CONNECT_TIMEOUT = 10.0  # seconds for all attempts of one connection
_TURN = 256 * 1024  # bytes written before others have a turn,
_WRITE = 2048  # where each write counts as so many: a small one costs more than its bytes
_LIMIT = 256 * 1024  # bytes buffered for a reader that is slow, before the kernel's buffer takes over

DialMap = Callable[[str, int], tuple[str, int]]


class DialFailed(OSError):
    """No vetted address could be connected; str() lists what each one said."""


class Dialer:
    """Connects to vetted addresses.

    dial: test seam: maps the vetted (address, port) to the loopback server that plays it. Production code
    never passes it.
    """

    def __init__(self, *, dial: DialMap | None = None) -> None:
        self._map = dial

    async def dial(
        self, decision: EgressDecision, *, timeout: float = CONNECT_TIMEOUT
    ) -> tuple[socket.socket, Address]:
        """A connected, non-blocking socket and the vetted address that it leads to.

        Raises: DialFailed when no address answers in `timeout` seconds.
        """
        assert decision.outcome == "allow" and decision.port is not None, (
            "only an allowed decision is dialled"
        )
        if len(decision.vetted) == 1:  # nothing to race
            only = decision.vetted[0]
            try:
                return await self._connect(only, decision.port, timeout), only
            except TimeoutError as error:
                raise DialFailed(f"{only}: no connection in {timeout:g} s") from error
            except OSError as error:
                raise DialFailed(f"{only}: {error}") from error
        attempts: dict[asyncio.Task[socket.socket], Address] = {}
        errors: list[str] = []
        waiting = list(decision.vetted)
        try:
            async with asyncio.timeout(timeout):
                while waiting or attempts:
                    if waiting:
                        address = waiting.pop(0)
                        attempts[asyncio.ensure_future(self._connect(address, decision.port))] = address
                    done, _ = await asyncio.wait(
                        attempts, timeout=HEAD_START if waiting else None, return_when=asyncio.FIRST_COMPLETED
                    )
                    for task in done:
                        address = attempts.pop(task)
                        if task.exception() is None:
                            return task.result(), address
                        errors.append(f"{address}: {task.exception()}")
        except TimeoutError:
            errors.append(f"no connection in {timeout:g} s")
        finally:
            await _abandon(attempts)
        raise DialFailed("; ".join(errors) or "no address to dial")

    async def _connect(self, address: Address, port: int, timeout: float | None = None) -> socket.socket:
        text, at = self._map(address.text, port) if self._map else (address.text, port)
        expected = parse_address(text)
        sock = socket.socket(expected.family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer = await _peer_once_connected(sock, (text, at), timeout)
            if peer != expected:
                raise OSError(f"the kernel connected to {peer} in place of {expected}")
        except BaseException:  # raised on: whatever ended it, nobody else has the socket to close it
            sock.close()
            raise
        return sock


async def _peer_once_connected(sock: socket.socket, to: tuple[str, int], timeout: float | None) -> Address:
    """Connect, and say whom the kernel calls the peer. Raises: OSError, TimeoutError."""
    code = sock.connect_ex(to)
    if code not in (0, errno.EINPROGRESS, errno.EINTR):
        raise OSError(code, os.strerror(code))
    try:
        return parse_address(sock.getpeername()[0])  # a host nearby has answered within the call
    except OSError as error:
        if error.errno != errno.ENOTCONN:
            raise
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    number = sock.fileno()
    loop.add_writer(number, _wake, ready)
    try:
        async with asyncio.timeout(timeout):
            await ready
    finally:
        loop.remove_writer(number)
    if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(code, os.strerror(code))
    return parse_address(sock.getpeername()[0])


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _abandon(attempts: Iterable[asyncio.Task[socket.socket]]) -> None:
    """End the attempts that lost, closing a socket that connected meanwhile."""
    tasks = list(attempts)
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, socket.socket):
            result.close()


class PinnedBackend(httpcore.AsyncNetworkBackend):
    """httpcore's network backend for one decision:

    `connect_tcp` reaches that host and port by its vetted addresses, and nothing else.
    """

    def __init__(self, dialer: Dialer, decision: EgressDecision) -> None:
        self._dialer = dialer
        self._decision = decision

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[typing.Any] | None = None,
    ) -> PinnedStream:
        """Raises: httpcore.ConnectError when the host is not the decided one or no vetted address answers."""
        if (host.rstrip("."), port) != (self._decision.host, self._decision.port):
            raise httpcore.ConnectError(f"{host}:{port} was not decided")
        try:
            sock, address = await self._dialer.dial(self._decision, timeout=timeout or CONNECT_TIMEOUT)
        except DialFailed as error:
            raise httpcore.ConnectError(str(error)) from error
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(_StreamProtocol, sock=sock)
        return PinnedStream(transport, protocol, address)

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[typing.Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        """Raises: httpcore.ConnectError always; egress is TCP."""
        raise httpcore.ConnectError("Unix sockets are no egress")


class _StreamProtocol(asyncio.Protocol):
    """Bytes from the transport, held for one reader, with back-pressure both ways."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.eof = False
        self.is_lost = False
        self.error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._paused_reading = False
        self._paused_writing = False
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = typing.cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if len(self.buffer) > _LIMIT and not self._paused_reading and self.transport is not None:
            self._paused_reading = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self.eof = True
        self._wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        self.eof = True
        self.error = exc
        self._wake()
        self.resume_writing()

    def pause_writing(self) -> None:
        self._paused_writing = True

    def resume_writing(self) -> None:
        self._paused_writing = False
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def read(self, max_bytes: int) -> bytes:
        while not self.buffer:
            if self.eof:
                if self.error is not None:
                    raise self.error
                return b""
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        data = bytes(self.buffer[:max_bytes])
        del self.buffer[:max_bytes]
        if self._paused_reading and len(self.buffer) < _LIMIT and self.transport is not None:
            self._paused_reading = False
            self.transport.resume_reading()
        return data

    @property
    def is_free(self) -> bool:
        """Whether a write need not wait, and nothing went wrong."""
        return self.error is None and not self._paused_writing

    async def drain(self) -> None:
        if self._paused_writing and self.error is None:
            self._writer = asyncio.get_running_loop().create_future()
            try:
                await self._writer
            finally:
                self._writer = None
        if self.error is not None:
            raise self.error


class PinnedStream(httpcore.AsyncNetworkStream):
    """A connected stream that knows which vetted address it leads to, counts its bytes, and speaks httpcore's
    stream interface.
    """

    def __init__(self, transport: asyncio.Transport, protocol: _StreamProtocol, peer: Address) -> None:
        self._transport = transport
        self._protocol = protocol
        self.peer = peer
        self.sent = 0
        self.received = 0
        self._turns = Turns(_TURN)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has arrived and the peer has not closed:

        an idle connection that may be used again.
        """
        return not self._protocol.buffer and not self._protocol.eof and not self._transport.is_closing()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Up to `max_bytes`, b"" at the end. Raises: httpcore.ReadTimeout, httpcore.ReadError."""
        try:
            if timeout is None:  # a context for nothing costs as much as the read
                data = await self._protocol.read(max_bytes)
            else:
                async with asyncio.timeout(timeout):
                    data = await self._protocol.read(max_bytes)
        except TimeoutError as error:
            raise httpcore.ReadTimeout("the peer sent nothing in time") from error
        except OSError as error:
            raise httpcore.ReadError(str(error) or type(error).__name__) from error
        self.received += len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Raises: httpcore.WriteTimeout, httpcore.WriteError."""
        try:
            if self._protocol.is_lost or self._transport.is_closing():  # it would take all without a word
                raise ConnectionResetError("the peer closed the connection")
            self._transport.write(buffer)
            self.sent += len(buffer)
            await self._turns.took(len(buffer) + _WRITE)
            if self._protocol.is_free:
                return
            async with asyncio.timeout(timeout):
                await self._protocol.drain()
        except TimeoutError as error:
            raise httpcore.WriteTimeout("the peer took nothing in time") from error
        except (OSError, RuntimeError) as error:
            raise httpcore.WriteError(str(error) or type(error).__name__) from error

    async def aclose(self) -> None:
        """Close at once; nothing is waited for, since a hostile peer could hold a graceful close open."""
        self._transport.abort()

    def abort(self) -> None:
        """Close at once, from outside any task; a pending read or write fails."""
        self._transport.abort()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> PinnedStream:
        """TLS on this stream, verified for `server_hostname`.

        Raises: httpcore.ConnectError, httpcore.ConnectTimeout.
        """
        loop = asyncio.get_running_loop()
        protocol = _StreamProtocol()
        try:
            async with asyncio.timeout(timeout):
                transport = await loop.start_tls(
                    self._transport, protocol, ssl_context, server_hostname=server_hostname
                )
        except TimeoutError as error:
            self._transport.abort()
            raise httpcore.ConnectTimeout("the TLS handshake took too long") from error
        except (OSError, ssl.CertificateError) as error:
            self._transport.abort()
            raise httpcore.ConnectError(_tls_words(error)) from error
        assert isinstance(transport, asyncio.Transport)
        protocol.transport = transport
        return PinnedStream(transport, protocol, self.peer)

    def get_extra_info(self, info: str) -> typing.Any:
        """What httpcore asks for: ssl_object, server_addr, client_addr, socket, is_readable."""
        names = {
            "ssl_object": "ssl_object",
            "server_addr": "peername",
            "client_addr": "sockname",
            "socket": "socket",
        }
        if info == "is_readable":
            return not self.is_quiet
        return self._transport.get_extra_info(names[info]) if info in names else None


def _tls_words(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not valid for the host: {error.verify_message}"
    return f"TLS failed: {error}" if str(error) else f"TLS failed: {type(error).__name__}"


def client_context(trust: str | None = None) -> ssl.SSLContext:
    """TLS for the broker's own connections: the system's CAs by their compiled-in path, plus the operator's
    file.

    SSL_CERT_FILE and SSL_CERT_DIR of the parent are not read (R475). Raises: OSError, ssl.SSLError when
    `trust` cannot be loaded.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    paths = ssl.get_default_verify_paths()
    loaded = False
    with contextlib.suppress(OSError, ssl.SSLError):
        context.load_verify_locations(paths.openssl_cafile, None)
        loaded = True
    with contextlib.suppress(OSError, ssl.SSLError):
        context.load_verify_locations(None, paths.openssl_capath)
    for bundle in _BUNDLES:
        if loaded:
            break
        with contextlib.suppress(OSError, ssl.SSLError):
            context.load_verify_locations(bundle)
            loaded = True
    if not loaded:
        import certifi

        context.load_verify_locations(certifi.where())
    if trust is not None:
        context.load_verify_locations(trust)
    return context


def system_bundle() -> bytes:
    """The system's CA certificates as PEM; certifi's where the system has none."""
    for path in (ssl.get_default_verify_paths().openssl_cafile, *_BUNDLES):
        with contextlib.suppress(OSError):
            return Path(path).read_bytes()
    import certifi

    return Path(certifi.where()).read_bytes()


_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Arch, Gentoo
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # Fedora, RHEL
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ssl/cert.pem",  # Alpine
)
