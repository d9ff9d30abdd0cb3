"""Native checks that an argument is the constant of an earlier launch.

The binder compares constants by their keys
(:func:`~tilewright.runtime.compiler.specialize.constant_key`). Native code compares numbers and
texts by value, and any other object by identity, which says the same where the object cannot come
to stand for another constant: it is immutable and so is all it is made of, or the binder goes by
its identity, too. A function of the language may come to mean something else, as where a notebook
defines what it calls anew: for such a function native code also checks that its digest is the same
object.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from typing import TYPE_CHECKING, Any, Final

from tilewright.language.value_types.dtypes import dtype
from tilewright.runtime.launch.native_calls import UnsuitedError

if TYPE_CHECKING:
    from tilewright.llvm.native.dispatch_entries import Check

_INT64: Final = (-(2**63), 2**63 - 1)
#: Types whose objects never change and consist of nothing else.
_PLAIN: Final = (type(None), bool, int, float, complex, str, bytes, range, dtype)


def constant_checks(source: int, value: Any, keep: list[Any]) -> list[Check]:
    """Return the native conditions that an argument is a given constant.

    ``keep`` collects the objects that they refer to.

    Raises:
        UnsuitedError: native code cannot check it.
    """
    from tilewright.llvm.native.dispatch_entries import Check, CheckKind, Divisibility

    type_ = type(value)
    if type_ is int and _INT64[0] <= value < _INT64[1]:
        return [Check(CheckKind.INTEGER, source, value, value, value + 1, Divisibility.ANY)]
    if type_ is float:
        return [Check(CheckKind.FLOAT, source, struct.unpack("<q", struct.pack("<d", value))[0])]
    functions: list[Any] = []
    if not _is_frozen(value, functions):
        raise UnsuitedError
    keep.append(value)
    checks = [
        Check(
            CheckKind.EQUAL if type_ in (int, str, bytes) else CheckKind.OBJECT, source, id(value)
        )
    ]
    for function in functions:
        keep += [function.__dict__, function.hash]
        checks.append(
            Check(CheckKind.GLOBAL, 0, id(function.__dict__), id(_DIGEST), id(function.hash))
        )
    return checks


#: The attribute of a function of the language that has its digest.
_DIGEST: Final = "hash"


def _is_frozen(value: Any, functions: list[Any]) -> bool:
    """Return whether an object's identity and its functions' digests identify the constant.

    The functions in it are added to a list.
    """
    from tilewright.language.definitions.callable import JitCallable
    from tilewright.runtime.compiler.specialize import is_numpy_scalar

    type_ = type(value)
    if type_ in _PLAIN or isinstance(value, enum.Enum):
        return True
    if isinstance(value, tuple | frozenset):
        return all(_is_frozen(item, functions) for item in value)
    if isinstance(value, JitCallable):
        functions.append(value)
        return value.hash is not None
    if dataclasses.is_dataclass(type_):
        frozen = type_.__dataclass_params__.frozen  # type: ignore[attr-defined]
        return frozen and all(
            _is_frozen(getattr(value, field.name), functions) for field in dataclasses.fields(value)
        )
    if is_numpy_scalar(type_):
        # records, and whatever others bring, may be written to
        return value.dtype.kind in "biufcSUmM"
    # classes, plain functions, PyTorch's dtypes: identity is the binder's comparison too
    compared: tuple[Any, Any] = (type_.__hash__, type_.__eq__)
    return compared == (object.__hash__, object.__eq__) and not hasattr(value, "cache_key")
