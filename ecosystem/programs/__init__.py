"""The programs, a module each; see ``run.py``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def close(found: Any, expected: Any, tolerance: float = 1e-4) -> None:
    """Fail unless tensors are equal up to a tolerance, relative and absolute."""
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, check_dtype=False)


def same(
    function: Callable[..., torch.Tensor],
    reference: Callable[..., torch.Tensor],
    tensors: Sequence[torch.Tensor],
    tolerance: float = 1e-4,
) -> None:
    """Fail unless two functions agree, and their gradients for all tensors of real numbers."""
    results = []
    for each in (function, reference):
        inputs = [tensor.clone().requires_grad_(tensor.is_floating_point()) for tensor in tensors]
        found = each(*inputs)
        torch.manual_seed(1)
        gradients = torch.autograd.grad(
            found, [tensor for tensor in inputs if tensor.requires_grad], torch.randn_like(found)
        )
        results.append((found.detach(), *gradients))
    close(results[0], results[1], tolerance)


def random(device: str, *shape: int, seed: int = 0) -> torch.Tensor:
    """Normal numbers that are the same on every device."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(
        device
    )
