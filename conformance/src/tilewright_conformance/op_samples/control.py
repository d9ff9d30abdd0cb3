"""Control flow, reductions, scans, maps, calls, and the terminators that occur only with them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.ir import Builder, Function, Value
from tilewright.ir.types import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I32,
    I64,
    U8,
    U32,
    FloatType,
    IntType,
    TileType,
    Type,
    with_element,
)
from tilewright_conformance.op_samples.kernel import (
    ANY,
    INTEGRAL,
    SPECIAL,
    ZEROS,
    Draw,
    Sample,
    SampleKernel,
    shape_text,
    shapes_for,
)

Samples = Iterator[Sample]
Combine = Callable[..., Any]


# if, for, while


def _if() -> Samples:
    for index, type_ in enumerate((F32, I32, I64, F16, I1, BF16)):
        for shape in shapes_for(index):
            kernel = SampleKernel(f"if/{type_}/{shape_text(shape)}")
            b = kernel.b
            x, y = kernel.load(type_, shape), kernel.load(type_, shape)
            combine = b.xor if type_ is I1 else b.add
            then = kernel.region((), lambda x=x, y=y, f=combine: f(x, y))
            otherwise = kernel.region((), lambda y=y: y)
            results = [x.type]
            kernel.store(
                b.region_op(
                    "if", kernel.load(I1), regions=[then, otherwise], results=results
                ).result
            )
            yield kernel.finish()
    kernel = SampleKernel("if/several_results", grid=(4, 1, 1))
    b = kernel.b
    out = kernel.pointer(I32, (4, 2), ZEROS, output=True)
    pid = b.program_id(axis=0)
    odd = b.cmp(b.and_(pid, kernel.constant(I32, 1)), kernel.constant(I32, 0), predicate="ne")
    then = kernel.region((), lambda: (b.mul(pid, pid), pid))
    otherwise = kernel.region((), lambda: (pid, b.neg(pid)))
    found = b.region_op("if", odd, regions=[then, otherwise], results=[I32, I32])
    for position, value in enumerate(found.results):
        b.store(
            b.addptr(
                out, b.add(b.mul(pid, kernel.constant(I32, 2)), kernel.constant(I32, position))
            ),
            value,
        )
    yield kernel.finish()
    kernel = SampleKernel("if/effects", grid=(8, 1, 1))
    b = kernel.b
    out = kernel.pointer(I32, (8,), ANY, output=True)
    pid = b.program_id(axis=0)
    place = b.addptr(out, pid)
    then = kernel.region((), lambda: b.store(place, pid))
    otherwise = kernel.region((), lambda: None)
    b.region_op(
        "if",
        b.cmp(b.load(place), kernel.constant(I32, 0), predicate="gt"),
        regions=[then, otherwise],
    )
    yield kernel.finish()
    kernel = SampleKernel("if/nested")
    b = kernel.b
    tile = kernel.load(F32, (8,))
    inner_condition = kernel.load(I1)

    def nested() -> Value:
        regions = [kernel.region((), lambda: b.neg(tile)), kernel.region((), lambda: b.abs(tile))]
        return b.region_op("if", inner_condition, regions=regions, results=[tile.type]).result

    regions = [kernel.region((), nested), kernel.region((), lambda: tile)]
    kernel.store(b.region_op("if", kernel.load(I1), regions=regions, results=[tile.type]).result)
    yield kernel.finish()


def _bounds(kernel: SampleKernel, type_: IntType, values: Sequence[int]) -> list[Value]:
    return [kernel.scalar(type_, Draw(value, value)) for value in values]


def _for() -> Samples:
    for type_, bounds in (
        (I32, (0, 5, 1)),
        (I32, (3, 20, 4)),
        (I32, (-6, 7, 3)),
        (I32, (5, 5, 1)),
        (I32, (7, 2, 2)),
        (I64, (1, 2, 10)),
        (U32, (2**31 - 2, 2**31 + 3, 2)),
        (I8, (-3, 4, 2)),
        (U8, (0, 250, 100)),
        (I64, (2**40, 2**40 + 3, 1)),
    ):
        kernel = SampleKernel(f"for/{type_}/{'_'.join(map(str, bounds))}")
        b = kernel.b
        tile = kernel.load(F32, (4, 8), INTEGRAL)

        def body(
            i: Value, count: Value, total: Value, kernel: SampleKernel = kernel, tile: Value = tile
        ) -> Any:
            factor = kernel.b.cast(kernel.b.cast(i, result=U8), result=F32)
            return kernel.b.add(count, i), kernel.b.add(
                total, kernel.b.mul(tile, kernel.b.splat(factor, result=tile.type))
            )

        region = kernel.region((type_, type_, tile.type), body, names=("i", "count", "total"))
        first = [kernel.constant(type_, 0), kernel.constant(tile.type, 0.0)]
        for result in b.region_op(
            "for", *_bounds(kernel, type_, bounds), first, regions=[region]
        ).results:
            kernel.store(result)
        yield kernel.finish()
    for attributes in (
        {"num_stages": 3},
        {"unroll": 4},
        {"flatten": True},
        {"warp_specialize": True},
        {"single_accumulator": True},
        {"no_licm": True},
    ):
        ((name, setting),) = attributes.items()
        kernel = SampleKernel(f"for/{name}")
        given: dict[str, Any] = {name: setting}
        kernel.store(_summed_rows(kernel, 6, given))
        yield kernel.finish()
    kernel = SampleKernel("for/effects")
    b = kernel.b
    out = kernel.pointer(I32, (8,), ZEROS, output=True)
    region = kernel.region((I32,), lambda i: b.store(b.addptr(out, i), b.mul(i, i)))
    b.region_op("for", *_bounds(kernel, I32, (0, 8, 1)), [], regions=[region])
    yield kernel.finish()
    kernel = SampleKernel("for/nested")
    b = kernel.b

    def outer(i: Value, total: Value) -> Value:
        region = kernel.region(
            (I32, I32), lambda j, sum_: b.add(sum_, b.mul(i, j)), names=("j", "sum")
        )
        return b.region_op(
            "for", kernel.constant(I32, 0), i, kernel.constant(I32, 1), [total], regions=[region]
        ).result

    region = kernel.region((I32, I32), outer, names=("i", "total"))
    kernel.store(
        b.region_op(
            "for", *_bounds(kernel, I32, (0, 6, 1)), [kernel.load(I32)], regions=[region]
        ).result
    )
    yield kernel.finish()
    kernel = SampleKernel("for/swapped")
    region = kernel.region((I32, I32, I32), lambda i, a, b_: (b_, a), names=("i", "a", "b"))
    inits = [kernel.load(I32), kernel.load(I32)]
    for result in kernel.b.region_op(
        "for", *_bounds(kernel, I32, (0, 3, 1)), inits, regions=[region]
    ).results:
        kernel.store(result)
    yield kernel.finish()
    kernel = SampleKernel("for/pointers")
    b = kernel.b
    pointers = kernel.pointers(kernel.pointer(F32, (4, 16), INTEGRAL), (16,))

    def advance(i: Value, pointers: Value, total: Value) -> Any:
        step = b.splat(kernel.constant(I32, 16), result=with_element(total.type, I32))
        return b.addptr(pointers, step), b.add(total, b.load(pointers))

    zero = kernel.constant(TileType((16,), F32), 0.0)
    region = kernel.region((I32, pointers.type, zero.type), advance, names=("i", "p", "total"))
    kernel.store(
        b.region_op(
            "for", *_bounds(kernel, I32, (0, 4, 1)), [pointers, zero], regions=[region]
        ).results[1]
    )
    yield kernel.finish()


def _summed_rows(kernel: SampleKernel, rows: int, attributes: dict[str, Any]) -> Value:
    """The sum of an array's rows, a row an iteration."""
    b = kernel.b
    base = kernel.pointer(F32, (rows, 32), INTEGRAL)

    def body(i: Value, total: Value) -> Value:
        start = b.addptr(base, b.mul(i, kernel.constant(I32, 32)))
        value: Value = b.add(total, b.load(kernel.pointers(start, (32,))))
        return value

    zero = kernel.constant(TileType((32,), F32), 0.0)
    region = kernel.region((I32, zero.type), body, names=("i", "total"))
    kernel.offsets((32,))
    result: Value = b.region_op(
        "for", *_bounds(kernel, I32, (0, rows, 1)), [zero], regions=[region], **attributes
    ).result
    return result


