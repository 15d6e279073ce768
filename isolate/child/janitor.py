"""Cleans up after a host that was killed: control groups and scratch folders have no owner that the kernel
would end for them.

Holds one end of a socket; when the host is gone, however it went, the read ends and the folders named at the
start are removed. Runs with the host's privileges, is given nothing but those names, and reads nothing else
from anybody.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time

_PATIENCE_S = 10.0  # the dead take milliseconds to leave their groups; a frozen disk may take longer


def main(fd: int) -> None:
    """Wait for the end of the host, then remove."""
    host = socket.socket(fileno=fd)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    folders = json.loads(host.recv(65536))
    while host.recv(4096):
        pass
    deadline = time.monotonic() + _PATIENCE_S
    for folder in folders["groups"]:
        while not _remove_groups(folder) and time.monotonic() < deadline:
            time.sleep(0.01)
    for folder in folders["scratch"]:
        remove_tree(folder)
    os._exit(0)


def remove_tree(folder: str) -> None:
    """Remove what tools have written, folders that they have closed to everybody as well.

    Not shutil.rmtree: such folders may lie deeper in each other than Python can follow.
    """
    remove = ["rm", "-rf", "--one-file-system", "--", folder]
    for command in (remove, ["chmod", "-R", "u+rwx", "--", folder], remove):
        if os.path.lexists(folder):
            subprocess.run(command, check=False, stderr=subprocess.DEVNULL)


def _remove_groups(parent: str) -> bool:
    """Remove a group's children and itself; False while something still lives in one."""
    try:
        for entry in os.scandir(parent):
            if entry.is_dir(follow_symlinks=False):
                os.rmdir(entry.path)
        os.rmdir(parent)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
