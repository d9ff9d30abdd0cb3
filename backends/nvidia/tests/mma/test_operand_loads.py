"""Loads of fragments from shared memory, run in NumPy as the instruction set describes
``ldmatrix``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.ir.types import BF16, F16, F32, F64, I8, I32, FloatType, IntType, Type
from tilewright.language.definitions.callable import device_function
from tilewright.llvm.emission.registers import storage_size
from tilewright.simt.layouts.linear_layout import (
    LinearLayout,
    SharedLayout,
    axis_shifts,
    combine,
    log2,
)
from tilewright.simt.target.matmul_plan import Matmul
from tilewright_nvidia.async_copy.swizzle_atoms import SwizzleAtoms, swizzled_layout
from tilewright_nvidia.mma import mma, wgmma
from tilewright_nvidia.mma.operand_loads import (
    PAIRS_OF_A_WORD,
    ROWS_OF_TWO_WORDS,
    MatrixLoads,
    byte_matrix_loads,
    fragment_order,
    matrix_loads,
)


def swizzled(shape: tuple[int, int], size: int, fastest: int) -> SharedLayout:
    """Rows along ``fastest``, their 16-byte chunks exchanged by the row's number."""
    transposed = (shape[0], shape[1]) if fastest == 1 else (shape[1], shape[0])
    rows, columns = transposed
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


