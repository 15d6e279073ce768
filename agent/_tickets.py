"""Tickets: what the host hands out so that someone outside may fetch stored content.

Guarantees: a ticket opens one address for one principal until it expires, and was minted by a holder of the
key; an address alone opens nothing. Checked in constant time, before the store is asked. Does not revoke: a
ticket is good until it expires, so keep lives short; new key, no old ticket. The key file is created 0600 and
never leaves the host.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import hmac
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from fumehood.agent._canonical import canonical
from fumehood.agent._sqlite import StorageError, fsync_folder, make_private_folder
from fumehood.policies.errors import FumehoodError

DEFAULT_LIFE_S: Final = 300.0
"""How long a ticket lives when nobody says otherwise: long enough to click, short enough to leak little."""

_VERSION: Final = "fh1"


class TicketRefused(FumehoodError):
    """The ticket is damaged, forged, expired or somebody else's. Which of them is not said to the holder."""

    exit_code: ClassVar[int] = 3

    def __init__(self, why: str) -> None:
        super().__init__("the ticket does not open anything here", hint="ask for a new one")
        self.why = why


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a good ticket opens."""

    address: str
    principal: str
    expires_at: float


class TicketBooth:
    """Mints and checks tickets. key: 32 bytes or more, see `load_key`. clock: seconds since the epoch."""

    def __init__(self, key: bytes, *, clock: Callable[[], float] = time.time) -> None:
        if len(key) < 32:
            raise ValueError("a ticket key has 32 bytes or more")
        self._key = key
        self._clock = clock

    def mint(self, address: str, *, principal: str, life_s: float = DEFAULT_LIFE_S) -> str:
        """A ticket for `principal` to fetch `address`. The caller has authorized that (see
        `ContentStore.owners`).
        """
        body = canonical({"a": address, "e": round(self._clock() + life_s, 3), "p": principal}).encode(
            "ascii"
        )
        return ".".join([_VERSION, _text(body), _text(self._tag(body))])

    def check(self, ticket: str, *, principal: str) -> Ticket:
        """What the ticket opens for this principal. Raises: TicketRefused."""
        version, _, rest = ticket.partition(".")
        body_text, _, tag_text = rest.partition(".")
        try:
            body, tag = _bytes(body_text), _bytes(tag_text)
        except (binascii.Error, ValueError):
            raise TicketRefused("not a ticket") from None
        if version != _VERSION or not hmac.compare_digest(tag, self._tag(body)):
            raise TicketRefused("not signed here")
        claims = json.loads(body)
        found = Ticket(claims["a"], claims["p"], claims["e"])
        if found.expires_at <= self._clock():
            raise TicketRefused("expired")
        if not hmac.compare_digest(_utf8(found.principal), _utf8(principal)):
            raise TicketRefused("somebody else's")
        return found

    def _tag(self, body: bytes) -> bytes:
        return hmac.digest(self._key, b"fumehood ticket\x00" + body, hashlib.sha256)


def load_key(path: Path) -> bytes:
    """The key in `path`, made there (mode 0600) when there is none. Raises: StorageError."""
    make_private_folder(path.parent)
    if not path.exists():
        # Named only once all of it is on disk: nobody is to read half a key, and no kill leaves one.
        key = os.urandom(32)
        draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(key)
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(FileExistsError):  # somebody else's came first, and holds
                os.link(draft, path)
        finally:
            draft.unlink()
        fsync_folder(path.parent)
    key = path.read_bytes()
    if len(key) != 32:
        raise StorageError(
            f"{path}: not a ticket key of 32 bytes",
            hint="remove the file; tickets handed out die with it",
        )
    return key


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode("ascii").rstrip("=")


def _bytes(text: str) -> bytes:
    # Without altchars in validate mode urlsafe_b64decode would skip foreign characters instead of refusing
    # them.
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
