"""Programs that several CTAs run together (``num_ctas``): a cluster, each block with registers and
shared memory of its own.

Each block computes a part of the matmuls' results. A tile is *divided* along one axis, each block
having as much of it as the others, or *whole* in every block. The axis of a matmul's result says it
of all that is computed from it and for it:

    %c = dot %a, %b, %acc       rows of %c divided: rows of %a too, %b whole; columns divided: columns of %b too, %a whole

Scalars are whole: all blocks go the same ways. The function is rewritten to what one block does,
which reads its number as ``simt.rank``:

    %n = arange 0, 256                          %m = arange 0, 128;  %n = %m + splat(%rank * 128)
    %b = descriptor_load %d, %k, %n0            %b = descriptor_load %d', %k, %n0 + %rank * 128        (%d': with blocks half as wide)

What is whole is loaded by every block; such a load of a tile is marked
(:data:`~tilewright.simt.dialect.attributes.WHOLE`), so that a machine may bring it from memory once
and give it to all blocks. Whole tiles are stored by block 0 alone. A kernel that cannot be divided
so is run by one block a program, with a note that says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Arange
from tilewright.ir.ops.control import Reduce, Scan
from tilewright.ir.ops.linear import Dot
from tilewright.ir.ops.memory import AtomicRmw, AtomicStore, DescriptorLoad, DescriptorReduce, DescriptorScatter, DescriptorStore, Store
from tilewright.ir.ops.shape import Cat, ExpandDims, Gather, Moved, Permute
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
from tilewright.simt.dialect.loop_carried import CARRIERS, all_carried, operations_of_program, terminator
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.target.simt_target import SimtTarget

#: The division of what every block has whole; others are the axis.
_UNDIVIDED: Final = -1
#: Operations that read no tile: any part of theirs may be made.
_FREE: Final = frozenset({"arange", "constant", "splat"})
#: How many operations may be repeated.
_MOST: Final = 4096
#: Operations whose tiles have one shape, and are divided alike.
_ALIKE: Final = frozenset({"load", "store", "atomic_rmw", "atomic_cas", "atomic_load", "atomic_store", "assert", "map", "inline_asm", "extern"})
#: Operations on one axis that must not be divided; the others are divided alike.
_ALONG_AXIS: Final = (Scan, Gather, Cat)
#: Stores that block 0 does alone where the tile is whole.
_MASKED: Final = (Store, AtomicRmw, AtomicStore)


class _NotDividedError(Exception):
    """Why a function is not divided."""


def divide_program(module: Module, target: SimtTarget, options: Mapping[str, Any]) -> None:
    """Divide the program of a module's kernel among as many blocks as ``num_ctas`` asks for."""
    (function,) = module.functions.values()
    blocks = int(options.get("num_ctas") or 1)
    if blocks == 1:
        return
    try:
        if blocks > target.cluster_blocks:
            raise _NotDividedError(f"{target.name} has no clusters of {blocks} blocks")
        _check(function)
        _repeat_indices(function)
        division = _divided(function, blocks, target)
    except _NotDividedError as why:
        note(terminator(function.body), f"num_ctas={blocks}: each program runs in one block all the same ({why})")
        cse(module)
        return
    _Rewriting(function, division, blocks).run()
    function.attributes[CLUSTER] = blocks
    for pass_ in (canonicalize, cse, licm, dce):
        pass_(module)


def _check(function: Function) -> None:
    """Refuse what blocks cannot do each for itself.

    Raises:
        _NotDividedError: there is such a thing.
    """
    operations = list(operations_of_program(function.body))
    if not any(operation.name == "dot" for operation in operations):
        raise _NotDividedError("it multiplies no matrices")
    for operation in operations:
        ordered = not operation.regions and bool(effects_of(operation) & Effect.ORDER)
        if ordered and operation.name not in ("assert", "assume", "atomic_load", "atomic_store"):
            raise _NotDividedError(f"{operation.name} at {operation.location} is for all threads of a program")
    written = {root for operation in operations for root in reached(operation, Effect.WRITE)}
    read = {root for operation in operations if any(result.uses for result in operation.results) for root in reached(operation, Effect.READ)}
    if written and read and (None in written or None in read or written & read):
        raise _NotDividedError("it may read what it writes")


