"""Section D of the catalogue: more than allowed, and what is no text."""

from __future__ import annotations

import os
import sys
import threading

from tests.isolate.attacks._model import MIB, PEOPLE, Ends, Table, World, limits, one_of

TABLE = Table()
attack = TABLE.add


# 58 ---------------------------------------------------------------------------------------------------------

_FLOODED = {
    "outcome": "limit output",
    "kept": True,
    "cut": [True, False],
    "other stream": "still here\n",
    "memory": "bounded",
    "next": "ok",
}
_CAPPED = limits(output=MIB, timeout_s=10.0)


@attack(58, "lines-without-end", caged=_FLOODED, control="flooded", control_as="user", first="host code",
        cage=_CAPPED, only=PEOPLE, heavy=True,
        host="flood")  # fmt: skip
def lines_without_end(world: World) -> str:
    """Print for ever; the other stream has said something before."""
    sys.stderr.write("still here\n")
    sys.stderr.flush()
    for _ in range(1 << 30):
        print("x" * 1000)
        if world["ctx"] is None and _ > 4000:
            break
    return "flooded"


@attack(58, "one-long-line", caged=_FLOODED, control="flooded", control_as="user", first="host code",
        cage=_CAPPED, only=PEOPLE, heavy=True,
        host="flood")  # fmt: skip
def one_long_line(world: World) -> str:
    """A gigabyte without an end of line."""
    os.write(2, b"still here\n")
    for _ in range(1024 if world["ctx"] is not None else 4):
        os.write(1, b"y" * MIB)
    return "flooded"


@attack(
    58,
    "both-streams-events-and-lines",
    caged={
        "outcome": "limit output",
        "kept": True,
        "cut": one_of("any"),
        "other stream": "",
        "memory": "bounded",
        "next": "ok",
    },
    control="flooded",
    control_as="user",
    first="host code",
    cage=_CAPPED,
    only=PEOPLE,
    heavy=True,
    host="flood_of_everything",
)
def both_streams_events_and_lines(world: World) -> str:
    """Everything that a tool can send, at once: the cap is one for all of it."""

    def print_on(fd: int) -> None:
        for _ in range(1024 if world["ctx"] is not None else 2):
            os.write(fd, b"z" * 65536)

    threads = [threading.Thread(target=print_on, args=(fd,), daemon=True) for fd in (1, 2)]
    for thread in threads:
        thread.start()
    if world["ctx"] is not None:
        for number in range(1000):
            world["ctx"].emit("FILL", "e" * 1000)
            world["ctx"].log("l" * 1000 + str(number))
    for thread in threads:
        thread.join()
    return "flooded"


@attack(58, "empty-log-lines", caged={"outcome": "limit output", "lines": True, "memory": "bounded",
                                      "next": "ok"}, no_control="`ctx.log` is the host's own",
        first="host code", cage=_CAPPED, only=PEOPLE, heavy=True, host="flood_of_lines")  # fmt: skip
def empty_log_lines(world: World) -> str:
    """Log lines of no length: each is a row on the host's disk all the same."""
    for _ in range(1 << 30):
        world["ctx"].log("")
    return "flooded"


@attack(58, "events-without-end", caged=Ends("limit", "events"), no_control="`ctx.emit` is the host's own",
        first="host code", only=PEOPLE,
        cage=limits(events=100))  # fmt: skip
def events_without_end(world: World) -> str:
    """One event more than allowed, and then more."""
    for number in range(10_000):
        world["ctx"].emit("E", number)
    return "flooded"


# 59 ---------------------------------------------------------------------------------------------------------

ODD_BYTES = b"\xff\xfe\x00 \xed\xa0\x80 \x1b[2J\x1b]0;title\x07 \xef\xbb\xbf \xe2\x80\xa8 \xf0\x9f\x98\x80"


@attack(
    59,
    "bytes-that-are-no-text",
    caged={
        "stdout": ODD_BYTES.hex(),
        "outcome": "ok",
        "events": ["\x1b[2J\u2028\ufeff\x00", "K\n{}"],
        "lines": ["a\nb\u2028c\x00"],
        "next": "ok",
    },
    control="written",
    control_as="user",
    first="host code",
    only=PEOPLE,
    host="odd_text",
)
def bytes_that_are_no_text(world: World) -> str:
    """Invalid UTF-8 (cut in the middle of a character), controls, separators; in output, events and
    log lines.
    """
    for at in range(len(ODD_BYTES)):
        os.write(1, ODD_BYTES[at : at + 1])
    if world["ctx"] is not None:
        world["ctx"].emit("\x1b[2J\u2028\ufeff\x00", "\x1b[2J\u2028\ufeff\x00")
        world["ctx"].emit("K\n{}", None)
        world["ctx"].log("a\nb\u2028c\x00")
    return "written"


@attack(
    59,
    "lone-surrogate",
    caged=Ends("tool_error", error="UnicodeEncodeError"),
    control="\ud800",
    control_as="user",
    first="host code",
    only=PEOPLE,
)
def lone_surrogate(world: World) -> str:
    """A result that UTF-8 cannot hold: an error inside, before it is sent."""
    return "\ud800"
