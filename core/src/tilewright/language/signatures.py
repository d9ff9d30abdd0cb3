"""Types from the text of a signature."""

from __future__ import annotations

import re
from typing import Any

from tilewright.language.builtin_functions.descriptors import tensor_descriptor_base_type
from tilewright.language.value_types.base_classes import base_type
from tilewright.language.value_types.dtypes import block_type, signature_dtype
from tilewright.language.value_types.tuples import tuple_type
from tilewright.language.value_types.values import constexpr_type

_DESCRIPTOR = re.compile(r"tensordesc(?:_im2col)?<\s*(\w+)\s*\[([\d,\s]*)\]\s*(?:,.*)?>$")


def str_to_ty(name: Any, c: Any = None) -> base_type:
    """The type that a signature's text spells.

    Args:
        name: ``i1 i8 … i64 u1 u8 … u64 B fp8e4nv … bf16 fp16 fp32 fp64``, ``*T``, ``*kT`` (pointer
            to const), ``tensordesc<fp16[64,64]>``, ``constexpr``, or a tuple of these.
        c: the value of ``constexpr``; for a tuple, the values of its items.

    Raises:
        ValueError: the text is no type.

        str_to_ty("*fp32")        # pointer_type(float32)
    """
    if isinstance(name, tuple | list):
        values = c if isinstance(c, tuple | list) else [None] * len(name)
        fields = getattr(name, "_fields", None)
        return tuple_type(
            [str_to_ty(item, value) for item, value in zip(name, values, strict=True)], fields
        )
    if name == "constexpr":
        return constexpr_type(c)
    found = signature_dtype(name)
    if found is not None:
        return found
    described = _DESCRIPTOR.match(name)
    element = signature_dtype(described[1]) if described else None
    if described and element is not None:
        return tensor_descriptor_base_type(
            block_type(element, [int(extent) for extent in described[2].split(",")])
        )
    raise ValueError(f"{name!r} is not the type of a kernel's parameter")
