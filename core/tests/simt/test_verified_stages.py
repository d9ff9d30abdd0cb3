"""Verification of each stage of the toolkit, and the words in which a stage that breaks the IR is
named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tilewright.ir import Module, VerificationError
from tilewright.simt.compile import STAGES, compile_kernel, kernel_of, run_stages
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.target.simt_target import SimtTarget, Stage

OPTIONS = {"num_warps": 2, "num_stages": 2}


def read_early(module: Module, target: SimtTarget, options: Mapping[str, Any]) -> None:
    """Move the first operation of a kernel that another one reads behind that."""
    body = kernel_of(module).body
    first = next(operation for operation in body if operation.results and operation.results[0].uses)
    reader = next(iter(first.results[0].uses))
    assert reader.next is not None
    first.move_before(reader.next)


class Breaking(EmulatedTarget):
    """A machine with a stage that leaves a value without definition, in front of one of the
    toolkit's."""

    def stages(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        place = next(number for number, stage in enumerate(stages) if stage.name == "select")
        return (
            *stages[:place],
            Stage("breaking", read_early, "what no stage may do"),
            *stages[place:],
        )


WHERE = (
    r"^after stage breaking: \w+ in @\w+ at .*:\d+:\d+ in \w+.*: reads a value of type .* that "
    r"is not defined before it$"
)


@pytest.mark.parametrize("value", ["1", "uses"])
def test_the_stage_and_the_operation_are_named(
    kernel: Callable[..., Module], monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("TILEWRIGHT_VERIFY", value)
    with pytest.raises(VerificationError, match=WHERE) as caught:
        compile_kernel(kernel("add"), Breaking(), OPTIONS)
    assert caught.value.operation is not None


def test_stages_that_are_run_by_name_are_verified_whatever_the_environment_says(
    kernel: Callable[..., Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "0")
    names = [stage.name for stage in Breaking().stages(STAGES)]
    with pytest.raises(VerificationError, match=WHERE):
        run_stages(kernel("add"), Breaking(), OPTIONS, names[: names.index("breaking") + 1])


def test_a_module_that_is_broken_before_the_first_stage_blames_none(
    kernel: Callable[..., Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_VERIFY", "uses")
    module, target = kernel("add"), EmulatedTarget()
    read_early(module, target, OPTIONS)
    with pytest.raises(VerificationError, match=WHERE.replace("after stage breaking: ", "")):
        compile_kernel(module, target, OPTIONS)


def test_the_time_of_verification_is_told_apart(
    kernel: Callable[..., Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    for value, verified in (("uses", True), ("0", False)):
        monkeypatch.setenv("TILEWRIGHT_VERIFY", value)
        timings: dict[str, float] = {}
        compile_kernel(kernel("add"), EmulatedTarget(), OPTIONS, timings)
        assert ("verify" in timings) is verified
