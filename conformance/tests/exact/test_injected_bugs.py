"""Mistakes that exact mode sees, of which tolerances miss a third: 17 of 17, on each backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.testing import same_algebra
from tilewright_conformance.kernels import exact_kernels as kernels


def filled(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.ones(shape, dtype)


def matmul() -> tuple[Any, ...]:
    m, n, k = 35, 27, 101
    a, b, c = (filled(*shape, dtype=np.float16) for shape in ((m + 1, k), (k + 1, n), (m, n)))
    blocks = {"BM": 32, "BN": 32, "BK": 32}
    return kernels.matmul_tiled, (a, b, c, m, n, k), (tw.cdiv(m, 32),), blocks


def softmax() -> tuple[Any, ...]:
    return kernels.softmax_online, (filled(6, 301), filled(6, 301), 301), (6,), {"BLOCK": 128}


def flash(causal: bool = False) -> tuple[Any, ...]:
    heads, length, head = 2, 50, 16
    q, k, v, out = (filled(heads + 1, length, head, dtype=np.float16) for _ in range(4))
    arguments = (q, k, v, out, filled(heads, length), head**-0.5, length)
    return kernels.flash, arguments, (4, heads), {"CAUSAL": causal, "BM": 16, "BN": 16, "HEAD": 16}


def causal() -> tuple[Any, ...]:
    return flash(True)


def layer_norm() -> tuple[Any, ...]:
    x, w, b, out = filled(6, 300, dtype=np.float16), filled(300), filled(300), filled(6, 300)
    arguments = (x, out, w, b, filled(6), filled(6), 300, 1e-5)
    return kernels.layer_norm, arguments, (6,), {"BLOCK": 128}


def cross_entropy() -> tuple[Any, ...]:
    target = np.arange(0, 300, 50, dtype=np.int32)
    arguments = (filled(6, 301), target, filled(6), 301)
    return kernels.cross_entropy_online, arguments, (6,), {"BLOCK": 64}


def prefix() -> tuple[Any, ...]:
    return kernels.prefix_blocks, (filled(1000), filled(1000), 1000), (1,), {"BLOCK": 32}


def group_scale() -> tuple[Any, ...]:
    arguments = (filled(4, 128), filled(4), filled(4, 128), 4, 128)
    return kernels.group_scale, arguments, (2,), {"BLOCK": 256}


#: A launch, and the mistake that its kernel makes.
BUGS: list[tuple[Callable[[], tuple[Any, ...]], str]] = [
    *((matmul, bug) for bug in ("tail mask", "last step", "stride", "accumulator", "twice")),
    (softmax, "padding"), (softmax, "rescaling"),
    (flash, "rescaling"), (flash, "columns"), (causal, "diagonal"),
    *((layer_norm, bug) for bug in ("tail", "eps", "n - 1", "operands")),
    (cross_entropy, "rescaling"), (prefix, "carry"), (group_scale, "group"),
]  # fmt: skip


def test_there_are_17_mistakes() -> None:
    assert len(BUGS) == 17


@pytest.mark.each_value
@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(("launch", "bug"), BUGS, ids=[f"{f.__name__}: {bug}" for f, bug in BUGS])
def test_a_mistake_is_another_algebra(launch, bug, backend) -> None:
    kernel, arguments, grid, constants = launch()
    found = same_algebra(
        kernel, kernel, arguments, grid=grid, constants=constants,
        constants_b={**constants, "BUG": bug}, backend=backend,
    )  # fmt: skip
    assert found.status == "different", found
    if bug == "twice":
        (difference,) = found.differences
        assert difference.index == (3, 5) and difference.count == 1


def test_the_kernels_agree_with_themselves() -> None:
    for launch in dict(BUGS):
        kernel, arguments, grid, constants = launch()
        found = same_algebra(
            kernel, kernel, arguments, grid=grid, constants=constants, backend="cpu"
        )
        assert found.status == "equal", (launch.__name__, found)
