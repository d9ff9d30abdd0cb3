"""Static instruction counts of machine code.

Counted are accesses by width, copies, matrix instructions and barriers, of all of the code and of
the innermost loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tilewright.gpu_host.control_flow import Instruction, loops

#: An innermost loop without any access or MMA is a spin loop if it is shorter than this.
_SHORT = 24


@dataclass(frozen=True)
class CountedEffect:
    """The count that one instruction contributes to.

    Attributes:
        kind: ``load`` and ``store`` (of global memory), ``copy`` (asynchronous, from global to
            shared memory or back), ``mma``, ``barrier`` (of a CTA), ``shared``, ``local`` (a spill
            or an array that is no register), ``atomic``.
        width: bytes that a thread accesses; 0 where the instruction does not say.
        name: of a copy or an MMA: its mnemonic in the ISA.
        work: of an MMA: multiplications of a warp; 0 where the instruction does not say.
    """

    kind: str
    width: int = 0
    name: str = ""
    work: int = 0


@dataclass
class Counts:
    """Instructions of a piece of code.

    Attributes:
        instructions: all of them.
        loads, stores: of global memory, by the bytes that a thread accesses at once.
        copies: asynchronous copies by name; those that say their width have it behind a colon.
        mma: matrix instructions by name.
        barriers, shared, local, atomics: how many.
        work: multiplications of a warp's matrix instructions; 0 where they do not say.
    """

    instructions: int = 0
    loads: dict[str, int] = field(default_factory=dict)
    stores: dict[str, int] = field(default_factory=dict)
    copies: dict[str, int] = field(default_factory=dict)
    mma: dict[str, int] = field(default_factory=dict)
    barriers: int = 0
    shared: int = 0
    local: int = 0
    atomics: int = 0
    work: int = 0

    @property
    def loaded(self) -> int:
        """Bytes a thread loads from global memory, with asynchronous copies of known width."""
        return sum(width * count for width, count in self.widths("loads").items())

    def widths(self, of: str) -> dict[int, int]:
        """Count the loads or stores of each width; loads include copies of known width."""
        found = Counter({int(width): count for width, count in getattr(self, of).items()})
        if of == "loads":
            for name, count in self.copies.items():
                _, colon, width = name.partition(":")
                if colon:
                    found[int(width)] += count
        return dict(found)

    def record(self) -> dict[str, Any]:
        """Return the counts as JSON data without zero or empty entries."""
        return without_zeros(asdict(self))

    def __str__(self) -> str:
        others = (
            ("access of shared memory", self.shared),
            ("access of local memory", self.local),
            ("atomic", self.atomics),
        )
        parts = [_number(self.instructions, "instruction"), _number(self.barriers, "barrier")]
        parts += [_number(number, what) for what, number in others if number]
        for what, table in (("global loads", self.loads), ("global stores", self.stores)):
            widths = ", ".join(
                f"{number} of {width} bytes"
                for width, number in sorted(table.items(), key=lambda item: -int(item[0]))
            )
            parts += [f"{what}: {widths}"] if table else []
        for what, table in (
            ("asynchronous copies", self.copies),
            ("matrix instructions", self.mma),
        ):
            kinds = ", ".join(f"{number} {_copy_text(name)}" for name, number in table.items())
            parts += [f"{what}: {kinds}"] if table else []
        return "; ".join(parts)

    def mean_width(self, of: str) -> float:
        """Return the mean width of an access in bytes; 0 where there is none."""
        widths = self.widths(of)
        count = sum(widths.values())
        return sum(width * number for width, number in widths.items()) / count if count else 0.0


def without_zeros(record: dict[str, Any]) -> dict[str, Any]:
    """Drop the zero or empty entries of a record, except for a present ``loop``."""
    return {
        name: without_zeros(value) if isinstance(value, dict) else value
        for name, value in record.items()
        if value or (name == "loop" and value is not None)
    }


def count(
    code: Iterable[Instruction],
    effect: Callable[[Instruction], CountedEffect | None],
) -> Counts:
    """Count the instructions of a piece of code by their effect."""
    found = Counts()
    tables = {"load": found.loads, "store": found.stores, "copy": found.copies, "mma": found.mma}
    for each in code:
        found.instructions += 1
        seen = effect(each)
        if seen is None:
            continue
        if seen.kind in tables:
            name = str(seen.width) if seen.kind in ("load", "store") else seen.name
            if seen.kind == "copy" and seen.width:
                name += f":{seen.width}"
            tables[seen.kind][name] = tables[seen.kind].get(name, 0) + 1
        elif seen.kind == "barrier":
            found.barriers += 1
        elif seen.kind == "shared":
            found.shared += 1
        elif seen.kind == "local":
            found.local += 1
        elif seen.kind == "atomic":
            found.atomics += 1
        found.work += seen.work
    return found


def main_loop(
    code: Sequence[Instruction], effect: Callable[[Instruction], CountedEffect | None]
) -> Counts | None:
    """Count the hottest innermost loop: by matrix instructions, then bytes loaded, then size.

    Spin loops (short loops without accesses) are ignored, also when determining which loops are
    innermost.
    """
    found = [
        (set(loop.places), count((code[place] for place in loop.places), effect))
        for loop in loops(code)
    ]
    working = [(places, counts) for places, counts in found if not _waits(counts)]
    inner = [
        counts for places, counts in working if not any(other < places for other, _ in working)
    ]
    return max(
        inner,
        key=lambda each: (each.work, sum(each.mma.values()), each.loaded, each.instructions),
        default=None,
    )


def counted(
    code: Sequence[Instruction], effect: Callable[[Instruction], CountedEffect | None]
) -> dict[str, Any]:
    """Return the counts of a kernel's machine code, and of its innermost loop if it has one."""
    loop = main_loop(code, effect)
    return {
        "machine code": count(code, effect),
        **({} if loop is None else {"innermost loop": loop}),
    }


def _waits(counts: Counts) -> bool:
    does = (
        counts.copies
        or counts.mma
        or counts.stores
        or counts.shared
        or counts.local
        or counts.loads
    )
    return not does and counts.instructions < _SHORT


def _number(number: int, what: str) -> str:
    plural = what.replace("access", "accesses") if what.startswith("access") else f"{what}s"
    return f"{number} {what if number == 1 else plural}"


def _copy_text(name: str) -> str:
    """Format an asynchronous copy or matrix instruction named ``name:bytes per thread``."""
    kind, colon, width = name.partition(":")
    return f"{kind} of {width} bytes" if colon else kind


__all__ = ["CountedEffect", "Counts", "count", "counted", "main_loop", "without_zeros"]
