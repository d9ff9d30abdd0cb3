"""``wgmma``: asynchronous warpgroup matmul of 64 rows by up to 256 columns, on sm_90a.

B is in shared memory, and A in shared memory or in registers. A 64-bit *matrix descriptor*
addresses an operand in shared memory (PTX ISA, "Matrix descriptor"):

    bits 0 to 13      address / 16
    bits 16 to 29 leading byte offset / 16: from one column of atoms to the next, if the operand is
                      transposed (its inner axis is not K)
    bits 32 to 45     stride byte offset / 16: from eight rows of a column to the next eight
    bits 62 and 63    swizzle mode: 1, 2, 3 for widths of 128, 64, 32 bytes

An instruction takes 32 bytes of each row along K. The next step's address is the descriptor's
address plus the step's offset, since the swizzle within a row depends only on the final address.

Accumulators stay in registers while MMAs are in flight, and nothing may access them until a wait.
The wait takes them as operands and returns them as results, so that no compiler moves an access
across it. 16-bit accumulators are packed in pairs.

Instructions with 8-bit operands accumulate with about 14 bits. If a matmul limits the elements
along K that may be accumulated so, the emitted code accumulates that many in separate registers,
waits for them, and *promotes* them: it adds them to the accumulator in f32. Such a matmul is
complete at the end of its code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from tilewright.ir.types import BF16, F8E4M3FN, F8E5M2, F16, F32, I8, I32, U8, Type
from tilewright.llvm.emission.registers import register_type, storage_size
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.dialect.ops.dot import DotStart
from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout, log2, row_major
from tilewright.simt.layouts.mma_tiling import transposed
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.matmul_plan import (
    REGISTERS,
    SHARED,
    Matmul,
    MatmulPlan,
    OperandSource,
    SharedOperand,
)
from tilewright_nvidia.async_copy.swizzle_atoms import MatrixOffsets, matrix_offsets
from tilewright_nvidia.codegen.inline_ptx import call_asm
from tilewright_nvidia.codegen.kernel_state import words_in
from tilewright_nvidia.mma.matrix_descriptors import UNIT, DescriptorOperands, matrix_descriptor

#: Warps of a warpgroup, and the rows of an instruction.
GROUP: Final = 4
ROWS: Final = 64
#: The minimum and maximum columns of an instruction.
MIN_COLUMNS, MOST_COLUMNS = 8, 256
#: Bytes along K of an instruction.
STEP: Final = 32
#: Registers that a thread needs besides its accumulators.
OTHER_REGISTERS: Final = 36
#: Swizzle width in bytes -> swizzle mode of a matrix descriptor.
SWIZZLES: Final = {128: 1, 64: 2, 32: 3}
_FENCE, _COMMIT = "wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;"
#: Registers of A per instruction.
_WORDS: Final = 4

#: Accumulator type -> (PTX name, LLVM type of its registers, elements per register).
_ACCUMULATORS: Final[dict[Type, tuple[str, str, int]]] = {
    F32: ("f32", "float", 1),
    F16: ("f16", "i32", 2),
    I32: ("s32", "i32", 1),
}
_NAMES: Final[dict[Type, str]] = {
    F16: "f16",
    BF16: "bf16",
    F32: "tf32",
    F8E4M3FN: "e4m3",
    F8E5M2: "e5m2",
    I8: "s8",
    U8: "u8",
}
#: (operand types that an instruction may mix, accumulator type).
_FAMILIES: Final[tuple[tuple[frozenset[Type], Type], ...]] = (
    (frozenset({F16}), F32),
    (frozenset({F16}), F16),
    (frozenset({BF16}), F32),
    (frozenset({F32}), F32),
    (frozenset({F8E4M3FN, F8E5M2}), F32),
    (frozenset({F8E4M3FN, F8E5M2}), F16),
    (frozenset({I8, U8}), I32),
)


@dataclass(frozen=True, slots=True)
class Tiling:
    """The distribution of a matmul over warpgroups.

    Attributes:
        groups_m, groups_n: warpgroups along the rows and columns of the result.
        columns: columns of one instruction.
        repeats_m, repeats_n: instructions of a warpgroup along each.
        steps: instructions along K.
        step: elements along K of one instruction.
        promoted: instructions along K after which partial sums are promoted; 0 if they are not.
        partial: instructions whose partial sums are live at a time before promotion.
    """

    groups_m: int
    groups_n: int
    columns: int
    repeats_m: int
    repeats_n: int
    steps: int
    step: int
    promoted: int = 0
    partial: int = 0

    def registers(self, matmul: Matmul) -> int:
        """Return a thread's registers for accumulators and for partial sums before promotion."""
        each = self.columns // 2 // _ACCUMULATORS[matmul.accumulator][2]
        return (self.repeats_m * self.repeats_n + self.partial) * each


