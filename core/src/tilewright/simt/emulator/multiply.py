"""Execution of asynchronous matmuls: each thread computes its own elements from whole operands."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.ir.types import BF16, F16, F32, F64, FloatType, IntType, Type
from tilewright.llvm.emission.registers import encode_float, storage_size
from tilewright.simt.emulator.blocks import memory, offsets_of
from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout, combine, log2

_FLOATS: dict[Type, Any] = {
    F16: np.dtype(np.float16),
    F32: np.dtype(np.float32),
    F64: np.dtype(np.float64),
}

#: An operand: the address of a tile in shared memory, or the values of a thread's registers.
_Source = Any  # int | np.ndarray


@dataclass(frozen=True)
class MatmulSite:
    """Matmul with a plan.

    Attributes:
        a, b, c: layouts; for an operand in shared memory, of the elements that a thread reads.
        elements: types of the elements of a, b and c.
        shared: the shared layouts of a and b; None for an operand in registers.
    """

    a: LinearLayout
    b: LinearLayout
    c: LinearLayout
    elements: tuple[Type, Type, Type]
    shared: tuple[SharedLayout | None, SharedLayout | None]
    _numbers: dict[tuple[int, int, int], Any] = field(default_factory=dict, compare=False)

    def taken(self, position: int, address: int, lane: int, warp: int) -> _Source:
        """An operand as it is when the matmul is started: where it is, or what is in this thread's
        registers."""
        if self.shared[position] is not None:
            return address
        return self._registers(address, position, lane, warp)[1].copy()

    def shared_operands(self, addresses: tuple[int, int]) -> list[tuple[int, int]]:
        """Address and bytes of the operands that are read from shared memory."""
        given = zip(addresses, self.shared, self.elements, strict=False)
        return [(address, _bytes(shared, element)) for address, shared, element in given if shared]

    def multiply(self, area: int, a: _Source, b: _Source, lane: int, warp: int) -> None:
        """Add the matmul to this thread's result registers, which are in memory at ``area``."""
        numbers, accumulator = self._registers(area, 2, lane, warp)
        m, n, k = self.c.shape[-2], self.c.shape[-1], self.a.shape[-1]
        columns, rows, batches = numbers % n, numbers // n % m, numbers // (n * m)
        left = self._whole(0, a, lane, warp).reshape(-1, m, k)[batches, rows]
        right = self._whole(1, b, lane, warp).reshape(-1, k, n)[batches, :, columns]
        with np.errstate(all="ignore"):
            values = decoded(accumulator, self.elements[2]) + (left * right).sum(axis=1)
            accumulator[:] = values.astype(accumulator.dtype)

    def _registers(self, address: int, position: int, lane: int, warp: int) -> tuple[Any, Any]:
        """The numbers of a thread's elements, and their values in memory."""
        key = position, lane, warp
        layout = (self.a, self.b, self.c)[position]
        numbers = self._numbers.get(key)
        if numbers is None:
            start = combine(layout.lanes, lane) ^ combine(layout.warps, warp)
            numbers = self._numbers[key] = np.array(
                [element ^ start for element in layout.register_elements()]
            )
        return numbers, memory(address, len(numbers), _dtype(self.elements[position]))

    def _whole(self, position: int, source: _Source, lane: int, warp: int) -> Any:
        """All elements of an operand in row-major order; of one in registers, those that this
        thread has."""
        layout, shared, element = (
            (self.a, self.b)[position],
            self.shared[position],
            self.elements[position],
        )
        if shared is not None:
            flat = memory(source, math.prod(layout.shape), _dtype(element))[offsets_of(shared)]
            return decoded(flat, element)
        whole = np.zeros(
            math.prod(layout.shape), np.float64 if isinstance(element, FloatType) else np.int64
        )
        whole[self._numbers[position, lane, warp]] = decoded(source, element)
        return whole


