"""Exact mode on the GPU: pairs of one algebra, injected bugs, and every way to compile a loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_support import gpu_is_there
from hopper_gpu import hopper_is_there

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.testing.exact import agree, draw, exact_mode
from tilewright_conformance.exact.__main__ import Comparison, comparisons
from tilewright_conformance.exact.launches import verdict_on
from tilewright_conformance.kernels import exact_kernels
from tilewright_conformance.suite.session import Session, Subject

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_is_there(), reason="there is no NVIDIA GPU here"),
]

#: Draws of payloads for each comparison: launches of kernels that are compiled already.
DRAWS = 20
#: Sizes that no tile divides.
M, N, K = 200, 136, 1000


@pytest.mark.parametrize("one", list(comparisons()), ids=lambda one: one.name)
def test_verdicts(one: Comparison) -> None:
    session = Session(Subject("nvidia"), "exact")
    for seed in range(DRAWS):
        found = verdict_on(session, one.a, one.b, seed=seed)
        assert found.status == one.expected, (seed, str(found))


# ---- the pipeliner, layouts and warp specialization


@tw.jit
def through_descriptors(
    a, b, c, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPECIALIZE: tl.constexpr,
    PERSISTENT: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    across = tl.cdiv(N, BN)
    for tile in tl.range(
        tl.program_id(0), tl.cdiv(M, BM) * across, PROGRAMS,
        flatten=PERSISTENT, warp_specialize=SPECIALIZE and PERSISTENT,
    ):  # fmt: skip
        row, column = tile // across * BM, tile % across * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in tl.range(0, K, BK, warp_specialize=SPECIALIZE and not PERSISTENT):
            acc = tl.dot(a.load([row, k]), b.load([k, column]), acc)
        c.store([row, column], acc)


class Operands:
    """Payloads of a matmul on the device, and the bits of its result by the reference."""

    def __init__(self, dtype: Any) -> None:
        torch: Any = pytest.importorskip("torch")
        rng = np.random.default_rng(0)
        sizes = ((M, K), (K, N))
        a, b = (draw(np.zeros(size, dtype), rng) for size in sizes)
        self.expected = np.zeros((M, N), np.float32)
        tile = {"BM": 256, "BN": 256, "BK": 1024}
        with exact_mode("reference"):
            exact_kernels.matmul_tiled[(1,)](a, b, self.expected, M, N, K, **tile)
        self.a, self.b = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
        self.c = torch.empty((M, N), device="cuda")

    def check(self, launch: Any, dot: Any = "native") -> None:
        """Run a launch on poisoned results twice, and compare all bits with the reference's."""
        for _ in range(2):
            self.c.fill_(float("nan"))
            with exact_mode(dot=dot):
                launch()
            assert agree(self.c.cpu().numpy(), self.expected).all()


@pytest.fixture(scope="module", params=["float16", "float32"])
def operands(request: pytest.FixtureRequest) -> Operands:
    return Operands(request.param)


@pytest.mark.parametrize("dot", ["native", "i8"])
@pytest.mark.parametrize("num_stages", [1, 2, 4])
@pytest.mark.parametrize("num_warps", [1, 4, 8])
@pytest.mark.parametrize("tile", [(64, 64, 32), (128, 64, 64), (32, 128, 128)])
def test_pipelined_loops(
    operands: Operands, tile: tuple[int, int, int], num_warps: int, num_stages: int, dot: Any
) -> None:
    bm, bn, bk = tile
    block = {"BM": bm, "BN": bn, "BK": bk, "num_warps": num_warps, "num_stages": num_stages}

    def launch() -> None:
        grid = (tw.cdiv(M, bm) * tw.cdiv(N, bn),)
        exact_kernels.matmul_tiled[grid](
            operands.a, operands.b, operands.c, M, N, K, GROUP=2, **block
        )

    operands.check(launch, dot)


@pytest.mark.skipif(not hopper_is_there(), reason="there is no Hopper GPU here")
@pytest.mark.parametrize("num_ctas", [1, 2])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("specialize", [False, True])
@pytest.mark.parametrize("tile", [(64, 64, 32), (128, 64, 64)])
def test_warp_specialized_loops(
    operands: Operands,
    tile: tuple[int, int, int],
    specialize: bool,
    persistent: bool,
    num_ctas: int,
) -> None:
    bm, bn, bk = tile
    tiles = tw.cdiv(M, bm) * tw.cdiv(N, bn)
    programs = 3 if persistent else tiles

    def launch() -> None:
        described = [
            TensorDescriptor.from_tensor(*one)
            for one in ((operands.a, [bm, bk]), (operands.b, [bk, bn]), (operands.c, [bm, bn]))
        ]
        through_descriptors[(programs,)](
            *described, M, N, K, BM=bm, BN=bn, BK=bk, SPECIALIZE=specialize, PERSISTENT=persistent,
            PROGRAMS=programs, num_warps=4, num_stages=3, num_ctas=num_ctas,
        )  # fmt: skip

    operands.check(launch)


@pytest.mark.parametrize("num_stages", [1, 2, 3])
@pytest.mark.parametrize("num_warps", [2, 4, 8])
@pytest.mark.parametrize("block", [(32, 32), (64, 32), (128, 64)])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool, block: tuple[int, int], num_warps: int, num_stages: int) -> None:
    """Two matmuls in a loop, whose digits are staged and reordered by the pipeliner."""
    torch: Any = pytest.importorskip("torch")
    heads, length, head = 2, 150, 64
    rng = np.random.default_rng(1)
    q, k, v = (draw(np.zeros((heads, length, head), np.float16), rng) for _ in range(3))
    results = []
    for backend, (bm, bn) in (("reference", (256, 256)), ("nvidia", block)):
        on_gpu = backend == "nvidia"
        arrays = [torch.from_numpy(one).cuda() if on_gpu else one for one in (q, k, v)]
        out, lse = np.zeros_like(q), np.zeros((heads, length), np.float32)
        if on_gpu:
            out, lse = torch.from_numpy(out).cuda(), torch.from_numpy(lse).cuda()
        options = {"num_warps": num_warps, "num_stages": num_stages} if on_gpu else {}
        with exact_mode(backend):
            exact_kernels.flash[(tw.cdiv(length, bm), heads)](
                *arrays, out, lse, head**-0.5, length,
                CAUSAL=causal, BM=bm, BN=bn, HEAD=head, **options,
            )  # fmt: skip
        results.append((out.cpu().numpy(), lse.cpu().numpy()) if on_gpu else (out, lse))
    (out, lse), (found_out, found_lse) = results
    assert agree(out, found_out).all()
    assert agree(lse, found_lse, 3).all()