def _while() -> Samples:
    kernel = SampleKernel("while/i32/collatz")
    b = kernel.b
    one, two, three = (kernel.constant(I32, value) for value in (1, 2, 3))

    def before(n: Value, steps: Value) -> Any:
        return b.cmp(n, one, predicate="ne"), n, steps

    def after(n: Value, steps: Value) -> Any:
        even = b.cmp(b.rem(n, two), kernel.constant(I32, 0), predicate="eq")
        following = b.select(even, b.div(n, two), b.add(b.mul(n, three), one))
        return following, b.add(steps, one)

    regions = [
        kernel.region((I32, I32), before, "condition", ("n", "steps")),
        kernel.region((I32, I32), after, names=("n", "steps")),
    ]
    results = b.region_op(
        "while",
        [kernel.load(I32, (), Draw(1, 50)), kernel.constant(I32, 0)],
        regions=regions,
        results=[I32, I32],
    ).results
    kernel.store(results[1])
    yield kernel.finish()
    for no_licm in (False, True):
        kernel = SampleKernel(f"while/tile{'/no_licm' if no_licm else ''}")
        kernel.store(_doubled(kernel, kernel.load(F32, (4, 8), Draw(1.0, 2.0)), no_licm))
        yield kernel.finish()
    kernel = SampleKernel("while/other_types_forwarded")
    b = kernel.b
    limit = kernel.load(I64, (), Draw(0, 9))

    def widen(i: Value) -> Any:
        wide = b.cast(i, result=I64)
        return b.cmp(wide, limit, predicate="lt"), wide

    regions = [
        kernel.region((I32,), widen, "condition", ("i",)),
        kernel.region(
            (I64,),
            lambda wide: b.add(b.cast(wide, result=I32), kernel.constant(I32, 2)),
            names=("wide",),
        ),
    ]
    kernel.store(
        b.region_op("while", [kernel.constant(I32, 0)], regions=regions, results=[I64]).result
    )
    yield kernel.finish()
    kernel = SampleKernel("while/effects")
    b = kernel.b
    counter = kernel.pointer(I32, (1,), Draw(0, 5), output=True)

    def below() -> Any:
        return b.cmp(b.load(counter), kernel.constant(I32, 9), predicate="lt")

    def count() -> None:
        b.store(counter, b.add(b.load(counter), kernel.constant(I32, 2)))

    b.region_op(
        "while", [], regions=[kernel.region((), below, "condition"), kernel.region((), count)]
    )
    yield kernel.finish()


