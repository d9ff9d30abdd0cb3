"""What the toolkit is told of an operation, beside its row in the op table: how it is laid out,
what it does to shared memory, how it is written.

Each operation that is not elementwise brings an :class:`Interface`, the toolkit's own from the
modules of :mod:`tilewright.simt.lowering`, a vendor's from its
:class:`~tilewright.simt.target.simt_target.SimtTarget`; :mod:`tilewright.simt.dialect.registry`
finds it. No pass knows operations by name where an interface can tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tilewright.ir.core import Function, Operation, Value

if TYPE_CHECKING:
    # the parts of the toolkit above this one, which interfaces are handed to
    from tilewright.ir.ops.linear import Dot
    from tilewright.ir.types import Type
    from tilewright.passes.analysis.axis import AxisInfo
    from tilewright.simt.assign_layouts.coalesce import TileAccess
    from tilewright.simt.assign_layouts.solver import Origin, Problem, Variable
    from tilewright.simt.dialect.async_groups import Tokens
    from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout
    from tilewright.simt.lowering.emission.context import SimtContext
    from tilewright.simt.target.matmul_plan import MatmulPlan
    from tilewright.simt.target.simt_target import SimtTarget


@dataclass(frozen=True, slots=True)
class SharedEffects:
    """What an operation does to shared memory that is not its own: values of slots.

    Attributes:
        reads, writes: done when the operation is over.
        blocks: written by TMA copies, whose end an mbarrier tells to all threads.
        copies: written by copies of this thread that may go on until a wait for the queue.
        matmuls: read by matmuls of this thread that may go on until a wait for the queue.
        engines: those of ``reads`` that matrix instructions or TMA copies read, not the threads'
            own loads.
        awaited: mbarriers, with their numbers, whose phase all threads wait for.
        announced: mbarriers whose next phase may end from now on: no thread may still wait for the
            one before.
        stores: read by copies of this thread to the tensor that may go on until a wait for the
            queue.
        ordered: whoever wrote it saw to it that no thread may still touch what is written or copied
            to, or wait for what is announced.
    """

    reads: tuple[Value, ...] = ()
    writes: tuple[Value, ...] = ()
    blocks: tuple[Value, ...] = ()
    copies: tuple[Value, ...] = ()
    matmuls: tuple[Value, ...] = ()
    stores: tuple[Value, ...] = ()
    engines: tuple[Value, ...] = ()
    awaited: tuple[tuple[Value, Value], ...] = ()
    announced: tuple[tuple[Value, Value], ...] = ()
    ordered: bool = False


class Statement(Protocol):
    """A function's layout problem, as rules state it: see
    :class:`tilewright.simt.assign_layouts.assign.LayoutStatement`."""

    function: Function
    target: SimtTarget
    num_warps: int
    accesses: dict[Operation, TileAccess]
    origins: dict[Value, Origin]
    reads: dict[Operation, list[Variable | LinearLayout | None]]
    plans: dict[Operation, MatmulPlan]
    problem: Problem

    def weight(self, operation: Operation) -> float: ...

    def variable(self, value: Value, weight: float = 1.0) -> Variable: ...

    def candidates_of(self, access: TileAccess, operation: Operation) -> list[LinearLayout]: ...

    def access_price(self, access: TileAccess) -> Callable[[LinearLayout], float]: ...

    def plan(self, operation: Dot) -> MatmulPlan: ...


class Reader(Protocol):
    """What a report knows of the function that it is about: see
    :class:`tilewright.simt.report.Report`."""

    target: SimtTarget
    axes: dict[Value, AxisInfo]
    tokens: Tokens

    def layout(self, value: Value) -> str: ...

    def accesses(self, pointer: Value, mask: Value | None, limit: int, what: str = ...) -> str: ...

    def traffic(self, verb: str, layout: LinearLayout, shared: SharedLayout, element: Type) -> str: ...


# The operation is of the class that its row names, as the functions say: an interface is found by
# the operation's name, which a type cannot tell.

#: Writes an operation as LLVM IR for one thread, and binds its results.
Lower: TypeAlias = "Callable[[SimtContext, Any], None]"
#: Says what an operation asks of layouts (see :mod:`tilewright.simt.assign_layouts.shape_rules`).
LayoutRule: TypeAlias = "Callable[[Statement, Any], None]"
#: Checks an operation whose tiles have layouts; the rule that it breaks, or the empty string.
LayoutCheck: TypeAlias = "Callable[[Any, SimtTarget], str]"
#: Bytes of shared memory that the lowering of an operation needs while it runs.
Scratch: TypeAlias = "Callable[[Any, SimtTarget], int]"


@dataclass(frozen=True, slots=True)
class Interface:
    """What is known of an operation.

    Attributes:
        lower: writes it. An operation with scratch space writes it first, waits for all threads,
            and reads it last.
        layout: states what it asks of layouts; None for operations on scalars, and for those that
            come after layouts are assigned.
        check: checks layouts; None where there is nothing to check.
        scratch: bytes of scratch space; None where it needs none.
        effects: what it does to slots; None for nothing.
        describe: facts about it for the report; None for none.
    """

    lower: Lower
    layout: LayoutRule | None = None
    check: LayoutCheck | None = None
    scratch: Scratch | None = None
    effects: Callable[[Any], SharedEffects] | None = None
    describe: Callable[[Reader, Any], list[str]] | None = None
