"""Coordinates of the blocks that descriptors access: when no two accesses meet at one element.

A block covers coordinates along each axis of the tensor, which are offsets plus places in the
block. Where the variables of each axis are the digits of a number, different variables are
different coordinates; and these are different elements where the strides say that the tensor's
elements do not overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from tilewright.derivatives.analysis.address_digits import (
    AddressDigits,
    DigitAddress,
    NotDigitsError,
    ScalarCondition,
)
from tilewright.derivatives.analysis.addresses import is_argument
from tilewright.ir.core import Value
from tilewright.ir.ops.memory import DescriptorBlocks, MakeDescriptor
from tilewright.ir.types import DescriptorType

#: Names of the launch's numbers that are those of a descriptor's tensor.
EXTENT, STRIDE = "{}.shape({})", "{}.stride({})"


@dataclass(frozen=True)
class BlockCoordinates:
    """The coordinates of an access.

    Attributes:
        axes: the numbers along each axis of the tensor.
        apart: the conditions under which no two coordinates are one element.
        descriptor: the tensor that they are of.
    """

    axes: tuple[DigitAddress, ...]
    apart: tuple[ScalarCondition, ...]
    descriptor: Value

    @property
    def programs(self) -> set[int]:
        """The axes of the grid on which the coordinates depend."""
        return {axis for address in self.axes for axis, _ in address.programs}

    @property
    def variables(self) -> set[object]:
        return {variable for address in self.axes for variable in address.variables}


def block_coordinates(digits: AddressDigits, access: DescriptorBlocks) -> BlockCoordinates:
    """Return the coordinates of an access.

    Raises:
        NotDigitsError: they are no sums of variables, or the tensor is another one in each program.
    """
    type_ = access.descriptor.type
    assert isinstance(type_, DescriptorType)
    axes = tuple(
        digits.of_offset(offset, axis, extent)
        for axis, (offset, extent) in enumerate(zip(access.offsets, type_.block_shape, strict=True))
    )
    return BlockCoordinates(axes, _apart(digits, access.descriptor), access.descriptor)


def _apart(digits: AddressDigits, descriptor: Value) -> tuple[ScalarCondition, ...]:
    made = descriptor.definition
    if isinstance(made, MakeDescriptor):
        if not is_argument(made.base):
            raise NotDigitsError("its descriptor may begin elsewhere in each program")
        return digits.row_major(made.shape, made.strides)
    if not is_argument(descriptor):
        raise NotDigitsError("its descriptor is chosen in the kernel")
    assert isinstance(descriptor.type, DescriptorType)
    rank, name = len(descriptor.type.block_shape), descriptor.name
    conditions = [_at_least(((1, (STRIDE.format(name, rank - 1),)), (-1, ())))]
    for outer, inner in pairwise(range(rank)):
        below = EXTENT.format(name, inner), STRIDE.format(name, inner)
        conditions.append(_at_least(((1, (STRIDE.format(name, outer),)), (-1, below))))
    return tuple(conditions)


def _at_least(terms: tuple[tuple[int, tuple[str, ...]], ...]) -> ScalarCondition:
    (_, high), (_, low) = terms
    return ScalarCondition(terms, f"{' * '.join(high)} >= {' * '.join(low) or '1'}")


def alternatives(
    digits: AddressDigits, found: Sequence[BlockCoordinates]
) -> list[tuple[ScalarCondition, ...]]:
    """Return the conditions under which no two programs access one element."""
    first = found[0]
    if any(block.descriptor is not first.descriptor for block in found):
        return []
    by_axis = [
        digits.alternatives([block.axes[axis] for block in found])
        for axis in range(len(first.axes))
    ]
    return [
        tuple(dict.fromkeys((*first.apart, *(one for part in parts for one in part))))
        for parts in product(*by_axis)
    ]
