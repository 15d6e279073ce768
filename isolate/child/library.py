"""What a tool can import of `fumehood` where the package itself is not visible in its cage.

Guarantees: `from fumehood import media_result` works in every module tool, whatever the installation; where
the package is installed among the interpreter's own, that one is found first and this one never asked.
Nothing else of fumehood belongs inside: another name is an ImportError that says so. Standard library only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_MEDIA = "__media_result__"  # as `fumehood.media_result` writes it; a test compares


def media_result(parts: Iterable[str | Mapping[str, Any]]) -> dict[str, Any]:
    """What a tool returns to hand over text and media, in order. A string is a text part.

    It is honoured when the tool's operator wrote `returns_media = true`; the host checks the parts.
    """
    return {
        _MEDIA: [{"type": "text", "text": part} if isinstance(part, str) else dict(part) for part in parts]
    }


def offer() -> None:
    """Let `import fumehood` find this, when nothing else is found."""
    sys.meta_path.append(_Finder)


class _Finder:
    """Finder and loader in one, as classes of the import system are."""

    @classmethod
    def find_spec(cls, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, cls) if name == "fumehood" else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        def missing(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            raise ImportError(f"of fumehood a tool can import media_result, and {name!r} is the host's")

        module.media_result = media_result  # type: ignore[attr-defined]
        module.__getattr__ = missing  # type: ignore[method-assign]
