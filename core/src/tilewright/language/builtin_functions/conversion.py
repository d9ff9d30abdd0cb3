"""Conversions of values, shapes and types, of which operators and builtins are made."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from tilewright import ir
from tilewright.errors import helped
from tilewright.ir import types as ir_types
from tilewright.language.options import Options
from tilewright.language.value_types import dtypes
from tilewright.language.value_types.base_classes import base_value
from tilewright.language.value_types.dtypes import (
    NUMBER_TYPES,
    block_type,
    dtype,
    float32,
    int1,
    int64,
    validate_block_shape,
)
from tilewright.language.value_types.promotion import scalar_type
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.tuples import tuple as tl_tuple
from tilewright.language.value_types.values import unwrap_if_constexpr

_NUMBERS = frozenset((int, float, bool))


class Conversion:
    """Emits the operations that make and convert tensors.

    Attributes:
        builder: where operations go.
        options: of the compilation.
    """

    __slots__ = ("_refused", "builder", "options")

    def __init__(self, builder: ir.Builder, options: Options) -> None:
        self.builder = builder
        self.options = options
        self._refused = _unsupported_types(options)

    # -- tensors from values -----------------------------------------------------------------------

    def to_tensor(self, x: Any) -> tensor:
        """Convert ``x`` to a tensor; a number becomes a scalar constant of its own type.

        See :func:`~tilewright.language.value_types.promotion.scalar_type`.

        Raises:
            TypeError: ``x`` is neither a tensor nor a number.
        """
        if isinstance(x, tensor):
            return x
        number = self.number(x)
        if number is None:
            raise TypeError(f"cannot convert {describe(x)} to tensor")
        return self.scalar_constant(number, scalar_type(number))

    @staticmethod
    def number(x: Any) -> Any:
        """The Python number behind ``x``, or None."""
        x = unwrap_if_constexpr(x)
        if x.__class__ in _NUMBERS:
            return x
        if isinstance(x, int | float):
            # Enumerations and the like count as the number they are.
            return int(x) if isinstance(x, int) else float(x)
        item = getattr(x, "item", None)
        if item is not None and not isinstance(x, base_value) and getattr(x, "shape", None) == ():
            value = item()
            return value if value.__class__ in _NUMBERS else None
        return None

    def warn(self, message: str, category: type[Warning] = UserWarning) -> None:
        """Warn of the source that is being compiled, at its own line."""
        location = self.builder.location
        if location is None or not location.file:
            warnings.warn(message, category, stacklevel=3)
        else:
            warnings.warn_explicit(message, category, location.file, location.line)

    def constant(self, x: Any, what: str = "argument") -> Any:
        """The plain value of a compile-time argument.

        Raises:
            TypeError: ``x`` is a tensor.
        """
        x = unwrap_if_constexpr(x)
        if isinstance(x, tensor):
            raise TypeError(
                f"{what} must be a constexpr, not a tensor of {x}: its value has to be known at "
                "compile time"
            )
        return x

    def scalar_constant(self, value: Any, type_: dtype) -> tensor:
        """Make a scalar of ``type_``.

        Integers wrap around; floats truncate towards zero on their way to an integer type.
        """
        return tensor(
            self.builder.constant(value=_number_of(value, type_), result=type_.ir_type), type_
        )

    def full(self, extents: tuple[int, ...], value: Any, type_: dtype) -> tensor:
        """A tensor of one value, which may be a scalar tensor."""
        if not isinstance(type_, dtype):
            raise helped(
                TypeError(f"the elements of a tensor are of a dtype, not of {describe(type_)}"),
                _dtype_meant(type_),
            )
        if isinstance(value, tensor):
            if value.numel.value != 1:
                raise ValueError(f"a tensor is filled with a scalar, not with a tensor of {value}")
            scalar = self.cast(self.scalar_of(value), type_)
        else:
            number = self.number(value)
            if number is None:
                raise TypeError(f"a tensor is filled with a number, not with {describe(value)}")
            self.check_supported(type_)
            scalar = self.scalar_constant(number, type_)
        return self.splat(scalar, extents)

    def scalar_of(self, x: tensor) -> tensor:
        """The element of a tensor that has one."""
        if not x.extents:
            return x
        return tensor(self.builder.unsplat(x.handle), x.dtype)

    def wrap(self, handle: ir.Value, element: dtype) -> tensor:
        """A tensor of the shape of an IR value whose element in the language is ``element``."""
        type_ = handle.type
        if type_.__class__ is ir_types.TileType:
            return tensor(handle, block_type(element, type_.shape))
        return tensor(handle, element)

    def check_supported(self, type_: dtype) -> None:
        """Refuse number types that the target lacks.

        Raises:
            ValueError: naming the type and the backend.
        """
        if self._refused and type_.scalar in self._refused:
            where = f" (backend {self.options.backend})" if self.options.backend else ""
            raise ValueError(
                f"type {type_.scalar} not supported in this architecture{where}; supported: "
                f"{self._refused[type_.scalar]}"
            )

    # -- shapes ------------------------------------------------------------------------------------

    def splat(self, x: tensor, extents: tuple[int, ...]) -> tensor:
        """A tensor of the given shape whose every element is the scalar ``x``."""
        if not extents:
            return x
        type_ = block_type(x.type, extents)
        return tensor(self.builder.splat(x.handle, result=type_.ir_type), type_)

    def broadcast_to(self, x: tensor, extents: tuple[int, ...]) -> tensor:
        """Broadcast ``x`` to a shape.

        Scalars are repeated everywhere, missing leading axes and axes of extent 1 as often as
        needed.

        Raises:
            ValueError: the shape does not fit.
        """
        mine = x.extents
        if mine == extents:
            return x
        if not mine:
            return self.splat(x, extents)
        if len(mine) > len(extents):
            raise ValueError(f"Cannot broadcast, rank mismatch: {list(mine)}, {list(extents)}")
        for i in range(1, len(mine) + 1):
            if mine[-i] != extents[-i] and mine[-i] != 1:
                index = len(mine) - i
                raise ValueError(
                    f"Cannot broadcast, the expanded size of the tensor ({extents[-i]}) must match "
                    f"the existing size ({mine[-i]}) at non-singleton dimension {index}: "
                    f"{list(mine)}, {list(extents)}"
                )
        handle = x.handle
        for _ in range(len(extents) - len(mine)):
            handle = self.builder.expand_dims(handle, axis=0)
        type_ = block_type(x.dtype, extents)
        if handle.type is not type_.ir_type:
            handle = self.builder.broadcast(handle, result=type_.ir_type)
        return tensor(handle, type_)

    def broadcast_pair(self, lhs: tensor, rhs: tensor) -> tuple[tensor, tensor]:
        """Both operands in their common shape.

        Raises:
            ValueError: there is none.
        """
        a, b = lhs.extents, rhs.extents
        if a == b:
            return lhs, rhs
        if not a:
            return self.splat(lhs, b), rhs
        if not b:
            return lhs, self.splat(rhs, a)
        common = common_shape(a, b)
        return self.broadcast_to(lhs, common), self.broadcast_to(rhs, common)

    def broadcast_all(self, *operands: tensor) -> list[tensor]:
        """All operands in their common shape."""
        common: tuple[int, ...] = ()
        for operand in operands:
            extents = operand.extents
            if extents and extents != common:
                common = common_shape(common, extents) if common else extents
        return [self.broadcast_to(operand, common) for operand in operands]

    def expand_dims(self, x: tensor, axis: int) -> tensor:
        """Insert an axis of extent 1 at position ``axis`` of the result.

        A scalar becomes a tensor of one element.
        """
        if not x.extents:
            return self.splat(x, (1,))
        return self.wrap(self.builder.expand_dims(x.handle, axis=axis), x.dtype)

    def permute(self, x: tensor, order: Sequence[int]) -> tensor:
        """``x`` with its axes reordered: axis i of the result is axis ``order[i]`` of ``x``."""
        rank = len(x.extents)
        if len(order) != rank:
            raise ValueError("permute dims must have the same length as input shape")
        if sorted(order) != list(range(rank)):
            raise ValueError(
                f"permute dims must be a permutation of 0, 1, ..., n-1, but were {list(order)}"
            )
        if not rank:
            return x
        return self.wrap(self.builder.permute(x.handle, order=tuple(order)), x.dtype)

    # -- conversions -------------------------------------------------------------------------------

    def convert(self, x: Any, type_: Any, rounding: Any = None, bitcast: Any = False) -> tensor:
        """``cast`` as the language offers it: see :func:`~tilewright.language.cast`."""
        x = self.to_tensor(x)
        type_ = unwrap_if_constexpr(type_)
        if not isinstance(type_, dtype):
            raise helped(
                TypeError(f"a tensor is cast to a dtype, not to {describe(type_)}"),
                _dtype_meant(type_),
            )
        rounding, bitcast = unwrap_if_constexpr(rounding), unwrap_if_constexpr(bitcast)
        if bitcast:
            return self.bitcast(x, type_.scalar)
        return self.cast(x, type_.scalar, rounding)

    def cast(self, x: tensor, target: dtype, rounding: str | None = None) -> tensor:
        """Every element as ``target``: values are converted, not bits.

        Raises:
            TypeError: there is no such conversion.
            ValueError: ``rounding`` is given and the conversion, to another type, does not narrow a
                float, or the target lacks the type.
        """
        source = x.type.scalar
        if source is target:
            return x
        if rounding is not None:
            self._check_rounding(source, target, rounding)
        if source._is_ptr or target._is_ptr:
            return self._cast_pointer(x, source, target)
        if target._kind < 0 or source._kind < 0:
            raise TypeError(f"cannot cast {source} to {target}")
        if self._refused:
            self.check_supported(source)
            self.check_supported(target)
        if (
            source._is_int
            and target._is_int
            and source.primitive_bitwidth == target.primitive_bitwidth
        ):
            return self._retype(x, target)
        if source._is_int and target.is_fp8():
            return self.cast(self.cast(x, float32), target)
        type_ = x.type.with_element_ty(target)
        if rounding == "rtz":
            return tensor(self.builder.cast(x.handle, rounding="rtz", result=type_.ir_type), type_)
        return tensor(self.builder.cast(x.handle, result=type_.ir_type), type_)

    @staticmethod
    def _check_rounding(source: dtype, target: dtype, rounding: str) -> None:
        if rounding not in ("rtne", "rtz"):
            raise ValueError(f'fp_downcast_rounding must be "rtne" or "rtz", got {rounding!r}')
        if not (
            source.is_floating()
            and target.is_floating()
            and target.primitive_bitwidth < source.primitive_bitwidth
        ):
            raise ValueError(
                "fp_downcast_rounding should be set only for truncating fp conversions. Source "
                f"scalar type is {source} and destination type is {target}"
            )

    def _cast_pointer(self, x: tensor, source: dtype, target: dtype) -> tensor:
        if source._is_ptr and target._is_ptr:
            return self._retype(x, target)
        if source._is_ptr and target.is_int() and target.primitive_bitwidth == 64:
            return self._retype(x, target)
        if source._is_ptr and target is int1:
            return self.cast(self._retype(x, int64), int1)
        if source.is_int():
            return self._retype(self.cast(x, int64), target)
        raise TypeError(f"cannot cast {source} to {target}")

    def _retype(self, x: tensor, target: dtype) -> tensor:
        """The same bits as another element type of the same width."""
        type_ = x.type.with_element_ty(target)
        if type_.ir_type is x.handle.type:
            return tensor(x.handle, type_)
        return tensor(self.builder.bitcast(x.handle, result=type_.ir_type), type_)

    def bitcast(self, x: tensor, target: dtype) -> tensor:
        """Reinterpret the bits of every element as ``target``, of the same width.

        Pointers are converted as by a cast.

        Raises:
            ValueError: the widths differ, or the target lacks a type.
        """
        source = x.type.scalar
        if source is target:
            return x
        if source._is_ptr or target._is_ptr:
            return self._cast_pointer(x, source, target)
        if self._refused:
            self.check_supported(source)
            self.check_supported(target)
        if source.primitive_bitwidth != target.primitive_bitwidth:
            raise ValueError(
                f"Cannot bitcast data-type of size {source.primitive_bitwidth} to data-type of "
                f"size {target.primitive_bitwidth} ({source} to {target})"
            )
        return self._retype(x, target)


def _dtype_meant(type_: Any) -> str:
    """Return the spelling of a dtype that was written as NumPy's or PyTorch's, or as a text."""
    name = (type_ if isinstance(type_, str) else getattr(type_, "__name__", str(type_))).rpartition(
        "."
    )[2]
    return (
        f"write tl.{name}"
        if isinstance(getattr(dtypes, name, None), dtype)
        else "write a type of the language, such as tl.float32"
    )


def _column_meant(shorter: tuple[int, ...], longer: tuple[int, ...]) -> str:
    """A remedy for one value a row of a matrix, which broadcasting takes for a row."""
    if len(shorter) == 1 and len(longer) == 2 and shorter[0] == longer[0]:
        return (
            f"a tile of {shorter[0]} elements is a row of a matrix: x[:, None] makes a column of it"
        )
    return ""


def common_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape two operands broadcast to.

    Raises:
        ValueError: naming the first axis that does not fit.
    """
    rank = max(len(a), len(b))
    remedy = _column_meant(*sorted((a, b), key=len))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    result = []
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if x != y and x != 1 and y != 1:
            error = ValueError(
                f"Cannot make_shape_compatible: incompatible dimensions at index {i}: {x} and {y}"
            )
            raise helped(
                error,
                remedy
                or (
                    "extents along an axis, counted from the last one, must be equal, or "
                    "one of them 1"
                ),
            )
        result.append(max(x, y))
    return tuple(result)


