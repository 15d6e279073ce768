"""Promises of policies: (id, sentence, source[, gap])."""

PROMISES: list[tuple[str, ...]] = []
