"""The kinds of numbers that operands hold, and how they lie in registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright_amd_emulator.code.operands import Operand, float_bits

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Kind:
    """``width`` in bits; ``dtype`` is how NumPy computes with it."""

    name: str
    width: int
    dtype: Any

    @property
    def floating(self) -> bool:
        return self.name[0] == "f"

    @property
    def words(self) -> int:
        return max(self.width // 32, 1)

    @property
    def unsigned(self) -> Any:
        return {16: np.uint16, 32: np.uint32, 64: np.uint64}[self.width]


KINDS = {
    kind.name: kind
    for kind in (
        Kind("b16", 16, np.uint16),
        Kind("u16", 16, np.uint16),
        Kind("i16", 16, np.int16),
        Kind("f16", 16, np.float16),
        Kind("b32", 32, np.uint32),
        Kind("u32", 32, np.uint32),
        Kind("i32", 32, np.int32),
        Kind("f32", 32, np.float32),
        Kind("b64", 64, np.uint64),
        Kind("u64", 64, np.uint64),
        Kind("i64", 64, np.int64),
        Kind("f64", 64, np.float64),
    )
}


def constant(operand: Operand, kind: Kind) -> int:
    """The bits that a number stands for in an operand of this kind."""
    mask = (1 << kind.width) - 1
    if operand.kind == "real":
        if kind.width == 16 and not kind.floating and kind.name != "b16":
            return float_bits(operand.real, 32) & mask
        return float_bits(operand.real, kind.width)
    value = operand.value
    if kind.width == 64 and operand.bits and 0 <= value < 1 << 32:
        if kind.name == "f64":
            return value << 32
        if kind.name == "i64" and value >> 31:
            return (value - (1 << 32)) & mask
    return value & mask


def modified(bits: Array, width: int, negated: bool, absolute: bool) -> Array:
    """Sign modifiers on unsigned words of ``width`` bits."""
    sign = bits.dtype.type(1 << (width - 1))
    if absolute:
        bits = bits & ~sign
    return bits ^ sign if negated else bits


def join(low: Array, high: Array) -> Array:
    """uint64 of two words."""
    return low | high.astype(np.uint64) << np.uint64(32)


def halves(value: Array) -> tuple[Array, Array]:
    """The two words of 64 bits."""
    bits = np.ascontiguousarray(value).view(np.uint64)
    return bits.astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32)


def flushed(value: Array) -> Array:
    """Floats with denormals as zeros of their sign."""
    tiny = np.abs(value) < np.finfo(value.dtype).smallest_normal
    return np.where(tiny, np.copysign(value.dtype.type(0), value), value) if tiny.any() else value
