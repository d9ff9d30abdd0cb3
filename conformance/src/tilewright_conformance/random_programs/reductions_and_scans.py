"""Steps over regions of elements, reductions, scans and maps, and matmuls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import Builder, Region, Value
from tilewright.ir.ops.linear import SCALED_FORMATS
from tilewright.ir.types import (
    F8E4B15,
    F8E4M3FN,
    F32,
    I8,
    I32,
    U8,
    FloatType,
    IntType,
    TileType,
    Type,
)
from tilewright_conformance.random_programs import expressions
from tilewright_conformance.random_programs.expressions import computes
from tilewright_conformance.random_programs.state import State, is_float, is_int, is_wide_float

Combine = Callable[[Builder, Sequence[Value], Sequence[Value]], Sequence[Value]]

_INTEGER_FOLDS = ("add", "mul", "min", "max", "and_", "or_", "xor")


def _operation(name: str) -> Combine:
    return lambda b, left, right: [getattr(b, name)(left[0], right[0])]


def _extreme_with_position(predicate: str, tie: str) -> Combine:
    """The greater or smaller of two values with its position; ties go to the first or last."""

    def combine(b: Builder, left: Sequence[Value], right: Sequence[Value]) -> Sequence[Value]:
        better = b.cmp(left[0], right[0], predicate=predicate)
        same = b.and_(
            b.cmp(left[0], right[0], predicate="eq"), b.cmp(left[1], right[1], predicate=tie)
        )
        taken = b.or_(better, same)
        return [b.select(taken, left[0], right[0]), b.select(taken, left[1], right[1])]

    return combine


def _each(names: Sequence[str]) -> Combine:
    return lambda b, left, right: [
        getattr(b, name)(x, y) for name, x, y in zip(names, left, right, strict=True)
    ]


def _affine(b: Builder, left: Sequence[Value], right: Sequence[Value]) -> Sequence[Value]:
    """x -> p x + q, one after the other: the order counts."""
    return [b.mul(left[0], right[0]), b.add(b.mul(right[0], left[1]), right[1])]


def _latest(b: Builder, left: Sequence[Value], right: Sequence[Value]) -> Sequence[Value]:
    """The later one unless that is zero: the order counts."""
    empty = b.cmp(right[0], b.constant_like(right[0].type, 0), predicate="eq")
    return [b.select(empty, left[0], right[0])]


def _fold(
    state: State,
    name: str,
    inputs: Sequence[Value],
    combine: Combine,
    bound: tuple[float, float] | None = None,
    **attributes: Any,
) -> None:
    elements = [value.type.element for value in inputs if isinstance(value.type, TileType)]
    region = Region(
        [*elements, *elements],
        [*(f"left{i}" for i in range(len(elements))), *(f"right{i}" for i in range(len(elements)))],
    )
    with state.builder.at_region(region), state.guarding() as b:
        half = len(elements)
        b.yield_(combine(b, region.arguments[:half], region.arguments[half:]))
    for result in state.builder.region_op(
        name, list(inputs), regions=[region], **attributes
    ).results:
        state.add(result, bound)


def _input(state: State) -> tuple[Value, TileType, int] | None:
    value = state.exact_tile(lambda type_: computes(type_.element))
    if value is None:
        return None
    assert isinstance(value.type, TileType)
    return state.ordered(value), value.type, state.number(0, value.type.rank - 1)


def reduce(state: State) -> None:
    found = _input(state)
    if found is None:
        return
    value, type_, axis = found
    kind = state.number(0, 3)
    if kind == 0:
        predicate, tie = state.one_of(("gt", "lt")), state.one_of(("lt", "lt", "gt"))
        # few different values, so that there are ties
        if is_int(type_.element) and state.chance(2):
            with state.guarding() as b:
                value = b.and_(value, b.constant_like(type_, 3))
        _fold(
            state,
            "reduce",
            [value, state.along(type_.shape, axis)],
            _extreme_with_position(predicate, tie),
            axis=axis,
        )
    elif kind == 1:
        other = state.integers(type_.shape)
        names = [
            state.one_of(("min", "max") if is_float(type_.element) else _INTEGER_FOLDS),
            state.one_of(("add", "max", "xor")),
        ]
        _fold(state, "reduce", [value, other], _each(names), axis=axis)
    else:
        name = state.one_of(("min", "max") if is_float(type_.element) else _INTEGER_FOLDS)
        _fold(state, "reduce", [value], _operation(name), axis=axis)


def scan(state: State) -> None:
    found = _input(state)
    if found is None:
        return
    value, type_, axis = found
    attributes: dict[str, Any] = {"axis": axis, "reverse": state.chance(2)}
    kind = state.number(0, 4)
    if kind == 0:
        _fold(
            state,
            "scan",
            [value, state.along(type_.shape, axis)],
            _extreme_with_position("gt", "lt"),
            **attributes,
        )
    elif kind == 1 and is_int(type_.element):
        _fold(state, "scan", [value, state.partner(value)], _affine, **attributes)
    elif kind == 2:
        _fold(state, "scan", [value], _latest, **attributes)
    else:
        name = state.one_of(("min", "max") if is_float(type_.element) else _INTEGER_FOLDS)
        _fold(state, "scan", [value], _operation(name), **attributes)


def exact_sum(state: State) -> None:
    """Add up small integers in a float type, exactly in any order."""
    tile = state.exact_tile(lambda type_: True)
    floats = [type_ for type_ in state.language.floats if not type_.is_fp8]
    if tile is None or not floats:
        return
    assert isinstance(tile.type, TileType)
    element, axis = state.one_of(floats), state.number(0, tile.type.rank - 1)
    room = element.mantissa + 1 - tile.type.shape[axis].bit_length()
    if room >= 2:
        value = state.whole(TileType(tile.type.shape, element), min(room, 8))
        name = state.one_of(("reduce", "scan"))
        attributes: dict[str, Any] = {"reverse": state.chance(2)} if name == "scan" else {}
        _fold(state, name, [value], _operation("add"), axis=axis, **attributes)


def rounded_sum(state: State) -> None:
    """Add up floats of magnitude up to one, in whatever order."""
    value = state.exact_tile(lambda type_: is_wide_float(type_.element))
    if value is None:
        return
    type_ = value.type
    assert isinstance(type_, TileType)
    value = state.settled(value)
    with state.guarding() as b:
        one = b.constant_like(type_, 1.0)
        bounded = b.max(b.min(value, one), b.neg(one))
    axis = state.number(0, type_.rank - 1)
    extent = float(type_.shape[axis])
    _fold(state, "reduce", [bounded], _operation("add"), (extent, extent), axis=axis)


def elementwise_region(state: State) -> None:
    """A map: a body of scalar steps over every pack of elements."""
    first = state.exact_tile(lambda type_: True)
    if first is None:
        return
    assert isinstance(first.type, TileType)
    shape, numel = first.type.shape, first.type.numel
    inputs = [first]
    second = state.exact_tile(lambda type_: type_.shape == shape)
    if second is not None and state.chance(2):
        inputs.append(second)
    pack = state.one_of([pack for pack in (1, 2, 4) if numel % pack == 0])
    elements = [value.type.element for value in inputs if isinstance(value.type, TileType)]
    region = Region(
        [element for element in elements for _ in range(pack)],
        [f"x{i}" for i in range(pack * len(elements))],
    )
    results: list[Type] = []
    with state.inside(region, region.arguments, closed=True):
        steps(state, state.number(1, 4), expressions.STEPS)
        yielded: list[Value] = []
        for _ in range(state.number(1, 2)):
            item = state.pick(lambda item: item.bound is None)
            assert item is not None
            yielded += [item.value, *(state.of(item.type) for _ in range(pack - 1))]
            results.append(TileType(shape, item.type))
        state.builder.yield_(yielded)
    for result in state.builder.region_op(
        "map", inputs, regions=[region], results=results, pack=pack
    ).results:
        state.add(result)


def steps(state: State, how_many: int, table: dict[Callable[[State], None], int]) -> None:
    """Draw steps from a table."""
    choices = [step for step, weight in table.items() for _ in range(weight)]
    for _ in range(how_many):
        state.one_of(choices)(state)


# ---- matmuls


def _room(element: Type) -> int:
    """Bits of an integer that the type holds."""
    return element.mantissa + 1 if isinstance(element, FloatType) else 24


def _scale(element: Type) -> float:
    """A factor that brings whole numbers of four bits into the type's range."""
    return 0.125 if element is F8E4B15 else 1.0


