"""Promises of agent: (id, sentence, source[, gap])."""

PROMISES: list[tuple[str, ...]] = []
