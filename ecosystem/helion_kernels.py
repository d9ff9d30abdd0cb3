"""Kernels of helion's language, which have to be functions of a module; each has one block size,
for a search for the best takes minutes.
"""

import helion
import helion.language as hl
import torch


@helion.kernel(config=helion.Config(block_sizes=[32, 32]), static_shapes=False)
def scaled_sum(x: torch.Tensor, y: torch.Tensor, factor: float) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(out.size()):
        out[tile] = x[tile] + factor * y[tile]
    return out


@helion.kernel(config=helion.Config(block_sizes=[4]))
def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for rows in hl.tile(x.size(0)):
        values = x[rows, :]
        weights = torch.exp(values - torch.amax(values, dim=1, keepdim=True))
        out[rows, :] = weights / torch.sum(weights, dim=1, keepdim=True)
    return out


@helion.kernel(config=helion.Config(block_sizes=[16, 32, 16]))
def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty([x.size(0), y.size(1)], dtype=x.dtype, device=x.device)
    for rows, columns in hl.tile([x.size(0), y.size(1)]):
        total = hl.zeros([rows, columns], dtype=torch.float32)
        for inner in hl.tile(x.size(1)):
            total = torch.addmm(total, x[rows, inner], y[inner, columns])
        out[rows, columns] = total
    return out


@helion.kernel(config=helion.Config(block_sizes=[32, 8]))
def row_sums(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([x.size(1)], dtype=x.dtype, device=x.device)
    for columns, rows in hl.tile([x.size(1), x.size(0)]):
        hl.atomic_add(out, [columns], x[rows, columns].sum(0))
    return out
