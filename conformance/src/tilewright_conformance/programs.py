"""Random tile programs, well defined by construction, as hypothesis strategies.

A program loads tiles from its arguments, applies operations drawn from the op table's own type rules, and stores results. What an operation leaves
undefined is kept out as the program is built: divisors are made non-zero, shift amounts are masked, floats are clamped before they become integers.

Every value is either *exact* (a backend must reproduce it bit for bit) or not: results of math functions and of sums in any order. An inexact value is moved
and stored but not computed with, since a comparison or a rounding could turn a tolerated difference into any other. Its output carries the bound to hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilewright.ir import Builder, Function, Location, Module, Region, Value, verify
from tilewright.ir.types import (
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    FloatType,
    IntType,
    PointerType,
    TileType,
    Type,
    tile_or_scalar,
    with_element,
)

#: Element types of programs' arguments, with their NumPy dtypes.
ELEMENTS: dict[Type, str] = {
    F16: "f2", F32: "f4", F64: "f8", I8: "i1", I16: "i2", I32: "i4", I64: "i8", U8: "u1", U16: "u2", U32: "u4", U64: "u8",
}  # fmt: skip

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Output:
    """Where a program stores one result: argument ``index`` gets ``numel`` elements a program of the grid.

    ``ulp`` bounds the difference in units in the last place of the element type, relative to the larger of the value and ``scale``; 0 asks for equal bits
    (any NaN equals any NaN).
    """

    index: int
    element: Type
    numel: int
    ulp: float
    scale: float


@dataclass(frozen=True)
class Program:
    """A module, its grid, and how to make its arguments."""

    module: Module
    grid: tuple[int, int, int]
    inputs: tuple[tuple[Type, int], ...]
    scalars: tuple[int, ...]
    outputs: tuple[Output, ...]
    seed: int

    def arguments(self) -> list[Any]:
        """Fresh arguments in the function's order: inputs of random data, outputs poisoned, scalars."""
        rng = np.random.default_rng(self.seed)
        made: list[Any] = [random_array(rng, element, count) for element, count in self.inputs]
        for output in self.outputs:
            poison = np.empty(output.numel * self.grid[0], ELEMENTS[output.element])
            poison.view(np.uint8)[:] = 0xA5
            made.append(poison)
        return [*made, *self.scalars]


def random_array(rng: np.random.Generator, element: Type, count: int) -> Array:
    """Random data with a share of special values: zeros of both signs, ones, extremes, and for floats infinities, NaN and subnormals."""
    dtype = np.dtype(ELEMENTS[element])
    if isinstance(element, FloatType):
        data = (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)).astype(dtype)
        info = np.finfo(dtype)
        special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, info.max, info.tiny, info.smallest_subnormal], dtype)
    else:
        data = np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).copy()
        limits = np.iinfo(dtype)
        special = np.array([0, 1, 2, limits.min, limits.max], dtype)
    chosen = rng.random(count) < 0.1
    data[chosen] = rng.choice(special, int(chosen.sum()))
    return data


@dataclass
class _Item:
    """A value of the program with what is known of it. ``bound`` is (ulp, scale) of an inexact one."""

    value: Value
    bound: tuple[float, float] | None = None


@dataclass
class _State:
    """A program being built."""

    draw: Callable[[st.SearchStrategy[Any]], Any]
    builder: Builder
    pool: list[_Item] = field(default_factory=list)
    line: int = 1

    def pick(self, accept: Callable[[_Item], bool]) -> _Item | None:
        found = [item for item in self.pool if accept(item)]
        return self.draw(st.sampled_from(found)) if found else None

    def pick_exact(self, accept: Callable[[Type], bool]) -> Value | None:
        found = self.pick(lambda item: item.bound is None and accept(_element(item.value)))
        return found.value if found is not None else None

    def partner(self, like: Value) -> Value:
        """An exact value of the same type: another, the same, or a constant."""
        found = self.pick_exact_type(like.type)
        if self.draw(st.booleans()) or found is None:
            element = _element(like)
            number = self.draw(st.integers(-3, 3)) if not isinstance(element, IntType) or element.signed else self.draw(st.integers(0, 5))
            return self.builder.constant_like(like.type, number)
        return found

    def pick_exact_type(self, type_: Type) -> Value | None:
        found = self.pick(lambda item: item.bound is None and item.value.type is type_)
        return found.value if found is not None else None

    def add(self, value: Value, bound: tuple[float, float] | None = None) -> None:
        self.pool.append(_Item(value, bound))


