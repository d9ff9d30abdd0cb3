"""What the packages do at served and trained shapes, a module each; see ``capture.py``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

#: tokens of a prefill, and of training's microbatch
TOKENS = 4096
#: widths of models of 8 and 70 billion parameters
WIDTHS = (4096, 8192)
#: tokens that are told apart
VOCABULARY = 128256


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16, grad: bool = False) -> torch.Tensor:
    """A tensor of numbers that nobody reads."""
    return torch.randn(*shape, dtype=dtype, device="cuda", requires_grad=grad)


def backward(results: Any) -> None:
    """Run the backward pass of all results that have one."""
    found = [
        each
        for each in (results if isinstance(results, Sequence) else (results,))
        if isinstance(each, torch.Tensor) and each.requires_grad
    ]
    torch.autograd.backward(found, [torch.empty_like(each) for each in found])


def labels(*shape: int) -> torch.Tensor:
    """The tokens that follow, whose numbers can be asked."""
    return torch.tensor(1, dtype=torch.int64, device="cuda").expand(*shape).clone()


#: (sequences, tokens that each has had) of decoding
DECODES = ((128, 2048), (8, 8192))


def counted(*shape: int, below: int = 0, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    """0, 1, 2, … in rows, where a number is given beginning again before it, whose numbers can be
    asked.
    """
    count = math.prod(shape)
    return torch.tensor(
        [i % (below or count) for i in range(count)], dtype=dtype, device="cuda"
    ).reshape(shape)


def numbers(*values: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    """A vector of given numbers."""
    return torch.tensor(values, dtype=dtype, device="cuda")


def routed(
    experts: int, chosen: int, rows: int, block: int = 64
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Which rows each expert takes, as the kernel that aligns them to blocks leaves it, where row
    ``i`` is by ``i % experts``.

    Returns:
        the rows expert by expert, the expert of each block, and how many rows there are with those
        that fill blocks.
    """
    pairs = rows * chosen
    order: list[int] = []
    owners: list[int] = []
    for expert in range(experts):
        own = list(range(expert, pairs, experts))
        blocks = -(-len(own) // block)
        order += own + [pairs] * (blocks * block - len(own))
        owners += [expert] * blocks
    most = (pairs + experts * (block - 1) + block - 1) // block * block
    return (
        numbers(*order, *[pairs] * (most - len(order))),
        numbers(*owners, *[0] * (most // block - len(owners))),
        numbers(len(order)),
    )


def lengths(batch: int, length: int) -> torch.Tensor:
    """Sequences of one length, whose numbers can be asked."""
    return torch.tensor([length] * batch, dtype=torch.int32, device="cuda")