def dot(state: State) -> None:
    """Add a matmul of whole numbers, whose accumulation is exact in every order."""
    if not state.language.dots:
        return
    operand, accumulator = state.one_of(state.language.dots)
    minimum = state.language.capabilities.min_dot
    m, n, k = (max(minimum[i], state.one_of((1, 2, 4, 8, 16, 16, 32))) for i in range(3))
    batch: tuple[int, ...] = (2,) if state.chance(4) else ()
    if not state.language.fits((*batch, m, k), (*batch, k, n), (*batch, m, n)):
        return
    attributes: dict[str, Any] = {}
    if operand is F32 and state.chance(3):
        attributes["precision"] = state.one_of(state.language.capabilities.dot_precisions)
    left_type, right_type = operand, operand
    fp8 = isinstance(operand, FloatType) and operand.is_fp8
    if operand in (I8, U8) or fp8:  # operands of different types of one kind
        kinds = [
            type_
            for type_, other in state.language.dots
            if other is accumulator
            and (type_ in (I8, U8) if not fp8 else is_float(type_) and type_.bits == 8)
        ]
        right_type = state.one_of(kinds)
    left_bits, right_bits = (
        min(_room(type_), limit) for type_, limit in ((left_type, 14), (right_type, 4))
    )
    if attributes.get("precision", "ieee") != "ieee":
        left_bits = min(left_bits, 8)
    accumulator_bits = (14 if fp8 else _room(accumulator)) - k.bit_length() - 1
    left_bits = min(left_bits, accumulator_bits - right_bits)
    if isinstance(operand, IntType):
        left_bits = right_bits = 8
    if left_bits < 2:
        return
    scales = _scale(left_type), _scale(right_type)
    a = _matrix(state, (*batch, m, k), left_type, left_bits, scales[0])
    b = _matrix(state, (*batch, k, n), right_type, right_bits, scales[1])
    c = _matrix(
        state,
        (*batch, m, n),
        accumulator,
        min(left_bits + right_bits, accumulator_bits),
        scales[0] * scales[1],
    )
    if state.number(0, 2):
        state.add(state.builder.dot(a, b, c, **attributes))
        return
    # The accumulator's initial value may be added in any order. That is exact for whole numbers
    # alone, so nothing computes with the matmul without one.
    matmul = state.builder.dot(a, b, state.builder.constant_like(c.type, 0), **attributes)
    if isinstance(accumulator, IntType) or state.chance(2):
        state.add(matmul, None if isinstance(accumulator, IntType) else (0.0, 0.0))
    else:
        with state.guarding() as guard:
            state.add(guard.add(matmul, c))


