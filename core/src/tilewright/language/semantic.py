"""What operators and builtins mean: types, promotion, broadcasting, and the Tile IR they become.

The compiler evaluates Python's operators by calling :class:`Semantic`; builtins get it as ``_semantic`` and emit operations through it. Operands may be
tensors, constexprs or plain Python numbers.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from tilewright import ir
from tilewright.ir import types as ir_types
from tilewright.language.dtypes import (
    base_type,
    block_type,
    dtype,
    float32,
    float64,
    int1,
    int64,
    uint64,
    validate_block_shape,
)
from tilewright.language.options import Options
from tilewright.language.promotion import computation_type, scalar_type
from tilewright.language.tensors import tensor
from tilewright.language.tuples import slice as tl_slice
from tilewright.language.tuples import tuple as tl_tuple
from tilewright.language.values import (
    BINARY_OPERATORS,
    COMPARISONS,
    UNARY_OPERATORS,
    _unwrap_if_constexpr,
    base_value,
    constexpr,
)

_NUMBERS = frozenset((int, float, bool))


class Generator(Protocol):
    """What builtins need of the compiler that walks the source: running functions written in the language."""

    def call(self, fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Inline ``fn`` at the current insertion point and give back what it returns."""
        ...

    def region(self, fn: Any, argument_types: Sequence[base_type]) -> tuple[ir.Region, list[base_type]]:
        """A region whose body is ``fn`` inlined on the region's arguments, ended by ``yield``; and the types it yields."""
        ...


