"""Addresses that are a scalar base and a thread's offset of 32 bits: no sums of 64 bits by lane, and loads of buffers that end where masks leave lanes out."""

from __future__ import annotations

import re

import numpy as np
import pytest
from amd_emulated import launched
from amd_support import compiled

import tilewright as tw
import tilewright.language as tl
from tilewright.plugins.manifest import CodeObject

ARCHS = ("gfx942", "gfx950", "gfx1100", "gfx1201")
TYPES = {"i8": np.int8, "fp16": np.float16, "fp32": np.float32, "i64": np.int64}


@tw.jit
def copied(x, out, n, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@tw.jit
def whole(x, out, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + at, tl.load(x + at))


@tw.jit
def shifted(x, out, n, N: tl.constexpr):
    at = tl.arange(0, N)
    before = at - 3
    tl.store(out + at, tl.load(x + before, mask=(before >= 0) & (before < n), other=7), mask=at < n)


@tw.jit
def rows(x, starts, out, columns, stride, M: tl.constexpr, N: tl.constexpr):
    row = tl.program_id(0)
    begin = tl.load(starts + row)
    last = tl.max(tl.load(starts + tl.arange(0, M)))
    total = tl.zeros((M, N), tl.int32)
    for first in range(0, columns, N):
        at = first + tl.arange(0, N)
        mask = (at < columns)[None, :] & (tl.arange(0, M) < 3)[:, None]
        there = tl.arange(0, M)[:, None] * 128 + at[None, :]
        total += tl.load(x + row * stride + begin + there, mask=mask) + tl.load(x + last + there, mask=mask, other=1)
    tl.store(out + row * M * N + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], total)


@tw.jit
def carried(x, out, count, N: tl.constexpr):
    at = x + tl.arange(0, N)
    to = out + tl.arange(0, N)
    for i in range(2, count, 3):
        tl.store(to, tl.load(at), mask=tl.arange(0, N) < 100 - i)
        at += 2 * N
        to += N


def mnemonics(code: CodeObject) -> list[str]:
    return re.findall(r"^\t([a-z]\w+)", str(code.stages["amdgcn"]), re.M)


@pytest.mark.parametrize("type_", TYPES)
@pytest.mark.parametrize("arch", ARCHS)
def test_masked_lanes_read_beyond_the_end_of_a_buffer(arch: str, type_: str) -> None:
    code = compiled(copied, f"x=*{type_}:16, out=*{type_}:16, n=i32", arch, {"N": 1024})
    names = mnemonics(code)
    assert not any(name.startswith("global_load") for name in names)
    if TYPES[type_] is not np.int64:  # of two stores, LLVM makes the second one's address of the first one's
        assert not any(name.startswith(("v_lshl_add_u64", "v_add_co", "v_addc_co")) for name in names)
    loads, stores = (sum(name.startswith(which) for name in names) for which in ("buffer_load", "global_store"))
    assert loads == stores > 0
    x = np.random.default_rng(0).integers(-100, 100, 1501).astype(TYPES[type_])
    out = np.full(1600, 5, x.dtype)
    launched(code, [x, out[:1501], 1501], grid=(2,))
    np.testing.assert_array_equal(out, np.concatenate([x, np.full(99, 5, x.dtype)]))


@pytest.mark.parametrize("arch", ARCHS)
def test_whole_tiles_have_a_scalar_base(arch: str) -> None:
    code = compiled(whole, "x=*fp32:16, out=*fp32:16", arch, {"N": 1024})
    accesses = re.findall(r"^\tglobal_(?:load|store)_\w+ (.*)$", str(code.stages["amdgcn"]), re.M)
    assert accesses and all(re.search(r"\bs\[\d+:\d+\]", operands) for operands in accesses)
    assert not any(name.startswith(("v_lshl_add_u64", "v_add_co", "v_addc_co")) for name in mnemonics(code))
    x, out = np.arange(3072, dtype=np.float32), np.zeros(3072, np.float32)
    launched(code, [x, out], grid=(3,))
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize("arch", ARCHS)
def test_offsets_that_begin_below_zero(arch: str) -> None:
    code = compiled(shifted, "x=*i32:16, out=*i32:16, n=i32", arch, {"N": 256})
    x, out = np.arange(201, dtype=np.int32), np.zeros(201, np.int32)
    launched(code, [x, out, 201])
    np.testing.assert_array_equal(out, np.concatenate([np.full(3, 7, np.int32), x[:-3]]))


@pytest.mark.parametrize("arch", ARCHS)
def test_bases_of_loops_loads_and_reductions(arch: str) -> None:
    """What a reduction gives is the same in all lanes, which LLVM does not know: there is no loop over what the lanes have."""
    m, n, columns, stride = 4, 32, 77, 1000
    code = compiled(rows, "x=*i32:16, starts=*i32:16, out=*i32:16, columns=i32, stride=i32", arch, {"M": m, "N": n})
    assert not {"v_cmp_eq_u64", "v_cmpx_eq_u64", "s_cbranch_execnz"} & set(mnemonics(code))
    assert any(name.startswith("buffer_load") for name in mnemonics(code))
    rng = np.random.default_rng(0)
    x, starts, out = rng.integers(-99, 99, 4000).astype(np.int32), np.array([5, 300, 17, 2], np.int32), np.zeros((2, m, n), np.int32)
    launched(code, [x, starts, out, columns, stride], grid=(2,))
    expected = np.zeros_like(out)
    for row in range(2):
        for first in range(0, columns, n):
            for i in range(m):
                for j in range(n):
                    inside = first + j < columns and i < 3
                    at = i * 128 + first + j
                    expected[row, i, j] += x[row * stride + starts[row] + at] + x[300 + at] if inside else 1
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("arch", ARCHS)
def test_pointers_that_a_loop_carries(arch: str) -> None:
    code = compiled(carried, "x=*i32:16, out=*i32:16, count=i32", arch, {"N": 128})
    x, out = np.arange(2048, dtype=np.int32), np.zeros((4, 128), np.int32)
    launched(code, [x, out, 13])
    expected = np.zeros_like(out)
    for turn, i in enumerate(range(2, 13, 3)):
        expected[turn, : 100 - i] = x[256 * turn :][: 100 - i]
    np.testing.assert_array_equal(out, expected)
