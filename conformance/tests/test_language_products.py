"""Matrix products on CPU and GPU: every type, rank, size and precision against float64; block-scaled ones against the formats' definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright.language as tl
from tilewright_conformance.cases.dots.kernels import product, scaled_product
from tilewright_conformance.oracles import matrix
from tilewright_conformance.oracles.matrix import bits_of

Run = Callable[..., None]
RNG = np.random.default_rng(52)

DTYPES: dict[str, Any] = {
    "bfloat16": ml_dtypes.bfloat16,
    "float8e4nv": ml_dtypes.float8_e4m3fn,
    "float8e5": ml_dtypes.float8_e5m2,
    "float8e4b8": ml_dtypes.float8_e4m3fnuz,
    "float8e5b16": ml_dtypes.float8_e5m2fnuz,
}


def draw(name: str, *shape: int) -> Any:
    """Small numbers of few bits, whose products and sums are exact."""
    values = RNG.integers(0 if name[0] == "u" else -4, 5, shape)
    return (values if "int" in name else values / 4).astype(DTYPES.get(name, name))


def run(launch: Run, a: Any, b: Any, result: Any, *, out: Any = None, precision: str | None = None, tolerance: float = 0.0) -> Any:
    *batches, m, k = a.shape
    n = b.shape[-1]
    c = draw("int8", *batches, m, n).astype(result)
    found = np.zeros((2, *batches, m, n), result)
    options = {"BATCHES": batches, "M": m, "N": n, "K": k, "OUT": out, "PRECISION": precision}
    launch(product, (1,), a, b, c, found, **options, rtol=tolerance, atol=tolerance)
    wanted = np.matmul(a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_allclose(found.astype(np.float64), [wanted + c.astype(np.float64), wanted], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", [(16, 16, 32), (32, 8, 64), (1, 1, 32), (2, 64, 16), (64, 1, 8)])
@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("int8", "int32"),
        ("uint8", "int32"),
        ("float16", "float32"),
        ("float16", "float16"),
        ("bfloat16", "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
        *((name, "float32") for name in DTYPES if name.startswith("float8")),
        ("float8e5", "float16"),
    ],
)
def test_every_type_and_size(launch: Run, name: str, result: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    run(launch, draw(name, m, k), draw(name, k, n), np.dtype(result), out=tl.float16 if result == "float16" else None)


def test_the_operands_type_may_be_named_for_integers(launch: Run) -> None:
    run(launch, draw("int8", 16, 32), draw("int8", 32, 16), np.dtype("int32"), out=tl.int8)


@pytest.mark.parametrize(("left", "right"), [("float8e5", "float8e4nv"), ("float8e4nv", "float8e5")])
def test_kinds_of_fp8_mix(launch: Run, left: str, right: str) -> None:
    run(launch, draw(left, 16, 32), draw(right, 32, 16), np.dtype("float32"))


@pytest.mark.parametrize("name", ["float16", "float32", "int8"])
@pytest.mark.parametrize("batches", [(4,), (2, 2), (1, 2, 2)])
def test_leading_axes_are_batches(launch: Run, batches: tuple[int, ...], name: str) -> None:
    result = np.dtype("int32" if name == "int8" else "float32")
    run(launch, draw(name, *batches, 16, 32), draw(name, *batches, 32, 16), result)


#: How far a product of 64 terms of size 1 may be off: half a unit of what operands are rounded to, twice a term, and fp32's own sums.
PRECISIONS = {"ieee": 2e-6, "tf32x3": 6e-6, "bf16x6": 6e-6, "bf16x3": 3e-4, "tf32": 3e-2}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_fp32_is_as_precise_as_asked(launch: Run, precision: str) -> None:
    a, b = RNG.uniform(-1, 1, (32, 64)).astype(np.float32), RNG.uniform(-1, 1, (64, 32)).astype(np.float32)
    run(launch, a, b, np.dtype("float32"), precision=precision, tolerance=64**0.5 * PRECISIONS[precision])


# -- block-scaled products ----------------------------------------------------------------------------------------------------------------------------


def scaled(
    launch: Run, left: str, right: str, *, batches: tuple[int, ...] = (), group: int = 32, with_scales: tuple[bool, bool] = (True, True), **o: Any
) -> Any:
    """Run a block-scaled product; what it gives, and what it should."""
    m, n, k = 16, 32, 64
    pack, fast, spoilt = o.get("pack", (True, True)), o.get("fast", False), o.get("spoilt", False)
    a = matrix.scaled_operand(RNG, left, (*batches, m, k), -1 if pack[0] else -2)
    b = matrix.scaled_operand(RNG, right, (*batches, k, n), -2 if pack[1] else -1)
    x, y = matrix.scales(RNG, (*batches, m, k // group), group), matrix.scales(RNG, (*batches, n, k // group), group)
    if spoilt:
        x.given[..., 3, 1] = 255
        x.values[..., 3, 1] = np.nan
    a_values = a.values * np.repeat(x.values, group, -1) if with_scales[0] else a.values
    b_values = b.values * np.swapaxes(np.repeat(y.values, group, -1), -1, -2) if with_scales[1] else b.values
    c = draw("float32", *batches, m, n)
    out = np.zeros((*batches, m, n), np.float32)
    shapes = [part for array in (*map(bits_of, (a, b, x, y)), c) for part in (array.size, list(array.shape))]
    given = [a.given, x.given if with_scales[0] else None, b.given, y.given if with_scales[1] else None, c, out]
    # Targets that bring operands to bf16 or fp16 round those of more bits.
    launch(scaled_product, (1,), *given, A=left, B=right, SHAPES=shapes, PACK=pack, FAST=fast, rtol=1e-2, atol=1.0)
    return out, np.matmul(a_values, b_values) + c


FORMAT_NAMES = ["e2m1", "e4m3", "e5m2", "bf16", "fp16"]


@pytest.mark.parametrize("right", FORMAT_NAMES)
@pytest.mark.parametrize("left", FORMAT_NAMES)
def test_scaled_formats(launch: Run, left: str, right: str) -> None:
    wide = ("bf16", "fp16")
    found, wanted = scaled(launch, left, right, with_scales=(left not in wide, right not in wide))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("pack", [(True, False), (False, True), (False, False)])
def test_pairs_may_lie_along_the_other_axis(launch: Run, pack: tuple[bool, bool]) -> None:
    found, wanted = scaled(launch, "e2m1", "e2m1", pack=pack)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize(("left", "right"), [("e2m1", "e5m2"), ("e4m3", "bf16")])
def test_scaled_products_have_batches(launch: Run, left: str, right: str) -> None:
    found, wanted = scaled(launch, left, right, batches=(2,), with_scales=(True, right != "bf16"))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-3)


def test_scales_of_sixteen(launch: Run) -> None:
    found, wanted = scaled(launch, "e2m1", "e2m1", group=16)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("fast", [False, True])
def test_a_scale_that_is_no_number_spoils_its_row(launch: Run, fast: bool) -> None:
    found, wanted = scaled(launch, "e4m3", "e4m3", spoilt=not fast, fast=fast)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-3)
    assert np.isnan(found).any() != fast
