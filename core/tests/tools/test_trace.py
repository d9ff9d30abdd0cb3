"""``tw.debug.watch`` and ``tilewright trace``: statistics against NumPy, and where NaN and
infinities begin."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.debug import ValueStatistics, WatchReport, watch
from tilewright.tools import cli

SOURCE = Path(__file__).read_text().splitlines()
BACKENDS = ("reference", "cpu")


def line_of(comment: str) -> int:
    (found,) = (number for number, line in enumerate(SOURCE, 1) if line.endswith(f"# {comment}"))
    return found


def at(report: WatchReport, comment: str, operation: str) -> ValueStatistics:
    """The only value of a line that an operation computes or writes."""
    line = line_of(comment)
    (found,) = (v for v in report.values if v.line == line and v.operation == operation)
    return found


@tw.jit
def scaled(x, out, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(x + i, i < n)  # scaled: the load
    tl.store(out + i, a * factor, i < n)  # scaled: the store


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_statistics_of_elements_under_the_mask(backend: str, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=300) * 10.0 ** rng.integers(-3, 4, 300)).astype(dtype)
    x[[17, 200]], x[[41, 42, 290]] = np.nan, [np.inf, -np.inf, np.inf]
    out = np.full(300, 7, dtype)
    report = watch(scaled)[(5,)](x, out, 300, 2.0, BLOCK=64, backend=backend)
    np.testing.assert_array_equal(out, x * dtype(2))
    finite = x[np.isfinite(x)].astype(np.float64)
    for value, scale in (
        (at(report, "scaled: the load", "load"), 1.0),
        (at(report, "scaled: the store", "store"), 2.0),
    ):
        assert (value.count, value.nan, value.inf) == (300, 2, 3)
        assert value.minimum == scale * finite.min()
        assert value.maximum == scale * finite.max()
        assert value.mean == pytest.approx(scale * finite.mean(), rel=1e-4, abs=1e-4)
        assert value.first_nan is not None and value.first_inf is not None
        assert (value.first_nan.program, value.first_nan.index) == ((0, 0, 0), (17,))
        assert (value.first_inf.program, value.first_inf.index) == ((0, 0, 0), (41,))
    assert [value.line for value in report.nan_origins] == [line_of("scaled: the load")]
    assert report.nan_origins[0].read == ("x",)
    assert [value.written for value in report.written_nan] == [("out",)]


@tw.jit
def log_of_softmax(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(1)
    i = tl.arange(0, BLOCK)
    v = tl.load(x + row * n + i, i < n, other=float("-inf"))
    e = tl.exp(v - tl.max(v, 0))
    y = e / tl.sum(e, 0)
    z = tl.log(y - 0.5)  # the logarithm
    tl.store(out + row * n + i, z, i < n)


@pytest.mark.parametrize("backend", BACKENDS)
def test_nan_begins_where_no_operand_has_one(backend: str) -> None:
    x = np.zeros((6, 20), np.float32)
    x[:, 0] = 100.0
    x[4, 0] = 0.0
    out = np.empty_like(x)
    report = watch(log_of_softmax)[(1, 6)](x, out, 20, BLOCK=32, backend=backend)
    (origin,) = report.nan_origins
    assert (origin.line, origin.operation, origin.nan_from_inf) == (
        line_of("the logarithm"),
        "log",
        0,
    )
    assert origin.nan_origins == 6
    assert origin.first_nan is not None and origin.first_nan.program == (0, 0, 0)
    assert origin.first_nan.index == (1,)
    assert not report.inf_origins, "the masked elements' -inf is what the program asks for"
    assert f"line {line_of('the logarithm')}: NaN begin in log" in str(report)


@tw.jit
def recurrence(x, out, steps):
    total = 0.0
    for i in range(steps):
        v = tl.load(x + i)
        if v > 10.0:
            total = total + v * 1e38  # the overflow
        else:
            total = total - total  # the difference
    tl.store(out, total)


@pytest.mark.parametrize("backend", BACKENDS)
def test_values_of_loops_and_branches(backend: str) -> None:
    x, out = np.array([11, 12, 1, 2], np.float32), np.empty(1, np.float32)
    report = watch(recurrence)[(1,)](x, out, 4, backend=backend)
    assert math.isnan(out[0])
    (infinite,), (nan,) = report.inf_origins, report.nan_origins
    assert (infinite.line, infinite.operation) == (line_of("the overflow"), "mul")
    assert (nan.line, nan.operation) == (line_of("the difference"), "sub")
    assert (nan.count, nan.nan, nan.nan_origins, nan.nan_from_inf) == (2, 2, 1, 1)
    assert "whose operands have infinities, no NaN" in str(report)


@tw.jit
def tiles(a, b, c, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    place = i[:, None] * BLOCK + i[None, :]
    x, y = tl.load(a + place), tl.load(b + place)
    tl.atomic_add(c + place, tl.dot(x, y))  # the matmul


@pytest.mark.parametrize("backend", BACKENDS)
def test_matmul_of_zero_by_infinity(backend: str) -> None:
    a, b = (np.random.default_rng(1).normal(size=(16, 16)).astype(np.float16) for _ in range(2))
    a[3, 5], b[5, 7] = 0, np.inf
    c = np.zeros((16, 16), np.float32)
    report = watch(tiles)[(1,)](a, b, c, BLOCK=16, backend=backend)
    (origin,) = report.nan_origins
    assert (origin.line, origin.operation, origin.nan) == (line_of("the matmul"), "dot", 1)
    assert origin.first_nan is not None and origin.first_nan.index == (3, 7)
    assert origin.nan_from_inf == 1


def test_programs_of_a_grid_of_three_axes() -> None:
    @tw.jit
    def ids(x, out):
        place = tl.program_id(0) + 2 * (tl.program_id(1) + 3 * tl.program_id(2))
        tl.store(out + place, tl.sqrt(tl.load(x + place)))

    x, out = np.ones(24, np.float32), np.empty(24, np.float32)
    x[[19, 21]] = -1.0
    report = watch(ids)[(2, 3, 4)](x, out)
    (origin,) = report.nan_origins
    assert origin.first_nan is not None
    assert (origin.first_nan.program, origin.first_nan.index) == ((1, 0, 3), ())
    assert origin.count == 24 and origin.nan == 2


def test_healthy_kernels_and_empty_grids() -> None:
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    assert watch(scaled)[(1,)](x, out, 8, 3.0, BLOCK=8).conclusions() == ["every float is finite"]
    report = watch(scaled)[(0,)](x, out, 8, 5.0, BLOCK=8)
    assert all(value.count == 0 and value.minimum is None for value in report.values)
    assert "never computed" in str(report)
    assert report.conclusions() == ["no float was computed or written"]
    np.testing.assert_array_equal(out, 3.0)


def test_infinities_of_masked_lanes_are_not_called_finite() -> None:
    @tw.jit
    def rows(x, out, n, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        loaded = tl.load(x + i, mask=i < n, other=-float("inf"))
        tl.store(out + i, loaded - tl.max(loaded, 0), mask=i < n)

    x = np.ones(8, np.float32)
    given = (
        "infinities come from constants or from `other` of masked loads: no operation computes "
        "them from finite operands"
    )
    launch = watch(rows)[(1,)]
    assert launch(x, np.empty_like(x), 5, BLOCK=8).conclusions() == ["no float is NaN", given]
    nan, other = launch(x, np.empty_like(x), 0, BLOCK=8).conclusions()
    assert "NaN begin in sub, whose operands have infinities, no NaN" in nan and other == given


def test_decorated_kernels_take_their_configuration_by_keywords() -> None:
    tuned = tw.autotune([tw.Config({"BLOCK": 16}), tw.Config({"BLOCK": 32})], key=["n"])(scaled)
    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    report = watch(tuned)[(1,)](x, out, 8, 3.0, BLOCK=16)
    assert at(report, "scaled: the load", "load").count == 8
    with pytest.raises(TypeError, match="watch takes a kernel"):
        watch(print)


@pytest.fixture
def given(tmp_path: Path) -> list[str]:
    x = np.array([1, -1, 4, -9], np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    kernel = tmp_path / "kernel.py"
    kernel.write_text(
        "import tilewright as tw\n"
        "import tilewright.language as tl\n"
        "@tw.jit\n"
        "def root(x, out, n, BLOCK: tl.constexpr):\n"
        "    i = tl.arange(0, BLOCK)\n"
        "    tl.store(out + i, tl.sqrt(tl.load(x + i, i < n)), i < n)\n"
    )
    return [
        *("trace", f"{kernel}:root", "--arguments", "x=fp32[n], out=fp32[n], n=4"),
        *("--grid", "cdiv(n, BLOCK)", "--constants", "BLOCK=4", "--backend", "cpu"),
        *("--arrays", str(tmp_path / "x.npz")),
    ]


def test_command_says_where_nan_begins(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*given, "--nan"]) == 1
    assert capsys.readouterr().out == (
        "line 6: NaN begin in sqrt, whose operands have no NaN; first in program (0, 0, 0), "
        "element [1]\n"
        "line 6: 2 NaN are written to out\n"
    )


def test_command_writes_json_and_a_page(
    given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert cli.main([*given, "--json", "--output", str(page)]) == 0
    values = json.loads(capsys.readouterr().out)["values"]
    assert [value["operation"] for value in values] == ["load", "sqrt", "store"]
    assert values[0]["minimum"] == -9 and values[1]["maximum"] == 2
    assert "4 elements, 2 NaN" in page.read_text()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"y": np.zeros(4, np.float32)}, "y are no arrays of --arguments"),
        ({"x": np.zeros(5, np.float32)}, r"'x' is float32\[5\] in the file, and fp32\[4\]"),
    ],
)
def test_arrays_that_do_not_fit(
    given: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], arrays: Any, message: str
) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    assert cli.main(given) == 2
    assert re.search(message, capsys.readouterr().err)
