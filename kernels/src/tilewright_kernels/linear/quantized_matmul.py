"""Matmul of float rows and weights of 2, 4 or 8 bits with scales of groups along K."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.linear.alignment import is_transposed_in_memory
from tilewright_kernels.linear.blocks import FEW_ROWS, MOST_PARTS, Blocks, matmul_blocks
from tilewright_kernels.linear.element_types import OPERANDS, name_of
from tilewright_kernels.linear.epilogue import packed
from tilewright_kernels.linear.leading_axes import in_shape, returned
from tilewright_kernels.linear.matmul import launch_matmul
from tilewright_kernels.linear.matmul_kernels import add_parts_kernel
from tilewright_kernels.linear.packed.packed_weights import columns_of, unpack_weights
from tilewright_kernels.linear.packed.quantized_kernels import (
    persistent_quantized_kernel,
    quantized_few_rows_kernel,
    quantized_matmul_kernel,
    quantized_transpose_kernel,
    quantized_vector_kernel,
    quantized_words_kernel,
    unpack_weights_kernel,
)
from tilewright_kernels.operations import Array, Launcher, Operation, strides
from tilewright_kernels.operations.block_rules import block_rule
from tilewright_kernels.operations.devices import Device, device_of

#: Families whose matrix instructions have lanes with two neighbours, and the two 8 elements behind.
_MMA_SYNC = ("ampere", "ada", "hopper", "blackwell")
#: Rows from which on it is faster to unpack the weights to memory, and to multiply by those: than
#: by persistent programs, and than by others.
_MANY_ROWS_PERSISTENT, _MANY_ROWS = 1280, 256
#: Blocks of persistent programs on Hopper, and the cycles of 64 elements along K (1300 and 1500 in
#: two runs of the first); cycles before the first and after the last of a block.
_PERSISTENT = {
    Blocks(256, 128, 64, 8, 3, is_persistent=True): 1400,
    Blocks(128, 128, 64, 8, 5, is_persistent=True): 840,
    Blocks(128, 64, 128, 4, 4, is_persistent=True): 440,
}
_START = 1600


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
    return (make((a.shape[0], words.shape[1]), a.dtype),)


def _launch(
    run: Launcher,
    c: Any,
    a: Array,
    words: Array,
    scales: Array,
    zeros: Array | None,
    bits: int,
) -> None:
    (m, k), n = a.shape, words.shape[1]
    if m == 0 or n == 0:
        return
    device = device_of(a)
    if FEW_ROWS < m < _MANY_ROWS_PERSISTENT and device.family == "hopper":
        weights = _Weights(words, scales, zeros, bits, k)
        fitting = [each for each in _PERSISTENT if weights.may_persist(each.k)]
        if fitting and _may_persist(a, c):
            blocks = _fastest(fitting, m, n, k, device)
            _launch_persistent(run, blocks, c, a, weights, device)
            return
    if _unpacks_first(m, device):
        # with rows along K, unless the launcher has no strides
        is_transposed = not (hasattr(a, "stride") or hasattr(a, "strides"))
        w = _unpacked(run, words, scales, zeros, bits, a.dtype, is_transposed=is_transposed)
        launch_matmul(run, c, None, a, w if is_transposed else w.T)
        return
    weights = _Weights(words, scales, zeros, bits, k)
    has_few_rows = (
        m <= FEW_ROWS and device.family in _MMA_SYNC and name_of(a) in ("float16", "bfloat16")
    )
    if m == 1 and not has_few_rows:
        if device.family == "cpu":
            kernel, most = quantized_words_kernel, 128
            rows = max(16, min(64, tw.next_power_of_2(n // (4 * device.processors))))
        else:
            kernel, most, rows = quantized_vector_kernel, 512, 16
        inner = min(most, tw.next_power_of_2(k))
        run(
            kernel,
            (tw.cdiv(n, rows),),
            a,
            *weights.arrays,
            c,
            n,
            k,
            strides(a)[1],
            strides(c)[1],
            *weights.strides,
            BLOCK_N=rows,
            BLOCK_K=inner,
            num_warps=4,
            num_stages=1,
            **weights.constants(inner),
        )
        return
    blocks = (_few_rows_blocks if has_few_rows else _blocks)(m, n, k, device)
    is_split = blocks.split > 1
    target = run.empty((blocks.split, m, n), "float32") if is_split else c
    arguments = (
        a,
        *weights.arrays,
        target,
        m,
        n,
        k,
        *strides(a),
        *((n, 1) if is_split else strides(c)),
        *weights.strides,
    )
    constants = {
        "BLOCK_M": blocks.m,
        "BLOCK_N": blocks.n,
        "BLOCK_K": blocks.k,
        "SPLIT": blocks.split,
        "OPERAND": OPERANDS[name_of(a)],
        **weights.constants(blocks.k),
        **blocks.options,
    }
    if has_few_rows:
        grid = tw.cdiv(n, blocks.n), blocks.split
        run(quantized_few_rows_kernel, grid, *arguments, **constants)
    else:
        run(
            quantized_matmul_kernel,
            (tw.cdiv(m, blocks.m) * tw.cdiv(n, blocks.n), blocks.split),
            *arguments,
            GROUP_M=8,
            **constants,
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


def _launch_persistent(
    run: Launcher, blocks: Blocks, c: Any, a: Any, weights: _Weights, device: Device
) -> None:
    (m, k), n = a.shape, c.shape[1]
    programs = min(tw.cdiv(m, blocks.m) * tw.cdiv(n, blocks.n), device.processors)
    run(
        persistent_quantized_kernel,
        (programs,),
        a,
        *weights.arrays,
        c,
        m,
        n,
        k,
        strides(a)[0],
        strides(c)[0],
        *weights.strides,
        BLOCK_M=blocks.m,
        BLOCK_N=blocks.n,
        BLOCK_K=blocks.k,
        GROUP_M=8,
        PROGRAMS=programs,
        OPERAND=OPERANDS[name_of(a)],
        DIVISOR_N=8 if n % 8 == 0 else 1,
        **weights.constants(blocks.k),
        **blocks.options,
    )


def _may_persist(a: Any, c: Any) -> bool:
    """Return whether TMA copies blocks of rows and results, of 16 bits."""
    return name_of(a) in ("float16", "bfloat16") and all(
        is_transposed_in_memory(each) is False for each in (a, c)
    )


class _Weights:
    """Packed weights as the kernels take them: words, scales, zeros, and the strides of these."""

    def __init__(self, words: Any, scales: Any, zeros: Any, bits: int, k: int) -> None:
        self.arrays = packed(words), scales, zeros
        self.strides = *strides(scales), *((0, 0) if zeros is None else strides(zeros))
        self._bits, self._group = bits, k // scales.shape[1]
        self._run = words.shape[2] * 32 // bits

    def may_persist(self, block_k: int) -> bool:
        """Return whether blocks are within runs and groups, and TMA copies their scales."""
        return (
            self._run % block_k == self._group % block_k == 0
            and self.strides[0] == 1
            and (self.arrays[2] is None or self.strides[2] == 1)
        )

    def constants(self, block_k: int) -> dict[str, Any]:
        """Return the constants of kernels whose blocks have ``block_k`` elements along K.

        A granule has one scale, which is its group's: it is a block within a group, or a word.
        """
        granule = 32 // self._bits if self._group % block_k else block_k
        return {
            "GROUP": self._group,
            "BITS": self._bits,
            "RUN": self._run,
            "GRANULE": granule,
        }


def _unpacks_first(m: int, device: Device) -> bool:
    """Return whether to store the weights in the type of the rows, and to multiply by those.

    The kernels that unpack weights for each block of rows reach about half the rate of a matmul.
    """
    return device.family != "cpu" and m >= _MANY_ROWS


def _unpacked(
    run: Launcher,
    words: Any,
    scales: Any,
    zeros: Any,
    bits: int,
    dtype: Any,
    *,
    is_transposed: bool,
) -> Any:
    """Store the weights to scratch memory of shape (N, K), or (K, N) if transposed."""
    n, k = words.shape[1], columns_of(words, bits)
    w = run.empty((k, n) if is_transposed else (n, k), dtype)
    weights = _Weights(words, scales, zeros, bits, k)
    inner = 128
    run(
        unpack_weights_kernel,
        (tw.cdiv(k, inner), tw.cdiv(n, 64)),
        *weights.arrays,
        w,
        n,
        k,
        *((1, n) if is_transposed else (k, 1)),
        *weights.strides,
        BLOCK_N=64,
        BLOCK_K=inner,
        num_warps=4,
        **weights.constants(inner),
    )
    return w


@block_rule("quantized_matmul_few_rows", rounded=("m",))
def _few_rows_blocks(m: int, n: int, k: int, device: Device) -> Blocks:
    """Return blocks of the kernel for few rows, eight programs of two warps per processor."""
    rows = max(8, tw.next_power_of_2(m))
    tiles, steps = tw.cdiv(n, 64), tw.cdiv(k, 128)
    split = max(1, min(tw.cdiv(8 * device.processors, tiles), steps // 4, MOST_PARTS))
    return Blocks(rows, 64, 128, 2, 2, tw.cdiv(steps, tw.cdiv(steps, split)))


def _fastest(candidates: Sequence[Blocks], m: int, n: int, k: int, device: Device) -> Blocks:
    """Return the blocks of persistent programs whose rounds take the fewest cycles."""

    def cycles(blocks: Blocks) -> int:
        rounds = tw.cdiv(tw.cdiv(m, blocks.m) * tw.cdiv(n, blocks.n), device.processors)
        return rounds * (_PERSISTENT[blocks] * tw.cdiv(k, 64) + _START)

    return min(candidates, key=cycles)


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
    return replace(found, m=min(found.m, 128), n=min(found.n, 128), num_warps=8, num_stages=3)


QUANTIZED_MATMUL = Operation(
    "quantized_matmul", ("c",), _shapes, _launch, reference=quantized_matmul_reference
)


def _backward_shapes(
    make: Any, dc: Any, words: Any, scales: Any, zeros: Any, bits: int
) -> tuple[Any, ...]:
    return (make((dc.shape[0], columns_of(words, bits)), dc.dtype),)


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
    device = device_of(dc)
    if _unpacks_first(m, device):
        w = _unpacked(run, words, scales, zeros, bits, dc.dtype, is_transposed=False)
        launch_matmul(run, da, None, dc, w)
        return
    weights = _Weights(words, scales, zeros, bits, k)
    blocks = _blocks(m, k, n, device)
    blocks = replace(blocks, m=min(blocks.m, 128))
    inner = max(blocks.n, 32)
    run(
        quantized_transpose_kernel,
        (tw.cdiv(m, blocks.m) * tw.cdiv(k, inner),),
        dc,
        *weights.arrays,
        da,
        m,
        n,
        k,
        *strides(dc),
        *strides(da),
        *weights.strides,
        BLOCK_M=blocks.m,
        BLOCK_N=blocks.k,
        BLOCK_K=inner,
        GROUP_M=8,
        OPERAND=OPERANDS[name_of(dc)],
        **weights.constants(inner),
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
    """Compute ``a @ w.T`` for weights ``w = (q - zeros) * scales``, where q are unsigned integers.

    Args:
        a: of shape (..., K), of float16, bfloat16 or float32.
        words: the weights of shape (N, K), packed by :func:`.pack_weights` to int32, or converted
            from other layouts by :func:`.weights_from_gptq`, :func:`.weights_from_awq` or
            :func:`.weights_from_hqq`.
        scales: of shape (N, groups), of any strides. A group consists of whole words along K. If
            ``a`` has few rows, the matmul is fastest if the scales of a group are contiguous in
            memory (the stride of N is 1), as the conversion functions return them.
        zeros: of the shape of ``scales``; None means that all zeros are ``2 ** (bits - 1)``.
        bits: 2, 4 or 8.
        out: the array for the result.

    Returns:
        An array of shape (..., N) with the element type of ``a``. If the kernel uses matrix
        instructions, ``q - zeros`` and the weights are rounded to the type of ``a``. Sums are
        computed in float32.

    Raises:
        ValueError: the shapes of the arguments do not match.

    Gradients: of ``a`` alone, by a kernel that unpacks the weights again.

    Sources: Frantar et al., "GPTQ", 2022; Lin et al., "AWQ", 2023; Badri and Shaji, "HQQ", 2023.
    """
    per_word = 32 // bits if bits in (2, 4, 8) else 0
    k = a.shape[-1]
    if not per_word or words.ndim != 3 or columns_of(words, bits) != k:
        raise ValueError(
            f"words of shape {tuple(words.shape)} are no weights of {bits} bits (2, 4 or 8) for "
            f"rows of {k} elements"
        )
    groups = scales.shape[-1]
    if scales.shape[0] != words.shape[1] or groups == 0 or k % (groups * per_word):
        raise ValueError(
            f"scales of shape {tuple(scales.shape)} are not of ({words.shape[1]}, groups) with "
            f"groups that are multiples of {per_word} elements of {k}"
        )
    if zeros is not None and tuple(zeros.shape) != tuple(scales.shape):
        raise ValueError(f"zeros are of shape {tuple(zeros.shape)}, and scales of {scales.shape}")
    shape = (*a.shape[:-1], words.shape[1])
    if a.ndim == 2:
        return QUANTIZED_MATMUL(a, words, scales, zeros, bits, out=out)
    rows = a.reshape(-1, k)
    target = None if out is None else in_shape(out, (rows.shape[0], shape[-1]))
    found = QUANTIZED_MATMUL(rows, words, scales, zeros, bits, out=target)
    return returned(found, shape, out, target)
