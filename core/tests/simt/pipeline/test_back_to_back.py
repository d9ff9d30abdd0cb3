"""Back-to-back matmuls in the emulator with any completion order.

Software-pipelined halves of loops.

Results are compared with NumPy.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from back_to_back_kernels import HEAD, attention_module, exp2_attention, gradients, shared_operands
from matmul_kernels import BM, BN, build, operations

from tilewright.ir.ops.control import For, If
from tilewright.simt import emulator
from tilewright.simt.analysis.async_hazards import check_in_flight
from tilewright.simt.compile import kernel_of
from tilewright.simt.dialect.async_groups import Tokens
from tilewright.simt.emulator import EmulatedDescriptor
from tilewright.testing.toy_targets import BulkTarget

MODES = ("late", "early", "crossed", "random")


# every two of the four values meet
@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("causal", "stages", "completion", "blocks"),
    [
        (causal, stages, completion, 2 + 2 * ((place + stages + causal) % 2))
        for causal in (False, True)
        for stages in (2, 3)
        for place, completion in enumerate(MODES)
    ],
)
def test_attention(causal: bool, stages: int, completion: str, blocks: int) -> None:
    n = blocks * BN
    q, k, v = np.random.default_rng(blocks).standard_normal((3, n, HEAD)).astype(np.float32)
    tiles = n // BM
    for programs in (1, tiles):
        out = np.full_like(q, np.nan)
        module = attention_module(causal)
        arguments = [*map(EmulatedDescriptor, (q, k, v)), out, n, BN, tiles]
        emulator.run(
            module,
            arguments,
            (programs, 1, 1),
            num_warps=2,
            target=BulkTarget(8, rows=True),
            num_stages=stages,
            completion=completion,
            seed=blocks,
        )
        np.testing.assert_allclose(out, exp2_attention(q, k, v, causal), rtol=1e-5, atol=1e-6)
    loops = 2 if causal else 1
    assert (
        len(operations(module, "simt.part")) == 2
        and len(operations(module, "simt.dot_start")) == 4 * loops
    )
    # rings are shared; the queries are copied and not stored again, by the producer, too
    buffers = operations(module, "simt.buffer")
    assert len(buffers) == 3 and not operations(module, "simt.store")
    assert {buffer.results[0].type.count for buffer in buffers} == {2, stages}
    producer = next(part for part in operations(module, "simt.part") if part.name_ == "load")
    copies = operations(module, "simt.block_load_start")
    assert all(producer in copy.ancestors() for copy in copies)
    # warps stay out of step: slots are uniform, and stores of a tile wait at an mbarrier
    assert len(operations(module, "simt.uniform")) == loops
    assert sum(one.stores for one in operations(module, "simt.await")) == 1
    assert not any(isinstance(one.parent.owner, For) for one in operations(module, "barrier"))
    check_in_flight(kernel_of(module))
    tokens = Tokens(kernel_of(module))
    waits = [
        wait
        for wait in operations(module, "simt.wait")
        if any(token.type.queue == "matmuls" for token in wait.group("tokens"))
    ]
    in_flight = [dict(tokens.pending(wait))["matmuls"] for wait in waits]
    assert in_flight == [0, 1, 0, 0] * loops


@pytest.mark.parametrize("completion", MODES)
def test_a_mask_of_the_first_iteration_is_in_the_prologue_alone(completion: str) -> None:
    n = 4 * BM
    q, k, v = np.random.default_rng(1).standard_normal((3, n, HEAD)).astype(np.float32)
    out = np.full_like(q, np.nan)
    module = attention_module("backwards", BM)
    emulator.run(
        module,
        [*map(EmulatedDescriptor, (q, k, v)), out, n, BM, n // BM],
        (3, 1, 1),
        num_warps=2,
        target=BulkTarget(8, rows=True),
        num_stages=2,
        completion=completion,
        seed=2,
    )
    np.testing.assert_allclose(out, exp2_attention(q, k, v, True), rtol=1e-5, atol=1e-6)
    assert len(operations(module, "simt.dot_start")) == 4
    (cause,) = (
        one for one in operations(module, "cmp") if one.predicate == "gt" and one.a is one.b
    )
    assert cause.parent is not None and isinstance(cause.parent.owner, If)


# every two of the three values meet
@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("n", "rows", "completion"),
    [
        (n, bool((row + place) % 2), completion)
        for row, n in enumerate((0, 8, 16, 40))
        for place, completion in enumerate(MODES)
    ],
)
def test_gradients(n: int, rows: bool, completion: str) -> None:
    """Two matmuls in each half, whose operands both halves load; small integers keep sums exact."""
    rng = np.random.default_rng(n)
    q, k, v, g = (
        rng.integers(-2, 3, (max(extent, 1), HEAD)).astype(np.float32) for extent in (n, 32, 32, n)
    )
    dk, dv = np.full_like(k, np.nan), np.full_like(v, np.nan)
    blocks = {
        name: f"tensordesc<fp32[{extent},{HEAD}]>"
        for name, extent in (("q", 8), ("k", 16), ("v", 16), ("g", 8))
    }
    module = build(
        gradients, {**blocks, "dk": "*fp32", "dv": "*fp32", "n": "i32"}, BM=8, BN=16, HEAD=HEAD
    )
    arguments = [*map(EmulatedDescriptor, (q, k, v, g)), dk, dv, n]
    emulator.run(
        module,
        arguments,
        (2, 1, 1),
        num_warps=2,
        target=BulkTarget(8, rows=rows),
        num_stages=3,
        completion=completion,
        seed=n,
    )
    q, g = q[:n], g[:n]
    weights = k @ q.T
    np.testing.assert_array_equal(dv, weights @ g)
    np.testing.assert_array_equal(dk, (weights * (v @ g.T)) @ q)
    assert (
        len(operations(module, "simt.part")) == 2 and len(operations(module, "simt.dot_start")) == 8
    )
    check_in_flight(kernel_of(module))


# every two of the three values meet
@pytest.mark.sampled(8)
@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("middle", [0, 8, 24, 40])
@pytest.mark.parametrize("stages", [2, 3])
def test_halves_that_share_a_load_want_three_slots(
    stages: int, middle: int, completion: str
) -> None:
    """With two, its slot would be free only when the other one is awaited."""
    n = 40
    rng = np.random.default_rng(middle)
    q, k = (rng.integers(-2, 3, (extent, HEAD)).astype(np.float32) for extent in (BM, n))
    out = np.full_like(q, np.nan)
    blocks = {"q": f"tensordesc<fp32[{BM},{HEAD}]>", "k": f"tensordesc<fp32[{BN},{HEAD}]>"}
    module = build(
        shared_operands,
        {**blocks, "out": "*fp32", "middle": "i32", "n": "i32"},
        BM=BM,
        BN=BN,
        HEAD=HEAD,
    )
    emulator.run(
        module,
        [*map(EmulatedDescriptor, (q, k)), out, middle, n],
        (1, 1, 1),
        num_warps=2,
        target=BulkTarget(8, rows=True),
        num_stages=stages,
        completion=completion,
        seed=middle,
    )
    np.testing.assert_array_equal(out, q @ k.T @ k)
    assert len(operations(module, "simt.part")) == 2
    halves = 2 if stages == 3 else 1
    assert len(operations(module, "simt.dot_start")) == 4 * halves
    assert len([one for one in operations(module, "simt.barriers") if one.count > 1]) == 1
    # what the loops share is released by the last one
    released = [one.operands[0] for one in operations(module, "simt.release")]
    assert len(set(released)) == len(released)


def test_rings_that_do_not_fit_are_those_of_one_loop() -> None:
    """Beside what is loaded around the loops there may be no room for two slots: then the loops are
    pipelined one by one."""
    q, k, v = np.random.default_rng(0).standard_normal((3, 32, HEAD)).astype(np.float32)
    out = np.full_like(q, np.nan)
    module, target = attention_module(True), BulkTarget(8, rows=True)
    target.resources = replace(target.resources, shared_memory=3000)
    emulator.run(
        module,
        [*map(EmulatedDescriptor, (q, k, v)), out, 32, BN, 2],
        (2, 1, 1),
        num_warps=2,
        target=target,
        num_stages=2,
    )
    np.testing.assert_allclose(out, exp2_attention(q, k, v, True), rtol=1e-5, atol=1e-6)
    assert not operations(module, "simt.part")
