"""Operations and bytes of launches, beside sets of the addresses that NumPy computes for them."""

import numpy as np
import pytest
from pointer_kernels import plain

import tilewright as tw
import tilewright.language as tl
from tilewright.passes import pipeline
from tilewright.passes.analysis.traffic import (
    ArgumentTraffic,
    DescriptorTensor,
    Traffic,
    traffic_of,
)
from tilewright.plugins.manifest import Target
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import Specialization, build_module

TYPES = {
    "a": "*fp16",
    "b": "*fp16",
    "c": "*fp16",
    "x": "*fp32",
    "out": "*fp32",
    "index": "*i32",
    "flags": "*i32",
}


def traffic(kernel, arguments, grid, types=TYPES, **constants) -> Traffic:
    backend = registry().get("reference")
    signature = {
        name: types.get(name, "i32") if name not in constants else "constexpr"
        for name in kernel.arg_names
    }
    specialization = Specialization(
        kernel, signature, constants, {}, dict(backend.manifest.options)
    )
    module = build_module(specialization, backend, Target("reference", "numpy", kind="cpu"))
    pipeline.run(module, pipeline.STANDARD)
    return traffic_of(module, arguments, grid)


@tw.jit
def grouped(
    a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    number = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    first = number // (GROUP * columns) * GROUP
    size = min(rows - first, GROUP)
    i = first + number % (GROUP * columns) % size
    j = number % (GROUP * columns) // size
    m = (i * BM + tl.arange(0, BM)) % M
    n = (j * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(K, BK)):
        left = tl.load(
            a + m[:, None] * K + (step * BK + k)[None, :],
            mask=k[None, :] < K - step * BK,
            other=0.0,
        )
        right = tl.load(
            b + (step * BK + k)[:, None] * N + n[None, :],
            mask=k[:, None] < K - step * BK,
            other=0.0,
        )
        total = tl.dot(left, right, total)
    m, n = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
    tl.store(
        c + m[:, None] * N + n[None, :],
        total.to(tl.float16),
        mask=(m[:, None] < M) & (n[None, :] < N),
    )


@tw.jit
def overlapping(out, x, n, step, WIDTH: tl.constexpr, UP: tl.constexpr):
    i = tl.program_id(0) * step + tl.arange(0, WIDTH)
    left = tl.load(x + i, mask=i < n)
    right = tl.load(x + (i + 3), mask=(i + 3 < n) & (i >= 4))
    if tl.program_id(0) % 2 == 0:
        tl.store(out + i * UP, left + right, mask=i < n)


@tw.jit
def persistent(out, x, tiles, n, PROGRAMS: tl.constexpr, WIDTH: tl.constexpr):
    for tile in range(tl.program_id(0), tiles, PROGRAMS):
        i = tile * WIDTH + tl.arange(0, WIDTH)
        tl.store(out + (n - 1 - i), tl.load(x + i, mask=i < n), mask=i < n)


@tw.jit
def picked(out, x, index, flags, n, WIDTH: tl.constexpr):
    i = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    taken = tl.load(x + tl.load(index + i, mask=i < n, other=0), mask=i < n)
    tl.store(out + i, taken, mask=(i < n) & (tl.load(flags + i, mask=i < n) > 0))


@tw.jit
def searched(out, flags):
    i = 0
    while tl.load(flags + i) == 0:
        i += 1
    tl.store(out, i.to(tl.float32))


@tw.jit
def described(a, out, M, N, BM: tl.constexpr, BN: tl.constexpr):
    tensor = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BM, BN])
    i, j = tl.program_id(0) * BM - 1, tl.program_id(1) * BN
    tensor.store([i, j], a.load([i, j]).to(tl.float32))


@tw.jit
def computed(out, x, WIDTH: tl.constexpr):
    i = tl.arange(0, WIDTH)
    a = tl.load(x + i)
    tl.store(out + i, tl.fma(a, a, a) + tl.sum(a, axis=0))


@tw.jit
def decayed(out, x, decay, n, WIDTH: tl.constexpr):
    i = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    if decay > 0.5:
        tl.store(out + i, decay * tl.load(x + i, mask=i < n), mask=i < n)


