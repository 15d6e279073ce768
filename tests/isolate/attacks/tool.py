"""The hostile tool: runs the body that its input names. The same file, run as a program, is the control
outside.

Inside the cage there is no package `tests`; one is made up here that holds this folder alone.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import types
from typing import Any

_HERE = os.path.dirname(os.path.realpath(__file__))


def _body(module: str, case: str) -> Any:
    if "tests.isolate.attacks" not in sys.modules:
        for name in ("tests", "tests.isolate", "tests.isolate.attacks"):
            package = types.ModuleType(name)
            package.__path__ = [_HERE] if name.endswith("attacks") else []
            sys.modules[name] = package
    return importlib.import_module(f"tests.isolate.attacks.{module}").TABLE.cases[case].body


def run(input: dict[str, Any], ctx: Any) -> Any:
    """One body. `ctx` reaches those that want it as world["ctx"]."""
    return _body(input["module"], input["case"])({**input["world"], "ctx": ctx})


def main() -> None:
    """The control: input JSON on standard input, the value on standard output."""
    given = json.loads(sys.stdin.read())
    out = os.dup(1)
    os.dup2(2, 1)  # what a body prints is not its value
    value = _body(given["module"], given["case"])({**given["world"], "ctx": None})
    os.write(out, json.dumps(value).encode())


if __name__ == "__main__":
    main()
