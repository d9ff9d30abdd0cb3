"""Promotion of pointer loads in matmul loops to TMA loads.

    %x = load %pointers, mask=%inside, other=%zeros

becomes, if the pointers are those of a block of a tensor whose address, extents and strides are
known at launch (:mod:`tilewright.simt.analysis.tensor_accesses`),

    %t = simt.tensor %a, [%M, %K], [%stride, %one]          (at the function's entry)
    %x = descriptor_load %t, %row, %k

as if the kernel had a descriptor argument. The pass hoists device-side descriptors of launch-time
values in the same way. The requirements of the target's copies must be known to hold:
:meth:`.SimtTarget.reaches`. The pass promotes all profitable loads of a loop or none, because
copies with different completion mechanisms cannot be combined. A remark at the loop says why loads
are not promoted. Small loads beside them, such as of scales, then arrive with the same mbarrier
where they can be promoted, too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tilewright.ir.builder import Builder
from tilewright.ir.core import Module, Operation, Region, Value
from tilewright.ir.ops.control import LOOPS, For
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.memory import Load, MakeDescriptor
from tilewright.ir.types import (
    I32,
    I64,
    DescriptorType,
    IntType,
    PointerType,
    TileType,
    Type,
)
from tilewright.llvm.emission.registers import storage_size
from tilewright.passes.analysis.affine import Affine
from tilewright.passes.analysis.polynomials import Polynomial
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import cse
from tilewright.passes.dce import dce
from tilewright.passes.licm import licm
from tilewright.simt.analysis.access_causes import ARGUMENTS_REMEDY, Sources, of_polynomial
from tilewright.simt.analysis.alias import writer_in, written_arguments
from tilewright.simt.analysis.pipelined_loads import feeding_matmuls, is_copyable
from tilewright.simt.analysis.pipelined_loops import stages_of
from tilewright.simt.analysis.tensor_accesses import (
    AccessedTensor,
    NotRaisedError,
    alignments,
    is_on_host,
    tensor_of,
)
from tilewright.simt.dialect.attributes import WHOLE, function_of, note
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.passes.tma.varying_extents import (
    is_hoistable,
    varying_extents,
    write_varying_extent,
)
from tilewright.simt.passes.warp_count import warps_asked
from tilewright.simt.target.matmul_plan import matmul_of
from tilewright.simt.target.simt_target import SimtTarget, required

_DOT: Final = (Dot,)
#: Alignments of addresses and strides that copies may require, in bytes.
_ALIGNMENTS: Final = (2, 4, 8, 16, 32, 64, 128)


def raise_loads(module: Module, target: SimtTarget, options: Mapping[str, Any]) -> None:
    """Promote the profitable loads of a kernel, and its descriptors of arguments alone."""
    (function,) = module.functions.values()
    loops = [
        loop for loop in function.walk() if isinstance(loop, For) and _pays(loop, target, options)
    ]
    makes = any(isinstance(operation, MakeDescriptor) for operation in function.walk())
    if not loops and not makes:
        return
    made = [operation for operation in function.body if isinstance(operation, MakeDescriptor)]
    affine = Affine(function)
    written = written_arguments(function)
    raised: list[tuple[Load, AccessedTensor]] = []
    for loop in loops:
        raised += _raised_in(loop, target, affine, written)
    changed = [loop for loop in loops if any(load.parent is loop.body for load, _ in raised)]
    raised += _raised_around(changed, target, affine, written)
    writer = _Writer(affine)
    for load, tensor in raised:
        writer.write(load, tensor)
    known = [one for one in made if _is_known_at_launch(one, affine)]
    for one in known:
        writer.write_made(one)
    varying = varying_extents(function, affine)
    for one, axis in varying.items():
        writer.write_varying(one, axis)
    if raised or known or varying:
        for pass_ in (dce, canonicalize, cse, licm):
            pass_(module)


def _is_known_at_launch(made: MakeDescriptor, affine: Affine) -> bool:
    """Return whether a device-side descriptor can be hoisted to the host.

    Its numbers must be known at launch, its base an argument, and its padding zero.
    """
    numbers = [affine.number(value) for value in (*made.shape, *made.strides)]
    return is_hoistable(made, affine) and all(is_on_host(number, affine) for number in numbers)


def _pays(loop: For, target: SimtTarget, options: Mapping[str, Any]) -> bool:
    """Return whether a loop is pipelined and has matmuls for which the target wants TMA loads."""
    if stages_of(loop, options) < 2:
        return False
    body, tma = loop.body, target.tma
    if (
        tma is None
        or any(isinstance(inner, LOOPS) for inner in body.walk())
        or writer_in(body, ()) is not None
    ):
        return False
    return any(
        isinstance(inner, Dot)
        and tma.promotes(matmul_of(inner, warps_asked(function_of(loop), options)))
        for inner in body
    )


def _bytes(load: Operation) -> int:
    type_ = load.results[0].type
    return type_.numel * storage_size(type_.element) if isinstance(type_, TileType) else 0


def _raised_in(
    loop: For, target: SimtTarget, affine: Affine, written: frozenset[Value] | None
) -> list[tuple[Load, AccessedTensor]]:
    """The loads of a loop that are raised: all large ones that feed matmuls or none, and then each
    of the others that can be."""
    feeding = feeding_matmuls(loop.body, _DOT)
    if 2 * sum(map(_bytes, feeding)) > target.resources.shared_memory:
        return []
    most = max(map(_bytes, feeding), default=0)
    found: list[tuple[Load, AccessedTensor]] = []
    ratio = target.costs.thresholds.promoted_ratio
    large = [load for load in feeding if _bytes(load) * ratio >= most]
    for load in large:
        if not isinstance(load, Load):
            continue
        try:
            found.append((load, _raised(load, target, affine, written)))
        except NotRaisedError as why:
            note(loop, f"loads are not raised to TMA copies, for that at {load.location}: {why}")
            return []
    if not large:
        return []
    for beside in loop.body:
        if (
            isinstance(beside, Load)
            and beside not in large
            and isinstance(beside.result.type, TileType)
            and _bytes(beside) * ratio <= sum(map(_bytes, feeding))
        ):
            with contextlib.suppress(NotRaisedError):
                tensor = _raised(beside, target, affine, written)
                if all(_is_separable(axis.start, affine) for axis in tensor.axes):
                    found.append((beside, tensor))
    return found


def _is_separable(place: Polynomial, affine: Affine) -> bool:
    """Return whether a producer warp can compute a block's offset: from arguments, the program's
    number and loop counters."""
    for number in place.unknowns():
        atom = affine.atom(number)
        if atom.kind == "value":
            (value,) = atom.of
            if value.owner is not affine.function.body:
                return False
        elif any(
            isinstance(part, Polynomial) and not _is_separable(part, affine) for part in atom.of
        ):
            return False
    return True


def _raised_around(
    loops: Sequence[For], target: SimtTarget, affine: Affine, written: frozenset[Value] | None
) -> list[tuple[Load, AccessedTensor]]:
    """The loads in loops around some, from which operands of their matmuls are computed.

    A producer warp can issue them for the next iteration of the loop around.
    """
    found: dict[Load, AccessedTensor] = {}
    for loop in loops:
        for outer in loop.ancestors():
            if not isinstance(outer, For):
                continue
            for load in feeding_matmuls(loop.body, _DOT, outer.body):
                if isinstance(load, Load) and load not in found:
                    try:
                        found[load] = _raised(load, target, affine, written)
                    except NotRaisedError as why:
                        note(outer, f"{load.name} at {load.location} is no TMA copy: {why}")
    return list(found.items())


def _raised(
    load: Load, target: SimtTarget, affine: Affine, written: frozenset[Value] | None
) -> AccessedTensor:
    if not is_copyable(load):
        raise NotRaisedError(
            "it is volatile, or yields something else than zero where its mask is false"
        )
    tensor = tensor_of(load, affine)
    if written is None or tensor.base in written:
        raise NotRaisedError(
            "the kernel, or one that it waits for, may write to the tensor, which TMA copies "
            "do not see"
        )
    block, known = _descriptor(tensor), alignments(tensor, affine)
    if block is None:
        raise NotRaisedError(f"its tensor would have {len(tensor.axes)} axes")
    minimum = min(known, key=lambda each: each.divisor)
    tma = required(target.tma, target, "TMA")
    if not tma.reaches(block, minimum.divisor):
        need = next((need for need in _ALIGNMENTS if tma.reaches(block, need)), 0)
        if not need:
            raise NotRaisedError(f"{target.name} copies no block of {block}")
        cause = (
            Sources()
            if minimum.number is None
            else of_polynomial(minimum.number, affine, need // minimum.size)
        )
        remedy = cause.remedy or (ARGUMENTS_REMEDY if minimum.number is None else "")
        why = (
            f"{minimum.what} is not known to be a multiple of {need} "
            f"bytes{f': {cause}' if cause else ''}{remedy}"
        )
        raise NotRaisedError(f"{target.name} copies no block of {block}: {why}")
    return tensor


def _descriptor(tensor: AccessedTensor) -> DescriptorType | None:
    assert isinstance(tensor.base.type, PointerType)
    return (
        DescriptorType(tuple(axis.block for axis in tensor.axes), tensor.base.type.pointee)
        if len(tensor.axes) <= 5
        else None
    )


# ---- writing


class _Writer:
    """Writes tensors at the function's entry, and loads of their blocks."""

    def __init__(self, affine: Affine) -> None:
        self.affine = affine
        body = affine.function.body
        self.entry = body.first

    def write(self, load: Load, tensor: AccessedTensor) -> None:
        type_ = _descriptor(tensor)
        assert type_ is not None and self.entry is not None
        head = Builder(self.affine.function.body, self.entry, load.location)
        extents = []
        for axis in tensor.axes:
            ends = [self._emit(head, extent, I64) for extent in axis.ends()]
            while len(ends) > 1:
                ends.append(head.min(ends.pop(0), ends.pop(0)))
            extents += ends
        strides = [self._emit(head, axis.step, I64) for axis in tensor.axes]
        descriptor = head.create(
            SIMT_TABLE["simt.tensor"], [[tensor.base], extents, strides], {}, (type_,)
        ).results[0]
        b = Builder.at(load)
        offsets = [self._emit(b, axis.start, I32) for axis in tensor.axes]
        block = b.descriptor_load(descriptor, offsets)
        if WHOLE in load.attributes:
            block.definition.attributes[WHOLE] = True
        tile = self._seen(b, block, tensor, load.result.type)
        tile.name = load.result.name
        load.result.replace_all_uses(tile)
        load.erase()

    def write_made(self, made: MakeDescriptor) -> None:
        """A descriptor that the kernel makes, as one of the launch's."""
        assert self.entry is not None
        head = Builder(self.affine.function.body, self.entry, made.location)
        groups = [
            [self._emit(head, self.affine.number(value), I64) for value in values]
            for values in (made.shape, made.strides)
        ]
        tensor = head.create(
            SIMT_TABLE["simt.tensor"], [[made.base], *groups], {}, (made.result.type,)
        ).results[0]
        tensor.name = made.result.name
        made.result.replace_all_uses(tensor)
        if self.entry is made:
            self.entry = made.next
        made.erase()

    def write_varying(self, made: MakeDescriptor, axis: int) -> None:
        """A descriptor that the kernel makes for each extent, as one of the launch's."""
        if self.entry is made:
            self.entry = made.next
        assert self.entry is not None
        head = Builder(self.affine.function.body, self.entry, made.location)
        write_varying_extent(made, axis, self.affine, head, self._emit)

    def _seen(self, b: Builder, block: Value, tensor: AccessedTensor, type_: Type) -> Value:
        """A block with the axes of the tile."""
        assert isinstance(type_, TileType)
        axes = [axis for axis in tensor.axes if axis.source is not None]
        sources = [axis.source for axis in axes if axis.source is not None]
        block = _reshaped(b, block, tuple(axis.block for axis in axes))
        if sources != sorted(sources):
            block = b.permute(
                block, order=tuple(sources.index(source) for source in sorted(sources))
            )
        return _reshaped(b, block, type_.shape)

    def _emit(self, b: Builder, polynomial: Polynomial, type_: IntType) -> Value:
        """A polynomial as a scalar."""
        polynomial = self._by_counters(polynomial)
        there = self._there(b, polynomial, type_) if polynomial.constant is None else None
        if there is not None:
            return there
        value: Value | None = None
        for monomial, factor in polynomial.terms:
            term: Value | None = None
            for number in monomial:
                unknown = self._unknown(b, number, type_)
                term = unknown if term is None else b.mul(term, unknown)
            if term is None or factor != 1:
                constant = b.constant(value=factor, result=type_)
                term = constant if term is None else b.mul(term, constant)
            value = term if value is None else b.add(value, term)
        return value if value is not None else b.constant(value=0, result=type_)

    def _by_counters(self, polynomial: Polynomial) -> Polynomial:
        """Iterations by the counters of their loops, where those count in constant steps that
        divide what depends on them."""
        for number in sorted(polynomial.unknowns()):
            atom = self.affine.atom(number)
            if atom.kind != "iteration":
                continue
            loop: For = atom.of[0]
            step = self.affine.number(loop.step).constant
            ours = Polynomial(tuple(term for term in polynomial.terms if number in term[0]))
            if not step or any(
                monomial.count(number) != 1 or factor % step for monomial, factor in ours.terms
            ):
                continue
            counter = self.affine.unknown(
                "counter", loop.body.arguments[0], value=loop.body.arguments[0]
            )
            counted = counter.minus(self.affine.number(loop.lower))
            for piece in ours.pieces():
                rest = piece.divided(Polynomial.unknown(number).scaled(step))
                assert rest is not None
                polynomial = polynomial.minus(piece).plus(rest.times(counted))
        return polynomial

    def _there(self, b: Builder, polynomial: Polynomial, type_: IntType) -> Value | None:
        """A scalar that is a polynomial already."""
        assert b.before is not None
        there = next(
            (value for value in self.affine.scalars(polynomial) if _is_seen(value, b.before)), None
        )
        return there if there is None or there.type is type_ else b.cast(there, result=type_)

    def _unknown(self, b: Builder, number: int, type_: IntType) -> Value:
        atom = self.affine.atom(number)
        there = self._there(b, Polynomial.unknown(number), type_)
        if there is not None:
            return there
        if atom.kind == "iteration":
            loop: For = atom.of[0]
            lower, step = (
                self._emit(b, self.affine.number(operand), type_)
                for operand in (loop.lower, loop.step)
            )
            counter = loop.body.arguments[0]
            counter = counter if counter.type is type_ else b.cast(counter, result=type_)
            turns: Value = b.div(b.sub(counter, lower), step)
            return turns
        if atom.kind in ("program_id", "num_programs"):
            value: Value = getattr(b, atom.kind)(axis=atom.of[0])
            return value if value.type is type_ else b.cast(value, result=type_)
        found: Value = getattr(b, atom.kind)(*(self._emit(b, part, type_) for part in atom.of))
        return found


def _reshaped(b: Builder, value: Value, shape: Sequence[int]) -> Value:
    assert isinstance(value.type, TileType)
    return (
        value
        if value.type.shape == tuple(shape)
        else b.reshape(value, result=TileType(tuple(shape), value.type.element))
    )


def _is_seen(value: Value, place: Operation) -> bool:
    """Return whether a value is known at an operation."""
    if isinstance(value.owner, Region):
        return value.owner in _regions(place)
    for inner in (place, *place.ancestors()):
        if inner.parent is value.owner.parent:
            return value.owner is not inner and _comes_before(value.owner, inner)
    return False


def _regions(place: Operation) -> Iterator[Region]:
    for inner in (place, *place.ancestors()):
        assert inner.parent is not None
        yield inner.parent


def _comes_before(first: Operation, second: Operation) -> bool:
    operation: Operation | None = first
    while operation is not None and operation is not second:
        operation = operation.next
    return operation is not None
