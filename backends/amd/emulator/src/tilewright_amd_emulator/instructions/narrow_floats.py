"""Conversions of fp8, bf8, fp6, bf6 and fp4, with power-of-two scales.

fp8 and bf8 are FNUZ on gfx940 to gfx942 and OCP elsewhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tilewright_amd_emulator.code.program import Step
from tilewright_amd_emulator.decode.decoder import TABLE, Decoder, Reader, builds
from tilewright_amd_emulator.formats import arithmetic as a

if TYPE_CHECKING:
    from tilewright_amd_emulator.state.machine import Machine

Array = np.ndarray[Any, np.dtype[Any]]

#: format -> type by whether it is the FNUZ variant, bits
_TYPES: dict[str, tuple[Any, Any, int]] = {
    "fp8": (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, 8),
    "bf8": (ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz, 8),
    "fp6": (ml_dtypes.float6_e2m3fn, None, 6),
    "bf6": (ml_dtypes.float6_e3m2fn, None, 6),
    "fp4": (ml_dtypes.float4_e2m1fn, None, 4),
}


def fnuz(target: str) -> bool:
    """Return whether the target's fp8 is FNUZ, without negative zero and infinities."""
    return target in ("gfx940", "gfx941", "gfx942")


@functools.cache
def table(name: str, unsigned_zero: bool) -> Array:
    """f32 of every code of a format."""
    ocp, other, width = _TYPES[name]
    codes = np.arange(1 << width, dtype=np.uint8)
    return np.asarray(codes.view(other if unsigned_zero else ocp), np.float32)


def decoded(codes: Array, name: str, unsigned_zero: bool) -> Array:
    """f32 of codes (any unsigned integers)."""
    return table(name, unsigned_zero)[codes]


def encoded(value: Array, name: str, unsigned_zero: bool) -> Array:
    """Convert f32 to codes (uint8) of a narrow format, to nearest, ties to even.

    Values that are too large become the format's NaN or infinity.
    """
    ocp, other, _ = _TYPES[name]
    return np.asarray(value, np.float32).astype(other if unsigned_zero else ocp).view(np.uint8)


def scale(codes: Array) -> Array:
    """f64 of E8M0 codes: powers of two, NaN for 255."""
    return np.where(codes == 255, np.nan, np.ldexp(1.0, codes.astype(np.int32) - 127))


def stochastic(value: Array, random: Array, name: str, unsigned_zero: bool) -> Array:
    """Codes of f32, rounded up with the probability of what would be cut off, by 32 random bits."""
    mantissa, smallest = (
        (3, -7 if unsigned_zero else -6) if name == "fp8" else (2, -15 if unsigned_zero else -14)
    )
    wide = value.astype(np.float64)
    exponent = np.maximum(np.frexp(np.where(np.isfinite(wide), wide, 0))[1] - 1, smallest)
    quantum = np.ldexp(1.0, exponent - mantissa)
    steps = np.abs(wide) / quantum
    up = np.floor(steps + random.astype(np.float64) * 2.0**-32)
    rounded = np.where(np.isfinite(wide), np.copysign(up * quantum, wide), wide)
    return encoded(rounded.astype(np.float32), name, unsigned_zero)


def _half_written(d: Decoder, sources: int) -> Callable[[Machine, Array], None]:
    """Writes 16 bits into the half of the result that op_sel names, and keeps the other."""
    operand = d.operands[0]
    if operand.kind != "v":
        raise d.fail("the result must be a vector register")
    d.note_write(operand, 1)
    d.note_read(operand, 1)
    chosen = d.instruction.numbers("op_sel")
    high = operand.half == 1 or (
        chosen is not None and len(chosen) > sources and chosen[sources] == 1
    )
    register = operand.index

    def write(m: Machine, value: Array) -> None:
        old = m.vector(register)
        wide = value.astype(np.uint32)
        m.set_vector(
            register,
            old & np.uint32(0xFFFF) | wide << np.uint32(16)
            if high
            else old & np.uint32(0xFFFF0000) | wide,
        )

    return write


