"""Assertions, and the checks for integer overflow that the debug mode makes of them.

The condition of a tile is split into its conjuncts, and each is tested in as few places as it
takes:

- one that depends on some axes only is tested along these;
- an order of two integers that both grow by steps along an axis holds along it where it holds at
  its ends;
- ``minimum <= a + b <= maximum`` of integers that were widened for it, by the limits of the type
  they were widened from, asks whether ``a + b`` overflows that type, which is found without
  widening.

The ranges of the operands of a sum or product are tested first, where that is cheaper
(:mod:`.value_range`).

What is left is a loop over vector strips that reduces a flag of failure. Assertions that follow
each other share these loops where all that their conditions read is there: each load is done once
for them.

A failed assertion writes the status block, five i32, once: 1 for "an assertion failed", the index
of its message, and the program's x, y and z.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tilewright.ir.core import Value
from tilewright.ir.ops.arithmetic import Binary, Cast, Cmp, Constant
from tilewright.ir.ops.debug import Assert
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.ops.shape import Splat
from tilewright.ir.types import I1, I64, IntType, TileType, element_type
from tilewright.llvm.emission.registers import constant, vector_type
from tilewright.passes.rewriter import constant_of
from tilewright_cpu.codegen.analysis.mask_bounds import placed_conjuncts
from tilewright_cpu.codegen.analysis.strides import stride_along
from tilewright_cpu.codegen.analysis.tiles import is_lazy, is_tile
from tilewright_cpu.codegen.context import Context, Coordinate, Index
from tilewright_cpu.codegen.loops.evaluate import as_vector
from tilewright_cpu.codegen.loops.lane_reduce import LaneReduction, reduce_lanes
from tilewright_cpu.codegen.loops.loop_nest import NestPlan, identity
from tilewright_cpu.codegen.ops.value_range import Arithmetic, emit_fits, tiles_to_range
from tilewright_cpu.codegen.sanitizer.bounds import stop_on_violation
from tilewright_cpu.codegen.sanitizer.nest_bounds import record_passed
from tilewright_cpu.status import ASSERTION_FAILED

#: Assertions that share their loops, each of which has a register of its own in them.
_TOGETHER: Final = 6
_ORDERS: Final = {"lt": 1, "le": 1, "gt": -1, "ge": -1}


@dataclass(frozen=True)
class FailureAccumulator:
    """Accumulator of failures over the lanes of many strips, so that they are tested once.

    Attributes:
        element: the type of its lanes.
        start: a lane's value where nothing failed.
        add: (context, accumulator, operands, lanes or 0 for a scalar) -> with these operands.
        test: an accumulator -> an i1 a lane: whether something failed.
        pairs: whether two lanes of the operands share one.
    """

    element: IntType
    start: int
    add: Callable[[Context, str, Sequence[str], int], str]
    test: Callable[[Context, str, int], str]
    pairs: bool = False

    def lanes(self, width: int) -> int:
        return width // 2 if self.pairs else width


@dataclass(frozen=True)
class _Check:
    """One condition of one assertion.

    Attributes:
        assertion: its number among those that are lowered together.
        shape: the extents of the loops that test it.
        ends: for each axis the coordinates that it is tested at; none where it is tested at all of
        them. operands: what it is evaluated from: tiles of one shape, and scalars. gathering: what
        its failures are gathered in, of the operands' elements; for a scalar and for vectors.
        arithmetic: the sum, difference or product that must fit its type, where that is what it
        asks.
    """

    assertion: int
    shape: tuple[int, ...]
    ends: tuple[tuple[int, ...], ...]
    operands: tuple[Value, ...]
    scalar: FailureAccumulator
    vector: FailureAccumulator
    arithmetic: Arithmetic | None = None

    def indices(self, index: Index) -> list[Index]:
        """Index where the condition is tested when its loops are at an index."""
        places = [
            [coordinate] if not ends else [Coordinate(str(end)) for end in ends]
            for coordinate, ends in zip(index, self.ends, strict=True)
        ]
        return [tuple(place) for place in itertools.product(*places)]

    def accumulator_for(self, width: int) -> FailureAccumulator:
        return self.vector if width > 1 else self.scalar

    def type(self, width: int) -> str:
        """The register type of what is gathered over strips of a width."""
        accumulator = self.accumulator_for(width)
        return vector_type(accumulator.element, accumulator.lanes(width))

    def start(self, width: int) -> str:
        accumulator = self.accumulator_for(width)
        return constant(
            accumulator.element,
            bool(accumulator.start) if accumulator.element is I1 else accumulator.start,
            accumulator.lanes(width),
        )

    def add(self, context: Context, accumulated: str, index: Index, width: int) -> str:
        """The accumulator of failures with a strip's."""
        for place in self.indices(index):
            texts = [as_vector(context, operand, place, width) for operand in self.operands]
            accumulated = self.accumulator_for(width).add(context, accumulated, texts, width)
        return accumulated

    def failed(self, context: Context, accumulated: str, width: int) -> str:
        """An i1: whether the condition failed in any lane."""
        accumulator = self.accumulator_for(width)
        lanes = accumulator.lanes(width)
        text = accumulator.test(context, accumulated, lanes)
        if not lanes:
            return text
        flags = vector_type(I1, lanes)
        return context.writer.intrinsic("llvm.vector.reduce.or", "i1", [(flags, text)], [flags])