def _element(value: Value) -> Type:
    return value.type.element if isinstance(value.type, TileType) else value.type


def _is_int(type_: Type) -> bool:
    return isinstance(type_, IntType) and type_ is not I1


def _is_float(type_: Type) -> bool:
    return isinstance(type_, FloatType)


def _is_number(type_: Type) -> bool:
    return type_ is not I1 and not isinstance(type_, PointerType)


def _positive_zero(builder: Builder, value: Value) -> Value:
    """A float with -0.0 made 0.0: min and max may take the two for equal."""
    zero_kept = not _is_float(_element(value))
    return value if zero_kept else builder.add(value, builder.constant_like(value.type, 0.0))


# ---- steps: each adds values to the pool, or does nothing where nothing fits


def _arithmetic(state: _State) -> None:
    a = state.pick_exact(_is_number)
    if a is not None:
        name = state.draw(st.sampled_from(("add", "sub", "mul", "min", "max")))
        attributes, b = {}, state.partner(a)
        if name in ("min", "max"):
            attributes["nan"] = state.draw(st.sampled_from(("ignore", "propagate")))
            a, b = _positive_zero(state.builder, a), _positive_zero(state.builder, b)
        state.add(getattr(state.builder, name)(a, b, **attributes))


def _divide(state: _State) -> None:
    a = state.pick_exact(_is_number)
    if a is None:
        return
    b, builder = state.partner(a), state.builder
    if _is_int(_element(a)):
        element = _element(a)
        if isinstance(element, IntType) and element.signed:
            b = builder.and_(b, builder.constant_like(a.type, element.maximum))  # INT_MIN / -1 is undefined
        b = builder.or_(b, builder.constant_like(a.type, 1))
        state.add(getattr(builder, state.draw(st.sampled_from(("div", "rem"))))(a, b))
    else:
        state.add(builder.div(a, b))


def _bitwise(state: _State) -> None:
    a = state.pick_exact(lambda type_: isinstance(type_, IntType))
    if a is not None:
        state.add(getattr(state.builder, state.draw(st.sampled_from(("and_", "or_", "xor"))))(a, state.partner(a)))


def _shift(state: _State) -> None:
    a = state.pick_exact(_is_int)
    element = _element(a) if a is not None else None
    if a is not None and isinstance(element, IntType):
        amount = state.builder.and_(state.partner(a), state.builder.constant_like(a.type, element.bits - 1))
        state.add(getattr(state.builder, state.draw(st.sampled_from(("shl", "shr"))))(a, amount))


def _compare(state: _State) -> None:
    a = state.pick_exact(_is_number)
    if a is not None:
        state.add(state.builder.cmp(a, state.partner(a), predicate=state.draw(st.sampled_from(("eq", "ne", "lt", "le", "gt", "ge")))))


def _select(state: _State) -> None:
    a = state.pick_exact(lambda type_: True)
    if a is not None:
        condition = state.pick_exact_type(with_element(a.type, I1))
        if condition is not None:
            state.add(state.builder.select(condition, a, state.partner(a)))


def _unary(state: _State) -> None:
    a = state.pick_exact(_is_number)
    if a is not None:
        names: tuple[str, ...] = ("neg", "abs")
        if _element(a) in (F32, F64):
            names = (*names, "floor", "ceil", "trunc", "round_even", "sqrt")
        elif _is_int(_element(a)):
            names = (*names, "clz", "popcount")
        state.add(getattr(state.builder, state.draw(st.sampled_from(names)))(a))


