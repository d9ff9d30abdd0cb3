"""Tensor descriptors as plain values: a base address, extents and strides; their loads and stores
as pointers under masks.

What a load yields outside the tensor is known when a kernel is compiled, but where descriptors of
different padding meet (:mod:`tilewright.passes.descriptor_padding`): these have one value more, an
i1 that tells whether they pad with NaN.

Each axis has its coordinates and the test that they are in the tensor as tiles of rank 1, which are
broadcast late, so that what depends on one axis is computed once along it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Select
from tilewright.ir.ops.control import Condition, For, If, While
from tilewright.ir.ops.memory import (
    DescriptorBlocks,
    DescriptorExtent,
    DescriptorReduce,
    DescriptorRows,
    DescriptorScatter,
    DescriptorStore,
    DescriptorStride,
    MakeDescriptor,
)
from tilewright.ir.types import (
    I1,
    I64,
    DescriptorType,
    FloatType,
    PointerType,
    TileType,
    Type,
    byte_size,
    element_type,
)
from tilewright.passes.descriptor_padding import mixed_paddings

#: ``zero``, ``nan``, or an i1 that tells whether it is NaN
Padding = str | Value


@dataclass(frozen=True, slots=True)
class Parts:
    """A descriptor's values, and what a load yields outside the tensor."""

    base: Value
    shape: tuple[Value, ...]
    strides: tuple[Value, ...]
    padding: Padding

    @property
    def values(self) -> list[Value]:
        """All but the padding."""
        return [self.base, *self.shape, *self.strides]


def has_descriptors(function: Function) -> bool:
    values = (
        value
        for operation in function.walk()
        for value in (
            *operation.results,
            *(a for region in operation.regions for a in region.arguments),
        )
    )
    return any(isinstance(value.type, DescriptorType) for value in (*function.arguments, *values))


