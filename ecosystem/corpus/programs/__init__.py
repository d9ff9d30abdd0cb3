"""What the packages do at served and trained shapes, a module each; see ``capture.py``."""

from __future__ import annotations

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
    found = [each for each in (results if isinstance(results, Sequence) else (results,)) if isinstance(each, torch.Tensor) and each.requires_grad]
    torch.autograd.backward(found, [torch.empty_like(each) for each in found])


def labels(*shape: int) -> torch.Tensor:
    """The tokens that follow, whose numbers can be asked."""
    return torch.tensor(1, dtype=torch.int64, device="cuda").expand(*shape).clone()


#: (sequences, tokens that each has had) of decoding
DECODES = ((128, 2048), (8, 8192))


def lengths(batch: int, length: int) -> torch.Tensor:
    """Sequences of one length, whose numbers can be asked."""
    return torch.tensor([length] * batch, dtype=torch.int32, device="cuda")
