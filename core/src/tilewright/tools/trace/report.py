"""Report of the values that a watched launch recorded."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tilewright.ir.types import element_type, shape_of
from tilewright.passes.watch.instrument import WatchedValue
from tilewright.passes.watch.record import LARGEST, Field, number_of
from tilewright.tools.explain.source_lines import SourceLine, library_folders, own_place


@dataclass(frozen=True)
class FirstElement:
    """The first element of a kind.

    Attributes:
        program: the smallest program that has one, by its position along each axis of the grid.
        index: the first such element of the tile there; () of a scalar. In a loop it is the
            smallest of all iterations.
    """

    program: tuple[int, int, int]
    index: tuple[int, ...]

    def __str__(self) -> str:
        element = f", element {list(self.index)}" if self.index else ""
        return f"program {self.program}{element}"


@dataclass(frozen=True)
class ValueStatistics:
    """Statistics of one value of a kernel over all program instances and iterations of a launch.

    Attributes:
        file, line: the location in the source that computes the value; "" and 0 if it is unknown.
        operation: the operation of Tile IR that computes the value, or the ``store`` that writes
            it.
        name: the name of the value in the source; "" if it has none.
        type: the type of the value in Tile IR.
        count: the number of elements; masked-off elements of accesses do not count.
        nan, inf: the number of elements that are NaN, and that are infinite.
        minimum, maximum, mean: those of the finite elements, or None if there are none. The mean is
            accumulated in f32.
        first_nan, first_inf: the position of the first NaN, and of the first infinity; None if
            there is none.
        nan_origins, inf_origins: the number of executions of the operation whose result has a NaN
            (an infinity) although no operand has one.
        nan_from_inf: the number of those among the ``nan_origins`` with an operand that has an
            infinity.
        read, written: the kernel's parameters whose memory the operation reads, if it is a load, or
            writes, if it is a store.
    """

    file: str
    line: int
    operation: str
    name: str
    type: str
    count: int
    nan: int
    inf: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    first_nan: FirstElement | None
    first_inf: FirstElement | None
    nan_origins: int
    nan_from_inf: int
    inf_origins: int
    read: tuple[str, ...]
    written: tuple[str, ...]

    @property
    def place(self) -> SourceLine | None:
        """The source line that computes the value; None if it is unknown."""
        return SourceLine(self.file, self.line) if self.file else None

    def __str__(self) -> str:
        what = f"{self.name} = {self.operation}" if self.name else self.operation
        if self.written:
            what = f"{self.operation} to {' or '.join(self.written)}"
        elif self.read:
            what += f" from {' or '.join(self.read)}"
        if self.count == 0:
            return f"{what} ({self.type}): never computed"
        bad = "".join(f", {n} {word}" for n, word in ((self.nan, "NaN"), (self.inf, "inf")) if n)
        values = (
            "none finite"
            if self.minimum is None or self.maximum is None or self.mean is None
            else f"{self.minimum:.6g} to {self.maximum:.6g}, mean {self.mean:.6g}"
        )
        return f"{what} ({self.type}): {self.count} elements{bad}; {values}"


@dataclass(frozen=True)
class WatchReport:
    """The result of a launch of :func:`watch`: statistics of the float values in the kernel.

    The printed report shows the source lines of the kernel, and below each line the statistics of
    the values that the line computes. The report has no entries for integers and booleans, such as
    indices and masks.

    Attributes:
        kernel: the kernel's name.
        grid: the grid of the launch.
        values: an entry for each operation that computes or writes floats.
    """

    kernel: str
    grid: tuple[int, int, int]
    values: tuple[ValueStatistics, ...]

    @classmethod
    def of(
        cls,
        kernel: str,
        watched: Sequence[WatchedValue],
        records: np.ndarray[Any, Any],
        sums: np.ndarray[Any, Any],
        grid: tuple[int, int, int],
    ) -> WatchReport:
        """Read the records of a launch, [values, WORDS], and the sums of finite elements."""
        folders = library_folders()
        values = tuple(
            _statistics(
                value, [int(word) for word in records[slot]], float(sums[slot]), grid, folders
            )
            for slot, value in enumerate(watched)
        )
        return cls(kernel, grid, values)

    @property
    def nan_origins(self) -> list[ValueStatistics]:
        """The values in which NaN begin: their operands had none. The first program's first."""
        return _by_first([value for value in self.values if value.nan_origins], "first_nan")

    @property
    def inf_origins(self) -> list[ValueStatistics]:
        """The values in which infinities begin: their operands had none."""
        return _by_first([value for value in self.values if value.inf_origins], "first_inf")

    @property
    def written_nan(self) -> list[ValueStatistics]:
        """The writes to memory that wrote NaN."""
        return [value for value in self.values if value.written and value.nan]

    def record(self) -> dict[str, Any]:
        """The report as JSON has it."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [f"{self.kernel} over {self.grid}"]
        place: SourceLine | None = None
        for value in self.values:
            if value.place != place and value.place is not None:
                text = linecache.getline(value.file, value.line).strip()
                lines.append(f"line {value.line}: {text}")
            place = value.place
            lines.append(f"  {value}")
        return "\n".join([*lines, *self.conclusions()])

    def conclusions(self) -> list[str]:
        """Return sentences about where NaN and infinities begin, and which writes have NaN."""
        found = [_origin(value, "NaN", value.first_nan) for value in self.nan_origins]
        found += [_origin(value, "infinities", value.first_inf) for value in self.inf_origins]
        given = self._given()
        if given:
            found.append(
                f"{' and '.join(given)} come from constants or from `other` of masked loads: no "
                "operation computes them from finite operands"
            )
        found += [
            f"{_line(value)}{value.nan} NaN are written to {' or '.join(value.written)}"
            for value in self.written_nan
        ]
        if not any(value.count for value in self.values):
            return ["no float was computed or written"]
        if not found:
            return ["every float is finite"]
        return found if any(value.nan for value in self.values) else ["no float is NaN", *found]

    def _given(self) -> list[str]:
        """Return which of NaN and infinities the kernel has although they begin in no operation."""
        nan = any(value.nan for value in self.values)
        inf = any(value.inf or value.nan_from_inf for value in self.values)
        kinds = (("NaN", nan, self.nan_origins), ("infinities", inf, self.inf_origins))
        return [word for word, present, origins in kinds if present and not origins]


def _line(value: ValueStatistics) -> str:
    return f"line {value.line}: " if value.file else ""


def _origin(value: ValueStatistics, word: str, first: FirstElement | None) -> str:
    if value.read:
        how = f"{' or '.join(value.read)} has {word} in memory"
    else:
        others = "infinities, no NaN" if word == "NaN" and value.nan_from_inf else f"no {word}"
        how = f"{word} begin in {value.operation}, whose operands have {others}"
    return f"{_line(value)}{how}; first in {first}"


def _by_first(values: list[ValueStatistics], first: str) -> list[ValueStatistics]:
    """Sort values by the program that has the first element of a kind; equal ones keep order."""

    def program(value: ValueStatistics) -> tuple[int, ...]:
        found = getattr(value, first)
        return () if found is None else found.program[::-1]

    return sorted(values, key=program)


def _statistics(
    value: WatchedValue,
    words: Sequence[int],
    total: float,
    grid: tuple[int, int, int],
    folders: Sequence[str],
) -> ValueStatistics:
    """Decode one record."""
    finite = words[Field.COUNT] - words[Field.NAN] - words[Field.INF]
    place = None if value.place is None else own_place(value.place, folders)
    element = element_type(value.type)
    return ValueStatistics(
        file="" if place is None else place.file,
        line=0 if place is None else place.line,
        operation=value.operation,
        name=value.name,
        type=str(value.type),
        count=words[Field.COUNT],
        nan=words[Field.NAN],
        inf=words[Field.INF],
        minimum=number_of(words[Field.MINIMUM], element) if finite else None,
        maximum=number_of(words[Field.MAXIMUM], element) if finite else None,
        mean=total / finite if finite else None,
        first_nan=_first(words[Field.FIRST_NAN], value, grid),
        first_inf=_first(words[Field.FIRST_INF], value, grid),
        nan_origins=words[Field.NAN_ORIGINS],
        nan_from_inf=words[Field.NAN_FROM_INF],
        inf_origins=words[Field.INF_ORIGINS],
        read=value.read,
        written=value.written,
    )


def _first(word: int, value: WatchedValue, grid: tuple[int, int, int]) -> FirstElement | None:
    if word == LARGEST:
        return None
    program, element = word >> 32, word & 0xFFFFFFFF
    x, program = program % grid[0], program // grid[0]
    index: list[int] = []
    for extent in reversed(shape_of(value.type)):
        index.insert(0, element % extent)
        element //= extent
    return FirstElement((x, program % grid[1], program // grid[1]), tuple(index))
