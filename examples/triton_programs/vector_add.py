"""Vector addition: the smallest kernel.

A program takes one block of both vectors; a mask keeps the last block inside them.
"""

from __future__ import annotations

from functools import partial

import torch
import triton
import triton.language as tl
from comparison import compare, device


@triton.jit
def add_kernel(left_ptr, right_ptr, sum_ptr, length, BLOCK: tl.constexpr):
    places = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < length
    left = tl.load(left_ptr + places, mask=inside)
    right = tl.load(right_ptr + places, mask=inside)
    tl.store(sum_ptr + places, left + right, mask=inside)


def add(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """``left + right`` for contiguous tensors of one shape."""
    assert left.shape == right.shape and left.is_contiguous() and right.is_contiguous()
    result = torch.empty_like(left)
    length = result.numel()
    # the grid may depend on what the launch (or an autotuner) chose for the constants
    add_kernel[lambda meta: (triton.cdiv(length, meta["BLOCK"]),)](
        left, right, result, length, BLOCK=1024
    )
    return result


def main() -> None:
    for length in (98_432, 1 << 20, (1 << 22) + 5):
        x, y = (torch.rand(length, device=device()) for _ in range(2))
        compare(f"add of {length} fp32", partial(add, x, y), partial(torch.add, x, y))


if __name__ == "__main__":
    main()
