"""The catalogue of decompositions: what each makes, as text, and that it means the same, on the
reference."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from tilewright.ir import TABLE, Builder, Function, Module, Region, verify
from tilewright.ir.order import SEQUENTIAL, TREE
from tilewright.ir.parser import parse_module
from tilewright.ir.types import (
    F16,
    F32,
    F64,
    I1,
    I32,
    I64,
    U8,
    U64,
    IntType,
    PointerType,
    TileType,
    Type,
)
from tilewright.passes.decompose.catalogue import CATALOGUE, decompose, remaining
from tilewright.passes.expand_math import expand_math
from tilewright.reference.interpreter import DescriptorValue, run
from tilewright_conformance.op_samples import Sample, check_outputs, samples
from tilewright_conformance.testlib import reduction_order

NAMES = [spec.name for spec in TABLE]
#: What has no row.
KEPT = frozenset(NAMES) - set(CATALOGUE)


def arguments_for(module: Module, original: Module, arguments: list[Any]) -> list[Any]:
    """Return arguments for a module whose descriptors may be decomposed."""
    if len(module.kernel.arguments) == len(original.kernel.arguments):
        return arguments
    given: list[Any] = []
    for value in arguments:
        given += (
            [value.base, *map(int, value.shape), *map(int, value.strides)]
            if isinstance(value, DescriptorValue)
            else [value]
        )
    return given


def both(sample: Sample, module: Module, seed: int) -> tuple[list[Any], list[Any]]:
    found = []
    for own in (sample.module, module):
        arguments = sample.make_arguments(np.random.default_rng(seed))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run(
                own,
                arguments_for(own, sample.module, arguments),
                sample.grid,
                printer=lambda line: None,
            )
        found.append(arguments)
    return found[0], found[1]


@pytest.mark.parametrize("name", CATALOGUE)
def test_it_means_the_same_and_leaves_what_it_says(name: str) -> None:
    """Every sample of the operation, decomposed completely, and by its own row alone."""
    row, ran = CATALOGUE[name], 0
    for sample in samples(name):
        if not sample.runnable:
            continue
        rest = {operation.name for operation in sample.module.walk()} - {name}
        for lowers in (KEPT, frozenset(NAMES) - {name}):
            module = parse_module(str(sample.module))
            assert decompose(module, lowers), sample.name
            verify(module)
            left = {operation.name for operation in module.walk()}
            assert left <= lowers | {"call"}, (sample.name, left - lowers)
            if lowers is not KEPT and not name.startswith(
                ("make_descriptor", "descriptor")
            ):  # descriptors go together, and maps leave what is in their region
                assert left - rest <= set(row.into) or name == "map", (
                    sample.name,
                    left - rest - set(row.into),
                )
            check_outputs(sample, *both(sample, module, 7 + ran))
        ran += 1
    assert ran


@pytest.mark.parametrize("name", sorted(KEPT))
def test_what_has_no_row_stays(name: str) -> None:
    for sample in samples(name):
        module = parse_module(str(sample.module))
        decompose(module, ["call"])
        assert name in {operation.name for operation in module.walk()}


def test_what_is_lowered_stays() -> None:
    for name in NAMES:
        for sample in list(samples(name))[:1]:
            module = parse_module(str(sample.module))
            assert not decompose(module, NAMES) and str(module) == str(sample.module)


def test_a_descriptor_that_nothing_reads_is_taken_apart_where_none_is_lowered() -> None:
    text = (
        "tilewright.ir 1.0\n\nkernel @k(%d: desc<4x8xf32>, %n: i32, %out: ptr<i32>) {\n"
        "  store %out, %n\n  return\n}\n"
    )
    module = parse_module(text)
    assert decompose(module, {"store"})
    verify(module)
    assert [str(argument.type) for argument in module.kernel.arguments] == [
        "ptr<f32>",
        *["i64"] * 4,
        "i32",
        "ptr<i32>",
    ]
    assert not decompose(parse_module(text), {"store", "descriptor_load"})


def test_remaining_operations() -> None:
    assert remaining(["add"]) == {"add"}
    assert remaining(["expand_dims", "hint"]) == {"reshape"}
    assert remaining(["neg", "abs"]) == {
        "constant",
        "sub",
        "xor",
        "and",
        "bitcast",
        "cmp",
        "select",
    }
    assert not remaining(CATALOGUE) & set(CATALOGUE)
    for row in CATALOGUE.values():
        assert set(row.into) <= set(NAMES) and row.law and len(set(row.into)) == len(row.into)


TEXTS = {
    ("min_of_floats", ("min",)): (
        "%r = min %f, %g : f32\nuse %r",
        (
            '%d1 = cmp %f, %g {predicate = "lt"} : i1\n%d2 = cmp %g, %g {predicate = "ne"} : i1\n'
            "%d3 = or %d1, %d2 : i1\n%r = select %d3, %f, %g : f32\nuse %r"
        ),
    ),
    ("max_of_integers", ("max",)): (
        '%r = max %v, %w {nan = "propagate"} : tile<8xi32>\nuse %r',
        (
            '%d1 = cmp %v, %w {predicate = "gt"} : tile<8xi1>\n'
            "%r = select %d1, %v, %w : tile<8xi32>\nuse %r"
        ),
    ),
    ("neg_of_a_float", ("neg",)): (
        "%r = neg %f : f32\nuse %r",
        (
            "%d1 = bitcast %f : u32\n%d2 = constant {value = 2147483648} : u32\n"
            "%d3 = xor %d1, %d2 : u32\n%r = bitcast %d3 : f32\nuse %r"
        ),
    ),
    ("expand_dims", ("expand_dims",)): (
        "%r = expand_dims %t {axis = 1} : tile<8x1xf32>\nuse %r",
        "%r = reshape %t : tile<8x1xf32>\nuse %r",
    ),
    ("promises", ("assume", "hint")): (
        "assume %c\n%r = hint %i {divisibility = [16]} : i32\nuse %r",
        "use %i",
    ),
    ("unsplat", ("unsplat",)): (
        "%r = unsplat %o : f32\nuse %r",
        (
            "%q1 = reshape %o : tile<1xf32>\n"
            "%r = reduce %q1 {axis = 0} : f32 combine(%a1: f32, %b1: f32) {\n yield %a1\n}\n"
            "use %r"
        ),
    ),
    ("join", ("join",)): (
        "%r = join %t, %s : tile<8x2xf32>\nuse %r",
        "%d4 = constant {value = 0} : i32\n%d1 = arange {start = 0, end = 2} : tile<2xi32>\n"
        "%d2 = reshape %d1 : tile<1x2xi32>\n"
        "%d3 = broadcast %d2 : tile<8x2xi32>\n%d5 = splat %d4 : tile<8x2xi32>\n"
        '%e1 = cmp %d3, %d5 {predicate = "eq"} : tile<8x2xi1>\n'
        "%t1 = reshape %t : tile<8x1xf32>\n%t2 = broadcast %t1 : tile<8x2xf32>\n"
        "%s1 = reshape %s : tile<8x1xf32>\n%s2 = broadcast %s1 : tile<8x2xf32>\n"
        "%r = select %e1, %t2, %s2 : tile<8x2xf32>\nuse %r",
    ),
}


@pytest.mark.parametrize(("name", "texts"), list(TEXTS.items()), ids=[name for name, _ in TEXTS])
def test_texts(name: tuple[str, tuple[str, ...]], texts: tuple[str, str], check_pass: Any) -> None:
    check_pass(lambda module: decompose(module, set(NAMES) - set(name[1])), *texts)


# ---- shapes that samples do not have


def kernel(inputs: list[TileType | Type], write: Any) -> Module:
    """Loads tiles from arrays, and stores what ``write(b, *tiles)`` gives to arrays behind them."""
    module = Module()

    def pointer_of(type_: Any) -> PointerType:
        return PointerType(getattr(type_, "element", type_))

    probe = Function(
        "probe", [pointer_of(type_) for type_ in inputs], (), [f"x{i}" for i in range(len(inputs))]
    )

    def pointers(b: Builder, base: Any, type_: Any) -> Any:
        if not isinstance(type_, TileType):
            return base
        line = b.arange(start=0, end=type_.numel)
        index = b.reshape(line, result=TileType(type_.shape, I32))
        return b.addptr(b.splat(base, result=TileType(type_.shape, base.type)), index)

    b = Builder.at_end(probe.body)
    results = write(
        b,
        *(
            b.load(pointers(b, base, type_))
            for base, type_ in zip(probe.arguments, inputs, strict=True)
        ),
    )
    for number, result in enumerate(results):
        base = probe.body.add_argument(pointer_of(result.type), f"y{number}")
        probe.argument_attributes.append({})
        b.store(pointers(b, base, result.type), result)
    b.return_([])
    module.add(probe)
    verify(module)
    return module


DTYPES = {
    F32: np.float32,
    F64: np.float64,
    F16: np.float16,
    I32: np.int32,
    I64: np.int64,
    U8: np.uint8,
    U64: np.uint64,
    I1: np.bool_,
}


def compare(
    module: Module, arrays: list[np.ndarray[Any, Any]], expected: list[np.ndarray[Any, Any]]
) -> None:
    """Run a kernel with and without decomposition, and compare both results bit for bit."""
    apart = parse_module(str(module))
    assert decompose(apart, KEPT)
    verify(apart)
    assert {operation.name for operation in apart.walk()} <= KEPT
    for own in (module, apart):
        found = [np.zeros_like(array) for array in expected]
        with np.errstate(all="ignore"):
            run(own, [*arrays, *found], (1, 1, 1))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("first", "second", "axis"),
    [
        ((3,), (5,), 0),
        ((2, 3), (2, 4), 1),
        ((5, 3, 2), (1, 3, 2), 0),
        ((7, 3), (7, 3), 0),
        ((3, 5, 2), (3, 5, 2), 1),
    ],
)
def test_cat_of_odd_extents(first: tuple[int, ...], second: tuple[int, ...], axis: int) -> None:
    rng = np.random.default_rng(1)
    a, c = (
        rng.integers(-99, 99, first, dtype=np.int64),
        rng.integers(-99, 99, second, dtype=np.int64),
    )
    compare(
        kernel(
            [TileType(first, I64), TileType(second, I64)], lambda b, x, y: [b.cat(x, y, axis=axis)]
        ),
        [a, c],
        [np.concatenate([a, c], axis)],
    )


@pytest.mark.parametrize(
    ("shape", "axis", "count"), [((7,), 0, 11), ((5, 3), 0, 2), ((3, 7), 1, 9), ((2, 3, 5), 1, 4)]
)
@pytest.mark.parametrize("index_type", [U8, I32, I64])
def test_gather_of_odd_extents(
    shape: tuple[int, ...], axis: int, count: int, index_type: IntType
) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal(shape).astype(np.float16)
    picked = (*shape[:axis], count, *shape[axis + 1 :])
    index = rng.integers(0, shape[axis], picked).astype(DTYPES[index_type])
    compare(
        kernel(
            [TileType(shape, F16), TileType(picked, index_type)],
            lambda b, x, i: [b.gather(x, i, axis=axis)],
        ),
        [x, index],
        [np.take_along_axis(x, index.astype(np.int64), axis)],
    )


@pytest.mark.parametrize("type_", [U8, I32, I64, U64])
def test_values_that_are_no_bins_are_not_counted(type_: IntType) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(type_.minimum, type_.maximum, 37, DTYPES[type_], endpoint=True)
    x[:30] = rng.integers(0, 7, 30)
    x[30:33] = [type_.maximum, type_.minimum, 6]
    mask = rng.random(37) < 0.7
    counts = np.array([np.count_nonzero((x == k) & mask) for k in range(7)], np.int32)
    compare(
        kernel(
            [TileType((37,), type_), TileType((37,), I1)],
            lambda b, x, m: [b.histogram(x, m, bins=7)],
        ),
        [x, mask],
        [counts],
    )


@pytest.mark.parametrize("type_", [U8, IntType(8)])
def test_bins_that_no_value_can_be_in_are_empty(type_: IntType) -> None:
    x = np.random.default_rng(8).integers(
        type_.minimum, type_.maximum, 99, f"{'i' if type_.signed else 'u'}1", endpoint=True
    )
    counts = np.array(
        [np.count_nonzero(x == k) if k <= type_.maximum else 0 for k in range(300)], np.int32
    )
    compare(
        kernel([TileType((99,), type_)], lambda b, x: [b.histogram(x, bins=300)]), [x], [counts]
    )


def affine(b: Builder) -> Region:
    """Composition of functions x -> a x + c, which does not commute."""
    region = Region([I64] * 4, ["a", "c", "d", "e"])
    with b.at_region(region):
        a, c, d, e = region.arguments
        b.yield_([b.mul(a, d), b.add(b.mul(c, d), e)])
    return region


@pytest.mark.parametrize(
    ("shape", "axis"), [((7,), 0), ((3, 5), 0), ((3, 5), 1), ((2, 3, 3), 1), ((1,), 0)]
)
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_that_does_not_commute(shape: tuple[int, ...], axis: int, reverse: bool) -> None:
    a, c = np.random.default_rng(4).integers(-5, 6, (2, *shape))

    def write(b: Builder, x: Any, y: Any) -> Any:
        return b.region_op("scan", [x, y], regions=[affine(b)], axis=axis, reverse=reverse).results

    first, second = (
        np.moveaxis(value, axis, 0)[:: -1 if reverse else 1].copy() for value in (a, c)
    )
    for k in range(1, len(first)):
        first[k], second[k] = first[k - 1] * first[k], second[k - 1] * first[k] + second[k]
    expected = [
        np.ascontiguousarray(np.moveaxis(value[:: -1 if reverse else 1], 0, axis))
        for value in (first, second)
    ]
    compare(kernel([TileType(shape, I64)] * 2, write), [a, c], expected)


def branching(b: Builder) -> Region:
    """The greater of two in magnitude, by ``if``: control flow that is each element's own."""
    region = Region([I32, I32], ["x", "y"])
    with b.at_region(region):
        x, y = region.arguments
        ways = []
        for value in (x, y):
            way = Region()
            with b.at_region(way):
                b.yield_([value])
            ways.append(way)
        b.yield_(
            b.region_op(
                "if", b.cmp(b.abs(x), b.abs(y), predicate="ge"), regions=ways, results=[I32]
            ).results
        )
    return region


