"""How a dot is computed on a target: which multiply-add instruction, how many elements of K it takes at once, and how large the block of
accumulators is that stays in registers.

Everything here is arithmetic on types, extents and target features; no code is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.ir.types import BF16, F64, I8, IntType, Type

#: A stride or an extent: known now, or the name of an i64.
Extent = int | str


@dataclass(frozen=True, slots=True)
class Scheme:
    """One way to multiply and add.

    Operands are seen in *units*: ``group`` elements that follow each other along K, as one LLVM scalar of type ``unit``. A micro-kernel multiplies
    a broadcast unit of A with a vector of units of B and adds ``group`` products to each lane of the accumulator.

    Attributes:
        name: which row of the table this is.
        unit: LLVM type of a unit.
        unit_bytes: its size.
        group: elements of K in a unit.
        accumulator: LLVM type of a lane of the accumulator.
        element: LLVM type of one packed element: what operands are converted to.
    """

    name: str
    unit: str
    unit_bytes: int
    group: int
    accumulator: str
    element: str


FMA32 = Scheme("fma", "float", 4, 1, "float", "float")
FMA64 = Scheme("fma", "double", 8, 1, "double", "double")
BF16_PAIRS = Scheme("bf16 pairs", "i32", 4, 2, "float", "i16")
BYTE_QUADS = Scheme("byte quads", "i32", 4, 4, "i32", "i8")
WORD_PAIRS = Scheme("word pairs", "i32", 4, 2, "i32", "i16")
INT32 = Scheme("int32", "i32", 4, 1, "i32", "i32")


def choose_scheme(a: Type, b: Type, features: frozenset[str], x86: bool, vector_bits: int) -> Scheme:
    """The scheme for operands of elements ``a`` and ``b`` on a target with these LLVM feature names and vectors of ``vector_bits``."""
    if isinstance(a, IntType):
        if x86 and (("avx512vnni" in features and (vector_bits == 512 or "avx512vl" in features)) or ("avxvnni" in features and vector_bits <= 256)):
            return BYTE_QUADS
        if x86 and (vector_bits < 512 or "avx512bw" in features):
            return WORD_PAIRS
        return INT32
    if a is F64:
        return FMA64
    if a is BF16 and b is BF16 and x86 and "avx512bf16" in features and (vector_bits == 512 or "avx512vl" in features):
        return BF16_PAIRS
    return FMA32


def flips_sign(scheme: Scheme, a: Type, b: Type) -> bool:
    """Whether operand A is packed with its sign bit flipped: byte quads multiply an unsigned with a signed operand, so operands of one
    signedness need A moved by 128, which a correction of 128 * (column sum of B) undoes."""
    return scheme is BYTE_QUADS and a is b


def a_is_unsigned(a: Type, flipped: bool) -> bool:
    """Whether the packed bytes of A count as unsigned in the product."""
    return (a is I8) == flipped


@dataclass(frozen=True, slots=True)
class Block:
    """The accumulators of a micro-kernel: ``rows`` x ``vectors`` registers of ``lanes`` lanes."""

    rows: int
    vectors: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


def choose_block(m: int, n: int, lanes: int, registers: int) -> Block:
    """The block for an M x N product. One register is kept for the broadcast unit of A, ``vectors`` for B, and one to spare.

    Measured on a machine with 32 registers of 512 bits: 8 rows of 2 vectors reach 92 to 95 % of the peak; 12x2, 4x4, 6x4 and 16x1 are not
    better. With 16 registers 6x2 is the largest block of two vectors that does not spill.
    """
    while lanes > 1 and lanes >= 2 * n:
        lanes //= 2
    columns = -(-n // lanes)
    if registers >= 32:
        rows, vectors = (8, 2) if lanes > 4 else (8, 3)
    else:
        rows, vectors = (6, 2) if registers >= 16 else (2, 2)
    if columns < vectors:
        vectors = columns
    if m < rows:
        rows = m
        # Few rows: more vectors hide the latency of the additions.
        budget = (registers - 2) // (rows + 1)
        while vectors * 2 <= budget and vectors * rows < 16 and vectors * 2 <= columns:
            vectors *= 2
    elif m % rows and m % 4 == 0 and rows == 6:
        rows = 4 if m % 6 in (1, 2) and m < 24 else 6
    return Block(rows, vectors, lanes)


@dataclass(frozen=True, slots=True)
class Panel:
    """Columns ``start`` .. that one micro-kernel covers; ``count`` of them when the panels of one shape form a loop.

    ``widths`` are the lanes of its vectors; ``valid`` the columns of the last vector that exist (the rest is padding).
    """

    start: int
    count: int
    widths: tuple[int, ...]
    valid: int

    @property
    def columns(self) -> int:
        """Columns of one panel, padding included."""
        return sum(self.widths)


def split_columns(n: int, block: Block) -> tuple[Panel, ...]:
    """Panels that cover N columns: whole ones, then what is left with a last vector of the smallest power of two that holds it."""
    whole = n // block.columns
    panels = []
    if whole:
        panels.append(Panel(0, whole, (block.lanes,) * block.vectors, block.lanes))
    rest = n - whole * block.columns
    if rest:
        full, tail = divmod(rest, block.lanes)
        widths = (block.lanes,) * full
        if tail:
            width = 1 << (tail - 1).bit_length()
            panels.append(Panel(whole * block.columns, 1, (*widths, width), tail))
        else:
            panels.append(Panel(whole * block.columns, 1, widths, block.lanes))
    return tuple(panels)


def split_rows(m: int, block: Block) -> Iterator[tuple[int, int, int]]:
    """(first row, number of blocks, rows of a block) that cover M rows."""
    whole, rest = divmod(m, block.rows)
    if whole:
        yield 0, whole, block.rows
    if rest:
        yield whole * block.rows, 1, rest


def packed_columns(panels: tuple[Panel, ...]) -> int:
    """Columns of B once packed, padding included."""
    return sum(panel.count * panel.columns for panel in panels)
