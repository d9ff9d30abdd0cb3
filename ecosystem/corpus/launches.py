"""What a package launched: the facts of which a kernel is compiled again, one record for each
specialization.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from corpus.contents import Run

#: Where the records of all packages are kept.
FOLDER = Path(__file__).with_name("launches")


@dataclass(frozen=True)
class Argument:
    """One parameter of a kernel.

    Attributes:
        name: the parameter's.
        type: as in a signature of Triton's: ``*bf16``, ``i32``, ``fp32``, ``tensordesc<bf16[64,
        64]>``;
            ``constexpr`` for a constant, also for an integer that is specialized because it is 1.
        value: a number's or a constant's value. Types of elements are written ``{"dtype":
        "bf16"}``,
            functions ``{"function": "module:name"}``, members of enumerations
            ``{"enum": "module:Class", "name": "MEMBER"}``, tuples ``{"tuple": [...]}``, floats that
            are not finite ``{"float": "inf"}``.
        shape, strides: of a tensor, in elements.
        aligned: whether an address or a number is known to be a multiple of 16.
        contents: what a tensor of whole numbers holds, where it is known, as runs; see
            :mod:`corpus.contents`.
        block: the shape of a descriptor's block.
        padding: what a descriptor's loads give outside of the tensor where that is not zero:
        ``nan``. items: of a tuple, whose type is ``tuple``; their names are ``NAME.0``, ``NAME.1``,
        ….
    """

    name: str
    type: str
    value: Any = None
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    aligned: bool = False
    contents: tuple[Run, ...] | None = None
    block: tuple[int, ...] | None = None
    padding: str | None = None
    items: tuple[Argument, ...] | None = None


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
    def signature(self) -> dict[str, Any]:
        """The type of each parameter by name, as a signature of Triton's: tuples of types for
        tuples.
        """
        return {argument.name: _type(argument) for argument in self.arguments}

    @property
    def specialization(self) -> str:
        """A text that two launches share that compile the same kernel for the same arguments and
        options.
        """
        parts = [_specialized(argument) for argument in self.arguments]
        return json.dumps([self.module, self.kernel, parts, sorted(self.options.items())])


def _type(argument: Argument) -> Any:
    return argument.type if argument.items is None else tuple(map(_type, argument.items))


def _specialized(argument: Argument) -> list[Any]:
    """What a kernel is compiled for of an argument."""
    value = argument.value if argument.type == "constexpr" else None
    return [
        argument.type,
        value,
        argument.aligned,
        argument.padding,
        *map(_specialized, argument.items or ()),
    ]


def with_case(launch: Launch, case: str, used: set[str]) -> Launch:
    """The launch with a case and an id that is none of ``used``, to which it is added: ``case``,
    ``case/2``, …
    """
    found, number = replace(launch, case=case), 1
    while found.id in used:
        number += 1
        found = replace(launch, case=f"{case}/{number}")
    used.add(found.id)
    return found


def read(package: str, folder: Path = FOLDER) -> list[Launch]:
    """The launches of a package, in the order of the file."""
    return [launch_of(record) for record in json.loads((folder / f"{package}.json").read_text())]


def read_all(folder: Path = FOLDER) -> Iterator[Launch]:
    """The launches of all packages, in the order of their names."""
    for file in sorted(folder.glob("*.json")):
        yield from read(file.stem, folder)


def first_of_each_kernel(launches: Iterable[Launch]) -> list[Launch]:
    """One launch a kernel: the first of each in the order given."""
    found: dict[tuple[str, str, str], Launch] = {}
    for launch in launches:
        found.setdefault((launch.package, launch.module, launch.kernel), launch)
    return list(found.values())


def write(package: str, launches: Iterable[Launch], folder: Path = FOLDER) -> Path:
    """Keep the launches of a package, one a line, in the order of their ids; the file."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps(record_of(launch)) for launch in sorted(launches, key=lambda launch: launch.id)
    ]
    file = folder / f"{package}.json"
    file.write_text("[\n" + ",\n".join(lines) + "\n]\n")
    return file


def record_of(launch: Launch) -> dict[str, Any]:
    """A launch as JSON has it, without what is as by default."""
    record = {field.name: getattr(launch, field.name) for field in fields(launch)}
    record = {name: value for name, value in record.items() if value not in ({}, (1, 1, 1), 0)}
    record["arguments"] = [_argument_record(argument) for argument in launch.arguments]
    return record


def _argument_record(argument: Argument) -> dict[str, Any]:
    record = {field.name: getattr(argument, field.name) for field in fields(argument)}
    record = {
        name: value for name, value in record.items() if value is not None and value is not False
    }
    if argument.value is not None:  # 0 and False are values
        record["value"] = argument.value
    if argument.items is not None:
        record["items"] = [_argument_record(item) for item in argument.items]
    return record


def launch_of(record: dict[str, Any]) -> Launch:
    """The launch that a JSON object tells of."""
    facts = {**record, "arguments": tuple(map(_argument_of, record.get("arguments", ())))}
    grid = record.get("grid", (1, 1, 1))
    return Launch(**{**facts, "grid": (grid[0], grid[1], grid[2])})


def _argument_of(record: dict[str, Any]) -> Argument:
    facts: dict[str, Any] = {
        name: tuple(value) if name in ("shape", "strides", "block") else value
        for name, value in record.items()
    }
    if "contents" in facts:
        facts["contents"] = tuple(map(tuple, facts["contents"]))
    if "items" in facts:
        facts["items"] = tuple(map(_argument_of, facts["items"]))
    return Argument(**facts)