def _cast(state: _State) -> None:
    a = state.pick_exact(lambda type_: True)
    if a is None:
        return
    builder, source = state.builder, _element(a)
    floats: tuple[Type, ...] = (F16, F32, F64) if isinstance(source, FloatType) else ()
    target = state.draw(st.sampled_from((*ELEMENTS, *floats, *floats)))  # among floats, where roundings are, as often as to integers
    if isinstance(source, FloatType) and isinstance(target, IntType):
        # Out of range is undefined: clamp to what every integer type (and f16) can hold, and let NaN become 0.
        low, high = (-100.0, 100.0) if target.signed else (0.0, 100.0)
        a = builder.select(builder.cmp(a, a, predicate="eq"), a, builder.constant_like(a.type, 0.0))
        a = builder.max(builder.min(a, builder.constant_like(a.type, high)), builder.constant_like(a.type, low))
    if source is not target:
        state.add(builder.cast(a, result=with_element(a.type, target)))


def _math(state: _State) -> None:
    a = state.pick_exact(lambda type_: type_ in (F32, F64))
    if a is not None:
        name = state.draw(st.sampled_from(("exp", "exp2", "log", "log2", "sin", "cos", "tanh", "erf", "rsqrt")))
        # Two correctly rounded neighbours, plus the bound of the table, which is below 3 for all of these.
        state.add(getattr(state.builder, name)(a), (4.0, 0.0))


