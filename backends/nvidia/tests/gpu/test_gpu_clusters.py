"""Matmuls by clusters of CTAs on a Hopper GPU, against float64.

No tile divides the shapes, and outputs are poisoned before the launch.
"""

from __future__ import annotations

from typing import Any

import pytest
from hopper_gpu import hopper_is_there

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime.arguments.descriptor import TensorDescriptor

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not hopper_is_there(), reason="there is no Hopper GPU here"),
]


@tw.jit
def by_blocks(
    a,
    b,
    c,
    M,
    N,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    DIVIDED: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    across = tl.cdiv(N, BN)
    for tile in tl.range(
        tl.program_id(0), tl.cdiv(M, BM) * across, PROGRAMS, flatten=True, warp_specialize=DIVIDED
    ):
        row, column = tile // across * BM, tile % across * BN
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            total = tl.dot(a.load([row, k]), b.load([k, column]), total)
        c.store([row, column], total.to(c.dtype))


@tw.jit
def by_pointers(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    across = tl.cdiv(N, BN)
    tile = tl.program_id(0)
    rows, columns, inner = (
        tile // across * BM + tl.arange(0, BM),
        tile % across * BN + tl.arange(0, BN),
        tl.arange(0, BK),
    )
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(
            a + rows[:, None] * K + (k + inner)[None, :],
            mask=(rows[:, None] < M) & ((k + inner)[None, :] < K),
            other=0.0,
        )
        y = tl.load(
            b + (k + inner)[:, None] * N + columns[None, :],
            mask=((k + inner)[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        total = tl.dot(x, y, total)
    tl.store(
        c + rows[:, None] * N + columns[None, :],
        total.to(c.dtype.element_ty),
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


@pytest.mark.parametrize("cluster", [2, 4])
@pytest.mark.parametrize("way", ["blocks", "divided", "persistent", "pointers"])
@pytest.mark.parametrize(
    ("shape", "tile"),
    [
        ((520, 400, 1000), (128, 256, 64)),
        ((1000, 136, 72), (256, 128, 64)),
        ((256, 512, 8), (128, 256, 64)),
    ],
)
def test_products(
    shape: tuple[int, int, int], tile: tuple[int, int, int], way: str, cluster: int
) -> None:
    torch: Any = pytest.importorskip("torch")
    (m, n, k), (bm, bn, bk) = shape, tile
    torch.manual_seed(m)
    a, b = (
        torch.randn(*extents, device="cuda", dtype=torch.float16) for extents in ((m, k), (k, n))
    )
    exact = a.double() @ b.double()
    options = {"BM": bm, "BN": bn, "BK": bk, "num_warps": 4, "num_stages": 4, "num_ctas": cluster}
    tiles = -(-m // bm) * -(-n // bn)
    for _ in range(5):
        c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.float16)
        if way == "pointers":
            kernel = by_pointers[(tiles,)](a, b, c, m, n, k, **options)
        else:
            described = [
                TensorDescriptor.from_tensor(*one)
                for one in ((a, [bm, bk]), (b, [bk, bn]), (c, [bm, bn]))
            ]
            programs = 3 if way == "persistent" else tiles
            kernel = by_blocks[(programs,)](
                *described, m, n, k, DIVIDED=way != "blocks", PROGRAMS=programs, **options
            )
        torch.testing.assert_close(c.double(), exact, rtol=2e-3, atol=2e-3 * k**0.5)
    assert kernel.metadata.cluster == cluster
