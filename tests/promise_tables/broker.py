"""Promises of broker: (id, sentence, source[, gap])."""

PROMISES: list[tuple[str, ...]] = []
