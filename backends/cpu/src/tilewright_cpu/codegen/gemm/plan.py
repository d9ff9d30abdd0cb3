"""Plan of a dot on a target: the multiply-add instruction, its K-group, the register block.

Everything here is arithmetic on types, extents and target features; no code is written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.ir.types import F32, I8, IntType, Type
from tilewright_cpu.hardware import Hardware

#: Accumulators that hide the latency of additions: four steps of four additions each.
_ACCUMULATORS = 16

#: Rows of a tile of a matrix unit, K-groups along K in one of them, and columns of a tile of
#: accumulators.
TILE = 16
#: Rows and columns of the block of accumulators that tiles hold.
_TILED_BLOCK = 2 * TILE

#: The precision of matmuls of f32 that are computed as such.
IEEE = "ieee"

#: A stride or an extent: known now, or the name of an i64.
Extent = int | str


@dataclass(frozen=True, slots=True)
class Split:
    """Split of floats into bf16 parts, and the products of parts that are added up.

    Each part is the leading bits of what the ones before leave. Infinities are in the first part,
    and 0 in the others. There they must meet one factor alone, which has the sign of the number
    that it stands for: in products with other parts than the first, they are 0 in the first part
    too.

    Attributes:
        parts: numbers that a float becomes. Packed, an operand has as many copies of itself.
        products: (part of A, part of B), in an order in which few of them are loaded anew.
    """

    parts: int
    products: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Scheme:
    """One way to multiply and add.

    Operands are seen in *K-groups*: ``group`` elements that follow each other along K, as one LLVM
    scalar of type ``k_group``. A micro-kernel multiplies a broadcast K-group of A with a vector of
    K-groups of B and adds ``group`` products to each lane of the accumulator.

    Attributes:
        name: which row of the table this is.
        k_group: LLVM type of a K-group.
        k_group_bytes: its size.
        group: elements of a K-group.
        accumulator: LLVM type of a lane of the accumulator.
        element: LLVM type of one packed element: what operands are converted to.
        tiled: a matrix unit multiplies tiles of 16 rows by 16 K-groups and of 16 K-groups by 16
        columns; the micro-kernel is :mod:`.amx_microkernel`. split: how elements become packed
        ones, of which there are several then; None where one becomes one.
    """

    name: str
    k_group: str
    k_group_bytes: int
    group: int
    accumulator: str
    element: str
    tiled: bool = False
    split: Split | None = None

    @property
    def parts(self) -> int:
        """Packed elements that an element becomes."""
        return 1 if self.split is None else self.split.parts

    @property
    def step(self) -> int:
        """Elements along K that are packed together.

        They are those of a K-group, or of a tile where tiles of all parts follow each other.
        """
        return self.group if self.split is None else TILE * self.group

    @property
    def packed_bytes(self) -> int:
        """Bytes of a packed K-group of an operand."""
        return self.k_group_bytes * self.parts

    def fits(self, m: int, n: int, k: int) -> bool:
        """Return whether a matmul of these extents can use the scheme."""
        return not self.tiled or (m % TILE == 0 and n % TILE == 0 and k % (TILE * self.group) == 0)


FMA32 = Scheme("fma", "float", 4, 1, "float", "float")
FMA64 = Scheme("fma", "double", 8, 1, "double", "double")
BF16_PAIRS = Scheme("bf16 pairs", "i32", 4, 2, "float", "i16")
BF16_TILES = Scheme("bf16 tiles", "i32", 4, 2, "float", "i16", tiled=True)
HALF_TILES = Scheme(
    "half tiles",
    "i32",
    4,
    2,
    "float",
    "i16",
    tiled=True,
    split=Split(2, ((0, 1), (0, 0), (1, 0), (1, 1))),
)
FLOAT_TILES = Scheme(
    "float tiles", "i32", 4, 2, "float", "i16", tiled=True, split=Split(2, ((0, 1), (0, 0), (1, 0)))
)
FINE_FLOAT_TILES = Scheme(
    "fine float tiles",
    "i32",
    4,
    2,
    "float",
    "i16",
    tiled=True,
    split=Split(3, ((0, 2), (0, 1), (0, 0), (1, 0), (1, 1), (2, 0))),
)
BYTE_TILES = Scheme("byte tiles", "i32", 4, 4, "i32", "i8", tiled=True)
BYTE_QUADS = Scheme("byte quads", "i32", 4, 4, "i32", "i8")
WORD_PAIRS = Scheme("word pairs", "i32", 4, 2, "i32", "i16")
SIGNED_DOT = Scheme("signed dot", "i32", 4, 4, "i32", "i8")
UNSIGNED_DOT = Scheme("unsigned dot", "i32", 4, 4, "i32", "i8")
INT32 = Scheme("int32", "i32", 4, 1, "i32", "i32")


@dataclass(frozen=True, slots=True)
class Row:
    """Condition under which a scheme can be used.

    It is an element type of both operands (``integers`` is any pair of bytes) or a precision of
    f32, on an architecture (any where None), with vectors of ``bits`` or less where all
    ``features`` are there, and none of ``slow_with``.
    """

    scheme: Scheme
    elements: str
    arch: str | None
    bits: int
    features: frozenset[str]
    min_bits: int = 0
    slow_with: frozenset[str] = frozenset()


def _row(
    scheme: Scheme,
    elements: str,
    arch: str | None,
    bits: int,
    *features: str,
    min_bits: int = 0,
    slow_with: frozenset[str] = frozenset(),
) -> Row:
    return Row(scheme, elements, arch, bits, frozenset(features), min_bits, slow_with)


#: Intel's cores with arithmetic in f16 begin a dot of bf16 pairs every other cycle, but two
#: multiply-adds of f32 every cycle, which is twice the rate. Other cores begin as many of either.
_SLOW_PAIRS = frozenset({"avx512fp16"})

#: The first row that fits is used; what none fits is multiplied and added as f32 or f64.
_ROWS = (
    _row(BYTE_TILES, "integers", "x86-64", 512, "amx-tile", "amx-int8"),
    _row(BF16_TILES, "bf16", "x86-64", 512, "amx-tile", "amx-bf16"),
    _row(HALF_TILES, "f16", "x86-64", 512, "amx-tile", "amx-bf16"),
    _row(FLOAT_TILES, "tf32", "x86-64", 512, "amx-tile", "amx-bf16"),
    _row(FLOAT_TILES, "bf16x3", "x86-64", 512, "amx-tile", "amx-bf16"),
    _row(FINE_FLOAT_TILES, "tf32x3", "x86-64", 512, "amx-tile", "amx-bf16"),
    _row(FINE_FLOAT_TILES, "bf16x6", "x86-64", 512, "amx-tile", "amx-bf16"),
    _row(BYTE_QUADS, "integers", "x86-64", 512, "avx512vnni", min_bits=512),
    _row(BYTE_QUADS, "integers", "x86-64", 256, "avx512vnni", "avx512vl"),
    _row(BYTE_QUADS, "integers", "x86-64", 256, "avxvnni"),
    _row(WORD_PAIRS, "integers", "x86-64", 512, "avx512bw", min_bits=512),
    _row(WORD_PAIRS, "integers", "x86-64", 256),
    _row(SIGNED_DOT, "i8", "aarch64", 128, "dotprod"),
    _row(UNSIGNED_DOT, "u8", "aarch64", 128, "dotprod"),
    _row(INT32, "integers", None, 1 << 16),
    _row(FMA64, "f64", None, 1 << 16),
    _row(BF16_PAIRS, "bf16", "x86-64", 512, "avx512bf16", min_bits=512, slow_with=_SLOW_PAIRS),
    _row(BF16_PAIRS, "bf16", "x86-64", 256, "avx512bf16", "avx512vl", slow_with=_SLOW_PAIRS),
)


def choose_scheme(
    a: Type,
    b: Type,
    hardware: Hardware,
    extents: tuple[int, int, int] | None = None,
    precision: str = IEEE,
) -> Scheme:
    """The scheme for a matmul of ``extents`` (M, N, K) of elements ``a`` and ``b``.

    Without extents it is that of large matmuls. ``precision``: the one that a matmul of f32 asks
    for.
    """
    kinds = {"integers"} if isinstance(a, IntType) else set()
    if a is b:
        kinds.add(precision if a is F32 and precision != IEEE else str(a))
    for row in _ROWS:
        fits = row.elements in kinds and row.arch in (None, hardware.arch)
        if not fits or (extents is not None and not row.scheme.fits(*extents)):
            continue
        if row.slow_with & hardware.features:
            continue
        if row.min_bits <= hardware.vector_bits <= row.bits and row.features <= hardware.features:
            return row.scheme
    return FMA32


def flips_sign(scheme: Scheme, a: Type, b: Type) -> bool:
    """Return whether operand A is packed with its sign bit flipped.

    Byte quads multiply an unsigned with a signed operand, so operands of one signedness need A
    moved by 128, which a correction of 128 * (column sum of B) undoes.
    """
    return scheme is BYTE_QUADS and a is b


def a_is_unsigned(a: Type, flipped: bool) -> bool:
    """Return whether the packed bytes of A count as unsigned in the matmul."""
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


def block_of(
    scheme: Scheme, elements: tuple[Type, Type], m: int, n: int, hardware: Hardware
) -> Block:
    """The block for an M x N matmul of operands of ``elements`` by a scheme.

    Where large matmuls are tiled, smaller ones have panels of as many columns: B may have been
    packed for either before the launch.
    """
    if scheme.tiled:
        return Block(min(m, _TILED_BLOCK), min(n, _TILED_BLOCK) // TILE, TILE)
    if choose_scheme(*elements, hardware).tiled:
        n = min(n, _TILED_BLOCK)
    return choose_block(m, n, hardware.vector_bytes // scheme.k_group_bytes, hardware)


def choose_block(m: int, n: int, lanes: int, hardware: Hardware) -> Block:
    """The block for an M x N matmul in vector registers: the hardware's, cut to the extents.

    Where columns are few the registers they leave hold more rows, and the other way around: many
    accumulators hide the latency of the additions.
    """
    while lanes > 1 and lanes >= 2 * n:
        lanes //= 2
    columns = -(-n // lanes)
    rows, vectors = hardware.block
    if columns < vectors:
        vectors = columns
        rows = min(2 * rows, (hardware.registers - 1) // vectors - 1)
    if m < rows:
        rows = m
        budget = (hardware.registers - 2) // (rows + 1)
        while vectors * 2 <= budget and vectors * rows < _ACCUMULATORS and vectors * 2 <= columns:
            vectors *= 2
    elif rows > 4 and m % rows in (1, 2) and m % 4 == 0 and m < 4 * rows:
        rows = 4
    return Block(rows, vectors, lanes)


@dataclass(frozen=True, slots=True)
class Panel:
    """Columns from ``start`` on that one micro-kernel covers.

    ``count`` panels of one shape form a loop. ``widths`` are the lanes of its vectors; ``valid``
    the columns of the last vector that exist (the rest is padding); ``packed`` the columns that it
    was packed with, 0 for its own.
    """

    start: int
    count: int
    widths: tuple[int, ...]
    valid: int
    packed: int = 0

    @property
    def columns(self) -> int:
        """Columns of one panel, padding included."""
        return sum(self.widths)

    @property
    def stride(self) -> int:
        """Units of packed B from one step along K to the next."""
        return self.packed or self.columns

    @property
    def first_vector(self) -> Panel | None:
        """The part of a panel that its first vector is; None where it has no other."""
        return (
            None
            if len(self.widths) == 1
            else Panel(self.start, 1, self.widths[:1], self.widths[0], self.stride)
        )


def split_columns(n: int, block: Block) -> tuple[Panel, ...]:
    """Panels that cover N columns: whole ones, then the remainder.

    The last vector of the remainder has the smallest power of two of lanes that holds it.
    """
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
