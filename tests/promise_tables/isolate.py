"""Promises of isolate: (id, sentence, source[, gap])."""

PROMISES: list[tuple[str, ...]] = [
    (
        "isolate:seccomp-answers",
        "Every system call has the answer that the policy's data file says.",
        "seccomp(2)",
    ),
    ("isolate:verdict-from-the-host", "How a call ended is judged from what the host saw.", "R002, R479"),
    ("isolate:no-egress-no-port", "A tool without egress has no port it may connect to.", "R025"),
    ("isolate:state-is-hidden", "The host's state is not visible in a cage, even inside a grant.", "R007"),
    ("isolate:env-exact", "A tool's environment is its declared variables and PATH.", "R005, R006"),
    (
        "isolate:container-tier",
        "In a default container tools run on Landlock and seccomp, and it is said.",
        "D2",
    ),
    (
        "isolate:weaker-than-asked-does-not-run",
        "A sandbox weaker than required does not run.",
        "invariant 11",
    ),
]
