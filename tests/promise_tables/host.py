"""Promises of host: (id, sentence, source[, gap])."""

PROMISES: list[tuple[str, ...]] = []