class Expansion:
    """The expansion of the descriptors of one kernel, all of them: a target that copies some blocks
    by the descriptor itself derives from this.

    Attributes:
        parts: the values of each descriptor.
        mixed: the descriptors whose padding is known only when the kernel runs.
        given: the descriptors that are the kernel's arguments.
        kept: accesses that stay, and ``made`` the ``make_descriptor`` that do.
    """

    def __init__(self, function: Function) -> None:
        self.function = function
        self.mixed = mixed_paddings(function)
        self.parts: dict[Value, Parts] = {}
        self.given: set[Value] = set()
        self.kept: set[Operation] = set()
        self.made: set[Operation] = set()
        self._dead: list[Operation] = []

    def run(self) -> None:
        given = self._expand_arguments()
        self.choose()
        self._region(self.function.body)
        for operation in reversed(self._dead):
            operation.erase()
        self._drop_arguments(given)

    def choose(self) -> None:
        """Choose what is kept; here nothing."""

    def stored(self, b: Builder, access: Operation) -> None:
        """Called where a store of threads was made of an access, which ``b`` stands behind."""

    # ---- arguments of the kernel

    def _expand_arguments(self) -> list[Value]:
        """Put a descriptor argument's parts behind it; return the descriptors."""
        arguments, attributes = [], []
        entry = Builder(self.function.body, self.function.body.first, self.function.location)
        for argument, known in zip(
            self.function.arguments, self.function.argument_attributes, strict=True
        ):
            arguments.append(argument)
            attributes.append(known)
            if not isinstance(argument.type, DescriptorType):
                continue
            self.given.add(argument)
            parts = self._parts_of(
                argument,
                self._new_arguments(argument, self.function.body),
                known.get("padding", "zero"),
            )
            arguments += parts.values
            # Descriptors that the runtime made, whose divisibility it tells, have aligned rows and
            # a last stride of 1.
            alignment = known.get("divisibility", 1)
            rows = max(1, alignment // byte_size(argument.type.element))
            attributes += [
                {"divisibility": alignment} if alignment > 1 else {},
                *({} for _ in parts.shape[:-1]),
            ]
            # The last extent's, in elements: without it a mask cuts every access to single
            # elements.
            width = known.get("extent_divisibility", 1)
            attributes += [{"divisibility": width} if width > 1 else {}]
            attributes += [
                {"divisibility": rows} if rows > 1 else {} for _ in parts.strides[:-1]
            ] + [{}]
            if alignment > 1:
                parts = Parts(
                    parts.base,
                    parts.shape,
                    (*parts.strides[:-1], entry.constant(value=1, result=I64)),
                    parts.padding,
                )
            self.parts[argument] = parts
        self.function.body.arguments, self.function.argument_attributes = arguments, attributes
        return list(self.given)

    def _drop_arguments(self, descriptors: Sequence[Value]) -> None:
        """Drop the descriptors that nobody reads any more."""
        dropped = {value for value in descriptors if not value.uses}
        pairs = list(zip(self.function.arguments, self.function.argument_attributes, strict=True))
        self.function.body.arguments = [
            argument for argument, _ in pairs if argument not in dropped
        ]
        self.function.argument_attributes = [
            known for argument, known in pairs if argument not in dropped
        ]

    def _new_arguments(self, descriptor: Value, region: Region) -> list[Value]:
        """Values for the parts of a descriptor that is a region's argument, named after it; the
        caller puts them among the arguments."""
        assert isinstance(descriptor.type, DescriptorType)
        rank, types = descriptor.type.rank, self._part_types(descriptor)
        names = [
            "base",
            *(f"extent{i}" for i in range(rank)),
            *(f"stride{i}" for i in range(rank)),
            "pads_nan",
        ]
        return [
            Value(type_, region, f"{descriptor.name}.{name}" if descriptor.name else "")
            for type_, name in zip(types, names, strict=False)
        ]

    def _part_types(self, descriptor: Value) -> list[Type]:
        """The types of the values that a descriptor becomes: base, extents, strides, and where
        :attr:`mixed` has it whether it pads with NaN."""
        type_ = descriptor.type
        assert isinstance(type_, DescriptorType)
        return [
            PointerType(type_.element),
            *[I64] * (2 * type_.rank),
            *([I1] if descriptor in self.mixed else []),
        ]

    def _parts_of(self, descriptor: Value, values: Sequence[Value], padding: Padding) -> Parts:
        """A descriptor's parts from values of their types; ``padding`` is its own where none of
        these tells it."""
        assert isinstance(descriptor.type, DescriptorType)
        rank = descriptor.type.rank
        strides = tuple(values[1 + rank : 1 + 2 * rank])
        return Parts(
            values[0],
            tuple(values[1 : 1 + rank]),
            strides,
            values[-1] if descriptor in self.mixed else padding,
        )

    # ---- operations

    def _region(self, region: Region) -> None:
        for operation in region:
            expand = _EXPANSIONS.get(operation.name)
            if expand is not None:
                if operation not in self.kept:
                    expand(self, operation)
            elif isinstance(operation, For):
                self._for(operation)
            elif isinstance(operation, While):
                self._while(operation)
            elif isinstance(operation, If):
                self._if(operation)
            elif isinstance(operation, Select) and isinstance(
                operation.result.type, DescriptorType
            ):
                self._select(operation)

    def _make(self, operation: MakeDescriptor) -> None:
        self.parts[operation.result] = Parts(
            operation.base, tuple(operation.shape), tuple(operation.strides), operation.padding
        )
        if operation not in self.made:
            self._dead.append(operation)

    def _number(self, operation: DescriptorExtent | DescriptorStride) -> None:
        parts = self.parts[operation.descriptor]
        numbers = parts.shape if isinstance(operation, DescriptorExtent) else parts.strides
        operation.result.replace_all_uses(numbers[operation.axis])
        operation.erase()

    def _access(self, operation: DescriptorBlocks) -> None:
        """A block at offsets."""
        descriptor = operation.descriptor
        assert isinstance(descriptor.type, DescriptorType)
        b, parts = Builder.at(operation), self.parts[descriptor]
        block = descriptor.type.block_shape
        axes = []
        base = parts.base
        for axis, (offset, stride) in enumerate(zip(operation.offsets, parts.strides, strict=True)):
            start = _as_i64(b, offset)
            base = b.addptr(base, b.mul(start, stride))
            inner = _as_i64(b, b.arange(start=0, end=block[axis]))
            axes.append(
                _Axis(
                    b.add(b.splat(start, result=inner.type), inner),
                    b.mul(inner, b.splat(stride, result=inner.type)),
                )
            )
        self._replace(operation, b, _block(b, parts, base, axes, block))

    def _access_rows(self, operation: DescriptorRows) -> None:
        """Rows of a tensor of rank 2, from a column on."""
        descriptor, rows, column = operation.descriptor, operation.rows, operation.column
        assert isinstance(descriptor.type, DescriptorType) and isinstance(rows.type, TileType)
        b, parts = Builder.at(operation), self.parts[descriptor]
        width = descriptor.type.block_shape[1]
        numbers, start, inner = (
            _as_i64(b, rows),
            _as_i64(b, column),
            _as_i64(b, b.arange(start=0, end=width)),
        )
        base = b.addptr(parts.base, b.mul(start, parts.strides[1]))
        axes = [
            _Axis(numbers, b.mul(numbers, b.splat(parts.strides[0], result=numbers.type))),
            _Axis(
                b.add(b.splat(start, result=inner.type), inner),
                b.mul(inner, b.splat(parts.strides[1], result=inner.type)),
            ),
        ]
        self._replace(operation, b, _block(b, parts, base, axes, (rows.type.shape[0], width)))

    def _replace(
        self, operation: DescriptorBlocks | DescriptorRows, b: Builder, block: tuple[Value, Value]
    ) -> None:
        """The access itself, at pointers under a mask."""
        pointers, mask = block
        if isinstance(operation, DescriptorReduce):
            b.atomic_rmw(pointers, operation.value, mask=mask, kind=operation.kind, order="relaxed")
        elif isinstance(operation, DescriptorStore | DescriptorScatter):
            b.store(pointers, operation.value, mask=mask)
            self.stored(b, operation)
        else:
            result = operation.results[0]
            other = _other(b, result.type, self.parts[operation.descriptor].padding)
            result.replace_all_uses(b.load(pointers, mask=mask, other=other))
        operation.erase()

    # ---- control flow

    def _flat(self, b: Builder, values: Sequence[Value], into: Sequence[Value]) -> list[Value]:
        """Values with descriptors replaced by their parts, as the values have them that they
        become."""
        flat: list[Value] = []
        for value, target in zip(values, into, strict=True):
            flat += (
                self._values(b, value, target)
                if isinstance(value.type, DescriptorType)
                else [value]
            )
        return flat

    def _values(self, b: Builder, descriptor: Value, target: Value) -> list[Value]:
        """A descriptor's parts, and its padding as a value where ``target``, which it becomes, has
        one."""
        parts = self.parts[descriptor]
        if target not in self.mixed:
            return parts.values
        padding = parts.padding
        return [
            *parts.values,
            b.constant(value=padding == "nan", result=I1) if isinstance(padding, str) else padding,
        ]

    def _expand_values(
        self, region: Region, values: Sequence[Value], paddings: Sequence[Padding]
    ) -> list[Value]:
        """A region's arguments with new values in place of descriptors."""
        expanded: list[Value] = []
        for value, padding in zip(values, paddings, strict=True):
            if isinstance(value.type, DescriptorType):
                arguments = self._new_arguments(value, region)
                self.parts[value] = self._parts_of(value, arguments, padding)
                expanded += arguments
            else:
                expanded.append(value)
        return expanded

    def _paddings(self, values: Sequence[Value]) -> list[Padding]:
        """The paddings of descriptors; empty for other values."""
        return [
            self.parts[value].padding if isinstance(value.type, DescriptorType) else ""
            for value in values
        ]

    def _rebuild(
        self,
        operation: Operation,
        operands: Sequence[Value],
        segments: tuple[int, ...],
        paddings: Sequence[Padding],
    ) -> None:
        """The operation with other operands and its results expanded; it keeps its regions."""
        types = [
            part
            for result in operation.results
            for part in (
                self._part_types(result)
                if isinstance(result.type, DescriptorType)
                else [result.type]
            )
        ]
        regions = list(operation.regions)
        copy = Operation(
            operation.spec,
            operands,
            segments,
            operation.attributes,
            types,
            regions,
            operation.location,
        )
        Builder.at(operation).insert(copy)
        results = iter(copy.results)
        for result, padding in zip(operation.results, paddings, strict=True):
            if isinstance(result.type, DescriptorType):
                values = list(islice(results, len(self._part_types(result))))
                self.parts[result] = self._parts_of(result, values, padding)
            else:
                again = next(results)
                again.name = result.name
                result.replace_all_uses(again)
        operation.regions = []
        self._dead.append(operation)

    def _carry(
        self, terminator: Operation, values: Sequence[Value], into: Sequence[Value], first: int = 0
    ) -> None:
        """Let a terminator hand on parts; ``first`` operands before the values stay."""
        flat = self._flat(Builder.at(terminator), values, into)
        head = list(terminator.operands[:first])
        terminator.replace_operands([*head, *flat], (*([1] * first), len(flat)))

    def _for(self, operation: For) -> None:
        body, inits = operation.body, operation.inits
        paddings, carried = self._paddings(inits), body.arguments[1:]
        body.arguments = [body.arguments[0], *self._expand_values(body, carried, paddings)]
        self._region(body)
        terminator = _terminator(body)
        if not any(paddings):
            return
        self._carry(terminator, list(terminator.operands), carried)
        flat = self._flat(Builder.at(operation), inits, carried)
        self._rebuild(
            operation,
            [operation.lower, operation.upper, operation.step, *flat],
            (1, 1, 1, len(flat)),
            paddings,
        )

    def _while(self, operation: While) -> None:
        before, after, inits = operation.before, operation.after, operation.inits
        paddings, carried = self._paddings(inits), before.arguments
        before.arguments = self._expand_values(before, carried, paddings)
        self._region(before)
        condition = _terminator(before)
        assert isinstance(condition, Condition)
        forwarded = condition.values
        forwarded_paddings = self._paddings(forwarded)
        received = after.arguments
        after.arguments = self._expand_values(after, received, forwarded_paddings)
        self._region(after)
        if not any(paddings) and not any(forwarded_paddings):
            return
        self._carry(condition, forwarded, received, first=1)
        self._carry(_terminator(after), list(_terminator(after).operands), carried)
        flat = self._flat(Builder.at(operation), inits, carried)
        self._rebuild(operation, flat, (len(flat),), forwarded_paddings)

    def _if(self, operation: If) -> None:
        for region in operation.regions:
            self._region(region)
        paddings = self._paddings(_terminator(operation.then).operands)
        if not any(paddings):
            return
        for region in operation.regions:
            terminator = _terminator(region)
            self._carry(terminator, list(terminator.operands), operation.results)
        self._rebuild(operation, operation.operands, operation.segments, paddings)

    def _select(self, operation: Select) -> None:
        b, result = Builder.at(operation), operation.result
        pairs = zip(
            self._values(b, operation.a, result), self._values(b, operation.b, result), strict=True
        )
        values = [b.select(operation.condition, first, second) for first, second in pairs]
        self.parts[result] = self._parts_of(result, values, self.parts[operation.a].padding)
        self._dead.append(operation)


def _terminator(region: Region) -> Operation:
    terminator = region.terminator
    assert terminator is not None
    return terminator


# ---- addresses


@dataclass(frozen=True, slots=True)
class _Axis:
    """Along one axis of a block, as i64 tiles of rank 1: coordinates in the tensor, and how many
    elements from the block's base."""

    coordinates: Value
    distances: Value


def _as_i64(b: Builder, value: Value) -> Value:
    if element_type(value.type) is I64:
        return value
    target = TileType(value.type.shape, I64) if isinstance(value.type, TileType) else I64
    result: Value = b.cast(value, result=target)
    return result


def _block(
    b: Builder, parts: Parts, base: Value, axes: Sequence[_Axis], shape: tuple[int, ...]
) -> tuple[Value, Value]:
    """Pointers to the elements of a block, and which of them are in the tensor."""
    pointers = b.splat(base, result=TileType(shape, base.type))
    mask: Value | None = None
    for axis, (along, extent) in enumerate(zip(axes, parts.shape, strict=True)):
        tile = along.coordinates.type
        low = b.cmp(along.coordinates, b.constant_like(tile, 0), predicate="ge")
        high = b.cmp(along.coordinates, b.splat(extent, result=tile), predicate="lt")
        inside = _spread(b, b.and_(low, high), axis, shape)
        mask = inside if mask is None else b.and_(mask, inside)
        pointers = b.addptr(pointers, _spread(b, along.distances, axis, shape))
    assert mask is not None and element_type(mask.type) is I1
    return pointers, mask


def _other(b: Builder, type_: Type, padding: Padding) -> Value:
    """Return the padding of a load of a block type: the values outside of the tensor.

    Integers have no NaN, and are padded with zero.
    """
    element = element_type(type_)
    if not isinstance(element, FloatType) or padding == "zero":
        return b.constant_like(type_, 0)
    if padding == "nan":
        return b.constant_like(type_, float("nan"))
    chosen = b.select(padding, b.constant_like(element, float("nan")), b.constant_like(element, 0))
    splat: Value = b.splat(chosen, result=type_)
    return splat


def _spread(b: Builder, value: Value, axis: int, shape: tuple[int, ...]) -> Value:
    """Broadcast a tile of rank 1 along all but one axis of ``shape``."""
    for other in range(len(shape)):
        if other != axis:
            value = b.expand_dims(value, axis=other)
    assert isinstance(value.type, TileType)
    target = TileType(shape, value.type.element)
    if value.type is not target:
        value = b.broadcast(value, result=target)
    return value


WRITES = (DescriptorStore, DescriptorReduce, DescriptorScatter)
_EXPANSIONS: dict[str, Callable[[Expansion, Any], None]] = {
    "make_descriptor": Expansion._make,
    "descriptor_extent": Expansion._number,
    "descriptor_stride": Expansion._number,
    "descriptor_load": Expansion._access,
    "descriptor_store": Expansion._access,
    "descriptor_reduce": Expansion._access,
    "descriptor_gather": Expansion._access_rows,
    "descriptor_scatter": Expansion._access_rows,
}
