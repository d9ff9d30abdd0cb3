"""Operation interfaces: layout constraints, shared memory effects and lowering of operations.

Each operation that is not elementwise has an :class:`Interface`, besides its row in the op table.
The interfaces of the toolkit's own operations are in the modules of
:mod:`tilewright.simt.lowering`; a vendor's come from its
:class:`~tilewright.simt.target.simt_target.SimtTarget`. :mod:`tilewright.simt.dialect.registry`
looks them up. Passes query interfaces instead of comparing operation names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tilewright.ir.core import Function, Operation, Value

if TYPE_CHECKING:
    # handed in: higher layers of the toolkit call interfaces
    from tilewright.ir.ops.linear import Dot
    from tilewright.ir.types import Type
    from tilewright.passes.analysis.axis import AxisInfo
    from tilewright.simt.assign_layouts.solver import Origin, Problem, Variable
    from tilewright.simt.assign_layouts.tile_access import TileAccess
    from tilewright.simt.dialect.async_groups import Tokens
    from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout
    from tilewright.simt.lowering.emission.context import SimtContext
    from tilewright.simt.target.matmul_plan import MatmulPlan
    from tilewright.simt.target.simt_target import SimtTarget


@dataclass(frozen=True, slots=True)
class SharedEffects:
    """Effects of an operation on slots in shared memory, except its own scratch space.

    Attributes:
        reads, writes: complete when the operation is.
        blocks: written by TMA copies, whose completion an mbarrier signals to all threads.
        copies: written by copies of this thread that may be in flight until a wait for the queue.
        matmuls: read by matmuls of this thread that may be in flight until a wait for the queue.
        engines: the subset of ``reads`` that matrix instructions or TMA copies read, not the
            threads' own loads.
        awaited: mbarriers, with their indices, whose phase all threads wait for.
        announced: mbarriers whose next phase may complete from now on: no thread may still wait for
            the previous one.
        stores: read by bulk stores of this thread that may be in flight until a wait for the queue.
        ordered: the pass that created the operation guarantees that no thread may still access the
            slots it writes or copies to, or wait for the mbarriers in ``announced``.
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
    """Layout problem of a function, as the rules see it.

    See :class:`tilewright.simt.assign_layouts.assign.LayoutStatement`.
    """

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

    def shared(self, value: Value, weight: float = 1.0) -> Variable: ...

    def share(self, value: Value, variable: Variable) -> None: ...

    def candidates_of(self, access: TileAccess, operation: Operation) -> list[LinearLayout]: ...

    def access_price(self, access: TileAccess) -> Callable[[LinearLayout], float]: ...

    def plan(self, operation: Dot) -> MatmulPlan: ...


class Reader(Protocol):
    """Report on a function, as interfaces see it: see :class:`tilewright.simt.report.Report`."""

    target: SimtTarget
    axes: dict[Value, AxisInfo]
    tokens: Tokens

    def layout(self, value: Value) -> str: ...

    def accesses(self, pointer: Value, mask: Value | None, limit: int, what: str = ...) -> str: ...

    def traffic(
        self, verb: str, layout: LinearLayout, shared: SharedLayout, element: Type
    ) -> str: ...


# The operation is of the class that its row names, as the functions say: an interface is found by
# the operation's name, which a type cannot tell.

#: Emits an operation as LLVM IR for one thread, and binds its results.
Lower: TypeAlias = "Callable[[SimtContext, Any], None]"
#: States an operation's layout constraints (:mod:`tilewright.simt.assign_layouts.shape_rules`).
LayoutRule: TypeAlias = "Callable[[Statement, Any], None]"
#: Verifies an operation's layouts; returns the violated rule, or the empty string.
LayoutCheck: TypeAlias = "Callable[[Any, SimtTarget], str]"
#: Returns the bytes of scratch space that an operation needs.
Scratch: TypeAlias = "Callable[[Any, SimtTarget], int]"


@dataclass(frozen=True, slots=True)
class Interface:
    """Layout constraints, effects and lowering of an operation.

    Attributes:
        lower: emits LLVM IR. An operation with scratch space writes it first, synchronizes all
            threads, and reads it last.
        layout: states its layout constraints; None for scalar operations, and for operations that
            are created after layout assignment.
        check: verifies its layouts; None if there is nothing to verify.
        scratch: bytes of scratch space; None for none.
        within_warps: whether each warp accesses only bytes of its own there, so that the warps need
            not be synchronized; None for no.
        effects: its effects on slots; None for none.
        describe: lines about it for the report; None for none.
    """

    lower: Lower
    layout: LayoutRule | None = None
    check: LayoutCheck | None = None
    scratch: Scratch | None = None
    within_warps: Callable[[Any, SimtTarget], bool] | None = None
    effects: Callable[[Any], SharedEffects] | None = None
    describe: Callable[[Reader, Any], list[str]] | None = None
