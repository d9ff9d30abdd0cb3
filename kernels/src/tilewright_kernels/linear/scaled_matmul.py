"""Matmuls of 8-bit operands with scales of tensors, rows or blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import array_api_compat

import tilewright as tw
from tilewright_kernels.linear.alignment import (
    COPIED_BLOCK,
    copy_rows_kernel,
    is_transposed_in_memory,
)
from tilewright_kernels.linear.blocks import FEW_ROWS, MOST_PARTS, Blocks, matmul_blocks
from tilewright_kernels.linear.element_types import accumulator_of, bits_of, name_of
from tilewright_kernels.linear.epilogue import packed
from tilewright_kernels.linear.matmul_kernels import add_parts_kernel
from tilewright_kernels.linear.micro_scaled_matmul import (
    MICRO_SCALED_MATMUL,
    check_micro_scaled,
    micro_scaled_matmul_reference,
)
from tilewright_kernels.linear.micro_scaling import as_bytes
from tilewright_kernels.linear.scaled_kernels import (
    SCALED,
    persistent_scaled_kernel,
    scaled_matmul_kernel,
    scaled_vector_kernel,
)
from tilewright_kernels.operations import Array, Launcher, Operation, strides
from tilewright_kernels.operations.block_rules import block_rule
from tilewright_kernels.operations.devices import Device, device_of

_GROUP_M = 8
#: Rows up to which iterations take several blocks along K, and the number of these blocks.
_FEW_ROWS, _STEPS = 32, 4
_SCALED = SCALED.value
#: Blocks of persistent programs of matmuls with scales of blocks.
_PERSISTENT = (
    Blocks(128, 128, _SCALED, 8, 4, is_persistent=True),
    Blocks(64, 128, _SCALED, 4, 6, is_persistent=True),
    Blocks(128, 64, _SCALED, 4, 6, is_persistent=True),
    Blocks(64, 64, _SCALED, 4, 8, is_persistent=True),
    Blocks(64, 32, _SCALED, 4, 12, is_persistent=True),
)
#: 8-bit multiplications and additions of a processor per cycle; cycles of an iteration at least,
#: and before the first and after the last of a block.
_MULTIPLICATIONS, _LATENCY, _START = 4096, 430, 1600
_EIGHT_BITS = ("float8_e4m3fn", "float8_e5m2", "int8")
#: Types of scales that are powers of two, for blocks of 32 elements along K.
_EXPONENTS = ("uint8", "float8_e8m0fnu")


def scaled_matmul_reference(a: Any, b: Any, a_scale: Any, b_scale: Any, bias: Any = None) -> Any:
    """Return ``(a * a_scale) @ (b * b_scale) + bias``, with scales repeated over their blocks.

    The types are those of the scales; float32 where these are exponents.
    """
    if name_of(a_scale) in _EXPONENTS:
        return micro_scaled_matmul_reference(a, b, a_scale, b_scale, bias)
    xp = array_api_compat.array_namespace(a_scale)

    def spread(scale: Any, shape: Any, axis: int) -> Any:
        if scale.ndim < 2 or scale.shape[axis] in (1, shape[axis]):
            return scale
        repeated = xp.repeat(scale, _SCALED, axis=axis)
        return repeated[: shape[0], :] if axis == 0 else repeated[:, : shape[1]]

    left = xp.astype(a, a_scale.dtype) * spread(a_scale, a.shape, 1)
    right = xp.astype(b, b_scale.dtype) * spread(spread(b_scale, b.shape, 0), b.shape, 1)
    c = xp.matmul(left, right)
    return c if bias is None else c + bias


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
    (m, k), n = a.shape, b.shape[1]
    if m == 0 or n == 0:
        return
    bias = None if bias is None else packed(bias)
    a_kind, b_kind = _kind(a_scale, m, k, 1), _kind(b_scale, n, k, 0)
    device = device_of(a)
    if _is_vector(a, b, device):
        _launch_vector(run, c, a, b, a_scale, b_scale, bias, (a_kind, b_kind), device)
        return
    may_persist = (
        device.family in ("hopper", "blackwell")
        and k > 0
        and is_transposed_in_memory(a) is False
        and is_transposed_in_memory(b) is True
        and is_transposed_in_memory(c) is False
        and bits_of(name_of(c)) <= 16
    )
    has_blocks = "block" in (a_kind, b_kind)
    blocks = _blocks(m, n, k, device, has_blocks, may_persist)
    tiles = tw.cdiv(m, blocks.m) * tw.cdiv(n, blocks.n)
    a_steps = _scale_strides(a_scale, a_kind)
    if blocks.is_persistent and blocks.m > 64 and a_kind == "block" and a_steps[0] != 1:
        a_scale, a_steps = _by_columns(run, a_scale), (1, m)
    scales = (*a_steps, *_scale_strides(b_scale, b_kind))
    constants = {
        "BLOCK_M": blocks.m,
        "BLOCK_N": blocks.n,
        "BLOCK_K": blocks.k,
        "GROUP_M": _GROUP_M,
        "A_SCALES": a_kind,
        "B_SCALES": b_kind,
        "SUM": accumulator_of(name_of(a)),
        **blocks.options,
    }
    if blocks.is_persistent:
        programs = min(tiles, device.processors)
        run(
            persistent_scaled_kernel,
            (programs,),
            a,
            b,
            c,
            a_scale,
            b_scale,
            bias,
            m,
            n,
            k,
            strides(a)[0],
            strides(b)[1],
            strides(c)[0],
            *scales,
            PROGRAMS=programs,
            **constants,
        )
        return
    is_split = blocks.split > 1
    target = run.empty((blocks.split, m, n), "float32") if is_split else c
    run(
        scaled_matmul_kernel,
        (tiles, blocks.split),
        a,
        b,
        target,
        a_scale,
        b_scale,
        None if is_split else bias,
        m,
        n,
        k,
        *strides(a),
        *strides(b),
        *((n, 1) if is_split else strides(c)),
        *scales,
        SPLIT=blocks.split,
        STEPS=_steps(m, k, device) if has_blocks else 1,
        EVEN_K=k % blocks.k == 0,
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
            bias,
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
            SUM=accumulator_of("float32"),
            ACTIVATION=None,
        )


def _is_vector(a: Any, b: Any, device: Device) -> bool:
    """Return whether ``a`` is one row on a GPU, and a program reads rows of B [N, K]."""
    k = b.shape[0]
    in_rows = k == 1 or strides(a)[1] == strides(b)[0] == 1
    return device.family != "cpu" and a.shape[0] == 1 and k > 0 and in_rows


def _launch_vector(
    run: Launcher,
    c: Any,
    a: Any,
    b: Any,
    a_scale: Any,
    b_scale: Any,
    bias: Any,
    kinds: tuple[str, str],
    device: Device,
) -> None:
    """Launch the kernel for one row and a matrix whose memory is [N, K].

    A thread has 64 bytes of B in an iteration. Programs of eight columns read the row fewer times
    than those of four, which are enough for all processors where there are few columns.
    """
    k, n = b.shape
    columns = 8 if tw.cdiv(n, 8) >= 2 * device.processors else 4
    inner = min(max(tw.next_power_of_2(k), _SCALED), 1024)
    run(
        scaled_vector_kernel,
        (tw.cdiv(n, columns),),
        a,
        b,
        c,
        a_scale,
        b_scale,
        bias,
        n,
        k,
        strides(b)[1],
        strides(c)[1],
        _scale_strides(a_scale, kinds[0])[1],
        *_scale_strides(b_scale, kinds[1]),
        BLOCK_N=columns,
        BLOCK_K=inner,
        EVEN_K=k % inner == 0,
        A_SCALES=kinds[0],
        B_SCALES=kinds[1],
        SUM=accumulator_of(name_of(a)),
        num_warps=max(columns * inner // 2048, 1),
        num_stages=1,
    )


def _by_columns(run: Launcher, scale: Any) -> Any:
    """Return a copy [K / 128, M] of scales [M, K / 128], whose rows in a block are one vector."""
    rows, columns = scale.shape
    copy = run.empty((columns, rows), "float32")
    row_step, column_step = strides(scale)
    run(
        copy_rows_kernel,
        (tw.cdiv(columns, COPIED_BLOCK), tw.cdiv(rows, COPIED_BLOCK)),
        scale,
        copy,
        columns,
        rows,
        rows,
        column_step,
        row_step,
        BLOCK=COPIED_BLOCK,
    )
    return copy


@block_rule("scaled_matmul", rounded=("m",))
def _blocks(m: int, n: int, k: int, device: Device, has_blocks: bool, may_persist: bool) -> Blocks:
    """Return blocks; those with scales of their own are of 128 elements along K."""
    found = matmul_blocks(m, n, k, 8, device, may_persist=may_persist)
    if not has_blocks or device.family == "cpu":
        return found
    if may_persist and m > _FEW_ROWS:
        # programs on half of the processors at least, or parts along K are faster
        fitting = [
            one
            for one in _PERSISTENT
            if found.is_persistent or 2 * tw.cdiv(m, one.m) * tw.cdiv(n, one.n) >= device.processors
        ]
        if fitting:
            return min(fitting, key=lambda one: _cycles(one, m, n, k, device))
    found = replace(found, is_persistent=False)
    is_hopper = device.family in ("hopper", "blackwell")
    # a second accumulator takes the matmul of a block
    columns = min(max(found.n, 32), 128)
    split = max(found.split, device.processors // (tw.cdiv(m, found.m) * tw.cdiv(n, columns)))
    stages = 4 if not is_hopper or m > FEW_ROWS or _steps(m, k, device) > 1 else 8
    split = max(min(split, tw.cdiv(k, _SCALED) // 8, MOST_PARTS), 1)
    return replace(found, n=columns, k=_SCALED, num_stages=stages, split=split)


def _cycles(blocks: Blocks, m: int, n: int, k: int, device: Device) -> float:
    """Return the modelled cycles of persistent programs whose results are scaled.

    A matmul takes twice the time of the matrix instructions, and an iteration that of its chain of
    waits at least.
    """
    rounds = tw.cdiv(tw.cdiv(m, blocks.m) * tw.cdiv(n, blocks.n), device.processors)
    iteration = max(_LATENCY, 2 * blocks.m * blocks.n * blocks.k / _MULTIPLICATIONS)
    return rounds * (tw.cdiv(k, blocks.k) * iteration + _START)


def _steps(m: int, k: int, device: Device) -> int:
    """Return the blocks along K that an iteration for few rows multiplies, one after the other."""
    is_even = k % (_STEPS * _SCALED) == 0
    return _STEPS if device.family in ("hopper", "blackwell") and m <= _FEW_ROWS and is_even else 1


def _kind(scale: Any, extent: int, k: int, axis: int) -> str:
    """Return whether a scale is of a tensor, of rows (columns of B), or of blocks along K."""
    if scale.ndim < 2:
        return "tensor"
    if scale.shape[axis] == 1 and scale.shape[1 - axis] == extent:
        return "row"
    return "block"


def _scale_strides(scale: Any, kind: str) -> tuple[int, ...]:
    return (0, 0) if kind == "tensor" else strides(scale)


SCALED_MATMUL = Operation(
    "scaled_matmul", ("c",), _shapes, _launch, reference=scaled_matmul_reference
)


def scaled_matmul(
    a: Any,
    b: Any,
    a_scale: Any,
    b_scale: Any,
    bias: Any = None,
    *,
    out_dtype: str = "bfloat16",
    out: Any = None,
) -> Any:
    """Compute ``(a * a_scale) @ (b * b_scale) + bias`` for operands of 8 or 4 bits.

    Args:
        a: of shape (M, K), of float8_e4m3fn, float8_e5m2 or int8. In the micro-scaling format
            MXFP4, it has the shape (M, K / 2) and type uint8: a byte holds two elements of
            float4_e2m1, the first one in its lower half.
        b: of shape (K, N), of a float8 type if ``a`` has one, and of int8 if ``a`` is int8; in
            MXFP4 of shape (K / 2, N) and type uint8. On GPUs, the transpose of an (N, K) matrix in
            C order is fastest.
        a_scale: of float32 and shape () or (1,) for one scale, (M, 1) for a scale of each row, or
            (M, K / 128) for blocks of 1 x 128. In the micro-scaling formats MXFP8 and MXFP4, it is
            of uint8 or float8_e8m0fnu and shape (M, K / 32).
        b_scale: of float32 and shape () or (1,) for one scale, (1, N) for a scale of each column,
            or (K / 128, N / 128) for blocks of 128 x 128, with both quotients rounded up. In
            micro-scaling formats, it has the shape (K / 32, N).
        bias: of shape (N,), or None.
        out_dtype: the name of the result's type.
        out: the array for the result.

    Returns:
        An array of shape (M, N). With scales in float32, the kernel adds the products of the
        elements that share a scale, multiplies this sum by the scales, and adds the scaled sums in
        float32. Operands in MXFP8 and MXFP4 are multiplied as ``tl.dot_scaled``
        multiplies them.

    Raises:
        ValueError: the shapes of the arguments do not match.
        TypeError: the types of the operands are not supported.

    Source: DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.3 (scales of blocks).
    """
    if name_of(a_scale) in _EXPONENTS:
        a_scale, b_scale = as_bytes(a_scale), as_bytes(b_scale)
        check_micro_scaled(a, b, a_scale, b_scale)
        return MICRO_SCALED_MATMUL(a, b, a_scale, b_scale, bias, out_dtype, out=out)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(f"operands are (M, K) and (K, N), not {a.shape} and {b.shape}")
    names = name_of(a), name_of(b)
    if any(name not in _EIGHT_BITS for name in names) or ("int8" in names and names[0] != names[1]):
        raise TypeError(f"operands are of {', '.join(_EIGHT_BITS)}, not of {' and '.join(names)}")
    (m, k), n = a.shape, b.shape[1]
    blocks = tw.cdiv(k, _SCALED)
    for name, scale, shapes in (
        ("a_scale", a_scale, ((), (1,), (m, 1), (m, blocks))),
        ("b_scale", b_scale, ((), (1,), (1, n), (blocks, tw.cdiv(n, _SCALED)))),
    ):
        if tuple(scale.shape) not in shapes:
            expected = ", ".join(map(str, shapes))
            raise ValueError(f"{name} has the shape {tuple(scale.shape)}: it must be {expected}")
        if name_of(scale) != "float32":
            raise TypeError(f"{name} is of {name_of(scale)}, and must be of float32")
    return SCALED_MATMUL(a, b, a_scale, b_scale, bias, out_dtype, out=out)
