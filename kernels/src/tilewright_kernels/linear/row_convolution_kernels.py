"""Kernels of convolutions by rows of pixels: vectors of a CPU run along the columns of images."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def pad_images_kernel(
    x_ptr, target_ptr, CHANNELS, H, W, ROWS, COLUMNS, stride_xn, stride_xc, stride_xh, stride_xw,
    pad_h, pad_w, STEP_W: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    """Copy images with zeros around them: (images, channels, ROWS, STEP_W, COLUMNS).

    A row's columns are sorted by their remainder modulo ``STEP_W``, so that those that a tap reads
    for outputs beside each other lie beside each other. The axes of programs are those of channels
    of images, of blocks of rows, and of remainders.
    """
    plane = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    phase = tl.program_id(2)
    x_ptr += plane // CHANNELS * stride_xn + plane % CHANNELS * stride_xc
    h = row - pad_h
    x_rows = x_ptr + h[:, None] * stride_xh
    targets = target_ptr + ((plane * ROWS + row) * STEP_W + phase)[:, None] * COLUMNS
    for first in range(0, COLUMNS, BLOCK_W):
        column = first + tl.arange(0, BLOCK_W)
        w = column * STEP_W + phase - pad_w
        inside = ((h >= 0) & (h < H))[:, None] & ((w >= 0) & (w < W))[None, :]
        x = tl.load(x_rows + (w * stride_xw)[None, :], mask=inside, other=0.0)
        tl.store(targets + column[None, :], x, mask=(row < ROWS)[:, None] & (column < COLUMNS))


@tw.jit
def pixels_of(tile, OUT_H, OUT_W, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr):
    """Return the image, the rows and the columns of a tile of pixels."""
    down, across = tl.cdiv(OUT_H, BLOCK_H), tl.cdiv(OUT_W, BLOCK_W)
    row = tile // across % down * BLOCK_H + tl.arange(0, BLOCK_H)
    column = tile % across * BLOCK_W + tl.arange(0, BLOCK_W)
    return (tile // (down * across)).to(tl.int64), row, column


@tw.jit
def load_windows(
    x_ptr, element, row, column, ELEMENTS, OUT_H, OUT_W, stride_xc, stride_xh, stride_xp,
    step_h, apart_h, apart_w, R: tl.constexpr, S: tl.constexpr, STEP_W: tl.constexpr,
    ELEMENTS_FIT: tl.constexpr, PIXELS_FIT: tl.constexpr,
):  # fmt: skip
    """Return elements of windows, in the order (channel, tap): (elements, pixels)."""
    channel, r, left = element // (R * S), element // S % R, element % S * apart_w
    places = channel.to(tl.int64) * stride_xc + r * apart_h * stride_xh
    places += left % STEP_W * stride_xp + left // STEP_W
    pixels = (row * step_h).to(tl.int64)[:, None] * stride_xh + column[None, :]
    x_ptrs = (x_ptr + places)[:, None, None] + pixels[None, :, :]
    if PIXELS_FIT:
        if ELEMENTS_FIT:
            x = tl.load(x_ptrs)
        else:
            x = tl.load(x_ptrs, mask=(element < ELEMENTS)[:, None, None], other=0.0)
    else:
        inside = (row < OUT_H)[None, :, None] & (column < OUT_W)[None, None, :]
        if not ELEMENTS_FIT:
            inside = inside & (element < ELEMENTS)[:, None, None]
        x = tl.load(x_ptrs, mask=inside, other=0.0)
    return x.reshape(element.shape[0], row.shape[0] * column.shape[0])


@tw.jit
def row_convolution_kernel(
    x_ptr, w_ptr, y_ptr, bias_ptr, FILTERS, C, ELEMENTS, OUT_H, OUT_W,
    stride_xn, stride_xc, stride_xh, stride_xp, stride_yn, stride_yf, stride_yh, stride_yw,
    step_h, apart_h, apart_w,
    R: tl.constexpr, S: tl.constexpr, STEP_W: tl.constexpr, PIXELS_FIT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_W: tl.constexpr, BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Multiply filters (FILTERS, ELEMENTS of a window) by windows, for a tile of pixels of ``y``.

    The axes of programs are those of blocks of filters, of tiles of pixels, and of groups.
    """
    filters = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    image, row, column = pixels_of(tl.program_id(1), OUT_H, OUT_W, BLOCK_H, BLOCK_W)
    group = tl.program_id(2).to(tl.int64)
    x_ptr += group * C * stride_xc + image * stride_xn
    w_ptrs = w_ptr + (group * FILTERS + filters[:, None]) * ELEMENTS
    accumulator = tl.zeros((BLOCK_M, BLOCK_H * BLOCK_W), SUM)
    for first in range(0, ELEMENTS, BLOCK_K):
        element = first + tl.arange(0, BLOCK_K)
        x = load_windows(
            x_ptr, element, row, column, ELEMENTS, OUT_H, OUT_W, stride_xc, stride_xh, stride_xp,
            step_h, apart_h, apart_w, R, S, STEP_W, EVEN_K, PIXELS_FIT,
        )  # fmt: skip
        inside = filters[:, None] < FILTERS
        if not EVEN_K:
            inside = inside & (element[None, :] < ELEMENTS)
        f = tl.load(w_ptrs + element[None, :], mask=inside, other=0.0)
        accumulator = tl.dot(f, x, accumulator, out_dtype=SUM, input_precision=PRECISION)
    if bias_ptr is not None:
        bias = tl.load(bias_ptr + group * FILTERS + filters, mask=filters < FILTERS, other=0.0)
        accumulator += bias.to(SUM)[:, None]
    y_ptrs = y_ptr + image * stride_yn + (group * FILTERS + filters)[:, None, None] * stride_yf
    inside = (row < OUT_H)[None, :, None] & (column < OUT_W)[None, None, :]
    tl.store(
        y_ptrs + (row * stride_yh)[None, :, None] + (column * stride_yw)[None, None, :],
        accumulator.reshape(BLOCK_M, BLOCK_H, BLOCK_W).to(y_ptr.dtype.element_ty),
        mask=(filters < FILTERS)[:, None, None] & inside,
    )