def _matrix(state: State, shape: tuple[int, ...], element: Type, bits: int, scale: float) -> Value:
    """Whole numbers, as they are or transposed."""
    if state.chance(3):
        order = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        transposed = state.whole(
            TileType(tuple(shape[axis] for axis in order), element), bits, scale
        )
        found: Value = state.builder.permute(transposed, order=order)
        return found
    return state.whole(TileType(shape, element), bits, scale)


def scaled_dot(state: State) -> None:
    """Add a matmul of block-scaled operands whose accumulation is exact."""
    if not state.language.feature("dot_scaled"):
        return
    formats = [name for name, type_ in SCALED_FORMATS.items() if state.language.has(type_)]
    kinds = [type_ for type_ in (U8, F8E4M3FN) if state.language.has(type_)]
    if not formats or not kinds or not state.language.has(F32):
        return
    m, n, k = state.one_of((16, 32)), state.one_of((16, 32)), state.one_of((32, 64))
    scale = state.one_of(kinds)
    group = 16 if scale is F8E4M3FN else 32
    if not state.language.fits((m, k), (k, n)):
        return
    attributes: dict[str, Any] = {}
    operands: dict[str, Value | None] = {}
    for name, outer in (("a", m), ("b", n)):
        format_ = state.one_of(formats)
        extents = [outer, k] if name == "a" else [k, outer]
        attributes[f"{name}_format"] = format_
        if format_ == "e2m1":
            pack = attributes[f"{name}_pack_k"] = state.chance(2)
            extents[(1 if name == "a" else 0) ^ (not pack)] //= 2
        operands[name] = state.whole(
            TileType(tuple(extents), SCALED_FORMATS[format_]), 8 if format_ == "e2m1" else 3
        )
        operands[f"{name}_scale"] = (
            _scales(state, (outer, k // group), scale) if state.number(0, 3) else None
        )
    c = state.whole(TileType((m, n), F32), 8)
    state.add(
        state.builder.dot_scaled(
            operands["a"], operands["a_scale"], operands["b"], operands["b_scale"], c, **attributes
        )
    )


def _scales(state: State, shape: tuple[int, ...], kind: Type) -> Value:
    """Powers of two near one; as whole numbers of e4m3, one to four."""
    numbers = state.whole(TileType(shape, I32), 2)
    with state.guarding() as b:
        found: Value
        if kind is U8:
            found = b.cast(
                b.add(numbers, b.constant_like(numbers.type, 127)), result=TileType(shape, U8)
            )
        else:
            found = b.cast(
                b.add(numbers, b.constant_like(numbers.type, 3)), result=TileType(shape, kind)
            )
    return found


STEPS: dict[Callable[[State], None], int] = {
    reduce: 8,
    scan: 5,
    exact_sum: 2,
    rounded_sum: 2,
    elementwise_region: 3,
    dot: 8,
    scaled_dot: 1,
}
