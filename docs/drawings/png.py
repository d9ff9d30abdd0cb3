"""Images as PNG files."""

from __future__ import annotations

import struct
import zlib

import numpy as np


def png(image: np.ndarray, zoom: int = 2) -> bytes:
    """Return a PNG file of a matrix of floats, whose smallest is black and whose largest is white.

    Args:
        image: of shape (rows, columns).
        zoom: pixels per element, along both axes.
    """
    low, high = float(image.min()), float(image.max())
    levels = (255 * (image - low) / max(high - low, 1e-30)).round().astype(np.uint8)
    levels = levels.repeat(zoom, 0).repeat(zoom, 1)
    height, width = levels.shape
    rows = np.zeros((height, width + 1), np.uint8)  # the first byte of a row: no filter
    rows[:, 1:] = levels
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
