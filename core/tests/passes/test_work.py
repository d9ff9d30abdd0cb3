"""Work of a program, counted from Tile IR and the arguments of a launch."""

import pytest
from pointer_kernels import plain

import tilewright as tw
import tilewright.language as tl
from tilewright.ir.types import F16, F32
from tilewright.ir.work import Work
from tilewright.passes.analysis.work import GUESSED_RUNS, work_of
from tilewright.plugins.manifest import Target
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import Specialization, build_module


@tw.jit
def persistent(a, b, c, tiles, steps, PROGRAMS: tl.constexpr, SPLIT: tl.constexpr):
    square = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True, warp_specialize=SPLIT):
        total = tl.zeros((32, 32), dtype=tl.float32)
        for _ in tl.range(0, steps, num_stages=4):
            total = tl.dot(tl.load(a + square), tl.load(b + square), total)
        tl.store(c + tile * 1024 + square, total.to(tl.float16))


@tw.jit
def causal(q, k, o, LENGTH, BM: tl.constexpr, BN: tl.constexpr):
    rows, columns = tl.arange(0, BM), tl.arange(0, BN)
    left = tl.load(q + rows[:, None] * 64 + tl.arange(0, 64)[None, :])
    most = tl.zeros((BM,), dtype=tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * BM, BN):
        scores = tl.dot(
            left, tl.trans(tl.load(k + (start + columns)[:, None] * 64 + tl.arange(0, 64)[None, :]))
        )
        most += tl.sum(tl.exp2(scores), axis=1)
    tl.store(o + tl.program_id(0) * BM + rows, most)


@tw.jit
def from_memory(x, lengths, ASK: tl.constexpr):
    total = 0.0
    for i in range(tl.load(lengths)):
        total += tl.sum(tl.load(x + i * 64 + tl.arange(0, 64)))
    if ASK > 3:
        tl.store(x + tl.arange(0, 64), total)


def work(kernel, types, arguments, grid=(1, 1, 1), **constants) -> Work:
    backend = registry().get("reference")
    signature = {
        name: types.get(name, "i32") if name not in constants else "constexpr"
        for name in kernel.arg_names
    }
    module = build_module(
        Specialization(kernel, signature, constants, {}, dict(backend.manifest.options)),
        backend,
        Target("reference", "numpy", kind="cpu"),
    )
    return work_of(module, arguments, {"num_warps": 4}, lambda: grid)


HALVES = {
    "a": "*fp16",
    "b": "*fp16",
    "c": "*fp16",
    "q": "*fp16",
    "k": "*fp16",
    "o": "*fp32",
    "x": "*fp32",
    "lengths": "*i32",
}


def test_a_product_of_matrices():
    found = work(plain, HALVES, {"M": 256, "N": 512, "K": 1000}, (2, 4, 1), BM=128, BN=64, BK=32)
    assert found.programs == 8 and found.multiplies and found.max_tile_elements == 128 * 64
    assert len(found.bodies) == 3  # the first program, the middle one and the last
    kernel, loop = found.bodies[0]
    assert (loop.runs, loop.entries, loop.known, loop.depth) == (32, 1, True, 1)
    (dot,) = loop.dots
    assert (dot.m, dot.n, dot.k, dot.batch, dot.a, dot.accumulator) == (128, 64, 32, 1, F16, F32)
    assert dot.operations == 2 * 128 * 64 * 32 and dot.loaded == loop.loaded == 2 * (128 + 64) * 32
    assert kernel.stored == 2 * 128 * 64 and not kernel.dots


@pytest.mark.parametrize("split", [False, True])
def test_a_persistent_loop_runs_by_the_programs_place(split):
    found = work(persistent, HALVES, {"tiles": 10, "steps": 7}, (4, 1, 1), PROGRAMS=4, SPLIT=split)
    runs = [[body.runs for body in bodies] for bodies in found.bodies]
    assert runs == [[1, 3, 21], [1, 2, 14], [1, 2, 14]]  # programs 0, 2 and 3 of 4
    _, outer, inner = found.bodies[0]
    assert (
        outer.flattened
        and inner.flattened
        and inner.entries == 3
        and inner.stages == 4
        and not outer.stages
    )
    assert outer.specialized is inner.specialized is split
    assert outer.stored == 2 * 1024


def test_loops_that_depend_on_the_place_in_the_grid():
    found = work(causal, HALVES, {"LENGTH": 512}, (4, 1, 1), BM=128, BN=64)
    assert [bodies[1].runs for bodies in found.bodies] == [2, 6, 8]
    _, loop = found.bodies[0]
    assert (loop.dots[0].a_loaded, loop.dots[0].b_loaded) == (
        False,
        True,
    )  # q is loaded before the loop
    assert (
        loop.slow == 128 * 64 and loop.computed == 128 * 64 + 2 * 128
    )  # powers, their sums, and those added


def test_what_depends_on_memory_is_guessed_and_what_is_no_product_asks_for_no_grid():
    for ask in (3, 4):
        found = work(from_memory, HALVES, {}, None, ASK=ask)
        kernel, loop = found.bodies[0]
        assert (loop.runs, loop.known, kernel.known) == (GUESSED_RUNS, False, True)
        assert (
            loop.loaded == 4 * 64
            and kernel.stored == (4 * 64 if ask > 3 else 0)
            and not found.multiplies
            and found.programs is None
        )


def test_unknown_arguments_leave_loops_unknown():
    found = work(plain, HALVES, {}, None, BM=128, BN=64, BK=32)
    assert found.programs is None and len(found.bodies) == 1 and not found.bodies[0][1].known