def test_a_grouped_matmul_reads_each_element_of_its_operands_once_at_the_least():
    m, n, k, bm, bn, bk = 200, 150, 90, 32, 64, 32
    grid = -(-m // bm) * -(-n // bn)
    found = traffic(grouped, {"M": m, "N": n, "K": k}, (grid, 1, 1), BM=bm, BN=bn, BK=bk, GROUP=4)
    assert found.whole and found.programs == grid
    assert found.matmuls == {"f16": grid * 3 * 2 * bm * bn * bk}
    assert found.reads == {
        "a": ArgumentTraffic(grid * bm * k * 2, True, m * k * 2),
        "b": ArgumentTraffic(grid * bn * k * 2, True, k * n * 2),
    }
    assert found.writes == {"c": ArgumentTraffic(m * n * 2, True, m * n * 2)}
    assert found.asked == sum(
        moved.asked for moved in (*found.reads.values(), *found.writes.values())
    )
    kernel, loop = found.steps
    assert (kernel.runs, kernel.innermost, kernel.stored) == (grid, False, bm * bn * 2)
    assert (loop.runs, loop.innermost, loop.loaded, loop.depth) == (
        3 * grid,
        True,
        (bm + bn) * bk * 2,
        1,
    )


@pytest.mark.parametrize(
    ("n", "step", "grid", "up"),
    [(1000, 50, 17, 1), (1000, 64, 17, 3), (70, 1, 9, -2), (64, 0, 3, 1)],
)
def test_overlapping_accesses_under_masks_and_branches(n, step, grid, up):
    found = traffic(overlapping, {"n": n, "step": step}, (grid, 1, 1), WIDTH=64, UP=up)
    lanes = [program * step + np.arange(64) for program in range(grid)]
    left, right = [i[i < n] for i in lanes], [i[(i + 3 < n) & (i >= 4)] + 3 for i in lanes]
    stored = [i[i < n] * up for i in lanes[::2]]
    assert found.reads == {
        "x": ArgumentTraffic(
            4 * sum(map(len, left + right)), True, 4 * len(set(np.concatenate(left + right)))
        )
    }
    assert found.writes == {
        "out": ArgumentTraffic(
            4 * sum(map(len, stored)), True, 4 * len(set(np.concatenate(stored)))
        )
    }
    assert found.whole


def test_a_persistent_kernel_counts_the_iterations_of_each_program():
    found = traffic(persistent, {"tiles": 13, "n": 13 * 32 - 5}, (4, 1, 1), PROGRAMS=4, WIDTH=32)
    size = 4 * (13 * 32 - 5)
    assert found.reads == {"x": ArgumentTraffic(size, True, size)} and found.writes == {
        "out": ArgumentTraffic(size, True, size)
    }
    assert [step.runs for step in found.steps] == [4, 13]


def test_what_depends_on_loads_is_said_and_not_made_up():
    found = traffic(picked, {"n": 100}, (4, 1, 1), WIDTH=32)
    line = (
        next(number for number, text in enumerate(picked.src.splitlines(), 1) if "taken = " in text)
        + picked.starting_line_number
    )
    assert found.whole and found.reads["index"] == found.reads["flags"] == ArgumentTraffic(
        400, True, 400
    )
    assert found.reads["x"] == ArgumentTraffic(
        400, True, None, f"its addresses depend on what is loaded at line {line}"
    )
    assert found.writes["out"] == ArgumentTraffic(
        400, False, None, "its mask depends on what is loaded or computed"
    )
    assert found.minimum == 800 and found.asked == 1600


@pytest.mark.parametrize(("decay", "moved"), [(0.75, 4 * 100), (0.25, 0), (1, 4 * 100)])
def test_a_branch_on_a_float_is_followed(decay, moved):
    found = traffic(
        decayed, {"decay": decay, "n": 100}, (4, 1, 1), {**TYPES, "decay": "fp32"}, WIDTH=32
    )
    assert found.whole and found.reads == {"x": ArgumentTraffic(moved, True, moved)}
    assert traffic(
        decayed, {"n": 100}, (4, 1, 1), {**TYPES, "decay": "fp32"}, WIDTH=32
    ).lacking == ("decay",)


def test_a_while_loop_leaves_the_totals_unknown():
    found = traffic(searched, {}, (1, 1, 1))
    assert not found.whole and not found.lacking and "while loop" in " ".join(found.unknown)


def test_what_a_launch_would_have_to_say_is_named():
    found = traffic(plain, {"N": 64}, None, BM=32, BN=32, BK=32)
    assert not found.whole and found.lacking == ("K", "grid")
    loop = found.steps[-1]
    assert (
        loop.runs is None and loop.matmuls == {"f16": 2 * 32**3} and loop.loaded == 2 * 32 * 32 * 2
    )


def test_blocks_of_descriptors_count_where_they_are_inside():
    types = {**TYPES, "a": "tensordesc<fp16[16,32]>"}
    found = traffic(
        described,
        {"a": DescriptorTensor((40, 50), (64, 1)), "M": 40, "N": 50},
        (3, 2, 1),
        types,
        BM=16,
        BN=32,
    )
    assert found.reads == {
        "a": ArgumentTraffic(40 * 50 * 2, True, 40 * 50 * 2)
    } and found.writes == {"out": ArgumentTraffic(40 * 50 * 4, True, 40 * 50 * 4)}
    assert traffic(described, {"M": 40, "N": 50}, (3, 2, 1), types, BM=16, BN=32).lacking == ("a",)


def test_operations_of_floats_are_counted_and_multiply_adds_twice():
    found = traffic(computed, {}, (3, 1, 1), WIDTH=64)
    assert found.arithmetic == {"f32": 3 * (64 * 2 + 64 + 64)} and not found.matmuls


def test_launches_of_more_runs_than_are_followed_have_no_totals(monkeypatch):
    monkeypatch.setattr("tilewright.passes.analysis.traffic.MOST_RUNS", 12)
    found = traffic(persistent, {"tiles": 13, "n": 416}, (4, 1, 1), PROGRAMS=4, WIDTH=32)
    assert not found.whole and found.unknown == ("more than 12 runs, which are not followed",)
