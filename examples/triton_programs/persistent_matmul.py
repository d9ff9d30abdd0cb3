"""Persistent matmuls: one program per processor computes several blocks of the result.

The loads for the next block overlap the epilogue of the current one. The operands are accessed in
three ways: through pointers, host-side descriptors, and device-side descriptors. The right operand
is transposed, [N, K].
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl
from comparison import compare, device, processors
from triton.tools.tensor_descriptor import TensorDescriptor


def name_of_launch(grid: Any, kernel: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the profiler's description of a launch."""
    m, n, k = (arguments[name] for name in "MNK")
    return {"name": f"{kernel.name} [{m} x {n} x {k}]", "flops": 2.0 * m * n * k}


def set_blocks(arguments: dict[str, Any]) -> None:
    """The blocks of the host's descriptors, before a configuration runs."""
    block_m, block_n, block_k = (arguments[f"BLOCK_{axis}"] for axis in "MNK")
    arguments["a"].block_shape = [block_m, block_k]
    arguments["b"].block_shape = [block_n, block_k]
    arguments["c"].block_shape = [block_m, block_n // 2 if arguments["HALVES"] else block_n]


def configurations(hook: Any = None, halves: bool = False) -> list[triton.Config]:
    shapes = [(128, 256, 64, 8, 3), (128, 128, 64, 4, 3), (64, 64, 64, 4, 3)]
    return [
        triton.Config(
            {
                "BLOCK_M": m,
                "BLOCK_N": n,
                "BLOCK_K": k,
                "GROUP": 8,
                **({"HALVES": half} if halves else {}),
            },
            num_warps=w,
            num_stages=s,
            pre_hook=hook,
        )
        for m, n, k, w, s in shapes
        for half in ((False, True) if halves else (False,))
    ]


@triton.jit
def grouped_block(block, blocks_m, blocks_n, GROUP: tl.constexpr):
    per_group = GROUP * blocks_n
    first = block // per_group * GROUP
    height = min(blocks_m - first, GROUP)
    return first + block % height, block % per_group // height


@triton.autotune(configs=configurations(), key=["M", "N", "K"])
@triton.jit(launch_metadata=name_of_launch)
def pointer_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, a_row, b_row, c_row,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    blocks_m = tl.cdiv(M, BLOCK_M)
    blocks_n = tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    k = tl.arange(0, BLOCK_K)
    # flattened, the two loops are one, which loads across the ends of the inner
    for block in tl.range(tl.program_id(0), blocks_m * blocks_n, PROGRAMS, flatten=True):
        block_m, block_n = grouped_block(block, blocks_m, blocks_n, GROUP)
        rows = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
        columns = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
        # what lies past the end reads the first row, and is never stored
        a_rows = tl.where(rows < M, rows, 0)
        b_rows = tl.where(columns < N, columns, 0)
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(steps):
            depth = step * BLOCK_K + k
            inside = depth[None, :] < K
            a = tl.load(a_ptr + a_rows[:, None] * a_row + depth[None, :], mask=inside, other=0.0)
            b = tl.load(b_ptr + b_rows[:, None] * b_row + depth[None, :], mask=inside, other=0.0)
            total = tl.dot(a, b.T, total)
        places = rows[:, None] * c_row + columns[None, :]
        tl.store(
            c_ptr + places,
            total.to(c_ptr.dtype.element_ty),
            mask=(rows[:, None] < M) & (columns[None, :] < N),
        )


@triton.jit
def descriptor_loop(
    a, b, c, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, PROGRAMS: tl.constexpr, HALVES: tl.constexpr, SPECIALIZE: tl.constexpr,
):  # fmt: skip
    blocks_m = tl.cdiv(M, BLOCK_M)
    blocks_n = tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    # a counter of its own for the stores: kept apart from the loads', it need not live through the
    # inner loop
    stored = tl.program_id(0) - PROGRAMS
    for block in tl.range(
        tl.program_id(0), blocks_m * blocks_n, PROGRAMS, flatten=True, warp_specialize=SPECIALIZE
    ):
        block_m, block_n = grouped_block(block, blocks_m, blocks_n, GROUP)
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(steps):
            left = a.load([block_m * BLOCK_M, step * BLOCK_K])
            right = b.load([block_n * BLOCK_N, step * BLOCK_K])
            total = tl.dot(left, right.T, total)
        stored += PROGRAMS
        block_m, block_n = grouped_block(stored, blocks_m, blocks_n, GROUP)
        if HALVES:  # two stores of half the width take half the shared memory
            pairs = total.reshape(BLOCK_M, 2, BLOCK_N // 2).permute(0, 2, 1)
            first, second = pairs.split()
            c.store([block_m * BLOCK_M, block_n * BLOCK_N], first.to(c.dtype))
            c.store([block_m * BLOCK_M, block_n * BLOCK_N + BLOCK_N // 2], second.to(c.dtype))
        else:
            c.store([block_m * BLOCK_M, block_n * BLOCK_N], total.to(c.dtype))


@triton.autotune(configs=configurations(set_blocks, halves=True), key=["M", "N", "K", "SPECIALIZE"])
@triton.jit(launch_metadata=name_of_launch)
def host_descriptor_kernel(
    a, b, c, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, PROGRAMS: tl.constexpr, HALVES: tl.constexpr, SPECIALIZE: tl.constexpr,
):  # fmt: skip
    descriptor_loop(
        a, b, c, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP, PROGRAMS, HALVES, SPECIALIZE
    )


@triton.autotune(configs=configurations(halves=True), key=["M", "N", "K", "SPECIALIZE"])
@triton.jit(launch_metadata=name_of_launch)
def device_descriptor_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, PROGRAMS: tl.constexpr, HALVES: tl.constexpr, SPECIALIZE: tl.constexpr,
):  # fmt: skip
    width: tl.constexpr = BLOCK_N // 2 if HALVES else BLOCK_N
    a = tl.make_tensor_descriptor(
        a_ptr, shape=[M, K], strides=[K, 1], block_shape=[BLOCK_M, BLOCK_K]
    )
    b = tl.make_tensor_descriptor(
        b_ptr, shape=[N, K], strides=[K, 1], block_shape=[BLOCK_N, BLOCK_K]
    )
    c = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[BLOCK_M, width])
    descriptor_loop(
        a, b, c, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP, PROGRAMS, HALVES, SPECIALIZE
    )


def matmul(
    a: torch.Tensor, b: torch.Tensor, way: str = "pointers", specialize: bool = False
) -> torch.Tensor:
    """``a @ b.T`` for contiguous ``a`` [M, K] and ``b`` [N, K]; fp8 operands give fp16, others
    their own type.

    ``way``: ``"pointers"``, ``"host"`` or ``"device"`` descriptors; rows take multiples of 16 bytes
    for descriptors.
    """
    (m, k), (n, other_k) = a.shape, b.shape
    assert k == other_k and a.dtype == b.dtype and a.is_contiguous() and b.is_contiguous()
    c = torch.empty(
        (m, n), device=a.device, dtype=torch.float16 if a.dtype.itemsize == 1 else a.dtype
    )
    programs = processors()
    grid = lambda meta: (  # noqa: E731
        min(programs, triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"])),
    )
    if way == "pointers":
        pointer_kernel[grid](
            a, b, c, m, n, k, a.stride(0), b.stride(0), c.stride(0), PROGRAMS=programs
        )
    elif way == "host":
        described = [TensorDescriptor.from_tensor(tensor, [1, 1]) for tensor in (a, b, c)]
        host_descriptor_kernel[grid](*described, m, n, k, PROGRAMS=programs, SPECIALIZE=specialize)
    elif way == "device":
        triton.set_allocator(
            lambda size, alignment, stream: torch.empty(size, device=a.device, dtype=torch.int8)
        )
        device_descriptor_kernel[grid](a, b, c, m, n, k, PROGRAMS=programs, SPECIALIZE=specialize)
    else:
        raise ValueError(f"way must be pointers, host or device, not {way!r}")
    return c


def main() -> None:
    size = 512 if device().type == "cpu" else 4096
    a, b = (torch.randn(size, size, device=device(), dtype=torch.float16) for _ in range(2))
    exact = a.double() @ b.double().T
    for way in ("pointers", "host", "device"):
        compare(
            f"persistent matmul of {size} fp16, {way}",
            partial(matmul, a, b, way),
            lambda: a @ b.T,
            exact,
        )
    a8, b8 = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    exact = a8.double() @ b8.double().T
    for way in ("pointers", "host", "device"):
        compare(
            f"persistent matmul of {size} fp8 (torch: fp16), {way}",
            partial(matmul, a8, b8, way),
            lambda: a8.half() @ b8.half().T,
            exact,
        )


if __name__ == "__main__":
    main()
