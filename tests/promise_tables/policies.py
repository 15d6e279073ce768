"""Promises of policies: (id, sentence, source[, gap])."""

PROMISES: list[tuple[str, ...]] = [
    (
        "policies:unknown-key-refused",
        "A key or flag that this version does not know is a load error, at any depth of the file.",
        "contract section 1 (extra = forbid)",
    ),
    (
        "policies:not-yet-refused",
        "An entry that no part of this version enforces is a load error and never a silent pass.",
        "design: what must never happen, 11",
    ),
    (
        "policies:every-fault-named",
        "A load error names file, key path, value and, where known, the corrected value; all faults at once.",
        "contract section 1",
    ),
    (
        "policies:only-configuration-errors",
        "Whatever a configuration holds, reading it raises ConfigError and nothing else.",
        "design: what must never happen, 7",
    ),
    (
        "policies:secret-value-not-echoed",
        "No error and no printed form of a configuration value repeats a secret.",
        "design: what must never happen, 4",
    ),
    (
        "policies:no-secret-in-the-file",
        "A secret that is written in the file is refused, and so is a string shaped like a credential.",
        "contract section 1: never a value in this file",
    ),
    (
        "policies:reserved-env-refused",
        "A tool's env cannot set a name by which a loader or an interpreter would run other code.",
        "attack 40: loader and interpreter injection",
    ),
    (
        "policies:host-files-out-of-reach",
        "read and write open no state folder and no secret file, and write no code and no configuration.",
        "design: what must never happen, 4 and 6",
    ),
    (
        "policies:schema-never-fetches",
        "An input schema that points outside itself is refused; nothing is fetched to check an input.",
        "design: what must never happen, 1",
    ),
    (
        "policies:denial-has-reasons",
        "Each reason code has a sentence for the operator, one for the model and one in the docs.",
        "design: what must never happen, 12",
    ),
]
