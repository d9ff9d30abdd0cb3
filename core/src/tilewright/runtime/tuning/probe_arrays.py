"""Random arrays whose sums depend on their order, and comparisons of the bits that they lead to."""

from __future__ import annotations

import hashlib
from typing import Any

from tilewright.ir.types import FloatType
from tilewright.runtime.exact.argument_copies import ArgumentCopies
from tilewright.runtime.exact.payloads import float_type, is_tensor
from tilewright.runtime.exact.surroundings import Surrounded

#: Exponents of numbers that cancel each other in sums, and of numbers that exponentials and
#: quotients keep apart.
_WIDE, _NARROW = (-12, 13), (-1, 2)
#: Bits of a float -> the widest range of exponents whose products and sums it holds.
_HELD = {8: (-3, 3), 16: (-8, 8)}


class ProbeArguments(ArgumentCopies):
    """Copies of a launch's arguments that hold random floats of spread exponents."""

    copier = "an invariant tuning"

    def __init__(self, draw: int) -> None:
        super().__init__(draw)
        self._draw = draw

    def contents(self, array: Any) -> Any:
        type_ = float_type(array)
        if type_ is None:
            return array
        held = _HELD.get(type_.bits, _WIDE)
        low, high = held if self._draw % 2 == 0 else _NARROW
        shape = tuple(array.shape)
        if is_tensor(array):
            import torch

            generator = torch.Generator(array.device)
            generator.manual_seed(int(self.rng.integers(1 << 31)))
            where: dict[str, Any] = {"generator": generator, "device": array.device}
            exponents = torch.randint(low, high, shape, **where)
            values = torch.randn(shape, dtype=torch.float32, **where)
            return (values * torch.exp2(exponents.float())).to(array.dtype)
        import numpy as np

        values = self.rng.standard_normal(shape, np.float32)
        return (values * np.exp2(self.rng.integers(low, high, shape))).astype(array.dtype)


def bits_of_memory(array: Surrounded) -> Any:
    """Return the bits of an array and of what surrounds it, as integers; all NaN are alike."""
    flat, type_ = array.flat, float_type(array.flat)
    if not isinstance(type_, FloatType):
        return flat
    if is_tensor(flat):
        import torch

        bits = flat.view(getattr(torch, f"int{type_.bits}"))
        return torch.where(torch.isnan(flat.float()), torch.ones_like(bits).neg(), bits)
    import numpy as np

    found = flat.view(f"int{type_.bits}")
    return np.where(np.isnan(flat), found.dtype.type(-1), found)


def digest_of_bits(bits: Any) -> str:
    """Return a digest of the integers of :func:`bits_of_memory`."""
    array = bits.cpu().numpy() if is_tensor(bits) else bits
    return hashlib.sha256(array.tobytes()).hexdigest()


def first_wrong(before: Any, part: Any, whole: Any) -> int | None:
    """Return the first element that one launch wrote otherwise than another; None without any.

    Args:
        before: bits before both launches.
        part: those that the smaller launch left; whole: those of the other.
    """
    wrong = (part != before) & (part != whole)
    if not bool(wrong.any()):
        return None
    if is_tensor(wrong):
        return int(wrong.nonzero()[0, 0])
    return int(wrong.argmax())
