"""Matmuls of sizes that the suite's cases lack, on CPU and GPU, against float64.

These are one element, and few columns of many terms, of every type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright_conformance.cases.matmul.dots.kernels import matmul
from tilewright_conformance.oracles.dtypes import kind
from tilewright_conformance.oracles.formats import FORMATS

Run = Callable[..., None]
RNG = np.random.default_rng(52)


def draw(name: str, *shape: int) -> Any:
    """Return small numbers of few bits, whose products and sums are exact."""
    values = RNG.integers(0 if name[0] == "u" else -4, 5, shape)
    return (values if "int" in name else values / 4).astype(kind(name))


@pytest.mark.each_value
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
        *(
            (name, "float32")
            for name in FORMATS
            if name.startswith("float8") and name != "float8e4b15"
        ),
        ("float8e5", "float16"),
    ],
)
def test_every_type(launch: Run, name: str, result: str, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b, c = draw(name, m, k), draw(name, k, n), draw("int8", m, n).astype(result)
    found = np.zeros((2, m, n), result)
    launch(
        matmul,
        (1,),
        a,
        b,
        c,
        found,
        BATCHES=[],
        M=m,
        N=n,
        K=k,
        OUT=tl.float16 if result == "float16" else None,
        PRECISION=None,
        rtol=0,
        atol=0,
    )
    wanted = np.matmul(a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_array_equal(found.astype(np.float64), [wanted + c.astype(np.float64), wanted])
