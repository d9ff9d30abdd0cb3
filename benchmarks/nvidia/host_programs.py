"""The programs of :mod:`host_side`, in the names that Triton and Tilewright share: ``rival`` is one of them."""

from __future__ import annotations

import importlib
from typing import Any

import rival
import rival.language as tl
import torch

if hasattr(rival, "TensorDescriptor"):
    TensorDescriptor = rival.TensorDescriptor
else:
    TensorDescriptor = importlib.import_module(f"{rival.__name__}.tools.tensor_descriptor").TensorDescriptor

_device = torch.cuda.get_device_properties(0)
PROCESSORS = _device.multi_processor_count
REGISTERS, SHARED = 65536, 227 << 10
WARPS, STAGES = 8, 4


# ---- softmax


@rival.jit
def softmax_rows(y, x, x_step, y_step, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        values = tl.load(x + row * x_step + at, mask=inside, other=-float("inf"))
        raised = tl.exp(values - tl.max(values, axis=0))
        tl.store(y + row * y_step + at, raised / tl.sum(raised, axis=0), mask=inside)


def softmax(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    block = rival.next_power_of_2(columns)
    y = torch.empty_like(x)
    given = (y, x, x.stride(0), y.stride(0), rows, columns)
    kernel = softmax_rows.warmup(*given, BLOCK=block, STAGES=STAGES, num_stages=STAGES, num_warps=WARPS, grid=(1,))
    kernel._init_handles()
    programs = min(REGISTERS // (kernel.n_regs * 32 * WARPS), SHARED // max(1, kernel.metadata.shared), 2048 // (32 * WARPS))
    kernel[(min(PROCESSORS * programs, rows), 1, 1)](*given, block, STAGES)
    return y


# ---- layer norm


@rival.jit
def norm_rows(x, y, w, b, means, scales, step, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x += row * step
    y += row * step
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        total += tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / columns
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        off = tl.where(at < columns, tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32) - mean, 0.0)
        squares += off * off
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / columns + eps)
    tl.store(means + row, mean)
    tl.store(scales + row, scale)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        inside = at < columns
        normed = (tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - mean) * scale
        tl.store(y + at, normed * tl.load(w + at, mask=inside) + tl.load(b + at, mask=inside), mask=inside)


@rival.jit
def norm_backward_rows(dx, dy, dw, db, x, w, means, scales, locks, step, columns, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    lock = locks + row % GROUP
    count = lock + GROUP
    values = tl.load(x + row * step + at, mask=inside, other=0).to(tl.float32)
    given = tl.load(dy + row * step + at, mask=inside, other=0).to(tl.float32)
    weights = tl.load(w + at, mask=inside).to(tl.float32)
    mean, scale = tl.load(means + row), tl.load(scales + row)
    normed = tl.where(inside, (values - mean) * scale, 0.0)
    weighted = tl.where(inside, weights * given, 0.0)
    first, second = tl.sum(normed * weighted, axis=0) / columns, tl.sum(weighted, axis=0) / columns
    tl.store(dx + row * step + at, (weighted - (normed * first + second)) * scale, mask=inside)
    partial_w, partial_b = (given * normed).to(weights.dtype), given.to(weights.dtype)
    to_w, to_b = dw + row % GROUP * columns + at, db + row % GROUP * columns + at
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    before = tl.load(count)
    if before == 0:
        tl.atomic_xchg(count, 1)
    else:
        partial_w += tl.load(to_w, mask=inside)
        partial_b += tl.load(to_b, mask=inside)
    tl.store(to_w, partial_w, mask=inside)
    tl.store(to_b, partial_b, mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@rival.jit
def norm_backward_sums(dw, db, sum_w, sum_b, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total_w, total_b = tl.zeros((ROWS, COLUMNS), dtype=tl.float32), tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for first in range(0, rows, ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row[:, None] < rows) & (at[None, :] < columns)
        places = row[:, None] * columns + at[None, :]
        total_w += tl.load(dw + places, mask=inside, other=0.0)
        total_b += tl.load(db + places, mask=inside, other=0.0)
    tl.store(sum_w + at, tl.sum(total_w, axis=0), mask=at < columns)
    tl.store(sum_b + at, tl.sum(total_b, axis=0), mask=at < columns)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, eps: float) -> torch.Tensor:
        rows, columns = x.shape
        y = torch.empty_like(x)
        means, scales = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
        block = min(65536 // x.element_size(), rival.next_power_of_2(columns))
        warps = min(max(block // 256, 1), 8)
        norm_rows[(rows,)](x, y, w, b, means, scales, x.stride(0), columns, eps, BLOCK=block, num_warps=warps, num_ctas=1)
        ctx.save_for_backward(x, w, b, means, scales)
        ctx.block, ctx.warps = block, warps
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        x, w, b, means, scales = ctx.saved_tensors
        rows, columns = x.shape
        group = 256 if columns <= 1024 else 128 if columns <= 4096 else 96 if columns <= 8192 else 64
        locks = torch.zeros(2 * group, dtype=torch.int32, device=w.device)
        partial_w, partial_b = (torch.zeros((group, columns), dtype=x.dtype, device=w.device) for _ in range(2))
        dw, db, dx = torch.empty_like(w), torch.empty_like(b), torch.empty_like(dy)
        norm_backward_rows[(rows,)](
            dx, dy, partial_w, partial_b, x, w, means, scales, locks, x.stride(0), columns, BLOCK=ctx.block, GROUP=group, num_warps=ctx.warps
        )
        grid = lambda meta: (rival.cdiv(columns, meta["COLUMNS"]),)  # noqa: E731 (as programs write it)
        norm_backward_sums[grid](partial_w, partial_b, dw, db, min(group, rows), columns, ROWS=32, COLUMNS=128, num_ctas=1)
        return dx, dw, db, None


layer_norm = LayerNorm.apply


# ---- a product of descriptors

BLOCK = 128, 128, 64


@rival.jit
def product_blocks(a, b, c, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    total = tl.zeros((M, N), dtype=tl.float32)
    for at in range(0, k, K):
        total = tl.dot(a.load([row, at]), b.load([column, at]).T, total)
    c.store([row, column], total.to(tl.float16))


def described(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> list[Any]:
    rows, columns, depth = BLOCK
    blocks = (a, [rows, depth]), (b, [columns, depth]), (c, [rows, columns])
    return [TensorDescriptor.from_tensor(tensor, block) for tensor, block in blocks]


def launch_product(a: Any, b: Any, c: Any, m: int, n: int, k: int, **options: Any) -> None:
    grid = rival.cdiv(m, BLOCK[0]), rival.cdiv(n, BLOCK[1])
    product_blocks[grid](a, b, c, m, n, k, M=BLOCK[0], N=BLOCK[1], K=BLOCK[2], num_warps=8, **options)


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty(a.shape[0], b.shape[0], dtype=a.dtype, device=a.device)
    launch_product(*described(a, b, c), a.shape[0], b.shape[0], a.shape[1])
    return c