def run(
    plan: MatrixLoads, layout: LinearLayout, shared: SharedLayout, size: int, num_warps: int
) -> None:
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
                held = np.array(
                    [
                        [place[(rows[8 * j + row] // size) + i] for i in range(16 // size)]
                        for row in range(8)
                    ]
                )
                assert all(rows[8 * j + row] % 16 == 0 for row in range(8))
                for lane in range(32):
                    group, thread = divmod(lane, 4)
                    if plan.transposed:
                        got = [held[2 * thread + i, group] for i in range(2)]
                    else:
                        got = list(held[group, per_word * thread : per_word * (thread + 1)])
                    register = (step_number * plan.matrices + j) * per_word
                    assert got == [
                        layout.element(register + i, lane, warp) for i in range(per_word)
                    ]


CASES: list[tuple[Type, FloatType | IntType, tuple[int, int], int, int, str]] = [
    (F16, F32, (64, 64), 32, 4, "ieee"),
    (F16, F32, (128, 64), 64, 8, "ieee"),
    (F16, F32, (16, 16), 16, 1, "ieee"),
    (F16, F32, (8, 64), 16, 2, "ieee"),
    (I8, I32, (64, 32), 64, 4, "ieee"),
    (F32, F32, (32, 32), 32, 4, "tf32"),
]


@pytest.mark.parametrize(
    ("element", "accumulator", "shape", "k", "num_warps", "precision"), CASES, ids=str
)
@pytest.mark.parametrize("fastest", [0, 1])
def test_each_lane_gets_its_elements(
    element: Type,
    accumulator: FloatType | IntType,
    shape: tuple[int, int],
    k: int,
    num_warps: int,
    precision: str,
    fastest: int,
) -> None:
    plan, *_ = mma.plans(
        80, Matmul(shape, k, element, element, accumulator, precision, 0, num_warps)
    )
    assert plan is not None
    size, served = storage_size(element), 0
    for operand, layout in (("a", plan.a), ("b", plan.b)):
        shared = swizzled((layout.shape[0], layout.shape[1]), size, fastest)
        found = matrix_loads(layout, shared, size)
        along_k = (operand == "a") == (fastest == 1)
        # along K words are together, so every size can be loaded; across K only 16 bits can, which
        # the instruction transposes
        assert (found is not None) == (along_k or size == 2)
        if found is not None:
            assert found.transposed == (not along_k)
            run(found, layout, shared, size, num_warps)
            served += 1
    assert served


def permuted(given: list[Any], selector: int) -> list[Any]:
    """Return the bytes that ``prmt`` selects from eight bytes."""
    return [given[selector >> 4 * place & 7] for place in range(4)]


@pytest.mark.parametrize(
    ("element", "operand_element", "order"),
    [(I8, I8, ".pairs"), (I8, BF16, ".pairs"), (I8, I8, ""), (I8, BF16, "")],
)
@pytest.mark.parametrize("span", [64, 128])
def test_bytes_along_the_rows_of_an_operand_are_read_by_pairs(
    element: Type, operand_element: Type, order: str, span: int
) -> None:
    """Each lane gets words that have four neighbours along K, or two of each of two rows, after the
    permutations of bytes; where a thread has no pairs of neighbouring rows there is no such
    plan."""
    accumulator = I32 if operand_element is I8 else F32
    matmul = Matmul((128, 128), 64, operand_element, operand_element, accumulator, "ieee", 0, 8)
    (plan,) = (plan for plan in wgmma.plans(matmul) if plan.name.endswith(f".sr{order}"))
    shared = swizzled_layout((64, 128), 1, SwizzleAtoms(1, span))
    assert shared is not None
    found = byte_matrix_loads(plan.b, shared)
    assert (found is not None) == (order == ".pairs")
    if found is None:
        return
    pair = 2 if operand_element is I8 else 1
    place = np.empty(64 * 128, np.int64)
    place[[shared.offset(number) for number in range(64 * 128)]] = np.arange(64 * 128)
    for warp, lane in itertools.product(range(8), range(32)):
        group, thread = divmod(lane, 4)
        words = []
        for step in found.steps:
            rows = [
                combine(found.warps, warp) ^ combine(found.lanes, other) ^ step
                for other in range(32)
            ]
            for matrix_number in range(found.matrices):
                held = [rows[8 * matrix_number + 2 * thread + row] + 2 * group for row in range(2)]
                words.append([place[offset + byte] for offset in held for byte in range(2)])
        if pair == 1:
            ordered = [permuted([*word, *word], PAIRS_OF_A_WORD) for word in words]
        else:
            ordered = [
                permuted([*low, *high], taken)
                for low, high in zip(words[::2], words[1::2], strict=True)
                for taken in ROWS_OF_TWO_WORDS
            ]
        assert [number for word in ordered for number in word] == [
            plan.b.element(register, lane, warp) for register in range(plan.b.register_count)
        ]


@pytest.mark.parametrize(("rows", "columns"), [(64, 64), (128, 32), (32, 128), (16, 16), (16, 256)])
def test_proposed_layouts_have_no_bank_conflicts(rows: int, columns: int) -> None:
    plan, *_ = mma.plans(80, Matmul((rows, rows), columns, F16, F16, F32, "ieee", 0, 4))
    assert plan is not None and plan.a_shared is not None and plan.b_shared is not None
    for layout, shared in ((plan.a, plan.a_shared), (plan.b, plan.b_shared)):
        found = matrix_loads(layout, shared, 2)
        assert found is not None
        run(found, layout, shared, 2, 4)
        for matrix_number in range(found.matrices):
            rows_of = [combine(found.lanes, 8 * matrix_number + row) for row in range(8)]
            assert len({offset % 128 // 16 for offset in rows_of}) == 8


def test_turns_of_the_memory_count_what_bank_conflicts_add() -> None:
    plan, *_ = mma.plans(80, Matmul((64, 64), 64, F16, F16, F32, "ieee", 0, 4))
    assert plan is not None and plan.load_turns is not None and plan.a_shared is not None
    # a warp multiplies 32 rows by 64: four by eight matrices, each in a turn; eight rows of 128
    # bytes behind each other are all in the same banks
    in_a_row = SharedLayout((64, 64), tuple(1 << bit for bit in range(12)))
    assert (plan.load_turns(0, plan.a_shared), plan.load_turns(0, in_a_row)) == (32, 256)
    assert (
        plan.load_turns(0, SharedLayout((64, 64), tuple(1 << (11 - bit) for bit in range(12))))
        is None
    )


def test_wide_elements_and_scattered_rows_are_left_to_plain_loads() -> None:
    plan, *_ = mma.plans(80, Matmul((16, 16), 16, F64, F64, F64, "ieee", 0, 1))
    assert plan is not None and plan.a_shared is None
    half, *_ = mma.plans(80, Matmul((16, 16), 16, F16, F16, F32, "ieee", 0, 1))
    assert half is not None
    reversed_bits = SharedLayout((16, 16), tuple(1 << (7 - bit) for bit in range(8)))
    assert matrix_loads(half.a, reversed_bits, 2) is None


@pytest.mark.parametrize("bits", [0, 1, 2], ids=["in order", "rows first", "a word last"])
@pytest.mark.parametrize(("element", "fastest"), [(F16, 0), (F16, 1), (I8, 1), (F32, 1)], ids=str)
def test_tiles_are_read_as_fragments_in_any_order_of_registers(
    element: Type, fastest: int, bits: int
) -> None:
    """What threads compute an operand from may be held in another order than the words of an
    instruction's operand."""
    size = storage_size(element)
    plan, *_ = mma.plans(
        80, Matmul((64, 32), 64, element, element, I32 if element is I8 else F32, "tf32", 0, 4)
    )
    assert plan is not None
    shared = swizzled((64, 64), size, fastest)
    found = plan.a.registers[bits:] + plan.a.registers[:bits]
    layout = LinearLayout(plan.a.shape, found, plan.a.lanes, plan.a.warps)
    order = fragment_order(layout, shared, size)
    assert order is not None and sorted(order) == list(range(len(found)))
    ordered = LinearLayout(
        layout.shape, tuple(layout.registers[bit] for bit in order), layout.lanes, layout.warps
    )
    loads = matrix_loads(ordered, shared, size)
    assert loads is not None and loads.matrices == 4
    run(loads, ordered, shared, size, 4)


@device_function
def scaled_rows(a, b, s, out, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    scale = tl.load(s + rows)
    for start in range(0, K, BK):
        x = (
            tl.load(a + rows[:, None] * K + (start + inner)[None, :]).to(tl.float32)
            * scale[:, None]
        )
        y = tl.load(b + (start + inner)[:, None] * BN + columns[None, :])
        total = tl.dot(x.to(tl.bfloat16), y, total)
    tl.store(out + rows[:, None] * BN + columns[None, :], total)


def test_what_an_operand_is_computed_from_is_read_by_matrix_loads(ptx: Callable[..., str]) -> None:
    """The factor of the rows is in registers: the loaded operand is read in the layout of the
    matmul, and multiplied there."""
    signature = {"a": "*bf16", "b": "*bf16", "s": "*fp32", "out": "*fp32", "K": "i32"}
    text = ptx(
        scaled_rows, signature, "sm_80", constants={"BM": 32, "BN": 64, "BK": 64}, num_stages=3
    )
    assert "ld.shared.b16" not in text and "ld.shared.b32" not in text
    # of each warp: 16 rows of a by 64, and 64 by 32 columns of b
    assert text.count("ldmatrix.sync.aligned.m8n8.x4.shared.b16") == 4
    assert text.count("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16") == 8


@device_function
def gated_rows(a, g, b, out, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        transposed = rows[:, None] + (start + inner)[None, :] * BM
        x = tl.load(a + transposed).to(tl.float32) * tl.exp(tl.load(g + transposed))
        y = tl.load(b + (start + inner)[:, None] * BN + columns[None, :])
        total = tl.dot(x.to(tl.bfloat16), y, total)
    tl.store(out + rows[:, None] * BN + columns[None, :], total)


def test_what_an_operand_is_computed_from_is_copied_in_whole_words(ptx: Callable[..., str]) -> None:
    """Copies are as wide as memory allows.

    The matmul's layout has single elements along the contiguous rows.
    """
    signature = {"a": "*bf16", "g": "*fp32", "b": "*bf16", "out": "*fp32", "K": "i32"}
    text = ptx(
        gated_rows,
        signature,
        "sm_80",
        constants={"BM": 64, "BN": 64, "BK": 32},
        num_stages=2,
        num_warps=1,
    )
    assert (
        "cp.async.cg.shared.global" in text
        and "cp.async.ca.shared.global" not in text
        and "ld.global" not in text
    )


@device_function
def single_product(
    a, b, out, n, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ACROSS: tl.constexpr
):
    rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + rows[:, None] * K + inner[None, :], mask=rows[:, None] < n, other=0.0)
    if ACROSS:
        y = tl.load(b + inner[:, None] * N + columns[None, :], mask=columns[None, :] < n, other=0.0)
    else:
        y = tl.load(b + inner[:, None] + columns[None, :] * K, mask=columns[None, :] < n, other=0.0)
    tl.store(out + rows[:, None] * N + columns[None, :], tl.dot(x, y))


@pytest.mark.each_value
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 128), (32, 64, 64), (64, 128, 64)])
def test_operands_of_a_product_outside_of_loops_are_read_by_matrix_loads(
    ptx: Callable[..., str], m: int, n: int, k: int, across: bool
) -> None:
    """They are loaded coalesced, and stored to shared memory in the same widths; nothing but the
    matmul reads them there."""
    signature = {"a": "*bf16", "b": "*bf16", "out": "*fp32", "n": "i32"}
    text = ptx(
        single_product,
        signature,
        "sm_90a",
        constants={"M": m, "N": n, "K": k, "ACROSS": across},
        num_warps=2,
    )
    loads = (
        text.count("ldmatrix.sync.aligned.m8n8.x4.shared.b16"),
        text.count("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"),
    )
    # an instruction loads 512 bytes for a warp; warps divide the rows, or the columns
    assert (
        sum(loads) * 512 * 2 in (m * k * 2 + n * k * 4, m * k * 4 + n * k * 2)
        and (loads[1] > 0) == across
    )
    assert "ld.shared" not in text.split("mma.sync")[0] and "st.shared.v4.b32" in text


@device_function
def factored_columns(a, s, b, out, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        factor = tl.load(s + start + inner)
        x = tl.exp(tl.load(a + rows[:, None] * K + (start + inner)[None, :]) - factor[None, :])
        y = tl.exp(tl.load(b + (start + inner)[:, None] + columns[None, :] * K) - factor[:, None])
        total = tl.dot(x, y, total, input_precision="tf32")
    tl.store(out + rows[:, None] * BN + columns[None, :], total)


def test_factors_that_many_threads_read_are_copied_once(ptx: Callable[..., str]) -> None:
    """Each thread reads eight of the 32 factors: the 32 threads copy one each, before the loop and
    in it."""
    signature = dict.fromkeys(("a", "s", "b", "out"), "*fp32") | {"K": "i32"}
    text = ptx(
        factored_columns,
        signature,
        "sm_90a",
        constants={"BM": 16, "BN": 16, "BK": 32},
        num_stages=2,
        num_warps=1,
    )
    assert (
        len(re.findall(r"cp\.async\.ca\.shared\.global.*, (?:0x)?4,", text)) == 2
        and "ld.global" not in text
    )


@device_function
def scaled_columns(a, s, b, out, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns, inner = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        factor = tl.load(s + rows[:, None] * K + (start + inner)[None, :])
        x = tl.load(a + rows[:, None] * K + (start + inner)[None, :]) * tl.exp(factor)
        y = tl.load(b + (start + inner)[:, None] + columns[None, :] * K) * tl.exp(-factor).T
        total = tl.dot(x, y, total, input_precision="tf32")
    tl.store(out + rows[:, None] * BN + columns[None, :], total)


@pytest.mark.parametrize("kind", ["bf16", "fp32"])
def test_narrow_elements_of_an_f32_matmul_are_read_a_word_at_a_time(
    ptx: Callable[..., str], kind: str
) -> None:
    """A thread has two neighbours along K of what is multiplied in tf32, where one alone would take
    a load of 16 bits."""
    signature = {"a": f"*{kind}", "s": "*fp32", "b": f"*{kind}", "out": "*fp32", "K": "i32"}
    text = ptx(
        scaled_columns,
        signature,
        "sm_90a",
        constants={"BM": 16, "BN": 16, "BK": 32},
        num_stages=2,
        num_warps=1,
    )
    assert "ld.shared.b16" not in text and "ld.shared.u16" not in text and "m16n8k8" in text
    assert ("ld.shared.v2.b32" in text) == (kind == "bf16")


def test_copies_of_wide_elements_beside_narrow_ones_fill_their_sectors(
    ptx: Callable[..., str],
) -> None:
    """Eight elements side by side are 32 bytes of f32: two copies, each of half a sector in every
    lane. Four suit the tile alone."""
    signature = {"a": "*bf16", "s": "*fp32", "b": "*bf16", "out": "*fp32", "K": "i32"}
    text = ptx(
        scaled_columns,
        signature,
        "sm_90a",
        constants={"BM": 16, "BN": 16, "BK": 32},
        num_stages=2,
        num_warps=1,
    )
    assert text.count("cp.async.cg.shared.global") == 2 * (2 + 2 + 4)
    assert not re.search(r"add\.s64 \s*%rd\d+, %rd\d+, 16;", text)
