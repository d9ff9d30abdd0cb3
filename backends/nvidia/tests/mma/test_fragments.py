"""Fragments of matrix instructions against the PTX ISA, and whole matmuls in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_states import context_of
from numpy.typing import NDArray

from tilewright.ir.types import (
    BF16,
    F8E4M3FN,
    F8E5M2,
    F16,
    F32,
    F64,
    I8,
    I32,
    U8,
    FloatType,
    IntType,
    Type,
)
from tilewright.simt.layouts.linear_layout import LinearLayout, coordinates
from tilewright.simt.layouts.mma_tiling import layouts, tile
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan
from tilewright_nvidia.codegen.packed_registers import PackedRegisters
from tilewright_nvidia.mma import mma
from tilewright_nvidia.mma.fragments import Instruction
from tilewright_nvidia.mma.mma import INSTRUCTIONS, choose

ALL = [(kind, instruction) for kind, family in INSTRUCTIONS.items() for instruction in family]


def table_a(instruction: Instruction, lane: int, i: int) -> tuple[int, int]:
    """Return (row, column) of element i of A by "Matrix fragments for mma" of the PTX ISA.

    Elements of a register are along K; a lane has row lane / 4, then the row 8 further, then the
    columns four registers further.
    """
    group, thread = divmod(lane, 4)
    word, within = divmod(i, instruction.packed)
    row = group + (8 if instruction.m == 16 and word % 2 else 0)
    column_word = word // 2 if instruction.m == 16 else word
    return row, thread * instruction.packed + within + column_word * 4 * instruction.packed


def table_b(instruction: Instruction, lane: int, i: int) -> tuple[int, int]:
    group, thread = divmod(lane, 4)
    word, within = divmod(i, instruction.packed)
    return thread * instruction.packed + within + word * 4 * instruction.packed, group


def table_c(lane: int, i: int) -> tuple[int, int]:
    group, thread = divmod(lane, 4)
    return group + 8 * (i // 2), thread * 2 + i % 2


@pytest.mark.parametrize(
    ("kind", "instruction"), ALL, ids=[f"{kind} {instruction.text}" for kind, instruction in ALL]
)
def test_fragments_are_those_of_the_instruction_set(kind: str, instruction: Instruction) -> None:
    shape = (instruction.m, instruction.n)
    a, b, c = layouts(
        instruction.shape, tile(instruction.shape, shape, instruction.k, 1), shape, instruction.k, 1
    )
    words = instruction.words
    per_word = 2 if instruction.halves_accumulate else 1
    assert (a.register_count, b.register_count, c.register_count) == (
        words[0] * instruction.packed,
        words[1] * instruction.packed,
        words[2] * per_word,
    )
    for lane in range(32):
        for i in range(a.register_count):
            assert coordinates(a.element(i, lane), a.shape) == table_a(instruction, lane, i)
        for i in range(b.register_count):
            assert coordinates(b.element(i, lane), b.shape) == table_b(instruction, lane, i)
        for i in range(c.register_count):
            assert coordinates(c.element(i, lane), c.shape) == table_c(lane, i)


# ---- whole matmuls


class LaneWords(PackedRegisters):
    """Words as tuples of the values of all lanes."""

    def pack(self, w: Any, names: Any, type_: str, word_type: str) -> Any:
        return names[0] if len(names) == 1 else np.stack(list(names), axis=-1)

    def unpack(self, w: Any, word: Any, word_type: str, type_: str) -> list[Any]:
        return [word[..., i] for i in range(word.shape[-1])]


def multiply_by_tables(instruction: Instruction) -> Any:
    """Mock of the assembly.

    Compute D = A @ B + C on the values of all warps and lanes, by the tables.
    """

    def call(w: Any, text: str, results: Any, operands: Any, **_: Any) -> list[Any]:
        values = [value for _, value in operands]
        if text.startswith("cvt"):
            return values  # small integers, which no rounding changes
        count_a, count_b, count_c = instruction.words
        warps = values[0].shape[0]
        a, b, c = (
            np.zeros((warps, instruction.m, instruction.k)),
            np.zeros((warps, instruction.k, instruction.n)),
            np.zeros((warps, instruction.m, 8)),
        )
        per_word = 2 if instruction.halves_accumulate else 1
        for lane in range(32):
            for target, table, start, count, each in (
                (a, lambda lane, i: table_a(instruction, lane, i), 0, count_a, instruction.packed),
                (
                    b,
                    lambda lane, i: table_b(instruction, lane, i),
                    count_a,
                    count_b,
                    instruction.packed,
                ),
                (c, table_c, count_a + count_b, count_c, per_word),
            ):
                for word in range(count):
                    held = values[start + word]
                    for i in range(each):
                        row, column = table(lane, word * each + i)
                        target[:, row, column] = held[:, lane] if each == 1 else held[:, lane, i]
        d = a @ b + c
        found = []
        for word in range(count_c):
            held = np.zeros((warps, 32) if per_word == 1 else (warps, 32, per_word))
            for lane in range(32):
                for i in range(per_word):
                    row, column = table_c(lane, word * per_word + i)
                    held[(slice(None), lane) if per_word == 1 else (slice(None), lane, i)] = d[
                        :, row, column
                    ]
            found.append(held)
        return found

    return call


def scatter(layout: LinearLayout, values: NDArray[Any], num_warps: int) -> list[Any]:
    """The registers of all warps and lanes."""
    flat = values.ravel()
    return [
        np.array(
            [
                [flat[layout.element(r, lane, warp)] for lane in range(32)]
                for warp in range(num_warps)
            ]
        )
        for r in range(layout.register_count)
    ]


CASES: list[tuple[int, Type, Type, FloatType | IntType, tuple[int, ...], int, int]] = [
    (90, F16, F16, F32, (32, 64), 32, 4),
    (90, F16, F16, F16, (64, 16), 16, 2),
    (90, F16, F16, F32, (16, 8), 8, 1),
    (75, F16, F16, F32, (32, 32), 16, 4),
    (80, BF16, BF16, F32, (16, 32), 32, 8),
    (80, F64, F64, F64, (16, 16), 8, 4),
    (80, I8, U8, I32, (32, 16), 64, 2),
    (75, U8, U8, I32, (16, 8), 32, 4),
    (90, F8E4M3FN, F8E5M2, F32, (16, 16), 32, 1),
    (80, F16, F16, F32, (8, 32), 16, 2),
    (80, F16, F16, F32, (2, 16, 16), 16, 4),
    (80, F16, F16, F32, (16, 16), 16, 8),
    (80, F32, F32, F32, (32, 16), 32, 2),
    (80, F32, F32, F32, (8, 32), 16, 1),
    (80, F32, F32, F32, (16, 8), 4, 1),
]


@pytest.mark.parametrize(("capability", "a", "b", "c", "shape", "k", "num_warps"), CASES, ids=str)
def test_the_written_instructions_give_the_product(
    monkeypatch: pytest.MonkeyPatch,
    capability: int,
    a: Type,
    b: Type,
    c: FloatType | IntType,
    shape: tuple[int, ...],
    k: int,
    num_warps: int,
) -> None:
    precision = "tf32" if a is F32 else "ieee"
    found = choose(capability, shape, k, a, b, c, precision) or choose(
        capability, (*shape[:-2], shape[-1], shape[-2]), k, b, a, c, precision
    )
    assert found is not None
    plans = mma.plans(capability, Matmul(shape, k, a, b, c, precision, 0, num_warps))
    assert len(plans) == (2 if a is F32 and k >= 8 else 1)
    for plan in plans:
        check_product(monkeypatch, plan, found.instruction, shape, k, num_warps)


def check_product(
    monkeypatch: pytest.MonkeyPatch,
    plan: MatmulPlan,
    instruction: Instruction,
    shape: tuple[int, ...],
    k: int,
    num_warps: int,
) -> None:
    """A plan multiplies random matrices correctly, with the fragments of its instruction."""
    rng = np.random.default_rng(3)
    assert plan.emit is not None
    left, right = (
        rng.integers(-8, 8, (*shape[:-1], k)).astype(float),
        rng.integers(-8, 8, (*shape[:-2], k, shape[-1])).astype(float),
    )
    start = rng.integers(-8, 8, shape).astype(float)
    monkeypatch.setattr(mma, "call_asm", multiply_by_tables(instruction))
    registers = [
        scatter(layout, values, num_warps)
        for layout, values in ((plan.a, left), (plan.b, right), (plan.c, start))
    ]
    accumulator = registers[2]
    for first in range(0, k, plan.k_step):
        step = [
            [
                names[r]
                for r, element in enumerate(layout.register_elements())
                if coordinates(element, layout.shape)[axis] & -plan.k_step == first
            ]
            for layout, axis, names in ((plan.a, -1, registers[0]), (plan.b, -2, registers[1]))
        ]
        accumulator = plan.emit(context_of(LaneWords()), step[0], step[1], accumulator)
    expected = scatter(plan.c, left @ right + start, num_warps)
    for got, want in zip(accumulator, expected, strict=True):
        np.testing.assert_array_equal(got, want)
    assert plan.c.covers and plan.a.covers and plan.b.covers


def test_f32_is_not_rounded_unless_asked_to() -> None:
    assert choose(90, (64, 64), 32, F32, F32, F32, "ieee") is None
    tf32 = choose(90, (64, 64), 32, F32, F32, F32, "tf32")
    assert tf32 is not None and "tf32" in tf32.instruction.text


def test_small_products_have_no_instruction() -> None:
    assert choose(90, (4, 4), 16, F16, F16, F32, "ieee") is None
    assert mma.plans(90, Matmul((4, 16), 16, F16, F16, F32, "ieee", 0, 4)) == ()
