"""Faults put into pipelined kernels: a wait that is missing or for something else, a slot that is
filled too early. The emulated machine finds each, by a wrong result or by a report of who waits for
what; without the fault the same kernel is right in every mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from matmul_kernels import by_blocks, by_pointers, matmul_module, matrices

from tilewright.errors import KernelError
from tilewright.ir import Module
from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Value
from tilewright.ir.types import I1
from tilewright.simt import emulator
from tilewright.simt.compile import STAGES, kernel_of
from tilewright.simt.dialect.attributes import WARPS
from tilewright.simt.emulator import EmulatedDescriptor, EmulatedTarget
from tilewright.simt.emulator.layout import MODES
from tilewright.simt.lowering.lower_function import lower_function
from tilewright.testing.toy_targets import BulkTarget, StagedTarget

M, N, K = 16, 8, 104
Mutation = Callable[[Module], None]


def inside(module: Module, name: str, part: str = "") -> list[Operation]:
    """The operations of a name, in a part where one is given."""
    found = [operation for operation in kernel_of(module).walk() if operation.name == name]
    return [
        operation
        for operation in found
        if not part or any(outer.attributes.get("name") == part for outer in operation.ancestors())
    ]


def in_loop(module: Module, name: str, part: str = "") -> Operation:
    """The only operation of a name in a loop; a wait of the thread alone that starts copies is
    called ``simt.await alone``."""
    name, _, alone = name.partition(" ")
    candidates = [
        operation
        for operation in inside(module, name, part)
        if any(outer.name == "for" for outer in operation.ancestors())
    ]
    (found,) = [
        operation
        for operation in candidates
        if bool(operation.attributes.get("alone")) == bool(alone)
    ]
    return found


def drop(name: str, part: str = "") -> Mutation:
    """Omit an operation of each iteration; of a wait, pass the tiles through."""

    def mutate(module: Module) -> None:
        _erase(in_loop(module, name, part))

    return mutate


def _erase(operation: Operation) -> None:
    if operation.name == "simt.wait":
        for result, tile in zip(operation.results, operation.group("tiles"), strict=True):
            result.replace_all_uses(tile)
    operation.erase()


def drop_last_wait(module: Module) -> None:
    """Read a result that is still being made."""
    (wait,) = [operation for operation in inside(module, "simt.wait") if operation.results]
    _erase(wait)


def turned(part: str, wait_name: str = "simt.await") -> Mutation:
    """Wait for the other phase."""

    def mutate(module: Module) -> None:
        wait = in_loop(module, wait_name, part)
        builder = Builder.at(wait)
        wait.set_operand(2, builder.xor(wait.operands[2], builder.constant(value=True, result=I1)))

    return mutate


def same_phase(part: str, wait_name: str = "simt.await") -> Mutation:
    """Keep the parity where the ring begins anew."""

    def mutate(module: Module) -> None:
        loop = next(in_loop(module, wait_name, part).ancestors())
        last = loop.regions[0].terminator
        assert last is not None
        (position,) = [i for i, value in enumerate(last.operands) if _is_next_phase(value)]
        last.set_operand(position, loop.regions[0].arguments[position + 1])

    return mutate


def _is_next_phase(value: Value) -> bool:
    return value.type is I1 and value.definition is not None and value.definition.name == "xor"


def place(name: str, position: int, source: str, of: int, part: str = "") -> Mutation:
    """Let an operation of a loop take the slot, or its number, that another has."""

    def mutate(module: Module) -> None:
        operation, other = in_loop(module, name, part), in_loop(module, source, part)
        assert operation.operands[position] is not other.operands[of]
        operation.set_operand(position, other.operands[of])

    return mutate


def refilled_slot(name: str) -> Mutation:
    """Fill the slot that is being read."""

    def mutate(module: Module) -> None:
        filled = [
            operation
            for operation in inside(module, name)
            if any(outer.name == "for" for outer in operation.ancestors())
        ]
        product = next(
            operation for operation in inside(module, "simt.dot") + inside(module, "simt.dot_start")
        )
        for operation, slot in zip(filled, product.operands[:2], strict=True):
            builder = Builder.at(operation)
            (read,) = (value.definition for value in (slot,))
            assert read is not None and read.name == "simt.slot"
            operation.set_operand(
                0,
                builder.create(read.spec, [[read.operands[0]], [read.operands[1]]], {}).results[0],
            )

    return mutate


def never_refilled(name: str) -> Mutation:
    """Omit the copies of later iterations."""

    def mutate(module: Module) -> None:
        for operation in inside(module, name):
            if any(outer.name == "for" for outer in operation.ancestors()):
                operation.erase()

    return mutate


#: kind of kernel -> mutations by name
MUTANTS: dict[str, dict[str, Mutation]] = {
    "parts": {
        "math does not wait for copies": drop("simt.await", "math"),
        "load does not wait for an empty slot": drop("simt.await alone", "load"),
        "math waits for the other phase": turned("math"),
        "load waits for the other phase": turned("load", "simt.await alone"),
        "math's parity does not change": same_phase("math"),
        "load's parity does not change": same_phase("load", "simt.await alone"),
        "a slot is given back while a product reads it": drop("simt.wait", "math"),
        "the slot of this iteration is given back": (
            place("simt.arrive", 1, "simt.await", 1, "math")
        ),
        "slots are not given back": drop("simt.arrive", "math"),
        "bytes are not announced": drop("simt.expect", "load"),
        "the result is read before it is there": drop_last_wait,
    },
    "blocks": {
        "no wait for copies": drop("simt.await"),
        "no wait for empty slots": drop("simt.await alone"),
        "the other phase": turned(""),
        "the other phase of empty slots": turned("", "simt.await alone"),
        "slots are not given back": drop("simt.arrive"),
        "a slot is given back while a product reads it": drop("simt.wait"),
        "the parity does not change": same_phase(""),
        "copies into the slot that is read": refilled_slot("simt.block_load_start"),
        "no copies of later iterations": never_refilled("simt.block_load_start"),
    },
    "groups": {
        "no wait for copies": drop("simt.wait"),
        "copies into the slot that is read": refilled_slot("simt.copy_start"),
    },
    "registers": {
        "stores into the slot that is read": refilled_slot("simt.store"),
        "no stores of later iterations": never_refilled("simt.store"),
    },
}  # fmt: skip
NAMES = [(kind, name) for kind, mutants in MUTANTS.items() for name in mutants]


def target_of(kind: str) -> EmulatedTarget:
    return {
        "parts": BulkTarget,
        "blocks": BulkTarget,
        "groups": EmulatedTarget,
        "registers": StagedTarget,
    }[kind](8)


def outcomes(
    kind: str, mutate: Mutation | None
) -> Iterator[tuple[str, np.ndarray | KernelError, np.ndarray]]:
    """(mode, the result or what the machine reported, what is right) for a run of each mode."""
    a, b, out = matrices(M, N, K)
    by_block = kind in ("parts", "blocks")
    constants = {"PARTS": kind == "parts"} if by_block else {}
    module, target = (
        matmul_module(by_blocks if by_block else by_pointers, blocks=by_block, **constants),
        target_of(kind),
    )
    given = [argument.type for argument in kernel_of(module).arguments]
    options: dict[str, Any] = {"num_warps": 2, "num_stages": 3, "enable_fp_fusion": False}
    for stage in target.stages(STAGES):
        stage.run(module, target, options)
    if mutate is not None:
        mutate(module)
    function = kernel_of(module)
    text = lower_function(function, target, options)
    inputs = [EmulatedDescriptor(x) if by_block else x for x in (a, b)]
    types = [argument.type for argument in function.arguments]
    for mode in MODES:
        passed = emulator.expanded_arguments(given, types, [*inputs, out, M, N, K])
        out[:] = np.nan
        try:
            emulator.run_text(
                text, target, types, passed, (1, 1, 1), function.attributes[WARPS], completion=mode
            )
        except KernelError as error:
            yield mode, error, a @ b
        else:
            yield mode, out.copy(), a @ b


@pytest.mark.parametrize("kind", MUTANTS)
def test_without_a_fault_all_is_right(kind: str) -> None:
    for mode, found, expected in outcomes(kind, None):
        assert isinstance(found, np.ndarray), f"{mode}: {found}"
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("kind", "name"), NAMES)
def test_a_fault_is_found(kind: str, name: str) -> None:
    results = outcomes(kind, MUTANTS[kind][name])
    found = any(
        isinstance(result, KernelError) or not np.array_equal(result, expected)
        for _, result, expected in results
    )
    assert found, f"{name}: right in all of {', '.join(MODES)}"


@pytest.mark.parametrize(
    "name",
    ["slots are not given back", "bytes are not announced", "load waits for the other phase"],
)
def test_who_waits_for_what_is_told(name: str) -> None:
    errors = [
        str(result)
        for _, result, _ in outcomes("parts", MUTANTS["parts"][name])
        if isinstance(result, KernelError)
    ]
    assert errors and all(
        "threads are stuck" in text and "part load" in text and "part math" in text
        for text in errors
    )