class Semantic:
    """The semantics of one compilation."""

    __slots__ = ("_refused", "builder", "generator", "options")

    def __init__(self, builder: ir.Builder, options: Options | None = None, generator: Generator | None = None) -> None:
        self.builder = builder
        self.options = options if options is not None else Options()
        self.generator: Any = generator
        self._refused = _unsupported_types(self.options)

    # -- tensors from values --------------------------------------------------------------------------------------------------------------

    def to_tensor(self, x: Any) -> tensor:
        """``x`` as a tensor: a number becomes a scalar constant of its own type (see :func:`~tilewright.language.promotion.scalar_type`).

        Raises:
            TypeError: ``x`` is neither a tensor nor a number.
        """
        if isinstance(x, tensor):
            return x
        number = self.number(x)
        if number is None:
            raise TypeError(f"cannot convert {_describe(x)} to tensor")
        return self.scalar_constant(number, scalar_type(number))

    @staticmethod
    def number(x: Any) -> Any:
        """The Python number behind ``x``, or None."""
        x = _unwrap_if_constexpr(x)
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

    def constant(self, x: Any, what: str = "argument") -> Any:
        """The plain value of a compile-time argument.

        Raises:
            TypeError: ``x`` is a tensor.
        """
        x = _unwrap_if_constexpr(x)
        if isinstance(x, tensor):
            raise TypeError(f"{what} must be a constexpr, not a tensor of {x}: its value has to be known at compile time")
        return x

    def scalar_constant(self, value: Any, type_: dtype) -> tensor:
        """A scalar of ``type_``. Integers wrap around; floats truncate towards zero on their way to an integer type."""
        return tensor(self.builder.constant(value=_number_of(value, type_), result=type_.ir_type), type_)

    def full(self, extents: tuple[int, ...], value: Any, type_: dtype) -> tensor:
        """A tensor of one value, which may be a scalar tensor."""
        if isinstance(value, tensor):
            if value.numel.value != 1:
                raise ValueError(f"a tensor is filled with a scalar, not with a tensor of {value}")
            scalar = self.cast(self.scalar_of(value), type_)
        else:
            number = self.number(value)
            if number is None:
                raise TypeError(f"a tensor is filled with a number, not with {_describe(value)}")
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
            raise ValueError(f"type {type_.scalar} not supported in this architecture{where}; supported: {self._refused[type_.scalar]}")

    # -- shapes ---------------------------------------------------------------------------------------------------------------------------

    def splat(self, x: tensor, extents: tuple[int, ...]) -> tensor:
        """A tensor of the given shape whose every element is the scalar ``x``."""
        if not extents:
            return x
        type_ = block_type(x.type, extents)
        return tensor(self.builder.splat(x.handle, result=type_.ir_type), type_)

    def broadcast_to(self, x: tensor, extents: tuple[int, ...]) -> tensor:
        """``x`` repeated to a shape: scalars everywhere, missing leading axes and axes of extent 1 as often as needed.

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
                    f"Cannot broadcast, the expanded size of the tensor ({extents[-i]}) must match the existing size ({mine[-i]}) "
                    f"at non-singleton dimension {index}: {list(mine)}, {list(extents)}"
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
        """``x`` with a new axis of extent 1 at position ``axis`` of the result; a scalar becomes a tensor of one element."""
        if not x.extents:
            return self.splat(x, (1,))
        return self.wrap(self.builder.expand_dims(x.handle, axis=axis), x.dtype)

    def permute(self, x: tensor, order: Sequence[int]) -> tensor:
        """``x`` with its axes reordered: axis i of the result is axis ``order[i]`` of ``x``."""
        rank = len(x.extents)
        if len(order) != rank:
            raise ValueError("permute dims must have the same length as input shape")
        if sorted(order) != list(range(rank)):
            raise ValueError(f"permute dims must be a permutation of 0, 1, ..., n-1, but were {list(order)}")
        if not rank:
            return x
        return self.wrap(self.builder.permute(x.handle, order=tuple(order)), x.dtype)

    def subscript(self, x: Any, index: Any) -> Any:
        """``x[index]``: new axes of a tensor (``None``) between kept ones (``:``); items of tuples and constexprs.

        Raises:
            ValueError: a tensor is indexed by anything else.
        """
        if not isinstance(x, tensor):
            return x[index]
        plain = _unwrap_if_constexpr(index)
        items = list(plain) if isinstance(plain, tuple | list | tl_tuple) else [plain]
        result, kept = x, 0
        for position, item in enumerate(items):
            item = _unwrap_if_constexpr(item)
            if item is None:
                result = self.expand_dims(result, position)
            elif _is_full_slice(item):
                kept += 1
            else:
                raise ValueError(f"unsupported tensor index: {item!r} (a tensor is indexed by `None` and `:` only)")
        if kept > len(x.extents):
            warnings.warn(f"index has {kept} `:` for a tensor of {len(x.extents)} axes", stacklevel=2)
        return result

    def attribute(self, value: Any, name: str) -> Any:
        """``value.name`` in a kernel: like ``getattr``, with the members that emit code.

        Members that are functions written in the language come as :class:`~tilewright.language.binding.BoundCallable`.
        """
        if isinstance(value, tensor):
            if name == "T":
                if len(value.extents) != 2:
                    raise ValueError(f"`T` is the transpose of a 2-D tensor, not of {value}")
                return self.permute(value, (1, 0))
        elif isinstance(value, constexpr) and name not in ("value", "type"):
            return getattr(value.value, name)
        emit = getattr(type(value), "_emit_attribute", None)
        if emit is not None:
            return emit(value, name, self)
        return getattr(value, name)

    def truth(self, x: Any) -> Any:
        """The condition of ``if``, ``while`` and ``?:``: a constexpr as it is, a tensor of one element as a scalar ``int1``.

        Raises:
            ValueError: a tensor has more than one element.
        """
        if not isinstance(x, tensor):
            return x if isinstance(x, constexpr) else constexpr(x)
        if x.extents:
            if x.numel.value != 1:
                raise ValueError(f"Boolean value of Tensor with more than one value is ambiguous: it is {x}")
            warnings.warn("If conditional called with multidimensional Tensor instead of scalar; please use `.item()` or a reduction", stacklevel=2)
            x = self.scalar_of(x)
        return self.cast(x, int1)

    # -- conversions ----------------------------------------------------------------------------------------------------------------------

    def convert(self, x: Any, type_: Any, rounding: Any = None, bitcast: Any = False) -> tensor:
        """``cast`` as the language offers it: see :func:`~tilewright.language.cast`."""
        x = self.to_tensor(x)
        type_ = _unwrap_if_constexpr(type_)
        if not isinstance(type_, dtype):
            raise TypeError(f"a tensor is cast to a dtype, not to {_describe(type_)}")
        rounding, bitcast = _unwrap_if_constexpr(rounding), _unwrap_if_constexpr(bitcast)
        if bitcast:
            return self.bitcast(x, type_.scalar)
        return self.cast(x, type_.scalar, rounding)

    def cast(self, x: tensor, target: dtype, rounding: str | None = None) -> tensor:
        """Every element as ``target``: values are converted, not bits.

        Raises:
            TypeError: there is no such conversion.
            ValueError: ``rounding`` is given and the conversion does not narrow a float, or the target lacks the type.
        """
        source = x.type.scalar
        if rounding is not None:
            self._check_rounding(source, target, rounding)
        if source is target:
            return x
        if source._is_ptr or target._is_ptr:
            return self._cast_pointer(x, source, target)
        if target._kind < 0 or source._kind < 0:
            raise TypeError(f"cannot cast {source} to {target}")
        if self._refused:
            self.check_supported(source)
            self.check_supported(target)
        if source._is_int and target._is_int and source.primitive_bitwidth == target.primitive_bitwidth:
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
        if not (source.is_floating() and target.is_floating() and target.primitive_bitwidth < source.primitive_bitwidth):
            raise ValueError(
                f"fp_downcast_rounding should be set only for truncating fp conversions. Source scalar type is {source} and destination type is {target}"
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
        """The bits of every element as ``target``, of the same width. Pointers are converted as by a cast.

        Raises:
            ValueError: the widths differ.
        """
        source = x.type.scalar
        if source is target:
            return x
        if source._is_ptr or target._is_ptr:
            return self._cast_pointer(x, source, target)
        if source.primitive_bitwidth != target.primitive_bitwidth:
            raise ValueError(
                f"Cannot bitcast data-type of size {source.primitive_bitwidth} to data-type of size {target.primitive_bitwidth} ({source} to {target})"
            )
        return self._retype(x, target)

    # -- promotion ------------------------------------------------------------------------------------------------------------------------

    def promote(
        self,
        lhs: Any,
        rhs: Any,
        *,
        lhs_pointer: bool = False,
        rhs_pointer: bool = False,
        div_or_mod: bool = False,
        weak_scalars: bool = True,
    ) -> tuple[tensor, tensor]:
        """Both operands in their common type and shape.

        Args:
            lhs_pointer, rhs_pointer: that side may be a pointer; then no type is changed.
            div_or_mod: the operator is ``/``, ``//`` or ``%``.
            weak_scalars: a number of the program text yields to the tensor's type where its kind allows; comparisons do not want that.

        Raises:
            TypeError: the types do not go together.
            ValueError: a number of the program text does not fit the type, or the shapes differ.
        """
        left_number = None if isinstance(lhs, tensor) else self._operand(lhs)
        right_number = None if isinstance(rhs, tensor) else self._operand(rhs)
        left = lhs.type.scalar if left_number is None else scalar_type(left_number)
        right = rhs.type.scalar if right_number is None else scalar_type(right_number)
        if left._is_ptr or right._is_ptr:
            _check_pointers(left, right, lhs_pointer, rhs_pointer)
            return self.broadcast_pair(self.to_tensor(lhs), self.to_tensor(rhs))
        if left is right and left_number is None and right_number is None and not div_or_mod:
            return self.broadcast_pair(lhs, rhs)
        target = computation_type(left, left_number is not None and weak_scalars, right, right_number is not None and weak_scalars, div_or_mod)
        if weak_scalars:
            _check_range(left_number, target)
            _check_range(right_number, target)
        else:
            left_number, right_number = _narrowed(left_number, left, target), _narrowed(right_number, right, target)
        a = self.cast(lhs, target) if left_number is None else self.scalar_constant(left_number, target)
        b = self.cast(rhs, target) if right_number is None else self.scalar_constant(right_number, target)
        return self.broadcast_pair(a, b)

    def _operand(self, x: Any) -> Any:
        number = self.number(x)
        if number is None:
            raise TypeError(f"unsupported operand {_describe(x)}: an operand is a tensor or a number")
        return number

    # -- Python's operators ---------------------------------------------------------------------------------------------------------------

    def binary(self, op: str, lhs: Any, rhs: Any) -> Any:
        """``lhs op rhs`` with op one of add sub mul truediv floordiv mod pow and or xor lshift rshift.

        Compile-time operands give a constexpr (tuples a tuple); otherwise the result is a tensor.
        """
        if isinstance(lhs, tensor) or isinstance(rhs, tensor):
            method = _BINARY.get(op)
            if method is None:
                raise TypeError(f"tensors have no operator {op}")
            return method(self, lhs, rhs)
        overloaded = self._overloaded(f"__{op}__", lhs, f"__r{op}__", rhs)
        if overloaded is not NotImplemented:
            return overloaded
        return _constant_result(BINARY_OPERATORS[op](_unwrap_if_constexpr(lhs), _unwrap_if_constexpr(rhs)))

    def compare(self, op: str, lhs: Any, rhs: Any) -> Any:
        """``lhs op rhs`` with op one of eq ne lt le gt ge: ``int1``; false for NaN, except ``ne``.

        A number of the program text takes part with its own type, so ``uint8_tensor < 300`` compares as int32.
        """
        if isinstance(lhs, tensor) or isinstance(rhs, tensor):
            a, b = self.promote(lhs, rhs, weak_scalars=False)
            return self.wrap(self.builder.cmp(a.handle, b.handle, predicate=op), int1)
        overloaded = self._overloaded(f"__{op}__", lhs, f"__{_MIRRORED[op]}__", rhs)
        if overloaded is not NotImplemented:
            return overloaded
        return _constant_result(COMPARISONS[op](_unwrap_if_constexpr(lhs), _unwrap_if_constexpr(rhs)))

    def unary(self, op: str, x: Any) -> Any:
        """``op x`` with op one of neg pos invert not."""
        if isinstance(x, tensor):
            return _UNARY[op](self, x)
        overloaded = self._overloaded(f"__{op}__", x)
        if overloaded is not NotImplemented:
            return overloaded
        return _constant_result(UNARY_OPERATORS[op](_unwrap_if_constexpr(x)))

    def logical(self, op: str, lhs: Any, rhs: Any) -> Any:
        """``lhs and rhs`` / ``lhs or rhs``. Tensors must be ``int1``; both sides are computed."""
        if not isinstance(lhs, tensor) and not isinstance(rhs, tensor):
            left = _unwrap_if_constexpr(lhs)
            return lhs if bool(left) is (op == "or") else rhs
        a, b = self.broadcast_pair(self._boolean(lhs, op), self._boolean(rhs, op))
        method = self.builder.and_ if op == "and" else self.builder.or_
        return self.wrap(method(a.handle, b.handle), int1)

    def _boolean(self, x: Any, op: str) -> tensor:
        x = self.to_tensor(x)
        if x.extents:
            warnings.warn(f"Logical operator '{op}' is deprecated for non-scalar tensors; use '&', '|' or '~'", stacklevel=3)
        return self.bitcast(x, int1)

    def _overloaded(self, name: str, lhs: Any, mirrored: str | None = None, rhs: Any = None) -> Any:
        """The operator of an aggregate, or NotImplemented."""
        for value, method_name, other in ((lhs, name, rhs), (rhs, mirrored, lhs)):
            if method_name is not None and getattr(value, "_is_aggregate", False):
                method = getattr(value, method_name, None)
                fn = getattr(method, "fn", None)
                if fn is not None:
                    return self.generator.call(fn, (value,) if mirrored is None else (value, other), {})
        return NotImplemented

    # -- arithmetic -----------------------------------------------------------------------------------------------------------------------

    def add(self, lhs: Any, rhs: Any, sanitize_overflow: bool = True) -> tensor:
        """``lhs + rhs``; a pointer plus an integer moves by that many elements."""
        a, b = self.promote(lhs, rhs, lhs_pointer=True, rhs_pointer=True)
        if a.type.scalar._is_ptr or b.type.scalar._is_ptr:
            if a.type.scalar._is_ptr and b.type.scalar._is_ptr:
                raise TypeError("cannot add pointers together")
            return self._move(a, b) if a.type.scalar._is_ptr else self._move(b, a)
        return self._arithmetic("add", a, b, sanitize_overflow)

    def sub(self, lhs: Any, rhs: Any, sanitize_overflow: bool = True) -> tensor:
        """``lhs - rhs``; a pointer minus an integer moves back by that many elements."""
        a, b = self.promote(lhs, rhs, lhs_pointer=True)
        if a.type.scalar._is_ptr:
            offset = self.cast(b, int64) if b.type.scalar.is_int_unsigned() else b
            return self._move(a, self._neg(offset))
        return self._arithmetic("sub", a, b, sanitize_overflow)

    def mul(self, lhs: Any, rhs: Any, sanitize_overflow: bool = True) -> tensor:
        """``lhs * rhs``."""
        a, b = self.promote(lhs, rhs)
        return self._arithmetic("mul", a, b, sanitize_overflow)

    def _move(self, pointer: tensor, offset: tensor) -> tensor:
        return tensor(self.builder.addptr(pointer.handle, offset.handle), pointer.type)

    def _arithmetic(self, op: str, a: tensor, b: tensor, sanitize_overflow: bool) -> tensor:
        element = a.type.scalar
        if element is int1:
            # Arithmetic modulo 2.
            op = {"add": "xor", "sub": "xor", "mul": "and_"}[op]
        elif sanitize_overflow and self.options.debug and self.options.sanitize_overflow and element._is_int and element.int_bitwidth < 64:
            self._check_overflow(op, a, b)
        return tensor(getattr(self.builder, op)(a.handle, b.handle), a.type)

    def _check_overflow(self, op: str, a: tensor, b: tensor) -> None:
        """Assert that the exact result, computed in 64 bits, is in the range of the type."""
        element = a.type.scalar
        # Sums and differences of 32 bits fit int64; a product of two uint32 needs uint64.
        unsigned_product = op == "mul" and element.is_int_unsigned()
        wide_type = uint64 if unsigned_product else int64
        emit = getattr(self.builder, op)
        wide = tensor(emit(self.cast(a, wide_type).handle, self.cast(b, wide_type).handle), a.type.with_element_ty(wide_type))
        fits = self.compare("le", wide, element.get_int_max_value())
        if not unsigned_product:
            fits = self.and_(fits, self.compare("ge", wide, element.get_int_min_value()))
        self.builder.assert_(fits.handle, message=f"{element} overflow detected for operation {op}")

    def truediv(self, lhs: Any, rhs: Any) -> tensor:
        """``lhs / rhs``: integers are divided as fp32, fp16 and bf16 give fp32."""
        a, b = self.promote(lhs, rhs, div_or_mod=True)
        if a.type.scalar._is_int:
            a, b = self.cast(a, float32), self.cast(b, float32)
        return tensor(self.builder.div(a.handle, b.handle), a.type)

    def floordiv(self, lhs: Any, rhs: Any) -> tensor:
        """``lhs // rhs`` of integers; truncates towards zero, as in C."""
        a, b = self.promote(lhs, rhs, div_or_mod=True)
        if not a.type.scalar._is_int:
            raise TypeError(f"unexpected type {a.dtype}: // divides integers only")
        return self._integer_division("div", a, b)

    def mod(self, lhs: Any, rhs: Any) -> tensor:
        """``lhs % rhs``: the remainder of the division that truncates towards zero, as in C."""
        a, b = self.promote(lhs, rhs, div_or_mod=True)
        if a.type.scalar._is_int:
            return self._integer_division("rem", a, b)
        return tensor(self.builder.rem(a.handle, b.handle), a.type)

    def _integer_division(self, op: str, a: tensor, b: tensor) -> tensor:
        if a.type.scalar is int1:
            # The only defined divisor is 1.
            return a if op == "div" else tensor(self.builder.xor(a.handle, a.handle), a.type)
        return tensor(getattr(self.builder, op)(a.handle, b.handle), a.type)

    def _bitwise(self, lhs: Any, rhs: Any, op: str) -> tuple[tensor, tensor]:
        a, b = self.promote(lhs, rhs)
        if not a.type.scalar._is_int:
            raise TypeError(f"unexpected type {a.dtype}: {op} works on integers only")
        return a, b

    def and_(self, lhs: Any, rhs: Any) -> tensor:
        """``lhs & rhs`` of integers."""
        a, b = self._bitwise(lhs, rhs, "&")
        return tensor(self.builder.and_(a.handle, b.handle), a.type)

    def or_(self, lhs: Any, rhs: Any) -> tensor:
        """``lhs | rhs`` of integers."""
        a, b = self._bitwise(lhs, rhs, "|")
        return tensor(self.builder.or_(a.handle, b.handle), a.type)

    def xor(self, lhs: Any, rhs: Any) -> tensor:
        """``lhs ^ rhs`` of integers."""
        a, b = self._bitwise(lhs, rhs, "^")
        return tensor(self.builder.xor(a.handle, b.handle), a.type)

    def lshift(self, lhs: Any, rhs: Any) -> tensor:
        """``lhs << rhs`` of integers."""
        self._warn_of_wide_shift(lhs, rhs)
        a, b = self._bitwise(lhs, rhs, "<<")
        return tensor(self.builder.shl(a.handle, b.handle), a.type)

    def rshift(self, lhs: Any, rhs: Any) -> tensor:
        """``lhs >> rhs`` of integers: the sign bit comes in where ``lhs`` is signed (``rhs``, where ``lhs`` is a number)."""
        self._warn_of_wide_shift(lhs, rhs)
        a, b = self._bitwise(lhs, rhs, ">>")
        arithmetic = (lhs if isinstance(lhs, tensor) else rhs).type.scalar.is_int_signed()
        result_type = a.type
        if arithmetic != result_type.scalar.is_int_signed() and result_type.scalar is not int1:
            shifted = ir_types.IntType(result_type.scalar.int_bitwidth, signed=arithmetic)
            as_wanted = ir_types.with_element(result_type.ir_type, shifted)
            handles = [self.builder.bitcast(x.handle, result=as_wanted) for x in (a, b)]
            return tensor(self.builder.bitcast(self.builder.shr(*handles), result=result_type.ir_type), result_type)
        return tensor(self.builder.shr(a.handle, b.handle), result_type)

    def _warn_of_wide_shift(self, lhs: Any, rhs: Any) -> None:
        if isinstance(lhs, tensor) and not isinstance(rhs, tensor):
            amount, bits = self.number(rhs), lhs.type.scalar.primitive_bitwidth
            if isinstance(amount, int) and amount >= bits:
                warnings.warn(f"shift by {amount} of a value of {bits} bits ({lhs.dtype}) is undefined", stacklevel=3)

    def _neg(self, x: tensor) -> tensor:
        element = x.type.scalar
        if element._is_ptr:
            raise ValueError(f"wrong type argument to unary minus ({element})")
        if element is int1:
            return x
        return tensor(self.builder.neg(x.handle), x.type)

    def _pos(self, x: tensor) -> tensor:
        if x.type.scalar._is_ptr:
            raise ValueError(f"wrong type argument to unary plus ({x.dtype})")
        return x

    def _invert(self, x: tensor) -> tensor:
        element = x.type.scalar
        if not element._is_int:
            raise ValueError(f"wrong type argument to unary invert ({element})")
        ones = True if element is int1 else -1 if element.is_int_signed() else element.get_int_max_value()
        return tensor(self.builder.xor(x.handle, self.splat(self.scalar_constant(ones, element), x.extents).handle), x.type)

    def _not(self, x: tensor) -> tensor:
        return self._invert(self._boolean(x, "not"))


