"""``triton._utils``: small functions that other projects import."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from tilewright.language.value_types.dtypes import TRITON_MAX_TENSOR_NUMEL
from tilewright.runtime.arguments.dtypes import dtype_text

_FP8 = {
    "float8e4nv": "fp8e4nv",
    "float8_e4m3fn": "fp8e4nv",
    "float8e5": "fp8e5",
    "float8_e5m2": "fp8e5",
    "float8e4b15": "fp8e4b15",
    "float8e4b8": "fp8e4b8",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8e5b16": "fp8e5b16",
    "float8_e5m2fnuz": "fp8e5b16",
}
_FLOATS = {
    "half": "fp16",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float": "fp32",
    "float32": "fp32",
    "double": "fp64",
    "float64": "fp64",
}
_INTEGERS = {
    f"{kind}{bits}": f"{kind[0]}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)
}

#: Names of element types in any library -> Triton's short text.
type_canonicalisation_dict: dict[str, str] = {
    **dict.fromkeys(("bool", "int1", "uint1", "i1"), "u1"),
    **_FP8,
    **_FLOATS,
    "int": "i32",
    **_INTEGERS,
    "void": "void",
}
type_canonicalisation_dict.update(
    {text: text for text in list(type_canonicalisation_dict.values())}
)

_BITS = {
    **{f"{kind}{bits}": bits for kind in "iu" for bits in (1, 8, 16, 32, 64)},
    **{f"fp{bits}": bits for bits in (16, 32, 64)},
    **dict.fromkeys(_FP8.values(), 8),
    "bf16": 16,
    "void": 0,
}
#: Name of an element type -> its size in bits.
BITWIDTH_DICT: dict[str, int] = {
    **{name: _BITS[text] for name, text in type_canonicalisation_dict.items()},
    **_BITS,
}


def canonicalize_dtype(dtype: Any) -> str:
    """The short text of an element type of any library: ``torch.float16`` is ``"fp16"``.

    Raises:
        KeyError: kernels have no such type.
    """
    name = str(dtype).split(".")[-1]
    if name in type_canonicalisation_dict:
        return type_canonicalisation_dict[name]
    try:
        return dtype_text(dtype)
    except TypeError:
        raise KeyError(name) from None


def canonicalize_ptr_dtype(dtype: Any, is_const: bool) -> str:
    """The signature text of a pointer to an element type."""
    return f"*{'k' if is_const else ''}{canonicalize_dtype(dtype)}"


def get_primitive_bitwidth(dtype: str) -> int:
    """The size of an element type in bits."""
    return BITWIDTH_DICT[dtype]


def is_power_of_two(x: int) -> bool:
    return (x & (x - 1)) == 0


def validate_block_shape(shape: Any) -> int:
    """Return the number of elements of a block.

    Raises:
        TypeError: an extent is no integer.
        ValueError: an extent is no power of two, or there are too many elements.
    """
    count = 1
    for number, extent in enumerate(shape):
        if not isinstance(extent, int):
            raise TypeError(
                f"Shape element {number} must have type `constexpr[int]`, got "
                f"`constexpr[{type(extent)}]"
            )
        if not is_power_of_two(extent):
            raise ValueError(f"Shape element {number} must be a power of 2")
        count *= extent
    if count > TRITON_MAX_TENSOR_NUMEL:
        raise ValueError(
            f"numel ({count}) exceeds triton maximum tensor numel ({TRITON_MAX_TENSOR_NUMEL})"
        )
    return count


def get_iterable_path(iterable: Any, path: tuple[int, ...]) -> Any:
    """The item at a path of nested positions."""
    return reduce(lambda found, position: found[position], path, iterable)


def set_iterable_path(iterable: Any, path: tuple[int, ...], val: Any) -> None:
    """Replace the item at a path in nested tuples of the language."""
    assert path, "a path names at least one position"
    inner = get_iterable_path(iterable, path[:-1])
    inner.values[path[-1]] = val


def find_paths_if(
    iterable: Any, pred: Callable[[tuple[int, ...], Any], bool]
) -> list[tuple[int, ...]]:
    """Return the paths of all items of lists and tuples for which ``pred(path, item)`` holds."""
    from tilewright.language import core

    found: dict[tuple[int, ...], None] = {}

    def visit(path: tuple[int, ...], item: Any) -> None:
        if isinstance(item, list | tuple | core.tuple | core.tuple_type):
            for number, inner in enumerate(item):
                visit((*path, number), inner)
        elif pred(path, item):
            found[path] = None

    visit((), iterable)
    return list(found)


def is_namedtuple(val: Any) -> bool:
    """Return whether a class is one of named tuples."""
    return isinstance(val, type) and issubclass(val, tuple) and hasattr(val, "_fields")
