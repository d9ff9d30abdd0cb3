"""Matmul of float rows and weights of 2, 4 or 8 bits with scales of groups along K."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.linear.blocks import FEW_ROWS, MOST_PARTS, Blocks, matmul_blocks
from tilewright_kernels.linear.element_types import OPERANDS, name_of
from tilewright_kernels.linear.epilogue import packed
from tilewright_kernels.linear.leading_axes import in_shape, returned
from tilewright_kernels.linear.matmul_kernels import add_parts_kernel, block_of
from tilewright_kernels.linear.packed_weights import unpack_weights
from tilewright_kernels.operations import Array, Launcher, Operation, strides
from tilewright_kernels.operations.block_rules import block_rule
from tilewright_kernels.operations.devices import Device, device_of


@tw.jit
def unpacked(
    words_ptr, scale_ptr, zero_ptr, columns, words, N, K, GROUP: tl.constexpr,
    BITS: tl.constexpr,
):  # fmt: skip
    """Return float32 weights [columns, words, 32 / BITS] before they are scaled, and the scales.

    Scales are [columns, words], and zeros beyond N and K.
    """
    inside = (columns < N)[:, None] & (words < K * BITS // 32)[None, :]
    places = columns.to(tl.int64)[:, None]
    packed = tl.load(words_ptr + places * (K * BITS // 32) + words[None, :], mask=inside, other=0)
    q = (packed[:, :, None] >> (BITS * tl.arange(0, 32 // BITS))[None, None, :]) & ((1 << BITS) - 1)
    groups = places * (K // GROUP) + (words * (32 // BITS) // GROUP)[None, :]
    scale = tl.load(scale_ptr + groups, mask=inside, other=0.0).to(tl.float32)
    if zero_ptr is None:
        return (q - (1 << (BITS - 1))).to(tl.float32), scale
    zero = tl.load(zero_ptr + groups, mask=inside, other=0.0).to(tl.float32)
    return q.to(tl.float32) - zero[:, :, None], scale


@tw.jit
def quantized_matmul_kernel(
    a_ptr, words_ptr, scale_ptr, zero_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_cm, stride_cn,
    GROUP: tl.constexpr, BITS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, SPLIT: tl.constexpr, OPERAND: tl.constexpr,
    WEIGHTS_FIRST: tl.constexpr,
):  # fmt: skip
    """Compute a block of ``a @ w.T``; of parts along K, the sums of one to ``c`` [SPLIT, M, N].

    With ``WEIGHTS_FIRST`` it is the transpose of ``w @ a.T``, whose left operand the matrix
    instructions of Hopper take from registers.
    """
    block_m, block_n = block_of(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rows = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    start, end = 0, K
    if SPLIT > 1:
        part = tl.program_id(1)
        each = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT) * BLOCK_K
        start, end = part * each, min(K, (part + 1) * each)
        c_ptr += part.to(tl.int64) * M * N
    words = tl.arange(0, BLOCK_K * BITS // 32)
    if WEIGHTS_FIRST:
        accumulator = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    else:
        accumulator = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(start, end, BLOCK_K):
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + (first + k[None, :]) * stride_ak,
            mask=(rows < M)[:, None] & (first + k < K)[None, :],
            other=0.0,
        )
        w, scale = unpacked(
            words_ptr, scale_ptr, zero_ptr, columns, first * BITS // 32 + words, N, K,
            GROUP, BITS,
        )  # fmt: skip
        w = (w * scale[:, :, None]).to(OPERAND).reshape(BLOCK_N, BLOCK_K)
        if WEIGHTS_FIRST:
            accumulator = tl.dot(w, a.T, accumulator)
        else:
            accumulator = tl.dot(a, w.T, accumulator)
    if WEIGHTS_FIRST:
        accumulator = accumulator.T
    tl.store(
        c_ptr + rows.to(tl.int64)[:, None] * stride_cm + columns[None, :] * stride_cn,
        accumulator.to(c_ptr.dtype.element_ty),
        mask=(rows < M)[:, None] & (columns < N)[None, :],
    )


@tw.jit
def quantized_vector_kernel(
    a_ptr, words_ptr, scale_ptr, zero_ptr, c_ptr, N, K, stride_ak, stride_cn,
    GROUP: tl.constexpr, BITS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Compute ``c[n] = sum(a[k] * w[n, k])``; each program reads BLOCK_N rows of the weights."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    words = tl.arange(0, BLOCK_K * BITS // 32)
    k = words[:, None] * (32 // BITS) + tl.arange(0, 32 // BITS)[None, :]
    total = tl.zeros((BLOCK_N, BLOCK_K * BITS // 32), tl.float32)
    for first in range(0, K, BLOCK_K):
        places = a_ptr + (first + k) * stride_ak
        a = tl.load(places, mask=first + k < K, other=0.0).to(tl.float32)
        w, scale = unpacked(
            words_ptr, scale_ptr, zero_ptr, columns, first * BITS // 32 + words, N, K,
            GROUP, BITS,
        )  # fmt: skip
        total += tl.sum(w * a[None, :, :], 2) * scale
    result = tl.sum(total, 1).to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + columns * stride_cn, result, mask=columns < N)


@tw.jit
def quantized_transpose_kernel(
    a_ptr, words_ptr, scale_ptr, zero_ptr, c_ptr, M, N, K,
    stride_am, stride_an, stride_cm, stride_ck,
    GROUP: tl.constexpr, BITS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, OPERAND: tl.constexpr,
):  # fmt: skip
    """Compute a block [BLOCK_M, BLOCK_K] of ``a @ w``, the gradient of the rows."""
    block_m, block_k = block_of(tl.program_id(0), M, K, BLOCK_M, BLOCK_K, GROUP_M)
    rows = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    words = block_k * (BLOCK_K * BITS // 32) + tl.arange(0, BLOCK_K * BITS // 32)
    k = block_k * BLOCK_K + tl.arange(0, BLOCK_K)
    accumulator = tl.zeros((BLOCK_M, BLOCK_K), tl.float32)
    for first in range(0, N, BLOCK_N):
        columns = first + tl.arange(0, BLOCK_N)
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + columns[None, :] * stride_an,
            mask=(rows < M)[:, None] & (columns < N)[None, :],
            other=0.0,
        )
        w, scale = unpacked(words_ptr, scale_ptr, zero_ptr, columns, words, N, K, GROUP, BITS)
        w = (w * scale[:, :, None]).to(OPERAND).reshape(BLOCK_N, BLOCK_K)
        accumulator = tl.dot(a.to(OPERAND), w, accumulator)
    tl.store(
        c_ptr + rows.to(tl.int64)[:, None] * stride_cm + k[None, :] * stride_ck,
        accumulator.to(c_ptr.dtype.element_ty),
        mask=(rows < M)[:, None] & (k < K)[None, :],
    )


def quantized_matmul_reference(
    a: Any, words: Any, scales: Any, zeros: Any = None, bits: int = 4
) -> Any:
    """Return ``a @ ((q - zeros) * scales).T`` of the unsigned integers q in the words.

    Scales and zeros are repeated over the groups of K, and zeros are ``2 ** (bits - 1)`` if None.
    """
    xp = array_api_compat.array_namespace(a)
    q = xp.astype(unpack_weights(words, bits), scales.dtype)
    group = q.shape[1] // scales.shape[1]
    zeros = 2 ** (bits - 1) if zeros is None else xp.repeat(zeros, group, axis=1)
    w = (q - zeros) * xp.repeat(scales, group, axis=1)
    return xp.matmul(a, xp.astype(xp.permute_dims(w, (1, 0)), a.dtype))


def _shapes(make: Any, a: Any, words: Any, scales: Any, zeros: Any, bits: int) -> tuple[Any, ...]:
    return (make((a.shape[0], words.shape[0]), a.dtype),)


def _launch(
    run: Launcher,
    c: Any,
    a: Array,
    words: Array,
    scales: Array,
    zeros: Array | None,
    bits: int,
) -> None:
    (m, k), n = a.shape, words.shape[0]
    if m == 0 or n == 0:
        return
    words, scales, zeros = (
        None if each is None else packed(each) for each in (words, scales, zeros)
    )
    constants = {"GROUP": k // scales.shape[1], "BITS": bits}
    if m == 1:
        inner = min(2048, max(tw.next_power_of_2(k), 32))
        run(
            quantized_vector_kernel,
            (tw.cdiv(n, 4),),
            a,
            words,
            scales,
            zeros,
            c,
            n,
            k,
            strides(a)[1],
            strides(c)[1],
            BLOCK_N=4,
            BLOCK_K=inner,
            num_warps=4,
            num_stages=1,
            **constants,
        )
        return
    blocks = _blocks(m, n, k, device_of(a))
    is_split = blocks.split > 1
    target = run.empty((blocks.split, m, n), "float32") if is_split else c
    run(
        quantized_matmul_kernel,
        (tw.cdiv(m, blocks.m) * tw.cdiv(n, blocks.n), blocks.split),
        a,
        words,
        scales,
        zeros,
        target,
        m,
        n,
        k,
        *strides(a),
        *((n, 1) if is_split else strides(c)),
        BLOCK_M=blocks.m,
        BLOCK_N=blocks.n,
        BLOCK_K=blocks.k,
        GROUP_M=8,
        SPLIT=blocks.split,
        OPERAND=OPERANDS[name_of(a)],
        WEIGHTS_FIRST=blocks.m > 128,
        **constants,
        **blocks.options,
    )
    if is_split:
        columns = min(512, tw.next_power_of_2(n))
        rows = max(1024 // columns, 1)
        run(
            add_parts_kernel,
            (tw.cdiv(m, rows), tw.cdiv(n, columns)),
            target,
            c,
            None,
            None,
            None,
            m,
            n,
            m * n,
            *strides(c),
            0,
            0,
            SPLIT=blocks.split,
            BLOCK_M=rows,
            BLOCK_N=columns,
            SUM=tl.float32,
            ACTIVATION=None,
        )


@block_rule("quantized_matmul", rounded=("m",))
def _blocks(m: int, n: int, k: int, device: Device) -> Blocks:
    """Return blocks that leave registers for the conversion of the weights."""
    found = matmul_blocks(m, n, k, 16, device)
    if device.family == "cpu" or (m <= FEW_ROWS and device.family[:4] in ("cdna", "rdna")):
        return replace(found, k=max(found.k, 32))
    if m <= FEW_ROWS:
        # each iteration waits for its scales: several programs of a processor do so in turn
        tiles, steps = tw.cdiv(m, found.m) * tw.cdiv(n, 64), tw.cdiv(k, 128)
        split = max(1, min(4 * device.processors // tiles, steps // 8, MOST_PARTS))
        return replace(found, n=64, k=128, num_stages=min(found.num_stages, 4), split=split)
    if device.family == "hopper" and tw.cdiv(m, 256) * tw.cdiv(n, 128) >= device.processors:
        return Blocks(256, 128, 64, 8, 3)  # half as many conversions as with 128 rows
    return replace(found, m=min(found.m, 128), n=min(found.n, 128), num_warps=8, num_stages=3)


QUANTIZED_MATMUL = Operation(
    "quantized_matmul", ("c",), _shapes, _launch, reference=quantized_matmul_reference
)


def _backward_shapes(
    make: Any, dc: Any, words: Any, scales: Any, zeros: Any, bits: int
) -> tuple[Any, ...]:
    return (make((dc.shape[0], words.shape[1] * 32 // bits), dc.dtype),)


def _backward_launch(
    run: Launcher,
    da: Any,
    dc: Array,
    words: Array,
    scales: Array,
    zeros: Array | None,
    bits: int,
) -> None:
    (m, n), k = dc.shape, da.shape[1]
    if m == 0 or k == 0:
        return
    words, scales, zeros = (
        None if each is None else packed(each) for each in (words, scales, zeros)
    )
    blocks = _blocks(m, k, n, device_of(dc))
    blocks = replace(blocks, m=min(blocks.m, 128))
    run(
        quantized_transpose_kernel,
        (tw.cdiv(m, blocks.m) * tw.cdiv(k, max(blocks.n, 32)),),
        dc,
        words,
        scales,
        zeros,
        da,
        m,
        n,
        k,
        *strides(dc),
        *strides(da),
        GROUP=k // scales.shape[1],
        BITS=bits,
        BLOCK_M=blocks.m,
        BLOCK_N=blocks.k,
        BLOCK_K=max(blocks.n, 32),
        GROUP_M=8,
        OPERAND=OPERANDS[name_of(dc)],
        **blocks.options,
    )


QUANTIZED_MATMUL_BACKWARD = Operation(
    "quantized_matmul_backward", ("da",), _backward_shapes, _backward_launch
)


@QUANTIZED_MATMUL.differentiate(saved=("words", "scales", "zeros"))
def _gradients(saved: Any, dc: Any) -> Mapping[str, Any]:
    if "a" not in saved.needed:
        return {}
    return {"a": QUANTIZED_MATMUL_BACKWARD(dc, saved.words, saved.scales, saved.zeros, saved.bits)}


def quantized_matmul(
    a: Any, words: Any, scales: Any, zeros: Any = None, *, bits: int = 4, out: Any = None
) -> Any:
    """Compute ``a @ w.T`` for weights ``w = (q - zeros) * scales`` of unsigned integers q.

    Args:
        a: of shape (..., K), of float16, bfloat16 or float32.
        words: int32 of shape (N, K * bits / 32), see :func:`.pack_weights`; from other
            layouts by :func:`.weights_from_gptq`, :func:`.weights_from_awq` and
            :func:`.weights_from_hqq`.
        scales: of shape (N, groups); a group is a multiple of a word along K.
        zeros: of the shape of the scales, or None for ``2 ** (bits - 1)``.
        bits: 2, 4 or 8.
        out: the array for the result.

    Returns:
        An array of shape (..., N), of the type of ``a``. Weights are rounded to that type, except
        for one row, and sums are in float32.

    Raises:
        ValueError: shapes do not fit.

    Gradients: of ``a`` alone, by a kernel that unpacks the weights again.

    Sources: Frantar et al., "GPTQ", 2022; Lin et al., "AWQ", 2023; Badri and Shaji, "HQQ", 2023.
    """
    per_word = 32 // bits if bits in (2, 4, 8) else 0
    k = a.shape[-1]
    if not per_word or words.ndim != 2 or words.shape[1] * per_word != k:
        raise ValueError(
            f"words of shape {tuple(words.shape)} are no weights of {bits} bits (2, 4 or 8) for "
            f"rows of {k} elements"
        )
    groups = scales.shape[-1]
    if scales.shape[0] != words.shape[0] or groups == 0 or k % (groups * per_word):
        raise ValueError(
            f"scales of shape {tuple(scales.shape)} are not of ({words.shape[0]}, groups) with "
            f"groups that are multiples of {per_word} elements of {k}"
        )
    if zeros is not None and tuple(zeros.shape) != tuple(scales.shape):
        raise ValueError(f"zeros are of shape {tuple(zeros.shape)}, and scales of {scales.shape}")
    shape = (*a.shape[:-1], words.shape[0])
    if a.ndim == 2:
        return QUANTIZED_MATMUL(a, words, scales, zeros, bits, out=out)
    rows = a.reshape(-1, k)
    target = None if out is None else in_shape(out, (rows.shape[0], shape[-1]))
    found = QUANTIZED_MATMUL(rows, words, scales, zeros, bits, out=target)
    return returned(found, shape, out, target)
