"""Recognition of loads at affine pointers as loads of blocks of a tensor.

The result is the tensor and the block's offsets in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tilewright.errors import TilewrightError
from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.memory import Load
from tilewright.ir.types import IntType, PointerType, TileType, byte_size
from tilewright.passes.analysis.affine import Affine
from tilewright.passes.analysis.affine_forms import CoordinateBound, Form, Wrapped
from tilewright.passes.analysis.polynomials import Polynomial, total
from tilewright.simt.analysis.access_causes import strides_text
from tilewright.simt.analysis.live_rows import observed

#: Extent of an unbounded axis.
_UNBOUNDED: Final = (1 << 31) - 1
_ONE: Final = Polynomial.number(1)


class NotRaisedError(TilewrightError):
    """Reason why a load is not a load of a block of a tensor that is known at launch."""


@dataclass(slots=True)
class Axis:
    """Axis of the tensor.

    Attributes:
        block: extent of the block.
        step: stride, in elements.
        source: the axis of the tile; None for an axis that the tile lacks.
        start: the offset of the block.
        extents: candidates for the tensor's extent, of which the minimum counts; empty if
            unbounded.
        nonnegative: whether block offsets are assumed to be nonnegative
            (:mod:`tilewright.passes.analysis.affine`).
        cut: whether the mask excludes elements before 0.
    """

    block: int
    step: Polynomial
    source: int | None = None
    start: Polynomial = field(default_factory=Polynomial)
    extents: list[Polynomial] = field(default_factory=list)
    nonnegative: bool = False
    cut: bool = False

    def ends(self) -> list[Polynomial]:
        """Candidates for the tensor's extent, of which the minimum counts.

        An unbounded axis ends where the blocks do.
        """
        place = self.start.constant
        return self.extents or [
            Polynomial.number(_UNBOUNDED if place is None else place + self.block)
        ]

    def begins_inside(self, affine: Affine) -> bool:
        """Return whether block offsets are nonnegative."""
        return self.nonnegative or affine.is_nonnegative(self.start)


@dataclass(slots=True)
class AccessedTensor:
    """Tensor whose block a load reads: base pointer argument and axes, the contiguous axis last."""

    base: Value
    axes: list[Axis]


def is_on_host(polynomial: Polynomial, affine: Affine) -> bool:
    """Return whether a polynomial depends on launch arguments only."""
    for number in polynomial.unknowns():
        atom = affine.atom(number)
        if atom.kind == "value":
            (value,) = atom.of
            if value.owner is not affine.function.body or not isinstance(value.type, IntType):
                return False
        elif atom.kind not in ("div", "min", "max") or not all(
            is_on_host(part, affine) for part in atom.of
        ):
            return False
    return True


def tensor_of(load: Load, affine: Affine) -> AccessedTensor:
    """Return the tensor whose block a load reads.

    Raises:
        NotRaisedError: there is no such tensor, or that cannot be proved; the message says why.
    """
    pointer, mask = load.pointer, load.mask
    assert isinstance(pointer.type, TileType)
    form = affine.form(pointer)
    if form is None or form.base is None:
        raise NotRaisedError(
            "its addresses are not known to be sums of multiples of its coordinates"
        )
    if form.base.owner is not affine.function.body:
        raise NotRaisedError("its addresses do not begin at an argument of the kernel")
    axes = _tile_axes(form, pointer.type.shape, affine)
    conditions = _bound(axes, mask, affine)
    _clear_wrapped(load, form, axes, affine)
    whole = form.start.plus(
        total(step.times(key.start) for key, step in form.steps if isinstance(key, Wrapped))
    )
    rest = whole.minus(total(axis.step.times(axis.start) for axis in axes))
    _place(rest, axes, affine)
    for condition in conditions:
        _switch(condition, axes, affine)
    for axis in axes:
        _check(axis, affine)
    inner = next(axis for axis in axes if axis.step == _ONE)
    return AccessedTensor(form.base, [axis for axis in axes if axis is not inner] + [inner])


def _tile_axes(form: Form, shape: tuple[int, ...], affine: Affine) -> list[Axis]:
    """Return the tile's axes of extent above one, with the offsets known from modular indices."""
    axes = []
    for number, extent in enumerate(shape):
        if extent == 1:
            continue
        keys = [
            (key, step)
            for key, step in form.steps
            if (key.axis if isinstance(key, Wrapped) else key) == number
        ]
        if len(keys) != 1:
            raise NotRaisedError(
                f"along axis {number} all addresses are the same"
                if not keys
                else f"along axis {number} only some coordinates wrap around"
            )
        ((key, step),) = keys
        if not is_on_host(step, affine):
            raise NotRaisedError(f"the stride of axis {number} is not known at launch")
        if step.constant is not None and step.constant < 0:
            raise NotRaisedError(f"along axis {number} it reads backwards")
        axes.append(Axis(extent, step, number))
        if isinstance(key, Wrapped):
            axes[-1].start, axes[-1].extents, axes[-1].nonnegative = (
                key.start,
                [key.extent],
                key.nonnegative,
            )
    if sum(axis.step == _ONE for axis in axes) != 1:
        raise NotRaisedError(
            "along no axis its addresses are known to be "
            f"consecutive{strides_text([axis.step for axis in axes], affine)}"
        )
    return axes


