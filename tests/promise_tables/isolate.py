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
    (
        "isolate:ids-are-nobodys",
        "As root a zygote's user id is nobody else's: no account's, no range's, no other host's.",
        "subuid(5), invariant 6",
    ),
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
    (
        "isolate:attacks-are-answered",
        "Every attempt of the abuse catalogue gets a sound answer, from the next wall too when one is gone.",
        "the abuse catalogue, rows 1 to 67 and 70 to 78",
    ),
    (
        "isolate:refused-calls-are-named",
        "System calls that no honest program makes are named and counted in the result.",
        "seccomp_unotify(2), invariant 12",
    ),
    (
        "isolate:looked-at-before-use",
        "A child that lacks any wall is refused, with its name, before tool code runs.",
        "invariant 13, D2",
    ),
    ("isolate:posture", "A running child has, seen from outside, exactly what its plan gives it.", "D2"),
    (
        "isolate:the-view-is-what-was-granted",
        "A tool sees the system, its own folder and its grants, read-only but for its write grants.",
        "invariant 6",
    ),
    ("isolate:fresh-child", "Nothing that one call does is visible to another.", "invariant 6, R006"),
    (
        "isolate:no-secret-outside-the-call",
        "A credential is in no argument list and in no start environment.",
        "invariant 4, R006",
    ),
    (
        "isolate:limits-hold",
        "Time, memory, processes, output, disk and descriptors of a call are bounded; the limit is named.",
        "R008, invariant 7",
    ),
    (
        "isolate:nothing-outlives-a-call",
        "When a call has ended, no process that it started runs on.",
        "invariant 5, R008, R477",
    ),
    (
        "isolate:gone-with-the-host",
        "kill -9 of the host leaves no process, no control group and no folder.",
        "invariant 5, R477",
    ),
    (
        "isolate:any-bytes-from-a-child",
        "Whatever a child sends ends in a verdict; the host neither fails, hangs nor grows by it.",
        "invariant 7, R478",
    ),
    (
        "isolate:host-does-not-grow",
        "A flood from a child makes the host grow by a bounded number of bytes.",
        "invariant 7, R478",
    ),
    ("isolate:leaves-nothing", "After many calls the host holds nothing that they made.", "invariants 5, 7"),
    ("isolate:programs-work", "Honest programs work inside as they do outside.", "the field reports"),
    (
        "isolate:no-byte-but-by-the-broker",
        "A tool reaches no network, no service of the host and no socket of another, but by the broker.",
        "invariant 1",
    ),
    (
        "isolate:reuse-is-keyed",
        "With `reuse`, a process serves calls of one tool, environment and principal, while it behaves.",
        "D1, the abuse catalogue, section E",
    ),
    (
        "isolate:kernel-buffers-are-counted",
        "Bytes in the buffers of sockets count as a call's memory.",
        "the abuse catalogue, row 46",
        "holds where a control group counts; an ordinary user's tools may park about 100 MiB a process in "
        "sockets of default size, which no process's size shows",
    ),
    (
        "isolate:mcp-servers-are-held-to-their-word",
        "A server that changes its tool list or talks out of turn is seen, and hangs nobody.",
        "the abuse catalogue, rows 68 and 69",
        "no part of this version speaks to MCP servers",
    ),
    (
        "isolate:results-are-collected-without-following",
        "Files that a tool leaves are opened without following links, and only regular ones.",
        "the abuse catalogue, row 70",
        "nothing in the host opens what a tool leaves in a folder; row 43 holds that it is left alone",
    ),
]
