"""``tw.debug.bisect`` names the pass, the backend or the option that changes a kernel's results."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.debug import Bisection, bisect
from tilewright.ir import Module
from tilewright.ir.builder import Builder
from tilewright.passes import pipeline
from tilewright.plugins.registry import Backend
from tilewright.tools import cli
from tilewright.tools.bisect.results import difference


@tw.jit
def sums(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + 3 * tl.load(y + i, i < n), i < n)


def found(**keywords: Any) -> tuple[Bisection, np.ndarray[Any, Any]]:
    x, y = np.random.default_rng(0).normal(size=(2, 100)).astype(np.float32)
    out = np.full(100, 7, np.float32)
    result = bisect(sums)[(2,)](x, y, out, 100, BLOCK=64, **keywords)
    np.testing.assert_array_equal(out, x + 3 * y)
    return result, out


def without(operation: str) -> Callable[[Module], bool]:
    """A wrong pass: the first floating-point operation of that name yields its first operand."""

    def wrong(module: Module) -> bool:
        for each in module.walk():
            if each.name == operation and "f32" in str(each.result.type):
                each.result.replace_all_uses(each.operands[0])
                return True
        return False

    return wrong


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_right_compilations(backend: str) -> None:
    result, _ = found(backend=backend)
    assert result.culprit is None and not result.options
    assert [step.name for step in result.steps][-1] == backend
    assert result.conclusion() == (
        "every step of sums preserves its results: if they are wrong, the fault is in the kernel "
        "or its arguments; try checked mode"
    )


def test_names_the_wrong_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = pipeline.STANDARD
    monkeypatch.setattr(pipeline, "STANDARD", (first, without("add"), *others))
    result, _ = found(backend="reference")
    assert result.culprit is not None and result.culprit.name == "pass 2 wrong"
    assert result.steps[0].right and not any(step.right for step in result.steps[1:])
    assert "pass 2 wrong changes the results: 100 elements of out differ" in result.conclusion()
    assert not result.faults and "faults" not in result.conclusion()


def test_a_backend_wrong_by_a_race_is_not_run_with_other_options() -> None:
    @tw.jit
    def histogram(x, out, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        bins = tl.load(x + i, i < n)
        tl.store(out + bins, tl.load(out + bins, i < n) + 1, i < n)

    x = np.random.default_rng(0).integers(0, 16, 1000).astype(np.int32)
    result = bisect(histogram)[(16,)](x, np.zeros(16, np.int32), 1000, BLOCK=64, backend="cpu")
    assert result.culprit is result.steps[-1] and not result.options
    (fault,) = result.faults
    assert "in histogram: race: store races with the load at " in fault
    assert re.search(r"cpu: DIFFERS \(.*: \d+, expected \d+\)\n", str(result))


def test_a_race_is_the_kernel_s_own_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    @tw.jit
    def last_wins(x, out, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out + i, 2.0 * tl.load(x + tl.program_id(0) * BLOCK + i))

    x, out = np.arange(16, dtype=np.float32), np.zeros(8, np.float32)
    assert not bisect(last_wins)[(2,)](x, out, BLOCK=8, backend="reference").faults
    monkeypatch.setattr(pipeline, "STANDARD", (without("mul"),))
    result = bisect(last_wins)[(2,)](x, out, BLOCK=8, backend="reference")
    assert result.culprit is not None and result.culprit.name == "pass 1 wrong"
    (fault,) = result.faults
    assert "last_wins: race: store races with the store at " in fault
    assert result.conclusion().endswith(
        "; but the kernel itself has faults that can do that, and that can make the expected "
        "results wrong, so mend them first: " + fault
    )
    np.testing.assert_array_equal(out, 2 * x[8:])


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_right_compilations_in_exact_mode(backend: str) -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 100)).astype(np.float32)
    out = np.full(100, 7, np.float32)
    result = bisect(sums, exact=True)[(2,)](x, y, out, 100, BLOCK=64, backend=backend)
    assert result.culprit is None and all(step.difference is None for step in result.steps)
    assert (out == 7).all(), "arrays keep their values"
    names = [step.name for step in result.steps]
    assert {"algebra after pass 1 canonicalize", "pass 1 canonicalize", backend} < set(names)


def test_exact_mode_sees_what_rounding_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = np.ones(100, np.float32), np.full(100, 1e-9, np.float32)
    out = np.zeros(100, np.float32)
    monkeypatch.setattr(pipeline, "STANDARD", (without("add"),))
    launch = (x, y, out, 100)
    assert bisect(sums)[(2,)](*launch, BLOCK=64, backend="reference").culprit is None
    found = bisect(sums, exact=True)[(2,)](*launch, BLOCK=64, backend="reference")
    assert found.culprit is not None and found.culprit.name == "algebra after pass 1 wrong"
    assert "100 elements of out differ, first at [0]: " in found.conclusion()


def test_differences_behind_an_uninterpreted_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    @tw.jit
    def rounded(x, out, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        tl.store(out + i, tl.floor(tl.load(x + i) + 1.0))

    x, out = np.ones(8, np.float32), np.zeros(8, np.float32)
    monkeypatch.setattr(pipeline, "STANDARD", (without("add"),))
    found = bisect(rounded, exact=True)[(1,)](x, out, BLOCK=8, backend="reference")
    assert found.culprit is None
    assert str(found.steps[0]) == "algebra after pass 1 wrong: inconclusive behind floor"


def test_only_differences_that_depend_on_the_operation_are_inconclusive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @tw.jit
    def both(x, rounded, out, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        added = tl.load(x + i) + 1.0
        tl.store(rounded + i, tl.floor(added))
        tl.store(out + i, added)

    x, a, b = (np.ones(8, np.float32) for _ in range(3))
    monkeypatch.setattr(pipeline, "STANDARD", (without("add"),))
    wrong = bisect(both, exact=True)[(1,)](x, a, b, BLOCK=8, backend="reference")
    assert wrong.culprit is wrong.steps[0]
    assert "algebra after pass 1 wrong changes the results: 8 elements of out" in str(wrong)
    # one array for both: what one store leaves in it may depend on the operation
    shared = bisect(both, exact=True)[(1,)](x, a, a, BLOCK=8, backend="reference")
    assert str(shared.steps[0]) == "algebra after pass 1 wrong: inconclusive behind floor"


def test_names_the_option_that_makes_a_wrong_backend_right(monkeypatch: pytest.MonkeyPatch) -> None:
    require = Backend.require

    def wrong(self: Backend, hook: str, /, **arguments: Any) -> Any:
        if (
            hook == "tilewright_lower"
            and self.name == "cpu"
            and not arguments["options"]["line_info"]
        ):
            without("mul")(arguments["module"])
        return require(self, hook, **arguments)

    monkeypatch.setattr(Backend, "require", wrong)
    result, _ = found(backend="cpu")
    assert result.culprit is not None and result.culprit.name == "cpu"
    right = [step.name for step in result.options if step.right]
    assert right == ["cpu with line_info=True"]
    assert "they are right for cpu with line_info=True" in result.conclusion()


def test_a_step_that_fails_is_the_culprit(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(module: Module) -> bool:
        store = next(each for each in module.walk() if each.name == "store")
        Builder.at(store).constant(value=1, result=store.operands[0].type)
        return True

    monkeypatch.setattr(pipeline, "STANDARD", (broken,))
    with pytest.raises(Exception, match="constant"):
        found(backend="reference")


def test_differences() -> None:
    one = {"x": np.array([1.0, np.nan, 100.0]), "n": np.array([1, 2])}
    other = {"x": np.array([1.0, np.nan, 100.001]), "n": np.array([1, 2])}
    assert difference(one, one, {"x": 0, "n": 0}) is None
    near = difference(one, other, {"x": 1e-4, "n": 0})
    assert near is not None and near.within and near.index == (2,)
    other["n"] = np.array([1, 3])
    wrong = difference(one, other, {"x": 1e-4, "n": 0})
    assert wrong is not None and (wrong.argument, wrong.within, wrong.found) == ("n", False, 3)
    nan = difference({"x": np.array([1.0])}, {"x": np.array([np.nan])}, {"x": 1.0})
    assert nan is not None and not nan.within


def test_arrays_of_tuples_and_what_is_no_kernel() -> None:
    @tw.jit
    def both(pair, n: tl.constexpr):
        i = tl.arange(0, n)
        tl.store(pair[1] + i, tl.load(pair[0] + i) * 2)

    x, out = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    assert bisect(both)[(1,)]((x, out), 4, backend="cpu").culprit is None
    np.testing.assert_array_equal(out, 2 * x)
    with pytest.raises(TypeError, match="bisect takes a kernel"):
        bisect(print)


@pytest.mark.parametrize("wrong", [False, True])
def test_command(
    wrong: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text(
        "import tilewright as tw\n"
        "import tilewright.language as tl\n"
        "@tw.jit\n"
        "def scaled(x, out, n, BLOCK: tl.constexpr):\n"
        "    i = tl.arange(0, BLOCK)\n"
        "    tl.store(out + i, tl.load(x + i, i < n) * 3.0, i < n)\n"
    )
    if wrong:
        monkeypatch.setattr(pipeline, "STANDARD", (without("mul"),))
    arguments = [
        *("bisect", f"{kernel}:scaled", "--arguments", "x=fp32[n], out=fp32[n], n=60"),
        *(
            "--grid",
            "cdiv(n, BLOCK)",
            "--constants",
            "BLOCK=64",
            "--backend",
            "reference",
            "--json",
        ),
    ]
    assert cli.main([*arguments, "--exact"]) == int(wrong)
    exact = json.loads(capsys.readouterr().out)
    assert exact["steps"][0]["name"].startswith("algebra after pass 1 ")
    assert (exact["steps"][0]["difference"] is not None) == wrong
    assert cli.main(arguments) == int(wrong)
    printed = json.loads(capsys.readouterr().out)
    assert ("changes the results" in printed["conclusion"]) == wrong
    assert printed["steps"][0]["name"] == ("pass 1 wrong" if wrong else "pass 1 canonicalize")
