"""Statement of one case of matmuls, and the operands that have matmuls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright_conformance.oracles import matrix
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table

Array = np.ndarray[Any, Any]
Body = Callable[[Session], None]
#: operands -> the accumulators that a matmul of them may have
ACCUMULATORS: dict[str, tuple[str, ...]] = {
    "f16": ("f32", "f16"),
    "bf16": ("f32",),
    "f32": ("f32",),
    "f64": ("f64",),
    "i8": ("i32",),
    "u8": ("i32",),
    "f8e4m3fn": ("f32", "f16"),
    "f8e5m2": ("f32", "f16"),
    "f8e4m3fnuz": ("f32",),
    "f8e5m2fnuz": ("f32",),
    "f8e4b15": ("f32",),
}
_TABLE = Table("dots", "matmul", "NumPy, float64")


def dot_case(
    id_: str,
    body: Body,
    types: tuple[str, ...],
    dot: set[tuple[str, str]],
    shape: tuple[int, ...],
    **own: Any,
) -> Case:
    """A case of profile ``matmul``, or ``fp8`` where a type is one of the narrow ones.

    ``shape`` is (M, N, K) of its smallest matmul.
    """
    subject, tile = own.pop("subject", "tl.dot"), own.pop("elements", 1 << 11)
    every = {*types, *(name for pair in dot for name in pair)}
    precisions = frozenset(own.pop("precisions", ()))
    more = {
        "dot": frozenset(dot),
        "dot_precisions": precisions,
        "dot_shape": shape or None,
        "tile": tile,
    }
    return in_profile(_TABLE.case(id_, subject, body, *every, **more, **own))


def in_profile(case: Case) -> Case:
    # sampled cases, and those whose pairs of e2m1 are plain bytes
    narrow = any(matrix.is_fp8(name) for name in case.needs.dtypes) or "e2m1" in case.id
    return dataclasses.replace(case, profile="fp8") if narrow else case
