"""Tensor descriptors: samples of Tile IR, and in the language blocks and rows of tensors.

The host or the kernel makes the descriptors. Outside of a tensor a load yields padding and a store
does nothing, wherever the block lies. Expected values are bits that NumPy moved.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tilewright_conformance.cases.descriptors.descriptors import blocks, paddings, row_access
from tilewright_conformance.suite.case import Case
from tilewright_conformance.testlib.sampled_cases import sampled

_NAMES = ("load", "store", "reduce", "gather", "scatter", "extent", "stride")
OPERATIONS = ("make_descriptor", *(f"descriptor_{name}" for name in _NAMES))


def cases() -> Iterator[Case]:
    for case in sampled("descriptors", "descriptors", dict.fromkeys(OPERATIONS, True)):
        narrow = any(name.startswith("f8") for name in case.needs.dtypes)
        yield dataclasses.replace(case, profile="fp8") if narrow else case
    yield from blocks.case
    yield from paddings.case
    yield from row_access.case
