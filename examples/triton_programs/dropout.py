"""Dropout that stores no mask: an element's fate follows from a seed and its place, so the backward
pass draws the same numbers again.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from comparison import compare, device


@triton.jit
def masked_dropout_kernel(x_ptr, keep_ptr, out_ptr, length, p, BLOCK: tl.constexpr):
    """With a mask in memory: what the seeded kernel saves."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < length
    x = tl.load(x_ptr + places, mask=inside)
    keep = tl.load(keep_ptr + places, mask=inside) != 0
    tl.store(out_ptr + places, tl.where(keep, x / (1 - p), 0.0), mask=inside)


@triton.jit
def seeded_dropout_kernel(x_ptr, out_ptr, length, p, seed, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < length
    x = tl.load(x_ptr + places, mask=inside)
    keep = tl.rand(seed, places) > p
    tl.store(out_ptr + places, tl.where(keep, x / (1 - p), 0.0), mask=inside)


@triton.jit
def row_seeded_dropout_kernel(x_ptr, seeds_ptr, out_ptr, columns, p, BLOCK: tl.constexpr):
    """Drop elements of one row per program, each with its own seed."""
    row = tl.program_id(0)
    places = tl.arange(0, BLOCK)
    inside = places < columns
    x = tl.load(x_ptr + row * columns + places, mask=inside)
    keep = tl.rand(tl.load(seeds_ptr + row), places) > p
    tl.store(out_ptr + row * columns + places, tl.where(keep, x / (1 - p), 0.0), mask=inside)


def masked_dropout(x: torch.Tensor, keep: torch.Tensor, p: float) -> torch.Tensor:
    """``x / (1 - p)`` where ``keep`` is not 0, else 0; all contiguous."""
    out = torch.empty_like(x)
    masked_dropout_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](
        x, keep, out, x.numel(), p, BLOCK=1024
    )
    return out


def seeded_dropout(x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
    """Elements are dropped with probability ``p``; the same seed drops the same ones."""
    out = torch.empty_like(x)
    seeded_dropout_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](
        x, out, x.numel(), p, seed, BLOCK=1024
    )
    return out


def row_seeded_dropout(x: torch.Tensor, p: float, seeds: torch.Tensor) -> torch.Tensor:
    """Dropout of a contiguous matrix, one int32 seed a row."""
    out = torch.empty_like(x)
    row_seeded_dropout_kernel[(x.shape[0],)](
        x, seeds, out, x.shape[1], p, BLOCK=triton.next_power_of_2(x.shape[1])
    )
    return out


class Dropout(torch.autograd.Function):
    """Seeded dropout: between the passes it keeps two numbers and no tensor."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, p: float, seed: int) -> torch.Tensor:
        ctx.p, ctx.seed = p, seed
        return seeded_dropout(x.contiguous(), p, seed)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return seeded_dropout(gradients[0].contiguous(), ctx.p, ctx.seed), None, None


def main() -> None:
    x = torch.randn(1 << 20, device=device(), requires_grad=True)
    first, again, other = (Dropout.apply(x, 0.3, seed) for seed in (17, 17, 18))
    print(
        f"the same seed drops the same elements: {torch.equal(first, again)}; another seed the "
        f"same: {torch.equal(first, other)}"
    )
    print(f"dropped {float((first == 0).double().mean()):.4f} of the elements for p = 0.3")
    first.sum().backward()
    keep = first.detach() != 0
    assert x.grad is not None
    print(
        f"the gradient is 0 exactly where an element was dropped: {torch.equal(x.grad.ne(0), keep)}"
    )
    values, mask = x.detach(), keep.to(torch.int32)
    exact = torch.where(keep, values / 0.7, 0.0)
    compare(
        "dropout by a seed",
        lambda: seeded_dropout(values, 0.3, 17),
        lambda: torch.nn.functional.dropout(values, 0.3),
        exact,
    )
    compare(
        "dropout by a mask",
        lambda: masked_dropout(values, mask, 0.3),
        lambda: torch.where(keep, values / 0.7, 0.0),
        exact,
    )


if __name__ == "__main__":
    main()