@pytest.mark.parametrize("shape", [(7,), (3, 5)])
def test_regions_with_control_flow(shape: tuple[int, ...]) -> None:
    x, y = np.random.default_rng(5).integers(-99, 99, (2, *shape), dtype=np.int32)
    greater = np.where(np.abs(x) >= np.abs(y), x, y)
    type_ = TileType(shape, I32)
    compare(
        kernel(
            [type_, type_],
            lambda b, x, y: (
                b.region_op("map", [x, y], regions=[branching(b)], results=[type_], pack=1).results
            ),
        ),
        [x, y],
        [greater],
    )
    scanned = x.copy()
    for k in range(1, shape[0]):
        scanned[k] = np.where(np.abs(scanned[k - 1]) >= np.abs(x[k]), scanned[k - 1], x[k])
    compare(
        kernel(
            [type_],
            lambda b, x: (
                b.region_op("scan", [x], regions=[branching(b)], axis=0, reverse=False).results
            ),
        ),
        [x],
        [scanned],
    )


def test_a_map_of_packs_reads_values_from_outside() -> None:
    x = np.random.default_rng(6).integers(-99, 99, 9, dtype=np.int32)

    def write(b: Builder, x: Any) -> Any:
        seven, region = b.constant(value=7, result=I32), Region([I32] * 3, ["p", "q", "r"])
        with b.at_region(region):
            p, q, r = region.arguments
            b.yield_([b.add(q, seven), b.sub(p, r), b.mul(r, seven)])
        return b.region_op("map", [x], regions=[region], results=[x.type], pack=3).results

    p, q, r = x.reshape(3, 3).T
    compare(kernel([TileType((9,), I32)], write), [x], [np.stack([q + 7, p - r, r * 7], 1).ravel()])


