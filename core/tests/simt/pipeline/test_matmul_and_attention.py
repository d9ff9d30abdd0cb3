"""The same kernels on two very different targets, through the same passes.

One loads through registers on wide warps; the other has TMA copies and asynchronous matmuls, with
and without warp specialization. Results equal the reference's for every completion order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from back_to_back_kernels import exp2_attention
from matmul_kernels import (
    BK,
    BM,
    BN,
    MODES,
    build,
    by_blocks,
    by_pointers,
    matmul_module,
    matrices,
    operations,
)

import tilewright.language as tl
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright.simt import emulator
from tilewright.simt.compile import kernel_of, run_stages
from tilewright.simt.dialect.attributes import notes_of
from tilewright.simt.dialect.pipeline_attributes import FORM
from tilewright.simt.dialect.types import MATMULS
from tilewright.simt.emulator import EmulatedDescriptor
from tilewright.testing.toy_targets import BulkTarget, StagedTarget


@device_function
def persistent(
    a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr
):
    across = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tl.cdiv(M, BM) * across, tl.num_programs(0)):
        row, column = tile // across * BM, tile % across * BN
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for k in tl.range(0, K, BK, warp_specialize=PARTS):
            total = tl.dot(a.load([row, k]), b.load([k, column]), total)
        rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
        tl.store(
            out + rows[:, None] * N + columns[None, :],
            total,
            mask=(rows[:, None] < M) & (columns[None, :] < N),
        )


@device_function
def attention_by_pointers(q, k, v, out, n, BM: tl.constexpr, BN: tl.constexpr, HEAD: tl.constexpr):
    rows, dims = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, HEAD)
    queries = tl.load(q + rows[:, None] * HEAD + dims[None, :], mask=rows[:, None] < n, other=0.0)
    highest, total = (
        tl.full([BM], -float("inf"), dtype=tl.float32),
        tl.zeros([BM], dtype=tl.float32),
    )
    gathered = tl.zeros([BM, HEAD], dtype=tl.float32)
    for start in range(0, n, BN):
        columns = start + tl.arange(0, BN)
        keys = tl.load(
            k + columns[:, None] * HEAD + dims[None, :], mask=columns[:, None] < n, other=0.0
        )
        values = tl.load(
            v + columns[:, None] * HEAD + dims[None, :], mask=columns[:, None] < n, other=0.0
        )
        scores = tl.where(columns[None, :] < n, tl.dot(queries, tl.trans(keys)), -float("inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=1))
        weights = tl.exp2(scores - higher[:, None])
        kept = tl.exp2(highest - higher)
        total, highest = total * kept + tl.sum(weights, axis=1), higher
        gathered = tl.dot(weights, values, gathered * kept[:, None])
    tl.store(
        out + rows[:, None] * HEAD + dims[None, :],
        gathered / total[:, None],
        mask=rows[:, None] < n,
    )


@device_function
def attention_by_blocks(
    q, k, v, out, n, BM: tl.constexpr, BN: tl.constexpr, HEAD: tl.constexpr, PARTS: tl.constexpr
):
    row = tl.program_id(0) * BM
    queries = q.load([row, 0])
    highest, total = (
        tl.full([BM], -float("inf"), dtype=tl.float32),
        tl.zeros([BM], dtype=tl.float32),
    )
    gathered = tl.zeros([BM, HEAD], dtype=tl.float32)
    for start in tl.range(0, n, BN, warp_specialize=PARTS):
        columns = start + tl.arange(0, BN)
        scores = tl.where(
            columns[None, :] < n, tl.dot(queries, tl.trans(k.load([start, 0]))), -float("inf")
        )
        higher = tl.maximum(highest, tl.max(scores, axis=1))
        weights = tl.exp2(scores - higher[:, None])
        kept = tl.exp2(highest - higher)
        total, highest = total * kept + tl.sum(weights, axis=1), higher
        gathered = tl.dot(weights, v.load([start, 0]), gathered * kept[:, None])
    rows, dims = row + tl.arange(0, BM), tl.arange(0, HEAD)
    tl.store(
        out + rows[:, None] * HEAD + dims[None, :],
        gathered / total[:, None],
        mask=rows[:, None] < n,
    )


# ---- wide warps, loads through registers

SIZES = [(16, 8, 8), (32, 16, 40), (19, 11, 21), (16, 8, 1), (5, 3, 0)]


@pytest.mark.each_value
@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("matrix", [True, False])
def test_matmul_through_registers(size: tuple[int, int, int], stages: int, matrix: bool) -> None:
    m, n, k = size
    a, b, out = matrices(m, n, k)
    module = matmul_module(by_pointers, blocks=False)
    target = StagedTarget(64, matrix=matrix)
    emulator.run(
        module,
        [a, b, out, m, n, k],
        (-(-m // BM), -(-n // BN), 1),
        num_warps=1,
        target=target,
        num_stages=stages,
    )
    np.testing.assert_array_equal(out, a @ b)
    assert operations(module, "simt.load_start") and not operations(module, "simt.copy_start")


@pytest.mark.parametrize("stages", [2, 3])
def test_attention_through_registers(stages: int) -> None:
    rng = np.random.default_rng(stages)
    q, k, v = rng.standard_normal((3, 27, 8)).astype(np.float32)
    out = np.full_like(q, np.nan)
    module = build(
        attention_by_pointers,
        {**dict.fromkeys(("q", "k", "v", "out"), "*fp32"), "n": "i32"},
        BM=16,
        BN=8,
        HEAD=8,
    )
    emulator.run(
        module,
        [q, k, v, out, 27],
        (2, 1, 1),
        num_warps=2,
        target=StagedTarget(64),
        num_stages=stages,
    )
    np.testing.assert_allclose(out, exp2_attention(q, k, v), rtol=1e-5, atol=1e-6)
    assert operations(module, "simt.load_start")


# ---- TMA copies, asynchronous matmuls


def run_blocks(
    module: Module,
    arguments: list[Any],
    grid: tuple[int, int, int],
    completion: str,
    stages: int,
    seed: int = 0,
) -> None:
    emulator.run(
        module,
        arguments,
        grid,
        num_warps=2,
        target=BulkTarget(8),
        num_stages=stages,
        completion=completion,
        seed=seed,
    )


@pytest.mark.each_value
@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_matmul_by_blocks(size: tuple[int, int, int], parts: bool, completion: str) -> None:
    m, n, k = size
    for stages in (2, 3):
        a, b, out = matrices(m, n, k)
        module = matmul_module(by_blocks, blocks=True, PARTS=parts)
        inputs = [EmulatedDescriptor(x if x.size else np.zeros((1, 1), np.float32)) for x in (a, b)]
        run_blocks(
            module, [*inputs, out, m, n, k], (-(-m // BM), -(-n // BN), 1), completion, stages
        )
        np.testing.assert_array_equal(out, a @ b)
        assert (
            len(operations(module, "simt.part")) == (2 if parts else 0)
            and len(operations(module, "simt.dot_start")) == 1
        )


@pytest.mark.each_value
@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_matmul_by_groups(size: tuple[int, int, int], completion: str) -> None:
    """Pointer copies feed asynchronous matmuls.

    One is in flight during the wait for the next one's operands, and its slot is filled after it.
    """
    m, n, k = size
    for stages in (2, 3, 4):
        a, b, out = matrices(m, n, k)
        module = matmul_module(by_pointers, blocks=False)
        target = BulkTarget(8, groups=True)
        emulator.run(
            module,
            [a, b, out, m, n, k],
            (-(-m // BM), -(-n // BN), 1),
            num_warps=2,
            target=target,
            num_stages=stages,
            completion=completion,
        )
        np.testing.assert_array_equal(out, a @ b)
    (product,) = operations(module, "simt.dot_start")
    (waited,) = (
        user
        for user in operations(module, "simt.wait")
        if product.parent is user.parent and user.operands[0].type is MATMULS
    )
    assert operations(module, "simt.copy_start") and waited.operands[0].definition is None, (
        "the loop waits for the product before"
    )


@pytest.mark.each_value
@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("rows", [False, True], ids=["staged", "in registers"])
@pytest.mark.parametrize("length", [3, 8, 27])
def test_attention_by_groups(length: int, rows: bool, completion: str) -> None:
    """The last matmul of an iteration is in flight until the next iteration has started its first.

    One wait serves both.

    This holds if it reads its operand from registers, and not from memory that the next iteration
    overwrites.
    """
    rng = np.random.default_rng(length)
    for stages in (2, 3, 4):
        q, k, v = rng.standard_normal((3, length, 8)).astype(np.float32)
        out = np.full_like(q, np.nan)
        module = build(
            attention_by_pointers,
            {**dict.fromkeys(("q", "k", "v", "out"), "*fp32"), "n": "i32"},
            BM=16,
            BN=8,
            HEAD=8,
        )
        options = {"num_stages": stages, "completion": completion, "debug": True}
        emulator.run(
            module,
            [q, k, v, out, length],
            (-(-length // 16), 1, 1),
            num_warps=2,
            target=BulkTarget(8, groups=True, rows=rows),
            **options,
        )
        np.testing.assert_allclose(out, exp2_attention(q, k, v), rtol=1e-5, atol=1e-6)
        _, last = operations(module, "simt.dot_start")
        (loop,) = operations(module, "for")
        carried = [
            position
            for position, value in enumerate(loop.regions[0].terminator.operands)
            if value is last.results[1]
        ]
        assert len(carried) == rows and len(last.results[1].uses) == 1
        for position in carried:
            (waited,) = loop.regions[0].arguments[1 + position].uses
            assert (
                waited.name == "simt.wait"
                and len(waited.group("tokens")) == 2
                and waited.group("held")
            )


@pytest.mark.each_value
@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("depth", [8, 21, 40])
def test_a_persistent_matmul(depth: int, parts: bool, completion: str) -> None:
    """The ring goes on from tile to tile, whatever the number of iterations leaves it at."""
    a, b, out = matrices(40, 20, depth)
    module = matmul_module(persistent, blocks=True, PARTS=parts)
    run_blocks(
        module,
        [EmulatedDescriptor(a), EmulatedDescriptor(b), out, 40, 20, depth],
        (2, 1, 1),
        completion,
        3,
    )
    np.testing.assert_array_equal(out, a @ b)


@device_function
def counted(
    a, b, out, ticket, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, DRAWN: tl.constexpr
):
    """Store sums of matmuls to places that tickets choose, which are drawn before or after."""
    places = tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :]
    drawn = 0
    for _ in range(3):
        first = 0
        if DRAWN == "before":
            first = min(tl.atomic_add(ticket, 1), 0)
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for k in tl.range(first, K, BK, warp_specialize=True):
            total = tl.dot(a.load([0, k]), b.load([k, 0]), total)
        if DRAWN == "carried":
            drawn += tl.atomic_add(ticket, 1)
            tl.store(out + places, total * (drawn - 2))
        elif DRAWN == "after":
            drawn = tl.atomic_add(ticket, 1)
            if drawn > 0:
                for other in range(drawn):
                    total += tl.load(out + other * (BM * BN) + places, volatile=True)
            tl.store(out + drawn * (BM * BN) + places, total)
            if drawn > 1:
                tl.store(ticket, -drawn)
        else:
            tl.store(out + places, total)


@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("drawn", ["before", "after", "carried"])
def test_a_program_whose_loads_do_not_follow_what_it_draws_is_divided(
    drawn: str, completion: str
) -> None:
    """The producer leaves out the control flow that an atomic operation decides."""
    a, b, out = matrices(BM, BN, 24)
    sums = np.zeros((3, *out.shape), np.float32)
    ticket = np.zeros(1, np.int32)
    signature = {
        "a": f"tensordesc<fp32[{BM},{BK}]>",
        "b": f"tensordesc<fp32[{BK},{BN}]>",
        "out": "*fp32",
        "ticket": "*i32",
        "K": "i32",
    }
    module = build(counted, signature, BM=BM, BN=BN, BK=BK, DRAWN=drawn)
    run_blocks(
        module,
        [EmulatedDescriptor(a), EmulatedDescriptor(b), sums, ticket, 24],
        (1, 1, 1),
        completion,
        3,
    )
    np.testing.assert_array_equal(sums[0], a @ b)
    assert len(operations(module, "simt.part")) == (2 if drawn == "after" else 0)
    if drawn == "after":
        np.testing.assert_array_equal(sums[1:], [2 * (a @ b), 4 * (a @ b)])
    assert ticket[0] == (-2 if drawn == "after" else 3)


@device_function
def gone_on_with(
    a, b, out, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WRITES: tl.constexpr
):
    for turn in range(2):
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for k in tl.range(0, K, BK, warp_specialize=True):
            total = tl.dot(a.load([0, k]), b.load([k, 0]), total)
        if WRITES:
            a.store([0, 0], total)
        tl.store(out + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], total)


@pytest.mark.parametrize("writes", [False, True])
def test_a_program_that_writes_to_what_it_loads_is_not_divided(writes: bool) -> None:
    """Loads that have warps of their own are not in order with what others store."""
    a, b, out = matrices(BM, BN, 24)
    signature = {
        "a": f"tensordesc<fp32[{BM},{BK}]>",
        "b": f"tensordesc<fp32[{BK},{BN}]>",
        "out": "*fp32",
        "K": "i32",
    }
    module = build(gone_on_with, signature, BM=BM, BN=BN, BK=BK, WRITES=writes)
    once = a.copy()
    if writes:
        once[:, :BN] = a @ b
    run_blocks(
        module, [EmulatedDescriptor(a), EmulatedDescriptor(b), out, 24], (1, 1, 1), "late", 3
    )
    np.testing.assert_array_equal(out, once @ b)
    told = [text for _, text in notes_of(kernel_of(module)) if "may change what it loads" in text]
    assert len(operations(module, "simt.part")) == (0 if writes else 2) and bool(told) == writes


@device_function
def by_table(
    a, b, out, table, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, WRITES: tl.constexpr
):
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=True):
        place = tl.load(table + k // BK) * BK
        total = tl.dot(a.load([0, place]), b.load([place, 0]), total)
    if WRITES:
        tl.store(table, 0)
    tl.store(out + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], total)


@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("writes", [False, True])
def test_a_producer_loads_the_numbers_of_pages(writes: bool, completion: str) -> None:
    """It loads scalars of memory that the program does not write."""
    a, b, out = matrices(BM, BN, 4 * BK)
    table = np.array([2, 0, 2, 3, 1], np.int32)
    signature = {
        "a": f"tensordesc<fp32[{BM},{BK}]>",
        "b": f"tensordesc<fp32[{BK},{BN}]>",
        "out": "*fp32",
        "table": "*i32",
        "K": "i32",
    }
    module = build(by_table, signature, BM=BM, BN=BN, BK=BK, WRITES=writes)
    places = (table[:, None] * BK + np.arange(BK)).flatten()
    expected = a[:, places] @ b[places]
    run_blocks(
        module,
        [EmulatedDescriptor(a), EmulatedDescriptor(b), out, table, len(places)],
        (1, 1, 1),
        completion,
        3,
    )
    np.testing.assert_array_equal(out, expected)
    assert len(operations(module, "simt.part")) == (0 if writes else 2)


@pytest.mark.parametrize(("warps", "form"), [(64, "parts"), (128, "barrier")])
def test_a_program_of_as_many_warps_as_there_are_is_not_divided(warps: int, form: str) -> None:
    module, target = matmul_module(by_blocks, blocks=True, PARTS=True), BulkTarget(8)
    run_stages(
        module,
        target,
        {"num_warps": warps, "num_stages": 2},
        ["prepare", "raise", "layouts", "select", "schedule"],
    )
    (loop,) = operations(module, "for")
    assert (
        target.resources.warp_size * 128 == target.resources.max_threads
        and loop.attributes[FORM] == form
    )


@pytest.mark.each_value
@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("parts", [False, True])
def test_attention_by_blocks(parts: bool, completion: str) -> None:
    rng = np.random.default_rng(1)
    q, k, v = rng.standard_normal((3, 27, 8)).astype(np.float32)
    out = np.full_like(q, np.nan)
    signature = {
        "q": "tensordesc<fp32[16,8]>",
        **dict.fromkeys("kv", "tensordesc<fp32[8,8]>"),
        "out": "*fp32",
        "n": "i32",
    }
    module = build(attention_by_blocks, signature, BM=16, BN=8, HEAD=8, PARTS=parts)
    run_blocks(module, [*map(EmulatedDescriptor, (q, k, v)), out, 27], (2, 1, 1), completion, 3)
    np.testing.assert_allclose(out, exp2_attention(q, k, v), rtol=1e-5, atol=1e-6)
    assert len(operations(module, "simt.part")) == (2 if parts else 0)


@device_function
def scaled_by_blocks(
    a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr
):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in tl.range(0, K, BK, warp_specialize=PARTS):
        total = tl.dot(a.load([row, start]) * 2 - 1, b.load([start, column]), total)
    tl.store(
        out + rows[:, None] * N + columns[None, :],
        total,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


@device_function
def scaled_by_pointers(a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows, columns = (
        tl.program_id(0) * BM + tl.arange(0, BM),
        tl.program_id(1) * BN + tl.arange(0, BN),
    )
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        x = tl.load(
            a + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K)
        )
        y = tl.load(
            b + inner[:, None] * N + columns[None, :],
            mask=(inner[:, None] < K) & (columns[None, :] < N),
        )
        total = tl.dot(x * 2 - 1, y, total)
    tl.store(
        out + rows[:, None] * N + columns[None, :],
        total,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


@pytest.mark.each_value
@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("form", ["groups", "blocks", "parts"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_an_operand_computed_of_copies_is_read_from_registers(
    size: tuple[int, int, int], form: str, completion: str
) -> None:
    """The wait for a matmul precedes the next iteration's computation of its operand.

    That computation writes the same registers.

    Outside of ``a``, zeros become ones, which meet zeros of ``b``.
    """
    m, n, k = size
    for stages in (2, 3):
        a, b, out = matrices(m, n, k)
        groups = form == "groups"
        module = (
            matmul_module(scaled_by_pointers, blocks=False)
            if groups
            else matmul_module(scaled_by_blocks, blocks=True, PARTS=form == "parts")
        )
        inputs: list[Any] = (
            [a, b]
            if groups
            else [EmulatedDescriptor(x if x.size else np.zeros((1, 1), np.float32)) for x in (a, b)]
        )
        options = {"num_stages": stages, "completion": completion, "debug": True}
        target = BulkTarget(8, groups=groups, rows=True)
        emulator.run(
            module,
            [*inputs, out, m, n, k],
            (-(-m // BM), -(-n // BN), 1),
            num_warps=2,
            target=target,
            **options,
        )
        np.testing.assert_array_equal(out, (a * 2 - 1) @ b)
        (product,) = operations(module, "simt.dot_start")
        assert product.attribute("plan") == "toy.rs"
        waits = [
            wait
            for wait in operations(module, "simt.wait")
            if wait.parent is product.parent and wait.group("held")
        ]
        assert len(waits) == 1 and waits[0].group("tokens")[0].definition is product
