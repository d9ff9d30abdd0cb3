"""Matmuls of operands in micro-scaling formats: elements of 8 or 4 bits, a scale for 32 along K."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.linear.blocks import Blocks, matmul_blocks
from tilewright_kernels.linear.element_types import name_of
from tilewright_kernels.linear.epilogue import packed
from tilewright_kernels.linear.matmul_kernels import block_of
from tilewright_kernels.linear.micro_scaling import BLOCK, decoded_elements, decoded_scales
from tilewright_kernels.operations import Array, Launcher, Operation, strides
from tilewright_kernels.operations.devices import Device, device_of

_GROUP_M = 8
_BLOCK = tl.constexpr(BLOCK)
#: Element type of an operand -> the name of its format in the language.
_FORMATS = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2", "uint8": "e2m1"}


@tw.jit
def micro_scaled_matmul_kernel(
    a_ptr, b_ptr, c_ptr, a_scale_ptr, b_scale_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    stride_asm, stride_ask, stride_bsk, stride_bsn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    A_FORMAT: tl.constexpr, B_FORMAT: tl.constexpr,
):  # fmt: skip
    """Compute a block of a result; two 4-bit elements along K are in a byte."""
    block_m, block_n = block_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    A_PACK: tl.constexpr = 2 if A_FORMAT == "e2m1" else 1
    B_PACK: tl.constexpr = 2 if B_FORMAT == "e2m1" else 1
    a_k, b_k = tl.arange(0, BLOCK_K // A_PACK), tl.arange(0, BLOCK_K // B_PACK)
    groups = tl.arange(0, BLOCK_K // _BLOCK)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for first in range(0, K, BLOCK_K):
        along_a, along_b = first // A_PACK + a_k, first // B_PACK + b_k
        group = first // _BLOCK + groups
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + along_a[None, :] * stride_ak,
            mask=(rows[:, None] < M) & (along_a[None, :] < K // A_PACK),
            other=0.0,
        )
        b = tl.load(
            b_ptr + along_b[:, None] * stride_bk + columns[None, :] * stride_bn,
            mask=(along_b[:, None] < K // B_PACK) & (columns[None, :] < N),
            other=0.0,
        )
        a_scale = tl.load(
            a_scale_ptr + rows[:, None] * stride_asm + group[None, :] * stride_ask,
            mask=(rows[:, None] < M) & (group[None, :] < K // _BLOCK),
            other=0,
        )
        b_scale = tl.load(
            b_scale_ptr + columns[:, None] * stride_bsn + group[None, :] * stride_bsk,
            mask=(columns[:, None] < N) & (group[None, :] < K // _BLOCK),
            other=0,
        )
        accumulator = tl.dot_scaled(a, a_scale, A_FORMAT, b, b_scale, B_FORMAT, accumulator)
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + columns, mask=columns < N, other=0.0)
        accumulator += bias.to(tl.float32)[None, :]
    tl.store(
        c_ptr + rows.to(tl.int64)[:, None] * stride_cm + columns[None, :] * stride_cn,
        accumulator.to(c_ptr.dtype.element_ty),
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


def micro_scaled_matmul_reference(
    a: Any, b: Any, a_scale: Any, b_scale: Any, bias: Any = None, dtype: Any = None
) -> Any:
    """Return ``(a * a_scale) @ (b * b_scale) + bias`` in a type, float32 if None."""
    xp = array_api_compat.array_namespace(a_scale)
    dtype = xp.float32 if dtype is None else dtype
    left = decoded_elements(a, dtype, 1) * xp.repeat(decoded_scales(a_scale, dtype), BLOCK, axis=1)
    right = decoded_elements(b, dtype, 0) * xp.repeat(decoded_scales(b_scale, dtype), BLOCK, axis=0)
    c = xp.matmul(left, right)
    return c if bias is None else c + xp.astype(bias, dtype)


def _shapes(
    make: Any, a: Any, b: Any, a_scale: Any, b_scale: Any, bias: Any, out_dtype: str
) -> tuple[Any, ...]:
    return (make((a.shape[0], b.shape[1]), out_dtype),)


def _launch(
    run: Launcher,
    c: Any,
    a: Array,
    b: Array,
    a_scale: Array,
    b_scale: Array,
    bias: Array | None,
    out_dtype: str,
) -> None:
    m, n = a.shape[0], b.shape[1]
    k = a_scale.shape[1] * BLOCK
    if m == 0 or n == 0:
        return
    blocks = _blocks(m, n, k, device_of(a))
    run(
        micro_scaled_matmul_kernel,
        (tw.cdiv(m, blocks.m) * tw.cdiv(n, blocks.n),),
        a,
        b,
        c,
        a_scale,
        b_scale,
        None if bias is None else packed(bias),
        m,
        n,
        k,
        *strides(a),
        *strides(b),
        *strides(c),
        *strides(a_scale),
        *strides(b_scale),
        BLOCK_M=blocks.m,
        BLOCK_N=blocks.n,
        BLOCK_K=blocks.k,
        GROUP_M=_GROUP_M,
        A_FORMAT=_FORMATS[name_of(a)],
        B_FORMAT=_FORMATS[name_of(b)],
        **blocks.options,
    )


def _blocks(m: int, n: int, k: int, device: Device) -> Blocks:
    """Return blocks of at least two blocks of scales along K."""
    found = matmul_blocks(m, n, k, 16, device, may_split=False)
    if device.family == "cpu":
        return replace(found, k=max(found.k, 2 * BLOCK))
    if device.family == "blackwell" and m > 64:
        # instructions with scales take 128 rows and 128 bytes along K
        return Blocks(128, 128, 128, 4, 4)
    return replace(found, n=max(found.n, 32), k=max(found.k, 2 * BLOCK))


MICRO_SCALED_MATMUL = Operation(
    "micro_scaled_matmul", ("c",), _shapes, _launch, reference=micro_scaled_matmul_reference
)


def check_micro_scaled(a: Any, b: Any, a_scale: Any, b_scale: Any) -> None:
    """Check operands of 8 bits, or of pairs of 4 bits, with scales for 32 elements along K.

    Raises:
        ValueError: the shapes of the arguments do not match.
        TypeError: operands or scales are of other types.
    """
    names = name_of(a), name_of(b)
    if any(name not in _FORMATS for name in names):
        raise TypeError(
            f"operands with scales of bytes are of {', '.join(_FORMATS)} (two elements of 4 bits), "
            f"not of {' and '.join(names)}"
        )
    packs = [2 if name == "uint8" else 1 for name in names]
    k = a.shape[1] * packs[0]
    if a.ndim != 2 or b.ndim != 2 or b.shape[0] * packs[1] != k or k % BLOCK:
        raise ValueError(
            f"operands are (M, K) and (K, N), K a multiple of {BLOCK}, or half of K where a byte "
            f"has two elements, not {tuple(a.shape)} and {tuple(b.shape)}"
        )
    for name, scale, shape in (
        ("a_scale", a_scale, (a.shape[0], k // BLOCK)),
        ("b_scale", b_scale, (k // BLOCK, b.shape[1])),
    ):
        if tuple(scale.shape) != shape:
            raise ValueError(f"{name} has the shape {tuple(scale.shape)}: it must be {shape}")
        if name_of(scale) != "uint8":
            raise TypeError(f"{name} is of {name_of(scale)}, and must be as the other scale")
