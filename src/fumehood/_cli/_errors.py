"""From an exception to one message and one exit code.

In text an error is one line on stderr that begins with `error:`, its remedy on a line that begins with
`Hint:`. In json it is `{"error": {"type", "message", "hint", "problems", "exit_code"}}` on stdout.
"""

from __future__ import annotations

import errno
import os
import resource
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import click

from fumehood._cli._output import Output
from fumehood._cli._settings import Settings
from fumehood.policies.errors import ConfigError, FumehoodError, HostError

CODE_USAGE, CODE_OTHER = 2, 1
DEBUG_VARIABLE = "FUMEHOOD_DEBUG"


def asks_for_json(words: Sequence[str]) -> bool:
    """Whether a command line that could not be parsed asks for json. Words after `--` belong to a
    wrapped command.
    """
    own = list(words[: words.index("--")] if "--" in words else words)
    pairs = zip(own, own[1:], strict=False)
    return "--format=json" in own or any(pair == ("--format", "json") for pair in pairs)


def report(error: BaseException, settings: Settings, words: Sequence[str]) -> int:
    """Print the error; returns the exit code. words: the command line, which may not have been
    parsed to its end.
    """
    if isinstance(error, click.UsageError) and asks_for_json(words):
        settings.format = "json"
    if _may_be_stdouts(error) and (lost := _fault_of_stdout()) is not None:
        # The rest of what was meant for it would be tried once more at our end, and fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        error = HostError(
            f"stdout cannot be written: {lost.strerror}",
            hint="what it leads to is full or broken; a call that ran is on the log: fumehood log show",
        )
        settings.format = "text"  # on stderr: there is no other place for it
    told = _told(error)
    code = told["exit_code"]
    assert isinstance(code, int)
    out = Output(settings)
    try:
        if settings.format == "json":
            out.json({"error": told})
        elif isinstance(error, click.exceptions.NoArgsIsHelpError):
            out.problem(error.format_message(), wrap=False)
        else:
            out.error(str(told["message"]), told["hint"] if isinstance(told["hint"], str) else None)
            if isinstance(error, click.UsageError) and error.ctx is not None:
                out.note(f"Try `{error.ctx.command_path} --help`.")
        sys.stdout.flush()
    except BrokenPipeError:
        return 141
    if not isinstance(error, FumehoodError | click.ClickException | click.Abort) and os.environ.get(
        DEBUG_VARIABLE
    ):
        traceback.print_exception(error)
    return code


def _about_the_process(error: OSError) -> tuple[str, str, int] | None:
    """Message, remedy and code for what is wrong with the place we were started in, not with us."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if error.errno == errno.EMFILE:
            return (
                f"too many open files: this process may have {most}",
                f"raise it to 1024 or more: ulimit -n {max(1024, most)}, or LimitNOFILE= of a service",
                CODE_OTHER,
            )
        return "too many open files on this machine", "raise fs.file-max, or end other programs", CODE_OTHER
    if error.errno == errno.ENOENT and not _has_folder():
        return (
            "the current folder is there no more",
            "cd into one that exists, or give absolute paths",
            CODE_USAGE,
        )
    return None


def _has_folder() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True


def _may_be_stdouts(error: BaseException) -> bool:
    """Whether it is an error of writing to something without a name."""
    kinds = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG, errno.EBADF)
    return isinstance(error, OSError) and error.errno in kinds and error.filename is None


def _fault_of_stdout() -> OSError | None:
    """Why stdout cannot be written, when that is so: what was kept back for it is tried again, and a line
    end, for an unbuffered stream keeps nothing.
    """
    try:
        sys.stdout.flush()
        os.write(1, b"\n")
    except BrokenPipeError:
        return None
    except OSError as error:
        return error
    return None


def _told(error: BaseException) -> dict[str, object]:
    kind, hint, problems, code = type(error).__name__, None, None, CODE_OTHER
    message = str(error)
    if isinstance(error, FumehoodError):
        message, hint, code = error.message, error.hint, error.exit_code
        if isinstance(error, ConfigError) and len(error.problems) > 1:
            problems = list(error.problems)
    elif isinstance(error, click.ClickException):
        message, code = error.format_message(), CODE_USAGE
        kind = "UsageError"
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            message, hint = "a command is missing", "--help lists them"
    elif isinstance(error, click.Abort):
        message, code, kind = "interrupted", 130, "Interrupted"
    elif isinstance(error, OSError) and (known := _about_the_process(error)) is not None:
        message, hint, code = known
        kind = "HostError"
    else:
        place = traceback.extract_tb(error.__traceback__)
        where = f" ({Path(place[-1].filename).name}, line {place[-1].lineno})" if place else ""
        message = f"an error inside fumehood: {kind}: {message}{where}"
        hint = f"{DEBUG_VARIABLE}=1 shows where; please report it"
    return {"type": kind, "message": message, "hint": hint, "problems": problems, "exit_code": code}
