"""Index tiles that are contiguous unless they wrap around, or by a hint.

``(start + arange) % n`` is such a tile, and so is one with the hint ``max_contiguous``. Kernels
index with them so that a tile at the edge reads something valid. All other tiles have plain
strides, which is where the speed is: a check of one scalar, made where the tile is computed,
selects between code that relies on contiguity and code that does not. Hints are checked too:
kernels are known to give them for tiles that wrap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tilewright.ir.core import Operation, Value
from tilewright.ir.ops.arithmetic import Rem
from tilewright.ir.ops.debug import Hint
from tilewright.ir.types import I1, IntType, TileType
from tilewright_cpu.codegen.analysis.strides import stride_along
from tilewright_cpu.codegen.analysis.tiles import is_lazy, is_tile
from tilewright_cpu.codegen.context import Context


def is_hinted(operation: Operation) -> bool:
    """Return whether an operation is a hint that all of a rank-1 tile of integers is contiguous."""
    if not isinstance(operation, Hint):
        return False
    type_ = operation.results[0].type
    if (
        not isinstance(type_, TileType)
        or type_.rank != 1
        or type_.shape[0] == 1
        or not _countable(type_)
    ):
        return False
    contiguity = operation.contiguity
    return bool(contiguity) and contiguity[0] >= type_.shape[0]


def _countable(type_: TileType) -> bool:
    element = type_.element
    return (
        isinstance(element, IntType) and element.signed and element is not I1 and element.bits >= 32
    )


def emit_contiguity_check(context: Context, operation: Operation) -> None:
    """Materialize a tile and write its check, if it is contiguous unless it wraps."""
    (value,) = operation.results
    type_ = value.type
    assert isinstance(type_, TileType)
    wraps = False
    if (
        isinstance(operation, Rem)
        and value in context.buffers
        and type_.rank == 1
        and _countable(type_)
    ):
        wraps = (
            stride_along(context, operation.a, 0) == 1
            and stride_along(context, operation.b, 0) == 0
        )
    if not wraps and not (is_hinted(operation) and stride_along(context, value, 0) is None):
        return
    buffer = context.materialize(value)
    writer, extent = context.writer, type_.shape[0]
    first, last = (context.load_element(buffer, [at]) for at in (0, extent - 1))
    register = context.llvm_type(type_)
    # a remainder that wraps ends lower than it would otherwise; divisors of one tile are equal
    expected = writer.emit(f"add {register} {first}, {extent - 1}")
    flag = writer.emit(f"icmp eq {register} {last}, {expected}")
    context.consecutive[value] = flag


@contextmanager
def assuming(context: Context, values: Iterable[Value]) -> Iterator[None]:
    """Let stride queries assume that tiles of :attr:`Context.consecutive` are contiguous."""
    saved = context.assumed, context.axis_strides
    added = frozenset(values) - context.assumed
    if added:
        context.assumed, context.axis_strides = context.assumed | added, {}
    try:
        yield
    finally:
        context.assumed, context.axis_strides = saved


def consecutive_sources(context: Context, value: Value) -> list[Value]:
    """Tiles of :attr:`Context.consecutive` that a value is computed from."""
    if not context.consecutive:
        return []
    found: list[Value] = []
    stack, seen = [value], set()
    while stack:
        here = context.resolve(stack.pop())
        if here in seen or not is_tile(here):
            continue
        seen.add(here)
        if here in context.consecutive:
            found.append(here)
        operation = here.definition
        if here not in context.buffers and operation is not None and is_lazy(operation):
            stack.extend(operation.operands)
    return found
