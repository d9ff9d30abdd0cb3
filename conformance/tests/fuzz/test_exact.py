"""Random programs in exact mode find wrong backends and rewrites, and spare right ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import fork_server
import pytest

from tilewright.ir import Builder, Module, Operation, Value
from tilewright.ir.types import FloatType, element_type
from tilewright.passes import pipeline
from tilewright.plugins.registry import registry
from tilewright_conformance import mutation
from tilewright_conformance.fuzz.__main__ import main
from tilewright_conformance.fuzz.exact_differential import ExactDifferential, RewriteDifferential
from tilewright_conformance.random_programs import random_program

Rewrite = Callable[[Operation, Builder], Value | None]


@pytest.fixture(autouse=True)
def only_installed_backends() -> Iterator[None]:
    yield
    for name in registry().names():
        if mutation.is_faulty(name):
            mutation.unregister(name)


def _fuzz(path: Path, oracle: str, backend: str, count: int, seed: int) -> int:
    options = {"--backend": backend, "--count": count, "--seed": seed, "--out": path}
    limits = {"--stop-after": 1, "--shrink": 80}
    given = [str(part) for option in {**options, **limits}.items() for part in option]
    return main([oracle, *given])


def _pass_of(rewrite: Rewrite, name: str) -> Callable[[Module], bool]:
    def rewritten(module: Module) -> bool:
        changed = False
        for operation in list(module.walk()):
            if operation.operands and isinstance(
                element_type(operation.operands[0].type), FloatType
            ):
                found = rewrite(operation, Builder.at(operation))
                if found is not None:
                    operation.result.replace_all_uses(found)
                    changed = True
        return changed

    rewritten.__name__ = name
    return rewritten


def _negated_sum(operation: Operation, b: Builder) -> Value | None:
    """Rewrite ``x - y`` to ``-(y + x)``."""
    if operation.name != "sub":
        return None
    x, y = operation.operands
    return b.neg(b.add(y, x))


def _strictly_less(operation: Operation, b: Builder) -> Value | None:
    """Rewrite ``x <= y`` to ``x < y``."""
    if operation.name != "cmp" or operation.attribute("predicate") != "le":
        return None
    return b.cmp(*operation.operands, predicate="lt")


def _times_the_inverse(operation: Operation, b: Builder) -> Value | None:
    """Rewrite ``x / c`` to ``x * (1 / c)``."""
    if operation.name != "div":
        return None
    x, c = operation.operands
    return b.mul(x, b.div(b.constant_like(c.type, 1.0), c))


@pytest.mark.parametrize("oracle", ["--exact", "--rewrites"])
def test_programs_without_an_alarm(
    oracle: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _fuzz(tmp_path, oracle, "cpu", 6, 11) == 0
    assert "cpu: 6 programs, 0 failing" in capsys.readouterr().out
    assert not list(tmp_path.glob("*.py"))


def test_a_planted_bug_of_a_backend(tmp_path: Path) -> None:
    name = mutation.backend_name("store-last-element-lost")
    assert _fuzz(tmp_path, "--exact", name, 40, 1) == 1
    (path,) = tmp_path.glob("failure_*.py")
    broken = fork_server.run([path])
    assert (broken.returncode, f"{name}: WRONG" in broken.stdout) == (1, True), broken.stderr
    assert fork_server.run([path, "cpu"]).stdout == "cpu: agrees\n"


@pytest.mark.parametrize(
    ("rewrite", "seed"),
    [(_negated_sum, 3), pytest.param(_strictly_less, 4, marks=pytest.mark.full)],
)
def test_a_wrong_rewrite_is_named(
    rewrite: Rewrite,
    seed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first, *others = pipeline.STANDARD
    monkeypatch.setattr(pipeline, "STANDARD", (first, _pass_of(rewrite, "fast_math"), *others))
    assert _fuzz(tmp_path, "--rewrites", "reference", 100, seed) == 1
    assert "mismatch: pass 2 fast_math changes the algebra: " in capsys.readouterr().out
    (path,) = tmp_path.glob("failure_*.py")
    broken = fork_server.run([path])
    assert (broken.returncode, "reference: WRONG" in broken.stdout) == (1, True), broken.stderr


def test_a_right_rewrite_is_not_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "STANDARD", (_pass_of(_times_the_inverse, "fast_math"),))
    differential, rewritten = RewriteDifferential("reference"), 0
    for number in range(400):
        program = random_program(number, differential.capabilities)
        if any(
            operation.name == "div" and isinstance(element_type(operation.result.type), FloatType)
            for operation in program.module.walk()
        ):
            verdict = differential.judge(program)
            assert not verdict.fails, f"program {number}: {verdict.message}"
            rewritten += verdict.kind == "agrees"
        if rewritten == 8:
            return
    raise AssertionError(f"{rewritten} programs divide floats")


def test_programs_that_exact_mode_does_not_model() -> None:
    differential = ExactDifferential("cpu")
    verdicts = [
        differential.expected(random_program(number, differential.capabilities, max_steps=4))
        for number in range(40)
    ]
    reasons = {one.message for one in verdicts if one.kind == "not modelled"}
    assert "a program without floats" in reasons
