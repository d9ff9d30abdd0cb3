"""Packing: copies of operands in the form that micro-kernels read, B in panels.

Elements are converted, and elements that follow each other along K are one K-group. A packed B is a
row of panels. A panel of P columns holds, for each step along K, P K-groups that follow each other;
so a micro-kernel reads memory straight through. Columns that pad the last vector are zero, and so
are elements that pad the last K-group. Where a scheme splits its operands, a tile's K-groups are
there once for each part: those of the first part, then those of the next (:class:`.plan.Split`).

The contiguous axis of the source decides which loops run: along N vectors are copied (and
interleaved into K-groups), along K square blocks are transposed in registers, and otherwise
elements are copied one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.types import Type, byte_size
from tilewright.llvm.emission.registers import storage_type
from tilewright.llvm.emission.writer import FunctionWriter, splat_constant, vector
from tilewright_cpu.codegen.gemm.bf16_split import split_float
from tilewright_cpu.codegen.gemm.extent_limit import ALL, Limits
from tilewright_cpu.codegen.gemm.plan import TILE, Extent, Panel, Scheme, packed_columns
from tilewright_cpu.codegen.gemm.widen import widen
from tilewright_cpu.hardware import Hardware

#: Blocks of this many K-groups a side are transposed in registers: 16 a side run 10 % faster, and
#: take LLVM five times as long to compile.
_TRANSPOSED = 8
_MIN_TRANSPOSED = 4
#: Rows ahead of the one being packed that are asked for: what memory delivers late while a row
#: takes a few dozen cycles.
_AHEAD = 8


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix of rows x columns in memory.

    Element (r, c) lies at ``pointer`` + r * row_stride + c * column_stride, strides counting
    elements.
    """

    pointer: str
    element: Type
    rows: int
    columns: int
    row_stride: Extent
    column_stride: Extent

    @property
    def transposed(self) -> Matrix:
        return Matrix(
            self.pointer, self.element, self.columns, self.rows, self.column_stride, self.row_stride
        )


def scaled(w: FunctionWriter, index: Extent, stride: Extent) -> Extent:
    """index * stride, folded where both are known."""
    if isinstance(index, int) and isinstance(stride, int):
        return index * stride
    if 0 in (index, stride):
        return 0
    if index == 1:
        return stride
    if stride == 1:
        return index
    return w.emit(f"mul nsw i64 {index}, {stride}")


