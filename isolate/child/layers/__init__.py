"""One module a layer (contract: layers): `apply` does it inside, `probe` finds out by doing it in a
throw-away process.

What is to be done comes as plain data from the host's plan; nothing here reads a policy. Levels are FULL,
PARTIAL and MISSING.
"""

FULL, PARTIAL, MISSING = "FULL", "PARTIAL", "MISSING"

Status = tuple[str, str]
"""(level, what is missing and what to do about it, or "")."""