def _rearrange(state: _State) -> None:
    item = state.pick(lambda item: isinstance(item.value.type, TileType))
    if item is None or not isinstance(item.value.type, TileType):
        return
    value, type_, builder = item.value, item.value.type, state.builder
    kind = state.draw(st.sampled_from(("expand_dims", "permute", "reshape", "broadcast", "join", "cat")))
    if kind == "expand_dims" and type_.rank < 3:
        state.add(builder.expand_dims(value, axis=state.draw(st.integers(0, type_.rank))), item.bound)
    elif kind == "permute" and type_.rank > 1:
        orders = [order for order in itertools.permutations(range(type_.rank)) if order != tuple(range(type_.rank))]
        state.add(builder.permute(value, order=state.draw(st.sampled_from(orders))), item.bound)
    elif kind == "reshape":
        first = state.draw(st.sampled_from([extent for extent in (1, 2, 4, 8) if type_.numel % extent == 0]))
        state.add(builder.reshape(value, result=TileType((first, type_.numel // first), type_.element)), item.bound)
    elif kind == "broadcast" and 1 in type_.shape and type_.numel <= 256:
        shape = tuple(4 if extent == 1 else extent for extent in type_.shape)
        state.add(builder.broadcast(value, result=TileType(shape, type_.element)), item.bound)
    elif kind == "join" and type_.rank < 3 and type_.numel <= 256:
        state.add(builder.join(value, state.partner(value) if item.bound is None else value), item.bound)
    elif kind == "cat" and type_.numel <= 256:
        other = state.partner(value) if item.bound is None else value
        state.add(builder.cat(value, other, axis=state.draw(st.integers(0, type_.rank - 1))), item.bound)


def _combine_region(builder: Builder, element: Type, name: str) -> Region:
    region = Region([element, element], ["left", "right"])
    with builder.at_region(region):
        builder.yield_([getattr(builder, name)(*region.arguments)])
    return region


def _reduce_or_scan(state: _State) -> None:
    item = state.pick(lambda item: item.bound is None and isinstance(item.value.type, TileType) and _is_number(_element(item.value)))
    if item is None or not isinstance(item.value.type, TileType):
        return
    type_, builder = item.value.type, state.builder
    axis = state.draw(st.integers(0, type_.rank - 1))
    name = state.draw(st.sampled_from(("min", "max") if _is_float(type_.element) else ("add", "min", "max", "and_", "or_", "xor", "mul")))
    value = item.value
    if _is_float(type_.element):  # which of -0.0 and 0.0 is the smaller is open, and so is the result of a chain of NaN-ignoring steps on NaN
        finite = builder.cmp(builder.sub(value, value), builder.constant_like(type_, 0.0), predicate="eq")
        value = builder.select(finite, builder.add(value, builder.constant_like(type_, 0.0)), builder.constant_like(type_, 1.0))
    region = _combine_region(builder, type_.element, name)
    if state.draw(st.booleans()):
        operation = builder.region_op("reduce", [value], regions=[region], axis=axis)
    else:
        operation = builder.region_op("scan", [value], regions=[region], axis=axis, reverse=state.draw(st.booleans()))
    state.add(operation.results[0])


def _float_sum(state: _State) -> None:
    item = state.pick(lambda item: item.bound is None and isinstance(item.value.type, TileType) and _element(item.value) in (F32, F64))
    if item is None or not isinstance(item.value.type, TileType):
        return
    builder, type_ = state.builder, item.value.type
    axis = state.draw(st.integers(0, type_.rank - 1))
    one = builder.constant_like(type_, 1.0)
    bounded = builder.max(builder.min(item.value, one), builder.neg(one))
    bounded = builder.select(builder.cmp(item.value, item.value, predicate="eq"), bounded, one)
    operation = builder.region_op("reduce", [bounded], regions=[_combine_region(builder, type_.element, "add")], axis=axis)
    extent = type_.shape[axis]
    state.add(operation.results[0], (float(extent), float(extent)))


def _dot(state: _State) -> None:
    item = state.pick(lambda item: item.bound is None and isinstance(item.value.type, TileType) and item.value.type.rank == 2 and _element(item.value) is F32)
    if item is None or not isinstance(item.value.type, TileType):
        return
    builder, type_ = state.builder, item.value.type
    if type_.numel > 1024:
        return
    one = builder.constant_like(type_, 1.0)
    bounded = builder.select(builder.cmp(item.value, item.value, predicate="eq"), builder.max(builder.min(item.value, one), builder.neg(one)), one)
    m, k = type_.shape
    zero = builder.constant_like(TileType((m, m), F32), 0.0)
    state.add(builder.dot(bounded, builder.permute(bounded, order=(1, 0)), zero), (float(2 * k), float(k)))


def _loop(state: _State) -> None:
    """A counted loop that carries an exact value through an integer-safe update."""
    start = state.pick_exact(_is_number)
    if start is None:
        return
    builder = state.builder
    other = state.partner(start)
    body = Region([I32, start.type], ["i", "carried"])
    name = state.draw(st.sampled_from(("add", "sub") if _is_float(_element(start)) else ("add", "sub", "min", "max")))
    with builder.at_region(body):
        step = builder.cast(body.arguments[0], result=_element(start))
        step = builder.splat(step, result=start.type) if isinstance(start.type, TileType) else step
        builder.yield_([getattr(builder, name)(builder.add(body.arguments[1], step), other)])
    low, high, by = (builder.constant_like(I32, state.draw(st.integers(*limits))) for limits in ((-2, 3), (-2, 6), (1, 3)))
    operation = builder.region_op("for", low, high, by, [start], regions=[body])
    state.add(operation.results[0])


def _branch(state: _State) -> None:
    then = state.pick_exact(_is_number)
    if then is None:
        return
    builder = state.builder
    condition = builder.cmp(builder.program_id(axis=0), builder.constant_like(I32, state.draw(st.integers(0, 2))), predicate="lt")
    regions = []
    for name in state.draw(st.permutations(("add", "sub", "mul")))[:2]:
        region = Region()
        with builder.at_region(region):
            builder.yield_([getattr(builder, name)(then, then)])
        regions.append(region)
    state.add(builder.region_op("if", condition, regions=regions, results=[then.type]).results[0])


STEPS: tuple[Callable[[_State], None], ...] = (
    _arithmetic, _arithmetic, _divide, _bitwise, _shift, _compare, _select, _unary, _cast, _math, _rearrange, _rearrange, _reduce_or_scan, _float_sum, _dot,
    _loop, _branch,
)  # fmt: skip


@st.composite
def programs(draw: Callable[[st.SearchStrategy[Any]], Any], max_steps: int = 24) -> Program:
    """A well-defined program on one to three input arrays, over a grid of one to three programs."""
    shape = draw(st.sampled_from(((1,), (2,), (8,), (16,), (64,), (256,), (4, 8), (16, 16), (2, 32), (1, 16), (8, 1), (2, 4, 8))))
    elements = draw(st.lists(st.sampled_from(tuple(ELEMENTS)), min_size=1, max_size=3))
    numel = int(np.prod(shape))
    programs_in_grid = draw(st.integers(1, 3))
    limit = draw(st.integers(0, numel * programs_in_grid))

    body = Function("program", [], kernel=True)
    builder = Builder.at_end(body.body, Location("program", 1))
    state = _State(draw, builder)
    pointers = [_argument(body, PointerType(element), f"x{index}") for index, element in enumerate(elements)]
    limit_value = _argument(body, I32, "n")
    pid = builder.program_id(axis=0)
    offsets = builder.add(
        builder.splat(builder.mul(pid, builder.constant_like(I32, numel)), result=TileType((numel,), I32)), builder.arange(start=0, end=numel)
    )
    mask = builder.cmp(offsets, builder.splat(limit_value, result=offsets.type), predicate="lt")
    for pointer, element in zip(pointers, elements, strict=True):
        addresses = builder.addptr(builder.splat(pointer, result=TileType((numel,), pointer.type)), offsets)
        other = builder.constant_like(TileType((numel,), element), 1)
        masked = draw(st.booleans())
        loaded = builder.load(addresses, mask=mask, other=other) if masked else builder.load(addresses)
        if len(shape) > 1:
            loaded = builder.reshape(loaded, result=TileType(shape, element))
        state.add(loaded)
    state.add(pid)
    for _ in range(draw(st.integers(min(4, max_steps), max_steps))):
        state.line += 1
        builder.location = Location("program", state.line)
        draw(st.sampled_from(STEPS))(state)
    outputs = _store_results(state, body, pid, len(elements))
    builder.return_()
    _order_arguments(body, limit_value)
    module = Module()
    module.add(body)
    verify(module)
    inputs = tuple((element, numel * programs_in_grid) for element in elements)
    return Program(module, (programs_in_grid, 1, 1), inputs, (limit,), outputs, draw(st.integers(0, 2**32 - 1)))


def _argument(function: Function, type_: Type, name: str) -> Value:
    function.argument_attributes.append({})
    return function.body.add_argument(type_, name)


def _order_arguments(function: Function, last: Value) -> None:
    """Put the scalar argument behind the pointers."""
    function.arguments.sort(key=lambda argument: argument is last)


def _store_results(state: _State, function: Function, pid: Value, first: int) -> tuple[Output, ...]:
    """Store up to eight of the values, the last one always: what is not stored, and leads to nothing that is, does not count."""
    builder = state.builder
    chosen = state.draw(st.lists(st.sampled_from(range(len(state.pool))), min_size=min(4, len(state.pool)), max_size=7, unique=True))
    outputs: list[Output] = []
    for position in dict.fromkeys([len(state.pool) - 1, *chosen]):
        item = state.pool[position]
        value = item.value
        if _element(value) is I1:
            value = builder.cast(value, result=with_element(value.type, U8))
        element = _element(value)
        numel = value.type.numel if isinstance(value.type, TileType) else 1
        pointer = _argument(function, PointerType(element), f"out{len(outputs)}")
        base = builder.addptr(pointer, builder.mul(pid, builder.constant_like(I32, numel)))
        if isinstance(value.type, TileType):
            flat = value if value.type.rank == 1 else builder.reshape(value, result=tile_or_scalar((numel,), element))
            base = builder.addptr(builder.splat(base, result=TileType((numel,), pointer.type)), builder.arange(start=0, end=numel))
            builder.store(base, flat)
        else:
            builder.store(base, value)
        ulp, scale = item.bound or (0.0, 0.0)
        outputs.append(Output(first + len(outputs), element, numel, ulp, scale))
    return tuple(outputs)


def mismatch(output: Output, expected: Array, found: Array) -> str:
    """What is wrong with an output; empty where nothing is."""
    if output.ulp == 0:
        same = expected.view(np.uint8).reshape(expected.size, -1) == found.view(np.uint8).reshape(found.size, -1)
        equal = same.all(axis=1)
        if isinstance(output.element, FloatType):
            equal |= np.isnan(expected) & np.isnan(found)
    else:
        with np.errstate(all="ignore"):
            unit = np.spacing(np.maximum(np.abs(expected), expected.dtype.type(output.scale)))
            near = np.abs(found.astype(np.float64) - expected.astype(np.float64)) <= output.ulp * unit.astype(np.float64)
        equal = near | (expected == found) | (np.isnan(expected) & np.isnan(found))
    if equal.all():
        return ""
    where = int(np.flatnonzero(~equal)[0])
    return f"{int((~equal).sum())} of {equal.size} elements differ; the first at {where}: expected {expected[where]!r}, found {found[where]!r}"
