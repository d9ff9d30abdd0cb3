"""Results of a benchmark as a file, which the site shows."""

from __future__ import annotations

import datetime
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch


@dataclass(frozen=True)
class Result:
    """A measured case.

    Attributes:
        family: of the operation, such as ``"linear"``.
        case: operation, types and sizes.
        seconds: of the device, or of one thread of a CPU.
        bytes_moved: that must be read and written; None where operations bound the case.
        operations: multiplications and additions; None where bytes bound the case.
        rivals: name -> the rival's seconds.
        error: the largest one, relative to the largest result.
        has_same_bits: whether repeated calls gave the same bits.
        speed: of the operand type's matmuls on the machine, relative to 16 bits.
    """

    family: str
    case: str
    seconds: float
    bytes_moved: float | None = None
    operations: float | None = None
    rivals: Mapping[str, float] = field(default_factory=dict)
    error: float | None = None
    has_same_bits: bool | None = None
    speed: float = 1.0


class Results:
    """The results of a run."""

    def __init__(self) -> None:
        self.rows: list[Result] = []

    def add(self, result: Result) -> None:
        """Add a case."""
        self.rows.append(result)

    def write(self, path: Path, device: str) -> None:
        """Write a file of JSON, with the machine, the date and PyTorch's version."""
        machine = torch.cuda.get_device_name() if device == "cuda" else processor_name()
        contents = {
            "machine": machine,
            "date": datetime.date.today().isoformat(),
            "torch": torch.__version__,
            "results": [asdict(row) for row in self.rows],
        }
        path.write_text(json.dumps(contents, indent=1) + "\n")


def processor_name() -> str:
    """Return the name of the CPU, as the operating system has it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
