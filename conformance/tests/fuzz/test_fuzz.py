"""The fuzzer finds planted bugs, makes them small, and writes reproducers that fail with the bug
and pass without."""

from __future__ import annotations

import ast
import dataclasses
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import fork_server
import numpy as np
import pytest

from tilewright.ir import Builder, Function, Location, Module
from tilewright.ir.parser import parse_module
from tilewright.ir.types import F64, I32, PointerType, TileType
from tilewright.plugins.manifest import Manifest
from tilewright.plugins.registry import registry
from tilewright_conformance import mutation
from tilewright_conformance.fuzz.__main__ import main
from tilewright_conformance.fuzz.differential import Differential
from tilewright_conformance.fuzz.minimise import minimise
from tilewright_conformance.fuzz.reproducer import reproducer
from tilewright_conformance.fuzz.search import Search
from tilewright_conformance.mutation import disruptive
from tilewright_conformance.mutation.mutant import Healthy, Switch
from tilewright_conformance.mutation.mutant_backend import BrokenBackend
from tilewright_conformance.random_programs import ArrayArgument, Output, Program, random_program
from tilewright_conformance.suite.case import Needs


@pytest.fixture(autouse=True)
def only_installed_backends() -> Iterator[None]:
    yield
    for name in registry().names():
        if mutation.is_faulty(name):
            mutation.unregister(name)


def _run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return fork_server.run([path, *arguments])


