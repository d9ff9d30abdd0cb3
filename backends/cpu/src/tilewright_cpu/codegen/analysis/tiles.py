"""Analysis of a function before it is lowered: laziness, liveness, inductions, kept tiles.

- *Lazy* operations produce tiles that are evaluated where they are read; every other operation is a
  *reader* that makes its tile operands be evaluated in a loop nest.
- Positions: operations are numbered in program order; ``last_use`` of a value is the position of
  the last reader that reaches it through lazy operations. A value from outside a loop that is read
  inside lives to the loop's end.
- Loop-carried tiles that a loop only moves by a uniform step (pointers, offsets) become ``first
  value + scalar``; the scalar is carried instead.
- Accumulators that are only added to in a loop and only summed after it are kept in vector
  registers.
- Expensive tiles that more than one loop nest reads are kept in memory: written by the first loop
  nest that evaluates them, or in a loop nest of their own where they are defined if that first loop
  nest lies in a loop or reads them in another shape; see :class:`Kept`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops import TABLE
from tilewright.ir.ops.arithmetic import Addptr, Arange, Binary, Cast, Constant, Div
from tilewright.ir.ops.control import For, Reduce, While, Yield
from tilewright.ir.ops.debug import Hint
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.ops.shape import Broadcast, ExpandDims, Permute, Reshape, Splat
from tilewright.ir.order import ANY
from tilewright.ir.table import Effect
from tilewright.ir.types import (
    I64,
    FloatType,
    IntType,
    PointerType,
    TileType,
    bit_width,
    element_type,
)
from tilewright.passes.analysis.transfer_functions import MOVES
from tilewright_cpu.codegen.analysis.gathers import gathered_tiles
from tilewright_cpu.codegen.analysis.store_groups import store_groups


def cost_of_one(operation: Operation) -> int:
    """Cost of an operation for one lane, in additions; data movement is free."""
    if isinstance(operation, Load):
        return 2
    return 0 if operation.name in _LAZY_SHAPE else operation.spec.cost


#: From this cost on a tile is kept rather than evaluated again.
EXPENSIVE = 10
#: Lazy operations that may depend on each other in a row; twice as many where they compute
#: addresses or only move elements, which cost little to walk over.
MAX_DEPTH = 48
#: Independent accumulators of a sum that a loop keeps in registers.
PARTIAL_SUM_GROUPS = 4
#: Operations that only move elements and are evaluated where they are read. The result of an
#: unsplat is a scalar, computed where it stands.
_LAZY_SHAPE = MOVES - {"unsplat"}
#: Operations whose results keep the coordinates of their operands.
_SAME_INDEX = (Load, Hint, Permute, Reshape, ExpandDims)


def is_lazy(operation: Operation) -> bool:
    """Return whether an operation defines a tile that is evaluated where it is read."""
    spec = operation.spec
    if spec.elementwise or spec.name in _LAZY_SHAPE or isinstance(operation, Arange):
        return True
    return isinstance(operation, Load) and not operation.volatile


def is_tile(value: Value) -> bool:
    return isinstance(value.type, TileType)


def _pays_to_keep(operation: Operation) -> bool:
    """Return whether loading a result could be cheaper than evaluating the operation.

    It is not for operations that only read or move elements.
    """
    return operation.name not in _LAZY_SHAPE and not isinstance(operation, Hint | Load | Arange)


@dataclass(slots=True)
class Kept:
    """Placement of a tile that is kept in memory.

    Attributes:
        at_once: it is written in a loop nest of its own, where it is defined; else by the first
            loop nest that evaluates it.
        deep: it is written at once because the chain of lazy operations that it ends is too long.
        narrow: the narrower tile that the first loop nest writes in its place, because all later
        readers
            read that one.
    """

    at_once: bool = False
    deep: bool = False
    narrow: Value | None = None


class Analysis:
    """Analysis of one function, as the module's text says."""

    def __init__(
        self, function: Function, vector_bytes: int, *, group_stores: bool = False
    ) -> None:
        self.function, self.vector_bytes = function, vector_bytes
        self.start: dict[Operation, int] = {}
        self.end: dict[Operation, int] = {}
        self.last_use: dict[Value, int] = {}
        self.replaced: dict[Value, Value] = {}
        self.inductions: dict[Operation, dict[int, Induction]] = {}
        self.partial_sums: dict[Operation, dict[int, PartialSum]] = {}
        self.kept: dict[Value, Kept] = {}
        self.writes: set[Operation] = set()
        #: stores that one loop nest writes, by each of them
        self.groups: dict[Operation, tuple[Store, ...]] = {}
        self._synthetic: list[Operation] = []
        self._readers: dict[Value, Operation] = {}
        self._costs: dict[Value, int] = {}
        self._loops: dict[Region, tuple[Region, ...]] = {}
        self._cut: set[Value] = set()
        self._uniform: set[Value] = set()
        self._number(function.body, 0, ())
        if group_stores:
            for group in store_groups(function, is_lazy):
                self.groups.update(dict.fromkeys(group, group))
        for operation in self.start:
            self._note_uniform(operation)
        self._gathered = gathered_tiles(self.start, is_lazy)
        for operation in list(self.start):
            if isinstance(operation, For):
                self._find_carried(operation)
        self._cut_chains()
        for operation in self.start:
            if (
                not is_lazy(operation)
                or not operation.results
                or not is_tile(operation.results[0])
                or self.is_deep(operation.results[0])
            ):
                self._read(operation)
        for value, kept in self.kept.items():
            if not kept.at_once:
                kept.narrow = self._narrow(value)

    def detach(self) -> None:
        """Remove the operations made here, which are listed as users of the function's values."""
        for operation in reversed(self._synthetic):
            operation.parent = None  # named for lookups only: it never was in the region's list
            operation.erase()

    # ---- what is kept

    def is_kept_at_once(self, value: Value) -> bool:
        """Return whether a tile is materialized where it is defined."""
        kept = self.kept.get(value)
        return kept is not None and kept.at_once

    def is_deep(self, value: Value) -> bool:
        """Return whether a tile is materialized where it is defined to cut a long chain."""
        kept = self.kept.get(value)
        return kept is not None and kept.deep

    def written_by_first_nest(self, value: Value) -> Value | None:
        """Tile that the first loop nest which evaluates ``value`` materializes.

        It is the tile itself or the narrower one in its place; None where the loop nest keeps
        neither.
        """
        kept = self.kept.get(value)
        return None if kept is None or kept.at_once else kept.narrow or value

    def drop_kept(self, value: Value) -> None:
        """Record that a tile is materialized on its own.

        The loop nest that evaluates it need keep neither it nor the wider tile that it is kept in
        place of.
        """
        cast = value.definition
        if isinstance(cast, Cast) and self.written_by_first_nest(cast.x) is value:
            del self.kept[cast.x]
        if self.written_by_first_nest(value) is not None:
            del self.kept[value]

    # ---- positions

    def _number(self, region: Region, position: int, chain: tuple[Region, ...]) -> int:
        self._loops[region] = chain = (*chain, region)
        for operation in region:
            position += 1
            self.start[operation] = position
            effects = operation.spec.effects
            if Effect.WRITE in effects:
                self.writes.add(operation)
            for inner in operation.regions:
                position = self._number(inner, position, chain)
                if Effect.REGION in effects and any(op in self.writes for op in inner):
                    self.writes.add(operation)
            self.end[operation] = position
        return position

    def region_of(self, value: Value) -> Region | None:
        """The region a value is defined in."""
        owner = value.owner
        if isinstance(owner, Region):
            return owner
        return owner.parent

    def _lifetime(self, value: Value, reader: Operation) -> int:
        """Position where a value read by ``reader`` is last read.

        It is the end of the outermost loop around the reader that the value comes from outside of.
        """
        home, position = self.region_of(value), self.start[reader]
        region = reader.parent
        while region is not None and region is not home:
            owner = region.owner
            if not isinstance(owner, Operation):
                break
            # also for an if: its other region may come later in the numbering
            position = max(position, self.end[owner])
            region = owner.parent
        return position

    def in_loop_of(self, value: Value, reader: Operation) -> bool:
        """Return whether a loop lies between the value's definition and a reader."""
        home, region = self.region_of(value), reader.parent
        while region is not None and region is not home:
            owner = region.owner
            if not isinstance(owner, Operation):
                break
            if isinstance(owner, For | While):
                return True
            region = owner.parent
        return False

    # ---- carried tiles

    def _find_carried(self, loop: For) -> None:
        last = loop.body.terminator
        assert isinstance(last, Yield)
        for number, (argument, value, first, result) in enumerate(
            zip(loop.body.arguments[1:], last.values, loop.inits, loop.results, strict=True)
        ):
            if not is_tile(argument):
                continue
            if value is argument:
                self.replaced[argument] = self.replaced[result] = first
                continue
            step = self._step(argument, value)
            if step is not None:
                self._induction(loop, number, step)
                continue
            term = self._accumulated(argument, value, first, result)
            if term is not None:
                self.partial_sums.setdefault(loop, {})[number] = term

    def _step(self, argument: Value, value: Value) -> tuple[Value, bool] | None:
        """The uniform tile by which a loop moves a carried one, and whether it is subtracted."""
        match value.definition:
            case Hint() as hint:
                return self._step(argument, hint.x)
            case Addptr() as moved if moved.pointer is argument and self.is_uniform(moved.offset):
                return moved.offset, False
            case Binary(name="add" | "sub" as name) as sum_ if isinstance(
                element_type(argument.type), IntType
            ):
                if sum_.a is argument and self.is_uniform(sum_.b):
                    return sum_.b, name == "sub"
                if sum_.b is argument and name == "add" and self.is_uniform(sum_.a):
                    return sum_.a, False
        return None

    def _note_uniform(self, operation: Operation) -> None:
        moves = operation.spec.elementwise or operation.name in _LAZY_SHAPE
        if isinstance(operation, Splat) or (
            moves and all(self.is_uniform(operand) for operand in operation.operands)
        ):
            self._uniform.update(operation.results)

    def is_uniform(self, value: Value) -> bool:
        """Return whether all elements of a tile are equal by construction."""
        return not is_tile(value) or value in self._uniform

    def _induction(self, loop: For, number: int, step: tuple[Value, bool]) -> None:
        body = loop.body
        first, argument, result = (
            loop.inits[number],
            body.arguments[1 + number],
            loop.results[number],
        )
        element = element_type(argument.type)
        counter = I64 if isinstance(element, PointerType) else element
        inside, after = Value(counter, body), Value(counter, loop)
        for scalar, old in ((inside, argument), (after, result)):
            assert isinstance(old.type, TileType)
            offset = Operation(
                TABLE["splat"], [scalar], (1,), {}, [TileType(old.type.shape, counter)]
            )
            name = "addptr" if counter is I64 and isinstance(element, PointerType) else "add"
            moved = Operation(TABLE[name], [first, offset.results[0]], (1, 1), {}, [old.type])
            offset.parent = moved.parent = body if scalar is inside else loop.parent
            self._synthetic += (offset, moved)
            self.replaced[old] = moved.results[0]
        self.inductions.setdefault(loop, {})[number] = Induction(
            first, inside, after, step[0], step[1]
        )

    def _accumulated(
        self, argument: Value, value: Value, first: Value, result: Value
    ) -> PartialSum | None:
        """Return whether a loop only adds to a carried rank-1 tile that is only summed after it."""
        assert isinstance(argument.type, TileType)
        element = argument.type.element
        operation = value.definition
        if (
            argument.type.rank != 1
            or not isinstance(element, FloatType)
            or element.bits < 32
            or not isinstance(operation, Binary)
            or operation.name != "add"
        ):
            return None
        if (
            len(argument.uses) != 1
            or operation not in argument.uses
            or argument.uses[operation] != 1
            or len(value.uses) != 1
        ):
            return None
        if operation.parent is not argument.owner or argument.type.numel % (
            PARTIAL_SUM_GROUPS * self.vector_bytes // (element.bits // 8)
        ):
            return None
        start = first.definition
        zero = start.x.definition if isinstance(start, Splat) else None
        if not isinstance(zero, Constant) or zero.value != 0:
            return None
        if not result.uses or not all(is_sum(user) for user in result.uses):
            return None
        return PartialSum(operation.b if operation.a is argument else operation.a, operation)

    # ---- reads

    def _cut_chains(self) -> None:
        """Compute the cost of every tile, in program order, and cut long chains.

        A tile at the end of a long chain of lazy operations is evaluated in a loop nest of its own,
        so that neither a nest's block nor the recursion of functions that walk over lazy tiles
        grows with the kernel.
        """
        depths: dict[Value, int] = {}
        for operation in self.start:
            for value in operation.results:
                if not is_tile(value):
                    continue
                if not is_lazy(operation):
                    self.cost(value)
                    continue
                depth = 1 + max(
                    (depths.get(self._resolved(operand), 0) for operand in operation.operands),
                    default=0,
                )
                pointers = isinstance(element_type(value.type), PointerType)
                limit = MAX_DEPTH if operation.spec.elementwise and not pointers else 2 * MAX_DEPTH
                if depth >= limit:
                    self.kept[value] = Kept(at_once=True, deep=True)
                    depth = 0
                depths[value] = depth
                if (
                    self.cost(value) >= EXPENSIVE * 4
                    and _pays_to_keep(operation)
                    and len(value.uses) > 1
                ):
                    self._cut.add(value)

    def cost(self, value: Value) -> int:
        """Cost of evaluating a value for one lane, in additions; capped.

        A tile that is kept in memory costs as much as a load.
        """
        value = self._resolved(value)
        if not is_tile(value):
            return 0
        known = self._costs.get(value)
        if known is not None:
            return known
        operation = value.definition
        if operation is None or not is_lazy(operation):
            cost = 1
        else:
            cost = cost_of_one(operation)
            if isinstance(operation, Div) and isinstance(element_type(value.type), IntType):
                cost = 12
            match operation:
                case Load():
                    # affine addresses cost nothing a lane; what is expensive in them is kept on its
                    # own account
                    operands = [
                        operand
                        for operand in (operation.mask, operation.other)
                        if operand is not None
                    ]
                case Splat():
                    operands = []
                case _:
                    operands = operation.operands
            for operand in operands:
                source = self._resolved(operand)
                cost += 1 if source in self._cut or self.is_deep(source) else self.cost(source)
        self._costs[value] = min(cost, 1000)
        return self._costs[value]

    def _resolved(self, value: Value) -> Value:
        while value in self.replaced:
            value = self.replaced[value]
        return value

    def _evaluated(self, reader: Operation) -> list[Value]:
        """Values that a reader evaluates.

        Of carried tiles that a loop moves or adds to in registers it is the step or the term, in
        the loop.
        """
        if isinstance(reader, For):
            inits = reader.inits
            for number in (*self.inductions.get(reader, ()), *self.partial_sums.get(reader, ())):
                inits[number] = reader.lower
            return [reader.lower, reader.upper, reader.step, *inits]
        loop = reader.parent.owner if reader.parent is not None else None
        if not isinstance(reader, Yield) or not isinstance(loop, For):
            return list(reader.operands)
        values = reader.values
        for number, induction in self.inductions.get(loop, {}).items():
            values[number] = induction.step
        for number, partial_sum in self.partial_sums.get(loop, {}).items():
            values[number] = partial_sum.term
        return values

    def _read(self, reader: Operation) -> None:
        """Note that ``reader`` evaluates its tile operands in a nest."""
        seen: set[tuple[Value, bool]] = set()
        stack = [(self._resolved(value), True) for value in self._evaluated(reader)]
        # the stores of a group are written at the last of them
        reader = self.groups.get(reader, (reader,))[-1]
        while stack:
            value, same = stack.pop()
            if (value, same) in seen:
                continue
            seen.add((value, same))
            last = self._lifetime(value, reader)
            if last > self.last_use.get(value, -1):
                self.last_use[value] = last
            if not is_tile(value):
                continue
            operation = value.definition
            if operation is None or not is_lazy(operation):
                continue
            if self.is_kept_at_once(value):
                continue
            if value in self._gathered or (
                self.cost(value) >= EXPENSIVE and self._own_cost(operation)
            ):
                earlier = self._readers.setdefault(value, reader)
                if self.in_loop_of(value, reader) or not same:
                    self.kept[value] = Kept(at_once=True)
                elif earlier is not reader:
                    self.kept[value] = Kept(at_once=earlier.parent is not self.region_of(value))
                    if not self.kept[value].at_once:
                        continue
            keeps = operation.spec.elementwise or isinstance(operation, _SAME_INDEX)
            if isinstance(operation, Broadcast):
                keeps = operation.x.type is value.type
            stack.extend(
                (self._resolved(operand), same and keeps) for operand in operation.operands
            )

    def _narrow(self, value: Value) -> Value | None:
        """The cast of a kept tile to a narrower type that all readers but the first read, or None.

        The first reader alone needs all the bits.
        """
        casts = [user for user in value.uses if isinstance(user, Cast)]
        if len(casts) != 1 or len(value.uses) != 2:
            return None
        (cast,) = casts
        (other,) = (user for user in value.uses if user is not cast)
        if bit_width(element_type(cast.result.type)) >= bit_width(element_type(value.type)):
            return None
        first, later = self._readers_of(other), self._readers_of(cast)
        return (
            cast.result
            if len(first) == 1
            and later
            and all(self.start[first[0]] < self.start[reader] for reader in later)
            else None
        )

    def _readers_of(self, operation: Operation) -> list[Operation]:
        """Return the readers that evaluate an operation's result, or the operation if it is one."""
        found: dict[Operation, None] = {}
        stack, seen = [operation], set()
        while stack:
            here = stack.pop()
            if here in seen:
                continue
            seen.add(here)
            if is_lazy(here) and here.results and is_tile(here.results[0]):
                stack.extend(here.results[0].uses)
            else:
                found[here] = None
        return list(found)

    def _own_cost(self, operation: Operation) -> bool:
        """Return whether keeping an operation's result saves its own work, not an operand's."""
        own = cost_of_one(operation)
        if not _pays_to_keep(operation):
            return False
        if own >= 8:
            return True
        # a long chain of cheap operations
        operands = (self._resolved(operand) for operand in operation.operands)
        return (
            all(operand in self._cut or self.cost(operand) < EXPENSIVE * 4 for operand in operands)
            and self.cost(operation.results[0]) >= EXPENSIVE * 4
        )

    def reaches(self, value: Value, target: Value) -> bool:
        """Return whether evaluating ``value`` reads ``target``."""
        stack, seen = [self._resolved(value)], set()
        while stack:
            here = stack.pop()
            if here is target:
                return True
            if here in seen or not is_tile(here):
                continue
            seen.add(here)
            operation = here.definition
            if operation is not None and is_lazy(operation):
                stack.extend(self._resolved(operand) for operand in operation.operands)
        return False


