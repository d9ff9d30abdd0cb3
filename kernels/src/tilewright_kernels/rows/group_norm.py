"""Group norm of images: over the channels of a group and all places."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import Array, Launcher, Operation
from tilewright_kernels.rows.shapes import contiguous, is_on_gpu

_BLOCK = 4096
#: Places of a channel from which on blocks lie in one channel on a CPU.
_MIN_PLACES = 32


@tw.jit
def group_norm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    groups,
    channels_of_group,
    n_places,
    eps,
    WHOLE: tl.constexpr,
    BY_CHANNEL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Normalize a group, which lies in one piece: its channels, each with all places.

    By channel, blocks lie in one channel each, and load its weight once.
    """
    row = tl.program_id(0).to(tl.int64)
    n = channels_of_group * n_places
    x_ptr += row * n
    y_ptr += row * n
    first = (tl.program_id(0) % groups) * channels_of_group
    columns = tl.arange(0, BLOCK)
    if WHOLE:
        x = tl.load(x_ptr + columns, mask=columns < n, other=0.0).to(tl.float32)
        mean = tl.sum(x, axis=0) / n
        x = tl.where(columns < n, x - mean, 0.0)
        rstd = tl.rsqrt(tl.sum(x * x, axis=0) / n + eps)
        y = x * rstd
        channel = first + columns // n_places
        if weight_ptr is not None:
            y *= tl.load(weight_ptr + channel, mask=columns < n, other=0.0).to(tl.float32)
        if bias_ptr is not None:
            y += tl.load(bias_ptr + channel, mask=columns < n, other=0.0).to(tl.float32)
        tl.store(y_ptr + columns, y, mask=columns < n)
    else:
        parts = tl.zeros([BLOCK], tl.float32)
        for start in range(0, n, BLOCK):
            inside = start + columns < n
            parts += tl.load(x_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
        mean = tl.sum(parts, axis=0) / n
        parts = tl.zeros([BLOCK], tl.float32)
        for start in range(0, n, BLOCK):
            inside = start + columns < n
            x = tl.load(x_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
            x = tl.where(inside, x - mean, 0.0)
            parts += x * x
        rstd = tl.rsqrt(tl.sum(parts, axis=0) / n + eps)
        if BY_CHANNEL:
            for channel in range(channels_of_group):
                weight, bias = 1.0, 0.0
                if weight_ptr is not None:
                    weight = tl.load(weight_ptr + first + channel).to(tl.float32)
                if bias_ptr is not None:
                    bias = tl.load(bias_ptr + first + channel).to(tl.float32)
                for start in range(0, n_places, BLOCK):
                    inside = start + columns < n_places
                    places = channel * n_places + start + columns
                    x = tl.load(x_ptr + places, mask=inside, other=0.0).to(tl.float32)
                    tl.store(y_ptr + places, (x - mean) * rstd * weight + bias, mask=inside)
        else:
            for start in range(0, n, BLOCK):
                inside = start + columns < n
                channel = first + (start + columns) // n_places
                x = tl.load(x_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
                y = (x - mean) * rstd
                if weight_ptr is not None:
                    y *= tl.load(weight_ptr + channel, mask=inside, other=0.0).to(tl.float32)
                if bias_ptr is not None:
                    y += tl.load(bias_ptr + channel, mask=inside, other=0.0).to(tl.float32)
                tl.store(y_ptr + start + columns, y, mask=inside)
    if rstd_ptr is not None:
        tl.store(mean_ptr + row, mean)
        tl.store(rstd_ptr + row, rstd)


@tw.jit
def channel_sums_kernel(
    dy_ptr,
    x_ptr,
    mean_ptr,
    rstd_ptr,
    d_weight_parts_ptr,
    d_bias_parts_ptr,
    channels_of_group,
    n_places,
    BLOCK: tl.constexpr,
):
    """Sum the cotangents of a channel of an image, alone and times what was normalized."""
    channel = tl.program_id(0).to(tl.int64)
    group = channel // channels_of_group
    mean, rstd = tl.load(mean_ptr + group), tl.load(rstd_ptr + group)
    d_weight = tl.zeros([BLOCK], tl.float32)
    d_bias = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_places, BLOCK):
        places = start + tl.arange(0, BLOCK)
        inside = places < n_places
        dy = tl.load(dy_ptr + channel * n_places + places, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + channel * n_places + places, mask=inside, other=0.0).to(tl.float32)
        d_weight += dy * (x - mean) * rstd
        d_bias += dy
    tl.store(d_weight_parts_ptr + channel, tl.sum(d_weight, axis=0))
    tl.store(d_bias_parts_ptr + channel, tl.sum(d_bias, axis=0))


@tw.jit
def input_gradient_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    mean_ptr,
    rstd_ptr,
    d_weight_parts_ptr,
    d_bias_parts_ptr,
    dx_ptr,
    groups,
    channels_of_group,
    n_places,
    CHANNELS: tl.constexpr,
    BY_CHANNEL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compute the gradient of a block by the sums of its group's channels.

    The block is one of a channel, or of the group.
    """
    n = channels_of_group * n_places
    blocks = tl.cdiv(n_places if BY_CHANNEL else n, BLOCK)
    piece = tl.program_id(0) // blocks
    columns = (tl.program_id(0) % blocks) * BLOCK + tl.arange(0, BLOCK)
    if BY_CHANNEL:
        row = (piece // channels_of_group).to(tl.int64)
        channel_of_group = piece % channels_of_group
        inside = columns < n_places
        columns += channel_of_group * n_places
    else:
        row = piece.to(tl.int64)
        inside = columns < n
    first = (row % groups) * channels_of_group
    lane = tl.arange(0, CHANNELS)
    of_group = lane < channels_of_group
    part = row * channels_of_group + lane
    slopes = tl.load(d_bias_parts_ptr + part, mask=of_group, other=0.0)
    weighted_sums = tl.load(d_weight_parts_ptr + part, mask=of_group, other=0.0)
    dy = tl.load(dy_ptr + row * n + columns, mask=inside, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + row * n + columns, mask=inside, other=0.0).to(tl.float32)
    if weight_ptr is not None:
        weight = tl.load(weight_ptr + first + lane, mask=of_group, other=0.0).to(tl.float32)
        slopes *= weight
        weighted_sums *= weight
        if BY_CHANNEL:
            dy *= tl.load(weight_ptr + first + channel_of_group).to(tl.float32)
        else:
            channel = first + columns // n_places
            dy *= tl.load(weight_ptr + channel, mask=inside, other=0.0).to(tl.float32)
    mean, rstd = tl.load(mean_ptr + row), tl.load(rstd_ptr + row)
    shift = tl.sum(slopes, axis=0) / n
    factor = tl.sum(weighted_sums, axis=0) / n
    tl.store(
        dx_ptr + row * n + columns,
        (dy - shift - (x - mean) * rstd * factor) * rstd,
        mask=inside,
    )


@tw.jit
def sum_images_kernel(parts_ptr, total_ptr, n_images, n_channels, BLOCK: tl.constexpr):
    """Sum the parts of images, in order."""
    channels = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = channels < n_channels
    total = tl.zeros([BLOCK], tl.float32)
    for image in range(n_images):
        start = tl.cast(image, tl.int64) * n_channels
        total += tl.load(parts_ptr + start + channels, mask=inside, other=0.0)
    tl.store(total_ptr + channels, total, mask=inside)


def group_norm_reference(
    x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    """Return ``(x - mean) / sqrt(variance + eps)`` by group, times weight plus bias by channel."""
    xp = array_api_compat.array_namespace(x)
    rows = xp.reshape(x, (x.shape[0], groups, math.prod(x.shape[1:]) // groups))
    centred = rows - xp.mean(rows, axis=-1, keepdims=True)
    y = centred / xp.sqrt(xp.mean(centred * centred, axis=-1, keepdims=True) + eps)
    y = xp.reshape(y, x.shape)
    by_channel = (1, x.shape[1], *[1] * (len(x.shape) - 2))
    y = y if weight is None else y * xp.reshape(weight, by_channel)
    return y if bias is None else y + xp.reshape(bias, by_channel)


def _shapes(make: Any, x: Any, groups: int, weight: Any, bias: Any, eps: float) -> tuple[Any, ...]:
    if len(x.shape) < 2 or x.shape[1] % groups:
        raise ValueError(
            f"x has the shape {tuple(x.shape)}: give (images, channels, ...) with channels "
            f"divisible by the {groups} groups"
        )
    for each in (weight, bias):
        if each is not None and tuple(each.shape) != (x.shape[1],):
            raise ValueError(
                f"a weight has the shape {tuple(each.shape)}: give an element for each of the "
                f"{x.shape[1]} channels"
            )
    rows = (x.shape[0], groups)
    return make(x.shape, x.dtype), make(rows, "float32"), make(rows, "float32")


def _launch(
    run: Launcher,
    y: Any,
    mean: Any,
    rstd: Any,
    x: Array,
    groups: int,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> None:
    images, channels = x.shape[:2]
    places = math.prod(x.shape[2:])
    size = channels // groups * places
    by_channel = _is_by_channel(x, places)
    whole = size <= 4 * _BLOCK and not by_channel
    block = tw.next_power_of_2(max(size, 1)) if whole else _BLOCK
    if by_channel:
        block = min(block, tw.next_power_of_2(places))
    run(
        group_norm_kernel,
        (images * groups,),
        contiguous(x),
        contiguous(weight),
        contiguous(bias),
        y,
        mean,
        rstd,
        groups,
        channels // groups,
        places,
        eps,
        WHOLE=whole,
        BY_CHANNEL=by_channel,
        BLOCK=block,
        num_warps=min(max(block // 512, 1), 16),
    )


def _is_by_channel(x: Any, places: int) -> bool:
    """Return whether blocks lie in one channel: on a CPU, where gathers of weights take long."""
    return places >= _MIN_PLACES and not is_on_gpu(x)


GROUP_NORM = Operation(
    "group_norm",
    ("y", "mean", "rstd"),
    _shapes,
    _launch,
    residuals=("mean", "rstd"),
    reference=group_norm_reference,
)


def _backward_shapes(
    make: Any, dy: Any, x: Any, mean: Any, rstd: Any, groups: int, weight: Any, has_bias: bool
) -> tuple[Any, ...]:
    dtype = x.dtype if weight is None else weight.dtype
    return (
        make(x.shape, x.dtype),
        None if weight is None else make(weight.shape, dtype),
        make((x.shape[1],), dtype) if has_bias else None,
    )


def _backward_launch(
    run: Launcher,
    dx: Any,
    d_weight: Any,
    d_bias: Any,
    dy: Array,
    x: Array,
    mean: Array,
    rstd: Array,
    groups: int,
    weight: Array | None,
    has_bias: bool,
) -> None:
    images, channels = x.shape[:2]
    places, of_group = math.prod(x.shape[2:]), x.shape[1] // groups
    dy, x, weight = contiguous(dy), contiguous(x), contiguous(weight)
    weight_parts = run.empty((images, channels), "float32")
    bias_parts = run.empty((images, channels), "float32")
    block = min(1024, tw.next_power_of_2(max(places, 1)))
    run(
        channel_sums_kernel,
        (images * channels,),
        dy,
        x,
        mean,
        rstd,
        weight_parts,
        bias_parts,
        of_group,
        places,
        BLOCK=block,
        num_warps=min(max(block // 256, 1), 4),
    )
    by_channel = _is_by_channel(x, places)
    piece = places if by_channel else of_group * places
    block = min(2048, tw.next_power_of_2(max(piece, 1)))
    run(
        input_gradient_kernel,
        (images * (channels if by_channel else groups) * tw.cdiv(piece, block),),
        dy,
        x,
        weight,
        mean,
        rstd,
        weight_parts,
        bias_parts,
        dx,
        groups,
        of_group,
        places,
        CHANNELS=tw.next_power_of_2(of_group),
        BY_CHANNEL=by_channel,
        BLOCK=block,
        num_warps=min(max(block // 512, 1), 4),
    )
    for parts, total in ((weight_parts, d_weight), (bias_parts, d_bias)):
        if total is not None:
            run(
                sum_images_kernel,
                (tw.cdiv(channels, 128),),
                parts,
                total,
                images,
                channels,
                BLOCK=128,
                num_warps=1,
            )


GROUP_NORM_BACKWARD = Operation(
    "group_norm_backward",
    ("dx", "d_weight", "d_bias"),
    _backward_shapes,
    _backward_launch,
    optional=("d_weight", "d_bias"),
)


@GROUP_NORM.differentiate(saved=("x", "mean", "rstd", "weight", "bias"))
def _gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    has_bias = saved.bias is not None
    dx, d_weight, d_bias = GROUP_NORM_BACKWARD(
        dy, saved.x, saved.mean, saved.rstd, saved.groups, saved.weight, has_bias
    )
    found = {"x": dx, "weight": d_weight, "bias": d_bias}
    return {name: each for name, each in found.items() if each is not None}


def group_norm(
    x: Any,
    groups: int,
    weight: Any = None,
    bias: Any = None,
    *,
    eps: float = 1e-5,
    out: Any = None,
) -> Any:
    """Normalize each group of channels to mean 0 and variance 1, and apply weight and bias.

    Args:
        x: of shape (images, channels, ...), of float16, bfloat16 or float32.
        groups: the number of groups of neighbouring channels.
        weight: of shape (channels,), or None.
        bias: of shape (channels,) and the type of the weight, or None.
        eps: a number that is added to the variance.
        out: the array for the result.

    Returns:
        An array with the shape and element type of ``x``. The arithmetic is in float32.

    Raises:
        ValueError: the shapes of the arguments do not match.

    Source: Wu and He, "Group Normalization", 2018.
    """
    return GROUP_NORM(x, groups, weight, bias, eps, out=out)
