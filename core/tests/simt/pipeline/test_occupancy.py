"""Occupancy and number of warps, as they follow from registers and shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from back_to_back_kernels import HEAD, gradients
from matmul_kernels import build, operations

import tilewright.language as tl
from tilewright.errors import OutOfResources
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright.simt import emulator
from tilewright.simt.compile import compile_fitting, kernel_of, run_stages
from tilewright.simt.dialect.attributes import PROGRAMS, WARPS, notes_of
from tilewright.simt.dialect.pipeline_attributes import CHAIN, FORM, PARTS, SLOTS
from tilewright.simt.emulator import EmulatedDescriptor
from tilewright.simt.passes.allocate_shared import SHARED_MEMORY
from tilewright.simt.target.capabilities.warp_specialization import WarpSpecialization
from tilewright.simt.target.simt_target import SimtTarget, Stage
from tilewright.testing.toy_targets import BulkTarget

OPTIONS: dict[str, Any] = {"num_warps": 2, "num_stages": 4}
#: Words that a thread of two warps of 8 lanes holds of what the chain of ``gradients`` has in
#: flight: four results of 16 x 8, and what the late products read of two of them in registers.
WORDS = 40


class Shared(BulkTarget):
    """A machine of which ``programs`` programs may have ``registers`` registers a thread, by their
    number."""

    def __init__(
        self, registers: Mapping[int, int], memory: int = 64 * 1024, seed: int = 0
    ) -> None:
        super().__init__(8, rows=True, seed=seed)
        self.resources = replace(self.resources, shared_memory=memory, max_resident=4)
        self.warp_specialization = SharedRegisters(registers)


class SharedRegisters(WarpSpecialization):
    def __init__(self, given: Mapping[int, int]) -> None:
        super().__init__(1)
        self._given = given

    def registers(self, warps: Mapping[str, int], programs: int = 1) -> Mapping[str, int]:
        return {"math": self._given.get(programs, 1), "load": 8}


def module() -> Module:
    blocks = {
        name: f"tensordesc<fp32[{extent},{HEAD}]>"
        for name, extent in (("q", 8), ("k", 16), ("v", 16), ("g", 8))
    }
    return build(
        gradients, {**blocks, "dk": "*fp32", "dv": "*fp32", "n": "i32"}, BM=8, BN=16, HEAD=HEAD
    )


STAGES = [
    "prepare",
    "warps",
    "raise",
    "unobserved",
    "layouts",
    "sink_reductions",
    "select",
    "schedule",
]


@pytest.mark.parametrize(
    ("registers", "memory", "programs", "form", "slots"),
    [
        ({1: 240}, 64 * 1024, 1, CHAIN, 4),
        (
            {1: 240, 2: WORDS + 40},
            64 * 1024,
            2,
            CHAIN,
            4,
        ),  # two programs, and registers for both halves
        ({1: 240, 2: WORDS + 10}, 64 * 1024, 2, PARTS, 4),  # for matmuls one by one
        ({1: 240, 2: WORDS}, 64 * 1024, 1, CHAIN, 4),
        ({1: 240, 2: 200, 3: 200}, 64 * 1024, 3, PARTS, 4),  # one of three computes anyway
        ({1: 240, 2: 200, 3: 200}, 11 * 1024, 2, CHAIN, 4),
        ({1: 240, 2: 200, 3: 200}, 8 * 1024, 2, CHAIN, 2),
        ({1: 240, 2: 200, 3: 200}, 7 * 1024, 1, CHAIN, 4),
        ({1: 240}, 5 * 1024, 1, PARTS, 2),  # both halves read one load, in two slots
        ({1: WORDS + 10}, 64 * 1024, 1, PARTS, 4),
    ],
)
def test_as_many_programs_as_have_room(
    registers: dict[int, int], memory: int, programs: int, form: str, slots: int
) -> None:
    made = module()
    run_stages(made, Shared(registers, memory), OPTIONS, STAGES)
    (loop,) = (operation for operation in kernel_of(made).walk() if operation.name == "for")
    assert (
        kernel_of(made).attributes.get(PROGRAMS, 1),
        loop.attributes[FORM],
        loop.attributes[SLOTS],
    ) == (programs, form, slots)


@pytest.mark.parametrize("registers", [{1: 240}, {1: 240, 2: WORDS + 10}, {1: 240, 2: 200, 3: 200}])
def test_results_are_those_of_one_program(registers: dict[int, int]) -> None:
    rng = np.random.default_rng(1)
    q, k, v, g = (
        rng.integers(-2, 3, (extent, HEAD)).astype(np.float32) for extent in (40, 32, 32, 40)
    )
    dk, dv = np.full_like(k, np.nan), np.full_like(v, np.nan)
    emulator.run(
        made := module(),
        [*map(EmulatedDescriptor, (q, k, v, g)), dk, dv, 40],
        (2, 1, 1),
        target=Shared(registers),
        **OPTIONS,
    )
    weights = k @ q.T
    np.testing.assert_array_equal(dv, weights @ g)
    np.testing.assert_array_equal(dk, (weights * (v @ g.T)) @ q)
    assert {part.attribute("registers") for part in operations(made, "simt.part")} == {
        8,
        registers[kernel_of(made).attributes.get(PROGRAMS, 1)],
    }


# ---- warps


@device_function
def product(a, b, c, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    acc = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for k in range(n):
        acc = tl.dot(a.load([0, k * 16]), b.load([k * 16, 0]), acc)
    c.store([0, 0], acc)


def dot_module(rows: int, columns: int) -> Module:
    blocks = {
        name: f"tensordesc<fp32[{shape[0]},{shape[1]}]>"
        for name, shape in (("a", (rows, 16)), ("b", (16, columns)), ("c", (rows, columns)))
    }
    return build(product, {**blocks, "n": "i32"}, ROWS=rows, COLUMNS=columns)


@pytest.mark.parametrize(
    ("shape", "options", "warps"),
    [
        ((64, 32), {}, 2),  # 128 words a thread of 16
        ((64, 64), {}, 4),  # 256: more than the 255 registers that there are
        ((64, 128), {}, 8),
        ((64, 64), {"maxnreg": 128}, 2),
    ],
)
def test_as_many_warps_as_hold_the_sums(
    shape: tuple[int, int], options: dict[str, int], warps: int
) -> None:
    made = dot_module(*shape)
    run_stages(made, BulkTarget(8), {**OPTIONS, **options}, ["prepare", "warps"])
    assert kernel_of(made).attributes[WARPS] == warps
    assert (warps > OPTIONS["num_warps"]) == any(
        "for want of registers" in text for _, text in notes_of(kernel_of(made))
    )


def test_no_more_warps_than_a_program_may_have() -> None:
    made, target = dot_module(64, 128), BulkTarget(8)
    target.resources = replace(
        target.resources, max_threads=8 * (4 + target.warp_specialization.warp_multiple)
    )
    run_stages(made, target, OPTIONS, ["prepare", "warps"])
    assert kernel_of(made).attributes[WARPS] == 4


def test_more_warps_give_the_same_sums() -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((64, 48), (48, 64)))
    c = np.full((64, 64), np.nan, np.float32)
    emulator.run(
        made := dot_module(64, 64),
        [*map(EmulatedDescriptor, (a, b, c)), 3],
        (1, 1, 1),
        target=BulkTarget(8),
        **OPTIONS,
    )
    np.testing.assert_array_equal(c, a @ b)
    assert kernel_of(made).attributes[WARPS] >= 4


# ---- memory


class Short(BulkTarget):
    """A machine on which loads can be copied for two iterations, and no more."""

    def stages(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        def check(module: Module, target: SimtTarget, options: Mapping[str, Any]) -> None:
            if options["num_stages"] > self.most:
                raise OutOfResources(1000 * options["num_stages"], 2000, SHARED_MEMORY)

        return (*stages, Stage("memory", check, "whether that much is there"))

    most = 2


def test_loads_are_copied_less_far_ahead_where_memory_is_short() -> None:
    given = dot_module(64, 32)
    before = str(given)
    made, text = compile_fitting(given, Short(8), OPTIONS)
    assert str(given) == before and "define" in text
    assert [text for _, text in notes_of(kernel_of(made)) if "in place" in text] == [
        "num_stages=2 in place of 4, for want of shared memory"
    ]


def test_what_never_fits_is_said_for_what_was_asked() -> None:
    target = Short(8)
    target.most = 1
    with pytest.raises(OutOfResources, match="Required: 4000, Hardware limit: 2000"):
        compile_fitting(dot_module(64, 32), target, OPTIONS)
