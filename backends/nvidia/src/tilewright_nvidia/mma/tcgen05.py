"""``tcgen05``: matmul with accumulators in tensor memory, of compute capability 10.0 and 10.3.

One thread starts instructions of 128 or 64 rows by up to 256 columns.

Both operands are in shared memory, in swizzle atoms
(:mod:`tilewright_nvidia.async_copy.swizzle_atoms`). A 64-bit *shared memory descriptor* addresses
each (PTX ISA, "Shared memory descriptor" of tcgen05):

    bits 0 to 13      address / 16
    bits 16 to 29 leading dimension byte offset / 16: from one column of atoms to the next, if the
                      operand is transposed (its inner axis is not K)
    bits 32 to 45 stride dimension byte offset / 16: from eight rows of a column to the next eight
    bits 46 to 48 1
    bits 61 to 63     swizzle mode: 2, 4, 6 for widths of 128, 64, 32 bytes

A 32-bit *instruction descriptor* selects the operation (PTX ISA, "Instruction descriptor"):

    bits 4 and 5      accumulator type: 1 for f32
    bits 7 to 9       type of A; bits 10 to 12 type of B
    bits 15 and 16    whether A, and B, is transposed
    bits 17 to 22     columns / 8
    bits 24 to 28     rows / 16

An instruction takes 32 bytes of each row along K.

Tensor memory has 512 columns of 128 lanes, of 32 bits each. A CTA allocates a power of two of
columns, at least 32. With 128 rows per instruction, row r of the accumulator is in lane r, with its
columns adjacent (PTX ISA, "Data path layout organization": layout D); the next 128 rows are in the
following columns. With 64 rows, row r is in lane 32 (r / 16) + r mod 16 (layout F). Warp w of a CTA
accesses the 32 lanes from 32 (w mod 4) on. With 128 rows, each thread reads one row (PTX ISA,
"Matrix fragments for shape .32x32b"). With 64 rows, lane ``4 * g + t`` has columns 2t and 2t + 1 of
the warp's rows g and g + 8, then those 8 columns further ("Matrix fragments for shape .16x256b").

MMAs into the same accumulator complete in order, and ``tcgen05.commit`` makes an mbarrier track the
completion of all of them. Before the next MMA may start, threads that loaded or stored accumulators
synchronize with its thread by a barrier, with a ``tcgen05.fence`` on either side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.ir.types import BF16, F8E4M3FN, F8E5M2, F16, F32, Type
from tilewright.llvm.emission.registers import storage_size
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout, log2, row_major
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.tensor_memory import TensorMemory
from tilewright.simt.target.matmul_plan import (
    SHARED,
    Matmul,
    MatmulPlan,
    SharedOperand,
    TensorMemoryAccumulator,
)
from tilewright_nvidia.async_copy.swizzle_atoms import MatrixOffsets, matrix_offsets
from tilewright_nvidia.codegen.inline_ptx import call_asm
from tilewright_nvidia.mma.matrix_descriptors import UNIT, DescriptorOperands, matrix_descriptor
from tilewright_nvidia.mma.wgmma import registers_left

#: Columns of tensor memory, and the minimum allocation.
COLUMNS, MIN_ALLOCATION = 512, 32
#: Warps of a warpgroup, which together access all lanes, and the rows of an instruction.
GROUP, ROWS, HALF_ROWS = 4, 128, 64
#: The minimum and maximum columns of an instruction.
MIN_COLUMNS, MOST_COLUMNS = 16, 256
#: Bytes along K of an instruction.
STEP: Final = 32
#: Swizzle width in bytes -> swizzle mode of a shared memory descriptor.
SWIZZLES: Final = {128: 2, 64: 4, 32: 6}
#: Maximum registers of a load or store instruction, registers of 8 columns with 64 rows, and the
#: unit of lanes in an address.
_MOVED, _OF_EIGHT, _LANE = 32, 4, 1 << 16
_BEFORE, _AFTER = "tcgen05.fence::before_thread_sync;", "tcgen05.fence::after_thread_sync;"
_SHARED = "ptr addrspace(3)"


@dataclass(frozen=True, slots=True)
class Kind:
    """A ``.kind`` of ``tcgen05.mma``.

    Attributes:
        name: its PTX spelling.
        types: operand type -> its code in the instruction descriptor.
        transposed: whether operands may be transposed (K not the inner axis).
    """

    name: str
    types: dict[Type, int]
    transposed: bool = True


#: The kinds; the first that takes both operands is used. Transposed 32-bit operands would need
#: another swizzle.
KINDS: Final = (
    Kind("f16", {F16: 0}),
    Kind("f16", {BF16: 1}),
    Kind("tf32", {F32: 2}, transposed=False),
    Kind("f8f6f4", {F8E4M3FN: 0, F8E5M2: 1}),
)


def kind_of(matmul: Matmul) -> Kind | None:
    """Return the kind of instruction for a matmul; None if there is none."""
    if matmul.accumulator is not F32 or (matmul.a is F32 and matmul.precision != "tf32"):
        return None
    return next((kind for kind in KINDS if matmul.a in kind.types and matmul.b in kind.types), None)


@dataclass(frozen=True, slots=True)
class Tiling:
    """The decomposition of a matmul into instructions, and of its accumulator over threads.

    Attributes:
        rows, columns: rows and columns of one instruction.
        repeats_m, repeats_n: instructions along the rows and columns of the result, for one step
        along K. steps, step: instructions along K, and elements along K of one. groups_m, groups_n:
        groups of four warps along the rows and columns of the result.
    """

    rows: int
    columns: int
    repeats_m: int
    repeats_n: int
    steps: int
    step: int
    groups_m: int
    groups_n: int


def tile(matmul: Matmul) -> Tiling | None:
    """Decompose a matmul; None if it is too small, or too large for tensor memory or registers."""
    if len(matmul.shape) != 2 or matmul.warps % GROUP:
        return None
    (m, n), groups, step = matmul.shape, matmul.warps // GROUP, STEP // storage_size(matmul.a)
    rows = min(m, ROWS)
    if rows < HALF_ROWS or n < MIN_COLUMNS or matmul.k < step or columns_of(matmul.shape) > COLUMNS:
        return None
    groups_m = min(groups, m // rows)
    groups_n = groups // groups_m
    # with 64 rows, a warp accesses 8 columns at a time
    if n // 2 // groups_n < (1 if rows == ROWS else 8) or m * n // (
        32 * matmul.warps
    ) > registers_left(matmul.warps):
        return None
    columns = min(n, MOST_COLUMNS)
    return Tiling(
        rows, columns, m // rows, n // columns, matmul.k // step, step, groups_m, groups_n
    )


def columns_of(shape: Sequence[int]) -> int:
    """Return the tensor memory columns of an accumulator, a multiple of the minimum allocation."""
    m, n = shape
    return -(-m // ROWS * n // MIN_ALLOCATION) * MIN_ALLOCATION


def taken_columns(columns: int) -> int:
    """Return the columns to allocate, a power of two."""
    return max(MIN_ALLOCATION, 1 << (columns - 1).bit_length())


def layouts(
    tiling: Tiling, shape: tuple[int, int], k: int
) -> tuple[LinearLayout, LinearLayout, LinearLayout]:
    """Return the layouts of A, B and C.

    A lane holds rows of C in its warpgroup's columns; the layouts of A and B are those that would
    compute them. A warpgroup has columns of both halves of a row, so that a thread can split the
    row.
    """
    m, n = shape

    def bits(first: int, last: int) -> list[int]:
        return [first << i for i in range(log2(last // first))]

    part = n // 2 // tiling.groups_n
    blocks, group_m, group_n = (
        bits(tiling.rows, m // tiling.groups_m),
        bits(m // tiling.groups_m, m),
        bits(part, n // 2),
    )
    along = bits(1, k)

    def place(coordinates: Sequence[int], width: int) -> list[int]:
        return [row * width for row in coordinates]

    if tiling.rows == HALF_ROWS:
        warps, columns = [16, 32], [*bits(8, part), n // 2]
        c = LinearLayout(
            shape, (1, 8 * n, *columns), (2, 4, *place([1, 2, 4], n)), (*place(warps, n), *group_n)
        )
        a = LinearLayout(
            (m, k),
            (8 * k, *along),
            (0, 0, *place([1, 2, 4], k)),
            (*place(warps, k), *(0 for _ in group_n)),
        )
        b = LinearLayout((k, n), (1, *columns, *place(along, n)), (2, 4, 0, 0, 0), (0, 0, *group_n))
        return a, b, c
    lanes, warps, columns = bits(1, 32), [32, 64, *group_m], [*bits(1, part), n // 2]
    c = LinearLayout(
        shape, (*columns, *place(blocks, n)), tuple(place(lanes, n)), (*place(warps, n), *group_n)
    )
    a = LinearLayout(
        (m, k),
        (*place(blocks, k), *along),
        tuple(place(lanes, k)),
        (*place(warps, k), *(0 for _ in group_n)),
    )
    b = LinearLayout(
        (k, n), (*columns, *place(along, n)), (0,) * len(lanes), (*(0 for _ in warps), *group_n)
    )
    return a, b, c


@dataclass(frozen=True, slots=True)
class Run:
    """Accumulators of a thread that one instruction moves.

    It moves ``count`` registers from ``register`` on, from column ``column`` of the warp's columns
    on.
    """

    register: int
    column: int
    count: int


def runs(tiling: Tiling, shape: tuple[int, int]) -> list[Run]:
    """Return the instructions that move all accumulators of a thread."""
    m, n = shape
    part = n // 2 // tiling.groups_n
    # with 64 rows, a thread has 4 accumulators in 8 columns
    across = 1 if tiling.rows == ROWS else 8 // _OF_EIGHT
    count = min(part // across, _MOVED)
    pieces = [(half, first) for half in (0, 1) for first in range(0, part, count * across)]
    blocks = range(m // tiling.rows // tiling.groups_m)
    return [
        Run(
            ((2 * block + half) * part + first) // across,
            block * n + half * (n // 2) + first,
            count,
        )
        for block in blocks
        for half, first in pieces
    ]


def warp_images(tiling: Tiling, shape: tuple[int, int]) -> list[int]:
    """Return the image of each warp index bit in the accumulator's address.

    An address has lanes from bit 16 on, and columns below.
    """
    m, n = shape
    part_m, part_n = m // tiling.rows // tiling.groups_m * n, n // 2 // tiling.groups_n
    groups = [
        *(part_m << bit for bit in range(log2(tiling.groups_m))),
        *(part_n << bit for bit in range(log2(tiling.groups_n))),
    ]
    return [32 * _LANE, 64 * _LANE, *groups]


def instruction_descriptor(
    kind: Kind, a: Type, b: Type, rows: int, columns: int, transposed: tuple[bool, bool]
) -> int:
    """Return the instruction descriptor for f32 accumulators."""
    return (
        1 << 4
        | kind.types[a] << 7
        | kind.types[b] << 10
        | transposed[0] << 15
        | transposed[1] << 16
        | columns // 8 << 17
        | rows // 16 << 24
    )


def descriptor_bits(offsets: MatrixOffsets) -> int:
    """Return the shared memory descriptor for address 0."""
    return offsets.bits | 1 << 46 | SWIZZLES[offsets.span] << 61


def plans(matmul: Matmul) -> tuple[MatmulPlan, ...]:
    """Return the plan for a matmul, if there is one."""
    kind, tiling = kind_of(matmul), tile(matmul)
    if kind is None or tiling is None:
        return ()
    writer = _Writer(matmul, kind, tiling)
    wishes = [writer.layouts(position) for position in (0, 1)]
    if not wishes[0] or not wishes[1]:
        return ()
    m, n = matmul.shape
    a, b, c = layouts(tiling, (m, n), matmul.k)
    accumulator = TensorMemoryAccumulator(columns_of(matmul.shape), writer.load, writer.store)
    found = MatmulPlan(
        writer.name,
        a,
        b,
        c,
        writer.emit,
        reads=(SHARED, SHARED),
        a_shared=wishes[0][0],
        b_shared=wishes[1][0],
        a_others=wishes[0][1:],
        b_others=wishes[1][1:],
        accepts=writer.accepts,
        accumulator=accumulator,
    )
    return (found,)


class _Writer(DescriptorOperands):
    """The emission of one matmul."""

    def __init__(self, matmul: Matmul, kind: Kind, tiling: Tiling) -> None:
        super().__init__(matmul)
        self.kind, self.tiling = kind, tiling
        self.instruction = f"tcgen05.mma.cta_group::1.kind::{kind.name}"
        self.name = f"tcgen05.{kind.name}.m{tiling.rows}n{tiling.columns}k{tiling.step}"

    # ---- operands in shared memory

    def accepts(self, position: int, shared: SharedLayout) -> bool:
        shape, k_axis = self.axes(position)
        if shared.shape != shape:
            return False
        found = matrix_offsets(shared, self.sizes[position], k_axis)
        if found is None:
            return False
        along = self.tiling.rows if position == 0 else self.tiling.columns
        return not found.transposed or (
            self.kind.transposed and along * self.sizes[position] >= found.span
        )

    def _base(
        self, w: FunctionWriter, position: int, operand: SharedOperand
    ) -> tuple[str, MatrixOffsets]:
        """Return the shared memory descriptor of an operand, as i64."""
        found = matrix_offsets(operand.shared, self.sizes[position], self.axes(position)[1])
        assert found is not None
        address = w.emit(f"ptrtoint {_SHARED} {operand.address} to i32")
        return matrix_descriptor(w, address, descriptor_bits(found)), found

    def _offset(self, position: int, shared: SharedLayout, along: int, k: int) -> int:
        """Return the descriptor offset of a row of A or column of B at a coordinate along K."""
        point = (along, k) if position == 0 else (k, along)
        return self.sizes[position] * shared.offset(row_major(point, shared.shape)) // UNIT

    # ---- instructions

    def emit(
        self, context: SimtContext, a: SharedOperand, b: SharedOperand, accumulator: list[str]
    ) -> list[str]:
        """Start the matmul, from one thread."""
        w, t = context.writer, self.tiling
        place, adds = accumulator
        (base_a, found_a), (base_b, found_b) = self._base(w, 0, a), self._base(w, 1, b)
        descriptor = instruction_descriptor(
            self.kind,
            self.matmul.a,
            self.matmul.b,
            t.rows,
            t.columns,
            (found_a.transposed, found_b.transposed),
        )
        lines = [
            "{",
            ".reg .pred %yes;",
            ".reg .b64 %a, %b;",
            ".reg .b32 %d, %i;",
            "setp.eq.u32 %yes, 0, 0;",
            f"mov.b32 %i, {descriptor};",
            _AFTER,
        ]
        for step in range(t.steps):
            for i in range(t.repeats_m):
                for j in range(t.repeats_n):
                    lines += [
                        f"add.u32 %d, $0, {i * self.matmul.shape[1] + j * t.columns};",
                        f"add.s64 %a, $1, {self._offset(0, a.shared, i * t.rows, step * t.step)};",
                        (
                            "add.s64 %b, $2, "
                            f"{self._offset(1, b.shared, j * t.columns, step * t.step)};"
                        ),
                        f"{self.instruction} [%d], %a, %b, %i, {'%yes' if step else '$3'};",
                    ]
        lines.append("}")
        call_asm(
            w,
            "\n".join(lines),
            (),
            [("i32", place), ("i64", base_a), ("i64", base_b), ("i1", adds)],
            memory=True,
        )
        return []

    # ---- accumulators to and from registers

    def _address(self, context: SimtContext, place: str) -> str:
        """Return the tensor memory address of a warp's lanes and its warpgroup's columns."""
        assert context.threads.first % GROUP == 0, (
            "warps reach lanes by their numbers in the program"
        )
        m, n = self.matmul.shape
        return context.writer.emit(
            f"add i32 {place}, {context.thread_part((), warp_images(self.tiling, (m, n)))}"
        )

    def _runs(self) -> list[Run]:
        m, n = self.matmul.shape
        return runs(self.tiling, (m, n))

    def _shape(self, run: Run) -> str:
        """Return the shape and repetition of a load or store, for a warp's 32 or 16 lanes."""
        return (
            f"32x32b.x{run.count}"
            if self.tiling.rows == ROWS
            else f"16x256b.x{run.count // _OF_EIGHT}"
        )

    def load(self, context: SimtContext, place: str) -> list[str]:
        """Load accumulators from tensor memory, after the MMAs have completed."""
        w, found = context.writer, self._runs()
        count = sum(run.count for run in found)
        lines = ["{", ".reg .b32 %d;", _AFTER]
        for run in found:
            names = ", ".join(f"${run.register + i}" for i in range(run.count))
            lines += [
                f"add.u32 %d, ${count}, {run.column};",
                f"tcgen05.ld.sync.aligned.{self._shape(run)}.b32 {{{names}}}, [%d];",
            ]
        lines += ["tcgen05.wait::ld.sync.aligned;", _BEFORE, "}"]
        return call_asm(
            w,
            "\n".join(lines),
            ["float"] * count,
            [("i32", self._address(context, place))],
            memory=True,
            convergent=True,
        )

    def store(self, context: SimtContext, place: str, names: list[str]) -> None:
        """Store accumulators to tensor memory, for MMAs that start after a barrier."""
        lines = ["{", ".reg .b32 %d;"]
        for run in self._runs():
            listed = ", ".join(f"${1 + run.register + i}" for i in range(run.count))
            lines += [
                f"add.u32 %d, $0, {run.column};",
                f"tcgen05.st.sync.aligned.{self._shape(run)}.b32 [%d], {{{listed}}};",
            ]
        lines += ["tcgen05.wait::st.sync.aligned;", _BEFORE, "}"]
        operands = [("i32", self._address(context, place)), *(("float", name) for name in names)]
        call_asm(context.writer, "\n".join(lines), (), operands, memory=True, convergent=True)