@pytest.mark.parametrize("element", [F32, F64])
def test_rounding_near_ties_and_where_there_is_no_fraction(element: Type) -> None:
    dtype = DTYPES[element]
    rng, ties = np.random.default_rng(7), np.arange(-9, 10) / 2
    limit = 2.0 ** (23 if element is F32 else 52)
    x = np.concatenate(
        [
            ties,
            np.nextafter(dtype(0.5), dtype([0, 1])),
            rng.standard_normal(99) * 10.0 ** rng.integers(-9, 19, 99),
        ]
    ).astype(dtype)
    x = np.concatenate(
        [
            x,
            dtype(
                [
                    limit,
                    limit - 0.5,
                    limit + 1,
                    -limit + 0.5,
                    0.0,
                    -0.0,
                    np.inf,
                    -np.inf,
                    np.nan,
                    5e-324,
                ]
            ),
        ]
    )
    with np.errstate(all="ignore"):
        expected = [np.floor(x), np.ceil(x), np.rint(x), np.trunc(x)]
    module = kernel(
        [TileType(x.shape, element)],
        lambda b, x: [b.floor(x), b.ceil(x), b.round_even(x), b.trunc(x)],
    )
    compare(module, [x], expected)
    apart = parse_module(str(module))
    decompose(apart, KEPT)
    found = [np.zeros_like(x) for _ in expected]
    with np.errstate(all="ignore"):
        run(apart, [x, *found], (1, 1, 1))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(np.signbit(one), np.signbit(other))


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sines_of_large_numbers_without_f64(name: str) -> None:
    """Against the function by f64, which is within the bound of the exact one: of random numbers,
    and of those next to multiples of a quarter turn."""
    rng = np.random.default_rng(9)
    near = (
        np.arange(1, 2000, dtype=np.float64) * 2.0 ** rng.integers(4, 60, 1999) * (np.pi / 2)
    ).astype(np.float32)
    x = np.concatenate(
        [
            rng.uniform(2**15, 2**17, 2000),
            2.0 ** rng.uniform(15, 128, 4000),
            near,
            [2.0**127, 16367173.0 * 2.0**72],
        ]
    ).astype(np.float32)
    x *= rng.choice([-1, 1], len(x)).astype(np.float32)
    module = kernel([TileType(x.shape, F32)], lambda b, x: [getattr(b, name)(x)])
    apart, double = parse_module(str(module)), parse_module(str(module))
    assert decompose(apart, KEPT) and "f64" not in str(apart)
    assert expand_math(double) and "f64" in str(double)
    found = [np.zeros_like(x) for _ in range(2)]
    for own, out in zip((apart, double), found, strict=True):
        run(own, [x, out], (1, 1, 1))
    np.testing.assert_array_max_ulp(found[0], found[1], maxulp=1)


