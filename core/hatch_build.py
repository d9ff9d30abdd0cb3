"""Put the documentation into the core's wheel, for ``tilewright help`` without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "tilewright/documentation"


class CustomBuildHook(BuildHookInterface):
    """Add the pages of the repository's ``docs/site``.

    A source archive has them within the package, where a wheel made from the archive finds them.
    An editable installation reads them from the repository.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        pages = Path(self.root).parent / "docs" / "site"
        if version == "editable" or not pages.is_dir():
            return
        folder = f"src/{PACKAGE}" if self.target_name == "sdist" else PACKAGE
        for page in sorted(pages.rglob("*.md")):
            build_data["force_include"][str(page)] = f"{folder}/{page.relative_to(pages)}"
