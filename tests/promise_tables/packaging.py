"""Promises of packaging: (id, sentence, source[, gap])."""

PROMISES: list[tuple[str, ...]] = []