@dataclass(frozen=True)
class AccumulatorSite:
    """A matmul of a plan whose accumulator is in tensor memory, or what writes or reads those.

    Attributes:
        c: the layout in which threads write and read the accumulator.
        k: elements that each is over.
        elements: types of the elements of a, b and c.
        shared: where the elements of a and b are in shared memory; empty for what moves
        accumulator.
    """

    c: LinearLayout
    k: int
    elements: tuple[Type, Type, Type]
    shared: tuple[SharedLayout, ...] = ()

    def shared_operands(self, addresses: tuple[int, int]) -> list[tuple[int, int]]:
        """Address and bytes of the operands."""
        given = zip(addresses, self.shared, self.elements, strict=False)
        return [(address, _bytes(shared, element)) for address, shared, element in given]

    def nothing(self) -> Any:
        """An accumulator that nobody wrote."""
        return np.full(math.prod(self.c.shape), np.nan, np.float32)

    def multiply(self, accumulator: Any, a: int, b: int, adds: int) -> None:
        """Compute a matmul from shared memory, and add it to the accumulator or replace that."""
        m, n = self.c.shape
        left, right = (
            decoded(
                memory(address, math.prod(shared.shape), _dtype(element))[offsets_of(shared)],
                element,
            ).reshape(shared.shape)
            for address, shared, element in zip((a, b), self.shared, self.elements, strict=False)
        )
        with np.errstate(all="ignore"):
            matmul = left.reshape(m, self.k) @ right.reshape(self.k, n)
            accumulator[:] = (matmul.reshape(-1) + (accumulator if adds else 0)).astype(
                accumulator.dtype
            )

    def registers(self, address: int, lane: int, warp: int) -> tuple[Any, Any]:
        """Return the numbers of a thread's accumulator elements, and its copies of them."""
        start = combine(self.c.lanes, lane) ^ combine(self.c.warps, warp)
        numbers = np.array([element ^ start for element in self.c.register_elements()])
        return numbers, memory(address, len(numbers), np.dtype(np.float32))


def _bytes(shared: SharedLayout, element: Type) -> int:
    """Return the bytes of a tile in shared memory."""
    return math.prod(shared.shape) * storage_size(element)


def operand_layout(c: LinearLayout, k: int, position: int) -> LinearLayout:
    """Return the elements of operand 0 or 1 that a thread reads for a result in layout ``c``.

    These are rows or columns of ``k`` elements: first the thread's own along M or N, then along K.
    """
    m, n, k_bits = log2(c.shape[-2]), log2(c.shape[-1]), log2(k)

    def image(of_result: int) -> int:
        row, column, batch = (
            of_result >> n & ((1 << m) - 1),
            of_result & ((1 << n) - 1),
            of_result >> (n + m),
        )
        return (
            batch << (m + k_bits) | row << k_bits
            if position == 0
            else batch << (k_bits + n) | column
        )

    shape = (*c.shape[:-2], 1 << m, k) if position == 0 else (*c.shape[:-2], k, 1 << n)
    along_k = [1 << (bit if position == 0 else bit + n) for bit in range(k_bits)]
    own = [found for found in map(image, c.registers) if found]
    return LinearLayout(
        shape, (*own, *along_k), tuple(map(image, c.lanes)), tuple(map(image, c.warps))
    )


def _dtype(element: Type) -> Any:
    if element in _FLOATS:
        return _FLOATS[element]
    if isinstance(element, IntType):
        return np.dtype(f"{'i' if element.signed else 'u'}{storage_size(element)}")
    return np.dtype(f"u{storage_size(element)}")


def decoded(values: Any, element: Type) -> Any:
    """Numbers as f64, whole ones as i64."""
    if isinstance(element, IntType):
        return values.astype(np.int64)
    if element is BF16:
        return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if element in _FLOATS:
        return values.astype(np.float64)
    assert isinstance(element, FloatType)
    return _small_floats(element)[values]


@functools.cache
def _small_floats(format_: FloatType) -> Any:
    """The numbers of all encodings of a format of 8 bits."""
    found = np.full(256, np.nan)
    nan = {encode_float(math.nan, format_), encode_float(-math.nan, format_)}
    for bits in range(256):
        fraction, exponent = (
            bits & ((1 << format_.mantissa) - 1),
            bits >> format_.mantissa & ((1 << format_.exponent) - 1),
        )
        scaled = fraction if not exponent else fraction | 1 << format_.mantissa
        value = math.ldexp(scaled, max(exponent, 1) - format_.bias - format_.mantissa)
        if format_.has_infinity and exponent == (1 << format_.exponent) - 1:
            value = math.nan if fraction else math.inf
        if bits not in nan:
            found[bits] = -value if bits >> 7 else value
    return found
