"""Runs commands as an ordinary user, so that every promise is held without root's power too.

As root the helper makes the system user `fumehood-test` (once) and drops to it, supplementary groups
included. The checkout, its venv and the interpreter may lie where that user cannot go (a folder below /root):
then the command runs in a private mount namespace in which they stand at the same paths, as a readable copy
where the files themselves are closed. No mode of any folder of the host is changed. As an ordinary user
commands run as they are.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

USER = "fumehood-test"
ROOT = Path(__file__).resolve().parent.parent
PYTHON = Path(sys.executable)  # not resolved: in a venv the link is what finds the packages
_NOT_COPIED = shutil.ignore_patterns(
    ".git", "__pycache__", ".*_cache", ".hypothesis", "dist", "build", "state"
)


def run_as_user(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    timeout: float = 60,
    cwd: str | Path = "/",
    input: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command as an ordinary user and wait for it; output as text.

    env: added to PATH, LANG and a fresh HOME that is gone afterwards. timeout: seconds, then the whole
    process group is killed. Raises: subprocess.TimeoutExpired; RuntimeError when no ordinary user can be had.
    """
    with user_folder() as home:
        full = {
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "LANG": "C.UTF-8",
            "HOME": str(home),
            **(env or {}),
        }
        command = as_user([str(word) for word in argv])
        process = subprocess.Popen(
            command,
            env=full,
            cwd=cwd,
            stdin=subprocess.PIPE if input is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        with process:
            try:
                out, err = process.communicate(input, timeout)
            except BaseException:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                raise
        return subprocess.CompletedProcess(command, process.returncode, out, err)


def as_user(argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv` as the ordinary user: for tests that need their own Popen.

    The environment passes through as it is.
    """
    if os.geteuid() != 0:
        return list(argv)
    user = test_user()
    return reachable(
        ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--", *argv]
    )


def reachable(argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv` as root, with checkout and interpreter where every user reaches
    them: for commands that change to another user themselves.
    """
    user = test_user()
    script = _view_script(user.pw_uid, user.pw_gid)
    if script is None:
        return list(argv)
    private = ["unshare", "--mount", "--propagation", "private", "--"]
    return [*private, "sh", "-ec", f'{script}\nexec "$@"', "sh", *argv]


@contextlib.contextmanager
def user_folder() -> Iterator[Path]:
    """A folder that the ordinary user owns, for configurations and state; gone afterwards.

    Not below pytest's own folder, which is closed to others.
    """
    with tempfile.TemporaryDirectory(prefix="fumehood-user-", dir="/tmp", ignore_cleanup_errors=True) as name:
        give_to_user(Path(name))
        yield Path(name)


def give_to_user(*paths: Path) -> None:
    """Make the ordinary user the owner of paths that a test wrote."""
    if os.geteuid() == 0:
        user = test_user()
        for path in paths:
            os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)


@functools.cache
def test_user() -> pwd.struct_passwd:
    """The account, made when it is missing."""
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        pass
    made = subprocess.run(
        [
            "useradd",
            "--system",
            "--no-create-home",
            "--home-dir",
            "/nonexistent",
            "--shell",
            "/usr/sbin/nologin",
            USER,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        raise RuntimeError(f"no user {USER!r} and useradd did not make one: {made.stderr.strip()}") from None


test_user.__test__ = False  # type: ignore[attr-defined]  # its name begins like a test's, and it is none


@functools.cache
def _view_script(uid: int, gid: int) -> str | None:
    """Shell commands that make checkout and interpreter reachable in a private mount namespace; None when
    they are already.

    1. Keep each needed tree at a staging place (of a closed checkout: a readable copy). 2. Cover the closed
    parents with empty folders. 3. Bind each tree back to its own path.
    """
    needed = [
        ROOT,
        *(p for p in _interpreter() if not p.is_relative_to("/usr") and not p.is_relative_to(ROOT)),
    ]
    if all(_may_read(path, uid, gid) for path in needed) and not _closed_inside(ROOT):
        return None
    stage = _scratch("fumehood-view-")
    lines = [f"mount -t tmpfs -o mode=755 fumehood-view {stage}"]
    for number, path in enumerate(needed):
        lines.append(f"mkdir {stage}/{number}")
        lines.append(
            f"mount --rbind {shlex.quote(str(_readable(path) if _closed_inside(path) else path))} "
            f"{stage}/{number}"
        )
    for parent in dict.fromkeys(
        p for path in needed for p in [_first_closed(path, uid, gid)] if p is not None
    ):
        lines.append(f"mount -t tmpfs -o mode=755 fumehood-view {shlex.quote(str(parent))}")
    for number, path in enumerate(needed):
        lines.append(f"mkdir -p {shlex.quote(str(path))}")
        lines.append(f"mount --rbind {stage}/{number} {shlex.quote(str(path))}")
    return "\n".join(lines)


def _interpreter() -> list[Path]:
    return list(dict.fromkeys([Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()]))


def _may_read(path: Path, uid: int, gid: int) -> bool:
    done = subprocess.run(
        [
            "setpriv",
            f"--reuid={uid}",
            f"--regid={gid}",
            "--clear-groups",
            "--",
            "test",
            "-r",
            str(path),
            "-a",
            "-x",
            str(path),
        ],
        check=False,
    )
    return done.returncode == 0


def _first_closed(path: Path, uid: int, gid: int) -> Path | None:
    return next((parent for parent in reversed(path.parents) if not _may_read(parent, uid, gid)), None)


def _closed_inside(path: Path) -> bool:
    """Whether the checkout was made under a umask that keeps others out."""
    return path == ROOT and not (path / "src" / "fumehood" / "__init__.py").stat().st_mode & 0o004


@functools.cache
def _readable(path: Path) -> Path:
    copy = _scratch("fumehood-copy-")
    shutil.copytree(path, copy, symlinks=True, ignore=_NOT_COPIED, dirs_exist_ok=True)
    subprocess.run(["chmod", "-R", "a+rX", str(copy)], check=True)
    return copy


def _scratch(prefix: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    folder.chmod(0o755)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
