"""Keeps an editable install to one path: hatchling would else copy the mapped folders beside it.

The map of folders in pyproject.toml is for wheels. In development the links of src/fumehood are the package,
and a copy that is out of date from the first edit on helps nobody.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Named in pyproject.toml; hatchling finds it by its base class."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """version: "editable" or "standard"."""
        if version == "editable":
            self.build_config.force_include.clear()
