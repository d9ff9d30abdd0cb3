"""Products of matrices in the microscaling formats: small floats in groups along K that share a
scale (OCP Microscaling Formats, 2023; NVFP4).

    mxfp8   e4m3 elements, a power-of-two scale for 32 of them
    mxfp4   e2m1 elements, two in a byte, a power-of-two scale for 32 of them
    nvfp4   e2m1 elements, an e4m3 scale for 16 of them
    mixed   mxfp8 on the left, mxfp4 on the right

Scales lie as the matrix units of recent GPUs want them: tiles of 128 rows x 4 groups, 512 bytes
each, in which row r, group g has the place 16 · (r mod 32) + 4 · (r div 32) + g. The kernel loads
whole tiles and puts them in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
import triton
import triton.language as tl
from comparison import compare, device
from triton.tools.mxfp import MXFP4Tensor
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def ordered_scales(tiles, BLOCK: tl.constexpr, GROUPS: tl.constexpr):
    """Scales [BLOCK, GROUPS] of a block of tiles."""
    apart = tiles.reshape(BLOCK // 128, GROUPS // 4, 32, 4, 4)
    return apart.trans(0, 3, 2, 1, 4).reshape(BLOCK, GROUPS)


@triton.jit
def block_scaled_kernel(
    a, a_scales, b, b_scales, c, M, N, K,
    A_FORMAT: tl.constexpr, B_FORMAT: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """``a`` [M, K] and ``b`` [N, K] with rows of K elements, packed or not; all operands are
    descriptors.
    """
    blocks_m = tl.cdiv(M, BLOCK_M)
    row = tl.program_id(0) % blocks_m * BLOCK_M
    column = tl.program_id(0) // blocks_m * BLOCK_N
    groups: tl.constexpr = BLOCK_K // GROUP
    a_width: tl.constexpr = BLOCK_K // 2 if A_FORMAT == "e2m1" else BLOCK_K
    b_width: tl.constexpr = BLOCK_K // 2 if B_FORMAT == "e2m1" else BLOCK_K
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in tl.range(0, tl.cdiv(K, BLOCK_K), num_stages=STAGES):
        left = a.load([row, step * a_width])
        right = b.load([column, step * b_width])
        left_scales = ordered_scales(
            a_scales.load([0, row // 128, step * (groups // 4), 0, 0]), BLOCK_M, groups
        )
        right_scales = ordered_scales(
            b_scales.load([0, column // 128, step * (groups // 4), 0, 0]), BLOCK_N, groups
        )
        total = tl.dot_scaled(left, left_scales, A_FORMAT, right.T, right_scales, B_FORMAT, total)
    c.store([row, column], total.to(c.dtype))


@dataclass(frozen=True)
class Scaled:
    """A quantised matrix of ``rows`` x ``columns`` elements.

    Attributes:
        elements: fp8 [rows, columns], or bytes [rows, columns / 2] of two e2m1 each, the lower half
        first. scales: [rows, columns / group]: exponents (bytes, 127 stands for 1) or e4m3. tiles:
        the scales as the kernel reads them, [1, rows / 128, columns / group / 4, 2, 256], padded
        with zeros. values: what all this stands for, in float32.
    """

    format: str
    group: int
    elements: torch.Tensor
    scales: torch.Tensor
    tiles: torch.Tensor
    values: torch.Tensor


#: format -> (its name in dot_scaled, elements per scale, maximum element)
FORMATS = {"mxfp8": ("e4m3", 32, 448.0), "mxfp4": ("e2m1", 32, 6.0), "nvfp4": ("e2m1", 16, 6.0)}


def tiled(scales: torch.Tensor) -> torch.Tensor:
    """Scales in tiles of 128 rows x 4 groups."""
    rows, groups = scales.shape
    high, wide = triton.cdiv(rows, 128), triton.cdiv(groups, 4)
    padded = torch.zeros((high * 128, wide * 4), dtype=torch.uint8, device=scales.device)
    padded[:rows, :groups] = scales.view(torch.uint8)
    apart = padded.reshape(high, 4, 32, wide, 4).permute(0, 3, 2, 1, 4)
    return apart.reshape(1, high, wide, 2, 256).contiguous().view(scales.dtype)


def quantise(x: torch.Tensor, name: str) -> Scaled:
    """A matrix in one of :data:`FORMATS`; its columns are a multiple of 4 groups."""
    format_, group, maximum = FORMATS[name]
    rows, columns = x.shape
    groups = x.float().reshape(rows, columns // group, group)
    wanted = (
        groups.abs().amax(-1).clamp_min(1e-6) / maximum
    )  # the scale at which nothing is cut off
    if name == "nvfp4":
        scales = wanted.to(torch.float8_e4m3fn)
        factors = scales.float().clamp_min(2.0**-9)
    else:
        exponents = torch.ceil(torch.log2(wanted)).clamp(-127, 127)
        scales = (exponents + 127).to(torch.uint8)
        factors = torch.exp2(exponents)
    reduced = (groups / factors[..., None]).clamp(-maximum, maximum).reshape(rows, columns)
    if format_ == "e2m1":
        small = MXFP4Tensor(data=reduced, device=x.device)
        elements, rounded = small.to_packed_tensor(dim=1), small.to(torch.float32)
    else:
        elements = reduced.to(torch.float8_e4m3fn)
        rounded = elements.float()
    stands_for = scales.float() if name == "nvfp4" else factors
    values = (rounded.reshape(groups.shape) * stands_for[..., None]).reshape(rows, columns)
    return Scaled(format_, group, elements.contiguous(), scales, tiled(scales), values)


def operands(a: torch.Tensor, b: torch.Tensor, name: str) -> tuple[Scaled, Scaled]:
    """Both matrices quantised; ``name``: a format, or ``"mixed"``."""
    left, right = ("mxfp8", "mxfp4") if name == "mixed" else (name, name)
    return quantise(a, left), quantise(b, right)


def block_scaled_matmul(a: Scaled, b: Scaled, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """``a @ b.T`` for ``a`` [M, K], ``b`` [N, K] of one group size."""
    assert a.group == b.group and a.values.shape[1] == b.values.shape[1]
    (m, k), n = a.values.shape, b.values.shape[0]
    block_m, block_n, block_k = 128, 128, 128
    c = torch.empty((m, n), device=a.elements.device, dtype=dtype)

    def described(x: Scaled, rows: int) -> tuple[TensorDescriptor, TensorDescriptor]:
        width = block_k // 2 if x.format == "e2m1" else block_k
        tiles = [1, rows // 128, block_k // x.group // 4, 2, 256]
        return TensorDescriptor.from_tensor(
            x.elements, [rows, width]
        ), TensorDescriptor.from_tensor(x.tiles, tiles)

    grid = (triton.cdiv(m, block_m) * triton.cdiv(n, block_n),)
    block_scaled_kernel[grid](
        *described(a, block_m), *described(b, block_n),
        TensorDescriptor.from_tensor(c, [block_m, block_n]), m, n, k,
        A_FORMAT=a.format, B_FORMAT=b.format, GROUP=a.group,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, STAGES=2, num_warps=8,
    )  # fmt: skip
    return c


def main() -> None:
    size = 512 if device().type == "cpu" else 4096
    x, y = (torch.randn(size, size, device=device()) for _ in range(2))
    for name in (*FORMATS, "mixed"):
        a, b = operands(x, y, name)
        exact = a.values.double() @ b.values.double().T
        rival = partial(torch.matmul, a.values.half(), b.values.half().T)
        compare(
            f"{name} product of {size} (torch: fp16)",
            partial(block_scaled_matmul, a, b),
            rival,
            exact,
        )


if __name__ == "__main__":
    main()
