"""Convolutions on CPUs, by tiles of rows of pixels.

A window's elements are gathered where they are multiplied: as vectors along the columns of an
image, whose elements lie side by side. So filters are the left operand, whose elements are read one
by one, and windows the right one. They are windows of a copy of the images with zeros around, so
that no element has a mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tilewright as tw
from tilewright_kernels.linear.convolution_windows import Window
from tilewright_kernels.linear.element_types import accumulator_of, name_of
from tilewright_kernels.linear.epilogue import packed
from tilewright_kernels.linear.row_convolution_kernels import (
    pad_images_kernel,
    row_convolution_kernel,
    row_filter_gradient_kernel,
    transpose_filters_kernel,
)
from tilewright_kernels.operations import Launcher, strides
from tilewright_kernels.operations.devices import Device

#: Filters of a block, pixels of a tile, and elements of a window that are multiplied together.
_FILTERS, _PIXELS, _ELEMENTS = 128, 128, 64
#: Minimum of the columns of a tile, and of its pixels.
_MIN_COLUMNS, _MIN_PIXELS = 8, 16
#: Work of a tile that does not depend on its size, in pixels.
_START = 4


@dataclass(frozen=True)
class Images:
    """Images of one layout.

    Attributes:
        array: the images.
        count, channels, rows, columns: extents.
        steps: strides of images, channels, rows and columns, in elements.
    """

    array: Any
    count: int
    channels: int
    rows: int
    columns: int
    steps: tuple[int, ...]

    @classmethod
    def of(cls, array: Any, axes: Sequence[int]) -> Images:
        """Return the images of an array with these axes of images, channels, rows and columns."""
        count, channels, rows, columns = (array.shape[axis] for axis in axes)
        steps = tuple(strides(array)[axis] for axis in axes)
        return cls(array, count, channels, rows, columns, steps)

    @property
    def has_adjacent_rows(self) -> bool:
        """Return whether each row begins where the one before ends."""
        return self.steps[2] == self.columns

    @property
    def in_one_row(self) -> Images:
        """The images, each of one row."""
        columns = self.rows * self.columns
        return Images(
            self.array, self.count, self.channels, 1, columns, (*self.steps[:2], columns, 1)
        )


@dataclass(frozen=True)
class _Windows:
    """Images that windows are taken of.

    Attributes:
        array: the images.
        steps: strides of images, channels and rows, and of the remainders of columns.
        are_padded: whether windows of a whole tile lie within them, wherever it begins.
    """

    array: Any
    steps: tuple[int, ...]
    are_padded: bool


def has_contiguous_rows(device: Device, *images: Images) -> bool:
    """Return whether images are convolved by tiles of rows."""
    return device.family == "cpu" and all(each.steps[3] == 1 for each in images)


def pixel_tile(rows: int, columns: int, count: int, device: Device) -> tuple[int, int]:
    """Return the rows and columns of a tile of pixels, powers of two.

    Few pixels of tiles lie beyond the images, and there is a tile for each thread.

    Args:
        rows, columns: of an image.
        count: number of images, blocks of filters and groups.
        device: that it runs on.
    """

    def work(tile: tuple[int, int]) -> tuple[int, int]:
        tiles = count * tw.cdiv(rows, tile[0]) * tw.cdiv(columns, tile[1])
        rounds = tw.cdiv(tiles, device.processors)
        return rounds * (tile[0] * tile[1] + _START), -tile[1]

    tiles = []
    width = _MIN_COLUMNS
    while width <= _PIXELS and width < 2 * max(columns, _MIN_COLUMNS):
        height = max(1, _MIN_PIXELS // width)
        while height * width <= _PIXELS and height < 2 * max(rows, _MIN_PIXELS // width):
            tiles.append((height, width))
            height *= 2
        width *= 2
    return min(tiles, key=work)


def _windows(
    run: Launcher, x: Images, y: Images, window: Window, taps: Sequence[int], tile: tuple[int, int]
) -> _Windows:
    """Return the images that windows of tiles of pixels of ``y`` are taken of."""
    if window.is_point(taps):
        return _Windows(x.array, (*x.steps[:3], 0), False)
    (step_h, step_w), (apart_h, apart_w) = window.stride, window.dilation
    rows = (tw.cdiv(y.rows, tile[0]) * tile[0] - 1) * step_h + (taps[0] - 1) * apart_h + 1
    columns = tw.cdiv(y.columns, tile[1]) * tile[1] + (taps[1] - 1) * apart_w // step_w
    padded = run.empty((x.count, x.channels, rows, step_w, columns), name_of(x.array))
    height = min(32, tw.next_power_of_2(rows))
    run(
        pad_images_kernel,
        (x.count * x.channels, tw.cdiv(rows, height), step_w),
        x.array,
        padded,
        x.channels,
        x.rows,
        x.columns,
        rows,
        columns,
        *x.steps,
        *window.padding,
        STEP_W=step_w,
        BLOCK_H=height,
        BLOCK_W=min(128, max(16, tw.next_power_of_2(columns))),
    )
    row = step_w * columns
    return _Windows(padded, (x.channels * rows * row, rows * row, row, columns), True)


def convolve_rows(
    run: Launcher,
    y: Images,
    x: Images,
    weight: Any,
    bias: Any,
    window: Window,
    groups: int,
    precision: str,
    device: Device,
) -> None:
    """Launch a convolution; ``weight`` is of C order."""
    filters, channels, *taps = weight.shape
    filters //= groups
    x, y = _flattened(x, y, window, taps)
    rows = min(_FILTERS, max(16, tw.next_power_of_2(filters)))
    elements = channels * taps[0] * taps[1]
    inner = min(_ELEMENTS, max(16, tw.next_power_of_2(elements)))
    blocks = tw.cdiv(filters, rows)
    tile = pixel_tile(y.rows, y.columns, y.count * blocks * groups, device)
    windows = _windows(run, x, y, window, taps, tile)
    run(
        row_convolution_kernel,
        (blocks, y.count * tw.cdiv(y.rows, tile[0]) * tw.cdiv(y.columns, tile[1]), groups),
        windows.array,
        weight,
        y.array,
        None if bias is None else packed(bias),
        filters,
        channels,
        elements,
        y.rows,
        y.columns,
        *windows.steps,
        *y.steps,
        window.stride[0],
        *window.dilation,
        R=taps[0],
        S=taps[1],
        STEP_W=window.stride[1],
        PIXELS_FIT=windows.are_padded,
        BLOCK_M=rows,
        BLOCK_H=tile[0],
        BLOCK_W=tile[1],
        BLOCK_K=inner,
        EVEN_K=elements % inner == 0,
        SUM=accumulator_of(name_of(x.array)),
        PRECISION=precision,
    )


def _flattened(x: Images, y: Images, window: Window, taps: Sequence[int]) -> tuple[Images, Images]:
    """Return images of one row each where a window is a pixel and rows are adjacent."""
    if window.is_point(taps) and x.has_adjacent_rows and y.has_adjacent_rows:
        return x.in_one_row, y.in_one_row
    return x, y


def image_gradient_by_rows(
    run: Launcher,
    dx: Images,
    dy: Images,
    weight: Any,
    window: Window,
    groups: int,
    precision: str,
    device: Device,
) -> None:
    """Launch the gradient of the images where outputs are a pixel apart: a convolution, too.

    Its filters are the transposed ones, and a pixel's first tap is the last one.
    """
    filters, channels, *taps = weight.shape
    filters //= groups
    transposed = run.empty((groups * channels, filters, *taps), name_of(weight))
    size = taps[0] * taps[1]
    run(
        transpose_filters_kernel,
        (tw.cdiv(channels, 16), tw.cdiv(filters * size, 64), groups),
        packed(weight),
        transposed,
        filters,
        channels,
        TAPS=size,
        BLOCK_C=16,
        BLOCK=64,
    )
    first, second = (
        apart * (count - 1) - zeros
        for apart, count, zeros in zip(window.dilation, taps, window.padding, strict=True)
    )
    mirrored = Window((1, 1), (first, second), window.dilation)
    convolve_rows(run, dx, dy, transposed, None, mirrored, groups, precision, device)


def filter_gradient_by_rows(
    run: Launcher,
    dw: Any,
    dy: Images,
    x: Images,
    window: Window,
    groups: int,
    precision: str,
    device: Device,
) -> None:
    """Launch the gradient of filters; ``dw`` is of C order."""
    filters, channels, *taps = dw.shape
    filters //= groups
    x, dy = _flattened(x, dy, window, taps)
    elements = channels * taps[0] * taps[1]
    rows = min(_FILTERS, max(16, tw.next_power_of_2(elements)))
    columns = min(_FILTERS, max(16, tw.next_power_of_2(filters)))
    tile = pixel_tile(dy.rows, dy.columns, device.processors, device)
    windows = _windows(run, x, dy, window, taps, tile)
    run(
        row_filter_gradient_kernel,
        (tw.cdiv(elements, rows), tw.cdiv(filters, columns), groups),
        windows.array,
        dy.array,
        dw,
        dy.count,
        filters,
        channels,
        elements,
        dy.rows,
        dy.columns,
        *windows.steps,
        *dy.steps,
        window.stride[0],
        *window.dilation,
        R=taps[0],
        S=taps[1],
        STEP_W=window.stride[1],
        ELEMENTS_FIT=elements % rows == 0,
        PIXELS_FIT=dy.rows % tile[0] == 0 and dy.columns % tile[1] == 0,
        BLOCK_M=rows,
        BLOCK_N=columns,
        BLOCK_H=tile[0],
        BLOCK_W=tile[1],
        SUM=accumulator_of(name_of(x.array)),
        PRECISION=precision,
    )
