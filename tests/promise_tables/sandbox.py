"""Promises of sandbox: (id, sentence, source[, gap])."""

PROMISES: list[tuple[str, ...]] = []
