"""Arrays as matrices of rows, and the blocks in which kernels take rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tilewright as tw
from tilewright_kernels.operations import strides
from tilewright_kernels.operations.block_rules import block_rule
from tilewright_kernels.operations.devices import Device, device_of

#: Rows of more columns are taken in blocks, in several passes.
MAX_WHOLE_ROW = 32768
#: The same on a CPU, whose second-level cache holds such a row.
MAX_WHOLE_ROW_ON_CPU = 131072
#: The block of columns in which longer rows are taken.
_WIDE_BLOCK = 8192
#: Blocks of a loop whose loads are in flight or used, on a GPU.
_STAGES = 3
#: Elements of the tile of several short rows on a GPU.
_SHORT_TILE = 2048


@dataclass(frozen=True)
class RowBlocks:
    """The tile of a program on rows.

    Attributes:
        rows: rows of a program; 1 where rows are longer than a block.
        block: columns of a block, a power of two.
        is_wide: whether a row takes several blocks.
        num_warps: warps of a program.
    """

    rows: int
    block: int
    is_wide: bool
    num_warps: int

    def grid(self, n_rows: int) -> tuple[int]:
        """Return the grid of one program for each tile of rows."""
        return (tw.cdiv(n_rows, self.rows),)

    @property
    def constants(self) -> dict[str, Any]:
        """The constants and options of a launch."""
        return {
            "ROWS": self.rows,
            "BLOCK": self.block,
            "WIDE": self.is_wide,
            "num_warps": self.num_warps,
        }


@block_rule("rows", rounded=("n_columns",))
def tile_of_rows(kernel: str, n_columns: int, values: int, device: Device) -> RowBlocks:
    """Return the tile of a kernel that holds some values of each element of a row at a time.

    With two values and 512 elements a warp a kernel takes 47 or 48 registers a thread on NVIDIA
    GPUs: two programs of 16 warps on a multiprocessor, so that few loads are in flight. At 1024
    elements a warp, three or four programs of 8 warps fit.
    """
    on_gpu = device.family != "cpu"
    if n_columns > (MAX_WHOLE_ROW if on_gpu else MAX_WHOLE_ROW_ON_CPU):
        return RowBlocks(1, _WIDE_BLOCK, True, 16)
    block = tw.next_power_of_2(max(n_columns, 1))
    rows = max(_SHORT_TILE // block, 1) if block < 1024 and on_gpu else 1
    most = 8 if values > 1 and block == 8192 else 16
    return RowBlocks(rows, block, False, min(max(rows * block // 512, 1), most))


def row_blocks(kernel: str, n_columns: int, array: Any, values: int = 1) -> RowBlocks:
    """Return the tile of a kernel for rows of ``n_columns`` on the device of an array.

    Args:
        kernel: its name in records of measured tiles.
        values: that it holds of each element at a time.
    """
    return tile_of_rows(kernel, n_columns, values, device_of(array))


def is_on_gpu(array: Any) -> bool:
    """Return whether kernels on an array run on a GPU."""
    return device_of(array).family != "cpu"


def loop_stages(array: Any) -> int:
    """Return how many blocks of a loop over a row on a GPU have loads in flight or used."""
    return _STAGES if is_on_gpu(array) else 1


def count_rows(shape: Sequence[int]) -> int:
    """Return the number of rows of an array of a shape."""
    return math.prod(shape[:-1])


def row_stride(array: Any) -> int | None:
    """Return the elements from one row to the next, or None where rows have no common stride."""
    shape, steps = tuple(array.shape), strides(array)
    if shape[-1] > 1 and steps[-1] != 1:
        return None
    outer = [(n, step) for n, step in zip(shape[:-1], steps[:-1], strict=True) if n > 1]
    if not outer:
        return shape[-1]
    for (_, step), (n, inner) in itertools.pairwise(outer):
        if step != n * inner:
            return None
    return outer[-1][1]


def contiguous(array: Any) -> Any:
    """Return an array with its elements row by row: itself, where they are; None of None."""
    if array is None or strides(array) == row_major_strides(array.shape):
        return array
    if not hasattr(array, "contiguous"):
        return array.copy(order="C")
    # a tensor without elements is contiguous with any strides
    return array.contiguous() if 0 not in array.shape else array.new_empty(array.shape)


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of an array of a shape whose elements are row by row."""
    found: list[int] = []
    step = 1
    for extent in reversed(shape):
        found.append(step)
        step *= extent
    return tuple(reversed(found))


def matrix_of(array: Any) -> Any:
    """Return an array as a matrix with its last axis as columns, which have the stride 1.

    It shares memory where the strides allow it.
    """
    matrix = array.reshape(count_rows(array.shape), array.shape[-1])
    return with_rows(matrix)[0]


def with_rows(array: Any) -> tuple[Any, int]:
    """Return an array whose rows have a common stride, and the stride.

    It is the array itself where its strides allow it, else a copy.
    """
    stride = row_stride(array)
    if stride is not None:
        return array, stride
    return contiguous(array), array.shape[-1]


def check_weights(x: Any, *weights: Any) -> None:
    """Check that weights, where there are any, have an element for each column.

    Raises:
        ValueError: one has another shape.
    """
    for weight in weights:
        if weight is not None and tuple(weight.shape) != tuple(x.shape[-1:]):
            raise ValueError(
                f"x has {x.shape[-1]} columns, and a weight has the shape {tuple(weight.shape)}: "
                "give an element for each column"
            )
