"""Inspecting mode: TLS of an entry with `+inspect` is ended here and begun again upstream, so that methods,
paths and secrets hold inside.

Guarantees: the authority lives in memory for one run of the host, and is trusted only where its certificate
is shown to a child; leaves are for exactly the decided host, last a day and are made anew before they run
out; clocks may differ by five minutes; upstream certificates are verified as for `ctx.fetch`. Off unless an
entry asks for it.
Limits: HTTP/2 (_h2_door.py) and HTTP/1.1 inside. Needs the `cryptography` and `h2` packages (extra
`inspect`); without the first such an entry is refused, never passed unread; without the second ALPN offers
HTTP/1.1 alone.
"""

from __future__ import annotations

import asyncio
import datetime
import importlib.util
import ipaddress
import ssl
import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fumehood.broker._child import READ, ChildSocket
from fumehood.broker._turns import Turns
from fumehood.policies.names import Host

MAX_LEAVES = 512  # hosts whose context is kept; minting one anew takes a millisecond
HANDSHAKE_TIMEOUT = 10.0  # seconds for the child's side of the handshake
SKEW = datetime.timedelta(
    minutes=5
)  # by which a child's clock may be behind (time namespaces, virtual machines)
_RECORDS, _SMALL = 64, 1024  # small TLS records that are handed on together, and the bytes of one that is
_AT_ONCE = 16  # reads in a turn of the event loop
LEAF_LIFE = datetime.timedelta(days=1)
AUTHORITY_LIFE = datetime.timedelta(days=3650)  # longer than a run of the host, with which its key goes
_TRUST_VARIABLES = (
    "SSL_CERT_FILE",  # OpenSSL, Go, Python
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
)


def can_inspect() -> bool:
    """Whether the `cryptography` package is there."""
    return importlib.util.find_spec("cryptography") is not None


def can_inspect_h2() -> bool:
    """Whether the `h2` package is there."""
    return importlib.util.find_spec("h2") is not None


def trust_environment(bundle: str) -> Mapping[str, str]:
    """The variables that make common clients trust the bundle at the path `bundle` (a path as the child sees
    it).
    """
    return dict.fromkeys(_TRUST_VARIABLES, bundle)


class InspectionAuthority:
    """A certificate authority of one host run. Raises: ImportError without `cryptography`."""

    def __init__(self) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

        self._key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key = ec.generate_private_key(
            ec.SECP256R1()
        )  # shared by the leaves: minting is then 40 us
        self._name = x509.Name(
            [x509.NameAttribute(NameOID.COMMON_NAME, "fumehood inspection, this run only")]
        )
        self._contexts: OrderedDict[str, tuple[datetime.datetime, ssl.SSLContext]] = OrderedDict()
        self._certificate = self._sign(
            self._name,
            self._key.public_key(),
            [
                (x509.BasicConstraints(ca=True, path_length=0), True),
                (_usage(key_cert_sign=True, crl_sign=True), True),
                (x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), False),
            ],
            AUTHORITY_LIFE,
        )

    @property
    def pem(self) -> bytes:
        """The authority's certificate."""
        from cryptography.hazmat.primitives.serialization import Encoding

        pem: bytes = self._certificate.public_bytes(Encoding.PEM)
        return pem

    def bundle(self) -> bytes:
        """The system's authorities and this one, for a child:

        the variables replace a client's store, they do not add to it.
        """
        from fumehood.broker._dial import system_bundle

        return system_bundle() + b"\n" + self.pem

    def context(self, host: Host) -> ssl.SSLContext:
        """A server context with a leaf for exactly `host`."""
        now = datetime.datetime.now(datetime.UTC)
        renew, context = self._contexts.get(host.text, (now, None))
        if context is None or now >= renew:
            context = self._mint(host)
            self._contexts[host.text] = (now + LEAF_LIFE / 2, context)
            if len(self._contexts) > MAX_LEAVES:
                self._contexts.popitem(last=False)
        self._contexts.move_to_end(host.text)
        return context

    def _mint(self, host: Host) -> ssl.SSLContext:
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.x509.oid import ExtendedKeyUsageOID

        name: x509.GeneralName = (
            x509.IPAddress(ipaddress.ip_address(host.text)) if host.is_literal else x509.DNSName(host.text)
        )
        leaf = self._sign(
            x509.Name([]),
            self._leaf_key.public_key(),
            [
                (x509.SubjectAlternativeName([name]), True),
                (x509.BasicConstraints(ca=False, path_length=None), True),
                (_usage(digital_signature=True), True),
                (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
                (x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False),
                (x509.SubjectKeyIdentifier.from_public_key(self._leaf_key.public_key()), False),
            ],
            LEAF_LIFE,
        )
        key = self._leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION  # RFC 9113 section 9.2.1 forbids it, and nobody needs it
        context.set_alpn_protocols(["h2", "http/1.1"] if can_inspect_h2() else ["http/1.1"])
        # The ssl module loads keys from files only; the file is unlinked before anything else can run.
        with tempfile.NamedTemporaryFile(prefix="fumehood-") as file:
            file.write(key + leaf.public_bytes(Encoding.PEM))
            file.flush()
            context.load_cert_chain(Path(file.name))
        return context

    def _sign(
        self,
        subject: Any,
        public_key: Any,
        extensions: list[tuple[Any, bool]],
        life: datetime.timedelta,
    ) -> Any:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - SKEW)
            .not_valid_after(now + life + SKEW)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, hashes.SHA256())


def _usage(**given: bool) -> Any:
    from cryptography import x509

    names = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{name: given.get(name, False) for name in names})


class ChildTls:
    """The child's stream inside TLS that ends here;

    the ClientHello may have been read from the socket already.
    """

    def __init__(self, child: ChildSocket, context: ssl.SSLContext) -> None:
        self._child = child
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)
        self._ahead = b""
        self._writing = asyncio.Lock()
        self._turns = Turns(_AT_ONCE)

    async def handshake(self) -> None:
        """Raises: OSError (ssl.SSLError among them), TimeoutError."""
        async with asyncio.timeout(HANDSHAKE_TIMEOUT):
            while True:
                try:
                    self._tls.do_handshake()
                    await self._flush()
                    return
                except ssl.SSLWantReadError:
                    await self._flush()
                    await self._fill()

    @property
    def protocol(self) -> str | None:
        """What ALPN agreed on; None when the client offered nothing."""
        return self._tls.selected_alpn_protocol()

    async def read(self) -> bytes:
        if self._ahead:
            data, self._ahead = self._ahead, b""
            return data
        pieces: list[bytes] = []
        while len(pieces) < _RECORDS and (not pieces or len(pieces[-1]) < _SMALL):
            try:
                pieces.append(self._tls.read(READ))
                if not pieces[-1]:
                    break
            except ssl.SSLWantReadError:
                if pieces:
                    break
                await self._flush()
                await self._fill()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                break
        await self._turns.took()
        return b"".join(pieces)

    async def write(self, data: bytes) -> None:
        self._tls.write(data)
        await self._flush()

    def unread(self, data: bytes) -> None:
        self._ahead = data + self._ahead

    async def finish(self) -> None:
        """Send close_notify, so that the client knows a whole answer from a cut one."""
        try:
            self._tls.unwrap()
        except (ssl.SSLError, OSError):
            pass
        await self._flush()

    def close(self) -> None:
        self._child.close()

    async def _fill(self) -> None:
        data = await self._child.read()
        if data:
            self._in.write(data)
        else:
            self._in.write_eof()

    async def _flush(self) -> None:
        async with self._writing:
            while data := self._out.read():
                await self._child.write(data)