def lower_assert(context: Context, operation: Assert) -> None:
    """Stop where a condition is false and its mask holds."""
    if operation in context.checks.asserted:
        return
    w = context.writer
    together = [operation, *_companions(context, operation)]
    context.checks.asserted.update(together)
    failures: list[list[str]] = [[] for _ in together]
    checks: list[_Check] = []
    for number, assertion in enumerate(together):
        condition, mask = assertion.condition, assertion.mask
        if isinstance(condition.type, TileType):
            checks += _checks(context, number, condition, mask)
        else:
            failed = w.emit(f"xor i1 {context.scalar(condition)}, true")
            failures[number].append(
                failed if mask is None else w.emit(f"and i1 {failed}, {context.scalar(mask)}")
            )
    loops: dict[tuple[tuple[int, ...], int], list[_Check]] = {}
    for check in checks:
        loops.setdefault(
            (check.shape, max(_bits(operand) for operand in check.operands)), []
        ).append(check)
    read: list[Load | Store] = []
    for group in loops.values():
        loads, tested = _tested(context, group)
        for number, failed in tested.items():
            failures[number].append(failed)
        read += loads
    if not context.in_elements:
        # what was outside of its argument's memory says more than a condition on the zeros read
        # instead
        stop_on_violation(context)
        record_passed(context, read)
    for assertion, found in zip(together, failures, strict=True):
        failed = functools.reduce(lambda a, b: w.emit(f"or i1 {a}, {b}"), found)
        failing, passed = w.new_block("failed"), w.new_block("passed")
        w.branch_if(w.emit(f"xor i1 {failed}, true"), passed, failing, likely=True)
        w.place(failing)
        context.report(
            ASSERTION_FAILED, str(context.message(assertion.message, assertion.location))
        )
        w.place(passed)


def _bits(value: Value) -> int:
    element = element_type(value.type)
    return element.bits if isinstance(element, IntType) else 0


# ---- which are tested together


def _companions(context: Context, operation: Assert) -> list[Assert]:
    """Assertions after one that can be tested with it.

    Only lazy tiles lie between them, and their conditions can be evaluated here.
    """
    found: list[Assert] = []
    if context.in_elements or not is_tile(operation.condition):
        return found
    following = operation.next
    while following is not None and len(found) < _TOGETHER - 1:
        if isinstance(following, Assert):
            if not is_tile(following.condition) or not all(
                _is_available(context, operand) for operand in following.operands
            ):
                break
            found.append(following)
        elif isinstance(following, Constant):
            context.state.methods.statements["constant"](context, following)
        elif not (following.results and is_tile(following.results[0]) and is_lazy(following)):
            break
        following = following.next
    return found


