"""What the file may say and no part of this version enforces. Each line is a load error, never a silent pass.

The part that makes an entry true deletes its line here, and with it the row "not supported yet" in
docs/configuration.md. A key is `tools.*.KEY` (any value that is not the default), `tools.*.KEY = "value"`, or
`tools.*.egress.*.KEY` for a part of an egress rule, in whichever of its two forms it was written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

NOT_YET: dict[str, str] = {
    "tools.*.mcp": "MCP servers as tools",
    'tools.*.approval = "always"': "approval by a person",
    'tools.*.retention = "requery"': "retention of results",
    'tools.*.retention = "durable"': "retention of results",
}


def unsupported(
    tool: Mapping[str, object], rules: Mapping[int, object]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The entries of one tool that NOT_YET names, as (key path below the tool, sentence).

    tool: the raw table. rules: the parsed rules of `egress` by their index; one that failed to parse is
    absent.
    """
    for entry, what in NOT_YET.items():
        path, _, value = entry.removeprefix("tools.*.").partition(" = ")
        sentence = f"not supported yet: {what}"
        if path.startswith("egress.*."):
            part = path.removeprefix("egress.*.")
            for index, rule in rules.items():
                if getattr(rule, part) not in (None, False):
                    yield ("egress", index), f"{sentence} ({part})"
        elif path in tool and (not value or tool[path] == json.loads(value)):
            yield (path,), sentence
