"""The command line's entry: `fumehood VERB …`, exit codes and errors.

Guarantees: an exit code of docs/cli.md whatever happens; with `--format json` exactly one JSON object on
stdout, for errors too; no traceback for what a user can cause; a reader that goes away (`| head`) ends us
quietly. Verbs live in `_cli/`, one module each, imported on use.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import click

CODE_BROKEN_PIPE = 141
CODE_INTERRUPTED = 130
COMPLETION_VARIABLE = "_FUMEHOOD_COMPLETE"  # set by the shell functions that click generates


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code. args: default sys.argv."""
    # Ctrl-C ends us as it ends `cat`, until a verb has something to clean up: `run_async`, `log export`. An
    # exception raised in the middle of an import is a traceback at best, and swallowed at worst.
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    _occupy_standard_descriptors()
    _write_what_the_locale_cannot()
    from fumehood._cli import _errors, _verbs
    from fumehood._cli._settings import Settings

    words = list(sys.argv[1:] if args is None else args)
    settings = Settings()
    try:
        code = _dispatch(_verbs.root, words, settings)
        sys.stdout.flush()
    except BrokenPipeError:
        code = CODE_BROKEN_PIPE
    except KeyboardInterrupt:
        code = CODE_INTERRUPTED
    except BaseException as error:  # noqa: BLE001 - top of the process: whatever it was becomes one message and a code
        code = _errors.report(error, settings, words)
    if code == CODE_BROKEN_PIPE:
        # The interpreter flushes stdout once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        sys.stderr.flush()
    except OSError:  # full or broken: the same, with an exit code of the interpreter's own
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    if args is not None:  # not a process of our own
        signal.signal(signal.SIGINT, interrupt)
    sys.exit(code)


def _dispatch(root: click.Group, words: list[str], settings: object) -> int:
    """Parse and run; the exit code.

    Not `root.main`: it turns a broken pipe into exit code 1 without saying so.
    """
    from click.exceptions import Exit

    try:
        if os.environ.get(COMPLETION_VARIABLE):
            root.main(words, prog_name="fumehood", complete_var=COMPLETION_VARIABLE)
        with root.make_context("fumehood", words, obj=settings) as context:
            root.invoke(context)
    except Exit as end:
        return end.exit_code
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def _occupy_standard_descriptors() -> None:
    """Open /dev/null at 0, 1 and 2 where the caller closed them, and give the interpreter its streams.

    Else the event log could come to lie at descriptor 0, and `run` would hand it to the command as its
    standard input.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
            stream = open(number, "w" if number else "r", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, ("stdin", "stdout", "stderr")[number], stream)


def _write_what_the_locale_cannot() -> None:
    """Escape what the encoding of stdout or stderr has no character for, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    main()
