"""The types of the language: numbers, pointers, blocks.

Types are interned: two equal types are one object, so the compiler compares them with ``is``;
``==`` also looks through :class:`constexpr`. Each knows the Tile IR type that carries it
(``ir_type``). A pointer to ``int1`` is carried as a pointer to bytes, because a boolean takes a
byte in memory; ``const`` exists in the language only.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from tilewright import ir
from tilewright.errors import helped, noted
from tilewright.ir import types as ir_types
from tilewright.language.value_types.base_classes import base_type, base_value

#: The module that types are written with, ``repr(float32)``: code that is generated from it is
#: evaluated where the module has this name.
surface = "tilewright.language"

#: The most elements a tensor of a kernel may have.
TRITON_MAX_TENSOR_NUMEL: int = int(os.environ.get("TRITON_MAX_TENSOR_NUMEL", 1048576))


# name: (bits, signature text, IR type)
_INTEGERS: dict[str, tuple[int, str, ir_types.Type]] = {
    "int1": (1, "u1", ir_types.I1),
    "int8": (8, "i8", ir_types.I8),
    "int16": (16, "i16", ir_types.I16),
    "int32": (32, "i32", ir_types.I32),
    "int64": (64, "i64", ir_types.I64),
    "uint8": (8, "u8", ir_types.U8),
    "uint16": (16, "u16", ir_types.U16),
    "uint32": (32, "u32", ir_types.U32),
    "uint64": (64, "u64", ir_types.U64),
}
_FLOATS: dict[str, ir_types.FloatType] = {
    "fp8e4nv": ir_types.F8E4M3FN,
    "fp8e5": ir_types.F8E5M2,
    "fp8e4b8": ir_types.F8E4M3FNUZ,
    "fp8e5b16": ir_types.F8E5M2FNUZ,
    "fp8e4b15": ir_types.F8E4B15,
    "fp16": ir_types.F16,
    "bf16": ir_types.BF16,
    "fp32": ir_types.F32,
    "fp64": ir_types.F64,
}


class dtype(base_type):  # noqa: N801
    """The type of a number: ``dtype("fp32")`` is ``tilewright.language.float32``.

    Attributes:
        name: ``int1 int8 … uint64 fp8e4nv fp8e5 fp8e4b8 fp8e5b16 fp8e4b15 fp16 bf16 fp32 fp64
            void``.
        primitive_bitwidth: bits of a value; ``int_bitwidth`` for integers.
        itemsize: whole bytes, ``primitive_bitwidth // 8``: 0 for ``int1``.
        int_signedness: of integers; ``int1`` counts as unsigned.
        fp_mantissa_width, exponent_bias: of floats.
    """

    SINT_TYPES: ClassVar[list[str]] = ["int8", "int16", "int32", "int64"]
    UINT_TYPES: ClassVar[list[str]] = ["int1", "uint8", "uint16", "uint32", "uint64"]
    FP_TYPES: ClassVar[list[str]] = list(_FLOATS)
    STANDARD_FP_TYPES: ClassVar[list[str]] = ["fp16", "bf16", "fp32", "fp64"]
    OTHER_TYPES: ClassVar[list[str]] = ["void"]

    class SIGNEDNESS(enum.Enum):
        """The signedness of an integer type."""

        SIGNED = 0
        UNSIGNED = 1

    class KIND(enum.Enum):
        """Kinds of numbers; in a promotion of two kinds, the later one in this order wins."""

        BOOLEAN = 0
        INTEGRAL = 1
        FLOATING = 2

    _interned: ClassVar[dict[Any, Any]] = {}

    name: str
    primitive_bitwidth: int
    itemsize: int
    int_signedness: SIGNEDNESS
    int_bitwidth: int
    fp_mantissa_width: int
    exponent_bias: int
    scalar: dtype
    _ir: ir_types.Type | None
    _signature: str
    # What hot paths ask for, as plain attributes.
    _is_int: bool = False
    _is_float: bool = False
    _is_ptr: bool = False
    _kind: int = -1

    def __new__(cls, name: Any, *args: Any, **kwargs: Any) -> Any:
        name = getattr(name, "value", name)
        found = cls._interned.get(name)
        if found is None:
            # Where two threads meet here, both get the one that came first.
            found = cls._interned.setdefault(name, cls._make(name))
        return found

    @classmethod
    def _make(cls, name: str) -> dtype:
        self = object.__new__(cls)
        self.name = name
        self.scalar = self
        if name in _INTEGERS:
            bits, self._signature, self._ir = _INTEGERS[name]
            self.int_signedness = (
                dtype.SIGNEDNESS.SIGNED if name in cls.SINT_TYPES else dtype.SIGNEDNESS.UNSIGNED
            )
            self.int_bitwidth = self.primitive_bitwidth = bits
            self._is_int = True
            self._kind = dtype.KIND.BOOLEAN.value if bits == 1 else dtype.KIND.INTEGRAL.value
        elif name in _FLOATS:
            format_ = _FLOATS[name]
            self._signature, self._ir = name, format_
            self.primitive_bitwidth, self.fp_mantissa_width, self.exponent_bias = (
                format_.bits,
                format_.mantissa,
                format_.bias,
            )
            self._is_float = True
            self._kind = dtype.KIND.FLOATING.value
        elif name == "void":
            self._signature, self._ir, self.primitive_bitwidth = "void", None, 0
        else:
            raise ValueError(
                f"unknown dtype {name!r}; known: {', '.join((*_INTEGERS, *_FLOATS, 'void'))}"
            )
        self.itemsize = self.primitive_bitwidth // 8
        return self

    @property
    def ir_type(self) -> ir_types.Type:
        """The IR type that carries a value of this type."""
        if self._ir is None:
            raise TypeError(f"there are no values of type {self}")
        return self._ir

    def to_ir(self, builder: Any) -> ir_types.Type:
        """The IR type, for code that passes a builder along."""
        return self.ir_type

    def flatten(self) -> list[ir_types.Type]:
        return [self.ir_type]

    def unflatten(self, values: Iterator[ir.Value]) -> base_value:
        from tilewright.language.value_types.tensors import tensor

        return tensor(next(values), self)

    # -- predicates --------------------------------------------------------------------------------

    def is_fp8(self) -> bool:
        return self._is_float and self.primitive_bitwidth == 8

    def is_fp8e4nv(self) -> bool:
        return self.name == "fp8e4nv"

    def is_fp8e4b8(self) -> bool:
        return self.name == "fp8e4b8"

    def is_fp8e4b15(self) -> bool:
        return self.name == "fp8e4b15"

    def is_fp8e5(self) -> bool:
        return self.name == "fp8e5"

    def is_fp8e5b16(self) -> bool:
        return self.name == "fp8e5b16"

    def is_fp16(self) -> bool:
        return self.name == "fp16"

    def is_bf16(self) -> bool:
        return self.name == "bf16"

    def is_fp32(self) -> bool:
        return self.name == "fp32"

    def is_fp64(self) -> bool:
        return self.name == "fp64"

    def is_int1(self) -> bool:
        return self.name == "int1"

    def is_int8(self) -> bool:
        return self.name == "int8"

    def is_int16(self) -> bool:
        return self.name == "int16"

    def is_int32(self) -> bool:
        return self.name == "int32"

    def is_int64(self) -> bool:
        return self.name == "int64"

    def is_uint8(self) -> bool:
        return self.name == "uint8"

    def is_uint16(self) -> bool:
        return self.name == "uint16"

    def is_uint32(self) -> bool:
        return self.name == "uint32"

    def is_uint64(self) -> bool:
        return self.name == "uint64"

    def is_floating(self) -> bool:
        return self._is_float

    def is_standard_floating(self) -> bool:
        return self.name in dtype.STANDARD_FP_TYPES

    def is_int(self) -> bool:
        """Return whether it is an integer type; ``int1`` is one."""
        return self._is_int

    def is_int_signed(self) -> bool:
        return self._is_int and self.int_signedness is dtype.SIGNEDNESS.SIGNED

    def is_int_unsigned(self) -> bool:
        """Return whether it is an unsigned integer type; ``int1`` is one."""
        return self._is_int and self.int_signedness is dtype.SIGNEDNESS.UNSIGNED

    def is_bool(self) -> bool:
        return self.is_int1()

    def is_void(self) -> bool:
        return self.name == "void"

    @staticmethod
    def is_dtype(type_str: str) -> bool:
        """Return whether ``type_str`` names a dtype."""
        return type_str in _INTEGERS or type_str in _FLOATS or type_str == "void"

    @staticmethod
    def is_block() -> bool:
        return False

    @staticmethod
    def is_ptr() -> bool:
        return False

    @staticmethod
    def is_const() -> bool:
        return False

    def kind(self) -> KIND:
        """Boolean, integral or floating."""
        if self._kind < 0:
            raise TypeError(f"{self} is not a type of numbers")
        return dtype.KIND(self._kind)

    def get_int_max_value(self) -> int:
        """Return the maximum of an integer type."""
        return self._integer().maximum

    def get_int_min_value(self) -> int:
        """Return the minimum of an integer type."""
        return self._integer().minimum

    def _integer(self) -> ir_types.IntType:
        if not isinstance(self._ir, ir_types.IntType):
            raise TypeError(f"{self} is not an integer type")
        return self._ir

    def with_element_ty(self, element_ty: dtype) -> dtype:
        """Return the type of the same shape with another element type; for a scalar, that type."""
        return element_ty

    # -- text --------------------------------------------------------------------------------------

    def __str__(self) -> str:
        return self.name

    @property
    def codegen_name(self) -> str:
        """The name in ``tilewright.language``: ``float32``, ``bfloat16``, ``int8``."""
        if self.name.startswith("fp"):
            return "float" + self.name[2:]
        if self.name.startswith("bf"):
            return "bfloat" + self.name[2:]
        return self.name

    @property
    def cache_key_part(self) -> str:
        """The text of this type in a signature: ``fp32``, ``i64``, ``u1``."""
        return self._signature

    def mangle(self) -> str:
        return self._signature

    def __repr__(self) -> str:
        return f"{surface}.{self.codegen_name}"

    # -- identity ----------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return self is other or (
            not isinstance(other, dtype) and self is getattr(other, "value", None)
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __copy__(self) -> dtype:
        return self

    def __deepcopy__(self, memo: object) -> dtype:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype, (self.name,)


_ADDRESS_SPACES: dict[Any, str] = {1: "global", 3: "shared", 4: "constant", 5: "private"}


class pointer_type(dtype):  # noqa: N801
    """The type of a pointer to an element, such as ``pointer_type(float32)``.

    Args:
        element_ty: what is pointed to.
        address_space: 1 or ``"global"`` (memory of the device), or the name of another space of the
            IR.
        const: loads only; a store through it is refused.
    """

    element_ty: dtype
    address_space: Any
    const: bool
    _is_ptr = True
    _interned_pointers: ClassVar[dict[Any, pointer_type]] = {}

    def __new__(cls, element_ty: Any, address_space: Any = 1, const: Any = False) -> pointer_type:
        element_ty, address_space, const = (
            getattr(item, "value", item) for item in (element_ty, address_space, const)
        )
        if address_space == "global":
            address_space = 1
        key = (element_ty, address_space, bool(const))
        found = cls._interned_pointers.get(key)
        if found is not None:
            return found
        if (
            not isinstance(element_ty, dtype)
            or isinstance(element_ty, block_type)
            or element_ty.is_void()
        ):
            raise TypeError(
                f"element_ty of a pointer_type is a type of numbers or pointers, not {element_ty!r}"
            )
        self: pointer_type = object.__new__(cls)
        self.element_ty, self.address_space, self.const = element_ty, address_space, bool(const)
        self.name = f"pointer<{element_ty}>" if not const else f"const_pointer<{element_ty}>"
        self.scalar = self
        self.primitive_bitwidth, self.itemsize = 64, 8
        pointee = ir_types.I8 if element_ty.is_int1() else element_ty.ir_type
        self._ir = ir_types.PointerType(pointee, _ADDRESS_SPACES.get(address_space, address_space))
        self._signature = ("*k" if const else "*") + element_ty.cache_key_part
        return cls._interned_pointers.setdefault(key, self)

    def is_ptr(self) -> bool:  # type: ignore[override]
        return True

    def is_const(self) -> bool:  # type: ignore[override]
        return self.const

    def mangle(self) -> str:
        return f"{'KP' if self.const else 'P'}{self.element_ty.mangle()}"

    def __repr__(self) -> str:
        extra = "" if self.address_space == 1 else f", address_space={self.address_space!r}"
        if self.const:
            extra += ", const=True"
        return f"{surface}.pointer_type({self.element_ty!r}{extra})"

    def __reduce__(self) -> tuple[Any, ...]:
        return pointer_type, (self.element_ty, self.address_space, self.const)


class block_type(dtype):  # noqa: N801
    """The type of a tensor with the given ``shape`` and elements of type ``element_ty``.

    An example is ``block_type(float32, [128, 64])``.

    Every extent is a power of two, and there are at most ``TRITON_MAX_TENSOR_NUMEL`` elements.

    Raises:
        TypeError: the shape is empty, or an extent is not an integer known at compile time.
        ValueError: an extent is not a power of two, or there are too many elements.
    """

    element_ty: dtype
    shape: tuple[int, ...]
    numel: int
    _interned_blocks: ClassVar[dict[Any, block_type]] = {}

    def __new__(cls, element_ty: Any, shape: Sequence[Any]) -> block_type:
        key = (element_ty, shape)
        try:
            found = cls._interned_blocks.get(key)
        except TypeError:
            found = None
        if found is not None:
            return found
        element_ty = getattr(element_ty, "value", element_ty)
        if not isinstance(element_ty, dtype) or element_ty.is_block() or element_ty.is_void():
            raise TypeError(
                f"element_ty of a block_type is a type of numbers or pointers, not {element_ty!r}"
            )
        extents = validate_block_shape(shape)
        key = (element_ty, extents)
        found = cls._interned_blocks.get(key)
        if found is not None:
            return found
        self: block_type = object.__new__(cls)
        self.element_ty = self.scalar = element_ty
        self.shape = extents
        numel = 1
        for extent in extents:
            numel *= extent
        self.numel = numel
        self.name = f"<{list(extents)}, {element_ty}>"
        self.primitive_bitwidth, self.itemsize = element_ty.primitive_bitwidth, element_ty.itemsize
        self._ir = ir_types.TileType(extents, element_ty.ir_type)
        self._signature = f"{element_ty.cache_key_part}[{','.join(map(str, extents))}]"
        return cls._interned_blocks.setdefault(key, self)

    def is_block(self) -> bool:  # type: ignore[override]
        return True

    def get_block_shapes(self) -> tuple[int, ...]:
        return self.shape

    @property
    def nbytes(self) -> int:
        """Bytes of all elements; a boolean counts an eighth."""
        return self.numel * (self.element_ty.primitive_bitwidth // 8)

    def with_element_ty(self, scalar_ty: dtype) -> block_type:
        return block_type(scalar_ty, self.shape)

    def kind(self) -> dtype.KIND:
        return self.element_ty.kind()

    def mangle(self) -> str:
        return f"{self.element_ty.mangle()}S{'_'.join(map(str, self.shape))}S"

    def __repr__(self) -> str:
        return f"{surface}.block_type({self.element_ty!r}, {list(self.shape)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return block_type, (self.element_ty, self.shape)


def validate_block_shape(shape: Sequence[Any]) -> tuple[int, ...]:
    """The shape as plain integers, checked against the rules of :class:`block_type`."""
    extents = tuple(getattr(extent, "value", extent) for extent in shape)
    if not extents:
        raise TypeError("0d block_type is forbidden")
    numel = 1
    for i, extent in enumerate(extents):
        if type(extent) is not int:
            raise TypeError(
                f"Shape element {i} must have type `constexpr[int]`, got `{_type_name(shape[i])}`"
            )
        if extent < 1 or extent & (extent - 1):
            error = noted(ValueError(f"Shape element {i} must be a power of 2"), f"it is {extent}")
            raise helped(error, _whole_extent(extents, i)) if extent == -1 else error
        numel *= extent
    if numel > TRITON_MAX_TENSOR_NUMEL:
        raise ValueError(
            f"numel ({numel}) exceeds the maximum tensor numel ({TRITON_MAX_TENSOR_NUMEL})"
        )
    return extents


def _type_name(value: Any) -> str:
    return (
        f"constexpr[{type(value.value).__name__}]"
        if type(value).__name__ == "constexpr"
        else type(value).__name__
    )


class const:  # noqa: N801
    """Annotation of a read-only pointer parameter: ``def kernel(x: tl.const, n)``."""


void = dtype("void")
int1, int8, int16, int32, int64 = (
    dtype(name) for name in ("int1", "int8", "int16", "int32", "int64")
)
uint8, uint16, uint32, uint64 = (dtype(name) for name in ("uint8", "uint16", "uint32", "uint64"))
float8e5, float8e5b16, float8e4nv = (dtype(name) for name in ("fp8e5", "fp8e5b16", "fp8e4nv"))
float8e4b8, float8e4b15 = dtype("fp8e4b8"), dtype("fp8e4b15")
float16, bfloat16, float32, float64 = (dtype(name) for name in ("fp16", "bf16", "fp32", "fp64"))
pi32_t = pointer_type(int32)

_FROM_IR: dict[ir_types.Type, dtype] = {
    dtype(name).ir_type: dtype(name) for name in (*_INTEGERS, *_FLOATS)
}
_BY_SIGNATURE: dict[str, dtype] = {
    type_.cache_key_part: type_ for type_ in (*_FROM_IR.values(), void)
} | {"i1": int1, "B": int1}
_SIGNED = {8: int8, 16: int16, 32: int32, 64: int64}
_UNSIGNED = {8: uint8, 16: uint16, 32: uint32, 64: uint64}


def get_int_dtype(bitwidth: int, signed: bool) -> dtype:
    """Return the integer type of ``bitwidth`` bits (1, 8, 16, 32 or 64).

    1 is ``int1`` whatever ``signed`` says.

    Raises:
        ValueError: there is no such type.
    """
    bitwidth, signed = getattr(bitwidth, "value", bitwidth), getattr(signed, "value", signed)
    if bitwidth == 1:
        return int1
    found = (_SIGNED if signed else _UNSIGNED).get(bitwidth)
    if found is None:
        raise ValueError(f"Unsupported bitwidth {bitwidth} and signedness {signed}")
    return found


def from_ir(type_: ir_types.Type) -> dtype:
    """The language's type of an IR value: a number, a pointer or a tile of them."""
    found = _FROM_IR.get(type_)
    if found is not None:
        return found
    if isinstance(type_, ir_types.TileType):
        return block_type(from_ir(type_.element), type_.shape)
    if isinstance(type_, ir_types.PointerType):
        spaces = {name: number for number, name in _ADDRESS_SPACES.items()}
        return pointer_type(from_ir(type_.pointee), spaces.get(type_.space, type_.space))
    raise TypeError(f"values of the IR type {type_} have no dtype")


def signature_dtype(text: str) -> dtype | None:
    """Return the number or pointer type that a signature spells, or None for any other text.

    Examples are ``i32``, ``*fp16`` and ``*ki8``.
    """
    if text.startswith("*"):
        is_const = text.startswith("*k")
        element = signature_dtype(text[2 if is_const else 1 :])
        return None if element is None else pointer_type(element, const=is_const)
    return _BY_SIGNATURE.get(text)


#: Every type of numbers.
NUMBER_TYPES: tuple[dtype, ...] = tuple(_FROM_IR.values())


def _whole_extent(extents: Sequence[int], position: int) -> str:
    """The remedy where an extent is left to be worked out."""
    others = [f" // {extent}" for i, extent in enumerate(extents) if i != position]
    return f"no extent is worked out from the others: write it, as x.numel{''.join(others)}"


def refuse_mask(type_: dtype) -> None:
    """Raise ValueError for a mask of another type than int1."""
    if type_ is not int1:
        raise helped(
            ValueError(f"Mask must have boolean scalar type, not {type_}"),
            "compare it: `mask != 0`",
        )
