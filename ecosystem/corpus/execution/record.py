"""What both compilers' codes for AMD GPUs executed in the emulator, as it was accepted last."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corpus.execution.run import Execution

FILE = Path(__file__).with_name("record.json")
#: The ids of the launches that are executed, one a line.
IDS = Path(__file__).with_name("ids.txt")


@dataclass
class ExecutionRecord:
    """Executions by the launch's id and the target's name.

    Attributes:
        versions: of the tools by whose work the figures are.
        kernels: executions as JSON has them.
    """

    versions: dict[str, str] = field(default_factory=dict)
    kernels: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)

    @staticmethod
    def read(file: Path = FILE) -> ExecutionRecord:
        """The committed one; an empty one where there is none."""
        return (
            ExecutionRecord(**json.loads(file.read_text())) if file.exists() else ExecutionRecord()
        )

    def write(self, file: Path = FILE) -> None:
        """Keep it, an execution a line."""
        lines = []
        for kernel, targets in sorted(self.kernels.items()):
            rows = [
                f"  {json.dumps(target)}: {json.dumps(each)}"
                for target, each in sorted(targets.items())
            ]
            lines.append(f"{json.dumps(kernel)}: {{\n" + ",\n".join(rows) + "}")
        file.write_text(
            f'{{"versions": {json.dumps(self.versions)},\n"kernels": {{\n'
            + ",\n".join(lines)
            + "\n}}\n"
        )

    def accept(self, executions: Iterable[Execution], versions: dict[str, str]) -> None:
        """Take executions in, in place of those of the same kernels and targets."""
        self.versions.update(versions)
        for each in executions:
            facts = {
                name: value
                for name, value in vars(each).items()
                if name not in ("kernel", "target")
            }
            self.kernels.setdefault(each.kernel, {})[each.target] = facts

    def executions(self) -> list[Execution]:
        """All of them."""
        return [
            Execution(
                kernel,
                target,
                **{**each, "resident": tuple(each["resident"]), "scratch": tuple(each["scratch"])},
            )
            for kernel, targets in self.kernels.items()
            for target, each in targets.items()
        ]
