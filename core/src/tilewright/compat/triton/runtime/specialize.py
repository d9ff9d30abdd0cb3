"""Specialisation on one argument, in Triton's terms, for other compilers that compile ahead."""

from __future__ import annotations

from typing import Any

from tilewright.compat.triton._utils import canonicalize_dtype, canonicalize_ptr_dtype
from tilewright.compat.triton.backends.compiler import BaseBackend
from tilewright.language.core import constexpr
from tilewright.language.definitions.callable import JitCallable
from tilewright.runtime.arguments.descriptor import TensorDescriptor


def native_specialize_impl(
    backend: type[BaseBackend] | BaseBackend,
    arg: Any,
    is_const: bool,
    specialize_value: bool,
    align: bool,
) -> tuple[Any, Any]:
    """(signature text, letters of what is assumed) of an argument.

    The letters are the backend's, None for what nothing is assumed of; a constant has the text
    ``"constexpr"`` and itself. Tuples give tuples of both.

    Raises:
        TypeError: kernels take no such argument.
        OverflowError: an integer of more than 64 bits.
    """
    if arg is None:
        return "constexpr", None
    if isinstance(arg, bool):
        return "u1", None
    if isinstance(arg, int):
        if arg == 1 and specialize_value:
            return "constexpr", 1
        return _integer_type(arg), backend.get_int_specialization(
            arg, align=align
        ) if specialize_value else None
    if isinstance(arg, float):
        return "fp32", None
    if isinstance(arg, TensorDescriptor):
        return f"tensordesc<{canonicalize_dtype(arg.base.dtype)}{list(arg.block_shape)}>", None
    if hasattr(arg, "data_ptr"):
        return canonicalize_ptr_dtype(arg.dtype, is_const), backend.get_tensor_specialization(
            arg, align=align
        ) if specialize_value else None
    if isinstance(arg, JitCallable):
        return "constexpr", arg.cache_key
    if isinstance(arg, constexpr):
        return "constexpr", arg
    if isinstance(arg, tuple):
        items = [native_specialize_impl(backend, item, False, True, True) for item in arg]
        types, letters = ([item[part] for item in items] for part in (0, 1))
        if hasattr(arg, "_fields"):
            return type(arg)(*types), type(arg)(*letters)
        return tuple(types), tuple(letters)
    raise TypeError(f"Unsupported type: {type(arg)}")


def _integer_type(value: int) -> str:
    if -(2**31) <= value < 2**31:
        return "i32"
    if -(2**63) <= value < 2**63:
        return "i64"
    if 0 <= value < 2**64:
        return "u64"
    raise OverflowError(f"an integer of {value.bit_length()} bits does not fit 64 bits")


def mangle_type(arg: Any, specialize: bool = False) -> Any:
    """The signature text of an argument's type."""
    return native_specialize_impl(BaseBackend, arg, False, specialize, specialize)[0]
