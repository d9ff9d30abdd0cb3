"""Independent matmuls of a loop in flight together, in the emulator with any completion order.

The kernel computes all gradients of attention without a softmax in one loop. It stores the terms of
a block of keys in the gradient of queries. Small integers keep sums exact.
"""

from __future__ import annotations

import numpy as np
import pytest
from back_to_back_kernels import HEAD
from matmul_kernels import build, operations

import tilewright.language as tl
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright.simt import emulator
from tilewright.simt.analysis.async_hazards import check_in_flight
from tilewright.simt.compile import kernel_of
from tilewright.simt.dialect.async_groups import Tokens
from tilewright.simt.emulator import EmulatedDescriptor
from tilewright.testing.toy_targets import BulkTarget

BLOCKS = {"q": 8, "k": 16, "v": 16, "g": 8, "dq": 8}


@device_function
def all_gradients(q, k, v, g, dq, dk, dv, n, BM: tl.constexpr, BN: tl.constexpr):
    HEAD: tl.constexpr = 8
    column = tl.program_id(0) * BN
    keys, values = k.load([column, 0]), v.load([column, 0])
    key_gradient, value_gradient = (
        tl.zeros([BN, HEAD], dtype=tl.float32),
        tl.zeros([BN, HEAD], dtype=tl.float32),
    )
    for start in tl.range(0, n, BM, warp_specialize=True):
        queries, incoming = q.load([start, 0]), g.load([start, 0])
        weights = tl.dot(keys, queries.T)
        changes = tl.dot(values, incoming.T)
        value_gradient = tl.dot(weights, incoming, value_gradient)
        changes = weights * changes
        query_gradient = tl.dot(changes.T, keys)
        key_gradient = tl.dot(changes, queries, key_gradient)
        dq.store([tl.program_id(0) * n + start, 0], query_gradient)
    columns, dims = column + tl.arange(0, BN), tl.arange(0, HEAD)
    tl.store(dk + columns[:, None] * HEAD + dims[None, :], key_gradient)
    tl.store(dv + columns[:, None] * HEAD + dims[None, :], value_gradient)


def run(n: int, completion: str) -> Module:
    """Run the kernel on ``n`` rows of queries, check its results, and return its final form."""
    rng = np.random.default_rng(n)
    q, k, v, g = (
        rng.integers(-2, 3, (max(extent, 1), HEAD)).astype(np.float32) for extent in (n, 32, 32, n)
    )
    dq, dk, dv = (
        np.full(shape, np.nan, np.float32) for shape in ((2 * n + 1, HEAD), k.shape, v.shape)
    )
    blocks = {name: f"tensordesc<fp32[{extent},{HEAD}]>" for name, extent in BLOCKS.items()}
    module = build(all_gradients, {**blocks, "dk": "*fp32", "dv": "*fp32", "n": "i32"}, BM=8, BN=16)
    emulator.run(
        module,
        [*map(EmulatedDescriptor, (q, k, v, g, dq)), dk, dv, n],
        (2, 1, 1),
        num_warps=2,
        target=BulkTarget(8, rows=True),
        num_stages=2,
        completion=completion,
        seed=n,
    )
    q, g = q[:n], g[:n]
    weights = k @ q.T
    changes = weights * (v @ g.T)
    np.testing.assert_array_equal(dv, weights @ g)
    np.testing.assert_array_equal(dk, changes @ q)
    for program, keys in enumerate((slice(0, 16), slice(16, 32))):
        found = dq[program * n : (program + 1) * n]
        np.testing.assert_array_equal(found, changes[keys].T @ k[keys])
    check_in_flight(kernel_of(module))
    return module


@pytest.mark.parametrize(
    ("n", "completion"), [(0, "late"), (8, "early"), (24, "crossed"), (40, "random"), (16, "late")]
)
def test_all_gradients_of_attention(n: int, completion: str) -> None:
    run(n, completion)


def test_what_is_in_flight_and_where_the_loop_synchronizes() -> None:
    module = run(8, "late")
    tokens = Tokens(kernel_of(module))
    waits = [
        wait
        for wait in operations(module, "simt.wait")
        if any(token.type.queue == "matmuls" for token in wait.group("tokens"))
    ]
    # the scores while their derivatives are computed, and the gradient of queries while that of
    # keys is; for the gradient of values the weights would be kept beside their derivatives
    assert [dict(tokens.pending(wait))["matmuls"] for wait in waits] == [1, 0, 1, 1, 0]
    (loop,) = {outer for wait in waits for outer in wait.ancestors() if outer.name == "for"}
    body = list(loop.regions[0])
    barriers = [number for number, one in enumerate(body) if one.name == "barrier"]
    # behind the staged operand of the gradient of queries, and behind this gradient itself
    assert len(barriers) == 2
    slot_free, *_ = (
        number
        for number, one in enumerate(body)
        if one.name == "simt.wait"
        and any(token.type.queue == "stores" for token in one.group("tokens"))
    )
    assert slot_free < barriers[0]