# ---- allocation


class PtxTensorMemory(TensorMemory):
    """The tensor memory of an SM, of 512 columns."""

    columns = COLUMNS

    def allocate(self, context: SimtContext, columns: int, scratch: str) -> str:
        """Allocate columns from the first warp, and broadcast their address through shared memory.

        The warp then relinquishes the permit, so that other waiting CTAs may allocate.
        """
        w, first = (
            context.writer,
            context.thread_is_zero(0, (1 << (context.threads.count - 1).bit_length()) - 1),
        )
        text = (
            "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [$0], "
            f"{taken_columns(columns)};\n"
            f"tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n{_BEFORE}"
        )
        with w.when(first or "true"):
            call_asm(w, text, (), [(_SHARED, scratch)], memory=True, convergent=True)
        context.barrier()
        return call_asm(
            w, f"{_AFTER}\nld.shared.b32 $0, [$1];", ["i32"], [(_SHARED, scratch)], memory=True
        )[0]

    def free(self, context: SimtContext, columns: int, memory: str) -> None:
        """Deallocate columns, from the warp that allocated them."""
        w, warp = (
            context.writer,
            context.thread_is_zero(0, (1 << (context.threads.count - 1).bit_length()) - 1),
        )
        text = (
            f"{_AFTER}\ntcgen05.dealloc.cta_group::1.sync.aligned.b32 $0, {taken_columns(columns)};"
        )
        with w.when(warp or "true"):
            call_asm(w, text, (), [("i32", memory)], memory=True, convergent=True)

    def arrive_after(self, context: SimtContext, address: str) -> None:
        """Arrive at an mbarrier when all MMAs of this thread complete (``tcgen05.commit``)."""
        call_asm(
            context.writer,
            "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [$0];",
            (),
            [(_SHARED, address)],
            memory=True,
        )
