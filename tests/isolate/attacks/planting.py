"""Section B of the catalogue: code from writable places, files of the host, and what a crash leaves."""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import signal
import subprocess
from typing import Any

from tests.isolate.attacks._kernel import answer, apart, opening, scratch, value_apart
from tests.isolate.attacks._model import Cage, Table, World, one_of

TABLE = Table()
attack = TABLE.add


# 34 ---------------------------------------------------------------------------------------------------------

_LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")


def _ran(*argv: str, program: str | None = None, pass_fds: tuple[int, ...] = ()) -> str:
    """ "ran" when the program ended with 0, else why not."""

    def step() -> None:
        subprocess.run(
            argv,
            executable=program,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=pass_fds,
        )

    try:
        told = answer(step)
    except subprocess.CalledProcessError as error:
        return f"code {error.returncode}"
    return "ran" if told == "ok" else told


@attack(
    34,
    "code-from-writable-places",
    caged={"exec": "EACCES", "exec in a grant": "EACCES", "loader": "code 127", "library": "refused",
           "memfd": "ran", "interpreter": "ran"},
    control={"exec": "ran", "exec in a grant": "ran", "loader": "ran", "library": "loaded", "memfd": "ran",
             "interpreter": "ran"},
    first="mount",
    cage=Cage(write=("results",)),
    walls={
        # Memory behind descriptors is refused where no control group counts it.
        "user": {"exec": "EACCES", "exec in a grant": "EACCES", "loader": "code 127", "library": "refused",
                 "memfd": "ENOSYS",
                 "interpreter": "ran"},
        # Landlock's execute right covers exec and not mmap: the loader's detour is open where nothing is
        # mounted noexec.
        "root-without-namespaces": {"exec": "EACCES", "exec in a grant": "EACCES", "loader": "ran",
                                    "library": "loaded", "memfd": "ran",
                                    "interpreter": "ran"},
        "user-without-namespaces": {"exec": "EACCES", "exec in a grant": "EACCES", "loader": "ran",
                                    "library": "loaded", "memfd": "ENOSYS",
                                    "interpreter": "ran"},
        "user-without-seccomp": {"exec": "EACCES", "exec in a grant": "EACCES", "loader": "code 127",
                                 "library": "refused", "memfd": "ran",
                                 "interpreter": "ran"},
    },
)  # fmt: skip
def code_from_writable_places(world: World) -> dict[str, str]:
    """Programs that the tool wrote itself. A memfd and a script are allowed: a tool may run what it
    could as well compute.
    """
    program, granted, script = (
        f"{scratch(world)}/program",
        f"{world['results']}/program-{os.getpid()}",
        f"{scratch(world)}/script.sh",
    )
    for path in (program, granted):
        shutil.copyfile("/bin/true", path)
        os.chmod(path, 0o755)
    with open(script, "w", encoding="utf-8") as file:
        file.write("exit 0\n")

    def from_memory() -> str:
        try:
            memory = os.memfd_create("program", 0)
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        with open("/bin/true", "rb") as source:
            os.write(memory, source.read())
        return _ran("memfd", program=f"/proc/self/fd/{memory}", pass_fds=(memory,))

    library = f"{scratch(world)}/library.so"
    shutil.copyfile(
        next(
            p
            for p in ("/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/usr/lib/libm.so.6")
            if os.path.exists(p)
        ),
        library,
    )

    def load() -> str:
        try:
            ctypes.CDLL(library)
        except OSError:
            return "refused"
        return "loaded"

    try:
        return {
            "exec": _ran(program),
            "exec in a grant": _ran(granted),
            "loader": _ran(next(p for p in _LOADERS if os.path.exists(p)), program),
            "library": load(),
            "memfd": from_memory(),
            "interpreter": _ran("sh", script),
        }
    finally:
        for path in (program, granted, script, library):
            os.unlink(path)


# 40 ---------------------------------------------------------------------------------------------------------


@attack(
    40,
    "injected-into-the-interpreter",
    caged={
        "json": "standard library",
        "customised": False,
        "isolated": True,
        "user site": False,
        "first on the path": "standard library",
    },
    no_control="`test_controls` runs the same folder with a plain interpreter",
    first="environment",
    host="interpreter_injection",
)
def injected_into_the_interpreter(world: World) -> Any:
    """json.py, sitecustomize, usercustomize, a .pth file beside the tool and in HOME, and the
    variables that make Python look there.
    """
    raise NotImplementedError


# 41 ---------------------------------------------------------------------------------------------------------


@attack(
    41,
    "core-dump",
    caged={"limit": [0, 0], "raise": "EPERM", "died": "SIGSEGV", "files": []},
    control={"limit": [-1, -1], "raise": "ok", "died": "SIGSEGV", "files": ["core"]},
    first="rlimits",
)
def core_dump(world: World) -> dict[str, Any]:
    """Crash with the memory full of secrets, in a folder where a core file would be seen."""
    folder = f"{scratch(world)}/crash-{os.getpid()}"
    os.mkdir(folder)
    os.chdir(folder)

    def lift() -> None:
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        except ValueError as error:
            raise OSError(1, str(error)) from error

    def crash() -> None:
        try:
            lift()
        except OSError:
            pass
        os.kill(os.getpid(), signal.SIGSEGV)

    def limits() -> list[int]:
        if world["ctx"] is None:
            lift()
        return list(resource.getrlimit(resource.RLIMIT_CORE))

    died = apart(crash)
    found = {
        "limit": value_apart(limits),
        "raise": apart(lift),
        "died": died,
        "files": sorted({name.partition(".")[0] for name in os.listdir(".")}),
    }
    os.chdir("/")
    shutil.rmtree(folder)
    return found


