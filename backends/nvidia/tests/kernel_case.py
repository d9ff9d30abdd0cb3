"""A kernel of a file, and texts of its signature."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class Case:
    """A kernel as its users launch it. ``signature`` names the runtime parameters; ``p`` stands for
    a pointer that is a multiple of 16."""

    file: str
    kernel: str
    signature: str
    constants: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        size = "x".join(
            str(value)
            for value in self.constants.values()
            if isinstance(value, int) and not isinstance(value, bool)
        )
        return f"{Path(self.file).parent.name}-{Path(self.file).stem}-{self.kernel}-{size}"


def pointers(names: str, type_: str) -> str:
    return ", ".join(f"{name}=*{type_}:16" for name in names.split())


def sizes(names: str, divisibility: int = 16) -> str:
    return ", ".join(f"{name}=i32:{divisibility}" for name in names.split())


def descriptors(names: str, element: str, *block: int) -> str:
    return ", ".join(f"{name}=tensordesc<{element}{list(block)}>:16" for name in names.split())
