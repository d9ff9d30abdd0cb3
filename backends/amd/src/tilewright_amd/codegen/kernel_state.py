"""State of one kernel's emission: its parameters, and the messages that the host has to know."""

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
    """What is known of a kernel while it is written.

    Attributes:
        num_warps: of a program.
        groups: axes of the grid on which the kernel asks for its program's number.
        counts: whether it asks for the extents of the grid.
        copies: whether copies to LDS are in flight across barriers.
        announces: whether what a program stores may be announced to others.
        asserts: whether it has assertions.
        record_words: words of a record of what is printed; 0 where nothing is.
        vectors: layouts of results of matrix instructions -> elements that one gives a lane.
        assertions: what failed assertions are called, by their numbers less 1.
        formats: (C format, types of operands) of what is printed, by their numbers less 1.
        narrowed: for numbers that the machine rounded to fp8: the f32 number in range that it rounded, and the kind as the instruction calls it.
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
    """The state for a kernel in its final form, with the layouts of results of its matrix instructions."""
    operations, names = list(function.walk()), {operation.name for operation in function.walk()}
    words = prints.record_words(function)
    axes = {operation.axis for operation in operations if isinstance(operation, ProgramId)}
    return KernelState(
        num_warps=function.attributes[WARPS],
        # every line that is printed begins with its program
        groups=frozenset(range(3) if words else axes),
        counts="num_programs" in names,
        copies=any(isinstance(operation, CopyStart) for operation in operations),
        announces=any(name.startswith("atomic_") for name in names),
        asserts="assert" in names,
        record_words=words,
        vectors=vectors,
    )


def kernel_state(w: FunctionWriter) -> KernelState:
    """The state of the kernel that is written."""
    state = w.module.state
    assert isinstance(state, KernelState), "a kernel is prepared before it is written"
    return state
