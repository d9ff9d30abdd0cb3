"""Per-kernel state of code emission: its parameters, and the messages that the host needs."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.ir.core import Function
from tilewright.ir.ops.arithmetic import ProgramId
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.dialect.attributes import WARPS
from tilewright.simt.dialect.ops.async_copy import CopyStart
from tilewright.simt.layouts.linear_layout import LinearLayout
from tilewright_amd.codegen import prints


@dataclass(slots=True)
class KernelState:
    """The attributes of the kernel being emitted, and the messages collected for the host.

    Attributes:
        num_warps: warps of a program.
        groups: grid axes whose program ID the kernel reads.
        counts: whether the kernel reads the grid's extents.
        copies: whether copies to LDS are in flight across barriers.
        announces: whether the kernel has atomics, by which a program may publish its stores to
            others.
        asserts: whether the kernel has assertions.
        record_words: words of a print record; 0 if the kernel prints nothing.
        vectors: layout of a matmul's result -> elements per lane of one instruction's result.
        assertions: texts of the assertions, by number less 1.
        formats: (C format, types of the operands) of the prints, by number less 1.
        narrowed: name of an fp8 number -> the clamped f32 number that was rounded to it, and the
            fp8 kind as the instruction spells it.
    """

    num_warps: int
    groups: frozenset[int]
    counts: bool
    copies: bool
    announces: bool
    asserts: bool
    record_words: int
    vectors: dict[LinearLayout, int]
    assertions: list[str] = field(default_factory=list)
    formats: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    narrowed: dict[str, tuple[str, str]] = field(default_factory=dict)


def state_for(function: Function, vectors: dict[LinearLayout, int]) -> KernelState:
    """Return the state of a fully lowered kernel, given the result layouts of its matmuls."""
    operations, names = list(function.walk()), {operation.name for operation in function.walk()}
    words = prints.record_words(function)
    axes = {operation.axis for operation in operations if isinstance(operation, ProgramId)}
    return KernelState(
        num_warps=function.attributes[WARPS],
        # every printed line begins with its program ID
        groups=frozenset(range(3) if words else axes),
        counts="num_programs" in names,
        copies=any(isinstance(operation, CopyStart) for operation in operations),
        announces=any(name.startswith("atomic_") for name in names),
        asserts="assert" in names,
        record_words=words,
        vectors=vectors,
    )


def kernel_state(w: FunctionWriter) -> KernelState:
    """Return the state of the kernel being emitted."""
    state = w.module.state
    assert isinstance(state, KernelState), "a kernel is prepared before it is written"
    return state
