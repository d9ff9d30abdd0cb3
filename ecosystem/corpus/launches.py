"""What a package launched: the facts of which a kernel is compiled again, one record for each specialization."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

#: Where the records of all packages are kept.
FOLDER = Path(__file__).with_name("launches")


@dataclass(frozen=True)
class Argument:
    """One parameter of a kernel.

    Attributes:
        name: the parameter's.
        type: as in a signature of Triton's: ``*bf16``, ``i32``, ``fp32``, ``tensordesc<bf16[64, 64]>``;
            ``constexpr`` for a constant, also for an integer that is specialized because it is 1.
        value: a number's or a constant's value. Types of elements are written ``{"dtype": "bf16"}``,
            functions ``{"function": "module:name"}``, members of enumerations
            ``{"enum": "module:Class", "name": "MEMBER"}``, tuples ``{"tuple": [...]}``.
        shape, strides: of a tensor, in elements.
        aligned: whether an address or a number is known to be a multiple of 16.
        block: the shape of a descriptor's block.
    """

    name: str
    type: str
    value: Any = None
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    aligned: bool = False
    block: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Launch:
    """A launch of a kernel.

    Attributes:
        package, version: the distribution that the kernel comes from.
        module, kernel: where the kernel is found: an importable module and a name in it, with dots
            for attributes.
        case: what the program did, as ``rms_norm/forward/4096x8192/bf16``.
        arguments: all parameters, in order.
        options: launch options that were given or tuned (``num_warps``, ``num_stages``, …).
        grid: programs along each axis.
        configurations: how many configurations an autotuner chose from; 0 where there is none. The
            first that the kernel's own pruning leaves is recorded.
    """

    package: str
    version: str
    module: str
    kernel: str
    case: str
    arguments: tuple[Argument, ...]
    options: dict[str, Any] = field(default_factory=dict)
    grid: tuple[int, int, int] = (1, 1, 1)
    configurations: int = 0

    @property
    def id(self) -> str:
        """A name of its own among all launches of the corpus: ``package/kernel/case``."""
        return f"{self.package}/{self.kernel}/{self.case}"

    @property
    def signature(self) -> dict[str, str]:
        """The type of each parameter by name, as a signature of Triton's."""
        return {argument.name: argument.type for argument in self.arguments}


def read(package: str, folder: Path = FOLDER) -> list[Launch]:
    """The launches of a package, in the order of the file."""
    return [launch_of(record) for record in json.loads((folder / f"{package}.json").read_text())]


def read_all(folder: Path = FOLDER) -> Iterator[Launch]:
    """The launches of all packages, in the order of their names."""
    for file in sorted(folder.glob("*.json")):
        yield from read(file.stem, folder)


def write(package: str, launches: Iterable[Launch], folder: Path = FOLDER) -> Path:
    """Keep the launches of a package, one a line, in the order of their ids; the file."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(record_of(launch)) for launch in sorted(launches, key=lambda launch: launch.id)]
    file = folder / f"{package}.json"
    file.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    return file


def record_of(launch: Launch) -> dict[str, Any]:
    """A launch as JSON has it, without what is as by default."""
    record = {name: value for name, value in asdict(launch).items() if value not in ({}, (1, 1, 1), 0)}
    record["arguments"] = [{name: value for name, value in argument.items() if value not in (None, False)} for argument in record["arguments"]]
    for given, argument in zip(launch.arguments, record["arguments"], strict=True):
        if given.value is not None:  # 0 and False are values
            argument["value"] = given.value
    return record


def launch_of(record: dict[str, Any]) -> Launch:
    """The launch that a record of JSON holds."""

    def tuples(argument: dict[str, Any]) -> Argument:
        return Argument(**{name: tuple(value) if name in ("shape", "strides", "block") else value for name, value in argument.items()})

    grid = tuple(record.pop("grid", (1, 1, 1)))
    return Launch(arguments=tuple(map(tuples, record.pop("arguments", ()))), grid=(grid[0], grid[1], grid[2]), **record)
