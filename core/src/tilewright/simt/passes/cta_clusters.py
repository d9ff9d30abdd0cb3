"""Partition a program among the CTAs of a cluster (``num_ctas``).

Each CTA has registers and shared memory of its own, and computes a part of the matmul results. A
tile is *divided* along one axis into equal parts, one per CTA, or *whole* in every CTA. The axis of
a matmul result determines the division of all values computed from it and for it:

    %c = dot %a, %b, %acc rows of %c divided: rows of %a too, %b whole; columns divided: columns of
    %b too, %a whole

Scalars are whole: all CTAs take the same control flow. The pass rewrites the function to the work
of one CTA, which reads its rank with ``simt.rank``:

    %n = arange 0, 256                          %m = arange 0, 128;  %n = %m + splat(%rank * 128)
    %b = descriptor_load %d, %k, %n0 %b = descriptor_load %d', %k, %n0 + %rank * 128 (%d': with
    blocks half as wide)

Every CTA loads the whole tiles. The pass marks such loads
(:data:`~tilewright.simt.dialect.attributes.WHOLE`), so that a target may read the tile from memory
once and multicast it to all CTAs. CTA 0 alone stores whole tiles. A kernel that cannot be divided
runs one CTA per program, with a remark that says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Arange, Constant
from tilewright.ir.ops.control import Map, Reduce, Scan
from tilewright.ir.ops.debug import Assert, Assume, Extern, Hint, InlineAsm
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.memory import (
    ATOMICS,
    AtomicLoad,
    AtomicRmw,
    AtomicStore,
    DescriptorLoad,
    DescriptorReduce,
    DescriptorScatter,
    DescriptorStore,
    Load,
    Store,
)
from tilewright.ir.ops.shape import Cat, ExpandDims, Gather, Moved, Permute, Splat
from tilewright.ir.table import Effect, Trait
from tilewright.ir.types import I32, DescriptorType, FloatType, TileType, Type, shape_of
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import cse
from tilewright.passes.dce import dce
from tilewright.passes.effects import effects_of
from tilewright.passes.licm import licm
from tilewright.simt.analysis.alias import reached
from tilewright.simt.assign_layouts.coalesce import ACCESSES
from tilewright.simt.dialect.attributes import CLUSTER, WHOLE, note
from tilewright.simt.dialect.loop_carried import (
    CARRIERS,
    all_carried,
    operations_of_program,
    terminator,
)
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.target.simt_target import SimtTarget, required

#: Division of a value that is whole in every CTA; any other division is an axis.
_UNDIVIDED: Final = -1
#: Operations without tile operands, of whose result any part can be created.
_FREE: Final = (Arange, Constant, Splat)
#: Maximum number of cloned operations.
_MOST: Final = 4096
#: Operations whose tiles have one shape and one division.
_ALIKE: Final = (Load, Store, *ATOMICS, Assert, Map, InlineAsm, Extern)
#: Operations along one axis that must not be divided; on the other axes all tiles divide alike.
_ALONG_AXIS: Final = (Scan, Gather, Cat)
#: Stores that only CTA 0 executes if the tile is whole.
_MASKED: Final = (Store, AtomicRmw, AtomicStore)


class _NotDividedError(Exception):
    """Reason why a function is not divided."""


def divide_program(module: Module, target: SimtTarget, options: Mapping[str, Any]) -> None:
    """Divide a kernel's program among ``num_ctas`` CTAs."""
    (function,) = module.functions.values()
    blocks = int(options.get("num_ctas") or 1)
    if blocks == 1:
        return
    try:
        if target.clusters is None or blocks > target.clusters.max_ctas:
            raise _NotDividedError(f"{target.name} has no clusters of {blocks} blocks")
        _check(function)
        _repeat_indices(function)
        division = _divided(function, blocks, target)
    except _NotDividedError as why:
        note(
            terminator(function.body),
            f"num_ctas={blocks}: each program runs in one block all the same ({why})",
        )
        cse(module)
        return
    _Rewriting(function, division, blocks).run()
    function.attributes[CLUSTER] = blocks
    for pass_ in (canonicalize, cse, licm, dce):
        pass_(module)


