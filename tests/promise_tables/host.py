"""Promises of host: (id, sentence, source[, gap])."""

PROMISES: list[tuple[str, ...]] = [
    (
        "host:events-before-the-result",
        "What a tool emits is on disk, in order, before its result counts.",
        "R010",
    ),
    ("host:secret-only-to-its-tool", "A secret reaches the tool it is declared for, and no log row.", "R006"),
    (
        "host:files-handed-back",
        "Files that the operator asked for are stored and parts of the result; the others have a reason.",
        "contract 3, 6",
    ),
    (
        "host:values-are-json",
        "A value that JSON cannot hold is the tool's error, with its place in the value.",
        "R003, R478",
    ),
    (
        "host:log-is-read-anywhere",
        "The log is shown, verified and exported where it cannot be written, every committed row of it.",
        "contract 3",
    ),
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
    (
        "host:run-keeps-the-configuration",
        "A command of `run` cannot change the configuration that it, or the next command there, runs under.",
        "contract 3",
    ),
    ("host:state-is-hidden", "No tool sees the host's log and store, wherever they lie.", "R007"),
    (
        "host:json-is-one-object",
        "With --format json stdout holds one JSON object and nothing else, for errors too.",
        "contract 3",
    ),
    (
        "host:a-denial-has-a-reason",
        "A refused connection is named with host, port and reason by call and explain.",
        "invariant 12",
    ),
    (
        "host:no-credential-in-output",
        "A credential of a tool is in no output of the command line and in no export of the log.",
        "invariant 4",
    ),
    (
        "host:a-signal-leaves-nothing",
        "SIGINT, SIGTERM, SIGHUP or SIGKILL to the command line leaves no process of a tool behind.",
        "invariant 5",
    ),
    (
        "host:run-passes-no-environment",
        "A command of `run` sees PATH and the variables named with --env, and no other of the caller's.",
        "R005",
    ),
    (
        "host:closed-descriptors-are-not-ours",
        "A standard descriptor that the caller closed is /dev/null for the command, never our own file.",
        "R007",
    ),
    (
        "host:verify-finds-a-changed-row",
        "log verify fails for a changed row, and with an anchor for a tail that was cut off.",
        "D9",
    ),
    (
        "host:terminal-safe",
        "No text of a tool or a peer reaches a terminal with control, bidi or invisible characters.",
        "attack surface of logs",
    ),
    (
        "host:weaker-is-refused",
        "On a machine without user namespaces a call is refused with the remedy, and nothing of it runs.",
        "invariant 11",
    ),
    (
        "host:the-demo-holds",
        "Every hostile attempt of the demo is refused or killed, with its reason, as root and as a user.",
        "issue: the main job",
    ),
    ("host:scripts-in-cages", "A script's engine runs in a process that stands in a cage.", "R016, R017"),
    ("host:unmodified-clients", "Programs with no proxy setting reach the listed names and no others.", "D3"),
    (
        "host:secret-filled-in-outside",
        "A rule's secret is filled in by the broker; the tool never has it.",
        "D5",
    ),
    (
        "host:media-only-when-declared",
        "Only a declared, untainted tool's output is read as media.",
        "R103, R104",
    ),
    ("host:checked-before-a-process", "Input is checked before any process of the tool exists.", "R002"),
    (
        "host:deadline-needs-no-help",
        "A tool is gone at its deadline with all it started, whatever it ignores.",
        "R008",
    ),
]