_BINARY: dict[str, Callable[[Semantic, Any, Any], tensor]] = {
    "add": Semantic.add,
    "sub": Semantic.sub,
    "mul": Semantic.mul,
    "truediv": Semantic.truediv,
    "floordiv": Semantic.floordiv,
    "mod": Semantic.mod,
    "and": Semantic.and_,
    "or": Semantic.or_,
    "xor": Semantic.xor,
    "lshift": Semantic.lshift,
    "rshift": Semantic.rshift,
}
_UNARY: dict[str, Callable[[Semantic, tensor], tensor]] = {
    "neg": Semantic._neg,
    "pos": Semantic._pos,
    "invert": Semantic._invert,
    "not": Semantic._not,
}
_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def common_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape two operands broadcast to.

    Raises:
        ValueError: naming the first axis that does not fit.
    """
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    result = []
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        if x != y and x != 1 and y != 1:
            raise ValueError(f"Cannot make_shape_compatible: incompatible dimensions at index {i}: {x} and {y}")
        result.append(max(x, y))
    return tuple(result)


def shape_of(shape: Sequence[Any]) -> tuple[int, ...]:
    """A shape given as one list or as separate arguments, as plain integers; ``()`` is the scalar's.

    Raises:
        TypeError, ValueError: an extent breaks a rule of ``block_type``.
    """
    if len(shape) == 1:
        only = _unwrap_if_constexpr(shape[0])
        if isinstance(only, list | tuple | tl_tuple):
            shape = only  # type: ignore[assignment]
    extents = [_unwrap_if_constexpr(extent) for extent in shape]
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


def _narrowed(number: Any, own: dtype, target: dtype) -> Any:
    """The number after a conversion from its own type: what is fp32 loses precision before it becomes fp64."""
    if number is not None and own is float32 and target is float64:
        return struct.unpack("f", struct.pack("f", number))[0]
    return number


def _check_range(number: Any, target: dtype) -> None:
    if number is None or not target._is_int:
        return
    if number < 0 and target.is_int_unsigned():
        raise ValueError(
            f"Cannot perform a binary operation between an unsigned tensor ({target}) and a negative scalar ({number}): "
            "it is out of range for type " + f"{target}. Cast one of them explicitly."
        )
    if not target.get_int_min_value() <= number <= target.get_int_max_value():
        raise ValueError(f"Scalar {number} is out of range for type {target}")


def _check_pointers(left: dtype, right: dtype, lhs_pointer: bool, rhs_pointer: bool) -> None:
    for mine, other, allowed in ((left, right, lhs_pointer), (right, left, rhs_pointer)):
        if mine._is_ptr and (not allowed or other.is_floating() or (other._is_ptr and mine is not other)):
            raise TypeError(f"invalid operands of type {left} and {right}")


def _is_full_slice(item: Any) -> bool:
    if isinstance(item, tl_slice):
        return item.is_full
    return isinstance(item, slice) and all(_unwrap_if_constexpr(part) is None for part in (item.start, item.stop, item.step))


def _constant_result(value: Any) -> Any:
    return value if isinstance(value, base_value) else constexpr(value)


def _describe(x: Any) -> str:
    x = _unwrap_if_constexpr(x)
    return f"{x!r} of type {type(x).__name__}"


def _unsupported_types(options: Options) -> dict[dtype, str]:
    """The number types the target lacks, each with the list of those it has."""
    capabilities = options.capabilities
    if capabilities is None:
        return {}
    from tilewright.language.dtypes import NUMBER_TYPES

    names = ", ".join(str(type_) for type_ in NUMBER_TYPES if str(type_.ir_type) in capabilities.dtypes)
    return {type_: names for type_ in NUMBER_TYPES if str(type_.ir_type) not in capabilities.dtypes}


__all__ = ["Generator", "Options", "Semantic", "common_shape", "shape_of"]
