"""What the attackers are aimed at: files, sockets, a process and a key of the host, open descriptors."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.isolate.attacks._kernel import syscall


def _repository(folder: Path) -> Path:
    """A git repository with one commit, an ignored folder `out` and a folder `data`."""
    made = folder / "repository"
    (made / "data").mkdir(parents=True)
    (made / "out").mkdir(mode=0o777)
    (made / "out").chmod(0o777)
    (made / "file").write_text("x", encoding="ascii")
    (made / "data" / "rows").write_text("1", encoding="ascii")
    (made / ".gitignore").write_text("out/\n", encoding="ascii")
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "-q", "."], ["add", "."], [*who, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], cwd=made, check=True)
    return made


class World:
    """What the attackers are aimed at: files, sockets, a process, a key, descriptors left open on purpose."""

    def __init__(self) -> None:
        self.stack = contextlib.ExitStack()
        self.folder = Path(tempfile.mkdtemp(prefix="attacked-", dir="/var/tmp"))
        # rm(1): attackers leave trees that are deeper than Python's own removal can go.
        self.stack.callback(subprocess.run, ["rm", "-rf", "--", str(self.folder)], check=False)
        self.folder.chmod(0o755)
        (self.folder / "tmp").mkdir(mode=0o711)
        # Other programs come and go in /tmp: what the host makes there is counted here.
        self.before, tempfile.tempdir = tempfile.tempdir, str(self.folder / "tmp")
        self.values: dict[str, Any] = {}
        self.heap_secret = bytearray(os.urandom(24))

    def __enter__(self) -> World:
        folder = self.folder
        for name in ("state-of-host", "other", "granted", "results", "hostile"):
            (folder / name).mkdir()
        (folder / "results").chmod(0o777)
        secret, other, granted = (
            folder / "state-of-host" / "events.db",
            folder / "other" / "tool.py",
            folder / "granted" / "data.txt",
        )
        for file in (secret, other, granted):
            file.write_text("the content of a file that is not the tool's\n")
        self.values = {
            "env_marker": os.environ.setdefault("FUMEHOOD_ATTACK_MARKER", "unmarked"),
            "heap_marker": [bytes(self.heap_secret[:12]).hex(), bytes(self.heap_secret[12:]).hex()],
            "host_pid": os.getpid(),
            "tool_secret": "sk-" + os.urandom(12).hex(),
            "folder_name": folder.name,
            "secret_file": str(secret),
            "secret_folder": str(secret.parent),
            "other_tool": str(other),
            "granted": str(granted.parent),
            "granted_file": str(granted),
            "results": str(folder / "results"),
            "repository": str(_repository(folder)),
            "port": self._listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)).getsockname()[1],
            "udp_port": self._listener(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)).getsockname()[1],
            "abstract": f"fumehood-attacked-{os.getpid()}",
            "path_socket": str(folder / "docker.sock"),
            "path_datagrams": str(folder / "log.sock"),
            "shared_memory": f"/dev/shm/fumehood-attacked-{os.getpid()}",
            "private": False,
        }
        self._listener(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + self.values["abstract"])
        self._listener(socket.AF_UNIX, socket.SOCK_STREAM, self.values["path_socket"])
        self._listener(socket.AF_UNIX, socket.SOCK_DGRAM, self.values["path_datagrams"])
        for name in ("path_socket", "path_datagrams"):
            Path(self.values[name]).chmod(0o777)
        shared = Path(self.values["shared_memory"])
        shared.write_text("what a program of the host shares with another", encoding="ascii")
        self.stack.callback(shared.unlink)
        victim = subprocess.Popen(["sleep", "1000"])
        self.stack.callback(victim.wait)
        self.stack.callback(victim.kill)
        self.values["victim_pid"] = victim.pid
        self._key()
        self._open_descriptors(secret)
        return self

    def __exit__(self, *_: object) -> None:
        for fd in (77, 78, 79):
            os.close(fd)
        tempfile.tempdir = self.before
        self.stack.close()

    def _listener(self, family: int, kind: int, address: Any) -> socket.socket:
        sock = self.stack.enter_context(socket.socket(family, kind))
        sock.bind(address)
        if kind == socket.SOCK_STREAM:
            sock.listen(1024)
        return sock

    def _key(self) -> None:
        """A key in a session keyring that every process of this runner inherits."""
        syscall("keyctl", 1, None)
        self.values["key_name"] = f"fumehood-host-{os.getpid()}"
        self.values["key_id"] = syscall(
            "add_key", b"user", self.values["key_name"].encode(), b"the host's secret", 17, -3
        )

    def _open_descriptors(self, secret: Path) -> None:
        """A file, a folder and a socket, inheritable, as a careless library leaves them."""
        left = [os.open(secret, os.O_RDONLY), os.open(secret.parent, os.O_RDONLY), os.dup(0)]
        for fd, number in zip(left, (77, 78, 79), strict=True):
            os.dup2(fd, number, inheritable=True)
            os.close(fd)