def _repeat_indices(function: Function) -> None:
    """Give each reader of index arithmetic tiles of its own, which other readers' parts do not
    concern. What is not needed apart is merged again later."""
    left = _MOST
    for operation in reversed([one for one in operations_of_program(function.body) if _is_index(one)]):
        readers = [(user, position) for user in operation.result.uses for position, operand in enumerate(user.operands) if operand is operation.result]
        left -= len(readers) - 1
        if left < 0:
            return
        for user, position in readers[1:]:
            again = Operation(operation.spec, operation.operands, operation.segments, operation.attributes, (operation.result.type,), (), operation.location)
            assert operation.parent is not None
            operation.parent.insert_before(again, operation)
            user.set_operand(position, again.result)


def _is_index(operation: Operation) -> bool:
    """Return whether an operation makes a tile of nothing, or one of numbers, conditions or
    addresses of others element by element."""
    if len(operation.results) != 1 or operation.regions or not isinstance(operation.result.type, TileType):
        return False
    moves = operation.spec.traits & (Trait.ELEMENTWISE | Trait.SHAPE) and operation.spec.pure
    return operation.name in _FREE or bool(moves and not isinstance(operation.result.type.element, FloatType))


def _divided(function: Function, blocks: int, target: SimtTarget) -> dict[Value, int]:
    """How each tile and each descriptor is divided: the longer axis of the first matmul that does
    it without contradiction."""
    dots = [operation for operation in operations_of_program(function.body) if operation.name == "dot"]
    first: _NotDividedError | None = None
    for axis in _axes(dots[0], blocks, target):
        try:
            return _Division(function, blocks, target).of(dots, axis)
        except _NotDividedError as why:
            first = first or why
    raise first or _NotDividedError(f"the matmul at {dots[0].location} has too few rows and columns")


def _axes(dot: Operation, blocks: int, target: SimtTarget) -> list[int]:
    """The axes along which a matmul's result may be divided, the longer one first."""
    shape = shape_of(dot.result.type)
    rank = len(shape)
    least_rows, least_columns = target.cluster_part
    found = [axis for axis, least in ((rank - 1, least_columns), (rank - 2, least_rows)) if shape[axis] >= blocks * least]
    return sorted(found, key=lambda axis: -shape[axis])


