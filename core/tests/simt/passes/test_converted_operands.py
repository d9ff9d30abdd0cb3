"""Operands converted through shared memory: the slots that matmuls read instead, and results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.ir.core import Function
from tilewright.language.definitions.callable import device_function
from tilewright.simt.dialect.types import SlotType
from tilewright.testing.emulator_check import compare, small
from tilewright.testing.matrix_target import MatrixTarget

TYPES = {"a": "*fp32", "b": "*fp32", "out": "*fp32", "n": "i32"}


@device_function
def chain(a, b, out, n, D: tl.constexpr):
    rows, inner = tl.arange(0, 16), tl.arange(0, D)
    x = tl.load(a + rows[:, None] * D + inner[None, :], mask=rows[:, None] < n, other=0.0)
    y = tl.load(b + inner[:, None] * 16 + rows[None, :])
    square = tl.dot(x, y) + 1
    found = tl.dot(tl.load(b + rows[:, None] * 16 + rows[None, :]), square)
    if n > 5:
        found = tl.dot(tl.load(a + rows[:, None] * 16 + rows[None, :]), square, found)
    tl.store(out + rows[:, None] * 16 + rows[None, :], found)


@device_function
def transposed(a, b, out, n, D: tl.constexpr):
    rows, inner = tl.arange(0, 16), tl.arange(0, D)
    places = rows[:, None] * 16 + rows[None, :]
    square = (
        tl.dot(
            tl.load(a + rows[:, None] * D + inner[None, :]),
            tl.load(b + inner[:, None] * 16 + rows[None, :]),
        )
        + n
    )
    between = tl.dot(tl.load(b + places), tl.load(a + places))
    found = tl.dot(between, tl.trans(square))
    tl.store(out + places, tl.dot(tl.load(b + places), square, found))


@device_function
def repeated(a, b, out, n, D: tl.constexpr):
    rows = tl.arange(0, D)
    places = rows[:, None] * D + rows[None, :]
    x = tl.load(a + places)
    total = tl.zeros((D, D), tl.float32)
    for i in range(n):
        total = tl.dot(x, total + i)
    tl.store(out + places, total)


@device_function
def constant(a, b, out, n, D: tl.constexpr):
    rows = tl.arange(0, D)
    places = rows[:, None] * D + rows[None, :]
    y = tl.dot(tl.load(a + places), tl.load(b + places))
    total = tl.zeros((D, D), tl.float32)
    for i in range(n):
        total = tl.dot(tl.load(a + places) + i, y, total)
    tl.store(out + places, total)


def machine(**given: int) -> MatrixTarget:
    target = MatrixTarget(4, fragments=True, wish=False, prices=True)
    target.async_copy.mechanisms = ()
    target.resources = replace(target.resources, **given)
    return target


def from_memory(function: Function) -> list[list[bool]]:
    """Return, for each matmul in program order, the operands that it reads from shared memory."""
    products = [operation for operation in function.walk() if operation.name == "simt.dot"]
    return [
        [isinstance(operand.type, SlotType) for operand in product.operands[:2]]
        for product in products
    ]


def arguments(depth: int, n: int) -> list[object]:
    rng = np.random.default_rng(depth)
    return [
        small(rng, 16, max(16, depth)),
        small(rng, max(16, depth), 16),
        np.full((16, 16), 7, np.float32),
        n,
    ]


@pytest.mark.each_value
@pytest.mark.parametrize("n", [0, 5, 16])
@pytest.mark.parametrize("depth", [4, 16, 32])
def test_products_read_what_they_would_convert_from_shared_memory(depth: int, n: int) -> None:
    target = machine()
    function, _, _ = compare(chain, TYPES, arguments(depth, n), stages=1, target=target, D=depth)
    assert from_memory(function) == [[False, False], [False, True], [False, True]]
    assert [
        operation.name
        for operation in function.walk()
        if operation.name in ("simt.buffer", "simt.store")
    ] == ["simt.buffer", "simt.store"]


def test_a_tile_and_its_transpose_are_one_copy_that_is_written_where_the_tile_is_made() -> None:
    function, _, _ = compare(transposed, TYPES, arguments(16, 3), stages=1, target=machine(), D=16)
    assert from_memory(function) == [[False, False], [False, False], [False, True], [False, True]]
    names = [
        operation.name
        for operation in function.walk()
        if operation.name in ("simt.store", "simt.view", "simt.dot")
    ]
    assert names == ["simt.dot", "simt.store", "simt.dot", "simt.view", "simt.dot", "simt.dot"]


@pytest.mark.parametrize("n", [0, 1, 4])
def test_a_loop_writes_the_operand_anew_in_each_iteration(n: int) -> None:
    function, _, _ = compare(repeated, TYPES, arguments(16, n), stages=1, target=machine(), D=16)
    assert from_memory(function) == [[False, True]]


def test_an_operand_that_a_loop_reads_again_stays_in_registers() -> None:
    function, _, _ = compare(constant, TYPES, arguments(16, 3), stages=1, target=machine(), D=16)
    assert from_memory(function) == [[False, False], [False, False]]


@pytest.mark.parametrize(("memory", "shared"), [(1 << 16, True), (1 << 12, False)])
def test_memory_that_other_programs_need_is_not_taken(memory: int, shared: bool) -> None:
    # the registers of a program leave room for eight of them: each may take an eighth of the memory
    target = machine(shared_memory=memory, registers=16, register_file=8 * 16 * 16)
    function, _, _ = compare(chain, TYPES, arguments(16, 16), stages=1, target=target, D=16)
    assert from_memory(function)[1:] == [[False, shared]] * 2
