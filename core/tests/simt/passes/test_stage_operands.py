"""Operands in registers that matmuls read from shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from descriptor_kernels import differ

import tilewright.language as tl
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright.simt.compile import kernel_of
from tilewright.testing.emulator_check import small
from tilewright.testing.toy_targets import BulkTarget

BLOCKS = {"a": (16, 16), "b": (16, 16), "c": (16, 16)}


@device_function
def in_two_loops(a, b, c, n, m):
    held = b.load([0, 0]) * 2.0
    acc = tl.zeros((16, 16), dtype=tl.float32)
    for k in range(n):
        acc = tl.dot(a.load([k, 0]), held, acc)
    if m > 0:
        for k in range(m):
            acc = tl.dot(a.load([0, k]), held, acc)
    else:
        acc = tl.dot(acc, held)
    c.store([0, 0], acc)


@device_function
def in_one_of_two(a, b, c, n, m):
    held = b.load([0, 0]) * 2.0
    acc = tl.zeros((16, 16), dtype=tl.float32)
    for k in range(n):
        if k < m:
            acc = tl.dot(a.load([k, 0]), held, acc)
            acc = tl.dot(a.load([0, k]), held, acc)
        else:
            acc = acc + held
    c.store([0, 0], acc)


@pytest.mark.each_value
@pytest.mark.parametrize("kernel", [in_two_loops, in_one_of_two])
@pytest.mark.parametrize(("n", "m"), [(0, 0), (2, 3), (3, 0), (3, 2)])
def test_what_several_products_read_is_put_there_once(kernel: Any, n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    arrays = [small(rng, 20, 20), small(rng, 16, 16), small(rng, 16, 16)]
    compiled: list[Module] = []
    differ(kernel, BLOCKS, arrays, [n, m], BulkTarget(8), compiled, num_warps=4, num_stages=3)
    stores = [
        operation for operation in kernel_of(compiled[0]).walk() if operation.name == "simt.store"
    ]
    assert len({store.operands[1] for store in stores}) == len(stores) and stores
