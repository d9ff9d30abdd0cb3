"""Kernels that load several tiles into the same shared memory, launched often on hot caches.

One launch proves nothing: a bulk copy that overtakes reads does so now and then.
"""

from __future__ import annotations

from typing import Any

import fused_kernels
import pytest
from hopper_gpu import hopper_is_there

import tilewright as tw

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not hopper_is_there(), reason="there is no Hopper GPU here"),
]

LAUNCHES, SIZE, DEPTH = 20, 2048, 256


def described(tensor: Any, *block: int) -> Any:
    return tw.TensorDescriptor.from_tensor(tensor, list(block))


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("block", [(64, 64), (64, 128), (128, 64), (128, 128)], ids=str)
@pytest.mark.parametrize("name", ["gated", "fused", "branching", "summed", "dequantized"])
def test_every_launch_is_right(name: str, block: tuple[int, int], warps: int) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    (bm, bn), grid = block, (SIZE // block[0], SIZE // block[1])
    a, b = (torch.randn(SIZE, SIZE, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    p = torch.randn(SIZE, DEPTH, dtype=torch.bfloat16, device="cuda")
    q = torch.randn(DEPTH, SIZE, dtype=torch.bfloat16, device="cuda")
    if name == "dequantized":
        q = (q * 16).to(torch.int8)
    c = torch.empty_like(a)
    tiles = [described(one, *block) for one in (a, b, c)]
    x, y = a.double(), b.double()
    even = (torch.arange(SIZE, device="cuda") // bm % 2 == 0)[:, None]
    expected = {
        "gated": lambda: x * torch.sigmoid(x) * y,
        "fused": lambda: (p.double() @ q.double()) * x + y,
        "branching": lambda: x * even + y,
        "summed": lambda: (x * y).view(SIZE, -1, bn).sum(1),
        "dequantized": lambda: p.double() @ q.double() + x,
    }[name]()
    given: list[Any] = list(tiles)
    if name in ("fused", "dequantized"):
        given = [described(p, bm, 64), described(q, 64, bn), *tiles, DEPTH, *block, 64]
        if name == "dequantized":
            del given[3]
    elif name == "summed":
        given, grid = [*tiles, SIZE, *block], (grid[0], 1)
    else:
        given += block
    for _ in range(LAUNCHES):
        c.fill_(float("nan"))
        getattr(fused_kernels, name)[grid](*given, num_warps=warps, num_stages=2)
        found = c[:, : expected.shape[1]].double()
        wrong = ~((found - expected).abs() <= 0.02 * (expected.abs().mean() + expected.abs()))
        assert not int(wrong.sum())
