"""The micro-kernels of dot: a block of accumulators stays in registers over the loop along K.

Each step reads one vector of K-groups of B per vector of the block, broadcasts one K-group of A per
row, and multiplies and adds. LLVM folds the broadcasts into the arithmetic where the target can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.ir.types import F16, Type
from tilewright.llvm.emission.registers import storage_type
from tilewright.llvm.emission.writer import FunctionWriter, mangle, vector
from tilewright_cpu.codegen.gemm.batched_k import QueuedIterations
from tilewright_cpu.codegen.gemm.operand import Accumulator, KGroupsA, KGroupsB
from tilewright_cpu.codegen.gemm.pack import plus, scaled
from tilewright_cpu.codegen.gemm.plan import (
    BF16_PAIRS,
    BYTE_QUADS,
    FMA32,
    FMA64,
    INT32,
    SIGNED_DOT,
    UNSIGNED_DOT,
    WORD_PAIRS,
    Extent,
    Panel,
    Scheme,
)

_WORD_PAIRS = {
    128: "llvm.x86.sse2.pmadd.wd",
    256: "llvm.x86.avx2.pmadd.wd",
    512: "llvm.x86.avx512.pmaddw.d.512",
}

#: Lanes of the narrowest vector that instructions on groups take.
_MIN_LANES = 4
#: Beyond this many steps along K the loop is kept; below it is written out.
_UNROLL = 4
#: Rows of A, of a stride known only when the kernel runs, that one pointer is moved along K for: an
#: instruction adds a stride to it, or two.
_ROWS_A_POINTER = 3


@dataclass(frozen=True, slots=True)
class Kernel:
    """Parameters that all micro-kernels of a dot share.

    Attributes:
        fused: the target has fused multiply-add.
        a_unsigned: whether bytes of A are the unsigned ones (byte quads).
        k_groups: extent along K in K-groups.
        steps: how many of them are computed.
        correction: address of one value a column that every accumulator starts with, or None.
    """

    scheme: Scheme
    fused: bool
    a_unsigned: bool
    k_groups: int
    steps: Extent
    correction: str | None = None


def write_block(
    w: FunctionWriter,
    kernel: Kernel,
    a: KGroupsA,
    b: KGroupsB,
    c: Accumulator,
    row: Extent,
    row_offsets: Sequence[Extent],
    panel: Panel,
    column: Extent,
    queued: QueuedIterations | None = None,
) -> None:
    """Write one block: ``len(row_offsets)`` rows from ``row`` on, the columns of ``panel``.

    The columns begin at ``column``. ``row_offsets`` are r * a.row_stride for the rows of the block.
    ``queued``: the iterations whose operands are taken in place of ``a`` and ``b``.
    """
    rows, widths = len(row_offsets), panel.widths
    stored = storage_type(c.element)
    c_corner = w.gep(stored, c.pointer, plus(w, scaled(w, row, c.row_stride), column))
    starts = [sum(widths[:v]) for v in range(len(widths))]
    accumulators = _first_accumulators(w, kernel, c, c_corner, rows, panel, column)
    if queued is None:
        accumulators = _add_up(w, kernel, a, b, row, row_offsets, panel, column, accumulators)
    else:
        types = [vector(kernel.scheme.accumulator, width) for _ in range(rows) for width in widths]
        with w.loop(
            "0", queued.count, 1, list(zip(types, accumulators, strict=True)), nonempty=True
        ) as loop:
            a, b, steps = queued.operands(w, loop.index)
            offsets = [scaled(w, r, a.row_stride) for r in range(rows)]
            loop.next_values = _add_up(
                w, replace(kernel, steps=steps), a, b, row, offsets, panel, column, loop.values
            )
        accumulators = loop.results
    corner, offsets = c_corner, [r * c.row_stride for r in range(rows)]
    if c.result is not None:
        first = plus(w, scaled(w, row, c.result.row_stride), column)
        corner, offsets = w.gep(stored, c.result.pointer, first), list(c.result.offsets[:rows])
    for r in range(rows):
        row_corner = w.gep(stored, corner, offsets[r])
        for v, width in enumerate(widths):
            valid = panel.valid if v == len(widths) - 1 else width
            value = narrowed(w, c.element, accumulators[r * len(widths) + v], width)
            place = w.gep(stored, row_corner, starts[v])
            masked_store(w, stored, value, place, c.align, width, valid)


def _add_up(
    w: FunctionWriter,
    kernel: Kernel,
    a: KGroupsA,
    b: KGroupsB,
    row: Extent,
    row_offsets: Sequence[Extent],
    panel: Panel,
    column: Extent,
    accumulators: Sequence[str],
) -> list[str]:
    """The accumulators of a block after the loop along K."""
    scheme, rows, widths = kernel.scheme, len(row_offsets), panel.widths
    a_row = w.gep(a.element, a.pointer, scaled(w, row, a.row_stride))
    together = rows if isinstance(a.row_stride, int) else _ROWS_A_POINTER
    a_rows = [w.gep(a.element, a_row, row_offsets[r]) for r in range(0, rows, together)]
    b_stride: Extent
    if b.packed:
        b_column, b_stride, b_element = (
            w.gep(scheme.k_group, b.pointer, scaled(w, column, b.k_groups)),
            panel.stride,
            scheme.k_group,
        )
    else:
        b_column = w.gep(b.stored, b.pointer, scaled(w, column, b.k_groups))
        b_stride, b_element = b.row_stride, b.stored
    starts = [sum(widths[:v]) for v in range(len(widths))]

    def step(a_rows: Sequence[str], b_row: str, accumulators: Sequence[str]) -> list[str]:
        valid = [*widths[:-1], panel.valid]
        vectors = [
            _factor(w, scheme, _load_b(w, kernel, b, b_row, starts[v], width, valid[v]), width)
            for v, width in enumerate(widths)
        ]
        result = []
        for r in range(rows):
            group, within = divmod(r, together)
            k_group = w.load(
                scheme.k_group, w.gep(a.element, a_rows[group], row_offsets[within]), a.align
            )
            splats: dict[int, str] = {}
            for v, width in enumerate(widths):
                if width not in splats:
                    splats[width] = _factor(
                        w, scheme, w.splat(scheme.k_group, k_group, width), width
                    )
                result.append(
                    multiply_k_groups(
                        w,
                        kernel,
                        splats[width],
                        vectors[v],
                        accumulators[r * len(widths) + v],
                        width,
                    )
                )
        return result

    if isinstance(kernel.steps, int) and kernel.steps <= _UNROLL:
        for k in range(kernel.steps):
            here = [w.gep(a.element, pointer, scaled(w, k, a.k_stride)) for pointer in a_rows]
            accumulators = step(
                here, w.gep(b_element, b_column, scaled(w, k, b_stride)), accumulators
            )
        return list(accumulators)
    types = [vector(scheme.accumulator, width) for _ in range(rows) for width in widths]
    known = isinstance(kernel.steps, int)
    pointers = [("ptr", pointer) for pointer in (*a_rows, b_column)]
    with w.loop(
        "0",
        str(kernel.steps),
        1,
        [*pointers, *zip(types, accumulators, strict=True)],
        nonempty=known,
    ) as loop:
        *here, b_row = loop.values[: len(pointers)]
        accumulators = step(here, b_row, loop.values[len(pointers) :])
        loop.next_values = [
            *(w.gep(a.element, pointer, a.k_stride) for pointer in here),
            w.gep(b_element, b_row, b_stride),
            *accumulators,
        ]
    return loop.results[len(pointers) :]


def _mask(width: int, valid: int) -> str:
    """The first ``valid`` of ``width`` lanes."""
    return f"<{', '.join('i1 true' if lane < valid else 'i1 false' for lane in range(width))}>"


def masked_load(
    w: FunctionWriter, element: str, pointer: str, align: int, width: int, valid: int
) -> str:
    """The first ``valid`` lanes from memory, zero in the rest; memory beyond is not touched."""
    type_ = vector(element, width)
    if valid == width:
        return w.load(type_, pointer, align)
    w.module.declare(
        f"llvm.masked.load.{mangle(type_)}.p0", type_, ["ptr", f"<{width} x i1>", type_]
    )
    return w.emit(
        f"call {type_} @llvm.masked.load.{mangle(type_)}.p0(ptr align {align} {pointer}, <{width} "
        f"x i1> {_mask(width, valid)}, {type_} zeroinitializer)"
    )


def masked_store(
    w: FunctionWriter, element: str, value: str, pointer: str, align: int, width: int, valid: int
) -> None:
    """Write the first ``valid`` lanes."""
    type_ = vector(element, width)
    if valid == width:
        w.store(type_, value, pointer, align)
        return
    w.module.declare(
        f"llvm.masked.store.{mangle(type_)}.p0", "void", [type_, "ptr", f"<{width} x i1>"]
    )
    w.do(
        f"call void @llvm.masked.store.{mangle(type_)}.p0({type_} {value}, ptr align {align} "
        f"{pointer}, <{width} x i1> {_mask(width, valid)})"
    )


def widened(w: FunctionWriter, element: Type, value: str, width: int) -> str:
    """Accumulator elements as they are summed: f16 in f32."""
    return (
        w.emit(f"fpext {vector('half', width)} {value} to {vector('float', width)}")
        if element is F16
        else value
    )


def narrowed(w: FunctionWriter, element: Type, value: str, width: int) -> str:
    """Accumulators as elements of the result."""
    return (
        w.emit(f"fptrunc {vector('float', width)} {value} to {vector('half', width)}")
        if element is F16
        else value
    )


def _load_b(
    w: FunctionWriter, kernel: Kernel, b: KGroupsB, b_row: str, start: int, width: int, valid: int
) -> str:
    """A vector of K-groups of B."""
    if b.packed:
        return w.load(
            vector(kernel.scheme.k_group, width),
            w.gep(kernel.scheme.k_group, b_row, start),
            b.align,
        )
    here = w.gep(b.stored, b_row, start)
    value = masked_load(w, b.stored, here, b.align, width, valid)
    return b.convert(value, width) if b.convert is not None else value


def _first_accumulators(
    w: FunctionWriter,
    kernel: Kernel,
    c: Accumulator,
    corner: str,
    rows: int,
    panel: Panel,
    column: Extent,
) -> list[str]:
    """The initial values of a block's vectors of accumulators."""
    stored, widths = storage_type(c.element), panel.widths
    vectors = [
        (r * c.row_stride + sum(widths[:v]), width, panel.valid if v == len(widths) - 1 else width)
        for r in range(rows)
        for v, width in enumerate(widths)
    ]

    def loaded() -> list[str]:
        return [
            widened(
                w,
                c.element,
                masked_load(w, stored, w.gep(stored, corner, start), c.align, width, valid),
                width,
            )
            for start, width, valid in vectors
        ]

    values = ["zeroinitializer"] * len(vectors)
    if c.fresh is not None:
        before, load, join = w.current, w.new_block("load"), w.new_block("join")
        w.branch_if(c.fresh, join, load)
        w.place(load)
        sums, after = loaded(), w.current
        w.branch(join)
        w.place(join)
        values = [
            w.phi(vector(kernel.scheme.accumulator, width), ((zero, before), (value, after)))
            for zero, value, (_, width, _) in zip(values, sums, vectors, strict=True)
        ]
    elif not c.zero:
        values = loaded()
    if kernel.correction is None:
        return values
    corrected = []
    for number, (value, (_, width, _)) in enumerate(zip(values, vectors, strict=True)):
        type_ = vector(kernel.scheme.accumulator, width)
        start = sum(widths[: number % len(widths)])
        offset = w.gep("i32", kernel.correction, plus(w, column, start))
        corrected.append(w.emit(f"add {type_} {value}, {w.load(type_, offset, 4)}"))
    return corrected