class Induction:
    """A carried tile that is ``first + scalar``.

    It has the scalar inside the loop, the scalar after it, and the uniform tile added in an
    iteration.
    """

    __slots__ = ("after", "first", "inside", "step", "subtract")

    def __init__(
        self, first: Value, inside: Value, after: Value, step: Value, subtract: bool
    ) -> None:
        self.first, self.inside, self.after, self.step, self.subtract = (
            first,
            inside,
            after,
            step,
            subtract,
        )


class PartialSum:
    """A carried accumulator in vector registers: the term of an iteration, and the addition."""

    __slots__ = ("addition", "term")

    def __init__(self, term: Value, addition: Operation) -> None:
        self.term, self.addition = term, addition


def combine_kind(operation: Reduce) -> Operation | None:
    """The operation of a combine region that is ``op(left, right)`` of one tile, else None."""
    region = operation.combine
    first = region.first
    if (
        len(operation.inputs) != 1
        or first is None
        or first.next is not region.last
        or region.last is None
    ):
        return None
    if list(region.last.operands) != list(first.results):
        return None
    if first.operands != region.arguments and first.operands != region.arguments[::-1]:
        return None
    return first if first.spec.associative else None


def is_sum(operation: Operation) -> bool:
    """Return whether an operation is the sum of a tile along its only axis, in any order."""
    if not isinstance(operation, Reduce) or operation.order != ANY:
        return False
    kind = combine_kind(operation)
    return kind is not None and kind.name == "add" and not is_tile(operation.results[0])