def tile(matmul: Matmul) -> Tiling | None:
    """Distribute a matmul; None if it is too small or a thread lacks registers for accumulators."""
    if len(matmul.shape) != 2 or matmul.warps % GROUP:
        return None
    (m, n), groups, step = matmul.shape, matmul.warps // GROUP, STEP // storage_size(matmul.a)
    groups_m = min(groups, m // ROWS)
    if not groups_m or matmul.k < step:
        return None
    groups_n = groups // groups_m
    columns, promoted = min(n // groups_n, MOST_COLUMNS), promoted_steps(matmul)
    while columns >= MIN_COLUMNS:
        repeats = m // ROWS // groups_m, n // groups_n // columns
        for partial in (2, 1) if promoted else (0,):
            tiling = Tiling(
                groups_m, groups_n, columns, *repeats, matmul.k // step, step, promoted, partial
            )
            if tiling.registers(matmul) <= registers_left(matmul.warps):
                return tiling
        if not promoted:
            break
        # keep fewer partial sums live
        columns //= 2
    return None


def promoted_steps(matmul: Matmul) -> int:
    """Return the instructions along K after which partial sums are promoted; 0 for none."""
    return matmul.max_imprecise // STEP if _is_promoted(matmul) else 0


def _is_promoted(matmul: Matmul) -> bool:
    return (
        matmul.accumulator is F32
        and storage_size(matmul.a) == 1
        and 0 < matmul.max_imprecise <= matmul.k
    )


def registers_left(warps: int) -> int:
    """Return a thread's registers for accumulators and operands."""
    return min(255, 65536 // (32 * warps)) - OTHER_REGISTERS


def layouts(
    tiling: Tiling, shape: tuple[int, ...], k: int, packed: int, row_pairs: bool = False
) -> tuple[LinearLayout, LinearLayout, LinearLayout]:
    """Return the layouts of A, B and C, for ``packed`` operand elements per register.

    C follows the PTX ISA ("Register fragments for wgmma"): lane ``4 * g + t`` of warp w of a
    warpgroup has columns 2t and 2t + 1 of rows 16w + g and 16w + g + 8, then those 8 columns
    further. A in registers has the same rows, ``packed`` consecutive elements along K from ``packed
    * t`` on, then those 4 registers further. B is never in registers; its layout is one that
    threads would read contiguously.

    With ``row_pairs``, the instruction's rows g and g + 8 are rows 2g and 2g + 1 of A and C, so a
    thread has adjacent rows. A must then be in registers.
    """
    m, n = shape

    def bits(first: int, last: int) -> list[int]:
        return [first << i for i in range(log2(last // first))]

    def place(rows: Sequence[int], width: int) -> list[int]:
        return [row * width for row in rows]

    m_repeats, n_repeats = (
        bits(ROWS, ROWS * tiling.repeats_m),
        bits(tiling.columns, tiling.columns * tiling.repeats_n),
    )
    m_groups, n_groups = (
        bits(ROWS * tiling.repeats_m, m),
        bits(tiling.columns * tiling.repeats_n, n),
    )
    half, *group = (1, 2, 4, 8) if row_pairs else (8, 1, 2, 4)
    c = LinearLayout(
        shape,
        (1, *place([half], n), *bits(8, tiling.columns), *place(m_repeats, n), *n_repeats),
        (2, 4, *place(group, n)),
        (*place([16, 32], n), *place(m_groups, n), *n_groups),
    )
    a = LinearLayout(
        (m, k),
        (
            *bits(1, packed),
            *place([half], k),
            4 * packed,
            *bits(8 * packed, k),
            *place(m_repeats, k),
        ),
        (packed, 2 * packed, *place(group, k)),
        (*place([16, 32], k), *place(m_groups, k), *(0 for _ in n_groups)),
    )
    b = LinearLayout(
        (k, n),
        (
            *place(bits(1, packed), n),
            *place(bits(4 * packed, k), n),
            *bits(8, tiling.columns),
            *n_repeats,
        ),
        (*place([packed, 2 * packed], n), 1, 2, 4),
        (0, 0, *(0 for _ in m_groups), *n_groups),
    )
    return a, b, c


def plans(matmul: Matmul) -> tuple[MatmulPlan, ...]:
    """Plan a matmul; empty if no instruction fits.

    The first plan has both operands in shared memory, the next ones have A in registers, then B,
    each in the instruction's row order and then with adjacent rows. Plans are asynchronous unless
    partial sums are promoted.
    """
    if not any(
        matmul.a in operands and matmul.b in operands and matmul.accumulator is accumulator
        for operands, accumulator in _FAMILIES
    ):
        return ()
    if matmul.a is F32 and matmul.precision != "tf32":
        return ()
    if _is_promoted(matmul) and matmul.max_imprecise < STEP:
        # one instruction accumulates more elements than that
        return ()
    tiling = tile(matmul)
    if tiling is None:
        return ()
    found = [_plan(_Writer(matmul, tiling, SHARED))]
    found += [_plan(_Writer(matmul, tiling, REGISTERS), row_pairs=pairs) for pairs in (False, True)]
    found += [_transposed_plan(matmul, row_pairs=pairs) for pairs in (False, True)]
    return tuple(plan for plan in found if plan is not None)


def _transposed_plan(matmul: Matmul, *, row_pairs: bool) -> MatmulPlan | None:
    """Return the plan with B in registers, as A of the transposed matmul; None if none fits.

    There is no such plan if partial sums are promoted.
    """
    swapped = replace(matmul, shape=matmul.shape[::-1], a=matmul.b, b=matmul.a)
    tiling = tile(swapped)
    plan = (
        _plan(writer := _Writer(swapped, tiling, REGISTERS), row_pairs=row_pairs)
        if tiling is not None and not tiling.promoted
        else None
    )
    if plan is None:
        return None

    def emit(context: SimtContext, a: OperandSource, b: OperandSource, c: list[str]) -> list[str]:
        assert isinstance(a, SharedOperand)
        return writer.emit(
            context, b, SharedOperand(a.address, _transposed(a.shared), a.element), c
        )

    wishes = [_transposed(shared) for shared in plan.wishes(1)]
    return MatmulPlan(
        plan.name.replace(".rs", ".sr"),
        transposed(plan.b),
        transposed(plan.a),
        transposed(plan.c),
        emit,
        reads=(SHARED, REGISTERS),
        asynchronous=plan.asynchronous,
        a_shared=wishes[0],
        a_others=tuple(wishes[1:]),
        accepts=lambda position, shared: writer.accepts(1 - position, _transposed(shared)),
    )


def _transposed(shared: SharedLayout) -> SharedLayout:
    """Return the shared layout of the transposed matrix."""
    columns = log2(shared.shape[1])
    return SharedLayout(shared.shape[::-1], (*shared.images[columns:], *shared.images[:columns]))


def _plan(writer: _Writer, *, row_pairs: bool = False) -> MatmulPlan | None:
    matmul, in_registers = writer.matmul, writer.first == REGISTERS
    a, b, c = layouts(writer.tiling, matmul.shape, matmul.k, writer.packed, row_pairs)
    wishes = [writer.layouts(position) for position in (0, 1)]
    if in_registers:
        wishes[0] = ()
        if writer.tiling.registers(matmul) + a.register_count // writer.packed > registers_left(
            matmul.warps
        ):
            return None
    elif not wishes[0]:
        return None
    if not wishes[1]:
        return None
    return MatmulPlan(
        f"{writer.name}.pairs" if row_pairs else writer.name,
        a,
        b,
        c,
        writer.emit,
        reads=(writer.first, SHARED),
        asynchronous=writer.asynchronous,
        a_shared=None if in_registers else wishes[0][0],
        b_shared=wishes[1][0],
        a_others=wishes[0][1:],
        b_others=wishes[1][1:],
        accepts=writer.accepts,
    )


def descriptor_bits(offsets: MatrixOffsets) -> int:
    """Return the matrix descriptor for address 0."""
    return offsets.bits | SWIZZLES[offsets.span] << 62


def readable(shared: SharedLayout, size: int, k_axis: int) -> MatrixOffsets | None:
    """Return the descriptor fields of an operand with K as axis ``k_axis``; None if unreadable."""
    found = matrix_offsets(shared, size, k_axis)
    return None if found is None or (found.transposed and size != 2) else found


class _Writer(DescriptorOperands):
    """The emission of one matmul, with A in shared memory or in registers."""

    def __init__(self, matmul: Matmul, tiling: Tiling, first: str) -> None:
        super().__init__(matmul)
        self.tiling, self.first = tiling, first
        self.packed = 4 // storage_size(matmul.a)
        accumulator, self.register, self.together = _ACCUMULATORS[matmul.accumulator]
        operands = f"{_NAMES[matmul.a]}.{_NAMES[matmul.b]}"
        kind = f"m{ROWS}n{tiling.columns}k{tiling.step}.{accumulator}.{operands}"
        self.asynchronous = not tiling.promoted
        self.instruction, self.name = (
            f"wgmma.mma_async.sync.aligned.{kind}",
            f"wgmma.{kind}.{'ss' if first == SHARED else 'rs'}",
        )

    # ---- operands in shared memory

    def accepts(self, position: int, shared: SharedLayout) -> bool:
        shape, k_axis = self.axes(position)
        found = readable(shared, self.sizes[position], k_axis)
        if shared.shape != shape or found is None:
            return False
        along = ROWS if position == 0 else self.tiling.columns
        return not found.transposed or along * self.sizes[position] >= found.span

    def _base(
        self, context: SimtContext, position: int, operand: SharedOperand
    ) -> tuple[str, MatrixOffsets]:
        """Return the descriptor of a warpgroup's part of an operand, as i64."""
        w, t, size = context.writer, self.tiling, self.sizes[position]
        shape, k_axis = self.axes(position)
        found = readable(operand.shared, size, k_axis)
        assert found is not None
        address = w.emit(f"ptrtoint ptr addrspace(3) {operand.address} to i32")
        before, groups = (1, t.groups_m) if position == 0 else (t.groups_m, t.groups_n)
        if groups > 1:
            part = shape[1 - k_axis] // groups
            images = [0] * log2(GROUP * before) + [
                self._offset(position, operand.shared, part << bit, 0)
                for bit in range(log2(groups))
            ]
            address = w.emit(f"add i32 {address}, {context.thread_part((), images)}")
        return matrix_descriptor(w, address, descriptor_bits(found)), found

    def _offset(self, position: int, shared: SharedLayout, along: int, k: int) -> int:
        """Return the byte offset of a row of A or column of B at a coordinate along K.

        Both coordinates must be at the start of a swizzle period.
        """
        point = (along, k) if position == 0 else (k, along)
        return self.sizes[position] * shared.offset(row_major(point, shared.shape))

    # ---- instructions

    def emit(
        self, context: SimtContext, a: OperandSource, b: OperandSource, c: list[str]
    ) -> list[str]:
        """Emit the matmul; return its accumulator registers, valid after a wait for the group.

        With promotion, they are valid at once. Accumulators that are zero are not read: the first
        step overwrites them.
        """
        assert isinstance(b, SharedOperand)
        w, t = context.writer, self.tiling
        fresh = not t.promoted and all(_is_zero(name) for name in c)
        overwrites = isinstance(context.operation, DotStart) and context.operation.overwrites
        c = words_of(w, c, self.matmul.accumulator)
        base_b, found_b = self._base(context, 1, b)
        operands, flags = [("i64", base_b)], [found_b.transposed]
        if isinstance(a, SharedOperand):
            base_a, found_a = self._base(context, 0, a)
            operands.append(("i64", base_a))
            flags.insert(0, found_a.transposed)
        else:
            operands += [("i32", word) for word in operand_words(w, a, self.matmul.a)]
        transposed = "".join(f", {int(flag)}" for flag in flags) if self.sizes == (2, 2) else ""
        never = "0"
        if overwrites:
            never = f"${len(c) + len(operands)}"
            operands.append(("i32", _zero_that_ptxas_does_not_know(w)))
        lines = [
            "{",
            ".reg .pred %yes, %no;",
            ".reg .b64 %a, %b;",
            "setp.eq.u32 %yes, 0, 0;",
            f"setp.ne.u32 %no, {never}, 0;",
        ]
        if t.promoted:
            lines += self._promoted(a, b, len(c), transposed)
        else:
            lines.append(_FENCE)
            each = t.columns // 2 // self.together
            for step in range(t.steps):
                for number, repeat in enumerate(self._repeats()):
                    names = [
                        f"${register}" for register in range(number * each, (number + 1) * each)
                    ]
                    lines += self._instruction(
                        repeat,
                        step,
                        names,
                        a,
                        b,
                        len(c),
                        transposed,
                        "%no" if (fresh or overwrites) and not step else "%yes",
                    )
            lines.append(_COMMIT)
            if not self.asynchronous:
                lines.append(_waited(0))
        lines.append("}")
        accumulator = call_asm(
            w,
            "\n".join(lines),
            [self.register] * len(c),
            operands,
            initial=() if fresh else c,
            memory=True,
            convergent=True,
        )
        return elements_of(w, accumulator, self.matmul.accumulator)

    def _repeats(self) -> list[tuple[int, int]]:
        """Return a warpgroup's instructions for one step along K, in accumulator order."""
        return [(i, j) for j in range(self.tiling.repeats_n) for i in range(self.tiling.repeats_m)]

    def _instruction(
        self,
        repeat: tuple[int, int],
        step: int,
        accumulator: Sequence[str],
        a: OperandSource,
        b: SharedOperand,
        count: int,
        transposed: str,
        go_on: str = "%yes",
    ) -> list[str]:
        """Return one instruction that accumulates in the registers named ``accumulator``.

        It overwrites them if ``go_on`` does not hold. ``count`` operands of the assembly are
        accumulators.
        """
        t, (i, j) = self.tiling, repeat
        lines = [
            (
                f"add.s64 %b, ${count}, "
                f"{self._offset(1, b.shared, t.columns * j, step * t.step) // UNIT};"
            )
        ]
        if isinstance(a, SharedOperand):
            lines.append(
                f"add.s64 %a, ${count + 1}, "
                f"{self._offset(0, a.shared, ROWS * i, step * t.step) // UNIT};"
            )
            source = "%a"
        else:
            word = count + 1 + _WORDS * (i * t.steps + step)
            source = "{" + ", ".join(f"${number}" for number in range(word, word + _WORDS)) + "}"
        tail = go_on if self.matmul.accumulator is I32 else f"{go_on}, 1, 1"
        return [
            *lines,
            f"{self.instruction} {{{', '.join(accumulator)}}}, {source}, %b, {tail}{transposed};",
        ]

    def _promoted(
        self, a: OperandSource, b: SharedOperand, count: int, transposed: str
    ) -> list[str]:
        """Return instructions that promote partial sums after every ``promoted`` steps along K.

        They add partial sums to the accumulators when these are complete. If there are registers
        for both, the next partial sums are in flight meanwhile.
        """
        t = self.tiling
        each = t.columns // 2
        units = [
            (number, repeat, first)
            for first in range(0, t.steps, t.promoted)
            for number, repeat in enumerate(self._repeats())
        ]
        sets = [
            [f"%sum{which}_{register}" for register in range(each)]
            for which in range(min(t.partial, len(units)))
        ]
        lines = [f".reg .f32 {', '.join(names)};" for names in sets]
        # initialize registers that the instruction does not read: ptxas inserts waits otherwise
        lines += [f"mov.f32 {name}, 0f00000000;" for names in sets for name in names]

        def add(unit: int) -> list[str]:
            place = units[unit][0] * each
            return [
                f"add.rn.f32 ${place + register}, ${place + register}, {name};"
                for register, name in enumerate(sets[unit % len(sets)])
            ]

        for unit, (_, repeat, first) in enumerate(units):
            lines.append(_FENCE)
            for step in range(first, min(first + t.promoted, t.steps)):
                lines += self._instruction(
                    repeat,
                    step,
                    sets[unit % len(sets)],
                    a,
                    b,
                    count,
                    transposed,
                    "%no" if step == first else "%yes",
                )
            lines.append(_COMMIT)
            ended = unit + 1 - len(sets)
            if ended >= 0:
                lines += [_waited(len(sets) - 1), *add(ended)]
        for unit in range(len(units) + 1 - len(sets), len(units)):
            lines += [_waited(len(units) - 1 - unit), *add(unit)]
        return lines


def operand_words(w: FunctionWriter, names: Sequence[str], element: Type) -> list[str]:
    """Pack A into registers, with f32 rounded to tf32."""
    if element is F32:
        return [
            call_asm(w, "cvt.rn.tf32.f32 $0, $1;", ["i32"], [("float", name)], effects=False)[0]
            for name in names
        ]
    type_, packed = register_type(element), 4 // storage_size(element)
    return [
        words_in(w).pack(w, names[i : i + packed], type_, "i32")
        for i in range(0, len(names), packed)
    ]


def _zero_that_ptxas_does_not_know(w: FunctionWriter) -> str:
    """Emit a zero, so that ptxas takes registers for read that an instruction overwrites."""
    text = "{.reg .b32 %below; mov.u32 $0, %lanemask_gt; mov.u32 %below, %lanemask_le; "
    (name,) = call_asm(w, f"{text}and.b32 $0, $0, %below;}}", ["i32"], [], effects=False)
    return name


def _is_zero(name: str) -> bool:
    """Return whether an accumulator register is known to be (positive) zero."""
    return name in ("0", "0.0", "0x0000000000000000", "zeroinitializer")


def _waited(pending: int) -> str:
    return f"wgmma.wait_group.sync.aligned {pending};"


def words_of(w: FunctionWriter, names: Sequence[str], element: Type) -> list[str]:
    """Pack an accumulator's elements into registers."""
    together = _ACCUMULATORS[element][2]
    if together == 1:
        return list(names)
    words, type_ = words_in(w), register_type(element)
    return [
        words.pack(w, names[i : i + together], type_, "i32") for i in range(0, len(names), together)
    ]


def elements_of(w: FunctionWriter, registers: list[str], element: Type) -> list[str]:
    """Unpack an accumulator's elements from registers."""
    together = _ACCUMULATORS[element][2]
    return (
        [
            name
            for word in registers
            for name in words_in(w).unpack(w, word, "i32", register_type(element))
        ]
        if together > 1
        else registers
    )


def wait(
    w: FunctionWriter,
    pending: int,
    tiles: Sequence[Sequence[str]],
    elements: Sequence[Type],
    held: Sequence[str] = (),
) -> list[list[str]]:
    """Wait until at most ``pending`` groups are in flight; return the registers of the tiles.

    Each tile has an element type in ``elements``. The registers ``held`` stay allocated until the
    wait completes, since MMAs in flight read them.
    """
    accumulator = [
        words_of(w, tile_, element) for tile_, element in zip(tiles, elements, strict=True)
    ]
    types = [
        _ACCUMULATORS[element][1]
        for tile_, element in zip(accumulator, elements, strict=True)
        for _ in tile_
    ]
    operands = [("i32", word) for word in held]
    found = iter(
        call_asm(
            w,
            _waited(pending),
            types,
            operands,
            initial=[name for tile_ in accumulator for name in tile_],
            memory=True,
            convergent=True,
        )
    )
    return [
        elements_of(w, [next(found) for _ in tile_], element)
        for tile_, element in zip(accumulator, elements, strict=True)
    ]