def multiply_add(
    w: FunctionWriter, fused: bool, element: str, a: str, b: str, total: str, width: int
) -> str:
    """a * b + total of floats, rounded once where the target does that in one instruction."""
    type_ = vector(element, width)
    return w.intrinsic(
        "llvm.fma" if fused else "llvm.fmuladd", type_, [(type_, a), (type_, b), (type_, total)]
    )


def _factor(w: FunctionWriter, scheme: Scheme, k_groups: str, width: int) -> str:
    """A vector of K-groups in the type and with the minimum of lanes that the instruction takes."""
    if scheme in (FMA32, FMA64, INT32):
        return k_groups
    if width < _MIN_LANES:
        k_groups, width = _resize(w, "i32", k_groups, width, _MIN_LANES), _MIN_LANES
    element = "bfloat" if scheme is BF16_PAIRS else scheme.element
    return w.emit(
        f"bitcast {vector('i32', width)} {k_groups} to {vector(element, scheme.group * width)}"
    )


def multiply_k_groups(
    w: FunctionWriter, kernel: Kernel, a: str, b: str, total: str, width: int
) -> str:
    """Add the products of two vectors' K-groups, as :func:`_factor` returns them, to ``total``."""
    scheme = kernel.scheme
    if scheme in (FMA32, FMA64):
        return multiply_add(w, kernel.fused, scheme.accumulator, a, b, total, width)
    if scheme is INT32:
        type_ = vector("i32", width)
        return w.emit(f"add {type_} {total}, {w.emit(f'mul {type_} {a}, {b}')}")
    if width < _MIN_LANES:
        # Narrower than any register the instruction takes.
        total = _resize(w, scheme.accumulator, total, width, _MIN_LANES)
        return _resize(
            w,
            scheme.accumulator,
            multiply_k_groups(w, kernel, a, b, total, _MIN_LANES),
            _MIN_LANES,
            width,
        )
    bits, i32s = width * 32, vector("i32", width)
    if scheme in (SIGNED_DOT, UNSIGNED_DOT):
        quads = vector("i8", 4 * width)
        name = "sdot" if scheme is SIGNED_DOT else "udot"
        return w.call(
            f"llvm.aarch64.neon.{name}.v{width}i32.v{4 * width}i8",
            i32s,
            [(i32s, total), (quads, a), (quads, b)],
        )
    if scheme is BYTE_QUADS:
        return (
            byte_quads(w, total, a, b, width)
            if kernel.a_unsigned
            else byte_quads(w, total, b, a, width)
        )
    if scheme is BF16_PAIRS:
        pairs, floats = vector("bfloat", 2 * width), vector("float", width)
        return w.call(
            f"llvm.x86.avx512bf16.dpbf16ps.{bits}",
            floats,
            [(floats, total), (pairs, a), (pairs, b)],
        )
    assert scheme is WORD_PAIRS
    words = vector("i16", 2 * width)
    return w.emit(
        f"add {i32s} {total}, {w.call(_WORD_PAIRS[bits], i32s, [(words, a), (words, b)])}"
    )