@tw.jit
def row_filter_gradient_kernel(
    x_ptr, dy_ptr, dw_ptr, IMAGES, FILTERS, C, ELEMENTS, OUT_H, OUT_W,
    stride_xn, stride_xc, stride_xh, stride_xp, stride_yn, stride_yf, stride_yh, stride_yw,
    step_h, apart_h, apart_w,
    R: tl.constexpr, S: tl.constexpr, STEP_W: tl.constexpr, ELEMENTS_FIT: tl.constexpr,
    PIXELS_FIT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Multiply windows by the gradients of their pixels, for a block of ``dw``.

    The axes of programs are those of blocks of elements, of blocks of filters, and of groups.
    """
    element = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    filters = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    group = tl.program_id(2).to(tl.int64)
    x_ptr += group * C * stride_xc
    y_ptrs = dy_ptr + (group * FILTERS + filters) * stride_yf
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), SUM)
    for tile in range(IMAGES * tl.cdiv(OUT_H, BLOCK_H) * tl.cdiv(OUT_W, BLOCK_W)):
        image, row, column = pixels_of(tile, OUT_H, OUT_W, BLOCK_H, BLOCK_W)
        x = load_windows(
            x_ptr + image * stride_xn, element, row, column, ELEMENTS, OUT_H, OUT_W,
            stride_xc, stride_xh, stride_xp, step_h, apart_h, apart_w, R, S, STEP_W,
            ELEMENTS_FIT, PIXELS_FIT,
        )  # fmt: skip
        inside = (row < OUT_H)[None, :, None] & (column < OUT_W)[None, None, :]
        places = (row * stride_yh)[None, :, None] + (column * stride_yw)[None, None, :]
        dy = tl.load(
            (y_ptrs + image * stride_yn)[:, None, None] + places,
            mask=(filters < FILTERS)[:, None, None] & inside,
            other=0.0,
        )
        dy = dy.reshape(BLOCK_N, BLOCK_H * BLOCK_W)
        accumulator = tl.dot(x, dy.T, accumulator, out_dtype=SUM, input_precision=PRECISION)
    tl.store(
        dw_ptr + (group * FILTERS + filters)[None, :] * ELEMENTS + element[:, None],
        accumulator.to(dw_ptr.dtype.element_ty),
        mask=(filters < FILTERS)[None, :] & (element < ELEMENTS)[:, None],
    )


@tw.jit
def transpose_filters_kernel(
    w_ptr, target_ptr, FILTERS, C, TAPS: tl.constexpr, BLOCK_C: tl.constexpr, BLOCK: tl.constexpr
):
    """Exchange filters and channels of a group, and reverse the order of the taps."""
    channels = tl.program_id(0) * BLOCK_C + tl.arange(0, BLOCK_C)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    group = tl.program_id(2).to(tl.int64)
    filters, tap = group * FILTERS + place // TAPS, TAPS - 1 - place % TAPS
    inside = (channels < C)[:, None] & (place < FILTERS * TAPS)[None, :]
    sources = ((filters * C)[None, :] + channels[:, None]) * TAPS + tap[None, :]
    targets = (group * C + channels)[:, None] * (FILTERS * TAPS) + place[None, :]
    tl.store(target_ptr + targets, tl.load(w_ptr + sources, mask=inside), mask=inside)
