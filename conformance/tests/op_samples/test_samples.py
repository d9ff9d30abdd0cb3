"""The samples themselves: they cover the table, verify, make arguments and run."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tilewright.errors import KernelError
from tilewright.ir import TABLE, verify
from tilewright.ir.order import SEQUENTIAL, TREE
from tilewright.ir.types import F32, PointerType
from tilewright.reference.checks.checked_mode import CheckedOptions
from tilewright.reference.interpreter import run
from tilewright_conformance.op_samples import FAMILIES, Sample, all_samples, check_outputs, samples
from tilewright_conformance.testlib.reduction_order import dot_sample, sum_sample

#: Operations that only a target can give a meaning.
TARGET_CODE = {"inline_asm", "extern"}


def test_every_operation_has_samples() -> None:
    assert set(FAMILIES) == {spec.name for spec in TABLE}
    for spec in TABLE:
        found = list(samples(spec.name))
        assert found, spec.name
        for sample in found:
            assert sample.name.startswith(f"{spec.name}/")
            assert any(operation.name == spec.name for operation in sample.module.walk()), (
                sample.name
            )


def test_names_are_unique() -> None:
    names = [sample.name for sample in all_samples()]
    assert len(names) == len(set(names))


def test_every_attribute_takes_every_choice() -> None:
    """Enumerations, booleans and optional operands occur in all their forms.

    Stated orders have cases of their own, since few backends have each for each operation.
    """
    ordered = [
        sample
        for order in (TREE, SEQUENTIAL)
        for sample in (sum_sample(F32, (4, 8), 1, order), dot_sample("f32", order))
    ]
    for spec in TABLE:
        operations = [
            operation
            for sample in (*samples(spec.name), *ordered)
            for operation in sample.module.walk()
            if operation.name == spec.name
        ]
        for declared in spec.attributes:
            found = {operation.attribute(declared.name) for operation in operations}
            if declared.kind == "enum":
                assert found == set(declared.choices), (spec.name, declared.name)
            elif declared.kind == "bool":
                assert found == {True, False}, (spec.name, declared.name)
        for position, operand in enumerate(spec.operands):
            if operand.kind.value == "optional":
                assert {operation.segments[position] for operation in operations} == {0, 1}, (
                    spec.name,
                    operand.name,
                )


def test_unknown_operation() -> None:
    with pytest.raises(KeyError, match="no operation 'nothing' in the table"):
        list(samples("nothing"))


def launch(
    sample: Sample, seed: int, checked: CheckedOptions | None = None
) -> tuple[list[object], list[str]]:
    """(the arguments after a run on the reference, the lines it printed without addresses, which no
    two arrays have in common)"""
    arguments, lines = sample.make_arguments(np.random.default_rng(seed)), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run(sample.module, arguments, sample.grid, checked=checked, printer=lines.append)
    return arguments, [line for line in lines if "address: 0x" not in line]


@pytest.mark.sampled(44)
@pytest.mark.parametrize("name", [spec.name for spec in TABLE])
def test_the_reference_runs_them_and_its_checked_mode_finds_nothing(name: str) -> None:
    """No access out of bounds, race, undefined lane, shift, division or cast; integers may wrap
    around. Both modes compute the same."""
    for number, sample in enumerate(samples(name)):
        verify(sample.module)
        assert len(sample.arguments) == len(sample.module.kernel.arguments)
        if name in TARGET_CODE:
            with pytest.raises(KernelError, match="runs no code of a target's own"):
                launch(sample, number)
        if not sample.runnable:
            continue
        assert sample.outputs or name == "print", sample.name
        (plain, lines), (checked, checked_lines) = (
            launch(sample, number),
            launch(sample, number, CheckedOptions(overflow=False)),
        )
        check_outputs(sample, plain, checked)
        assert lines == checked_lines
        for argument, value in zip(sample.arguments, sample.module.kernel.arguments, strict=True):
            if argument.kind == "pointer":
                assert isinstance(value.type, PointerType)
                assert value.type.pointee is argument.type


def test_a_wrong_result_is_found() -> None:
    sample = next(
        sample for sample in samples("add") if "f32" in sample.name and "scalar" not in sample.name
    )
    (first, _), (second, _) = launch(sample, 1), launch(sample, 1)
    output = second[sample.outputs[0]]
    assert isinstance(output, np.ndarray)
    output.flat[5] = (
        np.nextafter(output.flat[5], np.float32(1e30)) if np.isfinite(output.flat[5]) else 1.0
    )
    with pytest.raises(
        AssertionError,
        match=(
            r"add/f32/.*: argument 2 \(f32\) differs in 1 of \d+ elements; first at \(5,\): "
            r"expected"
        ),
    ):
        check_outputs(sample, first, second)


def test_units_in_the_last_place() -> None:
    sample = next(
        sample for sample in samples("exp") if "f32" in sample.name and "128" in sample.name
    )
    (first, _), (second, _) = launch(sample, 1), launch(sample, 1)
    output = second[sample.outputs[0]]
    assert isinstance(output, np.ndarray)
    bits = output.view(np.int32)
    bits += int(sample.ulp)
    check_outputs(sample, first, second)
    bits += 1
    with pytest.raises(AssertionError, match="differs in 128 of 128"):
        check_outputs(sample, first, second)
