"""Many matmuls of different sizes in one launch.

A fixed number of programs processes the blocks of all matmuls, one after the other. The device
finds the matmul of a block from arrays of addresses and sizes. One kernel reads through pointers,
and the other makes tensor descriptors when it reaches a new matmul.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from comparison import compare, device, processors


def configurations(programs: tuple[int, ...]) -> list[triton.Config]:
    shapes = [(128, 128, 32, 4, 3), (64, 64, 32, 4, 3)]
    return [
        triton.Config(
            {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "PROGRAMS": count}, num_warps=w, num_stages=s
        )
        for m, n, k, w, s in shapes
        for count in programs
    ]


@triton.autotune(configs=configurations((84, 132)), key=["groups"])
@triton.jit
def grouped_kernel(
    addresses_ptr, sizes_ptr, strides_ptr, groups,
    TYPE: tl.constexpr, ALIGNED: tl.constexpr, PROGRAMS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """``addresses`` [groups, 3] of a, b, c; ``sizes`` [groups, 3] = M, N, K; ``strides`` [groups,
    3] between their rows.

    ``ALIGNED``: addresses, strides, N and K are all multiples of 16.
    """
    block = tl.program_id(0)
    before = 0  # blocks of earlier matmuls
    for group in range(groups):
        m = tl.load(sizes_ptr + 3 * group)
        n = tl.load(sizes_ptr + 3 * group + 1)
        depth = tl.load(sizes_ptr + 3 * group + 2)
        if ALIGNED:  # loaded values carry no hints
            n, depth = tl.multiple_of(n, 16), tl.multiple_of(depth, 16)
        blocks_n = tl.cdiv(n, BLOCK_N)
        blocks = tl.cdiv(m, BLOCK_M) * blocks_n
        while block >= before and block < before + blocks:
            a_ptr = tl.load(addresses_ptr + 3 * group).to(tl.pointer_type(TYPE))
            b_ptr = tl.load(addresses_ptr + 3 * group + 1).to(tl.pointer_type(TYPE))
            c_ptr = tl.load(addresses_ptr + 3 * group + 2).to(tl.pointer_type(TYPE))
            a_row = tl.load(strides_ptr + 3 * group)
            b_row = tl.load(strides_ptr + 3 * group + 1)
            c_row = tl.load(strides_ptr + 3 * group + 2)
            if ALIGNED:
                a_ptr, b_ptr, c_ptr = (
                    tl.multiple_of(a_ptr, 16),
                    tl.multiple_of(b_ptr, 16),
                    tl.multiple_of(c_ptr, 16),
                )
                a_row, b_row, c_row = (
                    tl.multiple_of(a_row, 16),
                    tl.multiple_of(b_row, 16),
                    tl.multiple_of(c_row, 16),
                )
            rows = (block - before) // blocks_n * BLOCK_M + tl.arange(0, BLOCK_M)
            columns = (block - before) % blocks_n * BLOCK_N + tl.arange(0, BLOCK_N)
            k = tl.arange(0, BLOCK_K)
            row_inside = rows[:, None] < m
            column_inside = columns[None, :] < n
            a_ptrs = a_ptr + rows[:, None] * a_row + k[None, :]
            b_ptrs = b_ptr + k[:, None] * b_row + columns[None, :]
            total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for start in range(0, depth, BLOCK_K):
                a = tl.load(a_ptrs, mask=row_inside & (k[None, :] < depth - start), other=0.0)
                b = tl.load(b_ptrs, mask=(k[:, None] < depth - start) & column_inside, other=0.0)
                total = tl.dot(a, b, total)
                a_ptrs += BLOCK_K
                b_ptrs += BLOCK_K * b_row
            tl.store(
                c_ptr + rows[:, None] * c_row + columns[None, :],
                total.to(TYPE),
                mask=row_inside & column_inside,
            )
            block += PROGRAMS
        before += blocks


@triton.autotune(configs=configurations((84, 132)), key=["groups"])
@triton.jit
def grouped_descriptor_kernel(
    addresses_ptr, sizes_ptr, strides_ptr, groups,
    TYPE: tl.constexpr, PROGRAMS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The same for b that lies transposed, [N, K]: rows of all operands start at multiples of 16
    bytes.
    """
    block = tl.program_id(0)
    before = 0
    for group in range(groups):
        m = tl.load(sizes_ptr + 3 * group)
        n = tl.load(sizes_ptr + 3 * group + 1)
        depth = tl.load(sizes_ptr + 3 * group + 2)
        blocks_n = tl.cdiv(n, BLOCK_N)
        blocks = tl.cdiv(m, BLOCK_M) * blocks_n
        if block >= before and block < before + blocks:
            a = tl.make_tensor_descriptor(
                tl.load(addresses_ptr + 3 * group).to(tl.pointer_type(TYPE)),
                shape=[m, depth],
                strides=[tl.load(strides_ptr + 3 * group), 1],
                block_shape=[BLOCK_M, BLOCK_K],
            )
            b = tl.make_tensor_descriptor(
                tl.load(addresses_ptr + 3 * group + 1).to(tl.pointer_type(TYPE)),
                shape=[n, depth],
                strides=[tl.load(strides_ptr + 3 * group + 1), 1],
                block_shape=[BLOCK_N, BLOCK_K],
            )
            c = tl.make_tensor_descriptor(
                tl.load(addresses_ptr + 3 * group + 2).to(tl.pointer_type(TYPE)),
                shape=[m, n],
                strides=[tl.load(strides_ptr + 3 * group + 2), 1],
                block_shape=[BLOCK_M, BLOCK_N],
            )
            while block >= before and block < before + blocks:
                row = (block - before) // blocks_n * BLOCK_M
                column = (block - before) % blocks_n * BLOCK_N
                total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
                for start in range(0, depth, BLOCK_K):
                    total = tl.dot(a.load([row, start]), b.load([column, start]).T, total)
                c.store([row, column], total.to(TYPE))
                block += PROGRAMS
        before += blocks


