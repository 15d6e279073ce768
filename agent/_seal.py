"""Reasoning at rest: the text in an envelope that names the one execution it belongs to.

Guarantees: `unseal` gives the text only to the execution named in the envelope, so a copied or forged
reference opens nothing (R344), and identical text of two executions is two blobs, erased apart (R345, R450).
The seal binds, it does not encrypt: whoever can read the store's files can read the text. The digest in a
transcript is of the text, not of the envelope.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

SEALED_TYPE: Final = "application/vnd.fumehood.sealed-text"


def seal(text: str, execution_id: str) -> bytes:
    """The envelope's bytes: one line of JSON, then the text."""
    return (
        json.dumps({"sealed_to": execution_id}).encode("ascii")
        + b"\n"
        + text.encode("utf-8", "surrogatepass")
    )


def unseal(data: bytes, execution_id: str) -> str | None:
    """The text, or None when the envelope names another execution or is none."""
    head, found, body = data.partition(b"\n")
    try:
        owner = json.loads(head)
        text = body.decode("utf-8", "surrogatepass")
    except (ValueError, RecursionError):
        return None
    return text if found and owner == {"sealed_to": execution_id} else None


def text_digest(text: str) -> str:
    """SHA-256 of the text as UTF-8, lower-case hex (R314)."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
