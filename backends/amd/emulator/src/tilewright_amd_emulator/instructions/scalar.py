"""Scalar instructions: one result for a wave."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright_amd_emulator.code.operand_types import KINDS, constant
from tilewright_amd_emulator.code.operands import EXEC, SCALARS
from tilewright_amd_emulator.code.program import Step
from tilewright_amd_emulator.decode.decoder import CODE_BASE, TABLE, Decoder, Writer, builds
from tilewright_amd_emulator.formats import arithmetic as a

if TYPE_CHECKING:
    from tilewright_amd_emulator.state.machine import Machine

Array = np.ndarray[Any, np.dtype[Any]]
Formula = Callable[..., Any]

_I64, _U64 = np.int64, np.uint64


def _nonzero(value: Array) -> Array:
    return value != 0


def _extract(x: Array, control: Array) -> Array:
    """Bits of a word; bits 0-4 (or 5) of the control are the offset, from 16 on the width."""
    bits = x.dtype.itemsize * 8
    offset, width = control & np.uint32(bits - 1), (control >> np.uint32(16)) & np.uint32(127)
    end = np.minimum(offset.astype(_I64) + width, bits)
    left = x.dtype.type(bits) - end.astype(x.dtype)
    unsigned = np.uint32 if bits == 32 else _U64
    moved = (x.view(unsigned) << left.astype(unsigned)).view(x.dtype)
    right = np.minimum(
        bits - width.astype(_I64) + np.maximum(offset.astype(_I64) + width - bits, 0), bits - 1
    )
    return np.where(width == 0, x.dtype.type(0), moved >> right.astype(x.dtype))


def _mask_bits(width: Array, offset: Array, dtype: Any, bits: int) -> Array:
    one = dtype(1)
    return ((one << (width & np.uint32(bits - 1)).astype(dtype)) - one) << (
        offset & np.uint32(bits - 1)
    ).astype(dtype)


def _absolute_difference(x: Array, y: Array) -> Array:
    return np.abs(x - y)


def _every_second_twice(x: Array) -> Array:
    out = np.zeros(x.shape, _U64)
    for bit in range(32):
        out |= ((x.astype(_U64) >> _U64(bit)) & _U64(1)) * _U64(3 << 2 * bit)
    return out


def _quads(x: Array) -> Array:
    """Each group of four bits becomes all ones where one is set."""
    one = x.dtype.type
    any_of = x | x >> one(1) | x >> one(2) | x >> one(3)
    lowest = any_of & one(int("1" * (x.dtype.itemsize * 2), 16))
    return lowest * one(15)


def _packed(low: int, high: int) -> Formula:
    return lambda x, y: (
        ((x >> np.uint32(16 * low)) & np.uint32(0xFFFF))
        | ((y >> np.uint32(16 * high)) & np.uint32(0xFFFF)) << np.uint32(16)
    )


#: name -> result, sources, formula, what SCC becomes (of the result), None where it is left alone
_ROWS: dict[str, tuple[str, str, Formula, Formula | None]] = {
    "s_mov_b32": ("b32", "b32", lambda x: x, None),
    "s_mov_b64": ("b64", "b64", lambda x: x, None),
    "s_brev_b32": ("b32", "b32", a.reversed_bits, None),
    "s_abs_i32": ("i32", "i32", np.abs, _nonzero),
    "s_sext_i32_i8": (
        "i32",
        "b32",
        lambda x: x.astype(np.uint8).view(np.int8).astype(np.int32),
        None,
    ),
    "s_sext_i32_i16": (
        "i32",
        "b32",
        lambda x: x.astype(np.uint16).view(np.int16).astype(np.int32),
        None,
    ),
    "s_mul_i32": ("u32", "u32 u32", lambda x, y: x * y, None),
    "s_mul_hi_u32": (
        "u32",
        "u32 u32",
        lambda x, y: ((x.astype(_U64) * y.astype(_U64)) >> _U64(32)).astype(np.uint32),
        None,
    ),
    "s_mul_hi_i32": (
        "i32",
        "i32 i32",
        lambda x, y: ((x.astype(_I64) * y.astype(_I64)) >> 32).astype(np.int32),
        None,
    ),
    "s_mul_u64": ("u64", "u64 u64", lambda x, y: x * y, None),
    "s_add_nc_u64": ("u64", "u64 u64", lambda x, y: x + y, None),
    "s_sub_nc_u64": ("u64", "u64 u64", lambda x, y: x - y, None),
    "s_absdiff_i32": ("i32", "i32 i32", _absolute_difference, _nonzero),
    "s_bfm_b32": ("b32", "b32 b32", lambda x, y: _mask_bits(x, y, np.uint32, 32), None),
    "s_bfm_b64": ("b64", "b32 b32", lambda x, y: _mask_bits(x, y, _U64, 64), None),
    "s_bfe_u32": ("u32", "u32 b32", _extract, _nonzero),
    "s_bfe_i32": ("i32", "i32 b32", _extract, _nonzero),
    "s_bfe_u64": ("u64", "u64 b32", _extract, _nonzero),
    "s_bfe_i64": ("i64", "i64 b32", _extract, _nonzero),
    "s_bitreplicate_b64_b32": ("b64", "b32", _every_second_twice, None),
    "s_pack_ll_b32_b16": ("b32", "b32 b32", _packed(0, 0), None),
    "s_pack_lh_b32_b16": ("b32", "b32 b32", _packed(0, 1), None),
    "s_pack_hh_b32_b16": ("b32", "b32 b32", _packed(1, 1), None),
    "s_pack_hl_b32_b16": ("b32", "b32 b32", _packed(1, 0), None),
    "s_ff1_i32_b32": ("u32", "b32", a.first_low, None),
    "s_ff1_i32_b64": ("u32", "b64", a.first_low, None),
    "s_ctz_i32_b32": ("u32", "b32", a.first_low, None),
    "s_ctz_i32_b64": ("u32", "b64", a.first_low, None),
    "s_flbit_i32_b32": ("u32", "b32", a.first_high, None),
    "s_flbit_i32_b64": ("u32", "b64", a.first_high, None),
    "s_clz_i32_u32": ("u32", "b32", a.first_high, None),
    "s_clz_i32_u64": ("u32", "b64", a.first_high, None),
    "s_flbit_i32": ("u32", "i32", a.first_high_signed, None),
    "s_flbit_i32_i64": ("u32", "i64", a.first_high_signed, None),
    "s_cls_i32": ("u32", "i32", a.first_high_signed, None),
    "s_cls_i32_i64": ("u32", "i64", a.first_high_signed, None),
    "s_cvt_f32_i32": ("f32", "i32", lambda x: x.astype(np.float32), None),
    "s_cvt_f32_u32": ("f32", "u32", lambda x: x.astype(np.float32), None),
    "s_cvt_i32_f32": ("i32", "f32", lambda x: a.to_integer(x, np.int32), None),
    "s_cvt_u32_f32": ("u32", "f32", lambda x: a.to_integer(x, np.uint32), None),
    "s_cvt_f16_f32": (
        "b32",
        "f32",
        lambda x: x.astype(np.float16).view(np.uint16).astype(np.uint32),
        None,
    ),
    "s_cvt_f32_f16": ("f32", "f16", lambda x: x.astype(np.float32), None),
    "s_cvt_hi_f32_f16": (
        "f32",
        "b32",
        lambda x: (x >> np.uint32(16)).astype(np.uint16).view(np.float16).astype(np.float32),
        None,
    ),
    "s_add_f32": ("f32", "f32 f32", lambda x, y: x + y, None),
    "s_sub_f32": ("f32", "f32 f32", lambda x, y: x - y, None),
    "s_mul_f32": ("f32", "f32 f32", lambda x, y: x * y, None),
    "s_min_f32": ("f32", "f32 f32", a.minimum_number, None),
    "s_max_f32": ("f32", "f32 f32", a.maximum_number, None),
    "s_min_num_f32": ("f32", "f32 f32", a.minimum_number, None),
    "s_max_num_f32": ("f32", "f32 f32", a.maximum_number, None),
    "s_minimum_f32": ("f32", "f32 f32", a.minimum_nan, None),
    "s_maximum_f32": ("f32", "f32 f32", a.maximum_nan, None),
    "s_ceil_f32": ("f32", "f32", np.ceil, None),
    "s_floor_f32": ("f32", "f32", np.floor, None),
    "s_trunc_f32": ("f32", "f32", np.trunc, None),
    "s_rndne_f32": ("f32", "f32", np.rint, None),
    "s_add_f16": ("f16", "f16 f16", lambda x, y: x + y, None),
    "s_sub_f16": ("f16", "f16 f16", lambda x, y: x - y, None),
    "s_mul_f16": ("f16", "f16 f16", lambda x, y: x * y, None),
    "s_min_num_f16": ("f16", "f16 f16", a.minimum_number, None),
    "s_max_num_f16": ("f16", "f16 f16", a.maximum_number, None),
    "s_minimum_f16": ("f16", "f16 f16", a.minimum_nan, None),
    "s_maximum_f16": ("f16", "f16 f16", a.maximum_nan, None),
    "s_ceil_f16": ("f16", "f16", np.ceil, None),
    "s_floor_f16": ("f16", "f16", np.floor, None),
    "s_trunc_f16": ("f16", "f16", np.trunc, None),
    "s_rndne_f16": ("f16", "f16", np.rint, None),
    "s_fmaak_f32": ("f32", "f32 f32 f32", a.fma, None),
    "s_fmamk_f32": ("f32", "f32 f32 f32", a.fma, None),
}
for _b in ("b32", "b64"):
    _ROWS |= {
        f"s_not_{_b}": (_b, _b, lambda x: ~x, _nonzero),
        f"s_and_{_b}": (_b, f"{_b} {_b}", lambda x, y: x & y, _nonzero),
        f"s_or_{_b}": (_b, f"{_b} {_b}", lambda x, y: x | y, _nonzero),
        f"s_xor_{_b}": (_b, f"{_b} {_b}", lambda x, y: x ^ y, _nonzero),
        f"s_nand_{_b}": (_b, f"{_b} {_b}", lambda x, y: ~(x & y), _nonzero),
        f"s_nor_{_b}": (_b, f"{_b} {_b}", lambda x, y: ~(x | y), _nonzero),
        f"s_xnor_{_b}": (_b, f"{_b} {_b}", lambda x, y: ~(x ^ y), _nonzero),
        f"s_andn2_{_b}": (_b, f"{_b} {_b}", lambda x, y: x & ~y, _nonzero),
        f"s_and_not1_{_b}": (_b, f"{_b} {_b}", lambda x, y: x & ~y, _nonzero),
        f"s_orn2_{_b}": (_b, f"{_b} {_b}", lambda x, y: x | ~y, _nonzero),
        f"s_or_not1_{_b}": (_b, f"{_b} {_b}", lambda x, y: x | ~y, _nonzero),
        f"s_lshl_{_b}": (_b, f"{_b} b32", lambda x, y: a.shift_left(y, x), _nonzero),
        f"s_lshr_{_b}": (_b, f"{_b} b32", lambda x, y: a.shift_right(y, x), _nonzero),
        f"s_wqm_{_b}": (_b, _b, _quads, _nonzero),
        f"s_bcnt0_i32_{_b}": ("u32", _b, lambda x: a.ones(~x), _nonzero),
        f"s_bcnt1_i32_{_b}": ("u32", _b, a.ones, _nonzero),
        f"s_ashr_{_b.replace('b', 'i')}": (
            _b.replace("b", "i"),
            f"{_b.replace('b', 'i')} b32",
            lambda x, y: a.shift_right(y, x),
            _nonzero,
        ),
    }


def _row(name: str) -> Callable[[Decoder], Step]:
    result, sources, formula, flag = _ROWS[name]
    kinds = sources.split()

    def build(d: Decoder) -> Step:
        d.allow()
        d.expect(1 + len(kinds))
        readers = [d.uniform(1 + i, kind) for i, kind in enumerate(kinds)]
        write = d.uniform_result(0, result)

        def step(m: Machine) -> None:
            value = formula(*[read(m) for read in readers])
            if flag is not None:
                m.scc[m.selected] = flag(value)
            write(m, value)

        return step

    return build


for _name in _ROWS:
    TABLE[_name] = _row(_name)


def _sum(
    kind: str, formula: Formula, overflow: Formula, carries: bool = False
) -> Callable[[Decoder], Step]:
    """Make the builder of an addition or subtraction in int64 that also sets SCC."""
    dtype = KINDS[kind].dtype

    def build(d: Decoder) -> Step:
        d.allow()
        x, y = d.uniform(1, kind), d.uniform(2, kind)
        write = d.uniform_result(0, kind)

        def step(m: Machine) -> None:
            left, right = x(m).astype(_I64), y(m).astype(_I64)
            total = (
                formula(left, right, m.scc[m.selected].astype(_I64))
                if carries
                else formula(left, right)
            )
            m.scc[m.selected] = overflow(total)
            write(m, total.astype(dtype))

        return step

    return build


def _carry(total: Array) -> Array:
    return (total >> 32) != 0


def _overflow(total: Array) -> Array:
    return total != total.astype(np.int32)


for _names, _kind, _formula, _flag, _with in (
    (("s_add_u32", "s_add_co_u32"), "u32", lambda x, y: x + y, _carry, False),
    (("s_sub_u32", "s_sub_co_u32"), "u32", lambda x, y: x - y, _carry, False),
    (("s_addc_u32", "s_add_co_ci_u32"), "u32", lambda x, y, c: x + y + c, _carry, True),
    (("s_subb_u32", "s_sub_co_ci_u32"), "u32", lambda x, y, c: x - y - c, _carry, True),
    (("s_add_i32", "s_add_co_i32"), "i32", lambda x, y: x + y, _overflow, False),
    (("s_sub_i32", "s_sub_co_i32"), "i32", lambda x, y: x - y, _overflow, False),
    (("s_lshl1_add_u32",), "u32", lambda x, y: (x << 1) + y, _carry, False),
    (("s_lshl2_add_u32",), "u32", lambda x, y: (x << 2) + y, _carry, False),
    (("s_lshl3_add_u32",), "u32", lambda x, y: (x << 3) + y, _carry, False),
    (("s_lshl4_add_u32",), "u32", lambda x, y: (x << 4) + y, _carry, False),
):
    for _name in _names:
        TABLE[_name] = _sum(_kind, _formula, _flag, _with)


def _extreme(kind: str, lower: bool) -> Callable[[Decoder], Step]:
    def build(d: Decoder) -> Step:
        d.allow()
        x, y, write = d.uniform(1, kind), d.uniform(2, kind), d.uniform_result(0, kind)

        def step(m: Machine) -> None:
            left, right = x(m), y(m)
            first = left < right if lower else left > right
            m.scc[m.selected] = first
            write(m, np.where(first, left, right))

        return step

    return build


for _kind in ("i32", "u32"):
    TABLE[f"s_min_{_kind}"], TABLE[f"s_max_{_kind}"] = _extreme(_kind, True), _extreme(_kind, False)

_COMPARISONS: dict[str, Formula] = {
    "eq": lambda x, y: x == y,
    "lg": lambda x, y: x != y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
}
_FLOAT_COMPARISONS: dict[str, Formula] = {
    "eq": lambda x, y: x == y,
    "lg": lambda x, y: (x < y) | (x > y),
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "neq": lambda x, y: ~(x == y),
    "nlg": lambda x, y: ~((x < y) | (x > y)),
    "ngt": lambda x, y: ~(x > y),
    "nge": lambda x, y: ~(x >= y),
    "nlt": lambda x, y: ~(x < y),
    "nle": lambda x, y: ~(x <= y),
    "o": lambda x, y: ~(np.isnan(x) | np.isnan(y)),
    "u": lambda x, y: np.isnan(x) | np.isnan(y),
}


def _comparison(kind: str, compare: Formula) -> Callable[[Decoder], Step]:
    def build(d: Decoder) -> Step:
        d.allow()
        d.expect(2)
        x, y = d.uniform(0, kind), d.uniform(1, kind)

        def step(m: Machine) -> None:
            m.scc[m.selected] = compare(x(m), y(m))

        return step

    return build


def _short(d: Decoder, signed: bool = True) -> int:
    """The literal of 16 bits behind the first operand, extended."""
    bits = constant(d.operands[1], KINDS["b32"]) & 0xFFFF
    return bits - 0x10000 if signed and bits >> 15 else bits


def _short_comparison(kind: str, compare: Formula) -> Callable[[Decoder], Step]:
    def build(d: Decoder) -> Step:
        d.allow()
        d.expect(2)
        x, y = d.uniform(0, kind), np.array([_short(d, kind == "i32")], KINDS[kind].dtype)

        def step(m: Machine) -> None:
            m.scc[m.selected] = compare(x(m), y)

        return step

    return build


for _kind in ("i32", "u32"):
    for _which, _compare in _COMPARISONS.items():
        TABLE[f"s_cmp_{_which}_{_kind}"] = _comparison(_kind, _compare)
        TABLE[f"s_cmpk_{_which}_{_kind}"] = _short_comparison(_kind, _compare)
for _which in ("eq", "lg"):
    TABLE[f"s_cmp_{_which}_u64"] = _comparison("u64", _COMPARISONS[_which])
for _kind in ("f32", "f16"):
    for _which, _compare in _FLOAT_COMPARISONS.items():
        TABLE[f"s_cmp_{_which}_{_kind}"] = _comparison(_kind, _compare)


def _bit_test(kind: str, wanted: int) -> Callable[[Decoder], Step]:
    dtype = KINDS[kind].dtype

    def build(d: Decoder) -> Step:
        x, y = d.uniform(0, kind), d.uniform(1, "b32")

        def step(m: Machine) -> None:
            m.scc[m.selected] = (a.shift_right(y(m), x(m)) & dtype(1)) == wanted

        return step

    return build


for _kind in ("b32", "b64"):
    for _bit in (0, 1):
        TABLE[f"s_bitcmp{_bit}_{_kind}"] = _bit_test(_kind, _bit)


@builds("s_bitset0_b32", "s_bitset1_b32", "s_bitset0_b64", "s_bitset1_b64")
def _bit_set(d: Decoder) -> Step:
    kind, one = d.instruction.name[-3:], d.instruction.name[8] == "1"
    dtype = KINDS[kind].dtype
    place, old, write = d.uniform(1, "b32"), d.uniform(0, kind), d.uniform_result(0, kind)

    def step(m: Machine) -> None:
        bit = a.shift_left(place(m), np.ones(1, dtype))
        write(m, old(m) | bit if one else old(m) & ~bit)

    return step


@builds("s_movk_i32", "s_addk_i32", "s_addk_co_i32", "s_mulk_i32")
def _short_literal(d: Decoder) -> Step:
    d.allow()
    value = np.array([_short(d)], np.int64)
    write = d.uniform_result(0, "i32")
    if d.instruction.name == "s_movk_i32":
        moved = value.astype(np.int32)
        return lambda m: write(m, moved)
    old, adds = d.uniform(0, "i32"), "addk" in d.instruction.name

    def step(m: Machine) -> None:
        total = old(m).astype(_I64) + value if adds else old(m).astype(_I64) * value
        if adds:
            m.scc[m.selected] = _overflow(total)
        write(m, total.astype(np.int32))

    return step


@builds("s_fmac_f32", "s_fmac_f16")
def _multiply_add(d: Decoder) -> Step:
    kind = d.instruction.name[-3:]
    x, y, total, write = (
        d.uniform(1, kind),
        d.uniform(2, kind),
        d.uniform(0, kind),
        d.uniform_result(0, kind),
    )
    return lambda m: write(m, a.fma(x(m), y(m), total(m)))


@builds("s_cselect_b32", "s_cselect_b64")
def _select(d: Decoder) -> Step:
    d.allow()
    kind = d.instruction.name[-3:]
    x, y, write = d.uniform(1, kind), d.uniform(2, kind), d.uniform_result(0, kind)
    return lambda m: write(m, np.where(m.scc[m.selected], x(m), y(m)))


@builds("s_cmov_b32", "s_cmov_b64")
def _conditional_move(d: Decoder) -> Step:
    kind = d.instruction.name[-3:]
    x, old, write = d.uniform(1, kind), d.uniform(0, kind), d.uniform_result(0, kind)
    return lambda m: write(m, np.where(m.scc[m.selected], x(m), old(m)))


@builds("s_cmovk_i32")
def _conditional_short_literal(d: Decoder) -> Step:
    value, old, write = (
        np.array([_short(d)], np.int32),
        d.uniform(0, "i32"),
        d.uniform_result(0, "i32"),
    )
    return lambda m: write(m, np.where(m.scc[m.selected], value, old(m)))


_SAVING: dict[str, Formula] = {
    "and": lambda s, e: s & e,
    "or": lambda s, e: s | e,
    "xor": lambda s, e: s ^ e,
    "andn1": lambda s, e: ~s & e,
    "and_not0": lambda s, e: ~s & e,
    "andn2": lambda s, e: s & ~e,
    "and_not1": lambda s, e: s & ~e,
    "orn1": lambda s, e: ~s | e,
    "or_not0": lambda s, e: ~s | e,
    "orn2": lambda s, e: s | ~e,
    "or_not1": lambda s, e: s | ~e,
    "nand": lambda s, e: ~(s & e),
    "nor": lambda s, e: ~(s | e),
    "xnor": lambda s, e: ~(s ^ e),
}


def _saving(formula: Formula, kind: str, saves: bool) -> Callable[[Decoder], Step]:
    """Set EXEC to a function of EXEC and a source.

    The result is the old EXEC (saveexec) or the new one (wrexec).
    """

    def build(d: Decoder) -> Step:
        d.allow()
        x, write = d.uniform(1, kind), d.uniform_result(0, kind)

        def step(m: Machine) -> None:
            old = m.scalar64(EXEC) if kind == "b64" else m.scalar(EXEC)
            new = np.broadcast_to(formula(x(m), old), old.shape)
            m.scc[m.selected] = new != 0
            write(m, old if saves else new)
            (m.set_scalar64 if kind == "b64" else m.set_scalar)(EXEC, new)

        return step

    return build


for _which, _formula in _SAVING.items():
    for _kind in ("b32", "b64"):
        TABLE[f"s_{_which}_saveexec_{_kind}"] = _saving(_formula, _kind, True)
        TABLE[f"s_{_which}_wrexec_{_kind}"] = _saving(_formula, _kind, False)


@builds("s_getpc_b64")
def _program_counter(d: Decoder) -> Step:
    write = d.uniform_result(0, "b64")
    value = np.array([CODE_BASE], _U64)
    return lambda m: write(m, value)


def _relative(d: Decoder, from_scalar: bool) -> Step:
    """A scalar register chosen by M0."""
    d.note_m0()
    wide = d.instruction.name.endswith("b64")
    operand = d.operands[1 if from_scalar else 0]
    base = operand.index
    if from_scalar:
        write: Writer = d.uniform_result(0, "b64" if wide else "b32")

        def step(m: Machine) -> None:
            index = np.minimum(base + m.m0().astype(_I64), SCALARS - 2)
            low = m.scalars[index, m.numbers]
            write(
                m, low | m.scalars[index + 1, m.numbers].astype(_U64) << _U64(32) if wide else low
            )

        return step
    read = d.uniform(1, "b64" if wide else "b32")

    def store(m: Machine) -> None:
        index = np.minimum(base + m.m0().astype(_I64), SCALARS - 2)
        value = np.broadcast_to(read(m), (m.count,))
        m.scalars[index, m.numbers] = value.astype(np.uint32)
        if wide:
            m.scalars[index + 1, m.numbers] = (value >> _U64(32)).astype(np.uint32)

    return store


@builds("s_movrels_b32", "s_movrels_b64")
def _relative_source(d: Decoder) -> Step:
    return _relative(d, True)


@builds("s_movreld_b32", "s_movreld_b64")
def _relative_result(d: Decoder) -> Step:
    return _relative(d, False)