def shape_of(shape: Sequence[Any]) -> tuple[int, ...]:
    """Return a shape, passed as one list or as separate arguments, as plain integers.

    ``()`` is the scalar's.

    Raises:
        TypeError, ValueError: an extent breaks a rule of ``block_type``.
    """
    if len(shape) == 1:
        only = unwrap_if_constexpr(shape[0])
        if isinstance(only, list | tuple | tl_tuple):
            shape = only  # type: ignore[assignment]
    extents = [unwrap_if_constexpr(extent) for extent in shape]
    return validate_block_shape(extents) if extents else ()


def _number_of(value: Any, type_: dtype) -> Any:
    """A Python number as the attribute of a constant of ``type_``."""
    if type_._is_float:
        return float(value)
    if type_ is int1:
        return bool(value)
    if type_._is_int:
        return type_._integer().wrap(int(value))
    if type_._is_ptr and value == 0:
        return 0
    raise TypeError(f"there is no constant {value!r} of type {type_}")


def describe(x: Any) -> str:
    x = unwrap_if_constexpr(x)
    return f"{x!r} of type {type(x).__name__}"


def _unsupported_types(options: Options) -> dict[dtype, str]:
    """The number types the target lacks, each with the list of those it has."""
    capabilities, fp8 = options.capabilities, options.supported_fp8_dtypes
    if capabilities is None and fp8 is None:
        return {}
    usable = [
        type_
        for type_ in NUMBER_TYPES
        if (capabilities is None or str(type_.ir_type) in capabilities.dtypes)
        and (fp8 is None or not type_.is_fp8() or type_.name in fp8)
    ]
    names = ", ".join(map(str, usable))
    return {type_: names for type_ in NUMBER_TYPES if type_ not in usable}
