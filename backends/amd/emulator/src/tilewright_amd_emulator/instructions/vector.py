"""Lane-wise vector instructions: the kinds of results and sources, and a formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright_amd_emulator.code.operand_types import KINDS, flushed, modified
from tilewright_amd_emulator.code.operands import VCC
from tilewright_amd_emulator.code.program import Step
from tilewright_amd_emulator.decode.decoder import TABLE, Decoder, Reader, builds
from tilewright_amd_emulator.formats import arithmetic as a

if TYPE_CHECKING:
    from tilewright_amd_emulator.state.machine import Machine

Array = np.ndarray[Any, np.dtype[Any]]
Formula = Callable[..., Array]

_U64, _I64, _F64 = np.uint64, np.int64, np.float64


def _low24(x: Array) -> Array:
    return x & x.dtype.type(0xFFFFFF)


def _signed24(x: Array) -> Array:
    return (x << np.int32(8)) >> np.int32(8)


def _high(x: Array, y: Array, wide: Any) -> Array:
    return ((x.astype(wide) * y.astype(wide)) >> wide(32)).astype(x.dtype)


def _align(high: Array, low: Array, amount: Array, unit: int) -> Array:
    shift = (amount & np.uint32(31 if unit == 1 else 3)).astype(_U64) * _U64(unit)
    return ((low.astype(_U64) | high.astype(_U64) << _U64(32)) >> shift).astype(np.uint32)


def _sad(x: Array, y: Array, total: Array) -> Array:
    for shift in (0, 8, 16, 24):
        p, q = (x >> np.uint32(shift)) & np.uint32(255), (y >> np.uint32(shift)) & np.uint32(255)
        total = total + (np.maximum(p, q) - np.minimum(p, q))
    return total


def _legacy_product(x: Array, y: Array) -> Array:
    return np.where((x == 0) | (y == 0), np.float32(0), x * y)


def _exp2(x: Array) -> Array:
    result = np.exp2(x.astype(_F64)).astype(x.dtype)
    return (
        np.where(np.abs(result) < np.float32(1.17549435e-38), np.float32(0), result)
        if x.dtype == np.float32
        else result
    )


def _log2(x: Array) -> Array:
    if x.dtype == np.float32:  # denormals count as zeros
        x = np.where(np.abs(x) < np.float32(1.17549435e-38), np.float32(0), x)
    return np.log2(x.astype(_F64)).astype(x.dtype)


def _turns(function: Callable[[Array], Array]) -> Formula:
    def formula(x: Array) -> Array:
        turns = x.astype(_F64)
        return np.where(
            np.isfinite(turns), function((turns - np.floor(turns)) * (2 * np.pi)), np.nan
        ).astype(x.dtype)

    return formula


def _fraction(x: Array) -> Array:
    largest = np.nextafter(x.dtype.type(1), x.dtype.type(0))
    return np.minimum(x - np.floor(x), largest)


def _exponent(x: Array) -> Array:
    return np.where(np.isfinite(x), np.frexp(x)[1], 0).astype(np.int32)


def _mantissa(x: Array) -> Array:
    return np.where(np.isfinite(x), np.frexp(x)[0], x).astype(x.dtype)


def _scaled(x: Array, exponent: Array) -> Array:
    return np.ldexp(x.astype(_F64), np.clip(exponent.astype(np.int32), -3000, 3000)).astype(x.dtype)


def _reciprocal(x: Array) -> Array:
    return (1 / x.astype(_F64)).astype(x.dtype)


def _root(x: Array) -> Array:
    return np.sqrt(x.astype(_F64)).astype(x.dtype)


def _inverse_root(x: Array) -> Array:
    return (1 / np.sqrt(x.astype(_F64))).astype(x.dtype)


def _byte(place: int) -> Formula:
    return lambda x: ((x >> np.uint32(8 * place)) & np.uint32(255)).astype(np.float32)


def _pack(low: Array, high: Array) -> Array:
    return low.view(np.uint16).astype(np.uint32) | high.view(np.uint16).astype(
        np.uint32
    ) << np.uint32(16)


def _toward_zero16(x: Array) -> Array:
    """f32 to f16 towards zero."""
    near = x.astype(np.float16)
    further = np.abs(near.astype(np.float32)) > np.abs(x)
    return np.where(
        further & ~np.isnan(x), np.where(np.isinf(x), near, np.nextafter(near, np.float16(0))), near
    ).astype(np.float16)


def _norm16(x: Array, low: int, high: int, dtype: Any) -> Array:
    scaled = np.rint(np.clip(np.nan_to_num(x.astype(_F64)), -1 if low else 0, 1) * high)
    return scaled.astype(np.int64).astype(dtype)


def _saturated(x: Array, dtype: Any) -> Array:
    info = np.iinfo(dtype)
    return np.clip(
        x, x.dtype.type(max(info.min, np.iinfo(x.dtype).min)), x.dtype.type(info.max)
    ).astype(dtype)


def _convert(dtype: Any) -> Formula:
    return lambda x: x.astype(dtype)


def _integer(dtype: Any, rounding: Formula | None = None) -> Formula:
    return lambda x: a.to_integer(x if rounding is None else rounding(x), dtype)


def _half_up(x: Array) -> Array:
    return np.floor(x + np.float32(0.5))


def _packed(convert: Formula) -> Formula:
    """Return the formula that packs the conversions of two numbers into one register."""
    return lambda x, y: _pack(convert(x), convert(y))


def _widening_mad(dtype: Any) -> Formula:
    return lambda x, y, z: x.astype(dtype) * y.astype(dtype) + z


def _field_mask(width: Array, offset: Array) -> Array:
    ones = (np.uint32(1) << (width & np.uint32(31))) - np.uint32(1)
    return ones << (offset & np.uint32(31))


def _bit_op3(x: Array, y: Array, z: Array, table: int) -> Array:
    out = np.zeros(np.broadcast_shapes(x.shape, y.shape, z.shape), x.dtype)
    for place in range(8):
        if table >> place & 1:
            out |= (x if place & 4 else ~x) & (y if place & 2 else ~y) & (z if place & 1 else ~z)
    return out


_Row = tuple[str, str, Formula]


def _of_three(kind: str, extrema: dict[str, Formula], form: str = "") -> dict[str, _Row]:
    """Return the table rows of three-operand extrema: v_min3, v_minmax and others.

    ``form`` is the form of the instruction.
    """

    def row(first: Formula, then: Formula) -> _Row:
        return kind, f"{kind} {kind} {kind}", lambda x, y, z: then(first(x, y), z)

    return {
        f"v_{first}{3 if first == then else then}_{form}{kind}": row(extrema[first], extrema[then])
        for first in extrema
        for then in extrema
    }


#: name -> kind of the result, kinds of the sources, formula
_ROWS: dict[str, _Row] = {
    "v_mov_b32": ("b32", "b32", lambda x: x),
    "v_mov_b16": ("b16", "b16", lambda x: x),
    "v_mov_b64": ("b64", "b64", lambda x: x),
    "v_accvgpr_read_b32": ("b32", "b32", lambda x: x),
    "v_accvgpr_write_b32": ("b32", "b32", lambda x: x),
    "v_accvgpr_mov_b32": ("b32", "b32", lambda x: x),
    "v_not_b32": ("b32", "b32", lambda x: ~x),
    "v_not_b16": ("b16", "b16", lambda x: ~x),
    "v_bfrev_b32": ("b32", "b32", a.reversed_bits),
    "v_ffbh_u32": ("u32", "u32", a.first_high),
    "v_clz_i32_u32": ("u32", "u32", a.first_high),
    "v_ffbh_i32": ("u32", "i32", a.first_high_signed),
    "v_cls_i32": ("u32", "i32", a.first_high_signed),
    "v_ffbl_b32": ("u32", "u32", a.first_low),
    "v_ctz_i32_b32": ("u32", "u32", a.first_low),
    "v_bcnt_u32_b32": ("u32", "u32 u32", lambda x, y: a.ones(x) + y),
    "v_and_b32": ("b32", "b32 b32", lambda x, y: x & y),
    "v_or_b32": ("b32", "b32 b32", lambda x, y: x | y),
    "v_xor_b32": ("b32", "b32 b32", lambda x, y: x ^ y),
    "v_xnor_b32": ("b32", "b32 b32", lambda x, y: ~(x ^ y)),
    "v_and_b16": ("b16", "b16 b16", lambda x, y: x & y),
    "v_or_b16": ("b16", "b16 b16", lambda x, y: x | y),
    "v_xor_b16": ("b16", "b16 b16", lambda x, y: x ^ y),
    "v_and_or_b32": ("b32", "b32 b32 b32", lambda x, y, z: x & y | z),
    "v_or3_b32": ("b32", "b32 b32 b32", lambda x, y, z: x | y | z),
    "v_xor3_b32": ("b32", "b32 b32 b32", lambda x, y, z: x ^ y ^ z),
    "v_bfi_b32": ("b32", "b32 b32 b32", lambda x, y, z: x & y | ~x & z),
    "v_bfe_u32": ("u32", "u32 u32 u32", a.field),
    "v_bfe_i32": ("i32", "i32 u32 u32", a.field),
    "v_bfm_b32": ("b32", "b32 b32", _field_mask),
    "v_perm_b32": ("b32", "b32 b32 b32", a.permuted_bytes),
    "v_alignbit_b32": ("b32", "b32 b32 b32", lambda x, y, z: _align(x, y, z, 1)),
    "v_alignbyte_b32": ("b32", "b32 b32 b32", lambda x, y, z: _align(x, y, z, 8)),
    "v_lshlrev_b32": ("b32", "b32 b32", a.shift_left),
    "v_lshrrev_b32": ("b32", "b32 b32", a.shift_right),
    "v_ashrrev_i32": ("i32", "b32 i32", a.shift_right),
    "v_lshlrev_b16": ("b16", "b16 b16", a.shift_left),
    "v_lshrrev_b16": ("b16", "b16 b16", a.shift_right),
    "v_ashrrev_i16": ("i16", "b16 i16", a.shift_right),
    "v_lshlrev_b64": ("b64", "b32 b64", a.shift_left),
    "v_lshrrev_b64": ("b64", "b32 b64", a.shift_right),
    "v_ashrrev_i64": ("i64", "b32 i64", a.shift_right),
    "v_lshl_or_b32": ("b32", "b32 b32 b32", lambda x, y, z: a.shift_left(y, x) | z),
    "v_lshl_add_u32": ("u32", "u32 u32 u32", lambda x, y, z: a.shift_left(y, x) + z),
    "v_add_lshl_u32": ("u32", "u32 u32 u32", lambda x, y, z: a.shift_left(z, x + y)),
    "v_lshl_add_u64": ("u64", "u64 b32 u64", lambda x, y, z: a.shift_left(y, x) + z),
    "v_xad_u32": ("u32", "u32 u32 u32", lambda x, y, z: (x ^ y) + z),
    "v_add3_u32": ("u32", "u32 u32 u32", lambda x, y, z: x + y + z),
    "v_mul_lo_u32": ("u32", "u32 u32", lambda x, y: x * y),
    "v_mul_hi_u32": ("u32", "u32 u32", lambda x, y: _high(x, y, _U64)),
    "v_mul_hi_i32": ("i32", "i32 i32", lambda x, y: _high(x, y, _I64)),
    "v_mul_u32_u24": ("u32", "u32 u32", lambda x, y: _low24(x) * _low24(y)),
    "v_mul_i32_i24": ("i32", "i32 i32", lambda x, y: _signed24(x) * _signed24(y)),
    "v_mul_hi_u32_u24": ("u32", "u32 u32", lambda x, y: _high(_low24(x), _low24(y), _U64)),
    "v_mul_hi_i32_i24": ("i32", "i32 i32", lambda x, y: _high(_signed24(x), _signed24(y), _I64)),
    "v_mad_u32_u24": ("u32", "u32 u32 u32", lambda x, y, z: _low24(x) * _low24(y) + z),
    "v_mad_i32_i24": ("i32", "i32 i32 i32", lambda x, y, z: _signed24(x) * _signed24(y) + z),
    "v_mul_lo_u16": ("u16", "u16 u16", lambda x, y: x * y),
    "v_mad_u16": ("u16", "u16 u16 u16", lambda x, y, z: x * y + z),
    "v_mad_legacy_u16": ("u16", "u16 u16 u16", lambda x, y, z: x * y + z),
    "v_mad_legacy_i16": ("i16", "i16 i16 i16", lambda x, y, z: x * y + z),
    "v_mad_i16": ("i16", "i16 i16 i16", lambda x, y, z: x * y + z),
    "v_mad_u32_u16": ("u32", "u16 u16 u32", _widening_mad(np.uint32)),
    "v_mad_i32_i16": ("i32", "i16 i16 i32", _widening_mad(np.int32)),
    "v_sad_u8": ("u32", "u32 u32 u32", _sad),
    "v_sad_u32": ("u32", "u32 u32 u32", lambda x, y, z: np.maximum(x, y) - np.minimum(x, y) + z),
    "v_cvt_f32_i32": ("f32", "i32", _convert(np.float32)),
    "v_cvt_f32_u32": ("f32", "u32", _convert(np.float32)),
    "v_cvt_f64_i32": ("f64", "i32", _convert(np.float64)),
    "v_cvt_f64_u32": ("f64", "u32", _convert(np.float64)),
    "v_cvt_f32_f64": ("f32", "f64", _convert(np.float32)),
    "v_cvt_f64_f32": ("f64", "f32", _convert(np.float64)),
    "v_cvt_f16_f32": ("f16", "f32", _convert(np.float16)),
    "v_cvt_f32_f16": ("f32", "f16", _convert(np.float32)),
    "v_cvt_f16_i16": ("f16", "i16", _convert(np.float16)),
    "v_cvt_f16_u16": ("f16", "u16", _convert(np.float16)),
    "v_cvt_i16_f16": ("i16", "f16", _integer(np.int16)),
    "v_cvt_u16_f16": ("u16", "f16", _integer(np.uint16)),
    "v_cvt_i32_i16": ("i32", "i16", _convert(np.int32)),
    "v_cvt_u32_u16": ("u32", "u16", _convert(np.uint32)),
    "v_cvt_i32_f32": ("i32", "f32", _integer(np.int32)),
    "v_cvt_u32_f32": ("u32", "f32", _integer(np.uint32)),
    "v_cvt_i32_f64": ("i32", "f64", _integer(np.int32)),
    "v_cvt_u32_f64": ("u32", "f64", _integer(np.uint32)),
    "v_cvt_rpi_i32_f32": ("i32", "f32", _integer(np.int32, _half_up)),
    "v_cvt_flr_i32_f32": ("i32", "f32", _integer(np.int32, np.floor)),
    "v_cvt_nearest_i32_f32": ("i32", "f32", _integer(np.int32, _half_up)),
    "v_cvt_floor_i32_f32": ("i32", "f32", _integer(np.int32, np.floor)),
    "v_cvt_f32_ubyte0": ("f32", "u32", _byte(0)),
    "v_cvt_f32_ubyte1": ("f32", "u32", _byte(1)),
    "v_cvt_f32_ubyte2": ("f32", "u32", _byte(2)),
    "v_cvt_f32_ubyte3": ("f32", "u32", _byte(3)),
    "v_cvt_pkrtz_f16_f32": ("b32", "f32 f32", _packed(_toward_zero16)),
    "v_cvt_pk_rtz_f16_f32": ("b32", "f32 f32", _packed(_toward_zero16)),
    "v_cvt_pk_f16_f32": ("b32", "f32 f32", _packed(_convert(np.float16))),
    "v_cvt_pk_bf16_f32": ("b32", "f32 f32", _packed(a.bfloat_bits)),
    "v_cvt_pk_u16_u32": ("b32", "u32 u32", _packed(lambda x: _saturated(x, np.uint16))),
    "v_cvt_pk_i16_i32": ("b32", "i32 i32", _packed(lambda x: _saturated(x, np.int16))),
    "v_cvt_pknorm_i16_f32": ("b32", "f32 f32", _packed(lambda x: _norm16(x, 1, 32767, np.int16))),
    "v_cvt_pknorm_u16_f32": ("b32", "f32 f32", _packed(lambda x: _norm16(x, 0, 65535, np.uint16))),
    "v_pack_b32_f16": ("b32", "f16 f16", _pack),
    "v_rcp_iflag_f32": ("f32", "f32", _reciprocal),
    "v_mul_legacy_f32": ("f32", "f32 f32", _legacy_product),
    "v_mul_dx9_zero_f32": ("f32", "f32 f32", _legacy_product),
    "v_med3_i32": ("i32", "i32 i32 i32", a.median),
    "v_med3_u32": ("u32", "u32 u32 u32", a.median),
    "v_med3_i16": ("i16", "i16 i16 i16", a.median),
    "v_med3_u16": ("u16", "u16 u16 u16", a.median),
    "v_frexp_exp_i32_f32": ("i32", "f32", _exponent),
    "v_frexp_exp_i32_f64": ("i32", "f64", _exponent),
    "v_frexp_exp_i16_f16": ("i16", "f16", lambda x: _exponent(x).astype(np.int16)),
    "v_ldexp_f32": ("f32", "f32 i32", _scaled),
    "v_ldexp_f64": ("f64", "f64 i32", _scaled),
    "v_ldexp_f16": ("f16", "f16 i16", _scaled),
}  # fmt: skip

for _kind in ("f16", "f32", "f64"):
    _two, _three = f"{_kind} {_kind}", f"{_kind} {_kind} {_kind}"
    _ROWS |= {
        f"v_add_{_kind}": (_kind, _two, lambda x, y: x + y),
        f"v_sub_{_kind}": (_kind, _two, lambda x, y: x - y),
        f"v_subrev_{_kind}": (_kind, _two, lambda x, y: y - x),
        f"v_mul_{_kind}": (_kind, _two, lambda x, y: x * y),
        f"v_fma_{_kind}": (_kind, _three, a.fma),
        f"v_min_{_kind}": (_kind, _two, a.minimum_number),
        f"v_max_{_kind}": (_kind, _two, a.maximum_number),
        f"v_min_num_{_kind}": (_kind, _two, a.minimum_number),
        f"v_max_num_{_kind}": (_kind, _two, a.maximum_number),
        f"v_minimum_{_kind}": (_kind, _two, a.minimum_nan),
        f"v_maximum_{_kind}": (_kind, _two, a.maximum_nan),
        f"v_rcp_{_kind}": (_kind, _kind, _reciprocal),
        f"v_rsq_{_kind}": (_kind, _kind, _inverse_root),
        f"v_sqrt_{_kind}": (_kind, _kind, _root),
        f"v_exp_{_kind}": (_kind, _kind, _exp2),
        f"v_log_{_kind}": (_kind, _kind, _log2),
        f"v_sin_{_kind}": (_kind, _kind, _turns(np.sin)),
        f"v_cos_{_kind}": (_kind, _kind, _turns(np.cos)),
        f"v_floor_{_kind}": (_kind, _kind, np.floor),
        f"v_ceil_{_kind}": (_kind, _kind, np.ceil),
        f"v_trunc_{_kind}": (_kind, _kind, np.trunc),
        f"v_rndne_{_kind}": (_kind, _kind, np.rint),
        f"v_fract_{_kind}": (_kind, _kind, _fraction),
        f"v_frexp_mant_{_kind}": (_kind, _kind, _mantissa),
    }
for _kind in ("f16", "f32"):
    _two, _three = f"{_kind} {_kind}", f"{_kind} {_kind} {_kind}"
    _ROWS |= {
        f"v_med3_{_kind}": (_kind, _three, a.median),
        f"v_med3_num_{_kind}": (_kind, _three, a.median),
        **_of_three(_kind, {"min": a.minimum_number, "max": a.maximum_number}),
        **_of_three(_kind, {"min": a.minimum_number, "max": a.maximum_number}, "num_"),
        **_of_three(_kind, {"minimum": a.minimum_nan, "maximum": a.maximum_nan}),
    }
for _kind in ("i16", "u16", "i32", "u32"):
    _two = f"{_kind} {_kind}"
    _ROWS |= {
        f"v_min_{_kind}": (_kind, _two, np.minimum),
        f"v_max_{_kind}": (_kind, _two, np.maximum),
        **_of_three(_kind, {"min": np.minimum, "max": np.maximum}),
    }

#: sums that saturate with the modifier clamp
_SATURATING_ADDS: dict[str, tuple[str, Formula]] = {}
for _kind in ("i16", "u16", "i32", "u32"):
    for _name in (f"v_add_{_kind}", f"v_add_nc_{_kind}"):
        _SATURATING_ADDS[_name] = (_kind, lambda x, y: x + y)
    for _name in (f"v_sub_{_kind}", f"v_sub_nc_{_kind}"):
        _SATURATING_ADDS[_name] = (_kind, lambda x, y: x - y)
    for _name in (f"v_subrev_{_kind}", f"v_subrev_nc_{_kind}"):
        _SATURATING_ADDS[_name] = (_kind, lambda x, y: y - x)


def formula_step(d: Decoder, result: str, kinds: list[str], formula: Formula) -> Step:
    """``result = formula(sources)``."""
    write = d.result(0, result, len(kinds))
    readers = [d.source(1 + i, kind, i) for i, kind in enumerate(kinds)]
    if len(readers) == 1:
        (one,) = readers
        return lambda m: write(m, formula(one(m)))
    if len(readers) == 2:
        left, right = readers
        return lambda m: write(m, formula(left(m), right(m)))
    x, y, z = readers
    return lambda m: write(m, formula(x(m), y(m), z(m)))


def _row(name: str) -> Callable[[Decoder], Step]:
    result, sources, formula = _ROWS[name]
    kinds = sources.split()

    def build(d: Decoder) -> Step:
        d.allow_vector()
        d.expect(1 + len(kinds))
        return formula_step(d, result, kinds, formula)

    return build


def _sum(name: str) -> Callable[[Decoder], Step]:
    kind, formula = _SATURATING_ADDS[name]
    info = np.iinfo(KINDS[kind].dtype)

    def build(d: Decoder) -> Step:
        d.allow_vector()
        d.expect(3)
        if "clamp" not in d.instruction.modifiers:
            return formula_step(d, kind, [kind, kind], formula)

        def saturating(x: Array, y: Array) -> Array:
            return np.clip(formula(x.astype(_I64), y.astype(_I64)), info.min, info.max).astype(
                info.dtype
            )

        return formula_step(d, kind, [kind, kind], saturating)

    return build


for _name in _ROWS:
    TABLE[_name] = _row(_name)
for _name in _SATURATING_ADDS:
    TABLE[_name] = _sum(_name)
del _kind, _two, _three, _name


@builds("v_nop", "v_pipeflush")
def _nothing(d: Decoder) -> Step:
    return lambda m: None


def _accumulating(kind: str) -> Callable[[Decoder], Step]:
    """The result is the addend too."""

    def build(d: Decoder) -> Step:
        d.allow_vector()
        d.expect(3)
        write = d.result(0, kind, 2)
        x, y, total = d.source(1, kind, 0), d.source(2, kind, 1), d.source(0, kind, 2)
        return lambda m: write(m, a.fma(x(m), y(m), total(m)))

    return build


for _kind in ("f16", "f32", "f64"):
    TABLE[f"v_fmac_{_kind}"] = _accumulating(_kind)


@builds("v_fmamk_f32", "v_fmamk_f16", "v_fmaak_f32", "v_fmaak_f16")
def _with_literal(d: Decoder) -> Step:
    """x * K + y as (x, K, y) and x * y + K as (x, y, K)."""
    kind = d.instruction.name[-3:]
    d.allow_vector()
    d.expect(4)
    return formula_step(d, kind, [kind] * 3, a.fma)


def _unfused(x: Array, y: Array, z: Array) -> Array:
    """A product and a sum, each rounded; f32 denormals are zeros."""
    if x.dtype != np.float32:
        return x * y + z
    return flushed(flushed(flushed(x) * flushed(y)) + flushed(z))


@builds("v_mad_f32", "v_mad_f16", "v_madmk_f32", "v_madmk_f16", "v_madak_f32", "v_madak_f16")
def _multiply_then_add(d: Decoder) -> Step:
    kind = d.instruction.name[-3:]
    d.allow_vector()
    d.expect(4)
    return formula_step(d, kind, [kind] * 3, _unfused)


@builds("v_mac_f32", "v_mac_f16")
def _multiply_then_accumulate(d: Decoder) -> Step:
    kind = d.instruction.name[-3:]
    d.allow_vector()
    d.expect(3)
    write = d.result(0, kind, 2)
    x, y, total = d.source(1, kind, 0), d.source(2, kind, 1), d.source(0, kind, 2)
    return lambda m: write(m, _unfused(x(m), y(m), total(m)))


@builds("v_fma_legacy_f32", "v_fma_dx9_zero_f32")
def _legacy_fma(d: Decoder) -> Step:
    d.allow_vector()
    d.expect(4)
    return formula_step(
        d, "f32", ["f32"] * 3, lambda x, y, z: np.where((x == 0) | (y == 0), z, a.fma32(x, y, z))
    )


@builds("v_cndmask_b32", "v_cndmask_b16")
def _choice(d: Decoder) -> Step:
    d.allow_vector()
    kind = d.instruction.name[-3:]
    write = d.result(0, kind, 3)
    x, y = d.source(1, kind, 0), d.source(2, kind, 1)
    if len(d.operands) == 4:
        chosen = d.lane_mask(3)
    else:  # VOPD: VCC, which is not written
        d.note_vcc(False)
        chosen = lambda m: m.mask_of(VCC)  # noqa: E731
    return lambda m: write(m, np.where(chosen(m), y(m), x(m)))


@builds("v_swap_b32", "v_swap_b16")
def _swap(d: Decoder) -> Step:
    d.expect(2)
    kind = d.instruction.name[-3:]
    x, y = d.source(0, kind, 0), d.source(1, kind, 0)
    to_x, to_y = d.result(0, kind), d.result(1, kind)

    def step(m: Machine) -> None:
        first, second = x(m).copy(), y(m).copy()
        to_x(m, second)
        to_y(m, first)

    return step


@builds("v_bitop3_b32", "v_bitop3_b16")
def _three_bits(d: Decoder) -> Step:
    table = d.instruction.number("bitop3")
    d.allow("bitop3", "op_sel")
    kind = d.instruction.name[-3:]
    return formula_step(d, kind, [kind] * 3, lambda x, y, z: _bit_op3(x, y, z, table))


def _with_carry(formula: Callable[[Array, Array, Array], Array]) -> Callable[[Decoder], Step]:
    """Return 32-bit sums in int64, whose bit 32 (or sign) is the carry.

    The third source is the carry in, if the name has one.
    """

    def build(d: Decoder) -> Step:
        d.allow_vector()
        write, carry = d.result(0, "u32"), d.mask_result(1)
        x, y = d.source(2, "u32", 0), d.source(3, "u32", 1)
        carried: Reader = (
            d.lane_mask(4) if len(d.operands) == 5 else lambda m: np.zeros((1, 1), np.bool_)
        )

        def step(m: Machine) -> None:
            total = formula(x(m).astype(_I64), y(m).astype(_I64), carried(m).astype(_I64))
            write(m, total.astype(np.uint32))
            carry(m, (total >> 32) != 0)

        return step

    return build


_CARRIES: dict[str, tuple[str, ...]] = {
    "add": ("v_add_co_u32", "v_addc_co_u32", "v_add_co_ci_u32"),
    "sub": ("v_sub_co_u32", "v_subb_co_u32", "v_sub_co_ci_u32"),
    "subrev": ("v_subrev_co_u32", "v_subbrev_co_u32", "v_subrev_co_ci_u32"),
}
_CARRY_FORMULAS: dict[str, Callable[[Array, Array, Array], Array]] = {
    "add": lambda x, y, c: x + y + c,
    "sub": lambda x, y, c: x - y - c,
    "subrev": lambda x, y, c: y - x - c,
}
for _which, _names in _CARRIES.items():
    for _name in _names:
        TABLE[_name] = _with_carry(_CARRY_FORMULAS[_which])


@builds("v_mad_u64_u32", "v_mad_i64_i32", "v_mad_co_u64_u32", "v_mad_co_i64_i32")
def _wide_product(d: Decoder) -> Step:
    d.allow_vector()
    signed = "i64" in d.instruction.name
    kind, wide = ("i32", "i64") if signed else ("u32", "u64")
    dtype = KINDS[wide].dtype
    write, carry = d.result(0, wide), d.mask_result(1)
    x, y, z = d.source(2, kind, 0), d.source(3, kind, 1), d.source(4, wide, 2)

    def step(m: Machine) -> None:
        product, addend = x(m).astype(dtype) * y(m).astype(dtype), z(m)
        total = product + addend
        write(m, total)
        carry(m, total < addend if not signed else (product < 0) ^ (addend < 0) ^ (total < 0))

    return step


@builds("v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32")
def _masked_count(d: Decoder) -> Step:
    """Number of set mask bits of lower lanes (mbcnt)."""
    d.allow_vector()
    high = "_hi_" in d.instruction.name
    write = d.result(0, "u32")
    x, y = d.source(1, "u32", 0), d.source(2, "u32", 1)
    below = [((1 << lane) - 1) >> (32 if high else 0) & 0xFFFFFFFF for lane in range(d.lanes)]
    masks = np.array([below], np.uint32)
    return lambda m: write(m, a.ones(x(m) & masks) + y(m))


def _of_a_scalar(kind: str, formula: Formula) -> Callable[[Decoder], Step]:
    """Apply a function to a number that is equal in all lanes, between scalar registers."""
    width = KINDS[kind].width

    def build(d: Decoder) -> Step:
        d.allow()
        d.expect(2)
        read, write, operand = d.uniform(1, kind), d.uniform_result(0, kind), d.operands[1]

        def step(m: Machine) -> None:
            bits = modified(
                read(m).view(KINDS[kind].unsigned), width, operand.negated, operand.absolute
            )
            write(m, formula(bits.view(KINDS[kind].dtype)))

        return step

    return build


for _kind in ("f16", "f32"):
    for _name, _formula in (
        ("exp", _exp2),
        ("log", _log2),
        ("rcp", _reciprocal),
        ("rsq", _inverse_root),
        ("sqrt", _root),
    ):
        TABLE[f"v_s_{_name}_{_kind}"] = _of_a_scalar(_kind, _formula)
