"""Promises of host: (id, sentence, source[, gap])."""

PROMISES: list[tuple[str, ...]] = [
    (
        "host:events-before-the-result",
        "What a tool emits is on disk, in order, before its result counts.",
        "R010",
    ),
    ("host:secret-only-to-its-tool", "A secret reaches the tool it is declared for, and no log row.", "R006"),
    ("host:reuse-is-keyed", "A process is kept only for the same tool, environment and principal.", "R476"),
    (
        "host:refusals-are-on-record",
        "A call that is refused before it starts leaves its reason in the log.",
        "D2",
    ),
    (
        "host:refused-calls-are-named",
        "A system call that the sandbox refused is named in result and log.",
        "D2",
    ),
    ("host:state-is-hidden", "No tool sees the host's log and store, wherever they lie.", "R007"),
    ("host:scripts-in-cages", "A script's engine runs in a process that stands in a cage.", "R016, R017"),
]
