"""Kernels of convolutions, and of the gradients of images and of filters."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.linear.matmul_kernels import block_of


@tw.jit
def pixel_of(place, HEIGHT, WIDTH):
    """Return the image, row and column of pixels that are counted over all images."""
    return (place // (HEIGHT * WIDTH)).to(tl.int64), place // WIDTH % HEIGHT, place % WIDTH


@tw.jit
def input_pixel(row, column, r, s, H, W, step_h, step_w, pad_h, pad_w, apart_h, apart_w):
    """Return the row and column that outputs read at a tap, and whether the images have them."""
    h, w = row * step_h - pad_h + r * apart_h, column * step_w - pad_w + s * apart_w
    return h, w, (h >= 0) & (w >= 0) & (h < H) & (w < W)


@tw.jit
def output_pixel(h, w, r, s, H, W, step_h, step_w, pad_h, pad_w, apart_h, apart_w):
    """Return the row and column of outputs that read inputs at a tap, and whether there are any."""
    row, column = h + pad_h - r * apart_h, w + pad_w - s * apart_w
    aligned = (row >= 0) & (column >= 0) & (row % step_h == 0) & (column % step_w == 0)
    row, column = row // step_h, column // step_w
    return row, column, aligned & (row < H) & (column < W)


@tw.jit
def convolution_kernel(
    x_ptr, w_ptr, y_ptr, bias_ptr, pixels, FILTERS, C, H, W, OUT_H, OUT_W,
    stride_xn, stride_xc, stride_xh, stride_xw,
    stride_wg, stride_wf, stride_wc, stride_wr, stride_ws,
    stride_yn, stride_yf, stride_yh, stride_yw,
    step_h, step_w, pad_h, pad_w, apart_h, apart_w,
    R: tl.constexpr, S: tl.constexpr, IS_TRANSPOSED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    SUM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute a block of pixels and filters of ``y``, of the group of the second axis of programs.

    ``FILTERS`` and ``C`` count those of a group. Transposed, it computes the gradient of the
    images: a pixel takes the outputs whose windows have it.
    """
    block_m, block_n = block_of(tl.program_id(0), pixels, FILTERS, BLOCK_M, BLOCK_N, GROUP_M)
    group = tl.program_id(1).to(tl.int64)
    place = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    filters = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    image, row, column = pixel_of(place, OUT_H, OUT_W)
    channels = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + group * C * stride_xc + image * stride_xn
    w_ptrs = w_ptr + group * stride_wg + filters * stride_wf
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), SUM)
    for tap in range(R * S):
        r, s = tap // S, tap % S
        if IS_TRANSPOSED:
            h, w, inside = output_pixel(
                row, column, r, s, H, W, step_h, step_w, pad_h, pad_w, apart_h, apart_w
            )
        else:
            h, w, inside = input_pixel(
                row, column, r, s, H, W, step_h, step_w, pad_h, pad_w, apart_h, apart_w
            )
        inside = inside & (place < pixels)
        x_tap = x_ptrs + h * stride_xh + w * stride_xw
        w_tap = w_ptrs + r * stride_wr + s * stride_ws
        for first in range(0, C, BLOCK_K):
            c = first + channels
            x = tl.load(
                x_tap[:, None] + c[None, :] * stride_xc,
                mask=inside[:, None] & (c < C)[None, :],
                other=0.0,
            )
            f = tl.load(
                w_tap[None, :] + c[:, None] * stride_wc,
                mask=(c < C)[:, None] & (filters < FILTERS)[None, :],
                other=0.0,
            )
            accumulator = tl.dot(x, f, accumulator, out_dtype=SUM, input_precision=PRECISION)
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + group * FILTERS + filters, mask=filters < FILTERS, other=0.0)
        accumulator += bias.to(SUM)[None, :]
    y_ptrs = y_ptr + group * FILTERS * stride_yf + image * stride_yn
    y_ptrs += row * stride_yh + column * stride_yw
    tl.store(
        y_ptrs[:, None] + filters[None, :] * stride_yf,
        accumulator.to(y_ptr.dtype.element_ty),
        mask=(place < pixels)[:, None] & (filters < FILTERS)[None, :],
    )


@tw.jit
def filter_gradient_kernel(
    x_ptr, dy_ptr, dw_ptr, pixels, FILTERS, C, H, W, OUT_H, OUT_W,
    stride_xn, stride_xc, stride_xh, stride_xw, stride_yn, stride_yf, stride_yh, stride_yw,
    stride_wf, stride_wc, stride_wr, stride_ws,
    step_h, step_w, pad_h, pad_w, apart_h, apart_w,
    S: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    SUM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute a block of filters and channels of ``dw``, a sum over all pixels.

    The second axis of programs is that of taps, the third that of groups; ``FILTERS`` and ``C``
    count those of a group.
    """
    across = tl.cdiv(C, BLOCK_N)
    filters = tl.program_id(0) // across * BLOCK_M + tl.arange(0, BLOCK_M)
    channels = tl.program_id(0) % across * BLOCK_N + tl.arange(0, BLOCK_N)
    r, s = tl.program_id(1) // S, tl.program_id(1) % S
    group = tl.program_id(2).to(tl.int64)
    x_ptr += group * C * stride_xc
    dy_ptr += group * FILTERS * stride_yf
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), SUM)
    for first in range(0, pixels, BLOCK_K):
        place = first + tl.arange(0, BLOCK_K)
        image, row, column = pixel_of(place, OUT_H, OUT_W)
        h, w, inside = input_pixel(
            row, column, r, s, H, W, step_h, step_w, pad_h, pad_w, apart_h, apart_w
        )
        inside = inside & (place < pixels)
        x_ptrs = x_ptr + image * stride_xn + h * stride_xh + w * stride_xw
        y_ptrs = dy_ptr + image * stride_yn + row * stride_yh + column * stride_yw
        dy = tl.load(
            y_ptrs[None, :] + filters[:, None] * stride_yf,
            mask=inside[None, :] & (filters < FILTERS)[:, None],
            other=0.0,
        )
        x = tl.load(
            x_ptrs[:, None] + channels[None, :] * stride_xc,
            mask=inside[:, None] & (channels < C)[None, :],
            other=0.0,
        )
        accumulator = tl.dot(dy, x, accumulator, out_dtype=SUM, input_precision=PRECISION)
    w_ptrs = dw_ptr + group * FILTERS * stride_wf + r * stride_wr + s * stride_ws
    tl.store(
        w_ptrs + filters[:, None] * stride_wf + channels[None, :] * stride_wc,
        accumulator.to(dw_ptr.dtype.element_ty),
        mask=(filters < FILTERS)[:, None] & (channels < C)[None, :],
    )