def _check(function: Function) -> None:
    """Refuse operations that CTAs cannot execute independently of each other.

    Raises:
        _NotDividedError: there is such a thing.
    """
    operations = list(operations_of_program(function.body))
    if not any(isinstance(operation, Dot) for operation in operations):
        raise _NotDividedError("it multiplies no matrices")
    for operation in operations:
        ordered = not operation.regions and bool(effects_of(operation) & Effect.ORDER)
        if ordered and not isinstance(operation, Assert | Assume | AtomicLoad | AtomicStore):
            raise _NotDividedError(
                f"{operation.name} at {operation.location} is for all threads of a program"
            )
    written = {root for operation in operations for root in reached(operation, Effect.WRITE)}
    read = {
        root
        for operation in operations
        if any(result.uses for result in operation.results)
        for root in reached(operation, Effect.READ)
    }
    if written and read and (None in written or None in read or written & read):
        raise _NotDividedError("it may read what it writes")


def _repeat_indices(function: Function) -> None:
    """Clone index arithmetic for each of its readers, so that these can be divided differently.

    CSE merges the clones again that turn out equal.
    """
    left = _MOST
    for operation in reversed(
        [one for one in operations_of_program(function.body) if _is_index(one)]
    ):
        readers = [
            (user, position)
            for user in operation.result.uses
            for position, operand in enumerate(user.operands)
            if operand is operation.result
        ]
        left -= len(readers) - 1
        if left < 0:
            return
        for user, position in readers[1:]:
            again = Operation(
                operation.spec,
                operation.operands,
                operation.segments,
                operation.attributes,
                (operation.result.type,),
                (),
                operation.location,
            )
            assert operation.parent is not None
            operation.parent.insert_before(again, operation)
            user.set_operand(position, again.result)


def _is_index(operation: Operation) -> bool:
    """Return whether an operation creates a non-float tile from nothing or from other tiles.

    It does so elementwise, or as a shape operation.
    """
    if (
        len(operation.results) != 1
        or operation.regions
        or not isinstance(operation.result.type, TileType)
    ):
        return False
    moves = operation.spec.traits & (Trait.ELEMENTWISE | Trait.SHAPE) and operation.spec.pure
    return isinstance(operation, _FREE) or bool(
        moves and not isinstance(operation.result.type.element, FloatType)
    )


def _divided(function: Function, blocks: int, target: SimtTarget) -> dict[Value, int]:
    """Return the division of each tile and descriptor.

    The axis is the longer one of the first matmul that leads to no contradiction.
    """
    dots = [
        operation
        for operation in operations_of_program(function.body)
        if isinstance(operation, Dot)
    ]
    first: _NotDividedError | None = None
    for axis in _axes(dots[0], blocks, target):
        try:
            return _Division(function, blocks, target).of(dots, axis)
        except _NotDividedError as why:
            first = first or why
    raise first or _NotDividedError(
        f"the matmul at {dots[0].location} has too few rows and columns"
    )


def _axes(dot: Operation, blocks: int, target: SimtTarget) -> list[int]:
    """Axes along which a matmul's result may be divided, the longer one first."""
    shape = shape_of(dot.result.type)
    rank = len(shape)
    min_rows, min_columns = required(target.clusters, target, "clusters").min_tile
    found = [
        axis
        for axis, minimum in ((rank - 1, min_columns), (rank - 2, min_rows))
        if shape[axis] >= blocks * minimum
    ]
    return sorted(found, key=lambda axis: -shape[axis])


