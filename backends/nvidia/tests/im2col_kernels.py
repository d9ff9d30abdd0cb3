"""Loads of pixels in the order of a convolution: kernels, and what they are to give."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright.passes import pipeline


@device_function
def window(
    x,
    out,
    n,
    h,
    w,
    c,
    P: tl.constexpr,
    C: tl.constexpr,
    R: tl.constexpr,
    S: tl.constexpr,
    LOW: tl.constexpr,
    HIGH: tl.constexpr,
    OTHER: tl.constexpr,
):
    """``out`` [R * S, P, C]: of each place of a window, the pixels from one on; an odd one out in a
    smaller box, of a map of its own."""
    at = tl.arange(0, P)[:, None] * C + tl.arange(0, C)[None, :]
    for r in range(R):
        for s in range(S):
            tile = tl.extra.cuda.load_im2col(x, [n, h, w, c], [r, s], P, [LOW, LOW], [HIGH, HIGH])
            tl.store(out + (r * S + s) * P * C + at, tile)
    tile = tl.extra.cuda.load_im2col(x, [n, h, w, c], [0, 0], P, [LOW, LOW], [OTHER, OTHER])
    tl.store(out + R * S * P * C + at, tile)


#: (extents of the images, first pixel and channel, pixels, channels, extents of the window, lower
#: and upper corner, the other upper corner)
CASES: tuple[tuple[Any, ...], ...] = (
    ((2, 9, 11, 64), (0, -1, -1, 0), 64, 64, (3, 3), -1, -1, -2),
    ((3, 5, 7, 40), (1, 2, 3, 8), 32, 16, (2, 3), 0, -2, 0),
    ((1, 8, 8, 32), (0, 5, 4, 16), 128, 32, (1, 1), 0, 0, -1),
    ((2, 6, 6, 256), (1, -2, 2, 0), 16, 256, (3, 5), -2, -2, -3),
)


def module_of(element: str, case: tuple[Any, ...], divisibility: int = 16) -> Module:
    """The kernel for a case."""
    _, _, pixels, channels, (r, s), lower, upper, other = case
    constants = {
        "P": pixels,
        "C": channels,
        "R": r,
        "S": s,
        "LOW": lower,
        "HIGH": upper,
        "OTHER": other,
    }
    types = {
        "x": f"tensordesc<{element}[1,1,1,{channels}]>",
        "out": f"*{element}",
        **dict.fromkeys("nhwc", "i32"),
    }
    module = compile_function(
        window,
        {**types, **dict.fromkeys(constants, "constexpr")},
        constants,
        {"x": {"divisibility": divisibility}},
    )
    pipeline.run(module, pipeline.STANDARD)
    return module


def expected(images: np.ndarray[Any, Any], case: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    """Return the expected output of the kernel."""
    (count, height, width, depth), (n, h, w, c), pixels, channels, (r, s), lower, upper, other = (
        case
    )
    found = np.zeros((r * s + 1, pixels, channels), images.dtype)
    for place in range(r * s + 1):
        down, right = divmod(place, s) if place < r * s else (0, 0)
        high = upper if place < r * s else other
        rows, columns = height + high - lower, width + high - lower
        assert 0 <= h - lower < rows and 0 <= w - lower < columns, (
            "the machine ends a kernel that begins outside of the box"
        )
        first = ((n * rows) + h - lower) * columns + w - lower
        for pixel in range(pixels):
            rest, column = divmod(first + pixel, columns)
            image, row = divmod(rest, rows)
            y, x = row + lower + down, column + lower + right
            if image < count and 0 <= y < height and 0 <= x < width:
                there = images[image, y, x, c : min(c + channels, depth)]
                found[place, pixel, : len(there)] = there
    return found
