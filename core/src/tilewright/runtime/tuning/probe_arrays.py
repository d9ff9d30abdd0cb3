"""Random arrays whose sums depend on their order, and comparisons of the bits that they lead to."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from tilewright.ir.type_text import parse_type
from tilewright.ir.types import FloatType
from tilewright.runtime.arguments.array_protocols import ArrayView
from tilewright.runtime.arguments.device_bytes import SavedBytes, memory_of, view_of
from tilewright.runtime.arguments.dtypes import IR_TEXT
from tilewright.runtime.exact.argument_copies import ArgumentCopies
from tilewright.runtime.exact.payloads import float_type, is_tensor
from tilewright.runtime.exact.surroundings import Surrounded

if TYPE_CHECKING:
    from tilewright.plugins.manifest import Memory

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
        low, high = self._exponents(type_)
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

    def foreign(self, name: str, array: Any) -> Any:
        import numpy as np

        view = view_of(array)
        memory = None if view is None else memory_of(view.device)
        if view is None or memory is None:
            return super().foreign(name, array)
        host = SavedBytes(view, memory).host.view(f"uint{8 * view.element_size()}")
        type_ = float_type_of(view)
        if type_ is not None:
            from tilewright.reference.numerics import encode

            exponents = np.exp2(self.rng.integers(*self._exponents(type_), host.shape))
            host = encode(self.rng.standard_normal(host.shape) * exponents, type_).view(host.dtype)
        return DeviceCopy(view, memory, host)

    def _exponents(self, type_: FloatType) -> tuple[int, int]:
        return _HELD.get(type_.bits, _WIDE) if self._draw % 2 == 0 else _NARROW


class DeviceCopy:
    """A copy of an array of any library, in memory of its device.

    Attributes:
        view: the array that is copied.
        array: the copy, for launches.
    """

    def __init__(self, view: ArrayView, memory: Memory, elements: Any) -> None:
        """Begin with these elements, unsigned integers."""
        self.view, self._memory, self._elements = view, memory, elements
        buffer = memory.allocate(max(1, elements.nbytes), 256)
        memory.copy_to_device(buffer, elements.view("uint8").data)
        self.array = ArrayView(
            buffer, int(buffer.data_ptr()), view.dtype, view.shape, view.strides, view.device
        )

    @property
    def size(self) -> int:
        return int(self._elements.size)

    def copy(self) -> DeviceCopy:
        """Return a copy of the elements that this one began with."""
        return DeviceCopy(self.view, self._memory, self._elements)

    def bits(self) -> Any:
        """Return the elements as they are now, unsigned integers."""
        return SavedBytes(self.array, self._memory).host.view(self._elements.dtype)


def float_type_of(array: Surrounded | DeviceCopy | ArrayView) -> FloatType | None:
    """Return the element type of an array of floats; None for another array."""
    if isinstance(array, Surrounded):
        return float_type(array.flat)
    dtype = array.dtype if isinstance(array, ArrayView) else array.view.dtype
    found = parse_type(IR_TEXT[dtype])
    return found if isinstance(found, FloatType) else None


def bits_of_memory(array: Surrounded | DeviceCopy) -> Any:
    """Return the bits of an array and of what surrounds it, as integers; all NaN are alike."""
    type_ = float_type_of(array)
    if isinstance(array, DeviceCopy):
        return _with_one_nan(array.bits(), type_)
    flat = array.flat
    if type_ is None:
        return flat
    if is_tensor(flat):
        import torch

        bits = flat.view(getattr(torch, f"int{type_.bits}"))
        return torch.where(torch.isnan(flat.float()), torch.ones_like(bits).neg(), bits)
    import numpy as np

    found = flat.view(f"int{type_.bits}")
    return np.where(np.isnan(flat), found.dtype.type(-1), found)


def _with_one_nan(bits: Any, type_: FloatType | None) -> Any:
    if type_ is None or type_.bits == 8:
        return bits
    import numpy as np

    from tilewright.reference.numerics import encode

    infinity = np.ascontiguousarray(encode(np.full(1, np.inf), type_)).view(bits.dtype)
    without_sign = bits & bits.dtype.type((1 << type_.bits - 1) - 1)
    return np.where(without_sign > infinity, ~bits.dtype.type(0), bits)


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