def plus(w: FunctionWriter, a: Extent, b: Extent) -> Extent:
    """a + b, folded where both are known."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    if a == 0:
        return b
    if b == 0:
        return a
    return w.emit(f"add nsw i64 {a}, {b}")


def address(w: FunctionWriter, matrix: Matrix, row: Extent, column: Extent) -> str:
    """The address of an element."""
    offset = plus(w, scaled(w, row, matrix.row_stride), scaled(w, column, matrix.column_stride))
    return w.gep(storage_type(matrix.element), matrix.pointer, offset)


def fetch(w: FunctionWriter, place: str) -> None:
    """Prefetch the cache line at an address into the L2 cache, for reading.

    The address need not be one of the process.
    """
    w.call("llvm.prefetch.p0", "void", [("ptr", place), ("i32", "0"), ("i32", "2"), ("i32", "1")])


class Packer:
    """Packs one operand for a scheme.

    Args:
        source: seen as K x N, whichever operand it is: A is packed as its transpose.
        flip: flip the sign bit of each packed byte.
    """

    def __init__(
        self, w: FunctionWriter, scheme: Scheme, source: Matrix, flip: bool, hardware: Hardware
    ) -> None:
        self.w, self.scheme, self.source, self.flip, self.hardware = (
            w,
            scheme,
            source,
            flip,
            hardware,
        )
        self.stored = storage_type(source.element)
        self.align = byte_size(source.element)
        self.k = source.rows
        self.n = source.columns
        whole = -(-self.k // scheme.step) * (scheme.step // scheme.group)
        #: Units of a packed column, those of all parts.
        self.k_groups = whole * scheme.parts
        #: lanes -> the address of i1s: in which of them no infinite number has been packed
        self._finite: dict[int, str] = {}

    # ---- elements and vectors

    def convert(self, value: str, lanes: int) -> str:
        """A vector (scalar for 0 lanes) of source elements as packed elements."""
        w, element = self.w, self.scheme.element
        value = widen(w, self.source.element, value, lanes, element, self.hardware.can("half"))
        if self.flip:
            high = "-128" if not lanes else "splat (i8 -128)"
            value = w.emit(f"xor {vector(element, lanes)} {value}, {high}")
        return value

    def load(self, pointer: str, lanes: int) -> list[str]:
        """Source elements as packed elements, of each part."""
        w, value = self.w, self.w.load(vector(self.stored, lanes), pointer, self.align)
        if self.scheme.split is None:
            return [self.convert(value, lanes)]
        widened = widen(w, self.source.element, value, lanes, "float", self.hardware.can("half"))
        parts, finite = split_float(w, widened, lanes, self.scheme.split)
        bools = vector("i1", lanes)
        if lanes not in self._finite:
            self._finite[lanes] = w.alloca(bools)
            w.allocations.append(
                f"  store {bools} {splat_constant('i1', 'true', lanes)}, ptr {self._finite[lanes]}"
            )
        so_far = w.load(bools, self._finite[lanes])
        w.store(bools, w.emit(f"and {bools} {so_far}, {finite}"), self._finite[lanes])
        return parts

    def take_infinite(self) -> str:
        """An i64, not 0 where an infinite number has been packed since the last call."""
        w, found = self.w, "false"
        for lanes, place in self._finite.items():
            bools = vector("i1", lanes)
            finite = w.load(bools, place)
            w.store(bools, splat_constant("i1", "true", lanes), place)
            if lanes:
                finite = w.call(f"llvm.vector.reduce.and.v{lanes}i1", "i1", [(bools, finite)])
            found = w.emit(f"or i1 {found}, {w.emit(f'xor i1 {finite}, true')}")
        return w.emit(f"zext i1 {found} to i64")

    def places(self, k_group: Extent) -> list[Extent]:
        """Positions of a K-group in a packed column, one for each part.

        K-groups that follow it in the same tile follow it there.
        """
        w, parts = self.w, self.scheme.parts
        if parts == 1:
            return [k_group]
        if isinstance(k_group, int):
            first: Extent = k_group // TILE * TILE * parts + k_group % TILE
        else:
            tile = w.emit(f"and i64 {k_group}, {-TILE}")
            first = plus(w, scaled(w, tile, parts - 1), k_group)
        return [plus(w, first, part * TILE) for part in range(parts)]

    # ---- panels of columns

    def pack_panels(self, panels: tuple[Panel, ...], target: str, limits: Limits = ALL) -> None:
        """Fill ``target`` with the K-groups of all packed columns, as far as ``limits`` go.

        There are limits along K and along the columns.
        """
        w, columns = self.w, packed_columns(panels)
        if columns != self.n or self.k % self.scheme.step:
            self._fill_zero(target, self.k_groups * columns)
        if self.source.column_stride == 1 and self.n > 1:
            self._by_rows(panels, target, limits)
        elif self.source.row_stride == 1 and self.k > 1:
            self._by_columns(panels, target, limits)
        else:
            for panel in panels:
                with w.loop("0", str(panel.count), 1, nonempty=True) as loop:
                    self._by_elements(panel, loop.index, target, 0, self._valid(panel), 0, self.k)

    def _valid(self, panel: Panel) -> int:
        """Columns of a panel that exist."""
        return panel.columns - panel.widths[-1] + panel.valid

    def _fill_zero(self, target: str, k_groups: int) -> None:
        w, k_group = self.w, self.scheme.k_group
        with w.loop("0", str(k_groups), 1, nonempty=True) as loop:
            w.store(
                k_group,
                "0.0" if k_group in ("float", "double") else "0",
                w.gep(k_group, target, loop.index),
                self.scheme.k_group_bytes,
            )

    def _panel_base(self, panel: Panel, index: str, target: str) -> tuple[str, Extent]:
        """(address, first column) of panel ``index`` of its kind."""
        w = self.w
        offset = plus(
            w, scaled(w, index, self.k_groups * panel.columns), panel.start * self.k_groups
        )
        column = plus(w, scaled(w, index, panel.columns), panel.start)
        return w.gep(self.scheme.k_group, target, offset), column

    def _by_rows(self, panels: tuple[Panel, ...], target: str, limits: Limits) -> None:
        """Elements of a row are contiguous: copy vectors of them, ``group`` rows at a time."""
        w, group = self.w, self.scheme.group
        whole, rest = divmod(self.k, group)
        counts = self._counts(panels, limits)

        def rows(k_group: Extent, present: int) -> None:
            first = scaled(w, k_group, group)
            sources = [address(w, self.source, plus(w, first, g), 0) for g in range(present)]
            later = address(w, self.source, plus(w, first, _AHEAD), 0) if self._is_far else None
            for panel, count in zip(panels, counts, strict=True):
                base = w.gep(self.scheme.k_group, target, panel.start * self.k_groups)
                starts = [
                    ("ptr", w.gep(self.scheme.k_group, base, scaled(w, place, panel.columns)))
                    for place in self.places(k_group)
                ]
                with w.loop(
                    "0",
                    str(count),
                    1,
                    [*starts, ("i64", str(panel.start))],
                    nonempty=isinstance(count, int),
                ) as loop:
                    *targets, column = loop.values
                    if later is not None:
                        self._fetch(w.gep(self.stored, later, column), panel)
                    self._row_of_vectors(
                        panel, [w.gep(self.stored, source, column) for source in sources], targets
                    )
                    following = [
                        w.gep(self.scheme.k_group, place, self.k_groups * panel.columns)
                        for place in targets
                    ]
                    loop.next_values = [*following, str(plus(w, column, panel.columns))]

        if whole:
            end = limits.blocks(w, limits.end, 0, group, whole)
            with w.loop("0", str(end), 1, nonempty=isinstance(end, int)) as loop:
                rows(loop.index, group)
        if rest:
            rows(whole, rest)

    @property
    def _is_far(self) -> bool:
        """Return whether rows are too far apart for the hardware prefetcher to follow them."""
        stride = self.source.row_stride
        return not isinstance(stride, int) or stride * self.align > self.hardware.far_bytes

    def _fetch(self, place: str, panel: Panel) -> None:
        """Prefetch a panel's part of a row that is packed later, possibly in the next K tile."""
        for start in range(
            0, panel.columns, max(1, self.hardware.limit("line_bytes") // self.align)
        ):
            fetch(self.w, self.w.gep(self.stored, place, start))

    def _row_of_vectors(self, panel: Panel, pointers: list[str], targets: list[str]) -> None:
        """Pack a row of a panel's K-groups, for each part, from as many rows as a K-group has."""
        w, group, element = self.w, self.scheme.group, self.scheme.element
        start = 0
        for position, width in enumerate(panel.widths):
            last = position == len(panel.widths) - 1
            if last and panel.valid != width:
                for column in range(start, start + panel.valid):
                    for g, pointer in enumerate(pointers):
                        for value, row in zip(
                            self.load(w.gep(self.stored, pointer, column), 0), targets, strict=True
                        ):
                            w.store(element, value, w.gep(element, row, column * group + g), 1)
                return
            loaded = [self.load(w.gep(self.stored, pointer, start), width) for pointer in pointers]
            for row, *values in zip(targets, *loaded, strict=True):
                values += ["zeroinitializer"] * (group - len(values))
                w.store(
                    vector(element, width * group),
                    self._interleave(values, width),
                    w.gep(self.scheme.k_group, row, start),
                    self.scheme.k_group_bytes,
                )
            start += width

    def _interleave(self, rows: list[str], width: int) -> str:
        """Interleave vectors of ``width`` elements: those of one column follow each other."""
        w, element = self.w, self.scheme.element
        while len(rows) > 1:
            # Interleave row i with row i + half: after the last step the rows of a column are in
            # order.
            half = len(rows) // 2
            type_ = vector(element, width)
            lanes = ", ".join(f"i32 {i // 2 + (width if i % 2 else 0)}" for i in range(2 * width))
            rows = [
                w.emit(
                    f"shufflevector {type_} {rows[i]}, {type_} {rows[i + half]}, <{2 * width} x "
                    f"i32> <{lanes}>"
                )
                for i in range(half)
            ]
            width *= 2
        return rows[0]

    def _counts(self, panels: tuple[Panel, ...], limits: Limits) -> list[Extent]:
        """Number of panels of each kind that begin below the limit."""
        return [
            limits.blocks(self.w, limits.columns, panel.start, panel.columns, panel.count)
            for panel in panels
        ]

    def _by_columns(self, panels: tuple[Panel, ...], target: str, limits: Limits) -> None:
        """Pack contiguous columns: transpose square blocks of K-groups in registers."""
        w, group = self.w, self.scheme.group
        whole = self.k // group
        end = limits.blocks(w, limits.end, 0, group, whole)
        for panel, count in zip(panels, self._counts(panels, limits), strict=True):
            full = panel.columns - (panel.widths[-1] if panel.valid != panel.widths[-1] else 0)
            block = min(_TRANSPOSED, full & -full, whole & -whole)
            if block < _MIN_TRANSPOSED:
                full = 0
            with w.loop("0", str(count), 1, nonempty=isinstance(count, int)) as loop:
                if full:
                    with w.loop("0", str(full), block, nonempty=True) as columns:
                        self._transposed_blocks(
                            panel, loop.index, target, columns.index, block, end
                        )
                    if self.k % group:
                        self._by_elements(panel, loop.index, target, 0, full, whole * group, self.k)
                if full < self._valid(panel):
                    self._by_elements(
                        panel, loop.index, target, full, self._valid(panel) - full, 0, self.k
                    )

    def _transposed_blocks(
        self, panel: Panel, index: str, target: str, start: str, block: int, end: Extent
    ) -> None:
        w, scheme = self.w, self.scheme
        base, first = self._panel_base(panel, index, target)
        with w.loop("0", str(end), block, nonempty=isinstance(end, int)) as loop:
            corner = address(
                w, self.source, scaled(w, loop.index, scheme.group), plus(w, first, start)
            )
            columns = [
                self.load(
                    w.gep(self.stored, corner, scaled(w, c, self.source.column_stride)),
                    block * scheme.group,
                )
                for c in range(block)
            ]
            for place, *values in zip(self.places(loop.index), *columns, strict=True):
                if scheme.group > 1:
                    values = [
                        w.emit(
                            f"bitcast {vector(scheme.element, block * scheme.group)} {value} to "
                            f"{vector(scheme.k_group, block)}"
                        )
                        for value in values
                    ]
                row = w.gep(scheme.k_group, base, plus(w, scaled(w, place, panel.columns), start))
                for r, value in enumerate(transpose(w, scheme.k_group, values)):
                    w.store(
                        vector(scheme.k_group, block),
                        value,
                        w.gep(scheme.k_group, row, r * panel.columns),
                        scheme.k_group_bytes,
                    )

    def _by_elements(
        self, panel: Panel, index: str, target: str, start: int, count: int, k_from: int, k_to: int
    ) -> None:
        """Copy ``count`` columns from ``start`` of a panel on, element by element."""
        w, scheme = self.w, self.scheme
        base, first = self._panel_base(panel, index, target)
        with w.loop(str(start), str(start + count), 1, nonempty=True) as columns:
            source_column = plus(w, first, columns.index)
            with w.loop(str(k_from), str(k_to), 1, nonempty=True) as rows:
                values = self.load(address(w, self.source, rows.index, source_column), 0)
                k_group, within = (
                    (w.emit(f"{how} i64 {rows.index}, {scheme.group}") for how in ("udiv", "urem"))
                    if scheme.group > 1
                    else (rows.index, 0)
                )
                for place, value in zip(self.places(k_group), values, strict=True):
                    offset = plus(w, scaled(w, place, panel.columns), columns.index)
                    w.store(
                        scheme.element,
                        value,
                        w.gep(
                            scheme.element, base, plus(w, scaled(w, offset, scheme.group), within)
                        ),
                        1,
                    )

    # ---- rows of K-groups along K

    def pack_transposed(self, target: str, lanes: int) -> None:
        """As :meth:`pack_columns`, for a source of any strides and K-groups of one element."""
        if self.source.row_stride == 1:
            self.pack_columns(target, lanes)
            return
        w, element = self.w, self.scheme.element
        with (
            w.loop("0", str(self.k), 1, nonempty=True) as rows,
            w.loop("0", str(self.n), 1, nonempty=True) as columns,
        ):
            (value,) = self.load(address(w, self.source, rows.index, columns.index), 0)
            w.store(
                element,
                value,
                w.gep(element, target, plus(w, scaled(w, columns.index, self.k), rows.index)),
                self.scheme.k_group_bytes,
            )

    def pack_columns(self, target: str, lanes: int) -> None:
        """Fill ``target`` with the K-groups of each column of the source, column by column.

        The source's columns must be contiguous.
        """
        w, scheme = self.w, self.scheme
        if self.k % scheme.step:
            self._fill_zero(target, self.n * self.k_groups)
        strip = lanes * scheme.group
        with w.loop("0", str(self.n), 1, nonempty=True) as columns:
            row = w.gep(
                scheme.element, target, scaled(w, columns.index, self.k_groups * scheme.group)
            )
            column = address(w, self.source, 0, columns.index)
            done = 0
            while done < self.k:
                repeat = (self.k - done) // strip
                if repeat:
                    type_ = vector(scheme.element, strip)
                    with w.loop(
                        str(done), str(done + repeat * strip), strip, nonempty=True
                    ) as rows:
                        for place, value in zip(
                            self._elements(rows.index),
                            self.load(w.gep(self.stored, column, rows.index), strip),
                            strict=True,
                        ):
                            w.store(type_, value, w.gep(scheme.element, row, place), 1)
                    done += repeat * strip
                strip = strip // 2 if strip > 1 else 1

    def _elements(self, k: Extent) -> list[Extent]:
        """Positions of an element along K in a packed column, one for each part."""
        w, group = self.w, self.scheme.group
        if self.scheme.parts == 1:
            return [k]
        k_group: Extent = k // group if isinstance(k, int) else w.emit(f"udiv i64 {k}, {group}")
        return [scaled(w, place, group) for place in self.places(k_group)]


def transpose(w: FunctionWriter, k_group: str, vectors: list[str]) -> list[str]:
    """Transpose a square matrix of columns, each a vector, by log2(n) rounds of shuffles.

    Round s swaps the off-diagonal s x s blocks of every 2s x 2s block (Eklundh, "A fast computer
    method for matrix transposing", 1972).
    """
    n = len(vectors)
    type_ = vector(k_group, n)
    step = 1
    while step < n:
        low = ", ".join(f"i32 {j if not j & step else n + (j ^ step)}" for j in range(n))
        high = ", ".join(f"i32 {j | step if not j & step else n + j}" for j in range(n))
        result = list(vectors)
        for i in range(n):
            if not i & step:
                a, b = vectors[i], vectors[i | step]
                result[i] = w.emit(f"shufflevector {type_} {a}, {type_} {b}, <{n} x i32> <{low}>")
                result[i | step] = w.emit(
                    f"shufflevector {type_} {a}, {type_} {b}, <{n} x i32> <{high}>"
                )
        vectors = result
        step *= 2
    return vectors
