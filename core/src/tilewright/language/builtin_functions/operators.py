"""Python's operators on tensors: promotion of the operands, and the operations they become."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from tilewright import ir
from tilewright.errors import helped, integer_text
from tilewright.ir import types as ir_types
from tilewright.language.binding import BoundCallable, asked_for, is_host_function
from tilewright.language.builtin_functions.conversion import Conversion, describe
from tilewright.language.options import Options
from tilewright.language.value_types.base_classes import base_value
from tilewright.language.value_types.dtypes import dtype, float32, float64, int1, int64, uint64
from tilewright.language.value_types.promotion import computation_type, scalar_type
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.values import (
    BINARY_OPERATORS,
    COMPARISONS,
    UNARY_OPERATORS,
    constexpr,
    unwrap_if_constexpr,
)

#: The middle of the message of an assertion that an operation does not overflow.
OVERFLOW_DETECTED = "overflow detected for operation"
#: What combines truth values of tiles, for what combines those of Python.
_OF_ELEMENTS = {"and": "&", "or": "|"}


class Operators(Conversion):
    """Evaluator of operators.

    Operands are tensors, constexprs or Python numbers; aggregates may overload operators.
    """

    __slots__ = ("generator",)

    def __init__(self, builder: ir.Builder, options: Options, generator: Any) -> None:
        super().__init__(builder, options)
        self.generator = generator

    # -- promotion ---------------------------------------------------------------------------------

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
            weak_scalars: a number of the program text yields to the tensor's type where its kind
                allows; comparisons do not want that.

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
        target = computation_type(
            left,
            left_number is not None and weak_scalars,
            right,
            right_number is not None and weak_scalars,
            div_or_mod,
        )
        if weak_scalars:
            _check_range(left_number, target)
            _check_range(right_number, target)
        else:
            left_number, right_number = (
                _narrowed(left_number, left, target),
                _narrowed(right_number, right, target),
            )
        a = (
            self.cast(lhs, target)
            if left_number is None
            else self.scalar_constant(left_number, target)
        )
        b = (
            self.cast(rhs, target)
            if right_number is None
            else self.scalar_constant(right_number, target)
        )
        return self.broadcast_pair(a, b)

    def _operand(self, x: Any) -> Any:
        number = self.number(x)
        if number is None:
            raise TypeError(
                f"unsupported operand {describe(x)}: an operand is a tensor or a number"
            )
        return number

    # -- Python's operators ------------------------------------------------------------------------

    def binary(self, op: str, lhs: Any, rhs: Any) -> Any:
        """Evaluate ``lhs op rhs``.

        ``op`` is one of add sub mul truediv floordiv mod pow and or xor lshift rshift.

        Compile-time operands give a constexpr (tuples a tuple); otherwise the result is a tensor.
        """
        if _of_tensors(lhs, rhs):
            method = _BINARY.get(op)
            if method is None:
                raise TypeError(f"tensors have no operator {op}")
            return method(self, lhs, rhs)
        overloaded = self._overloaded(f"__{op}__", lhs, f"__r{op}__", rhs)
        if overloaded is not NotImplemented:
            return overloaded
        return _constant_result(
            BINARY_OPERATORS[op](unwrap_if_constexpr(lhs), unwrap_if_constexpr(rhs))
        )

    def compare(self, op: str, lhs: Any, rhs: Any) -> Any:
        """``lhs op rhs`` with op one of eq ne lt le gt ge: ``int1``; false for NaN, except ``ne``.

        A number of the program text takes part with its own type, so ``uint8_tensor < 300``
        compares as int32.
        """
        if _of_tensors(lhs, rhs):
            a, b = self.promote(lhs, rhs, weak_scalars=False)
            return self.wrap(self.builder.cmp(a.handle, b.handle, predicate=op), int1)
        overloaded = self._overloaded(f"__{op}__", lhs, f"__{_MIRRORED[op]}__", rhs)
        if overloaded is not NotImplemented:
            return overloaded
        return _constant_result(COMPARISONS[op](unwrap_if_constexpr(lhs), unwrap_if_constexpr(rhs)))

    def unary(self, op: str, x: Any) -> Any:
        """``op x`` with op one of neg pos invert not."""
        if isinstance(x, tensor):
            return _UNARY[op](self, x)
        overloaded = self._overloaded(f"__{op}__", x)
        if overloaded is not NotImplemented:
            return overloaded
        return _constant_result(UNARY_OPERATORS[op](unwrap_if_constexpr(x)))

    def logical(self, op: str, lhs: Any, rhs: Any) -> Any:
        """``lhs and rhs`` / ``lhs or rhs``. Tensors must be ``int1``; both sides are computed."""
        if not isinstance(lhs, tensor) and not isinstance(rhs, tensor):
            left = unwrap_if_constexpr(lhs)
            return lhs if bool(left) is (op == "or") else rhs
        if any(isinstance(side, tensor) and side.extents for side in (lhs, rhs)):
            self.warn(
                f"`{op}` of tiles is computed element by element, both sides of it; write "
                f"`{_OF_ELEMENTS[op]}`, and comparisons in brackets"
            )
        a, b = self.broadcast_pair(self._boolean(lhs, op), self._boolean(rhs, op))
        method = self.builder.and_ if op == "and" else self.builder.or_
        return self.wrap(method(a.handle, b.handle), int1)

    def _boolean(self, x: Any, op: str) -> tensor:
        x = self.to_tensor(x)
        if x.dtype is not int1 and x.dtype.primitive_bitwidth != 1:
            raise ValueError(
                f"Cannot bitcast data-type of size {x.dtype.primitive_bitwidth} to data-type of "
                f"size 1: `{op}` works on int1, not on {x.dtype}\n  help: compare with 0 first: "
                "`x != 0`"
            )
        return self.bitcast(x, int1)

    def _overloaded(self, name: str, lhs: Any, mirrored: str | None = None, rhs: Any = None) -> Any:
        """The operator of an aggregate, or NotImplemented."""
        for value, method_name, other in ((lhs, name, rhs), (rhs, mirrored, lhs)):
            if method_name is None or not getattr(value, "_is_aggregate", False):
                continue
            method: Any = getattr(value, method_name, None)
            operands = () if mirrored is None else (other,)
            if isinstance(method, BoundCallable):
                return self.generator.call(method.fn, (method.receiver, *operands), {})
            if is_host_function(method):
                return method(*operands, **asked_for(method, self))
        return NotImplemented

    # -- arithmetic --------------------------------------------------------------------------------

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
        elif sanitize_overflow and self.is_checked(element):
            self._check_overflow(op, a, b)
        return tensor(getattr(self.builder, op)(a.handle, b.handle), a.type)

    def is_checked(self, element: Any) -> bool:
        """Return whether arithmetic of a type (``+``, ``-`` and ``*``) has overflow checks."""
        checked = self.options.debug and self.options.sanitize_overflow
        return bool(
            checked and element is not int1 and element._is_int and element.int_bitwidth < 64
        )

    def _check_overflow(self, op: str, a: tensor, b: tensor) -> None:
        """Assert that the exact result, computed in 64 bits, is in the range of the type."""
        element = a.type.scalar
        # 32-bit additions and subtractions fit int64; multiplying two uint32 needs uint64.
        unsigned_mul = op == "mul" and element.is_int_unsigned()
        wide_type = uint64 if unsigned_mul else int64
        emit = getattr(self.builder, op)
        wide = tensor(
            emit(self.cast(a, wide_type).handle, self.cast(b, wide_type).handle),
            a.type.with_element_ty(wide_type),
        )
        self.check_range(wide, element, op)

    def check_range(self, wide: tensor, element: Any, op: str) -> None:
        """Assert that exact results of ``op``, in 64 bits, are numbers of the type ``element``."""
        fits = self.compare("le", wide, element.get_int_max_value())
        if wide.type.scalar.is_int_signed():
            fits = self.and_(fits, self.compare("ge", wide, element.get_int_min_value()))
        self.builder.assert_(fits.handle, message=f"{element} {OVERFLOW_DETECTED} {op}")

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
            left, right = (
                x.type.scalar if isinstance(x, tensor) else scalar_type(self._operand(x))
                for x in (lhs, rhs)
            )
            raise TypeError(
                f"invalid operands of type {left} and {right}: {op} works on integers only"
            )
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
        """Evaluate ``lhs >> rhs`` of integers.

        The sign bit comes in where ``lhs`` is signed (``rhs``, where ``lhs`` is a number).
        """
        self._warn_of_wide_shift(lhs, rhs)
        a, b = self._bitwise(lhs, rhs, ">>")
        arithmetic = (lhs if isinstance(lhs, tensor) else rhs).type.scalar.is_int_signed()
        result_type = a.type
        if arithmetic != result_type.scalar.is_int_signed() and result_type.scalar is not int1:
            shifted = ir_types.IntType(result_type.scalar.int_bitwidth, signed=arithmetic)
            as_wanted = ir_types.with_element(result_type.ir_type, shifted)
            handles = [self.builder.bitcast(x.handle, result=as_wanted) for x in (a, b)]
            return tensor(
                self.builder.bitcast(self.builder.shr(*handles), result=result_type.ir_type),
                result_type,
            )
        return tensor(self.builder.shr(a.handle, b.handle), result_type)

    def _warn_of_wide_shift(self, lhs: Any, rhs: Any) -> None:
        if isinstance(lhs, tensor) and not isinstance(rhs, tensor):
            amount, bits = self.number(rhs), lhs.type.scalar.primitive_bitwidth
            if isinstance(amount, int) and amount >= bits:
                self.warn(
                    f"shift by {amount} of a value of {bits} bits ({lhs.dtype}) shifts all of "
                    "them out"
                )

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
        ones = (
            True
            if element is int1
            else -1
            if element.is_int_signed()
            else element.get_int_max_value()
        )
        return tensor(
            self.builder.xor(
                x.handle, self.splat(self.scalar_constant(ones, element), x.extents).handle
            ),
            x.type,
        )

    def _not(self, x: tensor) -> tensor:
        return self._invert(self._boolean(x, "not"))


_BINARY: dict[str, Callable[[Operators, Any, Any], tensor]] = {
    "add": Operators.add,
    "sub": Operators.sub,
    "mul": Operators.mul,
    "truediv": Operators.truediv,
    "floordiv": Operators.floordiv,
    "mod": Operators.mod,
    "and": Operators.and_,
    "or": Operators.or_,
    "xor": Operators.xor,
    "lshift": Operators.lshift,
    "rshift": Operators.rshift,
}
_UNARY: dict[str, Callable[[Operators, tensor], tensor]] = {
    "neg": Operators._neg,
    "pos": Operators._pos,
    "invert": Operators._invert,
    "not": Operators._not,
}
_MIRRORED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _of_tensors(lhs: Any, rhs: Any) -> bool:
    """Return whether an operator has a tensor operand and no overload of an aggregate."""
    if isinstance(lhs, tensor):
        return isinstance(rhs, tensor) or not getattr(rhs, "_is_aggregate", False)
    return isinstance(rhs, tensor) and not getattr(lhs, "_is_aggregate", False)


def _narrowed(number: Any, own: dtype, target: dtype) -> Any:
    """Return a number converted from its own type: fp32 loses precision before it becomes fp64."""
    if number is not None and own is float32 and target is float64:
        return struct.unpack("f", struct.pack("f", number))[0]
    return number


def _check_range(number: Any, target: dtype) -> None:
    if number is None or not target._is_int:
        return
    if number < 0 and target.is_int_unsigned():
        raise ValueError(
            "Cannot perform a binary operation between "
            f"an unsigned tensor ({target}) and a "
            f"negative scalar ({number}): it is out of "
            "range for type " + f"{target}. Cast one of them explicitly."
        )
    if not target.get_int_min_value() <= number <= target.get_int_max_value():
        raise ValueError(
            f"Scalar {integer_text(number) if isinstance(number, int) else number} is out of range "
            f"for type {target}"
        )


def _check_pointers(left: dtype, right: dtype, lhs_pointer: bool, rhs_pointer: bool) -> None:
    for mine, other, allowed in ((left, right, lhs_pointer), (right, left, rhs_pointer)):
        if mine._is_ptr and (
            not allowed or other.is_floating() or (other._is_ptr and mine is not other)
        ):
            error = TypeError(f"invalid operands of type {left} and {right}")
            if other.is_floating():
                raise helped(
                    error,
                    "a pointer moves by whole elements: divide integers with `//`, or convert with "
                    "`.to(tl.int32)`",
                )
            raise error


def _constant_result(value: Any) -> Any:
    return value if isinstance(value, base_value) else constexpr(value)
