"""Loads of fragments from shared memory, run in NumPy as the instruction set describes ``ldmatrix``."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir.types import F16, F32, F64, I8, I32, FloatType, IntType, Type
from tilewright.llvm.registers import storage_size
from tilewright.simt.linear_layout import LinearLayout, SharedLayout, axis_shifts, combine, log2
from tilewright.simt.matmul_plans import Product
from tilewright_nvidia import matrix
from tilewright_nvidia.operand_loads import MatrixLoads, matrix_loads


def swizzled(shape: tuple[int, int], size: int, fastest: int) -> SharedLayout:
    """Rows along ``fastest``, their 16-byte chunks exchanged by the row's number."""
    turned = (shape[0], shape[1]) if fastest == 1 else (shape[1], shape[0])
    rows, columns = turned
    found = []
    for bit in range(log2(rows * columns)):
        coordinate = bit - axis_shifts(shape)[0] if bit >= axis_shifts(shape)[0] else bit
        along_row = (bit < axis_shifts(shape)[0]) == (fastest == 1)
        image = 1 << coordinate if along_row else columns << coordinate
        chunk = 16 // size
        if not along_row and 1 << coordinate < min(8, columns // chunk):
            image |= chunk << coordinate
        found.append(image)
    return SharedLayout(shape, tuple(found))


def run(plan: MatrixLoads, layout: LinearLayout, shared: SharedLayout, size: int, num_warps: int) -> None:
    """Every lane must get the elements that its registers stand for, in order."""
    count = len(shared.images)
    place = np.empty(1 << count, np.int64)
    for element in range(1 << count):
        place[shared.offset(element)] = element
    per_word = 4 // size
    for warp in range(num_warps):
        base = combine(plan.warps, warp)
        for step_number, step in enumerate(plan.steps):
            rows = [base ^ combine(plan.lanes, lane) ^ step for lane in range(32)]
            for j in range(plan.matrices):
                held = np.array([[place[(rows[8 * j + row] // size) + i] for i in range(16 // size)] for row in range(8)])
                assert all(rows[8 * j + row] % 16 == 0 for row in range(8))
                for lane in range(32):
                    group, thread = divmod(lane, 4)
                    if plan.transposed:
                        got = [held[2 * thread + i, group] for i in range(2)]
                    else:
                        got = list(held[group, per_word * thread : per_word * (thread + 1)])
                    register = (step_number * plan.matrices + j) * per_word
                    assert got == [layout.element(register + i, lane, warp) for i in range(per_word)]


CASES: list[tuple[Type, FloatType | IntType, tuple[int, int], int, int, str]] = [
    (F16, F32, (64, 64), 32, 4, "ieee"),
    (F16, F32, (128, 64), 64, 8, "ieee"),
    (F16, F32, (16, 16), 16, 1, "ieee"),
    (F16, F32, (8, 64), 16, 2, "ieee"),
    (I8, I32, (64, 32), 64, 4, "ieee"),
    (F32, F32, (32, 32), 32, 4, "tf32"),
]


@pytest.mark.parametrize(("element", "accumulator", "shape", "k", "num_warps", "precision"), CASES, ids=str)
@pytest.mark.parametrize("fastest", [0, 1])
def test_each_lane_gets_its_elements(
    element: Type, accumulator: FloatType | IntType, shape: tuple[int, int], k: int, num_warps: int, precision: str, fastest: int
) -> None:
    plan = matrix.plan(80, Product(shape, k, element, element, accumulator, precision, 0, num_warps))
    assert plan is not None
    size, served = storage_size(element), 0
    for operand, layout in (("a", plan.a), ("b", plan.b)):
        shared = swizzled((layout.shape[0], layout.shape[1]), size, fastest)
        found = matrix_loads(layout, shared, size)
        along_k = (operand == "a") == (fastest == 1)
        # along K words are together, so every size can be loaded; across K only 16 bits can, which the instruction transposes
        assert (found is not None) == (along_k or size == 2)
        if found is not None:
            assert found.transposed == (not along_k)
            run(found, layout, shared, size, num_warps)
            served += 1
    assert served


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (128, 32), (32, 128), (16, 16), (16, 256)])
def test_proposed_layouts_have_no_bank_conflicts(rows: int, columns: int) -> None:
    plan = matrix.plan(80, Product((rows, rows), columns, F16, F16, F32, "ieee", 0, 4))
    assert plan is not None and plan.a_shared is not None and plan.b_shared is not None
    for layout, shared in ((plan.a, plan.a_shared), (plan.b, plan.b_shared)):
        found = matrix_loads(layout, shared, 2)
        assert found is not None
        run(found, layout, shared, 2, 4)
        for matrix_number in range(found.matrices):
            rows_of = [combine(found.lanes, 8 * matrix_number + row) for row in range(8)]
            assert len({offset % 128 // 16 for offset in rows_of}) == 8


def test_wide_elements_and_scattered_rows_are_left_to_plain_loads() -> None:
    plan = matrix.plan(80, Product((16, 16), 16, F64, F64, F64, "ieee", 0, 1))
    assert plan is not None and plan.a_shared is None
    half = matrix.plan(80, Product((16, 16), 16, F16, F16, F32, "ieee", 0, 1))
    assert half is not None
    reversed_bits = SharedLayout((16, 16), tuple(1 << (7 - bit) for bit in range(8)))
    assert matrix_loads(half.a, reversed_bits, 2) is None
