"""Programs of :mod:`host_side`, in names that Triton and Tilewright share.

``rival`` is either library.

"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import rival
import rival.language as tl
import torch

if hasattr(rival, "TensorDescriptor"):
    TensorDescriptor = rival.TensorDescriptor
else:
    TensorDescriptor = importlib.import_module(
        f"{rival.__name__}.tools.tensor_descriptor"
    ).TensorDescriptor

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
    kernel = softmax_rows.warmup(
        *given, BLOCK=block, STAGES=STAGES, num_stages=STAGES, num_warps=WARPS, grid=(1,)
    )
    kernel._init_handles()
    programs = min(
        REGISTERS // (kernel.n_regs * 32 * WARPS),
        SHARED // max(1, kernel.metadata.shared),
        2048 // (32 * WARPS),
    )
    kernel[(min(PROCESSORS * programs, rows), 1, 1)](*given, block, STAGES)
    return y


# ---- layer norm


def example(name: str) -> Any:
    """Load a program of ``examples/triton_programs`` with ``rival`` as its ``triton``."""
    sys.path.append(str(Path(__file__).resolve().parents[2] / "examples/triton_programs"))
    if sys.modules.get("triton") is rival:
        return importlib.import_module(name)
    names = {
        "triton": rival,
        **{
            f"triton.{part}": importlib.import_module(f"{rival.__name__}.{part}")
            for part in ("language", "testing")
        },
    }
    sys.modules.update(names)
    try:
        return importlib.import_module(name)
    finally:
        for each in names:
            del sys.modules[each]


layer_norm = example("layer_norm").layer_norm


# ---- a matmul through descriptors

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
    product_blocks[grid](
        a, b, c, m, n, k, M=BLOCK[0], N=BLOCK[1], K=BLOCK[2], num_warps=8, **options
    )


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty(a.shape[0], b.shape[0], dtype=a.dtype, device=a.device)
    launch_product(*described(a, b, c), a.shape[0], b.shape[0], a.shape[1])
    return c
