"""Tables of addresses, by which one launch reaches many arrays."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilewright as tw
from tilewright_kernels.operations import strides
from tilewright_kernels.operations.frameworks import dtype_name

#: Tables that are kept for the next step: addresses of gradients change where they are made anew.
_KEPT = 64


@dataclass(frozen=True)
class PointerTable:
    """A table of what a launch reads and changes.

    Attributes:
        rows: of int64: for each group of arrays their addresses, and their number of elements.
        blocks: of int64: for each program the row, above 32 bits of the block's number.
        n_blocks: number of programs.
    """

    rows: Any
    blocks: Any
    n_blocks: int


def _is_flat(array: Any) -> bool:
    expected = 1
    for extent, stride in zip(reversed(array.shape), reversed(strides(array)), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def address_of(array: Any) -> int:
    """Return the address of an array's first element."""
    return int(array.data_ptr() if hasattr(array, "data_ptr") else array.ctypes.data)


def grouped(name: str, lists: Sequence[Sequence[Any]]) -> dict[Any, list[tuple[Any, ...]]]:
    """Return groups of arrays that one launch takes, by their types and alignment.

    Args:
        name: of the operation, for errors.
        lists: of arrays, of which the first of each belong together, and so on.

    Raises:
        ValueError: lists differ in length, or arrays are not in C order.
    """
    lengths = {len(each) for each in lists}
    if len(lengths) > 1:
        raise ValueError(f"{name}: the lists have different lengths: {sorted(lengths)}")
    found: dict[Any, list[tuple[Any, ...]]] = {}
    for group in zip(*lists, strict=True):
        if math.prod(group[0].shape) == 0:
            continue
        for each in group:
            if not _is_flat(each):
                raise ValueError(
                    f"{name}: an array of shape {tuple(each.shape)} is not in C order; "
                    "give contiguous ones"
                )
        is_aligned = all(address_of(each) % 16 == 0 for each in group)
        key = (*(dtype_name(each.dtype) for each in group), is_aligned)
        found.setdefault(key, []).append(group)
    return found


def table_of(groups: Sequence[tuple[Any, ...]], block: int) -> PointerTable:
    """Return the table of groups of arrays, on their device."""
    first = groups[0][0]
    place = str(first.device) if hasattr(first, "data_ptr") else None
    rows = tuple((*map(address_of, group), math.prod(group[0].shape)) for group in groups)
    return _table(rows, block, place)


@functools.lru_cache(_KEPT)
def _table(rows: tuple[tuple[int, ...], ...], block: int, place: str | None) -> PointerTable:
    counts = [tw.cdiv(row[-1], block) for row in rows]
    blocks = np.concatenate(
        [np.arange(count) + (number << 32) for number, count in enumerate(counts)]
    )
    table: Any = np.array(rows, np.int64)
    if place is not None:
        import torch

        table = torch.from_numpy(table).to(place)
        return PointerTable(table, torch.from_numpy(blocks).to(place), sum(counts))
    return PointerTable(table, blocks, sum(counts))
