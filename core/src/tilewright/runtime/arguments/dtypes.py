"""Element types of other libraries' arrays as signature text (``fp32``, ``i64``, ``fp8e4nv``)."""

from __future__ import annotations

import functools
from typing import Any

#: names used by NumPy, PyTorch and ml_dtypes -> signature text
FROM_NAME: dict[str, str] = {
    "bool": "u1",
    "bool_": "u1",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float": "fp32",
    "float64": "fp64",
    "double": "fp64",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2fnuz": "fp8e5b16",
    # the names of this project's own element types
    "float8e4nv": "fp8e4nv",
    "float8e5": "fp8e5",
    "float8e4b8": "fp8e4b8",
    "float8e5b16": "fp8e5b16",
    "float8e4b15": "fp8e4b15",
    "int1": "u1",
}

#: signature text -> text of the Tile IR type
IR_TEXT: dict[str, str] = {
    "u1": "i1",
    "i1": "i1",
    **{f"{sign}{bits}": f"{sign}{bits}" for sign in "iu" for bits in (8, 16, 32, 64)},
    "fp16": "f16",
    "bf16": "bf16",
    "fp32": "f32",
    "fp64": "f64",
    "fp8e4nv": "f8e4m3fn",
    "fp8e5": "f8e5m2",
    "fp8e4b8": "f8e4m3fnuz",
    "fp8e5b16": "f8e5m2fnuz",
    "fp8e4b15": "f8e4b15",
}

#: signature text -> bytes of one element in memory
ITEM_SIZE: dict[str, int] = {
    text: {"u1": 1, "i1": 1}.get(text)
    or (1 if text.startswith("fp8") else int(text.lstrip("iufpb")) // 8)
    for text in IR_TEXT
}

#: DLPack (type code, bits) -> signature text
FROM_DLPACK: dict[tuple[int, int], str] = {
    **{(0, bits): f"i{bits}" for bits in (8, 16, 32, 64)},
    **{(1, bits): f"u{bits}" for bits in (8, 16, 32, 64)},
    **{(2, bits): f"fp{bits}" for bits in (16, 32, 64)},
    (4, 16): "bf16",
    (6, 8): "u1",
    (10, 8): "fp8e4nv",
    (11, 8): "fp8e4b8",
    (12, 8): "fp8e5",
    (13, 8): "fp8e5b16",
}

#: kind letter and item size of an array-interface typestr -> signature text
FROM_TYPESTR: dict[str, str] = {
    "b1": "u1",
    **{f"i{size}": f"i{8 * size}" for size in (1, 2, 4, 8)},
    **{f"u{size}": f"u{8 * size}" for size in (1, 2, 4, 8)},
    **{f"f{size}": f"fp{8 * size}" for size in (2, 4, 8)},
}

#: signature text -> NumPy name of an array that can hold the bits
NUMPY_STORAGE: dict[str, str] = {
    "u1": "bool",
    **{f"i{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"fp{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "bf16": "uint16",
    **dict.fromkeys(("fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16", "fp8e4b15"), "uint8"),
}


def dtype_text(dtype: Any) -> str:
    """Return the signature text of an element type of any library, or of its name.

    Known are those of NumPy, PyTorch, ml_dtypes and ``tilewright.language``.

    Raises:
        TypeError: it has no counterpart; the message says why.
    """
    try:
        return _dtype_text(dtype)
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
    raise TypeError(f"{dtype!r} is not an element type")


@functools.lru_cache(maxsize=512)
def _dtype_text(dtype: Any) -> str:
    if not getattr(dtype, "isnative", True):
        raise TypeError(
            f"element type {dtype} is not in the machine's byte order; convert it first: "
            "array.astype(array.dtype.newbyteorder('='))"
        )
    if getattr(dtype, "hasobject", False):
        raise TypeError(
            f"element type {dtype} holds Python objects, which kernels cannot read; convert it to "
            "numbers first"
        )
    if getattr(dtype, "fields", None) is not None:
        raise TypeError(
            f"element type {dtype} is a structure; pass each field as an array of its own"
        )
    if isinstance(dtype, type):
        name = dtype.__name__
    elif isinstance(dtype, str):
        name = dtype
    else:
        name = str(getattr(dtype, "name", None) or dtype)
    name = name.rsplit(".", 1)[-1]
    if name in IR_TEXT:
        return name
    if name in FROM_NAME:
        return FROM_NAME[name]
    hint = "; pass the real and imaginary parts as arrays of their own" if "complex" in name else ""
    raise TypeError(
        f"element type {dtype!s} has no counterpart in kernels{hint}. Supported: "
        f"{', '.join(sorted(set(FROM_NAME.values())))}"
    )
