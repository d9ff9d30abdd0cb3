"""Rotary position embedding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation, strides
from tilewright_kernels.rows.shapes import contiguous, is_on_gpu

#: Elements of a program's tile on a GPU.
_TILE = 4096


@tw.jit
def rotary_kernel(
    x_ptr,
    cos_ptr,
    sin_ptr,
    y_ptr,
    heads,
    half,
    width,
    x_batch_stride,
    x_row_stride,
    x_head_stride,
    y_batch_stride,
    y_row_stride,
    y_head_stride,
    angle_batch_stride,
    angle_row_stride,
    INTERLEAVED: tl.constexpr,
    INVERSE: tl.constexpr,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
    REST: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Rotate heads of a row.

    EVEN: heads fill their blocks, and pairs their lanes, so that no lane is masked off.
    """
    if EVEN:
        half = HALF
    row = tl.program_id(0).to(tl.int64)
    batch = tl.program_id(1).to(tl.int64)
    head = tl.program_id(2) * HEADS + tl.arange(0, HEADS)[:, None]
    lane = tl.arange(0, HALF)[None, :]
    x_ptr += batch * x_batch_stride + row * x_row_stride + head.to(tl.int64) * x_head_stride
    y_ptr += batch * y_batch_stride + row * y_row_stride + head.to(tl.int64) * y_head_stride
    angles = batch * angle_batch_stride + row * angle_row_stride + lane
    of_half = lane < half
    cos = tl.load(cos_ptr + angles, mask=of_half, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + angles, mask=of_half, other=0.0).to(tl.float32)
    if INVERSE:
        sin = -sin
    if INTERLEAVED:
        columns = tl.arange(0, 2 * HALF)[None, :]
        of_pairs = columns < 2 * half
        inside = of_pairs if EVEN else (head < heads) & of_pairs
        pairs = tl.load(x_ptr + columns, mask=inside, other=0.0).to(tl.float32)
        first, second = tl.split(tl.reshape(pairs, [HEADS, HALF, 2]))
        rotated = tl.join(first * cos - second * sin, second * cos + first * sin)
        rotated = tl.reshape(rotated, [HEADS, 2 * HALF])
        if REST > 0:
            rest = 2 * half + tl.arange(0, REST)[None, :]
            kept = (head < heads) & (rest < width)
            tl.store(y_ptr + rest, tl.load(x_ptr + rest, mask=kept), mask=kept)
        tl.store(y_ptr + columns, rotated, mask=inside)
    else:
        inside = of_half if EVEN else (head < heads) & of_half
        first = tl.load(x_ptr + lane, mask=inside, other=0.0).to(tl.float32)
        second = tl.load(x_ptr + half + lane, mask=inside, other=0.0).to(tl.float32)
        if REST > 0:
            rest = 2 * half + tl.arange(0, REST)[None, :]
            kept = (head < heads) & (rest < width)
            tl.store(y_ptr + rest, tl.load(x_ptr + rest, mask=kept), mask=kept)
        tl.store(y_ptr + lane, first * cos - second * sin, mask=inside)
        tl.store(y_ptr + half + lane, second * cos + first * sin, mask=inside)


def rotary_reference(
    x: Any, cos: Any, sin: Any, interleaved: bool = False, inverse: bool = False
) -> Any:
    """Rotate pairs of elements of each head by the angles of its row."""
    xp = array_api_compat.array_namespace(x)
    half = cos.shape[-1]
    cos, sin = cos[..., None, :], (-sin if inverse else sin)[..., None, :]
    rest = x[..., 2 * half :]
    if interleaved:
        first, second = x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2]
    else:
        first, second = x[..., :half], x[..., half : 2 * half]
    rotated = (first * cos - second * sin, second * cos + first * sin)
    if interleaved:
        pairs = xp.reshape(xp.stack(rotated, axis=-1), (*x.shape[:-1], 2 * half))
        return xp.concat((pairs, rest), axis=-1)
    return xp.concat((*rotated, rest), axis=-1)


