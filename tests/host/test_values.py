"""What a tool returns that JSON cannot hold is the tool's error, with its place and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from fumehood import Host, load_config

pytestmark = pytest.mark.anyio

_SAID = "run() returned what JSON cannot hold: "
_LONG = "is an integer of 4097 bits, and 4096 are taken; return it as text"
_DEEP = "".join(["[0]"] * 49)

BROKEN: dict[str, tuple[str, str, str]] = {
    # name: (expression, error type, message)
    "an integer of too many bits": (
        "{'rows': [1, {'n': 1 << 4096}]}",
        "ValueError",
        f"value.rows[1].n {_LONG}",
    ),
    "a negative one": ("[-(1 << 4096)]", "ValueError", f"value[0] {_LONG}"),
    "one of too many digits for text": (
        "10 ** 5000",
        "ValueError",
        "value is an integer of 16610 bits, and 4096 are taken; return it as text",
    ),
    "not a number": (
        "{'a b': float('nan')}",
        "ValueError",
        "value['a b'] is nan, which is no JSON number; return None or text",
    ),
    "infinity": (
        "[[1e400]]",
        "ValueError",
        "value[0][0] is inf, which is no JSON number; return None or text",
    ),
    "half a character": (
        "['ok', 'x\\ud800']",
        "UnicodeEncodeError",
        "value[1] is text with half a character (U+D800 at 1), which UTF-8 has not",
    ),
    "half a character in a key": (
        "{'\\udfff': 1}",
        "UnicodeEncodeError",
        "value is an object: its key is text with half a character (U+DFFF at 0), which UTF-8 has not",
    ),
    "a number as key": (
        "{'years': {2024: 1}}",
        "ValueError",
        "value.years is an object with a key of the type int; keys are text: write str(key)",
    ),
    "two keys of one text": (
        "{1: 'a', '1': 'b'}",
        "ValueError",
        "value is an object with a key of the type int; keys are text: write str(key)",
    ),
    "none as key": (
        "{None: 1}",
        "ValueError",
        "value is an object with a key of the type NoneType; keys are text: write str(key)",
    ),
    "a tuple as key": (
        "[{(1, 2): 3}]",
        "ValueError",
        "value[0] is an object with a key of the type tuple; keys are text: write str(key)",
    ),
    "what says it is an object": (
        "type('X', (), {'__class__': property(lambda self: dict)})()",
        "TypeError",
        "'X' object is not iterable",
    ),
    "an object that cannot be read": (
        "type('D', (dict,), {'__iter__': lambda self: __import__('sys').exit('no')})(a=1)",
        "SystemExit",
        "no",
    ),
    "a set": ("{'tags': {1}}", "TypeError", "value.tags is a set; return a list"),
    "bytes": (
        "(1, b'x')",
        "TypeError",
        "value[1] is bytes; return text, or an address from ctx.put",
    ),
    "an object of a class": (
        "{'at': __import__('datetime').date(2024, 1, 2)}",
        "TypeError",
        "value.at is of the type date; return what JSON knows, such as its text",
    ),
    "one that holds itself": ("round_trip()", "ValueError", "value.me[0] is a value that holds itself"),
    "one that holds itself often": (
        "many_round_trips()",
        "ValueError",
        "value[0] is a value that holds itself",
    ),
    "too deep": (
        "nested(191)",
        "ValueError",
        f"value{_DEEP[:135]}…{_DEEP[-140:]} is a value nested deeper than 190 levels",
    ),
}

TOOL = """
def nested(levels):
    value = []
    for _ in range(levels - 1):
        value = [value]
    return value

def round_trip():
    value = {"me": []}
    value["me"].append(value)
    return value

def many_round_trips():
    value = []
    value.extend([value] * 1000)
    return value

def run(input, ctx):
    if input.startswith("emit "):
        ctx.emit("KIND", eval(input[5:]))
        return "emitted"
    return eval(input)
"""


@pytest.mark.promise("host:values-are-json")
async def test_a_value_that_json_cannot_hold_is_a_tool_error_that_names_the_place(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text(TOOL, encoding="utf-8")
    config = tmp_path / "fumehood.toml"
    config.write_text(
        'version = 1\n[host]\nstate = "state"\n[tools.t]\nmodule = "tool.py"\n', encoding="utf-8"
    )
    found, wanted = {}, {}
    async with Host(load_config(config)) as host:
        for name, (expression, kind, message) in BROKEN.items():
            result = await host.call("t", expression)
            error = result.error or {}
            found[name] = (result.outcome, result.reason, error.get("type"), error.get("message"))
            wanted[name] = ("tool_error", None, kind, _SAID + message)
        kept = [
            (await host.call("t", expression)).value
            for expression in (
                "(1 << 4096) - 1",
                "nested(190)[0] and 1",
                "'9' * 5000",
                "[True, None, 1.5, {'': ()}]",
            )
        ]
        emitted = await host.call("t", "emit {'n': 1 << 4096}")
    assert found == wanted
    assert kept == [(1 << 4096) - 1, 1, "9" * 5000, [True, None, 1.5, {"": []}]]
    assert emitted.outcome == "tool_error"
    assert emitted.error is not None
    assert (emitted.error["type"], emitted.error["message"]) == ("NotPlain", f"value.data.n {_LONG}")
