"""A fork server without walls: what the kernel's fork costs for the zygote that fumehood forks.

Run as a script by `_peers`: it loads the same modules as a zygote, freezes its heap in the same way, and its
children run the same runtime (import the tool, answer one call); no layer is put on, nothing is looked at.
Standard library only.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import socket
import sys
import traceback
from typing import Any


def main(folder: str, control: socket.socket) -> None:
    """Fork for every descriptor that comes over `control`, until it closes. folder: of `isolate/child`."""
    _load_package(folder)
    runtime = importlib.import_module("fumehood_child.runtime")
    channels = importlib.import_module("fumehood_child.channel")
    zygote = importlib.import_module("fumehood_child.zygote")
    plan: dict[str, Any] = json.loads(control.recv(1 << 20))
    zygote.prepare(plan)
    control.send(b"up")
    while True:
        message, fds, _, _ = socket.recv_fds(control, 16, 1)
        if not message:
            return
        if os.fork() == 0:
            try:
                control.close()
                channel = channels.Channel(socket.socket(fileno=fds[0]))
                runtime.prepare()
                runtime.serve_module(channel, plan["tool"]["path"], plan["tool"]["name"], "/tmp")
            except channels.HostGone:
                pass  # the answer was taken
            except BaseException:  # noqa: BLE001 - top of a process
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(fds[0])
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _load_package(folder: str) -> None:
    spec = importlib.util.spec_from_file_location(
        "fumehood_child", folder + "/__init__.py", submodule_search_locations=[folder]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["fumehood_child"] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    main(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
