"""Running passes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright.ir import Module, VerificationError
from tilewright.ir.parser import parse_module
from tilewright.passes.cse import cse
from tilewright.passes.dce import dce
from tilewright.passes.pipeline import STANDARD, pass_name, run

DEAD = "%x = neg %f : f32\n%y = neg %f : f32\nuse %y, %x"


def break_it(module: Module) -> bool:
    """A pass that leaves a region without terminator."""
    assert module.kernel.body.last is not None
    module.kernel.body.last.erase()
    return True


def test_changed(kernel_of: Callable[[str], Module]) -> None:
    module = kernel_of(DEAD)
    assert run(module)
    assert not run(module)


def test_timings_add_up(kernel_of: Callable[[str], Module]) -> None:
    timings: dict[str, float] = {}
    run(kernel_of(DEAD), [cse, dce, cse], timings=timings)
    assert list(timings) == ["cse", "dce"]
    before = timings["cse"]
    assert before > 0
    run(kernel_of(DEAD), [cse], timings=timings)
    assert timings["cse"] > before


def test_the_broken_pass_is_named(
    kernel_of: Callable[[str], Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "0")
    run(kernel_of(DEAD), [break_it])
    with pytest.raises(
        VerificationError, match=r"^after pass break_it: a region of k has no terminator$"
    ):
        run(kernel_of(DEAD), [cse, break_it], verify_each=True)


@pytest.mark.parametrize("value", ["1", "uses"])
def test_the_environment_turns_verification_on(
    kernel_of: Callable[[str], Module], monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("TILEWRIGHT_VERIFY", value)
    with pytest.raises(VerificationError, match="after pass break_it"):
        run(kernel_of(DEAD), [break_it])
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "0")
    run(kernel_of(DEAD), [break_it])


def test_a_malformed_module_is_refused_before_the_first_pass(
    kernel_of: Callable[[str], Module],
) -> None:
    module = kernel_of(DEAD)
    break_it(module)
    with pytest.raises(VerificationError, match=r"^a region of k has no terminator"):
        run(module, [cse], verify_each=True)


def test_names() -> None:
    assert [pass_name(pass_) for pass_ in STANDARD] == [
        "canonicalize",
        "cse",
        "licm",
        "canonicalize",
        "cse",
        "dce",
    ]


def test_work_grows_with_the_size_of_the_module(
    steps_in: Callable[[Callable[[], object]], int],
) -> None:
    """Eight times the operations take some eight times the work, and not sixty-four times."""

    def steps(count: int) -> int:
        lines = [
            "tilewright.ir 1.0 kernel @k(%x: f32, %p: ptr<f32>) {",
            "%one = constant 1.0 : f32",
            "%v0 = neg %x : f32",
        ]
        for index in range(count):
            lines.append(
                f"%c{index} = constant {index % 7}.0 : f32 %a{index} = mul %v{index}, %one : f32"
            )
            lines.append(f"%v{index + 1} = add %a{index}, %c{index} : f32")
        lines.append(f"store %p, %v{count} return }}")
        text = "\n".join(lines)
        module = parse_module(text)
        return steps_in(lambda: run(module))

    steps(1)  # what is done once
    assert steps(1600) < 10 * steps(200)