#: PyTorch's types as the language's
TYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}


def grouped_gemm(
    lefts: list[torch.Tensor], rights: list[torch.Tensor], descriptors: bool = False
) -> list[torch.Tensor]:
    """``[a @ b for a, b in zip(lefts, rights)]`` of one type, columns side by side.

    With ``descriptors`` the rights are [N, K], and all extents but the numbers of rows are
    multiples of 16 bytes.
    """
    place, dtype = lefts[0].device, lefts[0].dtype
    wide = 0 if descriptors else 1
    results = [
        torch.empty((a.shape[0], b.shape[wide]), device=place, dtype=dtype)
        for a, b in zip(lefts, rights, strict=True)
    ]
    triples = list(zip(lefts, rights, results, strict=True))
    addresses = torch.tensor(
        [[tensor.data_ptr() for tensor in triple] for triple in triples], device=place
    )
    sizes = torch.tensor(
        [[*c.shape, a.shape[1]] for a, _, c in triples], dtype=torch.int32, device=place
    )
    strides = torch.tensor(
        [[tensor.stride(0) for tensor in triple] for triple in triples],
        dtype=torch.int64,
        device=place,
    )
    grid = lambda meta: (meta["PROGRAMS"],)  # noqa: E731
    if descriptors:
        # descriptors made in a kernel live in memory that the launch asks for
        triton.set_allocator(
            lambda size, alignment, stream: torch.empty(size, device=place, dtype=torch.int8)
        )
        grouped_descriptor_kernel[grid](addresses, sizes, strides, len(triples), TYPE=TYPES[dtype])
    else:
        aligned = all(
            tensor.data_ptr() % 16 == tensor.stride(0) % 16 == tensor.shape[1] % 16 == 0
            for triple in triples
            for tensor in triple
        )
        grouped_kernel[grid](
            addresses, sizes, strides, len(triples), TYPE=TYPES[dtype], ALIGNED=aligned
        )
    return results


def main() -> None:
    print(f"{processors()} processors")
    sizes = [(1024, 512, 256), (512, 512, 512), (256, 256, 256), (128, 384, 128)]
    lefts = [torch.randn(m, k, device=device(), dtype=torch.float16) for m, _, k in sizes]
    rights = [torch.randn(k, n, device=device(), dtype=torch.float16) for _, n, k in sizes]
    turned = [right.T.contiguous() for right in rights]

    def flat(products: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat([product.flatten() for product in products])

    exact = flat([a.double() @ b.double() for a, b in zip(lefts, rights, strict=True)])
    rival = lambda: flat([a @ b for a, b in zip(lefts, rights, strict=True)])  # noqa: E731
    compare(
        "grouped products through pointers", lambda: flat(grouped_gemm(lefts, rights)), rival, exact
    )
    compare(
        "grouped products through descriptors",
        lambda: flat(grouped_gemm(lefts, turned, descriptors=True)),
        rival,
        exact,
    )


if __name__ == "__main__":
    main()
