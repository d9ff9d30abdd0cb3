"""Matrix products on CPU and GPU of sizes that the suite's cases have not: one element, and few columns of many terms, of every type, against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright.language as tl
from tilewright_conformance.cases.matmul.dots.kernels import product

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


@pytest.mark.parametrize("shape", [(1, 1, 32), (2, 64, 16), (64, 1, 8)])
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
def test_every_type(launch: Run, name: str, result: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b, c = draw(name, m, k), draw(name, k, n), draw("int8", m, n).astype(result)
    found = np.zeros((2, m, n), result)
    launch(product, (1,), a, b, c, found, BATCHES=[], M=m, N=n, K=k, OUT=tl.float16 if result == "float16" else None, PRECISION=None, rtol=0, atol=0)
    wanted = np.matmul(a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_array_equal(found.astype(np.float64), [wanted + c.astype(np.float64), wanted])
