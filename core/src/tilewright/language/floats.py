"""Common parts of the float functions of :mod:`~tilewright.language.math` and libdevice."""

from __future__ import annotations

from typing import Any

from tilewright.errors import helped
from tilewright.language.value_types.tensors import tensor

#: The elements that most of them take.
F32_F64 = ("fp32", "fp64")


def checked(x: Any, semantic: Any, names: tuple[str, ...]) -> tensor:
    """``x`` as a tensor whose element is one of ``names``.

    Raises:
        ValueError: it is another.
    """
    x = semantic.to_tensor(x)
    if x.dtype.name not in names:
        error = ValueError(f"Expected dtype {list(names)} but got {x.dtype.name}")
        raise helped(error, "convert it first: x.to(tl.float32)") if "fp32" in names else error
    return x


def operation(name: str, x: Any, semantic: Any, **attributes: Any) -> tensor:
    """The operation ``name`` of ``x``, a float of 32 or 64 bits."""
    x = checked(x, semantic, F32_F64)
    return tensor(getattr(semantic.builder, name)(x.handle, **attributes), x.type)
