"""Both compilers' code objects for AMD GPUs, executed in the emulator on the same data.

A few programs of a launch run: at most two along each axis of its grid. Tensors are as large as the
record says, up to a limit; what a kernel touches beyond it ends the run, and so does what takes too
long.
"""

from __future__ import annotations

import importlib.metadata
import math
import multiprocessing
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from corpus import data
from corpus.comparison import Row
from corpus.compilation import Outcome
from corpus.launches import Argument, Launch
from tilewright_amd_emulator import Arena, WaveError, disassembled, load, run
from tilewright_amd_emulator.engine.kernel_arguments import packed, sizes_of_arguments

Array = np.ndarray[Any, np.dtype[Any]]

#: No tensor gets more bytes.
_LARGEST = 32 << 20
#: Programs along each axis of the grid.
_PROGRAMS = 2
#: Instructions of the waves that run together before a kernel counts as one that takes too long.
_INSTRUCTIONS = 1 << 22
_FORMATS = {"fp64": "<d", "fp32": "<f", "fp16": "<e"}


@dataclass
class Execution:
    """What the emulator found.

    Attributes:
        kernel, target: which.
        ours, theirs: instructions that the waves executed; 0 where they did not come to an end.
        difference: the largest difference of a result, relative to the largest value of its tensor.
        equal: whether all results are equal within the tolerance of their types.
        note: why it was not executed, or what differs.
        resident: threads of ours and of theirs that fit a compute unit.
        scratch: bytes of memory of a thread's own, of ours and of theirs.
    """

    kernel: str
    target: str
    ours: int = 0
    theirs: int = 0
    difference: float = 0.0
    equal: bool = False
    note: str = ""
    resident: tuple[int, int] = (0, 0)
    scratch: tuple[int, int] = (0, 0)

    @property
    def ratio(self) -> float:
        """Our instructions by theirs; 0 where that is not known."""
        return self.ours / self.theirs if self.theirs else 0.0


def versions() -> dict[str, str]:
    """The version of the disassembler that reads both code objects."""
    return {"rocm-bindings-compiler": importlib.metadata.version("rocm-bindings-compiler")}


def execute_all(
    rows: Iterable[Row], launches: Sequence[Launch], limit: float = 120
) -> Iterator[Execution]:
    """Execute what both compile for AMD GPUs, each in a process of at most ``limit`` seconds."""
    by_id = {launch.id: launch for launch in launches}
    for row in rows:
        if row.verdict is None or row.theirs is None or not row.target.startswith("gfx"):
            continue
        found = _apart(by_id[row.kernel], row, limit)
        if row.ours.figures is not None and row.theirs.figures is not None:
            mine, other = row.ours.figures, row.theirs.figures
            found.resident = mine.ctas * mine.threads, other.ctas * other.threads
            found.scratch = mine.stack, other.stack
        yield found


def _apart(launch: Launch, row: Row, limit: float) -> Execution:
    mine, other = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.Process(target=_send, args=(other, launch, row))
    process.start()
    other.close()
    try:
        if mine.poll(limit):
            found = mine.recv()
            assert isinstance(found, Execution)
            return found
        return Execution(row.kernel, row.target, note=f"it did not end in {limit:g} s")
    except EOFError:
        return Execution(row.kernel, row.target, note="the process ended")
    finally:
        process.kill()
        process.join()


def _send(to: Connection, launch: Launch, row: Row) -> None:
    to.send(execute(launch, row))


