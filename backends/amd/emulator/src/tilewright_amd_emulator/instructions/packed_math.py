"""Packed math (VOP3P): pairs of values, mixed precision, dot products within a lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright_amd_emulator.code.operand_types import KINDS, constant, flushed
from tilewright_amd_emulator.code.program import Step
from tilewright_amd_emulator.decode.decoder import TABLE, Decoder, Reader
from tilewright_amd_emulator.formats import arithmetic as a

if TYPE_CHECKING:
    from tilewright_amd_emulator.state.machine import Machine

Array = np.ndarray[Any, np.dtype[Any]]
Formula = Callable[..., Array]

_MODIFIERS = ("op_sel", "op_sel_hi", "neg_lo", "neg_hi", "clamp")


def _flags(d: Decoder, name: str, count: int, default: int) -> tuple[int, ...]:
    numbers = d.instruction.numbers(name)
    return (
        tuple(numbers[:count]) + (default,) * (count - len(numbers))
        if numbers is not None
        else (default,) * count
    )


def raw(d: Decoder, place: int) -> Reader:
    """All 32 bits of a source; a number written with a point is an f16 in the lower half."""
    operand = d.operands[place]
    if operand.kind == "real":
        value = np.array([[constant(operand, KINDS["f16"])]], np.uint32)
        return lambda m: value
    return d.whole(place)


def _half(word: Array, which: int, dtype: Any) -> Array:
    return (word >> np.uint32(16) if which else word).astype(np.uint16).view(dtype)


def _packed16(
    kind: str, formula: Formula, count: int, accumulates: bool = False
) -> Callable[[Decoder], Step]:
    dtype = KINDS[kind].dtype

    def build(d: Decoder) -> Step:
        d.allow(*_MODIFIERS)
        d.expect(1 + count - int(accumulates))
        places = list(range(1, len(d.operands))) + ([0] if accumulates else [])
        reads = [raw(d, place) for place in places]
        low, high = _flags(d, "op_sel", count, 0), _flags(d, "op_sel_hi", count, 1)
        negated = _flags(d, "neg_lo", count, 0), _flags(d, "neg_hi", count, 0)
        d.note_write(d.operands[0], 1)
        register, clamped = d.operands[0].index, "clamp" in d.instruction.modifiers
        flush = kind == "f16" and d.modes.denormals16 == 0
        info = None if kind[0] == "f" else np.iinfo(dtype)

        def side(words: list[Array], chosen: tuple[int, ...], signs: tuple[int, ...]) -> Array:
            values = [_half(word, which, dtype) for word, which in zip(words, chosen, strict=True)]
            if info is not None:
                if not clamped:
                    return formula(*values).astype(dtype).view(np.uint16)
                return (
                    np.clip(formula(*[v.astype(np.int64) for v in values]), info.min, info.max)
                    .astype(dtype)
                    .view(np.uint16)
                )
            values = [-value if sign else value for value, sign in zip(values, signs, strict=True)]
            values = [flushed(value) for value in values] if flush else values
            result = formula(*values)
            result = flushed(result) if flush else result
            if clamped:
                result = np.where(
                    np.isnan(result), np.float16(0), np.clip(result, np.float16(0), np.float16(1))
                )
            return result.astype(np.float16).view(np.uint16)

        def step(m: Machine) -> None:
            words = [read(m) for read in reads]
            lower, upper = side(words, low, negated[0]), side(words, high, negated[1])
            m.set_vector(
                register, lower.astype(np.uint32) | upper.astype(np.uint32) << np.uint32(16)
            )

        return step

    return build


def _packed32(formula: Formula, count: int) -> Callable[[Decoder], Step]:
    def build(d: Decoder) -> Step:
        d.allow(*_MODIFIERS)
        d.expect(1 + count)
        low, high = _flags(d, "op_sel", count, 0), _flags(d, "op_sel_hi", count, 1)
        negated = _flags(d, "neg_lo", count, 0), _flags(d, "neg_hi", count, 0)
        pairs = [_pair(d, 1 + i) for i in range(count)]
        flush = d.modes.denormals32 == 0
        d.note_write(d.operands[0], 2)
        register = d.operands[0].index

        def side(m: Machine, chosen: tuple[int, ...], signs: tuple[int, ...]) -> Array:
            words = [pair(m, which) for pair, which in zip(pairs, chosen, strict=True)]
            values = [
                -word.view(np.float32) if sign else word.view(np.float32)
                for word, sign in zip(words, signs, strict=True)
            ]
            values = [flushed(value) for value in values] if flush else values
            result = formula(*values)
            return (flushed(result) if flush else result).view(np.uint32)

        def step(m: Machine) -> None:
            lower, upper = side(m, low, negated[0]), side(m, high, negated[1])
            m.set_vector(register, lower)
            m.set_vector(register + 1, upper)

        return step

    return build


def _pair(d: Decoder, place: int) -> Callable[[Machine, int], Array]:
    """Words of a register pair: uint32 [waves, lanes]. A constant is the lower word."""
    operand = d.operands[place]
    d.note_read(operand, 2)
    index = operand.index
    if operand.kind == "v":
        return lambda m, which: m.vector(index + which)
    if operand.kind == "s":
        return lambda m, which: m.scalar(index + which)[:, None]
    uniform = d.uniform_operand(operand)
    return lambda m, which: uniform(m)[:, None] if which == 0 else np.zeros((1, 1), np.uint32)


def _move_pair(d: Decoder) -> Step:
    """The lower word of the result is of the first source, the upper one of the second."""
    d.allow(*_MODIFIERS)
    d.expect(3)
    chosen = d.instruction.numbers("op_sel") or (0, 0)
    first, second = _pair(d, 1), _pair(d, 2)
    d.note_write(d.operands[0], 2)
    register = d.operands[0].index

    def step(m: Machine) -> None:
        lower, upper = first(m, chosen[0]).copy(), second(m, chosen[1]).copy()
        m.set_vector(register, lower)
        m.set_vector(register + 1, upper)

    return step


TABLE["v_pk_mov_b32"] = _move_pair
TABLE["v_pk_fma_f32"] = _packed32(a.fma32, 3)
TABLE["v_pk_mul_f32"] = _packed32(lambda x, y: x * y, 2)
TABLE["v_pk_add_f32"] = _packed32(lambda x, y: x + y, 2)
_two: dict[str, Formula] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "min": a.minimum_number,
    "max": a.maximum_number,
    "min_num": a.minimum_number,
    "max_num": a.maximum_number,
    "minimum": a.minimum_nan,
    "maximum": a.maximum_nan,
}
for _name, _formula in _two.items():
    TABLE[f"v_pk_{_name}_f16"] = _packed16("f16", _formula, 2)
TABLE["v_pk_fma_f16"] = _packed16("f16", a.fma16, 3)
TABLE["v_pk_fmac_f16"] = _packed16("f16", a.fma16, 3, True)
TABLE["v_pk_minimum3_f16"] = _packed16(
    "f16", lambda x, y, z: a.minimum_nan(a.minimum_nan(x, y), z), 3
)
TABLE["v_pk_maximum3_f16"] = _packed16(
    "f16", lambda x, y, z: a.maximum_nan(a.maximum_nan(x, y), z), 3
)
for _kind in ("i16", "u16"):
    TABLE[f"v_pk_add_{_kind}"] = _packed16(_kind, lambda x, y: x + y, 2)
    TABLE[f"v_pk_sub_{_kind}"] = _packed16(_kind, lambda x, y: x - y, 2)
    TABLE[f"v_pk_mad_{_kind}"] = _packed16(_kind, lambda x, y, z: x * y + z, 3)
    TABLE[f"v_pk_min_{_kind}"] = _packed16(_kind, np.minimum, 2)
    TABLE[f"v_pk_max_{_kind}"] = _packed16(_kind, np.maximum, 2)
TABLE["v_pk_mul_lo_u16"] = _packed16("u16", lambda x, y: x * y, 2)
TABLE["v_pk_lshlrev_b16"] = _packed16("u16", a.shift_left, 2)
TABLE["v_pk_lshrrev_b16"] = _packed16("u16", a.shift_right, 2)
TABLE["v_pk_ashrrev_i16"] = _packed16("i16", a.shift_right, 2)


def _mixed(where: str) -> Callable[[Decoder], Step]:
    """Multiply and add in f32; op_sel_hi selects f16 sources, in the half that op_sel names.

    The result is f32, or one half of a register.
    """

    def build(d: Decoder) -> Step:
        d.allow(*_MODIFIERS)
        d.expect(4)
        low, wide = _flags(d, "op_sel", 3, 0), _flags(d, "op_sel_hi", 3, 0)
        reads = [_mixed_source(d, 1 + i, low[i], wide[i], i) for i in range(3)]
        d.note_write(d.operands[0], 1)
        if where != "f32":
            d.note_read(d.operands[0], 1)
        register, clamped = d.operands[0].index, "clamp" in d.instruction.modifiers
        flush = d.modes.denormals32 == 0

        def step(m: Machine) -> None:
            value = a.fma32(*[read(m) for read in reads])
            value = flushed(value) if flush else value
            if clamped:
                value = np.where(
                    np.isnan(value), np.float32(0), np.clip(value, np.float32(0), np.float32(1))
                )
            if where == "f32":
                m.set_vector(register, value.view(np.uint32))
                return
            half, old = (
                value.astype(np.float16).view(np.uint16).astype(np.uint32),
                m.vector(register),
            )
            m.set_vector(
                register,
                old & np.uint32(0xFFFF0000) | half
                if where == "lo"
                else old & np.uint32(0xFFFF) | half << np.uint32(16),
            )

        return step

    return build


def _mixed_source(d: Decoder, place: int, half: int, narrow: int, index: int) -> Reader:
    operand = d.operands[place]
    negated = operand.negated ^ bool(_flags(d, "neg_lo", 3, 0)[index])
    absolute = operand.absolute or bool(_flags(d, "neg_hi", 3, 0)[index])
    read = raw(d, place) if narrow or operand.kind != "real" else d.source(place, "b32", -1)

    def value(m: Machine) -> Array:
        word = read(m)
        real = _half(word, half, np.float16).astype(np.float32) if narrow else word.view(np.float32)
        real = np.abs(real) if absolute else real
        return -real if negated else real

    return value


for _name, _where in (
    ("v_fma_mix_f32", "f32"),
    ("v_fma_mixlo_f16", "lo"),
    ("v_fma_mixhi_f16", "hi"),
):
    TABLE[_name] = _mixed(_where)
    TABLE[_name.replace("fma", "mad")] = _mixed(_where)


def _parts(word: Array, width: int, signed: bool) -> list[Array]:
    """int64 of the parts of a word."""
    out = []
    for shift in range(0, 32, width):
        part = ((word >> np.uint32(shift)) & np.uint32((1 << width) - 1)).astype(np.int64)
        out.append(np.where(part >> (width - 1), part - (1 << width), part) if signed else part)
    return out


def _integer_dot(
    width: int, signed: bool | None, accumulates: bool = False
) -> Callable[[Decoder], Step]:
    """Unpack 32 bits into integers of ``width`` bits.

    neg_lo states which source is signed if ``signed`` is None.
    """

    def build(d: Decoder) -> Step:
        d.allow(
            *_MODIFIERS,
            *(("quad_perm", "row_mask", "bank_mask", "bound_ctrl", "dpp8", "fi") if d.dpp else ()),
        )
        signs = _flags(d, "neg_lo", 2, 0) if signed is None else (int(signed),) * 2
        x, y = d.source(1, "b32", 0), d.source(2, "b32", 1)
        any_signed = any(signs)
        total = d.source(0 if accumulates else 3, "i32" if any_signed else "u32", 2)
        d.note_write(d.operands[0], 1)
        register, clamped = d.operands[0].index, "clamp" in d.instruction.modifiers

        def step(m: Machine) -> None:
            value = total(m).astype(np.int64)
            for p, q in zip(
                _parts(x(m), width, bool(signs[0])),
                _parts(y(m), width, bool(signs[1])),
                strict=True,
            ):
                value = value + p * q
            if clamped:
                value = (
                    np.clip(value, -(1 << 31), (1 << 31) - 1)
                    if any_signed
                    else np.clip(value, 0, (1 << 32) - 1)
                )
            m.set_vector(register, value.astype(np.uint32))

        return step

    return build


TABLE["v_dot4_i32_i8"], TABLE["v_dot4_u32_u8"], TABLE["v_dot4_i32_iu8"] = (
    _integer_dot(8, True),
    _integer_dot(8, False),
    _integer_dot(8, None),
)
TABLE["v_dot8_i32_i4"], TABLE["v_dot8_u32_u4"], TABLE["v_dot8_i32_iu4"] = (
    _integer_dot(4, True),
    _integer_dot(4, False),
    _integer_dot(4, None),
)
TABLE["v_dot4c_i32_i8"], TABLE["v_dot8c_i32_i4"] = (
    _integer_dot(8, True, True),
    _integer_dot(4, True, True),
)
TABLE["v_dot2_i32_i16"], TABLE["v_dot2_u32_u16"] = _integer_dot(16, True), _integer_dot(16, False)


def _float_dot(brain: bool, accumulates: bool, narrow: bool = False) -> Callable[[Decoder], Step]:
    """Add two products of 16-bit floats and an f32, and round once.

    If ``narrow``, the addend and the result have 16 bits, and the result is rounded twice.
    """

    def build(d: Decoder) -> Step:
        d.allow(
            *_MODIFIERS,
            *(("quad_perm", "row_mask", "bank_mask", "bound_ctrl", "dpp8", "fi") if d.dpp else ()),
        )
        # a narrow one has op_sel for the halves of what is added, and of the result
        low, high = (
            ((0, 0), (1, 1))
            if narrow
            else (_flags(d, "op_sel", 2, 0), _flags(d, "op_sel_hi", 2, 1))
        )
        negated = _flags(d, "neg_lo", 3, 0), _flags(d, "neg_hi", 3, 0)
        kind = "u16" if narrow else "f32"
        x, y, total = raw(d, 1), raw(d, 2), d.source(0 if accumulates else 3, kind, 2)
        write = d.result(0, kind, 3)

        def halves(word: Array, index: int) -> list[Array]:
            out = []
            for which, sign in ((low[index], negated[0][index]), (high[index], negated[1][index])):
                value = (
                    a.bfloat_value(_half(word, which, np.uint16))
                    if brain
                    else _half(word, which, np.float16)
                )
                out.append(-value.astype(np.float64) if sign else value.astype(np.float64))
            return out

        def step(m: Machine) -> None:
            (a0, a1), (b0, b1) = halves(x(m), 0), halves(y(m), 1)
            addend = (a.bfloat_value(total(m)) if narrow else total(m)).astype(np.float64)
            found = (a0 * b0 + a1 * b1 + (-addend if negated[0][2] else addend)).astype(np.float32)
            write(m, a.bfloat_bits(found) if narrow else found)

        return step

    return build


for _name, _brain, _accumulates in (
    ("v_dot2_f32_f16", False, False), ("v_dot2_f32_bf16", True, False),
    ("v_dot2c_f32_f16", False, True), ("v_dot2c_f32_bf16", True, True),
    ("v_dot2acc_f32_f16", False, True), ("v_dot2acc_f32_bf16", True, True),
):  # fmt: skip
    TABLE[_name] = _float_dot(_brain, _accumulates)
TABLE["v_dot2_bf16_bf16"] = _float_dot(True, False, True)
