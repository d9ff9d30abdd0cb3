"""Steps of LLVM's expansion of division: v_div_scale, v_div_fmas and v_div_fixup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright_amd_emulator.code.operands import VCC
from tilewright_amd_emulator.code.program import Step
from tilewright_amd_emulator.decode.decoder import Decoder, builds
from tilewright_amd_emulator.formats import arithmetic as a
from tilewright_amd_emulator.instructions.vector import formula_step

if TYPE_CHECKING:
    from tilewright_amd_emulator.state.machine import Machine

Array = np.ndarray[Any, np.dtype[Any]]

_F64 = np.float64


@builds("v_div_scale_f32", "v_div_scale_f64")
def _division_scale(d: Decoder) -> Step:
    """Scale the numerator and denominator of a division whose steps would leave the range."""
    d.allow_vector()
    kind = d.instruction.name[-3:]
    power, smallest = (64, -126) if kind == "f32" else (128, -1022)
    far = 96 if kind == "f32" else 768
    write, flag = d.result(0, kind), d.mask_result(1)
    x, y, z = (d.source(2 + i, kind, i) for i in range(3))

    def step(m: Machine) -> None:
        value, bottom, top = np.broadcast_arrays(x(m), y(m), z(m))
        up, down = value.dtype.type(2.0**power), value.dtype.type(2.0**-power)
        e_top, e_bottom = np.frexp(top)[1], np.frexp(bottom)[1]
        denormal_bottom = np.abs(bottom) < np.finfo(value.dtype).tiny
        exponent = e_top - e_bottom
        small_inverse, small_quotient = (
            _below(np.ones_like(top), bottom, smallest),
            _below(top, bottom, smallest),
        )
        scaled, marked = value, np.zeros(value.shape, np.bool_)
        is_bottom = value == bottom
        nothing = (top == 0) | (bottom == 0)
        cases = [
            (nothing, np.full_like(value, np.nan), False),
            (exponent >= far, np.where(is_bottom, value * up, value), True),
            (denormal_bottom, value * up, False),
            (small_inverse & small_quotient, np.where(is_bottom, value * down, value), True),
            (small_inverse, value * down, False),
            (small_quotient, np.where(value == top, value * up, value), True),
            (e_top <= (-103 if kind == "f32" else -969), value * up, False),
        ]
        for condition, result, mark in reversed(cases):
            scaled = np.where(condition, result, scaled)
            marked = np.where(condition, mark, marked)
        write(m, scaled.astype(value.dtype))
        flag(m, marked)

    return step


def _below(top: Array, bottom: Array, exponent: int) -> Array:
    """Where the magnitude of top / bottom, before it is rounded, is less than 2**exponent."""
    (m_top, e_top), (m_bottom, e_bottom) = np.frexp(top), np.frexp(bottom)
    return (e_top - e_bottom < exponent) | (
        (e_top - e_bottom == exponent) & (np.abs(m_top) < np.abs(m_bottom))
    )


@builds("v_div_fmas_f32", "v_div_fmas_f64")
def _division_step(d: Decoder) -> Step:
    d.allow_vector()
    d.expect(4)
    kind = d.instruction.name[-3:]
    d.note_vcc(False)
    power, dtype = (64, np.float32) if kind == "f32" else (128, np.float64)
    write = d.result(0, kind)
    x, y, z = (d.source(1 + i, kind, i) for i in range(3))

    def step(m: Machine) -> None:
        operands = x(m), y(m), z(m)
        scale = np.where(m.mask_of(VCC), np.where(np.abs(operands[2]) >= 2, power, -power), 0)
        # a quotient below the normal numbers is rounded once, after it is scaled
        left, right, addend = (operand.astype(_F64) for operand in operands)
        scaled = a.fma64(left, right, addend, scale).astype(dtype)
        write(m, np.where(scale == 0, a.fma(*operands), scaled))

    return step


@builds("v_div_fixup_f32", "v_div_fixup_f64", "v_div_fixup_f16")
def _division_end(d: Decoder) -> Step:
    """The quotient, or what a division yields for special numerators and denominators."""
    d.allow_vector()
    d.expect(4)
    kind = d.instruction.name[-3:]

    def formula(quotient: Array, bottom: Array, top: Array) -> Array:
        negative = np.signbit(bottom) ^ np.signbit(top)
        sign = np.where(negative, quotient.dtype.type(-1), quotient.dtype.type(1))
        with np.errstate(all="ignore"):
            plain = top / bottom
        special = ~np.isfinite(top) | ~np.isfinite(bottom) | (top == 0) | (bottom == 0)
        exponent = np.frexp(top)[1] - np.frexp(bottom)[1]
        low, high = {2: (-1000, 1000), 4: (-150, 128), 8: (-1075, 1024)}[quotient.dtype.itemsize]
        out = np.where(
            exponent < low,
            sign * quotient.dtype.type(0),
            np.where(exponent > high, sign * np.inf, np.abs(quotient) * sign),
        )
        return np.where(special, plain, out).astype(quotient.dtype)

    return formula_step(d, kind, [kind] * 3, formula)