def _doubled(kernel: SampleKernel, tile: Value, no_licm: bool) -> Value:
    """The tile doubled until its sum passes a bound; the condition is computed in region before."""
    b = kernel.b
    bound = kernel.constant(F32, 1000.0)

    def before(x: Value) -> Any:
        flat = b.reshape(x, result=TileType((32,), F32))
        combine = kernel.region((F32, F32), lambda a, b_: b.max(a, b_), names=("a", "b"))
        maximum = b.region_op("reduce", [flat], regions=[combine], axis=0).result
        return b.cmp(maximum, bound, predicate="lt"), x

    regions = [
        kernel.region((tile.type,), before, "condition", ("x",)),
        kernel.region((tile.type,), lambda x: b.add(x, x), names=("x",)),
    ]
    found: Value = b.region_op(
        "while", [tile], regions=regions, results=[tile.type], no_licm=no_licm
    ).result
    return found


# reduce and scan: (name, element types, draw, combine over one value a side)


def _combines(b: Builder) -> dict[str, tuple[tuple[Type, ...], Draw, Combine]]:
    floats: tuple[Type, ...] = (F32, F64, F16, BF16)
    return {
        "sum": ((*floats, I32, I64, U8), INTEGRAL, b.add),
        "product": ((I32, U32), ANY, b.mul),
        "max": ((*floats, I32, U32, I8), ANY, b.max),
        "min": ((F32, I64, U8), ANY, b.min),
        "xor": ((I32, I1), ANY, b.xor),
        "and": ((I1, U8), ANY, b.and_),
        "or": ((I1, I32), ANY, b.or_),
    }