def _is_available(context: Context, value: Value) -> bool:
    """Return whether all that evaluating a value reads is available."""
    stack, seen = [context.resolve(value)], set()
    while stack:
        here = stack.pop()
        if here in seen or here in context.buffers:
            continue
        seen.add(here)
        operation = here.definition
        if not is_tile(here):
            if here not in context.scalars:
                return False
            continue
        if operation is None or not is_lazy(operation) or context.analysis.is_kept_at_once(here):
            return False
        stack.extend(context.resolve(operand) for operand in operation.operands)
    return True


# ---- what is tested


def _checks(context: Context, number: int, condition: Value, mask: Value | None) -> list[_Check]:
    assert isinstance(condition.type, TileType)
    if mask is not None:
        return [
            _Check(
                number,
                condition.type.shape,
                ((),) * condition.type.rank,
                (condition, mask),
                _FAILS,
                _FAILS,
            )
        ]
    found = []
    leaves = list(
        dict.fromkeys(
            leaf for leaf, _ in placed_conjuncts(context, condition, identity(condition.type.rank))
        )
    )
    for sum_, pair in _ranges(context, leaves):
        narrow = _overflow(context, number, sum_, *pair)
        if narrow is not None:
            found.append(narrow)
            leaves = [leaf for leaf in leaves if leaf not in pair]
    return found + [_leaf(context, number, leaf) for leaf in leaves]


def _leaf(context: Context, number: int, leaf: Value) -> _Check:
    """A condition as it is, at the ends of the axes along which that is enough."""
    assert isinstance(leaf.type, TileType)
    ends = tuple(_ends(context, leaf, axis) for axis in range(leaf.type.rank))
    shape = tuple(
        1 if places else extent for extent, places in zip(leaf.type.shape, ends, strict=True)
    )
    return _Check(number, shape, ends, (leaf,), _FAILS, _FAILS)


def _ends(context: Context, leaf: Value, axis: int) -> tuple[int, ...]:
    """Coordinates along an axis at which a condition holds only if it holds along all of it.

    There are none where all coordinates must be looked at.
    """
    assert isinstance(leaf.type, TileType)
    operation, last = leaf.definition, leaf.type.shape[axis] - 1
    if last == 0 or leaf in context.buffers or operation is None:
        return () if last else (0,)
    if stride_along(context, leaf, axis) == 0:
        return (0,)
    if not isinstance(operation, Cmp) or operation.predicate not in _ORDERS:
        return ()
    element = element_type(operation.a.type)
    if not isinstance(element, IntType) or not element.signed or element.bits < 32:
        return ()
    left, right = stride_along(context, operation.a, axis), stride_along(context, operation.b, axis)
    if left is None or right is None:
        return ()
    if not isinstance(left, int) or not isinstance(right, int):
        return (0, last)
    growing = (left - right) * _ORDERS[operation.predicate]
    return (last,) if growing > 0 else (0,)


# ---- overflow


def _ranges(context: Context, leaves: Sequence[Value]) -> list[tuple[Value, tuple[Value, ...]]]:
    """Tiles that are compared with two numbers, or with one from above, and these comparisons."""
    found: dict[Value, list[Value]] = {}
    for leaf in leaves:
        operation = leaf.definition
        if (
            not isinstance(operation, Cmp)
            or operation.predicate not in ("le", "ge")
            or leaf in context.buffers
        ):
            continue
        if constant_of(operation.b) is not None and not any(
            _ends(context, leaf, axis) for axis in _long_axes(leaf)
        ):
            found.setdefault(context.resolve(operation.a), []).append(leaf)
    return [(value, tuple(pair)) for value, pair in found.items()]


def _long_axes(value: Value) -> list[int]:
    assert isinstance(value.type, TileType)
    return [axis for axis, extent in enumerate(value.type.shape) if extent > 1]


