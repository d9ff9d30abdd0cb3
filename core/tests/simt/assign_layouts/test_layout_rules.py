"""Rules that assigned layouts keep, and the results of kernels with assigned layouts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from assigned_layouts import assigned, module_of, named
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.errors import LoweringError
from tilewright.ir import Module
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.ir.types import TileType
from tilewright.reference.interpreter import run as run_reference
from tilewright.simt import emulator
from tilewright.simt.assign_layouts.assign import assign
from tilewright.simt.assign_layouts.verify import check
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.dialect.layout_rules import LayoutError
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.layouts.linear_layout import LinearLayout
from tilewright_conformance.op_samples import all_samples
from tilewright_conformance.random_programs import PORTABLE, Program, mismatch, programs

Kernel = Callable[..., Module]

#: Features that programs need if no pass has expanded descriptors, scaled matmuls and calls.
EXPANDED = dataclasses.replace(PORTABLE, features=frozenset())


@pytest.mark.parametrize(("warp_size", "num_warps"), [(4, 1), (8, 32), (32, 4), (64, 8), (64, 1)])
def test_kernels_keep_the_rules_on_every_machine(
    kernel: Kernel, kernel_name: str, matrix_target: EmulatedTarget, warp_size: int, num_warps: int
) -> None:
    matrix_target.warp_size = warp_size
    assigned(kernel(kernel_name), matrix_target, num_warps)


def powers_of_two(module: Module) -> bool:
    values = (value for operation in module.walk() for value in operation.results)
    return not any(
        extent & (extent - 1)
        for value in values
        if isinstance(value.type, TileType)
        for extent in value.type.shape
    )


def test_every_operation_keeps_the_rules() -> None:
    machines = [(4, 1), (32, 4), (8, 2), (64, 8)]
    count = 0
    for sample in all_samples():
        names = {operation.name for operation in sample.module.walk()}
        if (
            not powers_of_two(sample.module)
            or any("descriptor" in name for name in names)
            or names & {"dot_scaled", "call"}
        ):
            continue
        warp_size, num_warps = machines[count % len(machines)]
        assigned(parse_module(print_module(sample.module)), EmulatedTarget(warp_size), num_warps)
        count += 1
    assert count > 1000


@settings(
    max_examples=50,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(programs(EXPANDED), st.sampled_from([(4, 1), (8, 4), (32, 4), (64, 2), (16, 32)]))
def test_random_programs_keep_the_rules(program: Program, machine: tuple[int, int]) -> None:
    assigned(parse_module(print_module(program.module)), EmulatedTarget(machine[0]), machine[1])


@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(programs(), st.sampled_from([(4, 1), (4, 2), (8, 2), (4, 4)]))
def test_random_programs_compute_what_the_reference_does(
    program: Program, machine: tuple[int, int]
) -> None:
    expected, found = program.arguments(), program.arguments()
    with np.errstate(all="ignore"):
        run_reference(program.module, expected, program.grid)
    emulator.run(
        parse_module(print_module(program.module)),
        found,
        program.grid,
        warp_size=machine[0],
        num_warps=machine[1],
    )
    for output in program.outputs:
        assert not mismatch(output, expected[output.index], found[output.index])


def _aligned(array: Any) -> Any:
    """A copy whose address is stated to be a multiple of 16."""
    if not isinstance(array, np.ndarray):
        return array
    memory = np.empty(array.nbytes + 16, np.uint8)
    start = -memory.ctypes.data % 16
    made = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


def _normal(*shape: int, dtype: Any = np.float16) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize(
    ("name", "constants", "arguments", "grid"),
    [
        (
            "softmax",
            {"BLOCK": 64},
            [_normal(3, 48, dtype=np.float32), np.full((3, 48), np.nan, np.float32), 48, 48, 48],
            (3, 1, 1),
        ),
        (
            "transpose",
            {"BM": 16, "BN": 32},
            [_normal(32, 64, dtype=np.float32), np.full((64, 32), np.nan, np.float32), 32, 64],
            (2, 2, 1),
        ),
        (
            "matmul",
            {"BM": 16, "BN": 16, "BK": 16},
            [
                _normal(32, 64),
                _normal(64, 32),
                np.full((32, 32), np.nan, np.float16),
                _normal(32, dtype=np.float32),
                32,
                32,
                64,
                64,
                32,
                32,
            ],
            (2, 2, 1),
        ),
        (
            "attention",
            {"BLOCK_M": 16, "BLOCK_N": 16, "HEAD": 16},
            [
                _normal(48, 16),
                _normal(48, 16),
                _normal(48, 16),
                np.full((48, 16), np.nan, np.float16),
                np.full(48, np.nan, np.float32),
                0.25,
                48,
            ],
            (3, 1, 1),
        ),
    ],
)
def test_kernels_compute_what_the_reference_does(
    kernel: Kernel,
    name: str,
    constants: dict[str, int],
    arguments: list[Any],
    grid: tuple[int, int, int],
    stages: int,
) -> None:
    expected, found = ([_aligned(argument) for argument in arguments] for _ in range(2))
    run_reference(kernel(name, constants), expected, grid)
    emulator.run(kernel(name, constants), found, grid, num_warps=2, warp_size=32, num_stages=stages)
    for a, b in zip(expected, found, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_allclose(
                b.astype(np.float64), a.astype(np.float64), rtol=2e-3, atol=2e-3
            )


def test_the_check_finds_a_wrong_layout(kernel: Kernel, matrix_target: EmulatedTarget) -> None:
    for name, operation, result in (
        ("add", "add", 0),
        ("matmul", "for", 0),
        ("softmax", "load", 0),
        ("matmul", "simt.dot", 0),
        ("attention", "broadcast", 0),
    ):
        module = kernel(name)
        assigned(module, matrix_target)
        value = named(module, operation)[0].results[result]
        layout = layout_of(value)
        swapped = LinearLayout(layout.shape, layout.registers, layout.lanes[::-1], layout.warps)
        value.layout = swapped
        with pytest.raises(LayoutError):
            check(module.kernel, matrix_target)
        value.layout = LinearLayout(layout.shape, layout.registers[1:], layout.lanes, layout.warps)
        with pytest.raises(LayoutError):
            check(module.kernel, matrix_target)
        value.layout = None
        with pytest.raises(LayoutError, match=r"no layout|None"):
            check(module.kernel, matrix_target)


def test_extents_that_are_no_powers_of_two_are_refused_with_the_operation() -> None:
    module = module_of(
        "%p: ptr<i32>", '%a = arange {start = 0, end = 24} : tile<24xi32>\nprint %a {prefix = ""}'
    )
    with pytest.raises(LoweringError, match=r"arange at .*powers of two, not on tile<24xi32>"):
        assign(module.kernel, EmulatedTarget(32), 4)
