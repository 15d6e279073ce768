"""Promises of packaging: (id, sentence, source[, gap])."""

PROMISES: list[tuple[str, ...]] = [
    (
        "packaging:wheel-is-the-tree",
        "A wheel made from the source distribution holds every file of the folders and nothing else.",
        "docs/adr/0005-one-import-name.md",
    ),
    (
        "packaging:no-bare-names",
        "An install makes no name but `fumehood` importable, and none of its modules is loaded twice.",
        "docs/adr/0005-one-import-name.md",
    ),
    (
        "packaging:cage-code-is-stdlib-only",
        "What runs inside a cage before the tool imports nothing that is not of the standard library.",
        "docs/isolation.md",
    ),
    (
        "packaging:no-machine-in-the-tree",
        "No file depends on a folder of the machine it was written on, or names a package registry.",
        "CONTRIBUTING.md",
    ),
]
