"""Scans along every axis, in both directions, of one and of several tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.ir import Value
from tilewright.ir.types import BF16, F16, F32, F64, I1, I8, I32, I64, U8, U16, FloatType, Type
from tilewright_conformance.op_samples.kernel import ANY, INTEGRAL, Draw, SampleKernel

_SHAPES = [
    ((1,), 0),
    ((7,), 0),
    ((16,), 0),
    ((64,), 0),
    ((100,), 0),
    ((257,), 0),
    ((5, 33), 1),
    ((33, 5), 0),
    ((16, 64), 0),
    ((16, 64), 1),
    ((3, 20, 9), 1),
    ((2, 3, 130), 2),
    ((4, 1, 3), 1),
]


@pytest.mark.each_value
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize(("shape", "axis"), _SHAPES, ids=str)
@pytest.mark.parametrize("type_", [F32, I32, F64, F16, BF16, I8, U8, I64], ids=str)
def test_sums(
    type_: Type, shape: tuple[int, ...], axis: int, reverse: bool, agree: Callable[..., Any]
) -> None:
    """Sums of small integers are exact; those of a narrow float that grow past it are not, so there
    it is the maximum."""
    kernel = SampleKernel("scan")
    operation = "max" if type_ is BF16 and shape[axis] > 32 else "add"
    tile = kernel.load(type_, shape, INTEGRAL if isinstance(type_, FloatType) else ANY)
    combine = kernel.region((type_, type_), lambda a, b: getattr(kernel.b, operation)(a, b))
    kernel.store(
        kernel.b.region_op("scan", tile, regions=[combine], axis=axis, reverse=reverse).result
    )
    agree(kernel.finish())


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize(("shape", "axis"), [((64,), 0), ((7, 40), 1), ((40, 7), 0)], ids=str)
def test_combine_that_is_not_commutative(
    shape: tuple[int, ...], axis: int, reverse: bool, agree: Callable[..., Any]
) -> None:
    """Combine functions that detect a wrong order.

    The later element, and composition of affine maps.
    """
    kernel = SampleKernel("scan")
    m, n = (kernel.load(U16, shape) for _ in range(2))

    def compose(m1: Value, n1: Value, m2: Value, n2: Value) -> Any:
        return kernel.b.mul(m1, m2), kernel.b.add(kernel.b.mul(n1, m2), n2)

    combine = kernel.region((U16, U16) * 2, compose)
    for result in kernel.b.region_op(
        "scan", [m, n], regions=[combine], axis=axis, reverse=reverse
    ).results:
        kernel.store(result)
    last = kernel.region((U16, U16), lambda a, b: b)
    kernel.store(kernel.b.region_op("scan", m, regions=[last], axis=axis, reverse=reverse).result)
    agree(kernel.finish())


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize(("shape", "axis"), [((64,), 0), ((5, 40), 1), ((40, 5), 0)], ids=str)
def test_tiles_of_different_elements(
    shape: tuple[int, ...], axis: int, reverse: bool, agree: Callable[..., Any]
) -> None:
    """A running maximum with its position and a flag."""
    kernel = SampleKernel("scan")
    tiles = [
        kernel.load(F32, shape, Draw(-5, 5, integral=True)),
        kernel.load(I64, shape),
        kernel.load(I1, shape),
    ]

    def choose(x: Value, i: Value, f: Value, y: Value, j: Value, g: Value) -> Any:
        b = kernel.b
        second = b.cmp(y, x, predicate="gt")
        return b.select(second, y, x), b.select(second, j, i), b.xor(f, g)

    combine = kernel.region((F32, I64, I1) * 2, choose)
    for result in kernel.b.region_op(
        "scan", tiles, regions=[combine], axis=axis, reverse=reverse
    ).results:
        kernel.store(result)
    agree(kernel.finish())


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize(("shape", "axis"), [((33,), 0), ((5, 16), 1), ((16, 5), 0)], ids=str)
def test_combine_with_control_flow(
    shape: tuple[int, ...], axis: int, reverse: bool, agree: Callable[..., Any]
) -> None:
    """Segments: sums that start anew where a flag is set."""
    kernel = SampleKernel("scan")
    tiles = [
        kernel.load(I1, shape, Draw(array=lambda rng, count: rng.random(count) < 0.2)),
        kernel.load(I32, shape),
    ]

    def combine(f: Value, x: Value, g: Value, y: Value) -> Any:
        then = kernel.region((), lambda: (g, y))
        otherwise = kernel.region((), lambda: (f, kernel.b.add(x, y)))
        return kernel.b.region_op("if", g, regions=[then, otherwise], results=[I1, I32]).results

    for result in kernel.b.region_op(
        "scan", tiles, regions=[kernel.region((I1, I32) * 2, combine)], axis=axis, reverse=reverse
    ).results:
        kernel.store(result)
    agree(kernel.finish())
