"""Proofs that gradients of blocks of descriptors need no atomics."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.derivatives.analysis.write_modes import WriteMode, write_modes
from tilewright.frontend.compile import compile_function

GRID, ROWS, COLUMNS = (3, 2), 4, 8


@tw.jit
def blocks(
    x,
    out,
    n,
    R0: tl.constexpr,
    R1: tl.constexpr,
    C0: tl.constexpr,
    C1: tl.constexpr,
    LOOP: tl.constexpr,
    SHIFT: tl.constexpr,
):
    """Loads blocks at ``R0 p + R1 q + LOOP i, C0 p + C1 q``, and maybe beside them."""
    p, q = tl.program_id(0), tl.program_id(1)
    for i in range(2):
        row, column = R0 * p + R1 * q + LOOP * i, C0 * p + C1 * q
        v = x.load([row, column])
        if SHIFT >= 0:
            v += x.load([row, column + SHIFT])
        out.store([4 * (2 * p + i), 8 * q], v)


@tw.jit
def made(x, out, n, stride, ELSEWHERE: tl.constexpr, OVERLAP: tl.constexpr):
    p, q = tl.program_id(0), tl.program_id(1)
    base = x + p * n if ELSEWHERE else x
    step = 1 if OVERLAP else stride
    d = tl.make_tensor_descriptor(base, [n, 32], [step, 1], [4, 8])
    at = tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(out + (2 * p + q) * 32 + at, d.load([4 * p, 8 * q]))


def mode_of(kernel: Any, signature: dict[str, str], **constants: int) -> WriteMode:
    names = {**signature, **dict.fromkeys(constants, "constexpr")}
    module = compile_function(kernel, names, constants)
    return write_modes(module, ("x",))["x"]


def of_blocks(*numbers: int, loop: int, shift: int = -1) -> WriteMode:
    constants = dict(zip(("R0", "R1", "C0", "C1"), numbers, strict=True))
    descriptor = f"tensordesc<fp64[{ROWS},{COLUMNS}]>"
    signature = {"x": descriptor, "out": descriptor, "n": "i32"}
    return mode_of(blocks, signature, **constants, LOOP=loop, SHIFT=shift)


def launch(**numbers: int) -> dict[str, int]:
    return {**{f"num_programs({i})": n for i, n in enumerate((*GRID, 1))}, **numbers}


ROW_MAJOR = launch(**{"x.shape(0)": 64, "x.shape(1)": 32, "x.stride(0)": 32, "x.stride(1)": 1})


def test_blocks_of_a_grid_are_stored_where_the_tensor_does_not_overlap() -> None:
    mode = of_blocks(8, 0, 0, 8, loop=4)
    assert (mode.mode, mode.why) == ("store", "one program alone loads each element, once")
    texts = [condition.text for condition in mode.alternatives[0]]
    assert "x.stride(1) >= 1" in texts
    assert "x.stride(0) >= x.shape(1) * x.stride(1)" in texts
    assert mode.at(ROW_MAJOR).mode == "store"
    assert mode.at({**ROW_MAJOR, "x.stride(0)": 31}).mode == "atomic"
    assert mode.at({**ROW_MAJOR, "x.stride(1)": 0, "x.stride(0)": 32}).mode == "atomic"
    assert mode.at({**ROW_MAJOR, "num_programs(2)": 2}).mode == "atomic"


@pytest.mark.parametrize(
    ("numbers", "loop", "shift", "mode", "why"),
    [
        ((8, 0, 0, 0), 4, -1, "atomic", "all programs along axis 1 of the grid load it"),
        ((8, 0, 0, 8), 0, -1, "add", "one program alone loads each element"),
        ((8, 0, 0, 8), 4, 1, "atomic", "programs may load one element"),
        ((8, 0, 0, 16), 4, 8, "add", "one program alone loads each element"),
        ((0, 8, 8, 0), 4, -1, "store", "one program alone loads each element, once"),
    ],
)
def test_blocks_that_are_loaded_again_or_by_others(numbers, loop, shift, mode, why) -> None:
    found = of_blocks(*numbers, loop=loop, shift=shift).at(ROW_MAJOR)
    assert (found.mode, found.why) == (mode, why)


def test_blocks_that_overlap_are_not_proven_apart() -> None:
    assert of_blocks(2, 0, 0, 8, loop=4).at(ROW_MAJOR).mode == "atomic"
    assert of_blocks(8, 0, 0, 4, loop=4).at(ROW_MAJOR).mode == "atomic"


SIGNATURE = {"x": "*fp64", "out": "*fp64", "n": "i32", "stride": "i32"}


def test_descriptors_that_the_kernel_makes_are_those_of_its_arguments() -> None:
    mode = mode_of(made, SIGNATURE, ELSEWHERE=0, OVERLAP=0)
    assert mode.mode == "store"
    assert mode.at(launch(n=64, stride=32)).mode == "store"
    refused = mode.at(launch(n=64, stride=31))
    assert refused.mode == "atomic"
    assert refused.why.endswith("stride >= 32")
    mode = mode_of(made, SIGNATURE, ELSEWHERE=1, OVERLAP=0)
    assert mode.why == "its descriptor may begin elsewhere in each program"
    mode = mode_of(made, SIGNATURE, ELSEWHERE=0, OVERLAP=1)
    assert mode.why == "elements of its descriptor overlap"


def test_random_blocks_that_are_proven_apart_are() -> None:
    """Two programs never load one element, and nobody loads one twice where it is stored."""
    rng, modes = np.random.default_rng(0), dict.fromkeys(("store", "add", "atomic"), 0)
    for _ in range(80):
        numbers = [int(rng.choice(choice)) for choice in ((0, 4, 8, 8), (0, 0, 4, 24))]
        numbers += [int(rng.choice(choice)) for choice in ((0, 0, 8, 16), (0, 8, 8, 24))]
        loop, shift = int(rng.choice([0, 4, 4, 12])), int(rng.choice([-1, -1, 0, 3, 8]))
        mode = of_blocks(*numbers, loop=loop, shift=shift).at(
            {**ROW_MAJOR, "x.shape(1)": 128, "x.stride(0)": 128}
        )
        modes[mode.mode] += 1
        if mode.mode == "atomic":
            continue
        loads = np.zeros((*GRID, 256, 256), int)
        for p, q, i in product(*map(range, GRID), range(2)):
            row = numbers[0] * p + numbers[1] * q + loop * i
            column = numbers[2] * p + numbers[3] * q
            for offset in (0, shift) if shift >= 0 else (0,):
                at = column + offset
                loads[p, q, row : row + ROWS, at : at + COLUMNS] += 1
        case = (numbers, loop, shift)
        assert (loads > 0).sum((0, 1)).max() == 1, case
        assert mode.mode == "add" or loads.max() == 1, case
    assert all(count > 4 for count in modes.values()), modes


@tw.jit
def squares(x, out, M: tl.constexpr, N: tl.constexpr):
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    v = x.load([row, column])
    out.store([row, column], v * v)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_gradients_of_blocks_are_deterministic(backend: str) -> None:
    pytest.importorskip("tilewright_cpu")
    x = np.random.default_rng(0).normal(size=(20, 32)).astype(np.float32)
    dx, out, ones = np.full_like(x, np.nan), np.empty_like(x), np.ones_like(x)
    x_, dx_, out_, ones_ = (
        tw.TensorDescriptor(array, [20, 32], [32, 1], [8, 16]) for array in (x, dx, out, ones)
    )
    adjoint = tw.vjp(squares, outputs="out", wrt="x", deterministic=True)
    with tw.backend(backend):
        adjoint[(3, 2)](x_, out_, M=8, N=16, d_out=ones_, d_x=dx_)
    np.testing.assert_array_equal(dx, 2 * x)
