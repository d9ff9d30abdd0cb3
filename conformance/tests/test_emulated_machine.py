"""The GPU toolkit on the emulated machine agrees with the reference interpreter: every operation of
the table, and random tile programs."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tilewright.ir import TABLE, Module
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.ir.types import F32, DescriptorType, TileType
from tilewright.passes import pipeline
from tilewright.reference.interpreter import run
from tilewright.simt import emulator
from tilewright_conformance.op_samples import check_outputs, samples
from tilewright_conformance.random_programs import Program, mismatch, programs
from tilewright_conformance.testlib import reduction_order

#: ``TILEWRIGHT_FULL_CONFORMANCE=1`` runs every sample; without it every third runs.
STEP = 1 if os.environ.get("TILEWRIGHT_FULL_CONFORMANCE", "0") not in ("", "0") else 3
EXAMPLES = int(os.environ.get("TILEWRIGHT_FUZZ_EXAMPLES", "400")) // 32

#: Only a target gives them a meaning, or what they print has its own tests.
APART = {"inline_asm", "extern", "print"}

#: (warps, lanes of a warp)
MACHINES = ((1, 4), (2, 8), (4, 4), (2, 16))


def has_powers_of_two(module: Module) -> bool:
    """Return whether GPUs support all extents, and no argument is a descriptor.

    A launcher would expand descriptors.
    """
    kernel = module.kernel
    types = [
        value.type
        for function in module.functions.values()
        for operation in function.walk()
        for value in (*operation.results, *operation.operands)
    ]
    extents = itertools.chain.from_iterable(
        type_.shape for type_ in types if isinstance(type_, TileType)
    )
    return all(extent & (extent - 1) == 0 for extent in extents) and not any(
        isinstance(argument.type, DescriptorType) for argument in kernel.arguments
    )


@pytest.mark.parametrize("name", [spec.name for spec in TABLE if spec.name not in APART])
def test_an_operation_agrees_with_the_reference(name: str) -> None:
    fitting = [sample for sample in samples(name) if has_powers_of_two(sample.module)]
    for number, sample in enumerate(fitting[::STEP]):
        expected, found = (sample.make_arguments(np.random.default_rng(number)) for _ in range(2))
        with np.errstate(all="ignore"):
            run(sample.module, expected, sample.grid)
        # scalars and tiles alternate among the samples, so that every target gets both
        warps, lanes = MACHINES[(number + number // len(MACHINES)) % len(MACHINES)]
        emulator.run(
            parse_module(print_module(sample.module)),
            found,
            sample.grid,
            num_warps=warps,
            warp_size=lanes,
        )
        check_outputs(sample, expected, found)


@pytest.mark.each_value
@pytest.mark.parametrize("order", reduction_order.ORDERS)
@pytest.mark.parametrize(
    ("shape", "axis"), [((64,), 0), ((256,), 0), ((4, 32), 1), ((32, 4), 0), ((2, 16, 4), 1)]
)
def test_an_order_is_kept_by_every_number_of_threads(
    shape: tuple[int, ...], axis: int, order: str
) -> None:
    sample = reduction_order.sum_sample(F32, shape, axis, order)
    expected = reduction_order.run_on_reference(sample)
    for warps, lanes in (*MACHINES, (8, 4)):
        found = sample.make_arguments(np.random.default_rng(0))
        module = parse_module(print_module(sample.module))
        emulator.run(module, found, sample.grid, num_warps=warps, warp_size=lanes)
        assert reduction_order.bits(sample, found) == expected, (warps, lanes)


@pytest.mark.parametrize("element", ["f16", "f32"])
def test_matmuls_in_sequence(element: str) -> None:
    sample = reduction_order.dot_sample(element)
    expected = reduction_order.run_on_reference(sample)
    for warps, lanes in MACHINES:
        found = sample.make_arguments(np.random.default_rng(0))
        module = parse_module(print_module(sample.module))
        emulator.run(module, found, sample.grid, num_warps=warps, warp_size=lanes)
        assert reduction_order.bits(sample, found) == expected, (warps, lanes)


@pytest.mark.slow
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(programs())
def test_random_programs_agree_with_the_reference(program: Program) -> None:
    expected, found = program.arguments(), program.arguments()
    with np.errstate(all="ignore"):
        run(program.module, expected, program.grid)
    module = parse_module(print_module(program.module))
    # the program says which machine, and whether the passes run first, so that a failure can be
    # repeated
    if program.seed % 2:
        pipeline.run(module, pipeline.STANDARD)
    warps, lanes = MACHINES[program.seed // 2 % len(MACHINES)]
    emulator.run(module, found, program.grid, num_warps=warps, warp_size=lanes)
    for output in program.outputs:
        wrong = mismatch(output, expected[output.index], found[output.index])
        assert not wrong, (
            f"output {output.index} of {output.element}: {wrong}\n{program.module}\n"
            f"as lowered:\n{module}"
        )
