"""What runs inside a worker process: the engines and the loop that serves them.

Stdlib and wasmtime only, so that a cage can load it with nothing else of ours.
`fumehood.sandbox.child.serve(fd)` is the entry. Nothing in here is imported by the host in the default
mode.
"""

from __future__ import annotations


def serve(fd: int) -> None:
    """Speak the worker protocol on the Unix socket `fd` until the host closes it."""
    from fumehood.sandbox.child._worker import serve as run

    run(fd)


__all__ = ["serve"]
