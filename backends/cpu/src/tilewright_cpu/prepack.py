"""Matrices packed once, for the matmuls of many launches: weights.

    weights = tilewright.cpu.prepack(b)
    matmul_kernel[grid](a, weights, c, ...)

A matmul reads its operand B in panels of a few columns, each column's elements along K following
those of the one before, and packs B into them, tile by tile and program by program. :func:`prepack`
does that for a whole matrix; the kernels are what they are without.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.errors import LaunchError
from tilewright.ir.type_text import parse_type
from tilewright.ir.types import F32, FloatType, IntType, Type
from tilewright.reference.numerics import decode
from tilewright.runtime.arguments.array_protocols import (
    ArgumentError,
    ArrayKind,
    address_of,
    array_kind,
    launch_value,
)
from tilewright.runtime.arguments.dtypes import IR_TEXT, NUMPY_STORAGE, dtype_text
from tilewright_cpu.codegen.gemm.bf16_split import split_array
from tilewright_cpu.codegen.gemm.plan import TILE, Scheme, block_of, choose_scheme
from tilewright_cpu.codegen.gemm.prepack_lookup import Record, form
from tilewright_cpu.hardware import hardware_of

#: NumPy's name of a scheme's packed element.
_ELEMENTS = {"float": "float32", "double": "float64", "i8": "int8", "i16": "int16", "i32": "int32"}
#: Packed panels begin at multiples of this many bytes.
_ALIGNMENT = 64
#: The form of no matrix.
_NO_FORM = -1
#: An extent that is no reason for smaller blocks.
_MANY = 1 << 20


class PackedMatrix:
    """A matrix, and its packing for matmuls.

    It is passed to kernels in the matrix's place and is read-only; a kernel that reads it otherwise
    than as the operand B of a matmul, or in tiles that begin within a panel, reads the matrix
    itself.

    Attributes:
        matrix: the matrix as it was given.
        dtype: its element type, as it states it.
        shape: its rows (along K) and columns (along N).
        panel_columns: columns of a panel.
        nbytes: bytes of the packing.
    """

    readonly = True
    device = "cpu"

    def __init__(self, matrix: Any, scheme: Scheme, element: Type, columns: int) -> None:
        self.matrix, self.dtype = matrix, matrix.dtype
        self._kept, self._view = launch_value(matrix), _view_of(matrix)
        rows, count = self._view.shape
        self.shape, self.panel_columns = (rows, count), columns
        self._scheme, self._element = scheme, element
        units, panels = (
            -(-rows // scheme.step) * (scheme.step // scheme.group) * scheme.parts,
            -(-count // columns),
        )
        kind = np.dtype(_ELEMENTS[scheme.element])
        size = panels * units * columns * scheme.group
        self.nbytes = size * kind.itemsize
        memory = np.zeros(self.nbytes + _ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % _ALIGNMENT
        self._packed = (
            memory[start : start + self.nbytes]
            .view(kind)
            .reshape(panels, units, columns, scheme.group)
        )
        row_stride, column_stride = _extents_and_strides(matrix)[1]
        self._record = Record(
            address_of(matrix),
            rows,
            count,
            row_stride,
            column_stride,
            self._packed.ctypes.data,
            units,
            _NO_FORM,
        )
        self.record_address = ctypes.addressof(self._record)
        self.refresh()

    def refresh(self) -> None:
        """Pack the matrix again, after its elements have changed.

        No launch that reads it may be running.
        """
        panels, _, columns, group = self._packed.shape
        rows, count = self.shape
        scheme, element = self._scheme, self._element
        values = (
            decode(self._view, element)
            if isinstance(element, FloatType) and (group == 1 or scheme.split)
            else self._view
        )
        parts = [values] if scheme.split is None else split_array(values, scheme.split)
        # kernels treat infinities that are split in a way of their own, and pack such a matrix
        # themselves
        refused = scheme.split is not None and bool(np.isinf(values).any())
        self._record.form = _NO_FORM if refused else form(scheme, element, columns)
        whole, rest = divmod(rows, group)
        for number, part in enumerate(parts):
            unit = np.arange(-(-rows // group))
            places = (
                unit
                if len(parts) == 1
                else (unit // TILE * len(parts) + number) * TILE + unit % TILE
            )
            for panel in range(panels):
                width = min(columns, count - panel * columns)
                here = part[:, panel * columns : panel * columns + width]
                if whole:
                    self._packed[panel, places[:whole], :width] = (
                        here[: whole * group].reshape(whole, group, width).swapaxes(1, 2)
                    )
                if rest:
                    self._packed[panel, places[whole], :width, :rest] = here[whole * group :].T

    def data_ptr(self) -> int:
        """The address of the matrix itself."""
        return int(self._record.base)

    def stride(self, dim: int | None = None) -> Any:
        """The matrix's strides in elements, or one of them."""
        strides = int(self._record.row_stride), int(self._record.column_stride)
        return strides if dim is None else strides[dim]

    def element_size(self) -> int:
        return int(self._view.itemsize)

    def numel(self) -> int:
        return int(self.shape[0] * self.shape[1])

    def __repr__(self) -> str:
        rows, columns = self.shape
        return (
            f"<{rows} x {columns} matrix of {self._element} packed in panels of "
            f"{self.panel_columns} columns>"
        )


