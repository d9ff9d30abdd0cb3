"""Findings by source line: missed optimizations, conversions, accesses and instruction counts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from tilewright.ir.core import Function, Module, Operation
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.types import TileType
from tilewright.passes.analysis.axis import axis_info
from tilewright.simt.analysis.access_causes import AccessCauses
from tilewright.simt.analysis.access_waste import OF_USED
from tilewright.simt.dialect.attributes import notes_of
from tilewright.simt.dialect.ops.buffers import Convert
from tilewright.simt.layouts.linear_layout import LinearLayout
from tilewright.simt.report import Report
from tilewright.simt.target.simt_target import SimtTarget
from tilewright.tools.explain.source_lines import Line, SourceLine, is_instruction

#: Kinds of findings, in the order in which people want them.
SLOW, CONVERSION, DECISION, ACCESS, VALUES = KINDS = (
    "missed optimization",
    "conversion",
    "decision",
    "access",
    "values",
)


class Remark(NamedTuple):
    """A finding about a line; ``place`` is None where it is of no line."""

    kind: str
    place: SourceLine | None
    text: str


class Waste(NamedTuple):
    """An access that may move ``times`` the bytes that it uses."""

    line: int
    is_store: bool
    times: float


_WASTE = re.compile(rf"(load|store) .*? ([\d.e+]+){OF_USED}")


def of_toolkit(
    function: Function, machine: SimtTarget, numbers: Mapping[LinearLayout, int]
) -> list[Remark]:
    """Return the GPU toolkit's findings about a kernel, whose layouts are named by number.

    Layouts alone are no findings: they are in the stage, and have pictures.
    """
    found = [Remark(SLOW, _place(operation), note) for operation, note in notes_of(function)]
    report = Report(function, machine)
    report.numbers.update(numbers)
    for operation, facts in report.decisions():
        news = [fact for fact in facts if not re.fullmatch(r"(L\d+(, )?)+", fact)]
        if news and isinstance(operation, Convert):
            (source,), (result,) = operation.operands, operation.results
            what = f"{source.type} from {report.layout(source)} to {report.layout(result)}"
            found.append(
                Remark(
                    CONVERSION,
                    _place(operation),
                    f"{what}: {'; '.join(fact for fact in news if not fact.startswith('from L'))}",
                )
            )
        elif news:
            found.append(
                Remark(DECISION, _place(operation), f"{operation.name}: {'; '.join(news)}")
            )
    return found


def wasteful(found: Iterable[Remark]) -> tuple[Waste, ...]:
    """Return the accesses that may move many times the bytes that they use, by line."""
    return tuple(
        sorted(
            {
                Waste(remark.place.line, waste[1] == "store", float(waste[2]))
                for remark in found
                if remark.kind == SLOW
                and remark.place is not None
                and (waste := _WASTE.match(remark.text))
            }
        )
    )


def _place(operation: Operation) -> SourceLine | None:
    return (
        SourceLine(operation.location.file, operation.location.line)
        if operation.location is not None
        else None
    )


_VECTOR = r"<(\d+) x (\w+)>"
#: (pattern of LLVM IR, what it does); groups are lanes and element, or the element alone
_ACCESSES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), verb)
    for pattern, verb in (
        (rf"= load (?:volatile )?{_VECTOR}, ", "reads {} at once"),
        (rf"= (?:tail )?call {_VECTOR} @llvm\.masked\.load", "reads {} at once under a mask"),
        (rf"= (?:tail )?call {_VECTOR} @llvm\.masked\.gather", "gathers {}, one address each"),
        (rf"^\s+store (?:volatile )?{_VECTOR} ", "writes {} at once"),
        (rf"call void @llvm\.masked\.store[\w.]*\({_VECTOR} ", "writes {} at once under a mask"),
        (rf"call void @llvm\.masked\.scatter[\w.]*\({_VECTOR} ", "scatters {}, one address each"),
        (
            r"= load (?:volatile |atomic )?()(half|bfloat|float|double|i8|i16|i32|i64), ",
            "reads one {}",
        ),
        (
            r"^\s+store (?:volatile |atomic )?()(half|bfloat|float|double|i8|i16|i32|i64) ",
            "writes one {}",
        ),
        (
            r"= (?:atomicrmw \w+ ptr [^,]+, ()(\w+)|cmpxchg ptr [^,]+, ()(\w+))",
            "updates one {} atomically",
        ),
    )
)


def of_llvm(lines: Iterable[Line]) -> list[Remark]:
    """Return findings about memory accesses in LLVM IR.

    Accesses with an address per lane are missed optimizations.
    """
    counts: dict[tuple[str, SourceLine], Counter[str]] = {}
    for line in lines:
        if line.place is None:
            continue
        for pattern, verb in _ACCESSES:
            hit = pattern.search(line.text)
            if hit:
                lanes, element = [group for group in hit.groups() if group is not None][:2]
                kind = SLOW if verb.endswith("one address each") else ACCESS
                counts.setdefault((kind, line.place), Counter())[
                    verb.format(f"{lanes} {element}" if lanes else element)
                ] += 1
                break
    return [
        Remark(
            kind,
            place,
            "; ".join(
                f"{what} ({count} instruction{'s' if count > 1 else ''})"
                for what, count in counter.most_common()
            ),
        )
        for (kind, place), counter in counts.items()
    ]


def scattered(module: Module) -> list[Remark]:
    """Return accesses without consecutive addresses, and their causes.

    It is for backends that do not report them themselves.
    """
    function = module.kernel
    axes = axis_info(function)
    causes, found = AccessCauses(function, axes), []
    for operation in function.walk():
        if not isinstance(operation, Load | Store) or not isinstance(
            operation.pointer.type, TileType
        ):
            continue
        shape, info = operation.pointer.type.shape, axes[operation.pointer]
        axis = max(
            range(len(shape)),
            key=lambda i: (shape[i] > 1, info.contiguity[i], info.constancy[i], i),
        )
        if shape[axis] > 1 and info.contiguity[axis] == info.constancy[axis] == 1:
            why = causes.stride_note(operation.pointer, axis, 2)
            found.append(
                Remark(
                    SLOW,
                    _place(operation),
                    f"{operation.name}: no two addresses are known to be consecutive{why}",
                )
            )
    return found


def instructions(lines: Iterable[Line]) -> Counter[SourceLine]:
    """Count the machine instructions of each line of the source."""
    return Counter(
        line.place for line in lines if line.place is not None and is_instruction(line.text)
    )


def ordered(findings: Sequence[Remark], places: Sequence[SourceLine]) -> list[Remark]:
    """Sort by kind, then in the order of the source, without repetitions for a line."""
    rank = {place: number for number, place in enumerate(sorted(places))}
    return sorted(
        dict.fromkeys(findings),
        key=lambda found: (
            KINDS.index(found.kind),
            rank.get(found.place, -1) if found.place is not None else -1,
        ),
    )
