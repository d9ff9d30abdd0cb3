"""Layer normalisation with its gradients.

With x̂ = (x - mean) · rstd and g = weight · dy over a row of N elements:
dx = rstd · (g - mean(g) - x̂ · mean(x̂ · g)), dweight = Σ over rows of x̂ · dy, dbias = Σ over rows
of dy.

The backward pass computes dx a row a program. The sums over rows go in two steps: programs add
their rows into a few partial sums, each guarded by a lock, and a second kernel adds those up.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from comparison import compare, device


@triton.jit
def forward_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, mean_ptr, rstd_ptr, stride, N, eps, BLOCK: tl.constexpr
):
    """A row a program, in blocks: once for the mean, once for the variance, once to write."""
    row = tl.program_id(0)
    x_ptr += row * stride
    y_ptr += row * stride
    sums = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        places = start + tl.arange(0, BLOCK)
        sums += tl.load(x_ptr + places, mask=places < N, other=0.0).to(tl.float32)
    mean = tl.sum(sums, axis=0) / N
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        places = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + places, mask=places < N, other=0.0).to(tl.float32)
        centred = tl.where(places < N, x - mean, 0.0)
        squares += centred * centred
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / N + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for start in range(0, N, BLOCK):
        places = start + tl.arange(0, BLOCK)
        inside = places < N
        weight = tl.load(weight_ptr + places, mask=inside)
        bias = tl.load(bias_ptr + places, mask=inside)
        x = tl.load(x_ptr + places, mask=inside, other=0.0).to(tl.float32)
        tl.store(y_ptr + places, (x - mean) * rstd * weight + bias, mask=inside)


@triton.jit
def rows_backward_kernel(
    dx_ptr, dy_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr,
    partial_dweight_ptr, partial_dbias_ptr, locks_ptr, stride, N,
    GROUPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """dx of a row, and the row's part of dweight and dbias, added to partial sum ``row % GROUPS``.

    ``locks_ptr`` holds a lock a partial sum (0: free, 1: taken), then a count of rows a partial
    sum, all 0 at the start: the first to come stores, so that the sums need not be cleared.
    """
    row = tl.program_id(0)
    places = tl.arange(0, BLOCK)
    inside = places < N
    x = tl.load(x_ptr + row * stride + places, mask=inside, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * stride + places, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + places, mask=inside).to(tl.float32)
    mean = tl.load(mean_ptr + row)
    rstd = tl.load(rstd_ptr + row)
    normal = tl.where(inside, (x - mean) * rstd, 0.0)
    gradient = tl.where(inside, weight * dy, 0.0)
    along_x = tl.sum(normal * gradient, axis=0) / N
    along_one = tl.sum(gradient, axis=0) / N
    tl.store(
        dx_ptr + row * stride + places,
        (gradient - along_one - normal * along_x) * rstd,
        mask=inside,
    )

    dweight = dy * normal
    dbias = dy
    group = row % GROUPS
    lock_ptr = locks_ptr + group
    count_ptr = locks_ptr + GROUPS + group
    dweight_ptrs = partial_dweight_ptr + group * N + places
    dbias_ptrs = partial_dbias_ptr + group * N + places
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    if tl.load(count_ptr) == 0:
        tl.atomic_xchg(count_ptr, 1)
    else:
        dweight += tl.load(dweight_ptrs, mask=inside)
        dbias += tl.load(dbias_ptrs, mask=inside)
    tl.store(dweight_ptrs, dweight, mask=inside)
    tl.store(dbias_ptrs, dbias, mask=inside)
    tl.debug_barrier()  # every thread has stored before the lock is free again
    tl.atomic_xchg(lock_ptr, 0)


@triton.jit
def columns_backward_kernel(
    partial_dweight_ptr, partial_dbias_ptr, dweight_ptr, dbias_ptr, groups, N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The sums of the partial sums over a block of columns."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    dweight = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    dbias = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, groups, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        inside = (rows[:, None] < groups) & (columns[None, :] < N)
        places = rows[:, None] * N + columns[None, :]
        dweight += tl.load(partial_dweight_ptr + places, mask=inside, other=0.0)
        dbias += tl.load(partial_dbias_ptr + places, mask=inside, other=0.0)
    tl.store(dweight_ptr + columns, tl.sum(dweight, axis=0), mask=columns < N)
    tl.store(dbias_ptr + columns, tl.sum(dbias, axis=0), mask=columns < N)


def groups_of(columns: int) -> int:
    """Partial sums for rows of so many elements: the shorter the rows, the more programs wait for
    one lock.
    """
    return 64 if columns > 8192 else 96 if columns > 4096 else 128 if columns > 1024 else 256


class LayerNorm(torch.autograd.Function):
    """Layer normalisation over the last axis."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
    ) -> torch.Tensor:
        y = torch.empty_like(x)
        rows = x.reshape(-1, x.shape[-1])
        count, columns = rows.shape
        if columns * x.element_size() > 65536:
            raise ValueError(
                f"rows of {columns} elements of {x.dtype} do not fit in a program of the "
                "backward pass"
            )
        block = triton.next_power_of_2(columns)
        num_warps = min(max(block // 256, 1), 8)
        mean, rstd = (torch.empty(count, dtype=torch.float32, device=x.device) for _ in range(2))
        forward_kernel[(count,)](
            rows,
            weight,
            bias,
            y,
            mean,
            rstd,
            rows.stride(0),
            columns,
            eps,
            BLOCK=block,
            num_warps=num_warps,
        )
        ctx.save_for_backward(x, weight, mean, rstd)
        ctx.block, ctx.num_warps = block, num_warps
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        dy = gradients[0].contiguous()
        x, weight, mean, rstd = ctx.saved_tensors
        rows = x.reshape(-1, x.shape[-1])
        count, columns = rows.shape
        groups = groups_of(columns)
        locks = torch.zeros(2 * groups, dtype=torch.int32, device=x.device)
        partial_dweight, partial_dbias = (
            torch.empty((groups, columns), dtype=torch.float32, device=x.device) for _ in range(2)
        )
        dweight, dbias = torch.empty_like(weight), torch.empty_like(weight)
        dx = torch.empty_like(dy)
        rows_backward_kernel[(count,)](
            dx, dy, rows, weight, mean, rstd,
            partial_dweight, partial_dbias, locks, rows.stride(0), columns,
            GROUPS=groups, BLOCK=ctx.block, num_warps=ctx.num_warps,
        )  # fmt: skip
        used = min(groups, count)
        grid = lambda meta: (triton.cdiv(columns, meta["BLOCK_N"]),)  # noqa: E731
        columns_backward_kernel[grid](
            partial_dweight, partial_dbias, dweight, dbias, used, columns, BLOCK_M=32, BLOCK_N=128
        )
        return dx, dweight, dbias, None


layer_norm = LayerNorm.apply


def compare_of(rows: int, columns: int, dtype: torch.dtype) -> None:
    """Print the comparison of both passes in one type."""
    weight, bias = (
        torch.rand(columns, device=device(), dtype=dtype, requires_grad=True) for _ in range(2)
    )
    x = (torch.randn(rows, columns, device=device(), dtype=dtype) * 0.5 - 2).requires_grad_()
    dy = torch.randn_like(x) * 0.1

    def rival(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias, 1e-5)

    def gradient(y: torch.Tensor, place: int) -> torch.Tensor:
        return torch.autograd.grad(y, (x, weight, bias), dy, retain_graph=True)[place]

    wide = [tensor.detach().double().requires_grad_() for tensor in (x, weight, bias)]
    exact = rival(*wide)
    what = f"layer norm of {rows} x {columns} {str(dtype)[6:]}"
    compare(
        what,
        lambda: layer_norm(x, weight, bias, 1e-5).detach(),
        lambda: rival(x, weight, bias).detach(),
        exact.detach(),
    )
    y, other = layer_norm(x, weight, bias, 1e-5), rival(x, weight, bias)
    wanted = torch.autograd.grad(exact, wide, dy.double())
    for place, name in enumerate(("dx", "dweight", "dbias")):
        compare(
            f"  its backward pass, {name}",
            partial(gradient, y, place),
            partial(gradient, other, place),
            wanted[place],
        )


def main() -> None:
    rows, columns = (512, 1000) if device().type == "cpu" else (4096, 8192)
    for dtype in (torch.float32, torch.float16):
        compare_of(rows, columns, dtype)


if __name__ == "__main__":
    main()
