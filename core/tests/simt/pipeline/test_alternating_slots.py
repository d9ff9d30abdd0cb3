"""Operands that threads convert and stage while the previous iteration's matmul is in flight."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matmul_kernels import BK, BM, BN, MODES, build, operations

import tilewright.language as tl
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright.simt import emulator
from tilewright.simt.emulator import EmulatedDescriptor
from tilewright.testing.toy_targets import BulkTarget

SIZES = [(BM, BN, blocks * BK - odd) for blocks, odd in ((0, 0), (1, 3), (2, 0), (3, 0), (9, 1))]


@device_function
def converted(
    a, b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr,
    SCALED: tl.constexpr,
):  # fmt: skip
    """Multiply by integers, which are doubled and converted; ``SCALED``: use each result."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=PARTS):
        x = a.load([row, k])
        y = (b.load([k, column]) * 2).to(tl.float32)
        if SCALED:
            total += tl.dot(x, y) * 0.5
        else:
            total = tl.dot(x, y, total)
    rows, columns = row + tl.arange(0, BM), column + tl.arange(0, BN)
    tl.store(
        out + rows[:, None] * N + columns[None, :],
        total,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


def run(
    size: tuple[int, int, int],
    stages: int,
    completion: str,
    *,
    parts: bool,
    scaled: bool,
    room: int | None = None,
) -> Module:
    """Run the kernel on a machine whose SMs have room for one program, or ``room`` bytes."""
    room = 1300 + 800 * stages if room is None else room
    target = BulkTarget(8)
    target.resources = replace(target.resources, shared_memory=room, register_file=1 << 20)
    m, n, k = size
    rng = np.random.default_rng(k)
    a = rng.integers(-3, 4, (m, k)).astype(np.float32)
    b = rng.integers(-3, 4, (k, n)).astype(np.int32)
    out = np.full((m, n), np.nan, np.float32)
    module = build(
        converted,
        {
            "a": f"tensordesc<fp32[{BM},{BK}]>",
            "b": f"tensordesc<i32[{BK},{BN}]>",
            "out": "*fp32",
            **dict.fromkeys("MNK", "i32"),
        },
        BM=BM,
        BN=BN,
        BK=BK,
        PARTS=parts,
        SCALED=scaled,
    )
    emulator.run(
        module,
        [
            *(EmulatedDescriptor(x if x.size else np.zeros((1, 1), x.dtype)) for x in (a, b)),
            *(out, m, n, k),
        ],
        (-(-m // BM), -(-n // BN), 1),
        num_warps=2,
        target=target,
        num_stages=stages,
        completion=completion,
    )
    np.testing.assert_array_equal(out, a @ b.astype(np.float32) * (1 if scaled else 2))
    return module


@pytest.mark.each_value
@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("size", [*SIZES, (19, 11, 6 * BK)], ids=str)
def test_conversions_overlap_with_the_previous_matmul(
    size: tuple[int, int, int], stages: int, parts: bool, completion: str
) -> None:
    module = run(size, stages, completion, parts=parts, scaled=False)
    (start,) = operations(module, "simt.dot_start")
    assert start.parent is not None
    names = [operation.name for operation in start.parent]
    at = names.index("simt.dot_start")
    assert names.count("simt.store") == 1 and names.count("barrier") == 2
    assert names.index("simt.store") < at < names.index("simt.wait")
    slot = start.operands[1].definition
    assert slot is not None and slot.operands[0].type.count == 2
    (wait,) = (one for one in start.parent if one.name == "simt.wait")
    assert start.results[1] not in wait.operands, "the wait is for the previous iteration's matmul"


@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize(("room", "count"), [(2600, 2), (3900, 1), (4300, 2), (5800, 1)])
def test_a_second_slot_takes_no_program_from_an_sm(room: int, count: int, completion: str) -> None:
    """The loop takes 1824 bytes with one slot for the staged operand, and 2080 with two."""
    module = run((BM, BN, 3 * BK), 2, completion, parts=False, scaled=False, room=room)
    (start,) = operations(module, "simt.dot_start")
    slot = start.operands[1].definition
    assert slot is not None and slot.operands[0].type.count == count
    (wait,) = (one for one in start.parent if one.name == "simt.wait")
    assert (start.results[1] in wait.operands) == (count == 1)


@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_results_of_staged_operands_are_waited_for(
    size: tuple[int, int, int], parts: bool, completion: str
) -> None:
    """A matmul does not start before its operand is stored, which a barrier follows."""
    module = run(size, 3, completion, parts=parts, scaled=True)
    (start,) = operations(module, "simt.dot_start")
    following = start.next
    assert following is not None and start.results[1] in following.operands
