"""Tensor maps: the structures of 128 bytes by which the copy engine knows a tensor in global memory. One is made of an address, extents and strides, which
the arguments of a launch give, for each tensor and shape of box that the kernel copies."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from tilewright.errors import LaunchError
from tilewright.ir.type_text import parse_type
from tilewright.ir.types import BF16, F16, F32, F64, I32, I64, U8, U16, U32, U64, FloatType, IntType, Type
from tilewright.llvm.registers import storage_size
from tilewright.simt.host.driver import Driver
from tilewright.simt.host.errors import DriverError
from tilewright.simt.host.expressions import Expression, checked, plain, with_words, word, words_of

#: Bytes of a tensor map.
BYTES: Final = 128
#: Extents of a box, and axes, at the most.
MOST_BOX, MOST_AXES = 256, 5
#: What addresses and strides, and the bytes of a box's innermost row, are multiples of.
ALIGNMENT: Final = 16
_MOST_EXTENT, _MOST_STRIDE = 1 << 32, 1 << 40

#: ``CUtensorMapDataType``, by elements; what is not listed is copied as numbers without sign of its size.
_TYPES: Final[dict[Type, str]] = {U8: "UINT8", U16: "UINT16", U32: "UINT32", I32: "INT32", U64: "UINT64", I64: "INT64"} | {
    F16: "FLOAT16",
    F32: "FLOAT32",
    F64: "FLOAT64",
    BF16: "BFLOAT16",
}
_PLAIN: Final = {1: U8, 2: U16, 4: U32, 8: U64}
_SWIZZLES: Final = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}


@dataclass(frozen=True, slots=True)
class TensorMap:
    """What a tensor map says beside what it is made of at a launch.

    Attributes:
        address: of the tensor's first element, as an expression over the words of the kernel's arguments (:mod:`tilewright.simt.host.expressions`).
        extents, strides: of the tensor, the strides in elements, outermost first, as such expressions; as many as ``box`` has.
        element: the type of elements, as Tile IR writes it.
        box: extents of what one copy moves, outermost first.
        span: bytes of a row of a slab; 0: the box is not swizzled.
        nan: whether what is outside the tensor reads as NaN, in place of 0.
        implied: the compiler's own, of pointers that the source adds up, and not of a descriptor: where it cannot be made, the kernel without it does.
    """

    address: Expression
    extents: tuple[Expression, ...]
    strides: tuple[Expression, ...]
    element: str
    box: tuple[int, ...]
    span: int
    nan: bool
    implied: bool = False

    @classmethod
    def of_descriptor(cls, argument: int, element: str, box: tuple[int, ...], span: int, nan: bool) -> TensorMap:
        """The map of a descriptor, an argument of the kernel."""
        rank = len(box)
        extents, strides = (tuple(word(argument, first + axis) for axis in range(rank)) for first in (1, 1 + rank))
        return cls(word(argument), extents, strides, element, box, span, nan)

    @property
    def inputs(self) -> tuple[Expression, ...]:
        """What it is made of: address, extents, strides."""
        return (self.address, *self.extents, *self.strides)

    def with_words(self, replacement: Callable[[int, int], Expression]) -> TensorMap:
        """The same map with ``replacement(argument, index)`` for each word."""

        def replaced(*expressions: Expression) -> tuple[Expression, ...]:
            return tuple(with_words(expression, replacement) for expression in expressions)

        return replace(self, address=replaced(self.address)[0], extents=replaced(*self.extents), strides=replaced(*self.strides))

    def facts(self) -> dict[str, Any]:
        """As plain data, for a code object's metadata."""
        return {name: plain(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def of(cls, facts: dict[str, Any]) -> TensorMap:
        """What :meth:`facts` gave."""
        extents, strides = (tuple(map(checked, facts[name])) for name in ("extents", "strides"))
        return cls(checked(facts["address"]), extents, strides, facts["element"], tuple(facts["box"]), facts["span"], facts["nan"], facts["implied"])


def fills_with_nan(element: Type) -> bool:
    """Whether the copy engine can put NaN in place of elements of a type."""
    return isinstance(element, FloatType) and element in _TYPES


def engine_type(element: Type) -> Type:
    """What the copy engine takes elements for."""
    assert isinstance(element, IntType | FloatType)
    return element if element in _TYPES else _PLAIN[storage_size(element)]


def encoder(cuda: Driver, wanted: TensorMap, kernel: str) -> Callable[[tuple[Any, ...]], bytes]:
    """Makes the map of an address, extents and strides in elements, outermost first: the values of :attr:`TensorMap.inputs`.

    Raises (what it gives):
        LaunchError: the engine cannot reach such a tensor; the message says why.
    """
    element, rank = parse_type(wanted.element), len(wanted.box)
    size = storage_size(element)

    def refuse(why: str) -> LaunchError:
        remedy = "launch the kernel with asynchronous=False, or pass a tensor that fits"
        arguments = ", ".join(str(argument) for argument in sorted({argument for argument, _ in words_of(wanted.address)}))
        return LaunchError(f"{kernel}: the copy engine cannot read the tensor of argument {arguments}: {why}; {remedy}")

    def encode(words: tuple[Any, ...]) -> bytes:
        address, extents, strides = words[0], words[1 : 1 + rank], words[1 + rank :]
        steps = [stride * size for stride in strides[:-1]]
        if strides[-1] != 1:
            raise refuse(f"the elements of a row are {strides[-1]} apart, and must be side by side")
        if address % ALIGNMENT or any(step % ALIGNMENT or not 0 <= step < _MOST_STRIDE for step in steps):
            raise refuse(f"address and strides must be multiples of {ALIGNMENT} bytes, strides below 2**40; they are {address:#x} and {steps} bytes")
        if any(not 0 < extent <= _MOST_EXTENT for extent in extents):
            raise refuse(f"extents must be from 1 to 2**32, and are {list(extents)}")
        return _encoded(cuda, wanted, element, address, extents, steps, refuse)

    return encode


def _encoded(
    cuda: Driver, wanted: TensorMap, element: Type, address: int, extents: tuple[int, ...], steps: list[int], refuse: Callable[[str], LaunchError]
) -> bytes:
    b = cuda.bindings
    # that of a row of one axis is not read, but must be there
    sizes, strides = [b.cuuint64_t(extent) for extent in reversed(extents)], [b.cuuint64_t(step) for step in reversed(steps or [ALIGNMENT])]
    box, ones = [b.cuuint32_t(extent) for extent in reversed(wanted.box)], [b.cuuint32_t(1) for _ in wanted.box]
    try:
        made = cuda(
            "cuTensorMapEncodeTiled",
            getattr(b.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_TYPES[engine_type(element)]}"),
            len(box),
            address,
            sizes,
            strides,
            box,
            ones,
            b.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            getattr(b.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[wanted.span]}"),
            b.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            getattr(
                b.CUtensorMapFloatOOBfill,
                "CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA" if wanted.nan else "CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE",
            ),
        )
    except DriverError as error:
        raise refuse(f"{error} (extents {list(extents)}, strides {steps} bytes, box {list(wanted.box)}, rows of {wanted.span} bytes)") from error
    return struct.pack("<16Q", *(int(word) for word in made.opaque))
