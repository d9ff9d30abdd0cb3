"""Convolution of images as an implicit matmul: of pixels by filters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import array_api_compat

import tilewright as tw
from tilewright_kernels.linear.blocks import matmul_blocks
from tilewright_kernels.linear.convolution_kernels import convolution_kernel, filter_gradient_kernel
from tilewright_kernels.linear.element_types import accumulator_of, bits_of, name_of, operand_of
from tilewright_kernels.linear.epilogue import packed
from tilewright_kernels.operations import Array, Launcher, Operation, strides
from tilewright_kernels.operations.devices import device_of


def conv2d_reference(
    x: Any,
    weight: Any,
    bias: Any = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    layout: str = "NCHW",
) -> Any:
    """Return the sum over taps of shifted images times the filters at the tap, and the bias."""
    xp = array_api_compat.array_namespace(x)
    x = x if layout == "NHWC" else xp.permute_dims(x, (0, 2, 3, 1))
    h, w = x.shape[1:3]
    _, _, taps_h, taps_w = weight.shape
    out_h = out_extent(h, taps_h, stride, padding, dilation)
    out_w = out_extent(w, taps_w, stride, padding, dilation)
    side = xp.zeros_like(x[:, :, :1, :])
    side = xp.concat([side] * padding, axis=2) if padding else side[:, :, :0, :]
    x = xp.concat([side, x, side], axis=2)
    side = xp.zeros_like(x[:, :1, :, :])
    side = xp.concat([side] * padding, axis=1) if padding else side[:, :0, :, :]
    x = xp.concat([side, x, side], axis=1)
    y = 0
    for r in range(taps_h):
        for s in range(taps_w):
            top, left = r * dilation, s * dilation
            shifted = x[
                :,
                top : top + (out_h - 1) * stride + 1 : stride,
                left : left + (out_w - 1) * stride + 1 : stride,
                :,
            ]
            y = y + xp.matmul(shifted, xp.permute_dims(weight[:, :, r, s], (1, 0)))
    y = y if bias is None else y + bias
    return y if layout == "NHWC" else xp.permute_dims(y, (0, 3, 1, 2))


def out_extent(extent: int, taps: int, stride: int, padding: int, dilation: int) -> int:
    """Return the extent of the result of a convolution along an axis."""
    return (extent + 2 * padding - dilation * (taps - 1) - 1) // stride + 1


def _places(layout: str) -> tuple[int, ...]:
    """Return the axes of images, channels, rows and columns."""
    return (0, 1, 2, 3) if layout == "NCHW" else (0, 3, 1, 2)


def _shapes(
    make: Any,
    x: Any,
    weight: Any,
    bias: Any,
    stride: int,
    padding: int,
    dilation: int,
    layout: str,
    precision: str,
) -> tuple[Any, ...]:
    n, _, h, w = (x.shape[axis] for axis in _places(layout))
    filters, _, taps_h, taps_w = weight.shape
    height = out_extent(h, taps_h, stride, padding, dilation)
    width = out_extent(w, taps_w, stride, padding, dilation)
    shape = (n, filters, height, width) if layout == "NCHW" else (n, height, width, filters)
    return (make(shape, x.dtype),)


def _launch(
    run: Launcher,
    y: Any,
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: int,
    padding: int,
    dilation: int,
    layout: str,
    precision: str,
) -> None:
    _convolve(run, y, x, weight, bias, (0, 1), stride, padding, dilation, layout, precision, False)


def _convolve(
    run: Launcher,
    y: Any,
    x: Any,
    weight: Any,
    bias: Any,
    weight_axes: tuple[int, int],
    stride: int,
    padding: int,
    dilation: int,
    layout: str,
    precision: str,
    is_transposed: bool,
) -> None:
    """Launch a convolution of ``x``, or the gradient of the images by the one of the result."""
    axes = _places(layout)
    n, channels, h, w = (x.shape[axis] for axis in axes)
    _, filters, out_h, out_w = (y.shape[axis] for axis in axes)
    pixels = n * out_h * out_w
    if pixels == 0 or filters == 0:
        return
    taps_h, taps_w = weight.shape[2:]
    operand = name_of(x)
    blocks = matmul_blocks(
        pixels, filters, channels * taps_h * taps_w, bits_of(operand), device_of(x), may_split=False
    )
    inner = min(blocks.k, max(16, tw.next_power_of_2(channels)))
    weight_steps = strides(weight)
    run(
        convolution_kernel,
        (tw.cdiv(pixels, blocks.m) * tw.cdiv(filters, blocks.n),),
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
        *(weight_steps[axis] for axis in weight_axes),
        *weight_steps[2:],
        *(strides(y)[axis] for axis in axes),
        stride,
        stride,
        padding,
        padding,
        dilation,
        dilation,
        R=taps_h,
        S=taps_w,
        IS_TRANSPOSED=is_transposed,
        BLOCK_M=blocks.m,
        BLOCK_N=blocks.n,
        BLOCK_K=inner,
        GROUP_M=8,
        SUM=accumulator_of(operand),
        PRECISION=precision,
        **blocks.options,
    )


CONV2D = Operation("conv2d", ("y",), _shapes, _launch, reference=conv2d_reference)


def _image_shapes(
    make: Any,
    dy: Any,
    weight: Any,
    height: int,
    width: int,
    stride: int,
    padding: int,
    dilation: int,
    layout: str,
    precision: str,
) -> tuple[Any, ...]:
    n, channels = dy.shape[0], weight.shape[1]
    shape = (n, channels, height, width) if layout == "NCHW" else (n, height, width, channels)
    return (make(shape, dy.dtype),)


def _image_launch(
    run: Launcher,
    dx: Any,
    dy: Array,
    weight: Array,
    height: int,
    width: int,
    stride: int,
    padding: int,
    dilation: int,
    layout: str,
    precision: str,
) -> None:
    _convolve(run, dx, dy, weight, None, (1, 0), stride, padding, dilation, layout, precision, True)


CONV2D_IMAGE_GRADIENT = Operation("conv2d_image_gradient", ("dx",), _image_shapes, _image_launch)


def _filter_shapes(
    make: Any,
    dy: Any,
    x: Any,
    taps_h: int,
    taps_w: int,
    stride: int,
    padding: int,
    dilation: int,
    layout: str,
    precision: str,
) -> tuple[Any, ...]:
    axis = _places(layout)[1]
    return (make((dy.shape[axis], x.shape[axis], taps_h, taps_w), dy.dtype),)


def _filter_launch(
    run: Launcher,
    dw: Any,
    dy: Array,
    x: Array,
    taps_h: int,
    taps_w: int,
    stride: int,
    padding: int,
    dilation: int,
    layout: str,
    precision: str,
) -> None:
    axes = _places(layout)
    n, channels, h, w = (x.shape[axis] for axis in axes)
    _, filters, out_h, out_w = (dy.shape[axis] for axis in axes)
    if channels == 0 or filters == 0 or taps_h * taps_w == 0:
        return
    operand = name_of(x)
    pixels = n * out_h * out_w
    blocks = matmul_blocks(
        filters,
        channels,
        max(pixels, 1),
        bits_of(operand),
        device_of(x),
        batch=taps_h * taps_w,
        may_split=False,
    )
    run(
        filter_gradient_kernel,
        (tw.cdiv(filters, blocks.m) * tw.cdiv(channels, blocks.n), taps_h * taps_w),
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
        stride,
        stride,
        padding,
        padding,
        dilation,
        dilation,
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
    settings = (saved.stride, saved.padding, saved.dilation, saved.layout, saved.precision)
    _, _, h, w = (saved.x.shape[axis] for axis in _places(saved.layout))
    if "x" in saved.needed:
        found["x"] = CONV2D_IMAGE_GRADIENT(dy, saved.weight, h, w, *settings)
    if "weight" in saved.needed:
        taps = saved.weight.shape[2:]
        found["weight"] = CONV2D_FILTER_GRADIENT(dy, saved.x, *taps, *settings)
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
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    layout: str = "NCHW",
    precision: str = "ieee",
    out: Any = None,
) -> Any:
    """Convolve images with filters.

    Args:
        x: of shape (images, channels, H, W), or (images, H, W, channels) for the layout
            ``"NHWC"``; of float16, bfloat16 or float32, of any strides.
        weight: of shape (filters, channels, R, S), of the type of ``x``, of any strides; filters of
            PyTorch's ``channels_last`` are faster where ``x`` is of ``"NHWC"``.
        bias: of shape (filters,), or None.
        stride: pixels from one output to the next along both axes.
        padding: zeros around the images.
        dilation: pixels from one tap to the next.
        layout: ``"NCHW"`` or ``"NHWC"``.
        precision: see :func:`.matmul`.
        out: the array for the result.

    Returns:
        An array of the layout and type of ``x``. Sums are in float32, and no window is copied in
        memory.

    Raises:
        ValueError: shapes or settings do not fit.

    Gradients: two kernels by hand, with a fixed order of additions.
    """
    if layout not in ("NCHW", "NHWC"):
        raise ValueError(f"layout must be NCHW or NHWC, not {layout!r}")
    if x.ndim != 4 or weight.ndim != 4 or x.shape[_places(layout)[1]] != weight.shape[1]:
        raise ValueError(
            f"images of shape {tuple(x.shape)} ({layout}) have not the channels of filters of "
            f"shape {tuple(weight.shape)} (filters, channels, R, S)"
        )
    if stride < 1 or dilation < 1 or padding < 0:
        raise ValueError(f"stride {stride}, padding {padding} or dilation {dilation} is too small")
    for axis, taps in zip(_places(layout)[2:], weight.shape[2:], strict=True):
        if out_extent(x.shape[axis], taps, stride, padding, dilation) < 1:
            raise ValueError(f"{taps} taps {dilation} apart do not fit an axis of {x.shape[axis]}")
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise ValueError(f"bias has the shape {tuple(bias.shape)}, not ({weight.shape[0]},)")
    if name_of(x) != name_of(weight):
        raise TypeError(f"x is of {name_of(x)}, and weight of {name_of(weight)}")
    operand_of(name_of(x), name_of(weight))
    return CONV2D(x, weight, bias, stride, padding, dilation, layout, precision, out=out)