def _overflow(context: Context, number: int, sum_: Value, *pair: Value) -> _Check | None:
    """Comparisons that test a widened sum, difference or product for overflow, or None.

    They are two, against the limits of the type that the operands were widened from.
    """
    operation = sum_.definition
    if (
        not isinstance(operation, Binary)
        or operation.name not in ("add", "sub", "mul")
        or sum_ in context.buffers
    ):
        return None
    sources = {
        element
        for operand in operation.operands
        if (element := _widened_from(context, operand)) is not None
    }
    if len(sources) != 1:
        return None
    (element,) = sources
    limits = {"le": element.maximum, "ge": element.minimum}
    asked: dict[str, Any] = {
        leaf.definition.predicate: constant_of(leaf.definition.b)
        for leaf in pair
        if isinstance(leaf.definition, Cmp)
    }
    # a product of numbers without a sign is not compared from below
    if any(
        asked.get(predicate, 0 if predicate == "ge" and not element.signed else None) != limit
        for predicate, limit in limits.items()
    ):
        return None
    found = [_narrow(context, operand, element) for operand in operation.operands]
    first, second = found
    operands = tuple(operand for operand in found if isinstance(operand, Value))
    numbers = [
        (position, operand) for position, operand in enumerate(found) if isinstance(operand, int)
    ]
    if len(operands) + len(numbers) < 2 or not any(map(is_tile, operands)):
        return None
    if numbers:
        ((position, other),) = numbers
        scalar = vector = outside(element, *_admitted(operation.name, other, position, element))
    else:
        scalar = vector = overflow(operation.name, element)
        if operation.name == "mul" and element.bits == 32:
            vector = overflow_of_products(element)
    assert isinstance(sum_.type, TileType)
    assert first is not None
    assert second is not None
    return _Check(
        number,
        sum_.type.shape,
        ((),) * sum_.type.rank,
        operands,
        scalar,
        vector,
        Arithmetic(operation.name, element, (first, second)),
    )


