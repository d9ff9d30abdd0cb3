"""``tl.extra.cpu``: functions for CPUs. They work everywhere."""

# Typed by the compiler, call by call; to Python it is untyped.
# mypy: ignore-errors

from __future__ import annotations

from typing import Any

from tilewright.language import core, libdevice
from tilewright.language.definitions.callable import constexpr_function, device_function


@constexpr_function
def _bits(dtype: Any) -> Any:
    if dtype.primitive_bitwidth > 16:
        raise ValueError("Expected 8-bit or 16-bit values for vnni_decode")
    return dtype.primitive_bitwidth


@device_function
def _decode_pairs(input):
    paired = core.reshape(input, (input.shape[0], input.shape[1] // 2, 2))
    return core.reshape(core.permute(paired, (0, 2, 1)), (input.shape[0] * 2, input.shape[1] // 2))


@device_function
def vnni_decode(input):
    """The matrix [K, N] of one that is packed for dot-product instructions of CPUs.

    16-bit elements are packed as [K/2, 2 N]: rows two by two, element by element in turn. Packing
    that twice, to [K/4, 4 N], is the packing of 8-bit elements.

    Raises:
        ValueError: the elements have more than 16 bits.
    """
    bits: core.constexpr = _bits(input.dtype)
    decoded = _decode_pairs(input)
    if bits == 8:
        return _decode_pairs(decoded)
    else:
        return decoded


__all__ = ["libdevice", "vnni_decode"]
