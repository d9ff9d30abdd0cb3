"""Payloads in arrays: of numbers, drawn, read as fractions, and compared.

An array of payloads has the floats' own type, of NumPy or of PyTorch: its bits are the payloads.
Copies, views and kernels in exact mode keep them; arithmetic of the library's own means nothing.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tilewright.ir.type_text import parse_type
from tilewright.ir.types import FloatType
from tilewright.passes.exact.ring import PRIME, Ring, ring_of
from tilewright.runtime.arguments.array_protocols import ArgumentError
from tilewright.runtime.arguments.dtypes import IR_TEXT, dtype_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: The range of exponents of floats, and of the bits below them.
_EXPONENTS = 1200


def float_type(array: Any) -> FloatType | None:
    """The element type of an array of floats; None for another array."""
    try:
        return _float_type_of(dtype_text(array.dtype))
    except (ArgumentError, KeyError, ValueError, TypeError):
        return None


@functools.cache
def _float_type_of(dtype: str) -> FloatType | None:
    found = parse_type(IR_TEXT[dtype])
    return found if isinstance(found, FloatType) else None


def is_tensor(array: Any) -> bool:
    """Return whether an array is PyTorch's."""
    return hasattr(array, "as_strided")


def bits_of(array: Any) -> NDArray[Any]:
    """The payloads of an array on any device, as a new NumPy array of unsigned integers.

    Raises:
        TypeError: it holds no floats.
    """
    import numpy as np

    type_ = _require_floats(array)
    if is_tensor(array):
        import torch

        signed = getattr(torch, f"int{type_.bits}")
        found: NDArray[Any] = array.detach().contiguous().cpu().view(signed).numpy()
        return found.view(f"uint{type_.bits}").copy()
    return np.ascontiguousarray(array).view(f"uint{type_.bits}").reshape(array.shape).copy()


def with_bits(array: Any, bits: NDArray[Any]) -> Any:
    """An array like another, with payloads of the same shape or of any other."""
    if is_tensor(array):
        import torch

        signed = torch.from_numpy(bits.view(f"int{8 * bits.itemsize}").copy())
        return signed.to(array.device).view(array.dtype)
    return bits.view(array.dtype)


def _require_floats(array: Any) -> FloatType:
    type_ = float_type(array)
    if type_ is None:
        raise TypeError(f"payloads stand for floats, and this array holds {array.dtype}")
    return type_


@functools.cache
def _powers_of_two(modulus: int) -> NDArray[np.uint64]:
    import numpy as np

    exponents = range(-_EXPONENTS, _EXPONENTS)
    return np.array([pow(2, exponent, modulus) for exponent in exponents], dtype=np.uint64)


def embed(array: Any) -> Any:
    """Return the payloads of an array's numbers, in an array of the same shape and type.

    Each binary fraction ``m * 2**e`` stands where it belongs; -0.0 is 0, infinities and NaN are
    codes.

    Raises:
        TypeError: the array holds no floats.
    """
    import numpy as np

    ring = ring_of(_require_floats(array))
    if is_tensor(array):
        values = array.detach().cpu().double().numpy()
    else:
        values = np.asarray(array).astype(np.float64)
    return with_bits(array, payloads_of_numbers(ring, values))


def payloads_of_numbers(ring: Ring, values: NDArray[np.float64]) -> NDArray[Any]:
    """Return the payloads of numbers, as unsigned integers: see :func:`embed`."""
    import numpy as np

    finite = np.isfinite(values)
    significand, exponent = np.frexp(np.where(finite, values, 0.0))
    modulus = np.uint64(ring.modulus)
    integer = np.abs(np.ldexp(significand, 53)).astype(np.uint64) % modulus
    residue = integer * _powers_of_two(ring.modulus)[exponent - 53 + _EXPONENTS] % modulus
    residue = np.where((values < 0) & (residue != 0), modulus - residue, residue)
    infinite = np.where(values < 0, np.uint64(ring.negative_infinity), np.uint64(ring.infinity))
    code = np.where(np.isnan(values), np.uint64(ring.nan), infinite)
    found: NDArray[Any] = np.where(finite, residue, code).astype(f"uint{ring.bits}")
    return found


def draw(array: Any, rng: np.random.Generator) -> Any:
    """Return residues drawn uniformly, in an array of another's shape and type.

    Raises:
        TypeError: the array holds no floats.
    """
    ring = ring_of(_require_floats(array))
    drawn = rng.integers(0, ring.modulus, tuple(array.shape), dtype="uint64")
    return with_bits(array, drawn.astype(f"uint{ring.bits}"))


def fraction(ring: Ring, payload: int) -> Fraction | str:
    """Return the simplest fraction of a payload's residue; of a code, its name.

    Numerator and denominator are below the root of half the modulus, about 44,500 for f32; of
    other residues it is one that has no such fraction, as the balanced integer.
    """
    if payload >= ring.modulus:
        names = {
            ring.negative_infinity: "-inf",
            ring.infinity: "inf",
            ring.nan: "nan",
            ring.undefined: "undefined",
        }
        return names.get(payload, "no payload")
    bound = math.isqrt(ring.modulus // 2)
    previous, current = (ring.modulus, 0), (payload, 1)
    while current[0] > bound:
        quotient = previous[0] // current[0]
        previous, current = (
            current,
            (previous[0] - quotient * current[0], previous[1] - quotient * current[1]),
        )
    numerator, denominator = current
    if denominator and abs(denominator) <= bound and math.gcd(numerator, denominator) == 1:
        return Fraction(numerator, denominator)
    return Fraction(payload if payload <= ring.half else payload - ring.modulus)


def fractions(array: Any) -> NDArray[np.object_]:
    """Return what payloads stand for, by rational reconstruction: see :func:`fraction`.

    Raises:
        TypeError: the array holds no floats.
    """
    import numpy as np

    ring, bits = ring_of(_require_floats(array)), bits_of(array)
    found = np.empty(bits.shape, dtype=object)
    for index in np.ndindex(*bits.shape):
        found[index] = fraction(ring, int(bits[index]))
    return found


def agree(a: Any, b: Any, digits: int | None = None) -> NDArray[np.bool_]:
    """Return where the payloads of two arrays of one shape and type agree.

    Args:
        digits: the lower digits to base 251 that are compared, 3 of f32 where a logarithm is on
            either side; None for all. Undefined payloads agree with all others.

    Raises:
        TypeError: an array holds no floats.
    """
    return payloads_agree(ring_of(_require_floats(a)), bits_of(a), bits_of(b), digits)


def payloads_agree(
    ring: Ring, left: NDArray[Any], right: NDArray[Any], digits: int | None = None
) -> NDArray[np.bool_]:
    """Return where payloads, as unsigned integers, agree: see :func:`agree`."""
    equal = left == right
    if digits is not None and digits < ring.digits:
        modulus = left.dtype.type(PRIME**digits)
        residues = (left < ring.modulus) & (right < ring.modulus)
        equal |= residues & (left % modulus == right % modulus)
    found: NDArray[np.bool_] = equal | (left == ring.undefined) | (right == ring.undefined)
    return found