class _Division:
    """Solver for the division of all values, starting from one matmul's result."""

    def __init__(self, function: Function, blocks: int, target: SimtTarget) -> None:
        self.function, self.blocks, self.target = function, blocks, target
        self.found: dict[Value, int] = {}
        self.carried = all_carried(function)
        #: value -> values that control flow turns it into (block arguments, results)
        self.becomes: dict[Value, list[Value]] = {}
        for one in dict.fromkeys(self.carried.values()):
            for value in one.incoming():
                self.becomes.setdefault(value, []).append(one.values[0])
        self.work: list[Value] = []

    def of(self, dots: Sequence[Operation], axis: int) -> dict[Value, int]:
        """Return the division of every tile and descriptor.

        Raises:
            _NotDividedError: two rules contradict each other.
        """
        self.settle(dots[0].result, axis)
        self.spread()
        for dot in dots[1:]:
            if dot.result not in self.found:
                self.settle(
                    dot.result, next(iter(_axes(dot, self.blocks, self.target)), _UNDIVIDED)
                )
                self.spread()
        for value in self._values():
            if value not in self.found:
                self.settle(value, _UNDIVIDED)
                self.spread()
        self._check_writes()
        return self.found

    def _values(self) -> list[Value]:
        made = [
            result
            for operation in operations_of_program(self.function.body)
            for result in operation.results
        ]
        given = [
            argument for region in _regions(self.function.body) for argument in region.arguments
        ]
        return [value for value in (*given, *made) if _has_parts(value.type)]

    def _check_writes(self) -> None:
        """Refuse writes that every CTA would repeat, and unordered writes to one tensor.

        CTAs that divide two writes to a tensor in different ways would not order these.
        """
        writers: dict[Value | None, int] = {}
        for operation in operations_of_program(self.function.body):
            roots = reached(operation, Effect.WRITE)
            if not roots:
                continue
            division = _UNDIVIDED
            if isinstance(operation, ACCESSES):
                division = self.found.get(operation.pointer, _UNDIVIDED)
            elif isinstance(operation, DescriptorStore | DescriptorReduce | DescriptorScatter):
                division = self.found.get(operation.descriptor, _UNDIVIDED)
            if division == _UNDIVIDED and (
                not isinstance(operation, _MASKED)
                or any(result.uses for result in operation.results)
            ):
                raise _NotDividedError(
                    f"{operation.name} at {operation.location} is of no divided tile"
                )
            if any(writers.setdefault(root, division) != division for root in roots):
                raise _NotDividedError(
                    f"{operation.name} at {operation.location} is divided in another way than what "
                    "is written to the same memory before"
                )

    def settle(self, value: Value, division: int) -> None:
        """Set the division of a value.

        Raises:
            _NotDividedError: it is divided in another way, or has too few elements for it.
        """
        if not _has_parts(value.type):
            if division != _UNDIVIDED:
                raise _NotDividedError(f"{_place(value)} would be divided")
            return
        known = self.found.get(value)
        if known is None:
            if division != _UNDIVIDED:
                self._check_extent(value, division)
            self.found[value] = division
            self.work.append(value)
        elif known != division:
            raise _NotDividedError(f"{_place(value)} is read in two ways")

    def _check_extent(self, value: Value, axis: int) -> None:
        shape = _extents(value.type)
        if shape[axis] % self.blocks:
            raise _NotDividedError(f"{_place(value)} has {shape[axis]} elements along axis {axis}")
        if isinstance(value.type, DescriptorType):
            part = _part(value.type, axis, self.blocks)
            assert isinstance(part, DescriptorType)
            if self.target.tma is None or not self.target.tma.reaches(part, 1 << 10):
                raise _NotDividedError(f"{self.target.name} copies no block of {part}")

    def spread(self) -> None:
        """Propagate divisions through the rules of operations until nothing is left to do."""
        while self.work:
            value = self.work.pop()
            division = self.found[value]
            one = self.carried.get(value)
            if one is not None:
                for other in (*one.values, *one.incoming()):
                    self.settle(other, division)
            for operation in (value.definition, *value.uses):
                if (
                    operation is not None
                    and not isinstance(operation, CARRIERS)
                    and not operation.spec.terminator
                ):
                    self._relate(operation)
            for becomes in self.becomes.get(value, ()):
                self.settle(becomes, division)

    # ---- the rules

    def _relate(self, operation: Operation) -> None:
        name = operation.name
        rule = _RULES.get(name)
        tiles = [
            value
            for value in (*operation.operands, *operation.results)
            if isinstance(value.type, TileType)
        ]
        if rule is not None:
            rule(self, operation)
        elif isinstance(operation, _FREE):
            return
        elif (
            isinstance(operation, _ALIKE)
            or operation.spec.traits & Trait.ELEMENTWISE
            or isinstance(operation, _ALONG_AXIS)
        ):
            self._alike(tiles, operation.axis if isinstance(operation, _ALONG_AXIS) else None)
        else:
            for value in (*operation.operands, *operation.results):
                if _has_parts(value.type):
                    self.settle(value, _UNDIVIDED)

    def _alike(self, values: Sequence[Value], kept: int | None = None) -> None:
        """Divide values of one shape alike, but not along the axis ``kept``."""
        known = next((self.found[value] for value in values if value in self.found), None)
        if known is None:
            return
        if known == kept:
            raise _NotDividedError(f"{_place(values[-1])} is computed along the divided axis")
        for value in values:
            self.settle(value, known)

    def _through(
        self, one: Value, other: Value, forth: Mapping[int, int], back: Mapping[int, int]
    ) -> None:
        """Relate the divisions of two values by the maps ``forth`` and ``back`` of their axes."""
        for source, result, axes in ((one, other, forth), (other, one, back)):
            division = self.found.get(source)
            if division is None:
                continue
            if division != _UNDIVIDED and division not in axes:
                raise _NotDividedError(f"{_place(result)} is computed along the divided axis")
            self.settle(result, axes.get(division, _UNDIVIDED))

    def _expand(self, operation: ExpandDims) -> None:
        axis, rank = operation.axis, len(shape_of(operation.result.type))
        forth = {before: before + (before >= axis) for before in range(rank - 1)}
        self._through(
            operation.x, operation.result, forth, {after: before for before, after in forth.items()}
        )

    def _permute(self, operation: Permute) -> None:
        back = dict(enumerate(operation.order))
        self._through(
            operation.x, operation.result, {before: after for after, before in back.items()}, back
        )

    def _reshape(self, operation: Moved) -> None:
        source, result = operation.x, operation.result
        self._through(
            source, result, self._same_part(source, result), self._same_part(result, source)
        )

    def _same_part(self, source: Value, result: Value) -> dict[int, int]:
        """Map the axes of a tile to the axes of its reshape along which equal parts correspond.

        As many elements precede such axes in both shapes.
        """
        ends = {
            math.prod(shape_of(result.type)[:axis]): axis
            for axis, extent in enumerate(shape_of(result.type))
            if extent % self.blocks == 0
        }
        shape = shape_of(source.type)
        fronts = {
            axis: math.prod(shape[:axis])
            for axis, extent in enumerate(shape)
            if extent % self.blocks == 0
        }
        return {axis: ends[front] for axis, front in fronts.items() if front in ends}

    def _broadcast(self, operation: Moved) -> None:
        source, result = operation.x, operation.result
        before, after = shape_of(source.type), shape_of(result.type)
        repeated = {
            axis for axis, (old, new) in enumerate(zip(before, after, strict=True)) if old != new
        }
        division = self.found.get(result)
        if division is not None:
            self.settle(source, _UNDIVIDED if division in repeated else division)
        known = self.found.get(source)
        if known is not None and known != _UNDIVIDED:
            self.settle(result, known)

    def _reduce(self, operation: Reduce) -> None:
        axis, rank = operation.axis, len(shape_of(operation.inputs[0].type))
        forth = {before: before - (before > axis) for before in range(rank) if before != axis}
        for source in operation.inputs:
            for result in operation.results:
                if not isinstance(result.type, TileType):
                    self.settle(source, _UNDIVIDED)
                    continue
                self._through(
                    source, result, forth, {after: before for before, after in forth.items()}
                )

    def _last_axis_added(self, operation: Operation) -> None:
        """Relate the tiles of ``join`` and ``split``, which add or remove the last axis."""
        rank = min(len(shape_of(value.type)) for value in (*operation.operands, *operation.results))
        same = {axis: axis for axis in range(rank)}
        for source in operation.operands:
            for result in operation.results:
                self._through(source, result, same, same)

    def _dot(self, operation: Dot) -> None:
        a, b, c = operation.a, operation.b, operation.c
        result = operation.result
        self._alike([c, result])
        rank = len(shape_of(result.type))
        rows, columns = rank - 2, rank - 1
        division = self.found.get(result)
        if division is None:
            for operand, own in ((a, rows), (b, columns)):
                known = self.found.get(operand, _UNDIVIDED)
                if known == _UNDIVIDED:
                    continue
                if known not in (own, *range(rows)):
                    raise _NotDividedError(
                        f"the matmul at {operation.location} would be summed up across blocks"
                    )
                self.settle(result, known)
            return
        self.settle(a, _UNDIVIDED if division == columns else division)
        self.settle(b, _UNDIVIDED if division == rows else division)

    def _descriptor(self, operation: DescriptorLoad | DescriptorStore | DescriptorReduce) -> None:
        block = operation.result if isinstance(operation, DescriptorLoad) else operation.value
        self._alike([operation.descriptor, block])

    def _nothing(self, operation: Operation) -> None:
        """Relate nothing: the scalars are the same for every division of the tile or descriptor."""