def execute(launch: Launch, row: Row) -> Execution:
    """Execute both codes of a row on the same data, and compare what they leave."""
    assert row.theirs is not None
    found = Execution(row.kernel, row.target)
    try:
        values = [_data(argument, launch) for argument in data.passed(launch.arguments)]
        found.theirs, expected = _run(row.theirs, launch, values)
        found.ours, results = _run(row.ours, launch, values)
    except (WaveError, NotImplementedError) as error:
        found.note = str(error).splitlines()[0]
        return found
    found.equal = True
    tensors = [each for each in data.passed(launch.arguments) if data.element(each)]
    for argument, one, other in zip(tensors, results, expected, strict=True):
        kind = data.element(argument)
        tolerance, difference = data.ELEMENTS[kind][1], data.difference(one, other, kind)
        found.difference = max(found.difference, difference)
        if difference > tolerance:
            found.equal = False
            found.note = f"{argument.name} differs by {difference:.2g}"
    return found


def _data(argument: Argument, launch: Launch) -> Array | bytes | int:
    """The value of an argument: the contents of a tensor's storage, or a number as it is passed.

    Raises:
        NotImplementedError: it is none of the kinds that are executed.
    """
    kind = argument.type
    if kind in _FORMATS:
        return struct.pack(_FORMATS[kind], data.number(argument))
    if kind == "bf16":
        return struct.pack("<f", data.number(argument))[2:]
    if re.fullmatch(r"[iu]\d+", kind) and isinstance(argument.value, int):
        return int(argument.value)
    if kind[:1] == "*" and kind[1:] in data.ELEMENTS and argument.shape is not None:
        return data.contents(launch, argument, _LARGEST)
    raise NotImplementedError(f"an argument of type {kind} is not executed")


def _run(
    outcome: Outcome, launch: Launch, given: Sequence[Array | bytes | int]
) -> tuple[int, list[Array]]:
    """(instructions that were executed, the tensors afterwards)."""
    assert outcome.facts is not None
    listing = Path(f"{outcome.code}.amdgcn").read_text()
    program = load(disassembled(Path(f"{outcome.code}.hsaco").read_bytes()))
    size = sum(each.nbytes + 4096 for each in given if isinstance(each, np.ndarray))
    arena = Arena(size + (1 << 22), unaligned=True)
    values = [arena.put(each) if isinstance(each, np.ndarray) else each for each in given]
    sizes = sizes_of_arguments(listing)
    if len(sizes) < len(values):
        raise NotImplementedError("the code takes fewer arguments than the kernel")
    # behind them is memory for kernels that ask for some, and for profilers: there is none
    arguments = [*values, *[0] * (len(sizes) - len(values))]
    name, grid = outcome.facts["name"], _grid(launch)
    fixed = program.kernel(name).directives.get("group_segment_fixed_size")
    covered = run(
        program,
        name,
        grid=grid,
        threads=program.wave_size * outcome.facts["num_warps"],
        arguments=packed(listing, arguments, grid),
        arena=arena,
        dynamic_lds=0 if fixed else outcome.facts["shared"],
        limit=_INSTRUCTIONS,
    )
    after = [
        arena.get(value, each.dtype, each.shape)
        for each, value in zip(given, values, strict=True)
        if isinstance(each, np.ndarray) and isinstance(value, int)
    ]
    return covered.instructions, after


def _grid(launch: Launch) -> tuple[int, int, int]:
    x, y, z = (min(each, _PROGRAMS) for each in launch.grid)
    return x, y, z


def table(executions: Iterable[Execution]) -> str:
    """A line a kernel and target, the one with the most instructions by Triton's first."""
    found = sorted(executions, key=lambda each: -each.ratio)
    lines = []
    for target in dict.fromkeys(each.target for each in found):
        ratios = [each.ratio for each in found if each.target == target and each.ratio]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            lines.append(
                f"{target}: {len(ratios)} executed, instructions by Triton's: geometric mean "
                f"{mean:.2f}, {min(ratios):.2f} to {max(ratios):.2f}"
            )
    for each in found:
        result = "equal" if each.equal else each.note
        ratio = f"{each.ratio:5.2f}" if each.ratio else "     "
        lines.append(
            f"{each.target:8} {ratio} {each.ours:9} {each.theirs:9} {each.kernel}: {result}"
        )
    return "\n".join(lines)