class _Division:
    """How values are divided, found from one matmul's result."""

    def __init__(self, function: Function, blocks: int, target: SimtTarget) -> None:
        self.function, self.blocks, self.target = function, blocks, target
        self.found: dict[Value, int] = {}
        self.carried = all_carried(function)
        #: what control flow makes of values that come into it
        self.becomes: dict[Value, list[Value]] = {}
        for one in dict.fromkeys(self.carried.values()):
            for value in one.incoming():
                self.becomes.setdefault(value, []).append(one.values[0])
        self.work: list[Value] = []

    def of(self, dots: Sequence[Operation], axis: int) -> dict[Value, int]:
        """The division of every tile and descriptor.

        Raises:
            _NotDividedError: two rules contradict each other.
        """
        self.settle(dots[0].result, axis)
        self.spread()
        for dot in dots[1:]:
            if dot.result not in self.found:
                self.settle(dot.result, next(iter(_axes(dot, self.blocks, self.target)), _UNDIVIDED))
                self.spread()
        for value in self._values():
            if value not in self.found:
                self.settle(value, _UNDIVIDED)
                self.spread()
        self._check_writes()
        return self.found

    def _values(self) -> list[Value]:
        made = [result for operation in operations_of_program(self.function.body) for result in operation.results]
        given = [argument for region in _regions(self.function.body) for argument in region.arguments]
        return [value for value in (*given, *made) if _has_parts(value.type)]

    def _check_writes(self) -> None:
        """Refuse what every block would do to memory once too often, and writes to one tensor by
        different blocks, which no order is kept of."""
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
            if division == _UNDIVIDED and (not isinstance(operation, _MASKED) or any(result.uses for result in operation.results)):
                raise _NotDividedError(f"{operation.name} at {operation.location} is of no divided tile")
            if any(writers.setdefault(root, division) != division for root in roots):
                raise _NotDividedError(f"{operation.name} at {operation.location} is divided in another way than what is written to the same memory before")

    def settle(self, value: Value, division: int) -> None:
        """Know how a value is divided.

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
            if not self.target.reaches(part, 1 << 10):
                raise _NotDividedError(f"{self.target.name} copies no block of {part}")

    def spread(self) -> None:
        """Follow the rules of operations from what was settled last."""
        while self.work:
            value = self.work.pop()
            division = self.found[value]
            one = self.carried.get(value)
            if one is not None:
                for other in (*one.values, *one.incoming()):
                    self.settle(other, division)
            for operation in (value.definition, *value.uses):
                if operation is not None and operation.name not in CARRIERS and not operation.spec.terminator:
                    self._relate(operation)
            for becomes in self.becomes.get(value, ()):
                self.settle(becomes, division)

    # ---- the rules

    def _relate(self, operation: Operation) -> None:
        name = operation.name
        rule = _RULES.get(name)
        tiles = [value for value in (*operation.operands, *operation.results) if isinstance(value.type, TileType)]
        if rule is not None:
            rule(self, operation)
        elif name in _FREE:
            return
        elif name in _ALIKE or operation.spec.traits & Trait.ELEMENTWISE or isinstance(operation, _ALONG_AXIS):
            self._alike(tiles, operation.axis if isinstance(operation, _ALONG_AXIS) else None)
        else:
            for value in (*operation.operands, *operation.results):
                if _has_parts(value.type):
                    self.settle(value, _UNDIVIDED)

    def _alike(self, values: Sequence[Value], kept: int | None = None) -> None:
        """Values of one shape are divided alike, but not along an axis that must be kept."""
        known = next((self.found[value] for value in values if value in self.found), None)
        if known is None:
            return
        if known == kept:
            raise _NotDividedError(f"{_place(values[-1])} is computed along the divided axis")
        for value in values:
            self.settle(value, known)

    def _through(self, one: Value, other: Value, forth: Mapping[int, int], back: Mapping[int, int]) -> None:
        """Two values whose axes correspond: ``forth`` and ``back`` say which."""
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
        self._through(operation.x, operation.result, forth, {after: before for before, after in forth.items()})

    def _permute(self, operation: Permute) -> None:
        back = dict(enumerate(operation.order))
        self._through(operation.x, operation.result, {before: after for after, before in back.items()}, back)

    def _reshape(self, operation: Moved) -> None:
        source, result = operation.x, operation.result
        self._through(source, result, self._same_part(source, result), self._same_part(result, source))

    def _same_part(self, source: Value, result: Value) -> dict[int, int]:
        """The axes of a tile whose parts are parts of the reshaped one, and their axes there: as
        many elements come before them, or rather in front."""
        ends = {math.prod(shape_of(result.type)[:axis]): axis for axis, extent in enumerate(shape_of(result.type)) if extent % self.blocks == 0}
        shape = shape_of(source.type)
        fronts = {axis: math.prod(shape[:axis]) for axis, extent in enumerate(shape) if extent % self.blocks == 0}
        return {axis: ends[front] for axis, front in fronts.items() if front in ends}

    def _broadcast(self, operation: Moved) -> None:
        source, result = operation.x, operation.result
        before, after = shape_of(source.type), shape_of(result.type)
        repeated = {axis for axis, (old, new) in enumerate(zip(before, after, strict=True)) if old != new}
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
                self._through(source, result, forth, {after: before for before, after in forth.items()})

    def _last_axis_added(self, operation: Operation) -> None:
        """``join`` and ``split``: of the pair's tiles one has an axis more, the last."""
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
                    raise _NotDividedError(f"the matmul at {operation.location} would be summed up across blocks")
                self.settle(result, known)
            return
        self.settle(a, _UNDIVIDED if division == columns else division)
        self.settle(b, _UNDIVIDED if division == rows else division)

    def _descriptor(self, operation: DescriptorLoad | DescriptorStore | DescriptorReduce) -> None:
        block = operation.result if isinstance(operation, DescriptorLoad) else operation.value
        self._alike([operation.descriptor, block])

    def _nothing(self, operation: Operation) -> None:
        """Its scalars are the same however its tile or descriptor is divided."""


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
    **dict.fromkeys(("descriptor_load", "descriptor_store", "descriptor_reduce"), _Division._descriptor),
    **dict.fromkeys(("make_descriptor", "descriptor_extent", "descriptor_stride"), _Division._nothing),
}


