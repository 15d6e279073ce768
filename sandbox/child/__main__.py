"""`python -m fumehood.sandbox.child serve FD` and `… build ENGINE FUEL CACHE`: the two processes the host
starts.
"""

from __future__ import annotations

import sys
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Run one of the two; the exit status. Errors of `build` go to stderr as one line."""
    if len(arguments) == 2 and arguments[0] == "serve":
        from fumehood.sandbox.child._worker import serve

        serve(int(arguments[1]))
        return 0
    if len(arguments) == 2 and arguments[0] == "script":
        from fumehood.sandbox.child._process import serve_script

        serve_script(int(arguments[1]))
        return 0
    if len(arguments) == 4 and arguments[0] == "build":
        from fumehood.sandbox.child._build import build

        try:
            build(
                Path(arguments[3]),
                arguments[1],
                fuel=arguments[2] == "fuel",
                progress=lambda line: print(line, flush=True),
            )
        except Exception as error:  # noqa: BLE001 - the top of a process; the host shows this line
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return 1
        return 0
    print("usage: serve FD | script FD | build js|python fuel|nofuel CACHE", file=sys.stderr)
    return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