def _resize(w: FunctionWriter, element: str, value: str, width: int, wanted: int) -> str:
    """A vector with lanes added (of any value) or dropped at its end."""
    lanes = ", ".join(f"i32 {i}" if i < width else "i32 poison" for i in range(wanted))
    return w.emit(
        f"shufflevector {vector(element, width)} {value}, {vector(element, width)} "
        f"zeroinitializer, <{wanted} x i32> <{lanes}>"
    )


def byte_quads(w: FunctionWriter, total: str, unsigned: str, signed: str, width: int) -> str:
    """``total`` plus, in each lane, the sum of four products of an unsigned and a signed byte.

    The vectors have ``4 * width`` bytes.
    """
    i32s, quads = vector("i32", width), vector("i8", 4 * width)
    return w.call(
        f"llvm.x86.avx512.vpdpbusd.{width * 32}",
        i32s,
        [(i32s, total), (quads, unsigned), (quads, signed)],
    )


def write_column_totals(
    w: FunctionWriter,
    kernel: Kernel,
    packed: KGroupsB,
    panels: Sequence[Panel],
    b_unsigned: bool,
    factor: int,
    target: str,
    queued: QueuedIterations | None = None,
) -> None:
    """Write ``factor`` times the sum along K of each packed column of bytes into ``target`` (i32).

    The vectors of a panel are added up side by side: one sum waits for the one before it.
    """

    def add(
        k_groups_b: KGroupsB,
        steps: Extent,
        column: Extent,
        panel: Panel,
        types: Sequence[str],
        totals: Sequence[str],
    ) -> list[str]:
        base, accumulators = (
            w.gep("i32", k_groups_b.pointer, scaled(w, column, k_groups_b.k_groups)),
            list[str](),
        )
        with w.loop(
            "0",
            str(steps),
            1,
            list(zip(types, totals, strict=True)),
            nonempty=isinstance(steps, int),
        ) as loop:
            row, start = w.gep("i32", base, scaled(w, loop.index, panel.columns)), 0
            for width, total in zip(panel.widths, loop.values, strict=True):
                wide = max(width, _MIN_LANES)
                k_groups = _factor(
                    w,
                    kernel.scheme,
                    w.load(vector("i32", width), w.gep("i32", row, start), 4),
                    width,
                )
                operands = (k_groups, "splat (i8 1)") if b_unsigned else ("splat (i8 1)", k_groups)
                accumulators.append(byte_quads(w, total, *operands, wide))
                start += width
            loop.next_values = accumulators
        return loop.results

    for panel in panels:
        with w.loop("0", str(panel.count), 1, nonempty=True) as loop:
            column = plus(w, scaled(w, loop.index, panel.columns), panel.start)
            types = [vector("i32", max(width, _MIN_LANES)) for width in panel.widths]
            totals = ["zeroinitializer"] * len(types)
            if queued is None:
                totals = add(packed, kernel.steps, column, panel, types, totals)
            else:
                with w.loop(
                    "0", queued.count, 1, list(zip(types, totals, strict=True)), nonempty=True
                ) as iterations:
                    _, b, steps = queued.operands(w, iterations.index)
                    iterations.next_values = add(b, steps, column, panel, types, iterations.values)
                totals = iterations.results
            start = 0
            for width, total in zip(panel.widths, totals, strict=True):
                type_ = vector("i32", width)
                if width < _MIN_LANES:
                    total = _resize(w, "i32", total, _MIN_LANES, width)
                w.store(
                    type_,
                    w.emit(f"mul {type_} {total}, splat (i32 {factor})"),
                    w.gep("i32", target, plus(w, column, start)),
                    4,
                )
                start += width
