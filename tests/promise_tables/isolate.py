"""Promises of isolate: (id, sentence, source[, gap])."""

PROMISES: list[tuple[str, ...]] = []
