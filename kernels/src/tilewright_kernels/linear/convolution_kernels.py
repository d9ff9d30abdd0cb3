"""Kernels of convolutions, and of the gradients of images and of filters."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.linear.matmul_kernels import block_of


@tw.jit
def convolution_kernel(
    x_ptr, w_ptr, y_ptr, bias_ptr, pixels, FILTERS, C, H, W, OUT_H, OUT_W,
    stride_xn, stride_xc, stride_xh, stride_xw, stride_wf, stride_wc, stride_wr, stride_ws,
    stride_yn, stride_yf, stride_yh, stride_yw,
    step_h, step_w, pad_h, pad_w, apart_h, apart_w,
    R: tl.constexpr, S: tl.constexpr, IS_TRANSPOSED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    SUM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Compute a block of pixels and filters of ``y``.

    Transposed, it computes the gradient of the images: a pixel takes the outputs whose windows
    have it, which are ``step`` apart.
    """
    block_m, block_n = block_of(tl.program_id(0), pixels, FILTERS, BLOCK_M, BLOCK_N, GROUP_M)
    place = block_m * BLOCK_M + tl.arange(0, BLOCK_M)
    filters = block_n * BLOCK_N + tl.arange(0, BLOCK_N)
    image = (place // (OUT_H * OUT_W)).to(tl.int64)
    row, column = place // OUT_W % OUT_H, place % OUT_W
    channels = tl.arange(0, BLOCK_K)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), SUM)
    for tap in range(R * S):
        r, s = tap // S, tap % S
        if IS_TRANSPOSED:
            from_h, from_w = row + pad_h - r * apart_h, column + pad_w - s * apart_w
            inside = (from_h >= 0) & (from_w >= 0) & (from_h % step_h == 0) & (from_w % step_w == 0)
            h, w = from_h // step_h, from_w // step_w
        else:
            h, w = row * step_h - pad_h + r * apart_h, column * step_w - pad_w + s * apart_w
            inside = (h >= 0) & (w >= 0)
        inside = inside & (h < H) & (w < W) & (place < pixels)
        x_ptrs = x_ptr + image * stride_xn + h * stride_xh + w * stride_xw
        w_ptrs = w_ptr + filters * stride_wf + r * stride_wr + s * stride_ws
        for first in range(0, C, BLOCK_K):
            c = first + channels
            x = tl.load(
                x_ptrs[:, None] + c[None, :] * stride_xc,
                mask=inside[:, None] & (c < C)[None, :],
                other=0.0,
            )
            f = tl.load(
                w_ptrs[None, :] + c[:, None] * stride_wc,
                mask=(c < C)[:, None] & (filters < FILTERS)[None, :],
                other=0.0,
            )
            accumulator = tl.dot(x, f, accumulator, out_dtype=SUM, input_precision=PRECISION)
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + filters, mask=filters < FILTERS, other=0.0)
        accumulator += bias.to(SUM)[None, :]
    y_ptrs = y_ptr + image * stride_yn + row * stride_yh + column * stride_yw
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
    """Compute a block of filters and channels of a tap of ``dw``, a sum over all pixels."""
    across = tl.cdiv(C, BLOCK_N)
    filters = tl.program_id(0) // across * BLOCK_M + tl.arange(0, BLOCK_M)
    channels = tl.program_id(0) % across * BLOCK_N + tl.arange(0, BLOCK_N)
    r, s = tl.program_id(1) // S, tl.program_id(1) % S
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), SUM)
    for first in range(0, pixels, BLOCK_K):
        place = first + tl.arange(0, BLOCK_K)
        image = (place // (OUT_H * OUT_W)).to(tl.int64)
        row, column = place // OUT_W % OUT_H, place % OUT_W
        h, w = row * step_h - pad_h + r * apart_h, column * step_w - pad_w + s * apart_w
        inside = (place < pixels) & (h >= 0) & (w >= 0) & (h < H) & (w < W)
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
    w_ptrs = dw_ptr + filters[:, None] * stride_wf + channels[None, :] * stride_wc
    tl.store(
        w_ptrs + r * stride_wr + s * stride_ws,
        accumulator.to(dw_ptr.dtype.element_ty),
        mask=(filters < FILTERS)[:, None] & (channels < C)[None, :],
    )