def _bound(axes: list[Axis], mask: Value | None, affine: Affine) -> list[Polynomial]:
    """Set the tensor's bounds from the mask; return the conditions on the whole block.

    Each condition is a polynomial that must be positive.
    """
    found: list[tuple[Axis, CoordinateBound]] = []
    conditions: list[Polynomial] = []
    for bound in affine.mask_bounds(mask) if mask is not None else ():
        if bound is not None and bound.axis is None and bound.upper is not None:
            conditions.append(bound.upper)
            continue
        axis = next(
            (axis for axis in axes if bound is not None and axis.source == bound.axis), None
        )
        if bound is None or axis is None:
            raise _ragged()
        found.append((axis, bound))
    for axis, bound in found:
        if bound.lower is not None:
            if not axis.extents and not axis.cut:
                axis.start = bound.lower.scaled(-1)
            if axis.start.plus(bound.lower).terms:
                raise NotRaisedError(
                    "its mask bounds coordinates from below at several places, or where they "
                    "wrap around"
                )
            axis.cut = True
    for axis, bound in found:
        if bound.upper is not None:
            if not axis.extents and not axis.cut:
                # what changes from program to program is where the block begins
                axis.start = total(
                    piece for piece in bound.upper.pieces() if not is_on_host(piece, affine)
                ).scaled(-1)
            axis.extents.append(axis.start.plus(bound.upper))
    return conditions


def _ragged() -> NotRaisedError:
    return NotRaisedError("its mask is not made of bounds on its coordinates alone")


def _switch(condition: Polynomial, axes: list[Axis], affine: Affine) -> None:
    """Turn a condition on the whole block into a bound of the tensor."""
    if is_on_host(condition, affine):
        axes[0].extents = [*axes[0].ends(), condition.scaled(_UNBOUNDED)]
        return
    for axis in axes:
        if axis.source is None:
            if condition == axis.start.plus(_ONE):
                axis.cut = True
                return
            if is_on_host(extent := axis.start.plus(condition), affine):
                axis.extents.append(extent)
                return
    raise _ragged()


def _clear_wrapped(load: Operation, form: Form, axes: list[Axis], affine: Affine) -> None:
    """Check that elements at wrapped-around coordinates are dead or masked off."""
    for key, _ in form.steps:
        if not isinstance(key, Wrapped):
            continue
        axis = next(axis for axis in axes if axis.source == key.axis)
        if any(extent == key.extent for extent in axis.extents[1:]):
            continue  # its mask is false there
        who = observed(load.result, key.axis, key.extent.minus(key.start), affine)
        if who:
            raise NotRaisedError(
                f"its coordinates wrap around along axis {key.axis}, which {who} may show"
            )