_AXES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((16,), 0),
    ((4, 8), 1),
    ((4, 8), 0),
    ((2, 4, 8), 1),
    ((128,), 0),
    ((8, 1), 1),
    ((64, 16), 0),
    ((16, 64), 1),
    ((2, 4, 8), 2),
    ((2, 4, 8), 0),
    ((1,), 0),
)


def _draw(type_: Type, draw: Draw) -> Draw:
    return draw if isinstance(type_, FloatType) else ANY


def _reduce() -> Samples:
    index = 0
    for name, (types, draw, _) in _combines(Builder()).items():
        for type_ in types:
            for _ in range(2):
                shape, axis = _AXES[index % len(_AXES)]
                index += 1
                kernel = SampleKernel(f"reduce/{name}/{type_}/{shape_text(shape)}/{axis}")
                tile = kernel.load(type_, shape, _draw(type_, draw))
                combine = kernel.region(
                    (type_, type_), _combines(kernel.b)[name][2], names=("a", "b")
                )
                kernel.store(
                    kernel.b.region_op("reduce", [tile], regions=[combine], axis=axis).result
                )
                yield kernel.finish()
    kernel = SampleKernel("reduce/sum/f32/fractions")  # positive terms: no cancellation
    combine = kernel.region((F32, F32), kernel.b.add, names=("a", "b"))
    kernel.store(
        kernel.b.region_op(
            "reduce", [kernel.load(F32, (128,), Draw(0.5, 2.0))], regions=[combine], axis=0
        ).result
    )
    yield kernel.finish(ulp=64)
    for nan in ("ignore", "propagate"):
        kernel = SampleKernel(f"reduce/max/f32/{nan}")
        combine = kernel.region(
            (F32, F32), functools.partial(kernel.b.max, nan=nan), names=("a", "b")
        )
        kernel.store(
            kernel.b.region_op(
                "reduce", [kernel.load(F32, (8, 16), SPECIAL)], regions=[combine], axis=1
            ).result
        )
        yield kernel.finish()
    for shape, axis in (((32,), 0), ((4, 16), 1), ((8, 4), 0)):
        kernel = SampleKernel(f"reduce/argmax/f32/{shape_text(shape)}/{axis}")
        for result in kernel.b.region_op(
            "reduce", _with_positions(kernel, shape), regions=[_greater(kernel)], axis=axis
        ).results:
            kernel.store(result)
        yield kernel.finish()
    kernel = SampleKernel("reduce/welford_like/f32")
    tiles = [
        kernel.load(F32, (4, 8), INTEGRAL),
        kernel.load(F32, (4, 8), INTEGRAL),
        kernel.load(I32, (4, 8)),
    ]
    b = kernel.b
    combine = kernel.region(
        (F32, F32, I32) * 2, lambda s, q, n, t, r, m: (b.add(s, t), b.add(q, r), b.add(n, m))
    )
    for result in b.region_op("reduce", tiles, regions=[combine], axis=1).results:
        kernel.store(result)
    yield kernel.finish()


def _with_positions(kernel: SampleKernel, shape: tuple[int, ...]) -> list[Value]:
    """A tile with repeated values, and its elements' positions."""
    return [kernel.load(F32, shape, INTEGRAL), kernel.offsets(shape)]


def _greater(kernel: SampleKernel) -> Any:
    """The greater value, of equal ones that at the lower position: associative and commutative."""
    b = kernel.b

    def choose(a: Value, i: Value, other: Value, j: Value) -> Any:
        tie = b.and_(b.cmp(a, other, predicate="eq"), b.cmp(i, j, predicate="lt"))
        left = b.or_(b.cmp(a, other, predicate="gt"), tie)
        return b.select(left, a, other), b.select(left, i, j)

    return kernel.region((F32, I32, F32, I32), choose, names=("a", "i", "b", "j"))