class _Rewriting:
    """Makes a function what one block does."""

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
            elif operation.name in ("load", "descriptor_load") and not self._is_divided(operation) and isinstance(operation.result.type, TileType):
                operation.attributes[WHOLE] = True
        shapes = {value: _extents(value.type) for value in self.division}
        for value, axis in self.division.items():
            if axis != _UNDIVIDED:
                value.type = _part(value.type, axis, self.blocks)
        for operation in operations:
            if isinstance(operation, Arange):
                self._begin_later(operation)
            elif operation.name == "hint":
                self._promise_less(operation, shapes.get(operation.result, ()))
            elif isinstance(operation, DescriptorLoad | DescriptorStore | DescriptorReduce):
                self._move(operation)

    def _is_divided(self, operation: Operation) -> bool:
        return any(self.division.get(value, _UNDIVIDED) != _UNDIVIDED for value in (*operation.operands, *operation.results))

    def _mask(self, operation: Store | AtomicRmw | AtomicStore) -> None:
        """Let block 0 alone store."""
        builder = Builder.at(operation)
        pointer, mask = operation.pointer, operation.mask
        alone: Value = self.is_first
        if isinstance(pointer.type, TileType):
            alone = builder.splat(alone, result=TileType(pointer.type.shape, alone.type))
        groups = {declared.name: list(operation.group(declared.name)) for declared in operation.spec.operands}
        groups["mask"] = [alone if mask is None else builder.and_(alone, mask)]
        builder.create(operation.spec, list(groups.values()), operation.attributes)
        operation.erase()

    def _begin_later(self, operation: Arange) -> None:
        """The numbers of a block's part of an index tile."""
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
        """The first of this block's ``count`` coordinates."""
        start: Value = builder.mul(self.rank, builder.constant(value=count, result=I32))
        return start

    def _promise_less(self, operation: Operation, before: tuple[int, ...]) -> None:
        """A run that is longer than a block's part begins in it at a multiple of the part's length."""
        axis = self.division.get(operation.result, _UNDIVIDED)
        if axis == _UNDIVIDED:
            return
        count = before[axis] // self.blocks
        divisibility, contiguity, constancy = ([*operation.attribute(name)] for name in ("divisibility", "contiguity", "constancy"))
        if divisibility and contiguity and contiguity[axis] > count:
            divisibility[axis] = math.gcd(divisibility[axis], count)
        for name, values in (("divisibility", divisibility), ("contiguity", contiguity), ("constancy", constancy)):
            if values:
                if name != "divisibility":
                    values[axis] = min(values[axis], count)
                operation.attributes[name] = tuple(values)

    def _move(self, operation: DescriptorLoad | DescriptorStore | DescriptorReduce) -> None:
        """Where a block's part of a descriptor's block begins."""
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
    """A region, and those of control flow in it."""
    found = [region]
    for operation in region:
        if operation.name in CARRIERS:
            for inner in operation.regions:
                found += _regions(inner)
    return found


def _has_parts(type_: Type) -> bool:
    return isinstance(type_, TileType | DescriptorType)


def _extents(type_: Type) -> tuple[int, ...]:
    return type_.block_shape if isinstance(type_, DescriptorType) else shape_of(type_)


def _part(type_: Type, axis: int, blocks: int) -> Type:
    """A block's part of what has a type."""
    shape = tuple(extent // blocks if at == axis else extent for at, extent in enumerate(_extents(type_)))
    assert isinstance(type_, TileType | DescriptorType)
    return DescriptorType(shape, type_.element) if isinstance(type_, DescriptorType) else TileType(shape, type_.element)


def _place(value: Value) -> str:
    """Where a value comes from, for messages."""
    definition = value.definition
    return f"{definition.name} at {definition.location}" if definition is not None else f"the argument {value.name}"