def _shapes(
    make: Any, x: Any, cos: Any, sin: Any, interleaved: bool, inverse: bool
) -> tuple[Any, ...]:
    if len(x.shape) not in (3, 4):
        raise ValueError(
            f"x has {len(x.shape)} axes: give (rows, heads, width) or (batch, rows, heads, width)"
        )
    rows = tuple(x.shape[:-2])
    if tuple(cos.shape) != tuple(sin.shape) or tuple(cos.shape[:-1]) not in (rows, rows[-1:]):
        raise ValueError(
            f"cos and sin have the shapes {tuple(cos.shape)} and {tuple(sin.shape)}: give "
            f"{(*rows[-1:], 'half')} or {(*rows, 'half')} for an x of {tuple(x.shape)}"
        )
    if 2 * cos.shape[-1] > x.shape[-1]:
        raise ValueError(
            f"cos has {cos.shape[-1]} columns, and heads of {x.shape[-1]} elements at most "
            f"{x.shape[-1] // 2} pairs: give an angle once for each pair"
        )
    return (make(x.shape, x.dtype),)


def _launch(
    run: Launcher,
    y: Any,
    x: Array,
    cos: Array,
    sin: Array,
    interleaved: bool = False,
    inverse: bool = False,
) -> None:
    cos, sin = contiguous(cos), contiguous(sin)
    if x.shape[-1] > 1 and strides(x)[-1] != 1:
        x = contiguous(x)
    *batches, rows, heads, width = x.shape
    batch = batches[0] if batches else 1
    half = cos.shape[-1]
    x_steps, y_steps = ([0, *strides(each)[:-1]][-3:] for each in (x, y))
    lanes = tw.next_power_of_2(max(half, 1))
    head_block = min(tw.next_power_of_2(max(heads, 1)), max(_TILE // (2 * lanes), 1))
    run(
        rotary_kernel,
        (rows, batch, tw.cdiv(heads, head_block)),
        x,
        cos,
        sin,
        y,
        heads,
        half,
        width,
        *x_steps,
        *y_steps,
        rows * half if len(cos.shape) == 3 else 0,
        half,
        INTERLEAVED=interleaved,
        INVERSE=inverse,
        HEADS=head_block,
        HALF=lanes,
        REST=0 if width == 2 * half else tw.next_power_of_2(width - 2 * half),
        EVEN=half == lanes and heads % head_block == 0,
        num_warps=min(max(head_block * lanes // 256, 1), 4) if is_on_gpu(x) else 4,
    )


ROTARY = Operation("rotary", ("y",), _shapes, _launch, reference=rotary_reference)


@ROTARY.differentiate(saved=("cos", "sin"))
def _gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    return {"x": ROTARY(dy, saved.cos, saved.sin, saved.interleaved, not saved.inverse)}


def rotary(
    x: Any,
    cos: Any,
    sin: Any,
    *,
    interleaved: bool = False,
    inverse: bool = False,
    out: Any = None,
) -> Any:
    """Apply rotary embedding: rotate the pairs of elements in a row's heads by the row's angles.

    Args:
        x: queries or keys of shape (rows, heads, width) or (batch, rows, heads, width), of float16,
            bfloat16 or float32, of any strides. If your arrays have the shape (batch, heads, rows,
            width), pass a transposed view.
        cos: cosines of shape (rows, half) or (batch, rows, half). The first ``2 * half`` elements
            of a head are rotated in pairs, and the others are copied.
        sin: sines of the shape of ``cos``.
        interleaved: whether a pair consists of two neighbours (GPT-J), not of one element from each
            half (GPT-NeoX, Llama).
        inverse: whether to rotate by the negative angles.
        out: the array for the result, which may be ``x`` itself.

    Returns:
        An array with the shape and element type of ``x``. To compute the gradient of ``x``, the
        backward pass applies the inverse rotation to the gradient of the result. ``cos`` and
        ``sin`` have no gradients.

    Raises:
        ValueError: the shapes of the arguments do not match.

    Source: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.
    """
    return ROTARY(x, cos, sin, interleaved, inverse, out=out)
