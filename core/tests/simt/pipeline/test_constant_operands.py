"""Operands that stay the same in a loop: where they are, by a thread's registers and a program's
shared memory; numbers against the reference."""

from __future__ import annotations

from dataclasses import replace

import pytest
from looped_kernels import ATTENTION, attending, attention

from tilewright.passes.clone import clone_module
from tilewright.simt.compile import kernel_of, run_stages
from tilewright.simt.dialect.attributes import notes_of
from tilewright.simt.dialect.types import SlotType
from tilewright.testing.emulator_check import WARPS, build, compare, inside
from tilewright.testing.matrix_target import MatrixTarget

OPTIONS = {"num_warps": WARPS, "num_stages": 1, "enable_fp_fusion": False}


def machine(registers: int) -> MatrixTarget:
    """A machine with matrix instructions that read registers."""
    target = MatrixTarget(4, fragments=False, wish=False)
    target.async_copy.mechanisms, target.resources = (
        (),
        replace(target.resources, registers=registers, register_file=4096),
    )
    return target


@pytest.mark.each_value
@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("n", [0, 16, 33, 64])
def test_a_constant_operand_is_read_from_shared_memory_where_registers_are_few(
    n: int, stages: int
) -> None:
    found = {}
    for registers in (255, 60):
        _, (loop,), _ = compare(
            *attending(n), stages=stages, target=machine(registers), D=16, BLOCK=16
        )
        scores, values = inside(loop, "simt.dot")
        found[registers] = [
            isinstance(product.operands[0].type, SlotType) for product in (scores, values)
        ]
    assert found == {255: [False, False], 60: [True, False]}


@pytest.mark.parametrize(("memory", "kept"), [(1 << 16, True), (1024, False)])
def test_it_stays_in_registers_where_there_is_no_shared_memory_for_it(
    memory: int, kept: bool
) -> None:
    module, target = clone_module(build(attention, ATTENTION, D=16, BLOCK=16)), machine(60)
    target.resources = replace(target.resources, shared_memory=memory)
    run_stages(
        module, target, OPTIONS, ["prepare", "layouts", "select", "schedule", "expand", "constants"]
    )
    products = [operation for operation in module.kernel.walk() if operation.name == "simt.dot"]
    assert [isinstance(product.operands[0].type, SlotType) for product in products] == [kept, False]
    assert (
        any(
            "is read from shared memory in each iteration" in text
            for _, text in notes_of(kernel_of(module))
        )
        == kept
    )


def test_given_registers_count_as_those_of_the_machine() -> None:
    found = {}
    for limit in (None, 60):
        module = clone_module(build(attention, ATTENTION, D=16, BLOCK=16))
        run_stages(
            module,
            machine(255),
            {**OPTIONS, "maxnreg": limit},
            ["prepare", "layouts", "select", "schedule", "expand", "constants"],
        )
        found[limit] = any(
            isinstance(value.type, SlotType)
            for operation in kernel_of(module).walk()
            for value in operation.operands
        )
    assert found == {None: False, 60: True}