def _place(rest: Polynomial, axes: list[Axis], affine: Affine) -> None:
    """Distribute the remaining terms of the address among the axes, as offsets."""
    # axes with the longest stride first, as far as strides are comparable
    order = sorted(
        axes,
        key=lambda axis: (
            axis.step == _ONE,
            *((-len(monomial), -factor) for monomial, factor in axis.step.terms),
        ),
    )
    for piece in rest.pieces():
        for axis in order:
            distance = piece.divided(axis.step)
            if distance is None:
                continue
            # what changes with the program is a number of steps; arguments times that are steps of
            # their own
            if not is_on_host(distance, affine) and (
                axis.extents or _on_host_part(distance, affine) != _ONE
            ):
                continue
            if axis.cut and not axis.begins_inside(affine):
                continue  # the lower bound at 0 would move to another offset
            axis.start = axis.start.plus(distance)
            axis.extents = [extent.plus(distance) for extent in axis.extents]
            axis.nonnegative = axis.nonnegative and affine.is_nonnegative(distance)
            break
        else:
            _place_beside(piece, axes, affine)


def _on_host_part(piece: Polynomial, affine: Affine) -> Polynomial:
    """Return the product of a term's factors that are known at launch, without its coefficient."""
    ((monomial, _),) = piece.terms
    return Polynomial.of(
        {
            tuple(
                unknown for unknown in monomial if is_on_host(Polynomial.unknown(unknown), affine)
            ): 1
        }
    )


def _place_beside(piece: Polynomial, axes: list[Axis], affine: Affine) -> None:
    """Add a term of the address as the offset along an axis that the tile lacks."""
    ((_, factor),) = piece.terms
    step = _on_host_part(piece, affine).scaled(factor)
    if is_on_host(piece, affine) or factor < 0:
        raise NotRaisedError(
            "its addresses begin at a distance from the argument that is along none of its axes"
        )
    beside = next(
        (
            axis
            for axis in axes
            if axis.source is None and piece.divided(axis.step) is not None and not axis.extents
        ),
        None,
    )
    if beside is None:
        axes.insert(0, beside := Axis(1, step))
    distance = piece.divided(beside.step)
    assert distance is not None
    beside.start = beside.start.plus(distance)


def _check(axis: Axis, affine: Affine) -> None:
    where = _named(axis)
    if not all(is_on_host(extent, affine) for extent in axis.extents):
        raise NotRaisedError(f"where it ends along {where} is not known at launch")
    if not axis.cut and not axis.begins_inside(affine):
        raise NotRaisedError(
            f"it may begin before the tensor along {where}: its mask has no lower bound, and the "
            "place is not known not to be negative (tl.assume)"
        )


@dataclass(frozen=True, slots=True)
class Alignment:
    """Known divisor of an address, stride or offset of a tensor.

    Attributes:
        what: description of the number.
        divisor: a power of two that is known to divide the number, in bytes.
        number: the number, in elements of ``size`` bytes; None for the address.
    """

    what: str
    divisor: int
    number: Polynomial | None = None
    size: int = 1


def alignments(tensor: AccessedTensor, affine: Affine) -> list[Alignment]:
    """Return the alignments of a tensor's address, outer strides and inner block offset."""
    assert isinstance(tensor.base.type, PointerType)
    size = byte_size(tensor.base.type.pointee)
    *outer, inner = tensor.axes
    numbers = [(f"the stride of {_named(axis)}", axis.step) for axis in outer]
    numbers.append((f"the place along {_named(inner)} where blocks begin", inner.start))
    address = Alignment(
        f"the address `{tensor.base.name}`", affine.known[tensor.base].divisibility_of_all()
    )
    return [
        address,
        *(Alignment(what, size * affine.divisor(number), number, size) for what, number in numbers),
    ]


def _named(axis: Axis) -> str:
    return f"axis {axis.source}" if axis.source is not None else "an axis that the tile has not"


__all__ = [
    "AccessedTensor",
    "Alignment",
    "Axis",
    "NotRaisedError",
    "alignments",
    "is_on_host",
    "tensor_of",
]
