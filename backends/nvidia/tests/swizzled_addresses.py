"""The hardware's swizzles of shared memory, as addresses."""

from __future__ import annotations


def exchanged(address: int, span: int) -> int:
    """Where the hardware keeps what is at an address: bits 4 to 6, 4 and 5, or 4 are exchanged by
    those three above."""
    return address ^ (address >> 7 & {128: 7, 64: 3, 32: 1}[span]) << 4
