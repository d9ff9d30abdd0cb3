"""The identities of exact mode, on the reference: of drawn payloads, codes among them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
import tilewright.language as tl
from tilewright.passes.exact.ring import ring
from tilewright.testing.exact import agree, exact_mode

COUNT = 64
RING = ring(32)


@tw.jit
def apply(x_ptr, y_ptr, out_ptr, law: tl.constexpr, COUNT: tl.constexpr):
    place = tl.arange(0, COUNT)
    x, y = tl.load(x_ptr + place), tl.load(y_ptr + place)
    tl.store(out_ptr + place, law(x, y))


#: Both sides of each identity that holds.
HOLDS: list[tuple[str, str]] = [
    ("x + y", "y + x"),
    ("(x + y) + x * y", "x + (y + x * y)"),
    ("x - y", "x + -y"),
    ("x * y", "y * x"),
    ("(x + 1.5) * y", "x * y + 1.5 * y"),
    ("tl.fma(x, y, 1.0)", "x * y + 1.0"),
    ("x / y", "x * (1.0 / y)"),
    ("x / 8.0", "x * 0.125"),
    ("x / 1000.0", "x * 0.001"),
    ("x / 3.0", "x * 0.3333333333"),
    ("tl.exp(x - y)", "tl.exp(x) / tl.exp(y)"),
    ("tl.exp(x + y)", "tl.exp(x) * tl.exp(y)"),
    ("tl.exp2(x * 1.4426950408889634)", "tl.exp(x)"),
    ("tl.exp(x * 0.6931471805599453)", "tl.exp2(x)"),
    ("tl.exp2(x * 0.18033688)", "tl.exp(x * 0.125)"),
    ("tl.rsqrt(x)", "1.0 / tl.sqrt(x)"),
    ("tl.sqrt(x) * tl.sqrt(y)", "tl.sqrt(x * y)"),
    ("tl.sin(x + y)", "tl.sin(x) * tl.cos(y) + tl.cos(x) * tl.sin(y)"),
    ("tl.cos(x + y)", "tl.cos(x) * tl.cos(y) - tl.sin(x) * tl.sin(y)"),
    ("tl.sigmoid(2 * x) * 2 - 1", "(tl.exp(x) - tl.exp(-x)) / (tl.exp(x) + tl.exp(-x))"),
    (
        "(x + y).to(tl.float16).to(tl.float32)",
        "(x.to(tl.float16) + y.to(tl.float16)).to(tl.float32)",
    ),
    ("x.to(tl.float16).to(tl.bfloat16).to(tl.float32)", "x.to(tl.bfloat16).to(tl.float32)"),
    ("x.to(tl.float64).to(tl.float32)", "x"),
    ("tl.where(x > 0, x, 0.0)", "tl.maximum(x, 0.0)"),
    ("(x + tl.abs(x)) * 0.5", "tl.maximum(x, 0.0)"),
    ("tl.maximum(x, y)", "-tl.minimum(-x, -y)"),
    ("tl.minimum(tl.maximum(x, y), y)", "y + 0.0 * x"),
    ("tl.abs(-x)", "tl.abs(x)"),
    ("-(-x)", "x"),
]  # fmt: skip
#: Those of logarithms, whose upper digit says nothing.
HOLDS_IN_THREE_DIGITS = [
    ("tl.log(tl.exp(x))", "x"),
    ("tl.log(x * y)", "tl.log(x) + tl.log(y)"),
    ("tl.log(x / y)", "tl.log(x) - tl.log(y)"),
    ("tl.log2(x) * 0.6931471805599453", "tl.log(x)"),
    ("tl.minimum(x, 0.0) - tl.log(1 + tl.exp(-tl.abs(x)))", "-tl.log(1 + tl.exp(-x))"),
]
#: Those that exact mode is known not to keep.
BROKEN = [
    ("tl.sqrt(x) * tl.sqrt(x)", "x"),
    ("tl.sqrt(x * x)", "tl.abs(x)"),
    ("tl.exp(tl.log(x))", "x"),
    ("tl.maximum(x - y, 0.0) + y", "tl.maximum(x, y)"),
    ("tl.maximum(x, y) * 0.125", "tl.maximum(x * 0.125, y * 0.125)"),
    ("tl.floor(x + 1.0)", "tl.floor(x) + 1.0"),
]


Side = Callable[[np.ndarray, np.ndarray], np.ndarray]


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Side]:
    """Make functions of the language from the text of what they return."""
    folder, made = tmp_path_factory.mktemp("laws"), {}

    def make(text: str) -> Side:
        if text not in made:
            made[text] = function(folder / f"side_{len(made)}.py", text)

        def run(x: np.ndarray, y: np.ndarray) -> np.ndarray:
            out = np.zeros(COUNT, np.float32)
            with exact_mode("reference"):
                apply[(1,)](x.view(np.float32), y.view(np.float32), out, made[text], COUNT)
            return out

        return run

    make.made = lambda text: (make(text), made[text])[1]
    return make


def function(path: Path, text: str) -> Any:
    path.write_text(
        "import tilewright as tw\nimport tilewright.language as tl\n\n"
        f"@tw.jit\ndef side(x, y):\n    return {text}\n"
    )
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.side


#: Residues that are easily forgotten: of small numbers, of their quotients, and no units.
SPECIAL = [
    *(RING.residue(Fraction(n, d)) for n in range(-4, 5) for d in (1, 2, 3, 1000)),
    *(251 * n for n in range(4)), 251**2, 251**3, RING.half, RING.half + 1, RING.modulus - 251,
]  # fmt: skip
RESIDUES = st.integers(0, RING.modulus - 1) | st.sampled_from(SPECIAL)
ARRAYS = st.lists(RESIDUES, min_size=COUNT, max_size=COUNT).map(lambda x: np.array(x, np.uint32))
UNITS = RESIDUES.filter(lambda x: x % 251 != 0)
ARRAYS_OF_UNITS = st.lists(UNITS, min_size=COUNT, max_size=COUNT).map(
    lambda x: np.array(x, np.uint32)
)


@pytest.mark.parametrize(("left", "right"), HOLDS, ids=[left for left, _ in HOLDS])
@settings(max_examples=6)
@given(x=ARRAYS, y=ARRAYS)
def test_identities_hold(left, right, side, x, y) -> None:
    assert agree(side(left)(x, y), side(right)(x, y)).all()


@pytest.mark.parametrize(
    ("left", "right"), HOLDS_IN_THREE_DIGITS, ids=[left for left, _ in HOLDS_IN_THREE_DIGITS]
)
@settings(max_examples=6)
@given(x=ARRAYS_OF_UNITS, y=ARRAYS_OF_UNITS)
def test_identities_of_logarithms_hold_in_three_digits(left, right, side, x, y) -> None:
    found, expected = side(left)(x, y), side(right)(x, y)
    assert agree(found, expected, digits=3).all()


@pytest.mark.parametrize(("left", "right"), BROKEN, ids=[left for left, _ in BROKEN])
def test_identities_that_the_rows_call_broken_are(left, right, side) -> None:
    rng = np.random.default_rng(3)
    x, y = (rng.integers(0, RING.modulus, COUNT).astype(np.uint32) for _ in range(2))
    assert not agree(side(left)(x, y), side(right)(x, y)).all()


def test_undefined_quotients_are_few_and_agree_with_all(side) -> None:
    x = np.full(COUNT, 7, np.uint32)
    y = np.arange(1, COUNT + 1, dtype=np.uint32) * 251
    found = side("x / y")(x, y)
    assert (found.view(np.uint32) == RING.undefined).all()
    assert agree(found, x.view(np.float32)).all()


#: Payloads of the numbers that IEEE's rules are about.
IEEE = {
    "0": 0, "1": 1, "-1": RING.modulus - 1, "2": 2, "inf": RING.infinity,
    "-inf": RING.negative_infinity, "nan": RING.nan,
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "x + y", "x - y", "x * y", "x / y", "tl.maximum(x, y)", "-x", "tl.exp(x)", "tl.abs(x)",
        "tl.where(x < y, 1.0, 0.0)", "tl.where(x == y, 1.0, 0.0)", "tl.where(x != y, 1.0, 0.0)",
    ],
)  # fmt: skip
def test_infinities_and_nan_follow_ieee(text, side) -> None:
    names = [(a, b) for a in IEEE for b in IEEE]
    x, y = (np.zeros(COUNT, np.uint32) for _ in range(2))
    x[: len(names)] = [IEEE[a] for a, _ in names]
    y[: len(names)] = [IEEE[b] for _, b in names]
    found = side(text)(x, y).view(np.uint32)
    floats = {name: np.float32(name) for name in IEEE}
    plain, out = [np.ones(COUNT, np.float32) for _ in range(2)], np.zeros(COUNT, np.float32)
    plain[0][: len(names)] = [floats[a] for a, _ in names]
    plain[1][: len(names)] = [floats[b] for _, b in names]
    with tw.backend("reference"), np.errstate(all="ignore"):
        apply[(1,)](*plain, out, side.made(text), COUNT)
    for (a, b), payload, expected in zip(names, found, out, strict=False):
        if np.isnan(expected):
            assert payload == RING.nan, (a, b)
        elif np.isinf(expected):
            assert payload == IEEE["inf" if expected > 0 else "-inf"], (a, b)
        else:
            assert payload < RING.modulus, (a, b)