@builds("v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32")
def _two_to_narrow(d: Decoder) -> Step:
    d.allow_vector()
    d.expect(3)
    name, unsigned_zero = d.instruction.name[9:12], fnuz(d.program.target)
    x, y, write = d.source(1, "f32", 0), d.source(2, "f32", 1), _half_written(d, 2)

    def step(m: Machine) -> None:
        write(
            m,
            encoded(x(m), name, unsigned_zero)
            | encoded(y(m), name, unsigned_zero).astype(np.uint16) << np.uint16(8),
        )

    return step


@builds("v_cvt_sr_fp8_f32", "v_cvt_sr_bf8_f32")
def _stochastic_to_narrow(d: Decoder) -> Step:
    """One byte of the result: op_sel's last two bits, or byte_sel."""
    d.allow("op_sel", "byte_sel", "clamp")
    d.expect(3)
    name, unsigned_zero = d.instruction.name[9:12], fnuz(d.program.target)
    chosen = d.instruction.numbers("op_sel") or (0, 0, 0, 0)
    place = d.instruction.number(
        "byte_sel",
        (chosen[2] if len(chosen) > 2 else 0) + 2 * (chosen[3] if len(chosen) > 3 else 0),
    )
    x, random = d.source(1, "f32", -1), d.source(2, "u32", -1)
    register = d.operands[0].index
    d.note_write(d.operands[0], 1)
    d.note_read(d.operands[0], 1)
    shift = np.uint32(8 * place)

    def step(m: Machine) -> None:
        code = stochastic(x(m), random(m), name, unsigned_zero).astype(np.uint32)
        m.set_vector(register, m.vector(register) & ~(np.uint32(255) << shift) | code << shift)

    return step


@builds("v_cvt_f32_fp8", "v_cvt_f32_bf8")
def _narrow_to_one(d: Decoder) -> Step:
    """A byte: of the selection of SDWA, byte_sel, or op_sel."""
    d.allow("src0_sel", "byte_sel", "op_sel", "clamp", "dst_sel", "dst_unused", "mul", "div")
    d.expect(2)
    name, unsigned_zero = d.instruction.name[-3:], fnuz(d.program.target)
    selection = d.instruction.modifiers.get("src0_sel", "BYTE_0")
    place = d.instruction.number(
        "byte_sel", int(selection[-1]) if selection.startswith("BYTE") else 0
    )
    if chosen := d.instruction.numbers("op_sel"):
        place = (
            chosen[0] * 2 + (chosen[1] if len(chosen) > 1 else 0)
            if d.generation >= 12
            else chosen[0]
        )
    read, write = (
        d.whole(1),
        d.result(0, "f32", 1) if d.instruction.encoding != "sdwa" else _plain_result(d),
    )
    shift = np.uint32(8 * place)
    return lambda m: write(m, decoded((read(m) >> shift) & np.uint32(255), name, unsigned_zero))


@builds("v_cvt_pk_f32_fp8", "v_cvt_pk_f32_bf8")
def _narrow_to_two(d: Decoder) -> Step:
    """The two bytes of a half: of the selection of SDWA, or op_sel."""
    d.allow("src0_sel", "op_sel", "clamp", "dst_sel", "dst_unused")
    d.expect(2)
    name, unsigned_zero = d.instruction.name[-3:], fnuz(d.program.target)
    chosen = d.instruction.numbers("op_sel")
    operand = d.operands[1]
    high = (
        d.instruction.modifiers.get("src0_sel") == "WORD_1"
        or bool(chosen and chosen[0])
        or operand.half == 1
    )
    read = d.whole(1)
    d.note_write(d.operands[0], 2)
    register, shift = d.operands[0].index, np.uint32(16 if high else 0)

    def step(m: Machine) -> None:
        word = read(m) >> shift
        m.set_vector(register, decoded(word & np.uint32(255), name, unsigned_zero).view(np.uint32))
        m.set_vector(
            register + 1,
            decoded((word >> np.uint32(8)) & np.uint32(255), name, unsigned_zero).view(np.uint32),
        )

    return step


def _plain_result(d: Decoder) -> Callable[[Machine, Array], None]:
    operand = d.operands[0]
    d.note_write(operand, 1)
    register = operand.index
    return lambda m, value: m.set_vector(register, value.view(np.uint32))