def _scan() -> Samples:
    index = 0
    for name, (types, draw, _) in _combines(Builder()).items():
        for type_ in types:
            for reverse in (False, True):
                shape, axis = _AXES[index % len(_AXES)]
                index += 1
                kernel = SampleKernel(
                    f"scan/{name}/{type_}/{shape_text(shape)}/{axis}{'/reverse' if reverse else ''}"
                )
                tile = kernel.load(type_, shape, _draw(type_, draw))
                combine = kernel.region(
                    (type_, type_), _combines(kernel.b)[name][2], names=("a", "b")
                )
                kernel.store(
                    kernel.b.region_op(
                        "scan", [tile], regions=[combine], axis=axis, reverse=reverse
                    ).result
                )
                yield kernel.finish()
    for reverse in (False, True):
        kernel = SampleKernel(f"scan/argmax/f32{'/reverse' if reverse else ''}")
        for result in kernel.b.region_op(
            "scan",
            _with_positions(kernel, (4, 16)),
            regions=[_greater(kernel)],
            axis=1,
            reverse=reverse,
        ).results:
            kernel.store(result)
        yield kernel.finish()
        # x -> a * x + b composed: associative, not commutative, so that the order of the operands
        # shows.
        kernel = SampleKernel(f"scan/affine/u32{'/reverse' if reverse else ''}")
        b = kernel.b
        combine = kernel.region(
            (U32,) * 4,
            lambda a, s, c, t, b=b: (b.mul(a, c), b.add(b.mul(s, c), t)),
            names=("a", "s", "c", "t"),
        )
        tiles = [kernel.load(U32, (4, 32)), kernel.load(U32, (4, 32))]
        for result in b.region_op(
            "scan", tiles, regions=[combine], axis=1, reverse=reverse
        ).results:
            kernel.store(result)
        yield kernel.finish()


def _map() -> Samples:
    for shape in ((16,), (4, 8), (1,)):
        kernel = SampleKernel(f"map/f32/{shape_text(shape)}")
        b = kernel.b
        body = kernel.region((F32, F32), lambda x, y, b=b: b.sub(b.mul(x, x), y), names=("x", "y"))
        tiles = [kernel.load(F32, shape, INTEGRAL), kernel.load(F32, shape, INTEGRAL)]
        kernel.store(b.region_op("map", tiles, regions=[body], results=[tiles[0].type]).result)
        yield kernel.finish()
    for pack in (2, 4):
        kernel = SampleKernel(f"map/i32/pack{pack}")
        b = kernel.b
        body = kernel.region(
            (I32,) * pack, lambda *xs, b=b: (functools.reduce(b.add, xs), *xs[:-1])
        )
        tile = kernel.load(I32, (4, 8))
        kernel.store(
            b.region_op("map", [tile], regions=[body], results=[tile.type], pack=pack).result
        )
        yield kernel.finish()
    kernel = SampleKernel("map/several_results/pack2")
    b = kernel.b
    body = kernel.region(
        (I32, I32, F32, F32),
        lambda i, j, x, y: (y, x, b.cast(i, result=F16), b.cast(j, result=F16)),
    )
    tiles = [kernel.load(I32, (8,), Draw(-9, 9)), kernel.load(F32, (8,))]
    for result in b.region_op(
        "map", tiles, regions=[body], results=[tiles[1].type, TileType((8,), F16)], pack=2
    ).results:
        kernel.store(result)
    yield kernel.finish()
    kernel = SampleKernel("map/i32/control_flow")
    b = kernel.b

    def digits(x: Value) -> Value:
        """Count how often x can be halved."""
        zero, one = kernel.constant(I32, 0), kernel.constant(I32, 1)
        before = kernel.region(
            (I32, I32), lambda v, n: (b.cmp(v, zero, predicate="gt"), v, n), "condition"
        )
        after = kernel.region((I32, I32), lambda v, n: (b.shr(v, one), b.add(n, one)))
        count = b.region_op(
            "while", [x, zero], regions=[before, after], results=[I32, I32]
        ).results[1]
        small = kernel.region((), lambda: b.neg(count))
        large = kernel.region((), lambda: count)
        found: Value = b.region_op(
            "if", b.cmp(x, one, predicate="le"), regions=[small, large], results=[I32]
        ).result
        return found

    tile = kernel.load(I32, (16,), Draw(-3, 40))
    kernel.store(
        b.region_op(
            "map", [tile], regions=[kernel.region((I32,), digits)], results=[tile.type]
        ).result
    )
    yield kernel.finish()


