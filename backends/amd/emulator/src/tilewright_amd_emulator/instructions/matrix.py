"""MFMA (wave64) and WMMA (wave32), by the layout of their elements over lanes.

Multiplications are exact, accumulate in f64 and round once to the result; integers wrap around. The
layouts are those of AMD's instruction set documents.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright_amd_emulator.code.operand_types import KINDS, constant
from tilewright_amd_emulator.code.program import Step
from tilewright_amd_emulator.decode.decoder import Decoder
from tilewright_amd_emulator.errors import WaveError
from tilewright_amd_emulator.formats import arithmetic as a
from tilewright_amd_emulator.instructions import narrow_floats

if TYPE_CHECKING:
    from tilewright_amd_emulator.code.operands import Operand
    from tilewright_amd_emulator.state.machine import Machine

Array = np.ndarray[Any, np.dtype[Any]]

#: kind of an element -> bits
WIDTHS = {
    "f64": 64, "f32": 32, "xf32": 32, "f16": 16, "bf16": 16, "fp8": 8, "bf8": 8, "i8": 8, "u8": 8,
    "fp6": 6, "bf6": 6, "fp4": 4, "i4": 4, "u4": 4, "i32": 32,
}  # fmt: skip
#: the formats of f8f6f4 instructions, by cbsz and blgp
FORMATS = ("fp8", "bf8", "fp6", "bf6", "fp4")


@dataclass(frozen=True)
class Layout:
    """A layout: ``row[l, e]``, ``column[l, e]`` and the block of element e of lane l."""

    block: Array
    row: Array
    column: Array

    def flat(self, rows: int, columns: int) -> Array:
        """int64 [lanes, elements]: places in an array [blocks, rows, columns]."""
        return (self.block * rows + self.row) * columns + self.column


def mfma_operand(outer: int, blocks: int, elements: int, split: bool = False) -> Layout:
    """An operand of MFMA: row is the index along M (or N), column the one along K.

    Lanes of a group of ``outer`` hold one index each, the groups follow each other along K
    (``elements`` at a time) or are blocks. With ``split``, the elements are two runs of 16, and the
    second run begins half of K later (eight-bit operands of f8f6f4).
    """
    lane, element = np.arange(64)[:, None], np.arange(elements)[None]
    group = lane // outer
    along = group // blocks
    if split:
        k = element // 16 * (16 * (64 // outer)) + along * 16 + element % 16
    else:
        k = along * elements + element
    zero = np.zeros_like(k)
    return Layout(group % blocks + zero, lane % outer + zero, k)


def mfma_result(rows: int, columns: int, blocks: int, run: int) -> Layout:
    """Return the element indices of C and D of MFMA.

    Lanes lie along columns; each group of lanes has ``run`` rows, then the next group's follow;
    blocks lie below each other.
    """
    elements = rows * columns * blocks // 64
    lane, element = np.arange(64)[:, None], np.arange(elements)[None]
    group, groups = lane // columns, 64 // columns
    if run == 1 and blocks > 1:  # f64 in four blocks: the block runs faster than the row
        zero = np.zeros_like(element)
        return Layout(group % blocks + zero, group // blocks + zero, lane % columns + zero)
    place = element // run * (run * groups) + group * run + element % run
    return Layout(place // rows, place % rows, lane % columns + np.zeros_like(place))


def wmma_operand(generation: int, elements: int) -> Layout:
    """Return the element indices of a WMMA operand with 16 indices along M or N.

    On gfx11 both halves of the wave hold all of K, on gfx12 each half holds half of K.
    """
    lane, element = np.arange(32)[:, None], np.arange(elements)[None]
    k = element + np.zeros_like(lane) if generation == 11 else lane // 16 * elements + element
    return Layout(np.zeros_like(k), lane % 16 + np.zeros_like(k), k)


def wmma_result(generation: int) -> Layout:
    """Return the element indices of C and D of WMMA.

    Lanes lie along columns. On gfx11 rows alternate between the halves of the wave; on gfx12 each
    half holds 8 rows.
    """
    lane, element = np.arange(32)[:, None], np.arange(8)[None]
    row = 2 * element + lane // 16 if generation == 11 else lane // 16 * 8 + element
    return Layout(np.zeros_like(row), row, lane % 16 + np.zeros_like(row))


def elements(words: Array, kind: str, unsigned_zero: bool) -> Array:
    """f64 [waves, lanes, elements] of uint32 [waves, lanes, words]."""
    width = WIDTHS[kind]
    words = np.ascontiguousarray(words)
    if kind == "f64":
        return words.view(np.float64)
    if kind in ("f32", "i32"):
        return words.view(np.float32 if kind == "f32" else np.int32).astype(np.float64)
    if kind == "xf32":  # ten bits of mantissa, to nearest
        rounded = words + np.uint32(0xFFF) + ((words >> np.uint32(13)) & np.uint32(1))
        bits = np.where(np.isfinite(words.view(np.float32)), rounded, words) & np.uint32(0xFFFFE000)
        return bits.view(np.float32).astype(np.float64)
    if kind == "f16":
        return words.view(np.float16).astype(np.float64)
    if kind == "bf16":
        return a.bfloat_value(words.view(np.uint16)).astype(np.float64)
    if width == 8:
        codes = words.view(np.uint8)
        if kind in ("i8", "u8"):
            return codes.view(np.int8 if kind == "i8" else np.uint8).astype(np.float64)
        return narrow_floats.decoded(codes, kind, unsigned_zero).astype(np.float64)
    if width == 4:
        codes = words.view(np.uint8)
        parts = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:-1], -1)
        if kind == "fp4":
            return narrow_floats.decoded(parts, kind, False).astype(np.float64)
        return np.where((kind == "i4") & (parts > 7), parts.astype(np.float64) - 16, parts)
    bits = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little")
    groups = bits.reshape(*bits.shape[:-1], -1, 6).astype(np.uint8)
    codes = (groups << np.arange(6, dtype=np.uint8)).sum(axis=-1).astype(np.uint8)
    return narrow_floats.decoded(codes, kind, False).astype(np.float64)


def words_read(d: Decoder, operand: Operand, count: int) -> Callable[[Machine], Array]:
    """Reads ``count`` registers: uint32 [waves, lanes, count]."""
    if operand.kind != "v":
        raise d.fail(f"the operand {operand.text!r} must be vector registers")
    if operand.count != count:
        raise d.fail(f"the operand {operand.text!r} must have {count} registers")
    d.note_read(operand)
    first = operand.index
    return lambda m: np.moveaxis(m.vectors[first : first + count, m.selected], 0, -1)


def gathered(values: Array, places: Array, shape: tuple[int, int, int]) -> Array:
    """Gather values [waves, lanes, elements] at ``places`` into [waves, blocks, rows, columns]."""
    out = np.zeros((len(values), int(np.prod(shape))))
    out[:, places.reshape(-1)] = values.reshape(len(values), -1)
    return out.reshape(len(values), *shape)


def result_bits(total: Array, kind: str) -> Array:
    """Words (uint32, uint64, or uint16 for halves) of f64 sums."""
    if kind == "f64":
        return total.view(np.uint64)
    if kind == "i32":
        return total.astype(np.int64).astype(np.uint32)
    if kind == "f32":
        return total.astype(np.float32).view(np.uint32)
    if kind == "f16":
        return total.astype(np.float16).view(np.uint16)
    return a.bfloat_bits(total.astype(np.float32))


def all_lanes(m: Machine, d: Decoder) -> None:
    if not m.full:
        raise WaveError(
            "a matrix instruction with lanes that EXEC excludes",
            d.instruction.line,
            d.instruction.text,
        )


def addend(d: Decoder, operand: Operand, kind: str, count: int) -> Callable[[Machine], Array]:
    """C: f64 [waves, lanes, elements], or a constant."""
    if operand.kind == "v":
        read = words_read(d, operand, count)
        return lambda m: elements(read(m), kind, False)
    value = (
        np.array([constant(operand, KINDS[kind])], KINDS[kind].unsigned)
        .view(KINDS[kind].dtype)
        .astype(np.float64)
    )
    return lambda m: value


_MFMA = re.compile(r"^v_mfma_(scale_)?(f32|i32|f64)_(\d+)x(\d+)x(\d+)_?(?:(\d+)b_)?([a-z]\w+)$")


def _kinds(d: Decoder, text: str, target: str) -> tuple[str, str]:
    """The kinds of A and B that the end of a name stands for."""
    if text == "f8f6f4":
        codes = d.instruction.number("cbsz"), d.instruction.number("blgp")
        if max(codes) >= len(FORMATS):
            raise d.fail(f"formats {codes} are not known")
        return FORMATS[codes[0]], FORMATS[codes[1]]
    if match := re.fullmatch(r"(fp8|bf8)_(fp8|bf8)", text):
        return match.group(1), match.group(2)
    kind = {"bf16_1k": "bf16"}.get(text, text)
    if kind not in WIDTHS:
        raise d.fail(f"operands of kind {text!r} are not known")
    return kind, kind


def build_mfma(d: Decoder) -> Step:
    """The step of any v_mfma instruction, from what its name says."""
    match = _MFMA.match(d.instruction.name)
    if match is None or d.lanes != 64:
        raise d.fail(f"the matrix instruction {d.instruction.name} is not known to the emulator")
    scaled, result, rows, columns, depth = (
        match.group(1),
        match.group(2),
        *(int(n) for n in match.groups()[2:5]),
    )
    small = match.group(7) == "f8f6f4"
    d.allow(*(("cbsz", "blgp", "op_sel", "op_sel_hi") if small else ()))
    d.expect(6 if scaled else 4)
    kinds = _kinds(d, match.group(7), d.program.target)
    counts = [o.count for o in d.operands]
    per_lane = counts[1] * 32 // WIDTHS[kinds[0]]
    blocks = 64 * per_lane // (rows * depth)
    if (
        blocks < 1
        or 64 * per_lane != blocks * rows * depth
        or (match.group(6) and int(match.group(6)) != blocks)
    ):
        raise d.fail(f"{counts[1]} registers do not fit a matrix of {rows} by {depth}")
    layouts = [
        mfma_operand(outer, blocks, per_lane, small and WIDTHS[kind] == 8)
        for outer, kind in zip((rows, columns), kinds, strict=True)
    ]
    outcome = mfma_result(rows, columns, blocks, 1 if result == "f64" else 4).flat(rows, columns)
    unsigned_zero = narrow_floats.fnuz(d.program.target)
    reads = [words_read(d, d.operands[1 + i], per_lane * WIDTHS[kinds[i]] // 32) for i in range(2)]
    words = rows * columns * blocks // 64 * (2 if result == "f64" else 1)
    c = addend(d, d.operands[3], result, words)
    scales = (
        [_scales(d, 4 + i, i, outer, depth) for i, outer in enumerate((rows, columns))]
        if scaled
        else []
    )
    d.note_write(d.operands[0], words)
    first = d.operands[0].index
    places = [
        layout.flat(outer, depth) for layout, outer in zip(layouts, (rows, columns), strict=True)
    ]

    def step(m: Machine) -> None:
        all_lanes(m, d)
        left, right = (
            gathered(
                elements(reads[i](m), kinds[i], unsigned_zero), places[i], (blocks, outer, depth)
            )
            for i, outer in enumerate((rows, columns))
        )
        if scales:
            left, right = left * scales[0](m), right * scales[1](m)
        matmul = (left @ right.swapaxes(-1, -2)).reshape(len(left), -1)[:, outcome]
        bits = result_bits(matmul + c(m), result)
        if result == "f64":
            bits = np.ascontiguousarray(bits).view(np.uint32)
        m.vectors[first : first + words, m.selected] = np.moveaxis(bits, -1, 0)

    return step


def _scales(
    d: Decoder, place: int, index: int, outer: int, depth: int
) -> Callable[[Machine], Array]:
    """Return the scale of each element, f64 [waves, 1, outer, depth].

    A byte of each lane scales 32 elements along K of the lane's row or column.
    """
    low, high = (
        d.instruction.numbers("op_sel") or (0, 0),
        d.instruction.numbers("op_sel_hi") or (0, 0),
    )
    shift = np.uint32(8 * (low[index] + 2 * high[index]))
    read = d.source(place, "b32", -1)
    lane = np.arange(outer)[:, None] + np.arange(depth)[None] // 32 * outer

    def scales(m: Machine) -> Array:
        codes = np.broadcast_to((read(m) >> shift) & np.uint32(255), (m.count, m.lanes))
        return narrow_floats.scale(codes)[:, lane][:, None]

    return scales


_WMMA = re.compile(r"^v_wmma_(f32|f16|bf16|i32)_16x16x(\d+)_(\w+)$")


def build_wmma(d: Decoder) -> Step:
    """The step of any v_wmma instruction of gfx11 and gfx12, from what its name says."""
    match = _WMMA.match(d.instruction.name)
    if match is None or d.lanes != 32 or d.generation not in (11, 12):
        raise d.fail(f"the matrix instruction {d.instruction.name} is not known to the emulator")
    result, depth, text = match.group(1), int(match.group(2)), match.group(3)
    d.allow("op_sel", "op_sel_hi", "neg_lo", "neg_hi", "clamp")
    d.expect(4)
    signed, absolute = (d.instruction.numbers(name) or (0, 0, 0) for name in ("neg_lo", "neg_hi"))
    if text in ("iu8", "iu4"):
        kinds = tuple(("i" if signed[i] else "u") + text[2:] for i in range(2))
        negated: tuple[int, ...] = (0, 0, 0)
    else:
        kinds = _kinds(d, text, d.program.target)
        negated = tuple(signed)
        if tuple(signed[:2]) != tuple(absolute[:2]):
            raise d.fail("a sign for one half of the elements only is not supported")
    held = depth if d.generation == 11 else depth // 2
    layout = wmma_operand(d.generation, held).flat(16, depth)
    reads = [words_read(d, d.operands[1 + i], held * WIDTHS[kinds[i]] // 32) for i in range(2)]
    outcome = wmma_result(d.generation).flat(16, 16)
    wide = result in ("f32", "i32")
    words = 8 if wide or d.generation == 11 else 4
    high = (d.instruction.numbers("op_sel") or (0, 0, 0))[2]
    target, c_operand = d.operands[0], d.operands[3]
    d.note_write(target, words)
    if not wide and d.generation == 11:
        d.note_read(target, words)
    c_read = words_read(d, c_operand, words) if c_operand.kind == "v" else None
    c_plain = (
        None
        if c_read is not None
        else np.array(
            [constant(c_operand, KINDS["f16" if not wide else result])],
            KINDS["f16" if not wide else result].unsigned,
        )
    )
    first = target.index
    clamped = "clamp" in d.instruction.modifiers

    def c(m: Machine) -> Array:
        if c_read is None:
            assert c_plain is not None
            return elements(c_plain.astype(np.uint32), result, False)[..., :1]
        values = elements(c_read(m), result, False)
        return values if wide or d.generation == 12 else values[..., high::2]

    def step(m: Machine) -> None:
        all_lanes(m, d)
        operands = [read(m) for read in reads]
        if d.generation == 11 and any((o[:, :16] != o[:, 16:]).any() for o in operands):
            raise WaveError(
                "the lanes of the upper half of the wave must hold the operands of the lower "
                "half again"
            )
        left, right = (
            gathered(elements(o, kind, False), layout, (1, 16, depth))
            for o, kind in zip(operands, kinds, strict=True)
        )
        left, right = (-x if negated[i] else x for i, x in enumerate((left, right)))
        matmul = (left @ right.swapaxes(-1, -2)).reshape(len(left), -1)[:, outcome]
        third = c(m)
        third = np.abs(third) if absolute[2:] and absolute[2] else third
        total = matmul + (-third if negated[2:] and negated[2] else third)
        if clamped and result == "i32":
            total = np.clip(total, -(2.0**31), 2.0**31 - 1)
        bits = result_bits(total, result)
        if wide:
            m.vectors[first : first + 8, m.selected] = np.moveaxis(bits, -1, 0)
        elif d.generation == 12:
            m.vectors[first : first + 4, m.selected] = np.moveaxis(
                np.ascontiguousarray(bits).view(np.uint32), -1, 0
            )
        else:
            old = m.vectors[first : first + 8, m.selected]
            half = np.moveaxis(bits.astype(np.uint32), -1, 0)
            kept = old & np.uint32(0xFFFF if high else 0xFFFF0000)
            m.vectors[first : first + 8, m.selected] = kept | half << np.uint32(16 * high)

    return step