def prepack(matrix: Any, *, dtype: Any = None, block_n: int | None = None) -> PackedMatrix:
    """Pack the right operand of matmuls once, to be passed to kernels in its place.

    Matmuls that read it skip the packing of B; results are those of the matrix itself, bit for bit.
    The packing is a copy: call ``refresh()`` after the matrix has changed. Tiles of a matmul that
    reach past the matrix's edges, and tiles narrower than a panel, are packed by the kernel as
    ever, and so is a matrix with infinities in a type that the machine multiplies in parts (f16 on
    tile registers).

    Args:
        matrix: K x N, an array or a tensor on the host of any element type that matmuls take,
        contiguous along K or along N. dtype: the type that the kernel multiplies in, where it casts
        what it loads; the matrix's own by default. block_n: columns of the kernel's tiles of B,
        where they are fewer than a panel has by itself (as many as the machine's vectors and
        registers hold).

    Raises:
        LaunchError: it is no such matrix, or ``block_n`` is not a power of two.
        ArgumentError: it is no array.
    """
    from tilewright_cpu.target import host

    kind = array_kind(matrix)
    _refuse_unfit(matrix, kind)
    element = parse_type(IR_TEXT[kind.dtype])
    multiplied = element if dtype is None else parse_type(IR_TEXT[_dtype_text(dtype)])
    hardware = hardware_of(host())
    _refuse_cast(element, multiplied)
    columns = _MANY if block_n is None else _checked(block_n)
    scheme = choose_scheme(multiplied, multiplied, hardware, (_MANY, columns, _MANY))
    return PackedMatrix(
        matrix,
        scheme,
        element,
        block_of(scheme, (multiplied, multiplied), _MANY, columns, hardware).columns,
    )


def packed_list(values: Sequence[Any]) -> ctypes.Array[ctypes.c_uint64] | None:
    """The list of packed matrices among a launch's values: their count and records' addresses.

    It is None where there are none, and refers to the matrices, which must live while the kernel
    runs.
    """
    found = [value.record_address for value in values if type(value) is PackedMatrix]
    return (ctypes.c_uint64 * (1 + len(found)))(len(found), *found) if found else None


def _checked(block_n: int) -> int:
    if (
        isinstance(block_n, bool)
        or not isinstance(block_n, int)
        or block_n < 1
        or block_n & (block_n - 1)
    ):
        raise LaunchError(
            "prepack: block_n must be a power of two, the columns of a kernel's tiles of B, not "
            f"{block_n!r}"
        )
    return block_n


def _refuse_unfit(matrix: Any, kind: ArrayKind) -> None:
    what = f"this {type(matrix).__name__}"
    if kind.device is None or kind.device[0] != "cpu":
        where = "nowhere" if kind.device is None else f"on {kind.device[0]}:{kind.device[1]}"
        raise LaunchError(
            f"prepack: {what} is {where}; the CPU's matmuls read matrices on the host: copy "
            "it there"
        )
    element = parse_type(IR_TEXT[kind.dtype])
    if not (isinstance(element, FloatType) or (isinstance(element, IntType) and element.bits == 8)):
        raise LaunchError(
            f"prepack: {what} has elements of type {element}, which matmuls do not take: they "
            "multiply floats and 8-bit integers"
        )
    shape, steps = _extents_and_strides(matrix)
    if len(shape) != 2 or 0 in shape:
        raise LaunchError(
            f"prepack: {what} has the shape {shape}; pass a matrix of K rows and N columns, one of "
            "a batch at a time"
        )
    by_rows, by_columns = (
        steps[1] == 1 and steps[0] >= shape[1],
        steps[0] == 1 and steps[1] >= shape[0],
    )
    if not (by_rows or by_columns):
        raise LaunchError(
            f"prepack: {what} has strides of {steps} elements; neither its rows nor its columns "
            "are contiguous: pass a contiguous copy"
        )


def _refuse_cast(element: Type, multiplied: Type) -> None:
    narrow = isinstance(element, FloatType) and element.bits < 32 and multiplied is F32
    if element is not multiplied and not narrow:
        raise LaunchError(
            f"prepack: elements of type {element} that are multiplied as {multiplied} are packed "
            "by each matmul; only narrow floats as f32 are not"
        )


def _dtype_text(dtype: Any) -> str:
    try:
        return dtype_text(dtype)
    except TypeError as error:
        raise LaunchError(f"prepack: {error}") from None


def _extents_and_strides(matrix: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of an array, and its strides in elements.

    Raises:
        ArgumentError: it does not tell them.
    """
    kind, value = array_kind(matrix), launch_value(matrix)
    shape = tuple(int(extent) for extent in value.shape)
    if isinstance(value, np.ndarray):
        return shape, tuple(int(stride) // value.itemsize for stride in value.strides)
    if not hasattr(value, "stride"):
        raise ArgumentError(
            f"prepack: this {type(matrix).__name__} of {kind.dtype} does not tell its strides; "
            "pass a NumPy array or a PyTorch tensor"
        )
    return shape, tuple(int(stride) for stride in value.stride())


def _view_of(matrix: Any) -> np.ndarray[Any, Any]:
    """The memory of a matrix on the host as a NumPy array of its strides.

    Elements are as NumPy stores them. The array does not keep the matrix alive.
    """
    storage = np.dtype(NUMPY_STORAGE[array_kind(matrix).dtype])
    shape, steps = _extents_and_strides(matrix)
    span = 1 + sum((extent - 1) * step for extent, step in zip(shape, steps, strict=True))
    memory = (ctypes.c_char * (span * storage.itemsize)).from_address(address_of(matrix))
    return np.ndarray(
        shape,
        storage,
        memoryview(memory).cast("B"),
        strides=tuple(step * storage.itemsize for step in steps),
    )


__all__ = ["PackedMatrix", "prepack"]
