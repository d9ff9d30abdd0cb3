"""The backend of the page ``vendors/first_kernel`` with what its own kernels do not contain: each
element type of the manifest, constants that are no numbers, regions with results."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
from page_scripts import PACKAGE_PAGE, script_and_output

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LoweringError
from tilewright.ir.types import F64
from tilewright.plugins.registry import registry

INTEGERS = {f"{letter}{bits}" for letter in "iu" for bits in (8, 16, 32, 64)}
#: element type -> NumPy type of an array that a launch takes for it
TYPES = {name: name.replace("i", "int").replace("u", "uint") for name in INTEGERS} | {
    "f32": "float32",
    "f16": "float16",  # moved as bits, as is bf16, which NumPy does not have
    "i1": "bool",
}
GUARD = 512


@pytest.fixture(scope="module")
def vega(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The package with the files of the page, registered."""
    script, _ = script_and_output(PACKAGE_PAGE)
    file = tmp_path_factory.mktemp("page") / "page.py"
    file.write_text(script)
    scope = {"__name__": "__page__", "__file__": str(file)}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(script, str(file), "exec"), scope)
    package: ModuleType = scope["tilewright_vega"]  # type: ignore[assignment]
    registry().register(package.plugin, "vega")
    yield package
    registry().unregister("vega")
    for name in [name for name in sys.modules if name.partition(".")[0] == "tilewright_vega"]:
        del sys.modules[name]


@tw.jit
def copy_or_combine(x, y, out, n, BLOCK: tl.constexpr, COMBINE: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside)
    if COMBINE:
        other = tl.load(y + at, mask=inside)
        value = tl.where(value < other, value + other, other)
    tl.store(out + at, value, mask=inside)


def random_elements(dtype: str, count: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.integers(0, 2, count).astype(bool)
    if dtype.startswith("float"):  # random bytes could be NaN
        return random.standard_normal(count).astype(dtype)
    return np.frombuffer(random.bytes(count * np.dtype(dtype).itemsize), dtype).copy()


def test_the_types_are_those_of_the_manifest(vega: ModuleType) -> None:
    assert {*TYPES, "bf16"} == registry().get("vega").manifest.capabilities.dtypes
    with pytest.raises(LoweringError, match="no NumPy type for f64"):
        vega.lower.dtype(F64)


@pytest.mark.parametrize("combine", [False, True])
@pytest.mark.parametrize("name", sorted(TYPES))
def test_a_kernel_writes_its_elements_and_no_others(
    vega: ModuleType, name: str, combine: bool
) -> None:
    n, dtype = 37, TYPES[name]
    x, y = random_elements(dtype, n, 1), random_elements(dtype, n, 2)
    whole = random_elements(dtype, n + 2 * GUARD, 3)
    expected, out = whole.copy(), whole[GUARD : GUARD + n]
    # The page lowers no casts: i1 is cast from its bytes, and f16 is combined as f32.
    refused = name == "i1" or (combine and name == "f16")
    error = pytest.raises(LoweringError, match="does not lower") if refused else None
    with warnings.catch_warnings(), error or contextlib.nullcontext():
        warnings.simplefilter("error")
        copy_or_combine[(3,)](x, y, out, n, BLOCK=16, COMBINE=combine, backend="vega")
    if not refused:
        expected[GUARD : GUARD + n] = np.where(x < y, x + y, y) if combine else x
    assert whole.tobytes() == expected.tobytes()


@tw.jit
def total(x, out):
    tl.store(out, tl.load(x) + tl.load(x + 1))


def test_a_sum_that_is_nan_does_not_warn(vega: ModuleType) -> None:
    out = np.zeros(1, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        total[(1,)](np.array([np.inf, -np.inf], np.float32), out, backend="vega")
    assert np.isnan(out[0])


@tw.jit
def fill(out, VALUE: tl.constexpr):
    tl.store(out + tl.arange(0, 8), tl.full((8,), VALUE, tl.float32))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 0.1, -0.0, 1e-45])
def test_constants(vega: ModuleType, value: float) -> None:
    out = np.ones(8, np.float32)
    fill[(1,)](out, VALUE=float(value), backend="vega")
    assert np.array_equal(out.view(np.uint32), np.full(8, value, np.float32).view(np.uint32))


@tw.jit
def swap(out, start: tl.uint8, end: tl.uint8, step: tl.uint8, limit: tl.uint8):
    a, b = 1, 2
    for i in range(start, end, step):
        if i > limit:
            a, b = b, a
        else:
            a = a + 50
    for _ in range(start, end, step):
        a, b = b, a
    tl.store(out, a)
    tl.store(out + 1, b)


def test_loops_and_branches_assign_all_results_at_once(vega: ModuleType) -> None:
    """The last counter is so large that the next one does not fit its type."""
    out = np.zeros(3, np.int32)
    swap[(1,)](out, 0, 250, 100, 150, backend="vega")
    assert out.tolist() == [101, 2, 0]


@tw.jit
def larger(a, i, b, j):
    first = (a > b) | ((a == b) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)


@tw.jit
def largest(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value, index = tl.reduce((tl.load(x + at), at), 0, larger)
    tl.store(out, value)
    tl.store(out + 1, index)


def test_a_reduction_of_two_inputs(vega: ModuleType) -> None:
    x = np.random.default_rng(0).integers(-99, 99, 64).astype(np.int32)
    out = np.zeros(3, np.int32)
    largest[(1,)](x, out, BLOCK=64, backend="vega")
    assert out.tolist() == [x.max(), x.argmax(), 0]
