"""Convolution of images as an implicit matmul: of pixels by filters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
from tilewright_kernels.linear.blocks import matmul_blocks
from tilewright_kernels.linear.convolution_kernels import convolution_kernel, filter_gradient_kernel
from tilewright_kernels.linear.convolution_windows import Pair, Window
from tilewright_kernels.linear.element_types import accumulator_of, bits_of, name_of, operand_of
from tilewright_kernels.linear.epilogue import packed
from tilewright_kernels.linear.row_convolution import (
    Images,
    convolve_rows,
    filter_gradient_by_rows,
    has_contiguous_rows,
    image_gradient_by_rows,
)
from tilewright_kernels.operations import Array, Ints, Launcher, Operation, strides
from tilewright_kernels.operations.devices import device_of


def conv2d_reference(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    layout: str = "NCHW",
) -> Any:
    """Return the sum over taps of shifted images times the filters at the tap, and the bias."""
    xp = array_api_compat.array_namespace(x)
    window = Window.of(stride, padding, dilation)
    x = x if layout == "NHWC" else xp.permute_dims(x, (0, 2, 3, 1))
    taps = weight.shape[2:]
    rows, columns = window.outputs(x.shape[1:3], taps)
    for axis, zeros in zip((1, 2), window.padding, strict=True):
        shape = [*x.shape[:axis], zeros, *x.shape[axis + 1 :]]
        side = xp.broadcast_to(xp.zeros_like(xp.sum(x, axis=axis, keepdims=True)), tuple(shape))
        x = xp.concat([side, x, side], axis=axis)
    y = 0
    for r in range(taps[0]):
        for s in range(taps[1]):
            top, left = r * window.dilation[0], s * window.dilation[1]
            shifted = x[
                :,
                top : top + (rows - 1) * window.stride[0] + 1 : window.stride[0],
                left : left + (columns - 1) * window.stride[1] + 1 : window.stride[1],
                :,
            ]
            y = y + _times_filters(xp, shifted, weight[:, :, r, s], groups)
    y = y if bias is None else y + bias
    return y if layout == "NHWC" else xp.permute_dims(y, (0, 3, 1, 2))


def _times_filters(xp: Any, pixels: Any, filters: Any, groups: int) -> Any:
    """Return the matmul of pixels (..., channels) by filters (filters, channels of a group)."""
    inner, outer = filters.shape[1], filters.shape[0] // groups
    return xp.concat(
        [
            xp.matmul(
                pixels[..., group * inner : (group + 1) * inner],
                xp.permute_dims(filters[group * outer : (group + 1) * outer], (1, 0)),
            )
            for group in range(groups)
        ],
        axis=-1,
    )


def _places(layout: str) -> tuple[int, ...]:
    """Return the axes of images, channels, rows and columns."""
    return (0, 1, 2, 3) if layout == "NCHW" else (0, 3, 1, 2)


def _images(layout: str, images: int, channels: int, rows: int, columns: int) -> tuple[int, ...]:
    """Return the shape of images."""
    if layout == "NCHW":
        return images, channels, rows, columns
    return images, rows, columns, channels


def _shapes(
    make: Any,
    x: Any,
    weight: Any,
    bias: Any,
    window: Any,
    groups: int,
    layout: str,
    precision: str,
) -> tuple[Any, ...]:
    images, _, *extents = (x.shape[axis] for axis in _places(layout))
    outputs = Window.from_numbers(window).outputs(extents, weight.shape[2:])
    return (make(_images(layout, images, weight.shape[0], *outputs), x.dtype),)


def _launch(
    run: Launcher,
    y: Any,
    x: Array,
    weight: Array,
    bias: Array | None,
    window: Ints,
    groups: int,
    layout: str,
    precision: str,
) -> None:
    _convolve(run, y, x, weight, bias, window, groups, layout, precision, is_transposed=False)


def _convolve(
    run: Launcher,
    y: Any,
    x: Any,
    weight: Any,
    bias: Any,
    window: Any,
    groups: int,
    layout: str,
    precision: str,
    *,
    is_transposed: bool,
) -> None:
    """Launch a convolution of ``x``, or the gradient of the images by the one of the result."""
    axes = _places(layout)
    n, channels, h, w = (x.shape[axis] for axis in axes)
    _, filters, out_h, out_w = (y.shape[axis] for axis in axes)
    pixels, channels, filters = n * out_h * out_w, channels // groups, filters // groups
    if pixels == 0 or filters == 0:
        return
    taps, device = weight.shape[2:], device_of(x)
    images, results = Images.of(x, axes), Images.of(y, axes)
    at = Window.from_numbers(window)
    by_rows = has_contiguous_rows(device, images, results)
    if by_rows and not is_transposed:
        convolve_rows(run, results, images, packed(weight), bias, at, groups, precision, device)
        return
    if by_rows and at.stride == (1, 1):
        image_gradient_by_rows(run, results, images, weight, at, groups, precision, device)
        return
    operand = name_of(x)
    blocks = matmul_blocks(
        pixels,
        filters,
        channels * taps[0] * taps[1],
        bits_of(operand),
        device,
        batch=groups,
        may_split=False,
    )
    weight_steps = strides(weight)
    run(
        convolution_kernel,
        (tw.cdiv(pixels, blocks.m) * tw.cdiv(filters, blocks.n), groups),
        x,
        weight,
        y,
        None if bias is None else packed(bias),
        pixels,
        filters,
        channels,
        h,
        w,
        out_h,
        out_w,
        *(strides(x)[axis] for axis in axes),
        weight.shape[0] // groups * weight_steps[0],
        *(weight_steps[axis] for axis in ((1, 0) if is_transposed else (0, 1))),
        *weight_steps[2:],
        *(strides(y)[axis] for axis in axes),
        *window,
        R=taps[0],
        S=taps[1],
        IS_TRANSPOSED=is_transposed,
        BLOCK_M=blocks.m,
        BLOCK_N=blocks.n,
        BLOCK_K=min(blocks.k, max(16, tw.next_power_of_2(channels))),
        GROUP_M=8,
        SUM=accumulator_of(operand),
        PRECISION=precision,
        **blocks.options,
    )


def _formula(x: Any, weight: Any, bias: Any, window: Any, groups: int, layout: str) -> Any:
    at = Window.from_numbers(window)
    return conv2d_reference(x, weight, bias, at.stride, at.padding, at.dilation, groups, layout)


CONV2D = Operation("conv2d", ("y",), _shapes, _launch, reference=_formula)


def _image_shapes(
    make: Any,
    dy: Any,
    weight: Any,
    extents: Any,
    window: Any,
    groups: int,
    layout: str,
    precision: str,
) -> tuple[Any, ...]:
    return (make(_images(layout, dy.shape[0], weight.shape[1] * groups, *extents), dy.dtype),)


def _image_launch(
    run: Launcher,
    dx: Any,
    dy: Array,
    weight: Array,
    extents: Ints,
    window: Ints,
    groups: int,
    layout: str,
    precision: str,
) -> None:
    _convolve(run, dx, dy, weight, None, window, groups, layout, precision, is_transposed=True)


CONV2D_IMAGE_GRADIENT = Operation("conv2d_image_gradient", ("dx",), _image_shapes, _image_launch)


def _filter_shapes(
    make: Any,
    dy: Any,
    x: Any,
    taps: Any,
    window: Any,
    groups: int,
    layout: str,
    precision: str,
) -> tuple[Any, ...]:
    axis = _places(layout)[1]
    return (make((dy.shape[axis], x.shape[axis] // groups, *taps), dy.dtype),)


def _filter_launch(
    run: Launcher,
    dw: Any,
    dy: Array,
    x: Array,
    taps: Ints,
    window: Ints,
    groups: int,
    layout: str,
    precision: str,
) -> None:
    axes = _places(layout)
    n, _, h, w = (x.shape[axis] for axis in axes)
    _, _, out_h, out_w = (dy.shape[axis] for axis in axes)
    filters, channels, taps_h, taps_w = dw.shape
    filters //= groups
    if min(channels, filters, taps_h * taps_w) == 0:
        return
    device = device_of(x)
    images, gradients = Images.of(x, axes), Images.of(dy, axes)
    if has_contiguous_rows(device, images, gradients):
        at = Window.from_numbers(window)
        filter_gradient_by_rows(run, dw, gradients, images, at, groups, precision, device)
        return
    operand = name_of(x)
    pixels = n * out_h * out_w
    blocks = matmul_blocks(
        filters,
        channels,
        max(pixels, 1),
        bits_of(operand),
        device,
        batch=taps_h * taps_w * groups,
        may_split=False,
    )
    tiles = tw.cdiv(filters, blocks.m) * tw.cdiv(channels, blocks.n)
    run(
        filter_gradient_kernel,
        (tiles, taps_h * taps_w, groups),
        x,
        dy,
        dw,
        pixels,
        filters,
        channels,
        h,
        w,
        out_h,
        out_w,
        *(strides(x)[axis] for axis in axes),
        *(strides(dy)[axis] for axis in axes),
        *strides(dw),
        *window,
        S=taps_w,
        BLOCK_M=blocks.m,
        BLOCK_N=blocks.n,
        BLOCK_K=blocks.k,
        SUM=accumulator_of(operand),
        PRECISION=precision,
        **blocks.options,
    )


CONV2D_FILTER_GRADIENT = Operation(
    "conv2d_filter_gradient", ("dw",), _filter_shapes, _filter_launch
)


@CONV2D.differentiate(saved=("x", "weight"))
def _gradients(saved: Any, dy: Any) -> Mapping[str, Any]:
    found = {}
    settings = (list(saved.window), saved.groups, saved.layout, saved.precision)
    _, _, *extents = (saved.x.shape[axis] for axis in _places(saved.layout))
    if "x" in saved.needed:
        found["x"] = CONV2D_IMAGE_GRADIENT(dy, saved.weight, extents, *settings)
    if "weight" in saved.needed:
        taps = list(saved.weight.shape[2:])
        found["weight"] = CONV2D_FILTER_GRADIENT(dy, saved.x, taps, *settings)
    if "bias" in saved.needed:
        found["bias"] = dy.sum(
            axis=tuple(axis for axis in range(4) if axis != _places(saved.layout)[1])
        )
    return found


def conv2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    layout: str = "NCHW",
    precision: str = "ieee",
    out: Any = None,
) -> Any:
    """Convolve images with filters.

    Args:
        x: of shape (images, channels, H, W), or (images, H, W, channels) for the layout
            ``"NHWC"``; of float16, bfloat16 or float32, of any strides.
        weight: of shape (filters, channels / groups, R, S), of the type of ``x``, of any strides;
            for the layout ``"NHWC"``, the convolution is faster if the filters have PyTorch's
            ``channels_last`` format.
        bias: of shape (filters,), or None.
        stride: the distance in pixels between neighbouring outputs: one number for both axes, or a
            pair of numbers for rows and for columns.
        padding: the number of zeros on each side of the images: one number, or a pair.
        dilation: the distance in pixels between neighbouring taps of a filter: one number, or a
            pair.
        groups: the number of groups of channels, each with its own filters. Groups of fewer than 16
            channels or filters are not faster than groups of 16.
        layout: ``"NCHW"`` or ``"NHWC"``.
        precision: see :func:`.matmul`.
        out: the array for the result.

    Returns:
        An array with the layout and element type of ``x``. Sums are computed in float32. The
        windows of the images are not copied to a matrix (im2col).

    Raises:
        TypeError: the types of the arrays do not match, or another argument has a wrong type.
        ValueError: the shapes of the arguments do not match, or another argument has a wrong value.

    Gradients: two kernels by hand, with a fixed order of additions.
    """
    if layout not in ("NCHW", "NHWC"):
        raise ValueError(f"layout must be NCHW or NHWC, not {layout!r}")
    if x.ndim != 4 or weight.ndim != 4:
        raise ValueError(
            f"x and weight must have 4 axes, not the shapes {tuple(x.shape)} and "
            f"{tuple(weight.shape)}"
        )
    _, channels, *extents = (x.shape[axis] for axis in _places(layout))
    if groups < 1 or weight.shape[0] % groups or channels != weight.shape[1] * groups:
        raise ValueError(
            f"images of shape {tuple(x.shape)} ({layout}) have not the channels of {groups} "
            f"group{'s' if groups != 1 else ''} of filters of shape {tuple(weight.shape)} "
            "(filters, channels / groups, R, S)"
        )
    window = Window.of(stride, padding, dilation)
    if min(window.outputs(extents, weight.shape[2:])) < 1:
        raise ValueError(
            f"{tuple(weight.shape[2:])} taps {window.dilation} apart do not fit axes of "
            f"{tuple(extents)} with {window.padding} zeros around"
        )
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise ValueError(f"bias has the shape {tuple(bias.shape)}, not ({weight.shape[0]},)")
    if name_of(x) != name_of(weight):
        raise TypeError(f"x is of {name_of(x)}, and weight of {name_of(weight)}")
    operand_of(name_of(x), name_of(weight))
    return CONV2D(x, weight, bias, window.numbers, groups, layout, precision, out=out)