_WIDE: dict[str, tuple[Callable[[Array], Array], Callable[[Array], Array]]] = {
    "f16": (
        lambda bits: bits.astype(np.uint16).view(np.float16).astype(np.float32),
        lambda x: x.astype(np.float16).view(np.uint16),
    ),
    "bf16": (lambda bits: a.bfloat_value(bits.astype(np.uint16)), a.bfloat_bits),
}


def _scaled_from(name: str, wide: str) -> Callable[[Decoder], Step]:
    """gfx950: convert two narrow values of a register, times the exponent of an f32."""

    def build(d: Decoder) -> Step:
        d.allow("op_sel")
        d.expect(3)
        chosen = (*(d.instruction.numbers("op_sel") or ()), 0, 0)
        width = _TYPES[name][2]
        first = 16 * chosen[0] if width == 8 else 8 * (chosen[0] + 2 * chosen[1])
        read, factor = d.whole(1), d.source(2, "b32", -1)
        register = d.operands[0].index
        d.note_write(d.operands[0], 2 if wide == "f32" else 1)
        ones = np.uint32((1 << width) - 1)

        def step(m: Machine) -> None:
            word, by = (
                read(m),
                scale((factor(m) >> np.uint32(23)) & np.uint32(255)).astype(np.float32),
            )
            low, high = (
                decoded((word >> np.uint32(first + i * width)) & ones, name, False) * by
                for i in range(2)
            )
            if wide == "f32":
                m.set_vector(register, low.view(np.uint32))
                m.set_vector(register + 1, high.view(np.uint32))
            else:
                pack = _WIDE[wide][1]
                m.set_vector(
                    register,
                    pack(low).astype(np.uint32) | pack(high).astype(np.uint32) << np.uint32(16),
                )

        return step

    return build


def _scaled_to(name: str, wide: str) -> Callable[[Decoder], Step]:
    """gfx950: divide two values by a power of two and convert them to a narrow format.

    They are written to a part of the result. Values that are too large become the maximum.
    """

    def build(d: Decoder) -> Step:
        d.allow("op_sel")
        packed = wide != "f32"
        d.expect(3 if packed else 4)
        chosen = (*(d.instruction.numbers("op_sel") or ()), 0, 0, 0, 0)
        width = _TYPES[name][2]
        place = 2 if packed else 3
        first = 16 * chosen[place] if width == 8 else 8 * (chosen[2] + 2 * chosen[3])
        if packed:
            word, unpack = d.whole(1), _WIDE[wide][0]
            sources: list[Reader] = [
                lambda m: unpack(word(m) & np.uint32(0xFFFF)),
                lambda m: unpack(word(m) >> np.uint32(16)),
            ]
        else:
            sources = [d.source(1, "f32", -1), d.source(2, "f32", -1)]
        factor = d.source(place, "b32", -1)
        register = d.operands[0].index
        d.note_write(d.operands[0], 1)
        d.note_read(d.operands[0], 1)
        largest = float(np.nanmax(np.where(np.isinf(table(name, False)), 0, table(name, False))))

        def step(m: Machine) -> None:
            by = scale((factor(m) >> np.uint32(23)) & np.uint32(255))
            bits: Array = np.zeros((1, 1), np.uint32)
            for i, source in enumerate(sources):
                value = np.clip(source(m).astype(np.float64) / by, -largest, largest).astype(
                    np.float32
                )
                bits = bits | encoded(value, name, False).astype(np.uint32) << np.uint32(
                    first + i * width
                )
            kept = np.uint32(~(((1 << 2 * width) - 1) << first) & 0xFFFFFFFF)
            m.set_vector(register, m.vector(register) & kept | bits)

        return step

    return build


for _name in ("fp8", "bf8", "fp4"):
    for _wide in ("f32", "f16", "bf16"):
        TABLE[f"v_cvt_scalef32_pk_{_wide}_{_name}"] = _scaled_from(_name, _wide)
        TABLE[f"v_cvt_scalef32_pk_{_name}_{_wide}"] = _scaled_to(_name, _wide)
