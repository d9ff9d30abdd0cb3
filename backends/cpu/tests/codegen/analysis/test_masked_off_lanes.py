"""Masked-off lanes of a row: skipped where that changes nothing, and else counted by their
values."""

from __future__ import annotations

import importlib.util
import math
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.language.definitions.callable import device_function
from tilewright.reference import interpreter

Check = Callable[..., None]
BLOCK = 128
COUNTS = [-3, 0, 1, 16, 37, 127, 128, 500]
REDUCTIONS = ["sum", "max", "min", "product"]
INF, NAN = math.inf, math.nan


@device_function
def _product(a, b):
    return a * b


@device_function
def _of(v, KIND: tl.constexpr):
    if KIND == "sum":
        return tl.sum(v, 0)
    elif KIND == "max":
        return tl.max(v, 0)
    elif KIND == "min":
        return tl.min(v, 0)
    else:
        return tl.reduce(v, 0, _product)


@device_function
def reduced(x, flags, o, n, number, OTHER: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(o, _of(tl.load(x + i, mask=i < n, other=OTHER), KIND))


@device_function
def computed(x, flags, o, n, number, OTHER: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=OTHER)
    if KIND == "exp of difference":
        v = tl.exp2(v - number)
    elif KIND == "exp of sum":
        v = tl.exp2(number + v)
    elif KIND == "product":
        v = v * number
    elif KIND == "quotient":
        v = v / number
    elif KIND == "choice":
        v = tl.where(i < n, v * number, OTHER)
    tl.store(o, tl.sum(v, 0))
    tl.store(o + 1, tl.max(v, 0))


@device_function
def without_other(
    x, flags, o, n, number, OTHER: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr
):
    i = tl.arange(0, BLOCK)
    tl.store(o, _of(tl.load(x + i, mask=i < n), KIND))


@device_function
def where_flagged(
    x, flags, o, n, number, OTHER: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr
):
    i = tl.arange(0, BLOCK)
    on = (i < n) & (tl.load(flags + i) != 0)
    v = tl.load(x + i, mask=on, other=OTHER)
    tl.store(o, tl.sum(v, 0))
    tl.store(o + 1, tl.sum(tl.where(on, v, number), 0))
    tl.store(o + 2, tl.max(tl.where(on, v, OTHER), 0))


@pytest.fixture
def check(module_of: Any, compiled: Any) -> Check:
    """``check(kernel, other, number=0.0, kind="")``: the kernel, compiled once, against the
    reference for every count of lanes."""

    def agrees(kernel: Any, other: float, number: float = 0.0, kind: str = "") -> None:
        random = np.random.default_rng(5)
        x = ((1 - random.random(BLOCK) / 64) * random.choice([-1, 1], BLOCK)).astype(np.float32)
        flags = random.integers(0, 2, BLOCK).astype(np.int8)
        arguments = [x, flags, np.zeros(4, np.float32), 0, np.float32(number)]
        module = module_of(kernel, arguments, OTHER=other, KIND=kind, BLOCK=BLOCK)
        run = compiled(module, {"enable_fp_fusion": False})
        for n in COUNTS:
            found, expected = np.zeros(4, np.float32), np.zeros(4, np.float32)
            run([x, flags, found, n, np.float32(number)])
            with np.errstate(all="ignore"):
                interpreter.run(module, [x, flags, expected, n, np.float32(number)], (1, 1, 1))
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=f"{n} lanes")

    return agrees


@pytest.mark.each_value
@pytest.mark.parametrize("kind", REDUCTIONS)
@pytest.mark.parametrize("other", [0.0, 1.0, 2.0, -1.0, INF, -INF, NAN])
def test_reductions(other: float, kind: str, check: Check) -> None:
    check(reduced, other, kind=kind)


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("kind", "other"),
    [
        *(("exp of difference", other) for other in (-INF, 0.0)),
        ("exp of sum", -INF),
        *(("product", other) for other in (0.0, -INF, INF, 1.0)),
        *(("quotient", other) for other in (0.0, INF)),
        ("choice", -INF),
    ],
)
@pytest.mark.parametrize("number", [2.0, -2.0, 0.0, INF, -INF, NAN])
def test_what_is_computed_of_them(kind: str, other: float, number: float, check: Check) -> None:
    check(computed, other, number, kind)


@pytest.mark.parametrize("kind", REDUCTIONS)
def test_lanes_without_another_value_are_zero(kind: str, check: Check) -> None:
    check(without_other, 0.0, kind=kind)


#: text of a mask -> what it admits of lanes, for a number of an argument
MASKS: dict[str, Callable[[Any, int], Any]] = {
    "i < n": lambda i, n: i < n,
    "i <= n": lambda i, n: i <= n,
    "i > n": lambda i, n: i > n,
    "i >= n": lambda i, n: i >= n,
    "n > i": lambda i, n: n > i,
    "n >= i": lambda i, n: n >= i,
    "n < i": lambda i, n: n < i,
    "n <= i": lambda i, n: n <= i,
    "3 * i < n": lambda i, n: 3 * i < n,
    "3 * i <= n": lambda i, n: 3 * i <= n,
    "100 - i > n": lambda i, n: 100 - i > n,
    "100 - 3 * i >= n": lambda i, n: 100 - 3 * i >= n,
    "100 - i < n": lambda i, n: 100 - i < n,
    "n < 100 - i": lambda i, n: n < 100 - i,
    "n + i < 100 - i": lambda i, n: n + i < 100 - i,
}


@pytest.mark.parametrize("mask", MASKS)
def test_bounds_of_every_form(mask: str, module_of: Any, compiled: Any, tmp_path: Path) -> None:
    """What is stored, and summed, where the bound holds, with signs and without."""
    path = tmp_path / "bounded.py"
    text = f"""
        import tilewright.language as tl
        from tilewright.language.definitions.callable import device_function

        @device_function
        def bounded(x, y, total, n, BLOCK: tl.constexpr):
            i = tl.arange(0, BLOCK).to(n.dtype)
            on = {mask}
            tl.store(y + tl.arange(0, BLOCK), 1, mask=on)
            tl.store(total, tl.sum(tl.load(x + tl.arange(0, BLOCK), mask=on), 0))
    """
    path.write_text(textwrap.dedent(text))
    spec = importlib.util.spec_from_file_location("bounded", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    x = np.random.default_rng(2).integers(1, 100, BLOCK).astype(np.int32)
    for type_, kind, counts in (
        ("i32", np.int32, COUNTS),
        ("u32", np.uint32, [0, 1, 37, 2**31 + 5, 2**32 - 7, 2**32 - 100]),
        ("i64", np.int64, COUNTS),
    ):
        run = compiled(module_of(made.bounded, [x, x, x, 0], {"n": type_}, BLOCK=BLOCK))
        for n in counts:
            y, total = np.zeros(BLOCK, np.int32), np.zeros(1, np.int32)
            run([x, y, total, n])
            with np.errstate(over="ignore"):
                on = MASKS[mask](np.arange(BLOCK).astype(kind), kind(n))
            np.testing.assert_array_equal(y, on, err_msg=f"{type_} {n}")
            assert total[0] == x[on].sum(), (type_, n)


@pytest.mark.parametrize("number", [0.0, 1.0])
@pytest.mark.parametrize("other", [0.0, -INF, 3.0])
def test_masks_of_a_bound_and_of_what_memory_tells(
    other: float, number: float, check: Check
) -> None:
    check(where_flagged, other, number)
