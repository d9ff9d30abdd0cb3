"""Uniform factors of what a loop's matmuls accumulate, pulled out of the loop.

The adjoint of ``dot(a, b) * scale`` multiplies each element of a cotangent by the scale before the
matmul that sums it up::

    for ...:  acc = dot(cast(x * scale), b, acc)

    for ...:  acc = dot(cast(x), b, acc)
    acc = acc * scale
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.builder import Builder
from tilewright.ir.core import Module, Operation, Value
from tilewright.ir.ops.arithmetic import Cast, Select
from tilewright.ir.ops.control import For
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape, Splat
from tilewright.ir.types import F32, FloatType, Type, element_type
from tilewright.passes.rewriter import constant_of

#: Says of a scalar whether values of a narrow type may lack it as a factor.
Allows = Callable[[Value, FloatType], bool]


def pull_out_factors(module: Module, allows: Allows) -> bool:
    """Pull uniform factors out of the sums of loops.

    Args:
        allows: decides about factors of values that are cast to floats of fewer exponent bits than
            f32 has, which may then overflow or underflow.

    Returns:
        whether there was one.
    """
    changed = False
    for operation in list(module.kernel.walk()):
        if isinstance(operation, For):
            for place in range(len(operation.results)):
                changed |= _pull_out_of(operation, place, allows)
    return changed


def _pull_out_of(loop: For, place: int, allows: Allows) -> bool:
    total, carried = loop.results[place], loop.body.arguments[1 + place]
    last = loop.body.last
    assert last is not None
    dot = last.operands[place].definition
    if (
        not isinstance(dot, Dot)
        or dot.c is not carried
        or dot.parent is not loop.body
        or not _is_own(carried)
        or not _is_own(dot.result)
        or constant_of(loop.group("inits")[place]) != 0.0
    ):
        return False
    found = _Factors(loop, element_type(total.type), allows)
    for operand in (dot.a, dot.b):
        found.take_from(operand)
    if not found.scalars:
        return False
    b = Builder(loop.parent, loop.next, loop.location)
    factor, *rest = found.scalars
    for other in rest:
        factor = b.mul(factor, other)
    readers = list(total.uses)
    scaled = b.mul(total, b.splat(factor, result=total.type))
    for reader in readers:
        for position, operand in enumerate(reader.operands):
            if operand is total:
                reader.set_operand(position, scaled)
    return True


class _Factors:
    """Factors that are taken out of the operands of a loop's matmul.

    Attributes:
        scalars: the factors, all outside of the loop.
    """

    def __init__(self, loop: For, type_: Type, allows: Allows) -> None:
        self._loop, self._type, self._allows = loop, type_, allows
        self.scalars: list[Value] = []

    def take_from(self, value: Value, narrow: FloatType | None = None) -> None:
        """Take the factors out of a value.

        Args:
            narrow: the type with the fewest exponent bits to which it is cast.
        """
        operation = value.definition
        if operation is None or not _is_own(value) or not self._is_inside(operation):
            return
        if isinstance(operation, Cast):
            narrow = _narrower(narrow, element_type(value.type))
            if isinstance(element_type(operation.x.type), FloatType):
                self.take_from(operation.x, narrow)
        elif isinstance(operation, Select):
            if constant_of(operation.b) == 0.0:
                self.take_from(operation.a, narrow)
        elif operation.name == "neg" or isinstance(operation, _SHAPES):
            self.take_from(operation.operands[0], narrow)
        elif operation.name == "mul":
            self._take_from_product(operation, narrow)

    def _take_from_product(self, product: Operation, narrow: FloatType | None) -> None:
        a, b = product.operands
        for factor, rest in ((a, b), (b, a)):
            scalar = self._uniform(factor)
            if scalar is not None and (narrow is None or self._allows(scalar, narrow)):
                self.scalars.append(scalar)
                product.result.replace_all_uses(rest)
                product.erase()
                self.take_from(rest, narrow)
                return
        for operand in (a, b):
            self.take_from(operand, narrow)

    def _uniform(self, value: Value) -> Value | None:
        """Return the scalar outside of the loop that all elements of a tile are."""
        splat = value.definition
        if not isinstance(splat, Splat) or splat.x.type is not self._type:
            return None
        made = splat.x.definition
        is_outside = made is None or not self._is_inside(made)
        return splat.x if is_outside and not self._is_argument(splat.x) else None

    def _is_argument(self, value: Value) -> bool:
        """Return whether a value is an argument of the loop's body, or of a region in it."""
        region = value.owner
        return not isinstance(region, Operation) and (
            region is self._loop.body
            or (isinstance(region.owner, Operation) and self._is_inside(region.owner))
        )

    def _is_inside(self, operation: Operation) -> bool:
        return self._loop in operation.ancestors()


#: Operations that move elements.
_SHAPES = Permute | Broadcast | ExpandDims | Reshape


def _narrower(known: FloatType | None, found: Type) -> FloatType | None:
    if not isinstance(found, FloatType) or found.exponent >= F32.exponent:
        return known
    return found if known is None or found.exponent < known.exponent else known


def _is_own(value: Value) -> bool:
    return sum(value.uses.values()) == 1


__all__ = ["Allows", "pull_out_factors"]
