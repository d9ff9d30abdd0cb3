"""Row softmax in one pass over memory, by a persistent kernel: as many programs as fit on the
device at once, each taking every so many rows.

How many fit is worked out from what the compiled kernel takes (registers, shared memory) and what
the device has.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from comparison import compare, device, properties


@triton.jit
def softmax_kernel(
    out_ptr, in_ptr, in_stride, out_stride, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr
):  # fmt: skip
    places = tl.arange(0, BLOCK)
    inside = places < columns
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        values = tl.load(in_ptr + row * in_stride + places, mask=inside, other=-float("inf")).to(
            tl.float32
        )
        raised = tl.exp(values - tl.max(values, axis=0))  # the maximum exponent is 0: no overflow
        shares = raised / tl.sum(raised, axis=0)
        tl.store(out_ptr + row * out_stride + places, shares, mask=inside)


def programs_at_once(kernel: Any, num_warps: int) -> int:
    """Programs of a compiled kernel that the device holds at one time."""
    has = properties()
    threads = num_warps * has["warpSize"]
    by_registers = has["max_num_regs"] // (max(kernel.n_regs, 1) * threads)
    by_shared = has["max_shared_mem"] // max(kernel.metadata.shared, 1)
    return has["multiprocessor_count"] * max(1, min(by_registers, by_shared))


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax of the rows of a matrix whose columns lie side by side."""
    rows, columns = x.shape
    assert x.stride(1) == 1
    out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(columns)
    num_warps = 4 if block <= 2048 else 8 if block <= 8192 else 16
    arguments = (out, x, x.stride(0), out.stride(0), rows, columns, block, 2)
    # compiled without a launch, to ask what it takes; the compiled kernel is launched by itself
    kernel = softmax_kernel.warmup(*arguments, num_warps=num_warps, grid=(1,))
    kernel._init_handles()
    programs = min(rows, programs_at_once(kernel, num_warps))
    kernel[(programs, 1, 1)](*arguments)
    return out


def main() -> None:
    for rows, columns in ((1823, 781), (4096, 1024), (512, 12_345)):
        x = torch.randn(rows, columns, device=device())
        compare(
            f"softmax of {rows} x {columns} fp32",
            partial(softmax, x),
            partial(torch.softmax, x, 1),
            torch.softmax(x.double(), 1),
        )


if __name__ == "__main__":
    main()