# calls


def _callee(
    kernel: SampleKernel,
    name: str,
    arguments: Sequence[Type],
    results: Sequence[Type],
    body: Callable[..., Any],
) -> None:
    """Add a function to the sample's module."""
    function = kernel.module.add(
        Function(name, arguments, results, [f"a{i}" for i in range(len(arguments))], kernel=False)
    )
    with kernel.b.at_region(function.body):
        found = body(*function.arguments)
        kernel.b.return_(
            [] if found is None else [found] if isinstance(found, Value) else list(found)
        )


def _call() -> Samples:
    kernel = SampleKernel("call/scalar")
    b = kernel.b
    _callee(kernel, "square_plus", (I32, I32), (I32,), lambda x, y: b.add(b.mul(x, x), y))
    kernel.store(
        b.call([kernel.load(I32), kernel.load(I32)], callee="square_plus", pure=True, result=I32)
    )
    yield kernel.finish()
    kernel = SampleKernel("call/tiles_and_several_results")
    b = kernel.b
    tile = kernel.load(F32, (4, 8))
    _callee(
        kernel,
        "both",
        (tile.type, tile.type),
        (tile.type, tile.type),
        lambda x, y: (b.max(x, y), b.min(x, y)),
    )
    for result in b.call(
        [tile, kernel.load(F32, (4, 8))], callee="both", results=[tile.type, tile.type]
    ):
        kernel.store(result)
    yield kernel.finish()
    kernel = SampleKernel("call/effects")
    b = kernel.b
    out = kernel.pointer(I32, (2,), ZEROS, output=True)
    _callee(kernel, "put", (out.type, I32), (), lambda p, x: b.store(p, x))
    b.call([out, kernel.load(I32)], callee="put")
    b.call([b.addptr(out, kernel.constant(I32, 1)), kernel.load(I32)], callee="put")
    yield kernel.finish()
    kernel = SampleKernel("call/call_in_callee_in_loop")
    b = kernel.b
    _callee(kernel, "inner", (I32,), (I32,), lambda x: b.add(x, kernel.constant(I32, 3)))
    _callee(
        kernel, "outer", (I32,), (I32,), lambda x: b.mul(b.call([x], callee="inner", result=I32), x)
    )
    region = kernel.region(
        (I32, I32), lambda i, total: b.add(total, b.call([i], callee="outer", result=I32))
    )
    kernel.store(
        b.region_op(
            "for", *_bounds(kernel, I32, (0, 5, 1)), [kernel.load(I32)], regions=[region]
        ).result
    )
    yield kernel.finish()


def _renamed(name: str, source: Callable[[], Samples], wanted: str) -> Samples:
    """Samples of another operation that hold this one, under its own name."""
    for sample in source():
        if wanted in sample.name:
            yield Sample(
                f"{name}/{sample.name}",
                sample.module,
                sample.arguments,
                sample.integer_exact,
                sample.ulp,
                sample.grid,
                sample.runnable,
            )


SAMPLES: dict[str, Callable[[], Samples]] = {
    "if": _if,
    "for": _for,
    "while": _while,
    "reduce": _reduce,
    "scan": _scan,
    "map": _map,
    "call": _call,
    "yield": functools.partial(_renamed, "yield", _if, "several"),
    "condition": functools.partial(_renamed, "condition", _while, "collatz"),
    "return": functools.partial(_renamed, "return", _call, "several"),
}
