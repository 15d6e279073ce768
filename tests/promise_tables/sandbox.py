"""Promises of sandbox: (id, sentence, source[, gap])."""

PROMISES: list[tuple[str, ...]] = [
    (
        "sandbox:attack-is-contained",
        "A script in a worker can spend its time, its memory and its output and nothing else, ends with a "
        "reason, and leaves the next script and the host as they were.",
        "R016",
    ),
    (
        "sandbox:in-process-survives-attacks",
        "The same attacks on an engine inside the host's process end the script and not the process.",
        "R016",
    ),
    (
        "sandbox:engine-stands-in-a-cage",
        "Host.eval and `fumehood eval` run the engine in a caged worker, and the result names its layers.",
        "design D6",
    ),
    ("sandbox:fresh-per-script", "What one script changes, no other script sees.", "design, never 6"),
    ("sandbox:no-clock-unless-granted", "A script reads no clock unless it was granted one.", "design D6"),
    (
        "sandbox:randomness-is-fresh",
        "Two instances draw different random numbers although they start from one image.",
        "spec of the sandbox: snapshots",
    ),
    (
        "sandbox:session-keeps-its-taint",
        "What a script of a session got from a tainted tool taints the result of every later script.",
        "R480",
    ),
    (
        "sandbox:errors-stay-with-their-script",
        "Scripts that fail at the same time each end with their own error.",
        "design, never 6",
    ),
    (
        "sandbox:no-weaker-backend-unasked",
        "A runner that requires a cage runs no backend outside it.",
        "design, never 11",
    ),
    (
        "sandbox:calls-are-always-listed",
        "Every question a script asked is in its result with what became of it, whatever ended the script.",
        "R481",
    ),
    (
        "sandbox:in-process-does-not-hold-the-loop",
        "A script in the host's process that takes longer than two ticks runs on a thread of its own.",
        "design D6",
    ),
    (
        "sandbox:lost-worker-is-a-result",
        "A worker that dies gives its scripts a clear result, or a second run if they had asked nothing.",
        "design, never 7",
    ),
    (
        "sandbox:worker-is-not-believed",
        "Frames of a worker are capped and checked, and grants and counts are the host's own.",
        "design, never 7",
    ),
    ("sandbox:ended-script-uses-no-cpu", "A script that was ended or cancelled computes no more.", "R481"),
    (
        "sandbox:session-answers-stay-in-their-script",
        "An answer to one script's question never arrives in another script of the same session.",
        "design, never 6",
    ),
    (
        "sandbox:snapshot-is-data",
        "A snapshot that is damaged, foreign or too large is refused; nothing in it gets past it.",
        "design D6",
    ),
    (
        "sandbox:json-of-a-script-can-not-hurt",
        "JSON that a sandbox sends is a value under caps of depth and number length, or an error.",
        "design, never 7",
    ),
    (
        "sandbox:engine-is-pinned",
        "The JavaScript engine is one known file, and what is made of it is reproducible.",
        "R017",
    ),
    (
        "sandbox:cache-is-verified",
        "Compiled code is loaded only from a private folder and only with its digest intact.",
        "spec of the sandbox: provenance",
    ),
    (
        "sandbox:host-loads-no-engine",
        "In the default mode the host's process never loads the WASM runtime.",
        "design D6",
    ),
    ("sandbox:backends-conform", "Every backend passes one conformance check.", "R018"),
    (
        "sandbox:process-needs-a-cage",
        "The process backend refuses to run where it would have no wall.",
        "design, never 11",
    ),
    (
        "sandbox:signatures-stay-text",
        "A tool's name, description and schema can't end the comment or code they are shown in.",
        "design, never 8",
    ),
]