@pytest.mark.parametrize("type_", [I32, I64, IntType(32, False), U64])
def test_upper_products_of_extremes(type_: IntType) -> None:
    ends = [
        type_.minimum,
        type_.maximum,
        0,
        1,
        type_.wrap(-1),
        1 << (type_.bits // 2),
        type_.maximum // 3,
    ]
    dtype = np.dtype(f"{'i' if type_.signed else 'u'}{type_.bits // 8}")
    x, y = (
        np.array([pair[i] for pair in ((a, c) for a in ends for c in ends)], dtype) for i in (0, 1)
    )
    expected = np.array(
        [type_.wrap((int(a) * int(c)) >> type_.bits) for a, c in zip(x, y, strict=True)], dtype
    )
    compare(
        kernel([TileType(x.shape, type_)] * 2, lambda b, x, y: [b.mulhi(x, y)]), [x, y], [expected]
    )


@pytest.mark.parametrize("type_", [F16, F32, F64], ids=str)
def test_a_scan_in_sequence_keeps_its_order(type_: Type) -> None:
    sample = reduction_order.sum_sample(type_, (4, 32), 1, SEQUENTIAL)
    module = parse_module(str(sample.module))
    assert decompose(module, frozenset(NAMES) - {"scan"})
    assert "scan" not in {operation.name for operation in module.walk()}
    expected, found = both(sample, module, 0)
    assert reduction_order.bits(sample, found) == reduction_order.bits(sample, expected)


@pytest.mark.parametrize("element", ["f16", "f32"])
def test_a_dot_in_sequence_keeps_its_order(element: str) -> None:
    sample = reduction_order.dot_sample(element)
    module = parse_module(str(sample.module))
    assert decompose(module, KEPT)
    assert "dot" not in {operation.name for operation in module.walk()}
    expected, found = both(sample, module, 0)
    assert reduction_order.bits(sample, found) == reduction_order.bits(sample, expected)


def test_a_tree_stays_where_a_loop_would_change_the_result() -> None:
    scans = reduction_order.sum_sample(F32, (4, 32), 1, TREE).module
    dots = reduction_order.dot_sample("f32", TREE).module
    for module, name in ((scans, "scan"), (dots, "dot")):
        found = parse_module(str(module))
        decompose(found, frozenset(NAMES) - {name})
        kept = [operation for operation in found.walk() if operation.name == name]
        assert kept and all(operation.attribute("order") == TREE for operation in kept)


def test_a_tree_of_integers_is_decomposed() -> None:
    sample = reduction_order.sum_sample(I32, (4, 32), 1, TREE)
    module = parse_module(str(sample.module))
    assert decompose(module, frozenset(NAMES) - {"scan"})
    assert "scan" not in {operation.name for operation in module.walk()}
    expected, found = both(sample, module, 0)
    assert reduction_order.bits(sample, found) == reduction_order.bits(sample, expected)