def test_a_backend_that_agrees(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--backend", "cpu", "--count", "12", "--seed", "11", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "fuzzing cpu: 12 programs, seed 11" in printed
    assert "cpu: 12 programs, 0 failing" in printed
    assert "programs with each operation:" in printed
    assert re.search(r"\bstore 12\b", printed), printed
    assert not list(tmp_path.glob("*.py"))


@pytest.mark.parametrize(
    ("switch", "seed"),
    [
        ("shift-swapped", 13),
        ("descriptor-load-inside", 2),
        ("atomic-not-atomic", 26),
        ("store-last-element-lost", 1),
    ],
    ids=str,
)
def test_a_planted_bug_is_found_and_made_small(
    switch: str, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = mutation.backend_name(switch)
    assert (
        main(
            [
                "--backend",
                name,
                "--count",
                "300",
                "--seed",
                str(seed),
                "--out",
                str(tmp_path),
                "--stop-after",
                "1",
                "--shrink",
                "100",
            ]
        )
        == 1
    )
    assert f"seed {seed}" in capsys.readouterr().out
    (path,) = tmp_path.glob("failure_*.py")
    text = path.read_text()
    assert "tilewright_conformance" not in text.replace(
        mutation.load_reference(name), ""
    )  # nothing is needed but Tilewright, NumPy and the backend
    module = next(
        node.value.value
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and node.targets[0].id == "MODULE"
    )
    made = [
        line for line in module.splitlines() if line.startswith("  ") and 'loc("guard"' not in line
    ]
    assert len(made) <= 18, module
    broken = _run(path)
    assert broken.returncode == 1, broken.stderr
    assert f"{name}: WRONG" in broken.stdout
    found = _run(path, "cpu")
    assert (found.returncode, found.stdout) == (0, "cpu: agrees\n"), found.stderr


def test_the_same_seed_gives_the_same_programs() -> None:
    drawn: list[list[tuple[str, int]]] = []
    for seed in (5, 5, 6):
        seen: list[tuple[str, int]] = []
        search = Search(
            Differential("cpu"),
            before=lambda program, known, seen=seen: seen.append(
                (str(program.module), program.seed)
            ),
        )
        assert list(search.run(5, seed)) == []
        drawn.append(seen)
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == 5


def _program(divisor: int, element: object = I32) -> Program:
    """Eight elements divided by a number, added to twice themselves, stored, and stored once more
    as they are."""
    function = Function(
        "program",
        [PointerType(element), PointerType(element), PointerType(element)],
        argument_names=["x", "out0", "out1"],
    )
    b = Builder.at_end(function.body, Location("program", 1))
    offsets = b.arange(start=0, end=8)
    x, first, second = (
        b.addptr(b.splat(argument, result=TileType((8,), argument.type)), offsets)
        for argument in function.arguments
    )
    value = b.load(x)
    b.store(first, b.add(b.div(value, b.constant_like(value.type, divisor)), b.add(value, value)))
    b.store(second, b.sub(b.neg(value), b.mul(value, value)))
    b.return_()
    module = Module()
    module.add(function)
    parameters = (
        ArrayArgument(element, 8),
        ArrayArgument(element, 8, "poison"),
        ArrayArgument(element, 8, "poison"),
    )
    return Program(module, (1, 1, 1), parameters, (Output(1, element), Output(2, element)), 3)


def test_undefined_programs_are_thrown_out() -> None:
    differential = Differential("cpu")
    verdict = differential.judge(_program(0))
    assert (verdict.kind, verdict.fails) == ("undefined", False)
    assert "division-by-zero" in verdict.message
    assert differential.judge(_program(3)).kind == "agrees"  # though its sums wrap around


def test_programs_that_the_reference_refuses_are_thrown_out() -> None:
    """A program made smaller may wait for what nobody does any more."""
    module = parse_module("""
tilewright.ir 1.0

kernel @program(%flag: ptr<i32>) {
  while before() {
    %0 = load %flag {volatile = true} : i32
    %1 = constant 1 : i32
    %2 = cmp %0, %1 {predicate = ne} : i1
    condition %2
  } after() {
    yield
  }
  return
}
""")
    program = Program(module, (1, 1, 1), (ArrayArgument(I32, 1, "poison"),), (Output(0, I32),), 3)
    verdict = Differential("cpu").judge(program)
    assert verdict.kind == "undefined" and "never ends" in verdict.message


def test_programs_that_need_what_is_not_declared_are_thrown_out() -> None:
    def manifest(healthy: Healthy) -> Manifest:
        whole = healthy("tilewright_backend")
        return dataclasses.replace(
            whole,
            capabilities=dataclasses.replace(
                whole.capabilities, dtypes=whole.capabilities.dtypes - {"f64"}
            ),
        )

    registry().register(
        BrokenBackend(
            Switch("less", "capabilities", "f64 is not declared", {"tilewright_backend": manifest}),
            "less",
        ),
        "less",
    )
    try:
        differential = Differential("less")
        assert differential.judge(_program(3, F64)).kind == "undeclared"
        assert differential.judge(_program(3)).kind == "agrees"
    finally:
        registry().unregister("less")


def test_refusals_of_what_is_declared_are_failures() -> None:
    mutation.register("null")
    verdict = Differential("null").judge(_program(3))
    assert (verdict.kind, verdict.fails) == ("mismatch", True)


def test_exceptions_of_any_kind_are_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(disruptive.ENVIRONMENT, "div")
    for switch in ("foreign-exception", "refusal-on-launch"):
        mutation.register(mutation.backend_name(switch))
        verdict = Differential(mutation.backend_name(switch)).judge(_program(3))
        assert (verdict.kind, verdict.fails) == ("error", True)
        assert (
            "none of Tilewright's"
            if switch == "foreign-exception"
            else "LaunchError: a launch that is refused"
        ) in verdict.message


def test_a_backend_that_declares_nothing_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tilewright_conformance.fuzz.search._HOPELESS", 10)
    monkeypatch.setattr(
        "tilewright_conformance.fuzz.differential.needs_of",
        lambda module: Needs(dtypes=frozenset({"f8e9"})),
    )
    assert main(["--backend", "cpu", "--count", "5", "--out", str(tmp_path)]) == 2
    assert "no program could be run" in capsys.readouterr().err


def test_minimising_keeps_the_addresses_of_stores_and_drops_the_rest() -> None:
    mutation.register("broken-integer-division-floors")
    differential = Differential("broken-integer-division-floors")
    program = _program(3)
    assert differential.judge(program).kind == "mismatch"
    small = minimise(program, lambda smaller: differential.judge(smaller).kind == "mismatch")
    names = [operation.name for operation in small.module.walk()]
    assert names.count("store") == names.count("div") == 1
    assert not {"mul", "neg", "sub", "add"} & set(names)
    assert len(small.arguments()) == len(small.module.kernel.arguments) == 2
    store = next(operation for operation in small.module.walk() if operation.name == "store")
    assert store.operands[0].definition.name == "addptr"  # the lanes do not meet at one address
    assert differential.judge(small).kind == "mismatch"
    assert Differential("cpu").judge(small).kind == "agrees"


def test_a_program_that_fails_whatever_it_does_keeps_its_outputs() -> None:
    """As one does that a backend refuses to compile: nothing reads its arguments in the end."""
    small = minimise(_program(3), lambda smaller: True)
    assert [operation.name for operation in small.module.walk()] == ["return"]
    assert len(small.arguments()) == len(small.module.kernel.arguments) == len(small.outputs)


def test_a_reproducer_keeps_every_bit(tmp_path: Path) -> None:
    program = _program(3, F64)
    verdict = Differential("cpu").judge(program)
    path = tmp_path / "one.py"
    message = 'a "quoted" message \\ with """ quotes"""'
    path.write_text(
        reproducer(program, verdict.expected, backend="cpu", title="A program.", message=message)
    )
    assert _run(path).returncode == 0
    wrong = [value.copy() if isinstance(value, np.ndarray) else value for value in verdict.expected]
    wrong[2].view(np.uint8)[0] ^= 1  # the last bit of a fraction
    path.write_text(reproducer(program, wrong, backend="cpu", title="A program.", message=message))
    found = _run(path)
    assert found.returncode == 1
    assert "argument 2[0]" in found.stdout


def test_a_backend_that_ends_the_process_leaves_its_program_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(disruptive.ENVIRONMENT, "add")
    options = [
        "--backend",
        "broken-crash-on-launch",
        "--count",
        "20",
        "--seed",
        "3",
        "--out",
        str(tmp_path),
    ]
    found = fork_server.run(["-m", "tilewright_conformance.fuzz", *options])
    assert found.returncode < 0
    path = tmp_path / "running_3.py"
    assert " = add " in path.read_text()
    assert _run(path).returncode < 0
    assert _run(path, "cpu").returncode == 0


def test_a_backend_that_hangs_leaves_its_program_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(disruptive.ENVIRONMENT, "add")
    options = [
        "--backend",
        "broken-hang-on-launch",
        "--count",
        "20",
        "--out",
        str(tmp_path),
        "--time-limit",
        "3",
    ]
    found = fork_server.run(["-m", "tilewright_conformance.fuzz", *options])
    assert found.returncode == 1
    assert "Timeout" in found.stderr
    assert _run(tmp_path / "running_0.py", "cpu").returncode == 0


def test_what_cannot_run_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--backend", "nonsense", "--out", str(tmp_path)]) == 2
    assert "nonsense" in capsys.readouterr().err
    assert main(["--backend", "broken-nonsense", "--out", str(tmp_path)]) == 2
    assert "no switch 'nonsense'" in capsys.readouterr().err


@pytest.mark.parametrize("number", [3, 8])
def test_a_reproducer_has_every_kind_of_argument(number: int, tmp_path: Path) -> None:
    """Programs as they are drawn, with narrow floats, numbers and inexact results: the file agrees
    with the backend it was written for."""
    differential = Differential("cpu")
    program = next(
        found
        for found in (
            random_program(number * 1000 + offset, differential.capabilities)
            for offset in range(200)
        )
        if {str(output.element) for output in found.outputs} & {"bf16", "f8e5m2", "f8e4m3fn"}
        and any(output.ulp for output in found.outputs)
    )
    verdict = differential.judge(program)
    assert verdict.kind == "agrees"
    path = tmp_path / "one.py"
    path.write_text(
        reproducer(program, verdict.expected, backend="cpu", title="A program.", message="nothing")
    )
    for name in ("cpu", "reference"):
        found = _run(path, name)
        assert (found.returncode, found.stdout) == (0, f"{name}: agrees\n"), found.stderr
