"""Kill a put or a drop at every line it executes, and look at the store after each: run as a program, prints
one JSON report.

A trace function counts the lines executed in the store's own modules and sends SIGKILL at the chosen one, so
every step (open, write, sync, link, folder sync, index) is cut before and after. Usage: kill_store_steps.py
FOLDER put|put-named|drop
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from fumehood.agent import ContentStore
from fumehood.agent._blobs import address_of

TRACED = ("_store.py", "_blobs.py", "_sqlite.py", "_gate.py")
DATA = b"what must not be lost" * 400


def act(store: ContentStore, what: str) -> None:
    if what == "drop":
        store.drop(address_of(DATA), owner="me")
    else:
        store.put(DATA, "text/plain", owner="me")


def kill_at(folder: Path, what: str, line: int) -> bool:
    """Run `what` in a child that dies at its `line`-th line; False when it ended before."""
    child = os.fork()
    if child == 0:
        store = ContentStore(folder, named_temporaries=what == "put-named")
        left = line

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal left
            if not frame.f_code.co_filename.endswith(TRACED):
                return None
            if event == "line":
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return trace

        sys.settrace(trace)
        act(store, what)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    return os.WIFSIGNALED(status)


def problems_after(folder: Path, what: str) -> list[str]:
    """What is wrong with the store that a killed writer left; empty when nothing is."""
    found = []
    store = ContentStore(folder)
    address = address_of(DATA)
    if store.get(address_of(b"bystander")) != b"bystander":
        found.append("a bystander was damaged")
    if store.stat(address) is not None:
        if store.get(address) != DATA:
            found.append("the index names other bytes")
        if store.owners(address) != {"me"}:
            found.append(f"owners are {sorted(store.owners(address))}")
    store.reclaim(grace_s=-3600)
    left = [file for file in (folder / "objects").rglob("*") if file.is_file()]
    expected = 1 + (store.stat(address) is not None)
    if len(left) != expected or list((folder / "tmp").iterdir()):
        found.append(f"{len(left)} files instead of {expected} after reclaim")
    if store.put(DATA, "text/plain", owner="me").address != address or store.get(address) != DATA:
        found.append("the same content could not be put again")
    store.close()
    return found


def main(folder: Path, what: str) -> None:
    line = 0
    problems: dict[int, list[str]] = {}
    template = folder / "template"
    store = ContentStore(template)
    store.put(b"bystander", "text/plain", owner="other")
    if what == "drop":
        store.put(DATA, "text/plain", owner="me")
    store.close()
    while True:
        line += 1
        at = folder / "store"
        shutil.copytree(template, at)
        killed = kill_at(at, what, line)
        if found := problems_after(at, what):
            problems[line] = found
        shutil.rmtree(at)
        if not killed:
            break
    print(json.dumps({"lines": line - 1, "problems": problems}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