# 42 ---------------------------------------------------------------------------------------------------------

_METADATA = ("chmod", "utime", "chown", "xattr", "chmod system", "truncate", "unlink", "rename")


@attack(
    42,
    "metadata-of-host-files",
    caged=dict.fromkeys(_METADATA, "EROFS"),
    control=dict.fromkeys(_METADATA, "ok") | {"xattr": one_of("ok", "ENOTSUP")},
    first="mount",
    cage=Cage(read=("granted",)),
    # Landlock covers no metadata: as an ordinary user, whose own files they are, only the view keeps them. As
    # root the tool is another user.
    walls={
        "root-without-namespaces": dict.fromkeys(_METADATA, "EPERM") | {"truncate": "EACCES",
        "unlink": "EACCES", "rename": "EACCES",
                                                                        "xattr": "EACCES"},
        "user-without-namespaces": {"chmod": "ok", "utime": "ok", "chown": "ok", "xattr": one_of("ok",
        "ENOTSUP"), "chmod system": "EPERM",
                                    "truncate": "EACCES", "unlink": "EACCES", "rename": "EACCES"},
    },
)  # fmt: skip
def metadata_of_host_files(world: World) -> dict[str, str]:
    """Change what a read-only grant shows: its modes, times, owner, attributes, length and name."""
    path = world["granted_file"]

    def both_ways() -> None:
        os.rename(path, f"{path}.moved")
        os.rename(f"{path}.moved", path)

    def shorten() -> None:
        os.truncate(path, os.path.getsize(path))

    def unlink() -> None:
        os.unlink(path)
        with open(path, "w", encoding="utf-8") as file:  # outside: put it back
            file.write("the content of a file that is not the tool's\n")

    return {
        "chmod": answer(lambda: os.chmod(path, 0o644)),
        "utime": answer(lambda: os.utime(path, (1, 1))),
        "chown": answer(lambda: os.chown(path, -1, os.getgid())),
        "xattr": answer(lambda: os.setxattr(path, "user.fumehood", b"x")),
        "chmod system": answer(lambda: os.chmod("/usr/bin/env", os.stat("/usr/bin/env").st_mode & 0o7777)),
        "truncate": answer(shorten),
        "rename": answer(both_ways),
        "unlink": answer(unlink),
    }


# 43 ---------------------------------------------------------------------------------------------------------


@attack(
    43,
    "links-out-of-the-view",
    caged={"through a symbolic link": "ENOENT", "hard link": "EXDEV", "through a descriptor": "ENOENT",
           "rename": "EXDEV"},
    control={"through a symbolic link": "ok", "hard link": one_of("ok", "EXDEV"),
             "through a descriptor": "ok", "rename": one_of("ok", "EXDEV")},
    first="mount",
    cage=Cage(read=("granted",)),
    walls={
        "without-namespaces": {"through a symbolic link": "EACCES", "hard link": one_of("EXDEV", "EACCES",
        "EPERM"),
                               "through a descriptor": "EACCES", "rename": one_of("EXDEV", "EACCES")},
    },
)  # fmt: skip
def links_out_of_the_view(world: World) -> dict[str, str]:
    """Names inside for files outside."""
    base = f"{scratch(world)}/links-{os.getpid()}"
    os.mkdir(base)
    os.symlink(world["secret_file"], f"{base}/soft")
    found = {
        "through a symbolic link": opening(f"{base}/soft"),
        "hard link": answer(lambda: os.link("/usr/bin/env", f"{base}/hard")),
        "through a descriptor": opening(
            f"/proc/self/cwd/{os.path.relpath(world['secret_file'], os.getcwd())}"
        ),
        "rename": answer(lambda: os.rename(world["granted_file"], f"{base}/moved")),
    }
    if found["rename"] == "ok":
        os.rename(f"{base}/moved", world["granted_file"])
    shutil.rmtree(base)
    return found


@attack(
    43,
    "traps-in-a-write-grant",
    caged={
        "left": "EACCES", "grant replaced": "EROFS", "second call": ["deep", "fifo", "soft"],
        "still links": True,
        "secret read": False, "outcome": "ok",
    },
    no_control="the host's own handling of the folder; the body is its own witness in call 2",
    first="host code",
    cage=Cage(write=("results",)),
    walls={
        "without-landlock": {
            "left": "ok", "grant replaced": "EROFS", "second call": ["deep", "fifo", "socket", "soft"],
            "still links": True, "secret read": False, "outcome": "ok",
        },
        "without-namespaces": {
            "left": "EACCES", "grant replaced": one_of("EACCES", "EXDEV"),
            "second call": ["deep", "fifo", "soft"], "still links": True, "secret read": False,
            "outcome": "ok",
        },
    },
    host="traps_in_a_write_grant",
)  # fmt: skip
def traps_in_a_write_grant(world: World) -> dict[str, Any]:
    """A link to a secret, a fifo, a socket and a deep tree, left where the host will look; then see
    them as the next call.
    """
    import socket

    base = world["results"]
    if world.get("second"):
        secret = opening(f"{base}/soft") == "ok"
        return {
            "names": sorted(name for name in os.listdir(base) if "program" not in name),
            "secret read": secret,
        }
    os.symlink(world["secret_file"], f"{base}/soft")
    os.mkfifo(f"{base}/fifo")
    with socket.socket(socket.AF_UNIX) as sock:
        os.chdir(base)
        left = answer(lambda: sock.bind("socket"))
    os.mkdir("deep")
    fd = os.open("deep", os.O_RDONLY)
    for _ in range(1000):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    return {"left": left, "grant replaced": answer(lambda: os.rename(base, f"{base}-moved"))}
