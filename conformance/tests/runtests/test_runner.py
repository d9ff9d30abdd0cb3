"""Run tests can fail: wrong expectations, wrong backends and ill-fitting directives are
reported."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.ir.parser import ParseError
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import Capabilities, Manifest
from tilewright.plugins.registry import registry
from tilewright_conformance import mutation
from tilewright_conformance.runtests import __main__ as program
from tilewright_conformance.runtests.runner import FAILED, NOT_SUPPORTED, PASSED, Outcome, Runner
from tilewright_conformance.suite import minimal_backend

TEXT = """tilewright.ir 1.0
function @half(%x: f32) -> f32 {
  %0 = constant 0.5 : f32
  %1 = mul %x, %0 : f32
  return %1
}
function @pair(%x: tile<2xi32>, %c: i1) -> (tile<2xi32>, i1) {
  %0 = add %x, %x : tile<2xi32>
  return %0, %c
}
kernel @fill(%p: ptr<i16>, %n: i16, %d: desc<2xi32>) {
  store %p, %n
  return
}
function @bf16(%x: bf16) -> bf16 {
  return %x
}
function @pointers(%p: tile<2xptr<i32>>) -> i32 {
  %0 = constant 0 : i32
  return %0
}
"""


def run(directive: str, backend: str = "reference") -> Outcome:
    (outcome,) = Runner(backend).run_text(f"{TEXT}; run: {directive}\n")
    return outcome


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(
    "directive",
    [
        "@half(3.0) == 1.5", "@half(1) == 0.5", "@half(-0.0) == -0.0", "@half(nan) == nan",
        "@half(3.0) == 1.5000001 within 1 ulp",
        "@pair([1, 2], true) == ([2, 4], true)",
        "@fill([1, 2], 7, [3, 4]), %p == [7, 2], %d == [3, 4]", "@bf16(0.1) == 0.1",
    ],
)  # fmt: skip
def test_right_expectations_pass(directive: str, backend: str) -> None:
    outcome = run(directive, backend)
    assert outcome.status == PASSED, outcome.message


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(
    ("directive", "message"),
    [
        (
            "@half(3.0) == 1.25",
            r"the result \(f32\): 1 of 1 elements are wrong; .* expected 1.25, found 1.5",
        ),
        ("@half(3.0) == 1.5000001", "allowed 0 ULP"),
        ("@half(3.0) == 1.5000003 within 1 ulp", "allowed 1 ULP"),
        ("@half(0.0) == -0.0", "expected -0.0, found 0.0"),
        ("@half(3.0) == nan", "expected nan, found 1.5"),
        (
            "@pair([1, 2], true) == ([2, 5], true)",
            r"result 0 \(i32\): 1 of 2 .* first at \[1\]: expected 5, found 4",
        ),
        ("@pair([1, 2], true) == ([2, 4], false)", "result 1"),
        ("@fill([1, 2], 7, [3, 4]), %p == [7, 3]", r"%p \(i16\): 1 of 2 .* expected 3, found 2"),
    ],
)
def test_wrong_expectations_fail(directive: str, message: str, backend: str) -> None:
    outcome = run(directive, backend)
    assert outcome.status == FAILED
    assert re.search(message, outcome.message), outcome.message


@pytest.fixture
def mutant() -> Iterator[str]:
    """A backend that loses the last element of each tile that it stores."""
    name = mutation.backend_name("store-last-element-lost")
    mutation.register(name)
    yield name
    mutation.unregister(name)


def test_a_wrong_backend_fails(mutant: str) -> None:
    outcome = run("@pair([1, 2], true) == ([2, 4], true)", mutant)
    assert (
        outcome.status == FAILED
        and "result 0 (i32): 1 of 2 elements are wrong; first at [1]: expected 4" in outcome.message
    )


def test_a_backend_that_does_nothing_fails_whatever_is_expected() -> None:
    mutation.register(mutation.NULL)
    try:
        for value in ("0.0", "nan", "-1e-45", "inf"):
            assert run(f"@half({value}) == {value}", mutation.NULL).status == FAILED
        assert run("@pair([0, 0], false) == ([0, 0], false)", mutation.NULL).status == FAILED
    finally:
        mutation.unregister(mutation.NULL)


class Narrow(minimal_backend.Minimal):
    """A backend without bf16, whose lowerings all raise an error."""

    @hookimpl
    def tilewright_backend(self) -> Manifest:
        return dataclasses.replace(
            super().tilewright_backend(), capabilities=Capabilities(frozenset({"f32", "i32"}))
        )

    @hookimpl
    def tilewright_lower(self) -> None:
        raise ZeroDivisionError("a fault of the backend")


def test_what_a_backend_does_not_declare_is_no_failure_and_its_errors_are() -> None:
    registry().register(Narrow("core"), minimal_backend.NAME)
    try:
        undeclared = run("@bf16(1.0) == 2.0", minimal_backend.NAME)
        assert (
            undeclared.status == NOT_SUPPORTED
            and "does not declare" in undeclared.message
            and "bf16" in undeclared.message
        )
        broken = run("@half(1.0) == 0.5", minimal_backend.NAME)
        assert (
            broken.status == FAILED
            and "ZeroDivisionError: a fault of the backend" in broken.message
        )
    finally:
        registry().unregister(minimal_backend.NAME)


#: Directive -> (column, message): the text of a directive begins in column 8.
UNFIT = {
    "@third(1.0) == 1.0": (
        3,
        "there is no function @third; the file has @half, @pair, @fill, @bf16, @pointers",
    ),
    "@half(1.0, 2.0) == 1.0": (3, "@half has 1 argument, not 2"),
    "@half(1.0) == (1.0, 2.0)": (3, "@half has 1 result, not 2"),
    "@pair([1, 2], true), %x == [1]": (3, "@pair has 2 results, not 0"),
    "grid(2) @half(1.0) == 1.0": (3, "only a kernel runs on a grid"),
    "@half([1.0]) == 1.0": (14, "expected a value of f32, found 1"),
    "@pair(1, true) == ([1, 2], true)": (14, "expected a value of tile<2xi32>, found a number"),
    "@pair([1, 2, 3], true) == ([1, 2], true)": (14, "expected a value of tile<2xi32>, found 3"),
    "@pair([1, [2]], true) == ([1, 2], true)": (18, "the rows of this list have different shapes"),
    "@pair([1, 2.5], true) == ([1, 2], true)": (18, "expected an integer of type i32"),
    "@pair([1, 0x80000000], true) == ([1, 2], true)": (
        18,
        "2147483648 is no i32, which is -2147483648 to 2147483647",
    ),
    "@pair([1, 2], 1) == ([1, 2], true)": (22, "expected true or false, a value of type i1"),
    "@pair([true, true], true) == ([1, 2], true)": (
        15,
        "expected a number of type i32, found a value of type i1",
    ),
    "@fill(1, 7, [1, 2]), %p == [1]": (
        14,
        "expected the memory behind the pointer, a list of numbers",
    ),
    "@fill([1], [7], [1, 2]), %p == [1]": (19, "expected a number of type i16, found a list"),
    "@fill([1], 7, [[1, 2]]), %p == [1]": (22, "expected a tensor of rank 1, lists in lists"),
    "@fill([1], 7, [1, 2]), %q == [1]": (31, "there is no argument %q; @fill has %p, %n, %d"),
    "@fill([1], 7, [1, 2]), %n == 1": (31, "%n is of type i16, and has no memory"),
    "@fill([1], 7, [1, 2]), %p == [1, 2]": (37, "expected 1 elements, as %p has"),
    "@pointers([1, 2]) == 0": (18, "%p is a tile of pointers, which has no text"),
}


@pytest.mark.parametrize("directive", UNFIT)
def test_directives_that_do_not_fit_their_function_are_reported(directive: str) -> None:
    with pytest.raises(ParseError) as caught:
        run(directive)
    line = TEXT.count("\n") + 1
    assert (caught.value.line, caught.value.column, caught.value.message) == (
        line,
        *UNFIT[directive],
    )


def test_the_interpreter_checks_accesses() -> None:
    body = "%0 = addptr %p, %i : ptr<i32>\n%1 = load %0 : i32\nreturn %1"
    text = (
        f"tilewright.ir 1.0\nfunction @f(%p: ptr<i32>, %i: i32) -> i32 {{\n{body}\n}}\n"
        "; run: @f([1, 2], 2) == 0"
    )
    (outcome,) = Runner("reference").run_text(text)
    assert outcome.status == FAILED and "outside" in outcome.message


def test_the_command_finds_the_files_of_the_suite(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("loops", "loops.tileir"):
        assert program.main([name, "--backend", "reference"]) == 0
        assert " passed, 0 failed" in capsys.readouterr().out
    for name in ("loop", "elsewhere/loops"):
        assert program.main([name, "--backend", "reference"]) == 2
        printed = capsys.readouterr().err
        assert f"there is no file {name}; the suite's files are atomics, bits" in printed


def test_operations_without_a_lowering_are_summed_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file.tileir"
    file.write_text(TEXT + "; run: @half(3.0) == 1.5\n" * 3)
    message = "backend 'x' does not lower clz yet (at None): write a function for it"
    outcomes = [
        dataclasses.replace(outcome, status=FAILED, message=text)
        for outcome, text in zip(
            Runner("reference").run_file(file), (message, message, "wrong"), strict=True
        )
    ]
    monkeypatch.setattr(Runner, "run_file", lambda runner, path: outcomes)
    assert program.main([str(file), "--backend", "reference"]) == 1
    wrong, *rest = capsys.readouterr().out.splitlines()
    assert "failed on reference" in wrong and wrong.endswith(": wrong")
    assert rest == [
        "2 directives need operations without a lowering (-v lists them):",
        "  lower `clz`: unblocks 2 cases",
        "reference: 0 passed, 3 failed, 0 not-supported",
    ]


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, malformed, ill = (
        tmp_path / f"{name}.tileir" for name in ("good", "bad", "malformed", "ill")
    )
    good.write_text(f"{TEXT}; run: @half(3.0) == 1.5\n")
    bad.write_text(f"{TEXT}; run: @half(3.0) == 1.5\n; run: @half(3.0) == 2.5\n")
    malformed.write_text(f"{TEXT}; run: @half(3.0) = 1.5\n")
    ill.write_text(
        "tilewright.ir 1.0\nfunction @f(%x: i32) -> i32 {\n%0 = add %x, %x : i64\nreturn %0\n"
        "}\n; run: @f(1) == 2\n"
    )
    assert program.main([str(good), "--backend", "reference", "--backend", "cpu"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{name}: 1 passed, 0 failed, 0 not-supported" for name in ("reference", "cpu")
    ]
    assert program.main([str(good), str(bad), "--backend", "cpu"]) == 1
    lines, line = capsys.readouterr().out.splitlines(), TEXT.count("\n") + 2
    assert lines[0].startswith(
        f"{bad}:{line}:3: failed on cpu: @half(3.0) == 2.5: the result (f32)"
    )
    assert lines[1:] == ["cpu: 2 passed, 1 failed, 0 not-supported"]
    assert program.main([str(malformed), "--backend", "cpu"]) == 2
    assert f"{malformed}:{line - 1}:19: '=' begins nothing" in capsys.readouterr().err
    assert program.main([str(ill), "--backend", "cpu"]) == 2
    assert str(ill) in capsys.readouterr().err
    assert program.main([str(good), "--backend", "none"]) == 2
    assert "no backend named 'none'" in capsys.readouterr().err
    assert program.main([str(good), "--emulate", "x"]) == 2
    assert "need one --backend" in capsys.readouterr().err