def _admitted(name: str, number: int, position: int, element: IntType) -> tuple[int, int]:
    """Minimum and maximum operand whose operation with ``number`` does not overflow.

    ``number`` is at a position of a sum, difference or product.
    """
    minimum, maximum = element.minimum, element.maximum
    if name == "mul":
        if number:
            ends = (maximum, minimum) if number < 0 else (minimum, maximum)
            minimum, maximum = -(-ends[0] // number), ends[1] // number
    elif name == "add":
        minimum, maximum = minimum - number, maximum - number
    elif position == 1:
        minimum, maximum = minimum + number, maximum + number
    else:
        minimum, maximum = number - maximum, number - minimum
    return max(minimum, element.minimum), min(maximum, element.maximum)


def _widened_from(context: Context, value: Value) -> IntType | None:
    """The type that a tile of integers was widened from."""
    operation = context.resolve(value).definition
    if isinstance(operation, Splat):
        operation = operation.x.definition
    if not isinstance(operation, Cast):
        return None
    element, result = element_type(operation.x.type), element_type(operation.result.type)
    if (
        not isinstance(element, IntType)
        or element is I1
        or not isinstance(result, IntType)
        or result.bits <= element.bits
    ):
        return None
    return element if result.signed or not element.signed else None


def _narrow(context: Context, value: Value, element: IntType) -> Value | int | None:
    """The operand of a widening: a tile, a scalar for all elements, or a number of the type."""
    number = constant_of(value)
    if number is not None:
        return int(number) if element.minimum <= number <= element.maximum else None
    operation = context.resolve(value).definition
    if (
        not isinstance(operation, Splat | Cast)
        or _widened_from(context, value) is not element
        or value in context.buffers
    ):
        return None
    if isinstance(operation, Splat):
        source = operation.x.definition
        return source.x if isinstance(source, Cast) and source.x in context.scalars else None
    return operation.x


# ---- how failures are gathered


def _fails(context: Context, accumulated: str, texts: Sequence[str], width: int) -> str:
    """A condition, and a mask where there is one."""
    w, type_ = context.writer, vector_type(I1, width)
    failed = w.emit(f"xor {type_} {texts[0]}, {constant(I1, True, width)}")
    for mask in texts[1:]:
        failed = w.emit(f"and {type_} {failed}, {mask}")
    return w.emit(f"or {type_} {accumulated}, {failed}")


_EITHER: Final = LaneReduction(
    "i1", "false", lambda context, a, b: context.writer.emit(f"or i1 {a}, {b}")
)
_FAILS: Final = FailureAccumulator(I1, 0, _fails, lambda context, accumulated, width: accumulated)


def outside(element: IntType, minimum: int, maximum: int) -> FailureAccumulator:
    """A test for numbers outside two limits: the maximum distance above the lower one, unsigned."""

    def add(context: Context, accumulated: str, texts: Sequence[str], width: int) -> str:
        type_ = vector_type(element, width)
        above = context.writer.emit(f"sub {type_} {texts[0]}, {constant(element, minimum, width)}")
        return context.writer.intrinsic("llvm.umax", type_, [(type_, accumulated), (type_, above)])

    def test(context: Context, accumulated: str, width: int) -> str:
        room = maximum - minimum
        room -= (1 << element.bits) if room > element.maximum else 0
        return context.writer.emit(
            f"icmp ugt {vector_type(element, width)} {accumulated}, "
            f"{constant(element, room, width)}"
        )

    return FailureAccumulator(element, 0, add, test)


def _carry(context: Context, name: str, a: str, b: str, type_: str, signed: bool) -> str:
    """A number whose sign says whether a sum or difference overflows.

    It follows from the signs of the operands and of the result.
    """
    emit, ones = context.writer.emit, "splat (" if type_[0] == "<" else ""
    bits = type_.rsplit(" ", 1)[-1].rstrip(">")
    ones = f"splat ({bits} -1)" if ones else "-1"
    result = emit(f"{name} {type_} {a}, {b}")
    differs = emit(f"xor {type_} {a}, {result}")
    if signed:
        # a sum has neither operand's sign, a difference not the first one's where that is not the
        # second's
        other = emit(f"xor {type_} {b}, {result}" if name == "add" else f"xor {type_} {a}, {b}")
        return emit(f"and {type_} {differs}, {other}")
    if name == "add":
        both, one, rest = (
            emit(f"and {type_} {a}, {b}"),
            emit(f"or {type_} {a}, {b}"),
            emit(f"xor {type_} {result}, {ones}"),
        )
        return emit(f"or {type_} {both}, {emit(f'and {type_} {one}, {rest}')}")
    inverse = emit(f"xor {type_} {a}, {ones}")
    borrow, same = emit(f"and {type_} {inverse}, {b}"), emit(f"or {type_} {inverse}, {b}")
    return emit(f"or {type_} {borrow}, {emit(f'and {type_} {same}, {result}')}")


def overflow(name: str, element: IntType) -> FailureAccumulator:
    """A sum, difference or product that its type does not hold."""

    def add(context: Context, accumulated: str, texts: Sequence[str], width: int) -> str:
        w, type_ = context.writer, vector_type(element, width)
        if name != "mul":
            return w.emit(
                f"or {type_} {accumulated}, "
                f"{_carry(context, name, texts[0], texts[1], type_, element.signed)}"
            )
        flags = vector_type(I1, width)
        result = f"{{ {type_}, {flags} }}"
        suffix = f"v{width}i{element.bits}" if width else f"i{element.bits}"
        both = w.call(
            f"llvm.{'s' if element.signed else 'u'}mul.with.overflow.{suffix}",
            result,
            [(type_, text) for text in texts],
        )
        return w.emit(f"or {flags} {accumulated}, {w.emit(f'extractvalue {result} {both}, 1')}")

    def negative(context: Context, accumulated: str, width: int) -> str:
        return context.writer.emit(
            f"icmp slt {vector_type(element, width)} {accumulated}, {constant(element, 0, width)}"
        )

    return (
        FailureAccumulator(I1, 0, add, _FAILS.test)
        if name == "mul"
        else FailureAccumulator(element, 0, add, negative)
    )


def overflow_of_products(element: IntType) -> FailureAccumulator:
    """A test for products of 32 bits that do not fit.

    The products of the even lanes and of the odd ones are computed in 64 bits, and the bits above
    the lower 32 are accumulated.
    """

    def add(context: Context, accumulated: str, texts: Sequence[str], width: int) -> str:
        w, half = context.writer, width // 2
        source, wide = vector_type(element, width), f"<{half} x i64>"
        shift, far = constant(I64, 32, half), "ashr" if element.signed else "lshr"
        pairs = [w.emit(f"bitcast {source} {text} to {wide}") for text in texts]
        for odd in (False, True):
            factors = [
                w.emit(
                    f"{far} {wide} "
                    f"{pair if odd else w.emit(f'shl {wide} {pair}, {shift}')}, {shift}"
                )
                for pair in pairs
            ]
            product = w.emit(f"mul {wide} {factors[0]}, {factors[1]}")
            if element.signed:
                product = w.emit(f"add {wide} {product}, {constant(I64, 1 << 31, half)}")
            accumulated = w.emit(f"or {wide} {accumulated}, {product}")
        return accumulated

    def test(context: Context, accumulated: str, width: int) -> str:
        return context.writer.emit(
            f"icmp ugt {vector_type(I64, width)} {accumulated}, "
            f"{constant(I64, (1 << 32) - 1, width)}"
        )

    return FailureAccumulator(I64, 0, add, test, pairs=True)


# ---- testing


def _tested(
    context: Context, checks: Sequence[_Check]
) -> tuple[list[Load | Store], dict[int, str]]:
    """Test checks of one shape: the loads that were read whole, and an i1 for each assertion.

    The i1 holds where one of the assertion's conditions fails.
    """
    asked = [check.arithmetic for check in checks if check.arithmetic is not None]
    tiles = tiles_to_range(context, math.prod(checks[0].shape), asked)
    if not tiles:
        plan, failures = _test(context, checks)
        return [] if any(any(check.ends) for check in checks) else plan.accesses, failures
    others, exact = (
        [check for check in checks if check.arithmetic is None],
        [check for check in checks if check.arithmetic is not None],
    )
    failures = _test(context, others)[1] if others else {}
    w = context.writer
    plan, fits = emit_fits(context, checks[0].shape, asked, tiles)
    looked, join, before = w.new_block("exact"), w.new_block("join"), w.current
    w.branch_if(fits, join, looked, likely=True)
    w.place(looked)
    _, found = _test(context, exact)
    end = w.current
    w.branch(join)
    w.place(join)
    for number, text in found.items():
        failed = w.phi("i1", [("false", before), (text, end)])
        failures[number] = (
            w.emit(f"or i1 {failures[number]}, {failed}") if number in failures else failed
        )
    return plan.accesses, failures


def _test(context: Context, checks: Sequence[_Check]) -> tuple[NestPlan, dict[int, str]]:
    """Loops over checks of one shape: their loop nest, and an i1 for each assertion.

    The i1 holds where one of the assertion's conditions fails.
    """
    w = context.writer
    numbers = list(dict.fromkeys(check.assertion for check in checks))

    def carried(width: int) -> list[tuple[str, str]]:
        return [(check.type(width), check.start(width)) for check in checks]

    def add(index: Index, accumulated: Sequence[str], width: int) -> list[str]:
        return [
            check.add(context, text, index, width)
            for check, text in zip(checks, accumulated, strict=True)
        ]

    def ask(accumulated: Sequence[str], width: int) -> list[str]:
        """For each assertion whether one of its checks failed."""
        found: dict[int, str] = {}
        for check, text in zip(checks, accumulated, strict=True):
            failed, earlier = check.failed(context, text, width), found.get(check.assertion)
            found[check.assertion] = (
                failed if earlier is None else w.emit(f"or i1 {earlier}, {failed}")
            )
        return [found[number] for number in numbers]

    tiles = [operand for check in checks for operand in check.operands if is_tile(operand)]
    plan, failures = reduce_lanes(
        context, checks[0].shape, tiles, carried, add, ask, [_EITHER] * len(numbers)
    )
    return plan, dict(zip(numbers, failures, strict=True))


LOWERINGS: dict[str, Callable[[Context, Any], None]] = {"assert": lower_assert}
