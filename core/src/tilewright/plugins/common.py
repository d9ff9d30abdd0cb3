"""Common parts of manifests of backends that generate code for whole processors.

They are the types and operations of the language, all of them, and the reason for a missing device.
A backend whose hardware has less declares its own.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Mapping

from tilewright.environment import flag
from tilewright.plugins.manifest import Capabilities

INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
FP8 = ("f8e4m3fn", "f8e5m2", "f8e4m3fnuz", "f8e5m2fnuz", "f8e4b15")

_SWAPS = frozenset({"xchg", "cas"})


def every_type(
    features: Iterable[str],
    *,
    power_of_two: bool = True,
    narrow_floats: Iterable[str] = ("add", "min", "max"),
    orders: Mapping[str, frozenset[str]] | None = None,
) -> Capabilities:
    """Return the capabilities of a backend that computes with every element type of the language.

    Such a backend has ``dot`` for all of its element types, in every precision and from one row and
    column on, and updates memory atomically by every kind of its type.

    Args:
        features, power_of_two, orders: see :class:`Capabilities`.
        narrow_floats: atomic updates of floats of 16 bits, beside swaps.
    """
    return Capabilities(
        dtypes=frozenset(("i1", *INTEGERS, *FLOATS, *FP8)),
        dot={
            "bf16": ("f32",),
            **dict.fromkeys(("f16", *FP8), ("f32", "f16")),
            "f32": ("f32",),
            "f64": ("f64",),
            **dict.fromkeys(("i8", "u8"), ("i32",)),
        },
        dot_precisions=("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6"),
        min_dot=(1, 1, 1),
        atomics={
            **dict.fromkeys(
                ("i32", "i64", "u32", "u64"), _SWAPS | {"add", "min", "max", "and", "or", "xor"}
            ),
            **dict.fromkeys(("i16", "u16"), _SWAPS),
            **dict.fromkeys(("f32", "f64"), _SWAPS | {"add", "min", "max"}),
            **dict.fromkeys(("f16", "bf16"), _SWAPS | {*narrow_floats}),
        },
        orders=orders or {},
        power_of_two=power_of_two,
        features=frozenset(features),
    )


def why_disabled(name: str, extra: str, why_not: Callable[[], str] = str) -> str:
    """The manifest's ``status`` of a backend that generates code through LLVM.

    Args:
        name: of the backend. ``TILEWRIGHT_<NAME>_DISABLE=1`` in the environment keeps it out of
            use.
        extra: what of this project brings LLVM with it, as in ``pip install 'tilewright[cpu]'``.
        why_not: why no kernel of it can run here, empty where nothing speaks against it; asked
            where nothing else does.
    """
    switch = f"TILEWRIGHT_{name.upper()}_DISABLE"
    if flag(switch):
        return f"disabled by {switch}={os.environ[switch]}"
    if importlib.util.find_spec("llvmlite") is None:
        return f"llvmlite is not installed: pip install 'tilewright[{extra}]'"
    return why_not()
