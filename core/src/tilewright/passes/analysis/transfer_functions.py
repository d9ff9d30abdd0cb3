"""Transfer functions of index arithmetic, shared by all analyses of indices.

An analysis is an abstract domain, a subclass of :class:`Domain`. It says what a sum, a product, a
multiple, moved axes ... of its facts are; which operation is which of these, and by which law (a
difference is a sum with the sign flipped, a shift by a constant is a multiple), stands in the table
here alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar

from tilewright.ir.core import Operation
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.arithmetic import (
    Addptr,
    Arange,
    Binary,
    Bitcast,
    Cast,
    Constant,
    Extremum,
    NumPrograms,
    ProgramId,
    Select,
)
from tilewright.ir.ops.debug import Hint
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Moved, Permute, Reshape, Splat, Unsplat
from tilewright.ir.types import shape_of
from tilewright.passes.rewriter import constant_of

Facts = TypeVar("Facts")
#: Maps the facts of an operation's operands to the facts of its result.
#: The operation is of the class of its row.
Rule = Callable[[Any, Any, Sequence[Any]], Any]


class Domain(Generic[Facts]):
    """Abstract domain of integers and pointers, with transfer functions of operations.

    Each method gets the operation, for its types and attributes, and the facts of its operands. The
    default of every method is :meth:`opaque`. An operation without a rule whose row forwards
    operands has the facts of these (:attr:`~tilewright.ir.core.Operation.forwarded`).
    """

    #: the transfer functions; a domain that follows more operations adds rows
    rules: ClassVar[Mapping[str, Rule]]

    def transfer(self, operation: Operation, facts: Sequence[Facts]) -> Facts:
        """Return the facts of the result of an operation with one result and no regions."""
        rule = self.rules.get(operation.name)
        return self.opaque(operation, facts) if rule is None else rule(self, operation, facts)

    def opaque(self, operation: Operation, facts: Sequence[Facts]) -> Facts:
        """Return the facts of an unknown result."""
        raise NotImplementedError

    def constant(self, operation: Constant) -> Facts:
        return self.opaque(operation, ())

    def arange(self, operation: Arange) -> Facts:
        return self.opaque(operation, ())

    def grid(self, operation: ProgramId | NumPrograms) -> Facts:
        """Return the facts of a program id, or of an extent of the grid."""
        return self.opaque(operation, ())

    def sum(self, operation: Binary | Addptr, a: Facts, b: Facts, sign: int) -> Facts:
        """Return the facts of ``a + sign * b``; for ``addptr``, b counts elements."""
        return self.opaque(operation, (a, b))

    def multiple(self, operation: Operation, x: Facts, factor: int) -> Facts:
        """Return the facts of x times a constant."""
        return self.opaque(operation, (x,))

    def product(self, operation: Binary, a: Facts, b: Facts) -> Facts:
        return self.opaque(operation, (a, b))

    def shift(self, operation: Binary, x: Facts, amount: Facts) -> Facts:
        """Return the facts of x times an unknown power of two."""
        return self.opaque(operation, (x, amount))

    def quotient(self, operation: Binary, a: Facts, b: Facts) -> Facts:
        return self.opaque(operation, (a, b))

    def remainder(self, operation: Binary, a: Facts, b: Facts) -> Facts:
        return self.opaque(operation, (a, b))

    def extreme(self, operation: Extremum, a: Facts, b: Facts) -> Facts:
        """Return the facts of the minimum or maximum of a and b."""
        return self.opaque(operation, (a, b))

    def choice(self, operation: Select, condition: Facts, a: Facts, b: Facts) -> Facts:
        return self.opaque(operation, (condition, a, b))

    def cast(self, operation: Cast, x: Facts) -> Facts:
        return self.opaque(operation, (x,))

    def bitcast(self, operation: Bitcast, x: Facts) -> Facts:
        return self.opaque(operation, (x,))

    def moved(self, operation: Moved, x: Facts) -> Facts:
        """Return the facts of a tile whose elements are those of x, moved or repeated."""
        return self.opaque(operation, (x,))

    def hinted(self, operation: Hint, x: Facts) -> Facts:
        """Return the facts of x with a hint."""
        return self.opaque(operation, (x,))


def _shift_left(domain: Domain[Facts], operation: Binary, facts: Sequence[Facts]) -> Facts:
    amount = constant_of(operation.b)
    if isinstance(amount, int) and 0 <= amount < 63:
        return domain.multiple(operation, facts[0], 1 << amount)
    return domain.shift(operation, *facts)


#: Operations whose result consists of the elements of their only operand. A split has two results,
#: with half of the elements each.
MOVES: Final = frozenset(spec.name for spec in TABLE if spec.moves) - {"split"}

TRANSFER: Final[Mapping[str, Rule]] = {
    "constant": lambda domain, operation, facts: domain.constant(operation),
    "arange": lambda domain, operation, facts: domain.arange(operation),
    **dict.fromkeys(
        ("program_id", "num_programs"), lambda domain, operation, facts: domain.grid(operation)
    ),
    **dict.fromkeys(
        ("add", "addptr"), lambda domain, operation, facts: domain.sum(operation, *facts, 1)
    ),
    "sub": lambda domain, operation, facts: domain.sum(operation, *facts, -1),
    "neg": lambda domain, operation, facts: domain.multiple(operation, *facts, -1),
    "mul": lambda domain, operation, facts: domain.product(operation, *facts),
    "shl": _shift_left,
    "div": lambda domain, operation, facts: domain.quotient(operation, *facts),
    "rem": lambda domain, operation, facts: domain.remainder(operation, *facts),
    **dict.fromkeys(
        ("min", "max"), lambda domain, operation, facts: domain.extreme(operation, *facts)
    ),
    "select": lambda domain, operation, facts: domain.choice(operation, *facts),
    "cast": lambda domain, operation, facts: domain.cast(operation, *facts),
    "bitcast": lambda domain, operation, facts: domain.bitcast(operation, *facts),
    **dict.fromkeys(MOVES, lambda domain, operation, facts: domain.moved(operation, *facts)),
    "hint": lambda domain, operation, facts: domain.hinted(operation, *facts),
}
Domain.rules = TRANSFER


def unit_reshape(before: Sequence[int], after: Sequence[int]) -> dict[int, int] | None:
    """Map the axes of extent above one through a reshape that only adds or drops unit axes.

    None for any other reshape.
    """
    old, new = (
        [axis for axis, extent in enumerate(shape) if extent > 1] for shape in (before, after)
    )
    return (
        dict(zip(old, new, strict=True))
        if [before[axis] for axis in old] == [after[axis] for axis in new]
        else None
    )


def moved_axes(operation: Operation, *, in_order: bool = False) -> Callable[[int], int] | None:
    """Map the axes of extent above one from an operation's operand to its result.

    None if the operation does not preserve them. With ``in_order``, a reshape that may reorder
    elements counts as one that does not.
    """
    if isinstance(operation, Splat | Unsplat | Broadcast | Hint):
        return lambda axis: axis
    if isinstance(operation, ExpandDims):
        new = operation.axis
        return lambda axis: axis + (axis >= new)
    if isinstance(operation, Permute):
        order = operation.order
        return lambda axis: order.index(axis)
    if isinstance(operation, Reshape) and (in_order or not operation.reorder):
        kept = unit_reshape(shape_of(operation.x.type), shape_of(operation.result.type))
        return kept.__getitem__ if kept is not None else None
    return None


__all__ = ["MOVES", "TRANSFER", "Domain", "Rule", "moved_axes", "unit_reshape"]
