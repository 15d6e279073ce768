"""Which program a command means, and why the kernel would not run it: for whoever wrote the command.

Looked at inside, where the program stands or does not: the host sees other files. Standard library only.
"""

from __future__ import annotations

import errno
import os
import stat

_FIRST_LINE = 256  # what the kernel reads of a script (binfmt_script)


def find(name: str, path: str) -> str:
    """The program of this name in the folders of `path`; the name itself when there is none."""
    if "/" not in name:
        for folder in path.split(os.pathsep):
            candidate = os.path.join(folder, name)
            if folder and os.access(candidate, os.X_OK) and os.path.isfile(candidate):
                return candidate
    return name


def why_not(program: str, path: str, error: OSError) -> str:
    """Why it was not run, with the remedy. program: from `find`; path: where that looked."""
    try:
        return _why(program, path, error) or error.strerror or str(error)
    except OSError:
        return error.strerror or str(error)


def _why(program: str, path: str, error: OSError) -> str | None:
    if error.errno == errno.E2BIG:
        return "its arguments and environment are longer than the kernel takes"
    if "/" not in program:
        return f"it is in no folder of PATH ({path})"
    if not os.path.lexists(program):
        return "it is not there inside; grant its folder under `read` (--read), or name one below /usr"
    if not os.path.exists(program):
        return f"it is a link to {os.readlink(program)}, which is not there inside; grant that folder too"
    state = os.stat(program)
    if stat.S_ISDIR(state.st_mode):
        return "it is a folder; name the program in it"
    if not stat.S_ISREG(state.st_mode):
        return "it is no regular file"
    if not state.st_mode & 0o111:
        return f"it is not executable (mode {stat.S_IMODE(state.st_mode):04o}); chmod +x it"
    if error.errno == errno.ENOEXEC:
        return "it is neither a binary of this machine nor a script that begins with #!"
    interpreter = _interpreter(program)
    if interpreter is not None and not os.access(interpreter, os.X_OK):
        there = "may not be executed" if os.path.exists(interpreter) else "is not there inside"
        return f"its first line names {interpreter}, which {there}; correct that line, or grant its folder"
    if error.errno == errno.ENOENT:
        return "the loader that it names is not there inside; it is made for another system"
    if error.errno == errno.EACCES:
        return "it lies where no program may be run: /tmp, or a path that a tool may write to"
    return None


def _interpreter(program: str) -> str | None:
    """What the first line of a script names."""
    try:
        with open(program, "rb") as file:
            line = file.read(_FIRST_LINE).split(b"\n", 1)[0]
    except OSError:
        return None
    words = line[2:].split(None, 1) if line.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words else None
