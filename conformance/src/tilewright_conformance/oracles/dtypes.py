"""Element types of arrays and kernels: one table, made from the types of Tile IR.

A type has a text in Tile IR (``bf16``, ``f8e4m3fn``) and a name in the language and NumPy
(``bfloat16``, ``float8e4nv``). The functions take either.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import tilewright as tw
import tilewright.language as tl
from tilewright.ir import types

Array = NDArray[Any]

_TYPES: tuple[types.IntType | types.FloatType, ...] = (*types.INTEGERS, *types.FLOATS)
_DTYPES = {name: value for name, value in vars(tl).items() if isinstance(value, tl.dtype)}
#: type of Tile IR -> its name in the language
_NAMES = {dtype.ir_type: name for name, dtype in _DTYPES.items() if dtype is not tl.void}


def _name(type_: types.Type) -> str:
    return "bool" if type_ is types.I1 else _NAMES[type_]


#: text in Tile IR -> name in the language (and in NumPy)
ELEMENTS: dict[str, str] = {str(type_): _name(type_) for type_ in _TYPES}
#: name in the language -> text in Tile IR
IR: dict[str, str] = {name: text for text, name in ELEMENTS.items()}
_BY_NAME = {name: type_ for type_ in _TYPES for name in (str(type_), ELEMENTS[str(type_)])}

# names in the language
SIGNED = tuple(_name(one) for one in types.INTEGERS if one.signed)
UNSIGNED = tuple(_name(one) for one in types.INTEGERS if not one.signed and one is not types.I1)
INTEGERS = (*SIGNED, *UNSIGNED)
FLOATS = tuple(_name(one) for one in types.FLOATS if not one.is_fp8)
NUMBERS = (*INTEGERS, *FLOATS)

# texts in Tile IR
FP8 = tuple(str(one) for one in types.FLOATS if one.is_fp8)
#: Elements that every backend of a profile has.
PORTABLE = tuple(text for text in ELEMENTS if text not in ("f64", *FP8))


def is_integer(name: str) -> bool:
    return isinstance(_BY_NAME[name], types.IntType) and name not in ("bool", "i1")


def language(name: str) -> Any:
    """Return the type as the language has it."""
    return getattr(tl, _NAMES[_BY_NAME[name]])


def kind(name: str) -> np.dtype[Any]:
    """Return the dtype whose elements are the type's numbers: NumPy's, or that of ml_dtypes."""
    text = str(_BY_NAME[name])
    other = {"bf16": "bfloat16"}.get(text, text.replace("f8", "float8_"))
    return np.dtype(getattr(ml_dtypes, other) if text in ("bf16", *FP8) else ELEMENTS[text])


def storage(name: str) -> np.dtype[Any]:
    """Return the dtype of arrays of the type: of floats that NumPy lacks, their bits."""
    text = str(_BY_NAME[name])
    bits = {"bf16": 16, **dict.fromkeys(FP8, 8)}.get(text)
    return np.dtype(f"uint{bits}" if bits else ELEMENTS[text])


def given(array: Array, name: str) -> Any:
    """Return an array of :func:`storage` as an argument of a launch."""
    known = storage(name).name == ELEMENTS[str(_BY_NAME[name])]
    return array if known else tw.reinterpret(array, language(name))


def float_type(name: str) -> types.FloatType:
    """Return the type of Tile IR of a float."""
    found = _BY_NAME[name]
    assert isinstance(found, types.FloatType)
    return found


def spacing(name: str) -> float:
    """Return the distance of 1 from the next greater number of a float type."""
    return float(2.0 ** -float_type(name).mantissa)
