"""Volatile scalars are read by one thread for all: another program may change them between two
threads' reads."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright.ir.parser import parse_module
from tilewright.simt import emulator
from tilewright.simt.compile import compile_kernel
from tilewright.simt.dialect.attributes import SHARED_BYTES

KERNEL = """tilewright.ir 1.0
kernel @k(%p: ptr<i32>, %o: ptr<i32>, %m: i1) {
  %other = constant 7 : i32
  %v = load %p, mask=%m, other=%other {volatile = VOLATILE} : i32
  %a = arange {start = 0, end = 32} : tile<32xi32>
  %vs = splat %v : tile<32xi32>
  %s = add %a, %vs : tile<32xi32>
  %os = splat %o : tile<32xptr<i32>>
  %op = addptr %os, %a : tile<32xptr<i32>>
  store %op, %s
  return
}
"""


@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("warps", [1, 4])
def test_all_threads_get_the_value(mask: bool, warps: int) -> None:
    out = np.zeros(32, np.int32)
    emulator.run(
        parse_module(KERNEL.replace("VOLATILE", "true")),
        [np.array([100], np.int32), out, mask],
        num_warps=warps,
        warp_size=8,
    )
    np.testing.assert_array_equal(out, np.arange(32) + (100 if mask else 7))


@pytest.mark.parametrize(("volatile", "barriers"), [("true", 1), ("false", 0)])
def test_it_goes_through_shared_memory(volatile: str, barriers: int) -> None:
    target = emulator.EmulatedTarget(8)
    module = parse_module(KERNEL.replace("VOLATILE", volatile))
    text = compile_kernel(module, target, {"num_warps": 2, "num_stages": 1})
    kernel = text[text.index("define void @k.thread") :].split("\n}\n")[0]
    assert len(re.findall("@emulated_barrier", kernel)) == barriers
    assert (module.kernel.attributes[SHARED_BYTES] > 0) == bool(barriers)