# Operations are of the classes that their rows name, which a table by name cannot tell.
_RULES: Final[dict[str, Callable[[_Division, Any], None]]] = {
    "expand_dims": _Division._expand,
    "permute": _Division._permute,
    "reshape": _Division._reshape,
    "broadcast": _Division._broadcast,
    "reduce": _Division._reduce,
    "join": _Division._last_axis_added,
    "split": _Division._last_axis_added,
    "dot": _Division._dot,
    **dict.fromkeys(
        ("descriptor_load", "descriptor_store", "descriptor_reduce"), _Division._descriptor
    ),
    **dict.fromkeys(
        ("make_descriptor", "descriptor_extent", "descriptor_stride"), _Division._nothing
    ),
}


class _Rewriting:
    """Rewriter of a function to the work of one CTA."""

    def __init__(self, function: Function, division: Mapping[Value, int], blocks: int) -> None:
        self.function, self.division, self.blocks = function, division, blocks
        first = next(iter(function.body))
        builder = Builder(function.body, first, first.location)
        self.rank = builder.create(SIMT_TABLE["simt.rank"], [], {}).result
        zero = builder.constant(value=0, result=I32)
        self.is_first = builder.cmp(self.rank, zero, predicate="eq")

    def run(self) -> None:
        operations = list(operations_of_program(self.function.body))
        for operation in operations:
            if isinstance(operation, _MASKED) and not self._is_divided(operation):
                self._mask(operation)
            elif (
                isinstance(operation, Load | DescriptorLoad)
                and not self._is_divided(operation)
                and isinstance(operation.result.type, TileType)
            ):
                operation.attributes[WHOLE] = True
        shapes = {value: _extents(value.type) for value in self.division}
        for value, axis in self.division.items():
            if axis != _UNDIVIDED:
                value.type = _part(value.type, axis, self.blocks)
        for operation in operations:
            if isinstance(operation, Arange):
                self._begin_later(operation)
            elif isinstance(operation, Hint):
                self._promise_less(operation, shapes.get(operation.result, ()))
            elif isinstance(operation, DescriptorLoad | DescriptorStore | DescriptorReduce):
                self._move(operation)

    def _is_divided(self, operation: Operation) -> bool:
        return any(
            self.division.get(value, _UNDIVIDED) != _UNDIVIDED
            for value in (*operation.operands, *operation.results)
        )

    def _mask(self, operation: Store | AtomicRmw | AtomicStore) -> None:
        """Mask a store so that only CTA 0 executes it."""
        builder = Builder.at(operation)
        pointer, mask = operation.pointer, operation.mask
        alone: Value = self.is_first
        if isinstance(pointer.type, TileType):
            alone = builder.splat(alone, result=TileType(pointer.type.shape, alone.type))
        groups = {
            declared.name: list(operation.group(declared.name))
            for declared in operation.spec.operands
        }
        groups["mask"] = [alone if mask is None else builder.and_(alone, mask)]
        builder.create(operation.spec, list(groups.values()), operation.attributes)
        operation.erase()

    def _begin_later(self, operation: Arange) -> None:
        """Offset an index tile by the start of the CTA's part."""
        value = operation.result
        if self.division.get(value, _UNDIVIDED) == _UNDIVIDED:
            return
        (count,) = shape_of(value.type)
        operation.attributes["end"] = operation.start + count
        readers = list(value.uses)
        builder = Builder(operation.parent, operation.next, operation.location)
        start = builder.splat(self._start(builder, count), result=value.type)
        moved = builder.add(value, start)
        for reader in readers:
            for position, operand in enumerate(reader.operands):
                if operand is value:
                    reader.set_operand(position, moved)

    def _start(self, builder: Builder, count: int) -> Value:
        """First of this CTA's ``count`` coordinates."""
        start: Value = builder.mul(self.rank, builder.constant(value=count, result=I32))
        return start

    def _promise_less(self, operation: Operation, before: tuple[int, ...]) -> None:
        """Weaken a hint to the extent of a CTA's part."""
        axis = self.division.get(operation.result, _UNDIVIDED)
        if axis == _UNDIVIDED:
            return
        count = before[axis] // self.blocks
        divisibility, contiguity, constancy = (
            [*operation.attribute(name)] for name in ("divisibility", "contiguity", "constancy")
        )
        if divisibility and contiguity and contiguity[axis] > count:
            divisibility[axis] = math.gcd(divisibility[axis], count)
        for name, values in (
            ("divisibility", divisibility),
            ("contiguity", contiguity),
            ("constancy", constancy),
        ):
            if values:
                if name != "divisibility":
                    values[axis] = min(values[axis], count)
                operation.attributes[name] = tuple(values)

    def _move(self, operation: DescriptorLoad | DescriptorStore | DescriptorReduce) -> None:
        """Offset a descriptor access to the CTA's part of the block."""
        descriptor = operation.descriptor
        axis = self.division[descriptor]
        if axis == _UNDIVIDED:
            return
        builder = Builder.at(operation)
        offset = operation.offsets[axis]
        start = self._start(builder, _extents(descriptor.type)[axis])
        start = start if offset.type is start.type else builder.cast(start, result=offset.type)
        operation.set_operand(1 + axis, builder.add(offset, start))


def _regions(region: Region) -> list[Region]:
    """A region, and the regions of control flow nested in it."""
    found = [region]
    for operation in region:
        if isinstance(operation, CARRIERS):
            for inner in operation.regions:
                found += _regions(inner)
    return found


def _has_parts(type_: Type) -> bool:
    return isinstance(type_, TileType | DescriptorType)


def _extents(type_: Type) -> tuple[int, ...]:
    return type_.block_shape if isinstance(type_, DescriptorType) else shape_of(type_)


def _part(type_: Type, axis: int, blocks: int) -> Type:
    """Return the type of a CTA's part of a tile or descriptor."""
    shape = tuple(
        extent // blocks if at == axis else extent for at, extent in enumerate(_extents(type_))
    )
    assert isinstance(type_, TileType | DescriptorType)
    return (
        DescriptorType(shape, type_.element)
        if isinstance(type_, DescriptorType)
        else TileType(shape, type_.element)
    )


def _place(value: Value) -> str:
    """Describe the definition of a value, for messages."""
    definition = value.definition
    return (
        f"{definition.name} at {definition.location}"
        if definition is not None
        else f"the argument {value.name}"
    )
