"""The world of the demo: a metrics server, an image server, a server nobody may reach, "the Internet", and a
name server that lies.

Everything listens on 127.77.0.x, addresses of loopback that no other program uses. The ports that
examples/demo/fumehood.toml names are tried first; where one is taken, another is used and the demo's copy of
the file says so. Nothing leaves the machine.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from fumehood.policies.errors import HostError
from fumehood.testing.dns import LyingDns, Said
from fumehood.testing.http import HttpServer, Reply, Seen

DNS, METRICS, IMAGES, VAULT, INTERNET = (f"127.77.0.{number}" for number in (1, 2, 3, 4, 5))
DNS_PORT, METRICS_PORT, IMAGES_PORT = 5377, 19090, 18080
PUBLIC = "93.184.216.34"
"""The one public address of this world; `World.dial` leads it to the server that plays the Internet."""

METADATA = "169.254.169.254"
ROWS = ({"host": "web-1", "cpu": 0.31}, {"host": "web-2", "cpu": 0.87}, {"host": "db-1", "cpu": 0.55})
S = TypeVar("S")


@dataclass
class World:
    """Running servers, and the folder with the demo's copy of the example.

    moved: port in the example -> port used instead. tokens: name of a secret -> its value.
    """

    folder: Path
    dns: LyingDns
    metrics: HttpServer
    images: HttpServer
    vault: HttpServer
    internet: HttpServer
    image: bytes
    tokens: dict[str, str]
    moved: dict[int, int] = field(default_factory=dict)

    def dial(self, address: str, port: int) -> tuple[str, int]:
        """Where a vetted address leads: the public one to the server that plays the Internet, every
        other to itself.
        """
        return self.internet.address if address == PUBLIC else (address, port)

    @property
    def metrics_url(self) -> str:
        return f"http://metrics.internal:{self.metrics.port}/api/cpu"

    @property
    def chart_url(self) -> str:
        return f"http://images.internal:{self.images.port}/charts/cpu.png"

    @property
    def vault_url(self) -> str:
        return f"http://vault.internal:{self.vault.port}/"


@contextlib.contextmanager
def open_world(*, keep: bool = False) -> Iterator[World]:
    """Start everything; stop and remove it at the end. keep: leave the folder with log, store and
    configuration.

    Raises HostError when loopback cannot be used or the example is not there.
    """
    tokens = {name: secrets.token_urlsafe(24) for name in ("METRICS_TOKEN", "IMAGES_TOKEN")}
    moved: dict[int, int] = {}
    image = _png()
    with contextlib.ExitStack() as stack:

        def serve(host: str, port: int, answer: Callable[[Seen], Reply]) -> HttpServer:
            return stack.enter_context(
                _listening(port, moved, lambda at: HttpServer(answer, host=host, port=at))
            )

        metrics = serve(
            METRICS, METRICS_PORT, _guarded(tokens["METRICS_TOKEN"], Reply.json({"rows": list(ROWS)}))
        )
        picture = Reply(200, image, (("Content-Type", "image/png"),))
        images = serve(IMAGES, IMAGES_PORT, _guarded(tokens["IMAGES_TOKEN"], picture))
        vault = serve(VAULT, 0, lambda seen: Reply(200, b"the crown jewels"))
        internet = serve(INTERNET, 0, lambda seen: Reply(200, b"hello from the Internet"))
        zone: dict[str, Said] = {
            "metrics.internal": [METRICS],
            "images.internal": [IMAGES],
            "vault.internal": [VAULT],
            "rebind.example": {"sequence": [[PUBLIC], [VAULT]]},
            "intranet.example": [VAULT],
            "clouds.example": [METADATA],
            "mixed.example": [PUBLIC, VAULT],
        }
        dns = stack.enter_context(_listening(DNS_PORT, moved, lambda at: LyingDns(zone, at=(DNS, at))))
        folder = Path(tempfile.mkdtemp(prefix="fumehood-demo-"))
        if not keep:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        _copy_example(folder, tokens, moved)
        yield World(folder, dns, metrics, images, vault, internet, image, tokens, moved)


def example_folder() -> Path:
    """examples/demo: inside the package when it was installed from a wheel, else of the checkout."""
    import fumehood

    package = Path(fumehood.__file__).resolve().parent
    for folder in (package / "_examples" / "demo", package.parents[1] / "examples" / "demo"):
        if (folder / "fumehood.toml").is_file():
            return folder
    raise HostError(f"the demo's files are not in {package}", hint="reinstall fumehood")


def _listening(port: int, moved: dict[int, int], make: Callable[[int], S]) -> S:
    """A server on `port`, or on any free port when that one is taken."""
    try:
        return make(port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE or port == 0:
            raise HostError(f"the demo cannot listen on loopback (127.77.0.0/24): {error}") from error
    server = make(0)
    moved[port] = server.address[1]  # type: ignore[attr-defined]  # both kinds of server have it
    return server


def _copy_example(folder: Path, tokens: dict[str, str], moved: dict[int, int]) -> None:
    shutil.copytree(
        example_folder() / "tools", folder / "tools", ignore=shutil.ignore_patterns("__pycache__")
    )
    text = (example_folder() / "fumehood.toml").read_text(encoding="utf-8")
    for port, instead in moved.items():
        text = text.replace(f":{port}", f":{instead}")
    (folder / "fumehood.toml").write_text(text, encoding="utf-8")
    (folder / "secrets").mkdir(mode=0o700)
    for name, value in tokens.items():
        path = folder / "secrets" / name.lower().replace("_", "-")
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(value + "\n")


def _guarded(token: str, reply: Reply) -> Callable[[Seen], Reply]:
    """Answers who has the token."""

    def answer(seen: Seen) -> Reply:
        if seen.header("authorization") != f"Bearer {token}":
            return Reply(401, b"no such token", phrase="Unauthorized")
        return reply

    return answer


def _png() -> bytes:
    """A small picture: 48 by 24 pixels, a rising line."""
    width, height = 48, 24
    rows = b"".join(
        b"\0"
        + b"".join(b"\x30\x90\xd0" if height - y <= x // 2 + 2 else b"\xff\xff\xff" for x in range(width))
        for y in range(height)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
