"""Launches that sort rows or take their first elements in order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tilewright as tw
from tilewright_kernels.operations import Launcher, strides
from tilewright_kernels.operations.devices import device_of
from tilewright_kernels.rows.shapes import matrix_of
from tilewright_kernels.sampling.packed_keys import is_narrow
from tilewright_kernels.sampling.selection import selected, takes_selection
from tilewright_kernels.sampling.sort_kernels import (
    SEARCHED,
    best_of_blocks_kernel,
    merge_runs_kernel,
    sort_blocks_kernel,
    sort_rows_kernel,
)
from tilewright_kernels.sampling.strip_candidates import strip_candidates, takes_strips

#: Elements of a row that a program sorts in registers.
_WIDEST = 4096
#: Elements of a block of a wider row, and of a block of a merge.
_SORTED, _MERGED = 2048, 4096


@dataclass(frozen=True)
class Sorted:
    """Arrays for what is found, each None where it is not wanted.

    Attributes:
        values: elements in order.
        indices: their positions.
        payloads: elements of the payload at these positions.
    """

    values: Any = None
    indices: Any = None
    payloads: Any = None


def sort_rows(
    run: Launcher,
    x: Any,
    payload: Any,
    results: Sorted,
    n_results: int,
    *,
    descending: bool,
) -> None:
    """Store the first ``n_results`` elements of each row of the last axis, in order.

    Elements that are equal stay in the order of their positions. Results are in C order. The
    sequences of launches follow from the shape alone.
    """
    n_columns = x.shape[-1]
    n_rows = math.prod(x.shape[:-1])
    if n_rows == 0 or n_results == 0:
        return
    x = matrix_of(x)
    payload = None if payload is None else matrix_of(payload)
    layout: dict[str, Any] = {
        "x_stride": strides(x)[0],
        "payload_stride": 0 if payload is None else strides(payload)[0],
    }
    arrays = (payload, results.values, results.indices, results.payloads)
    kept = tw.next_power_of_2(n_results)
    is_on_cpu = device_of(x).family == "cpu"
    source = None
    if is_on_cpu and takes_strips(n_columns, kept):
        source, n_columns = strip_candidates(run, x, n_rows, n_columns, kept, descending)
    if is_on_cpu and takes_selection(n_columns, kept):
        source, n_columns = selected(run, x, source, n_rows, n_columns, kept, descending)
    if n_columns > _WIDEST and kept <= _WIDEST // 4:
        source, n_columns = _best(run, x, source, n_rows, n_columns, kept, descending)
    elif n_columns > _WIDEST:
        _sort_wide(run, x, arrays, n_rows, n_results, layout, descending)
        return
    block = max(tw.next_power_of_2(n_columns), 2)
    rows = 1 if is_on_cpu else max(512 // block, 1)
    run(
        sort_rows_kernel,
        (tw.cdiv(n_rows, rows),),
        x,
        source,
        *arrays,
        n_rows,
        n_columns,
        n_results,
        packed_stride=0 if source is None else n_columns,
        DESCENDING=descending,
        IS_NARROW=source is None and is_narrow(x),
        KEPT=min(kept, block),
        ROWS=rows,
        BLOCK=block,
        num_warps=_warps(rows * block),
        **layout,
    )


def _warps(elements: int) -> int:
    """Return the warps of a program that sorts or merges elements.

    An exchange within a thread is cheaper than one between threads. From 2048 elements on a thread
    holds 32, below as few as fill four warps.
    """
    return max(elements // 1024, 1) if elements >= 2048 else max(elements // 256, 1)


def _best(
    run: Launcher, x: Any, source: Any, n_rows: int, n_columns: int, kept: int, descending: bool
) -> tuple[Any, int]:
    """Return candidates that have the first elements of each row, and how many there are.

    Args:
        source: packed elements in place of those of ``x``, or None.
    """
    stride = strides(x)[0] if source is None else n_columns
    while n_columns > _WIDEST:
        n_blocks = tw.cdiv(n_columns, _WIDEST)
        best = run.empty((n_rows, n_blocks * kept), "int64")
        run(
            best_of_blocks_kernel,
            (n_blocks, n_rows),
            x,
            source,
            best,
            n_columns,
            stride,
            DESCENDING=descending,
            KEPT=kept,
            BLOCK=_WIDEST,
            num_warps=8,
        )
        source, stride = best, n_blocks * kept
        n_columns = n_blocks * kept
    return source, n_columns


def _sort_wide(
    run: Launcher,
    x: Any,
    arrays: tuple[Any, ...],
    n_rows: int,
    n_results: int,
    layout: dict[str, Any],
    descending: bool,
) -> None:
    """Sort blocks of rows, and merge two runs of a row at a time until there is one."""
    n_columns, is_packed_narrow = x.shape[-1], is_narrow(x)
    dtype = "int32" if is_packed_narrow else "int64"
    runs = run.empty((n_rows, n_columns), dtype)
    run(
        sort_blocks_kernel,
        (tw.cdiv(n_columns, _SORTED), n_rows),
        x,
        runs,
        n_columns,
        layout["x_stride"],
        n_columns,
        DESCENDING=descending,
        IS_NARROW=is_packed_narrow,
        BLOCK=_SORTED,
        num_warps=_warps(_SORTED),
    )
    size = _SORTED
    while size < n_columns:
        is_last = 2 * size >= n_columns
        merged = None if is_last else run.empty((n_rows, n_columns), dtype)
        payload, *results = arrays if is_last else (None,) * 4
        run(
            merge_runs_kernel,
            (tw.cdiv(n_columns, _MERGED), n_rows),
            x,
            runs,
            merged,
            payload,
            *results,
            n_columns,
            n_results,
            size,
            SEARCHED.value ** (math.ceil(math.log(size, SEARCHED.value)) - 1),
            DESCENDING=descending,
            BLOCK=_MERGED,
            num_warps=_warps(_MERGED),
            **layout,
        )
        runs, size = merged, 2 * size
