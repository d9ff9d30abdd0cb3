"""Memory instructions of all kinds, what is between lanes, scalar instructions, and waits, one at a
time."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from wave_kernels import execute, lanes, launch, wait_for_local

from tilewright_amd_emulator import Arena, WaveError, load, run

Array = np.ndarray[Any, Any]

LANES = {width: np.arange(width, dtype=np.uint32) for width in (32, 64)}
_RNG = np.random.default_rng(31)
WORDS = _RNG.integers(0, 1 << 32, (4, 64), dtype=np.uint32)


# -- local memory


@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "gfx1201"])
def test_local_memory_in_all_sizes(target: str) -> None:
    width, wait = lanes(target), wait_for_local(target)
    new = width == 32
    read, write = ("ds_load", "ds_store") if new else ("ds_read", "ds_write")
    two_write, two_read = (
        ("ds_store_2addr_b32", "ds_load_2addr_b32") if new else ("ds_write2_b32", "ds_read2_b32")
    )
    lane = LANES[width]
    lines = f"""{write}_b128 v1, v[4:7]
{write}_b16 v1, v2 offset:2
{write}_b8 v1, v2 offset:5
{wait}
{read}_b32 v10, v1
{read}_u16 v11, v1 offset:4
{read}_i16 v12, v1 offset:6
{read}_u8 v13, v1 offset:9
{read}_i8 v14, v1 offset:10
{read}_b64 v[16:17], v1 offset:8
{read}_u16_d16_hi v18, v1 offset:12
{two_write} v3, v4, v5 offset0:1 offset1:3
{two_read} v[20:21], v3 offset0:3 offset1:1
{wait}"""
    given = {
        1: lane * 16,
        2: WORDS[0, :width],
        3: lane * 16,
        4: WORDS[1, :width],
        5: WORDS[2, :width],
        6: WORDS[3, :width],
        7: WORDS[0, ::-1][:width],
        18: WORDS[2, :width],
    }
    out = execute(target, lines, given, [10, 11, 12, 13, 14, 16, 17, 18, 20, 21], lds=16 * width)
    memory = np.stack([given[4], given[5], given[6], given[7]], axis=1).copy()
    data = memory.view(np.uint8)
    data[:, 2:4] = given[2][:, None].view(np.uint8)[:, :2]
    data[:, 5] = given[2].astype(np.uint8)
    want = [
        memory[:, 0],
        memory.view(np.uint16)[:, 2].astype(np.uint32),
        memory.view(np.int16)[:, 3].astype(np.int32).view(np.uint32),
        data[:, 9].astype(np.uint32),
        data.view(np.int8)[:, 10].astype(np.int32).view(np.uint32),
        memory[:, 2],
        memory[:, 3],
        given[18] & 0xFFFF | memory.view(np.uint16)[:, 6].astype(np.uint32) << 16,
        given[5],
        given[4],
    ]
    for got, expected in zip(out, want, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ds_read_b32 v10, v1 offset:256", "outside of the workgroup's 256 bytes"),
        ("ds_write_b64 v1, v[2:3] offset:4", "outside of the workgroup's 256 bytes"),
        ("ds_read_b32 v10, v1 offset:2", "not aligned to 4"),
    ],
)
def test_local_memory_is_checked(line: str, message: str) -> None:
    if "offset:2" in line and "256" not in line:
        given = {1: np.zeros(64, np.uint32), 2: WORDS[0], 3: WORDS[1]}
    else:
        given = {1: LANES[64] * 4, 2: WORDS[0], 3: WORDS[1]}
    with pytest.raises(WaveError, match=message):
        execute("gfx942", f"{line}\ns_waitcnt lgkmcnt(0)", given, [2], lds=256)


@pytest.mark.parametrize(("bits", "dtype"), [(16, np.uint16), (8, np.uint8)])
def test_a_load_that_transposes(bits: int, dtype: type[np.generic]) -> None:
    """Four tiles of 16 columns and of as many rows as 8 bytes hold elements; lane l of 16 gets
    column l of its tile."""
    rows = 64 // bits
    tiles = np.random.default_rng(0).integers(0, 1 << bits, (4, rows, 16)).astype(dtype)
    given = tiles.reshape(64, rows).view(np.uint32)
    lines = (
        f"ds_write_b64 v1, v[2:3]\ns_waitcnt lgkmcnt(0)\nds_read_b64_tr_b{bits} v[4:5], v1\n"
        "s_waitcnt lgkmcnt(0)"
    )
    out = execute(
        "gfx950", lines, {1: LANES[64] * 8, 2: given[:, 0], 3: given[:, 1]}, [4, 5], lds=512
    )
    columns = np.stack(out, axis=1).view(dtype).reshape(4, 16, rows)
    np.testing.assert_array_equal(columns, tiles.swapaxes(1, 2))


#: copies the four words of each lane to local memory at M0, then those of the opposite lane 1024
#: bytes behind them; ``pending`` may be in flight when the first and the last words of both are
#: read
_COPIES = """v_lshlrev_b32_e32 v20, 4, v0
v_xor_b32_e32 v21, 0x3f0, v20
s_mov_b32 m0, {base}
global_load_lds_dwordx4 v20, s[4:5]
s_add_i32 m0, m0, 0x400
global_load_lds_dwordx4 v21, s[4:5]
s_waitcnt vmcnt({pending})
v_add_u32_e32 v20, {base}, v20
ds_read_b128 v[4:7], v20
ds_read_b128 v[8:11], v20 offset:1024
s_waitcnt lgkmcnt(0)
s_waitcnt vmcnt(0)"""


@pytest.mark.parametrize("base", [0, 0x18000])
def test_copies_to_local_memory_of_four_words_a_lane(base: int) -> None:
    """Lane after lane, from M0 on, which reaches all of the memory that the target has."""
    given = {place: WORDS[place - 1] for place in range(1, 5)}
    there = np.stack(list(given.values())).reshape(64, 4)
    out = np.stack(
        execute(
            "gfx950",
            _COPIES.format(base=hex(base), pending=0),
            given,
            list(range(4, 12)),
            lds=base + 2048,
        ),
        axis=1,
    )
    np.testing.assert_array_equal(out[:, :4], there)
    np.testing.assert_array_equal(out[:, 4:], there[::-1])


def test_copies_to_local_memory_arrive_in_order_and_late() -> None:
    """A read before the wait does not see the data of a copy in flight."""
    given = {place: WORDS[place - 1] for place in range(1, 5)}
    there = np.stack(list(given.values())).reshape(64, 4)
    first, second = np.split(
        np.stack(
            execute(
                "gfx950", _COPIES.format(base=0, pending=1), given, list(range(4, 12)), lds=2048
            ),
            axis=1,
        ),
        2,
        axis=1,
    )
    np.testing.assert_array_equal(first, there)
    assert not np.any(second == there[::-1])


def test_lanes_that_are_left_out_copy_nothing() -> None:
    given = {place: WORDS[place - 1] for place in range(1, 5)}
    there = np.stack(list(given.values())).reshape(64, 4)
    lines = """v_lshlrev_b32_e32 v20, 4, v0
v_mov_b32_e32 v21, 5
s_mov_b32 m0, 0
ds_write_b32 v20, v21
s_waitcnt lgkmcnt(0)
s_mov_b64 exec, 0xff
global_load_lds_dwordx4 v20, s[4:5]
s_mov_b64 exec, -1
s_waitcnt vmcnt(0)
ds_read_b32 v4, v20
s_waitcnt lgkmcnt(0)"""
    (out,) = execute("gfx950", lines, given, [4], lds=1024)
    np.testing.assert_array_equal(out, np.where(LANES[64] < 8, there[:, 0], 5))


LOCAL_ATOMICS: dict[str, Callable[[int, int], int]] = {
    "ds_add_rtn_u32": lambda old, x: old + x,
    "ds_sub_rtn_u32": lambda old, x: old - x,
    "ds_max_rtn_u32": max,
    "ds_min_rtn_i32": lambda old, x: min(old - (old >> 31 << 32), x - (x >> 31 << 32)),
    "ds_xor_rtn_b32": lambda old, x: old ^ x,
    "ds_inc_rtn_u32": lambda old, x: 0 if old >= x else old + 1,
    "ds_dec_rtn_u32": lambda old, x: x if old == 0 or old > x else old - 1,
    "ds_wrxchg_rtn_b32": lambda old, x: x,
}


@pytest.mark.parametrize("name", LOCAL_ATOMICS)
def test_local_atomics_of_lanes_at_one_address(name: str) -> None:
    lane = LANES[64]
    address, x = lane % 5 * 4, WORDS[0]
    start = WORDS[1, :5]
    lines = (
        f"ds_write_b32 v1, v2\ns_waitcnt lgkmcnt(0)\n{name} v10, v1, v3\ns_waitcnt lgkmcnt(0)\n"
        "ds_read_b32 v11, v1\ns_waitcnt lgkmcnt(0)"
    )
    old, after = execute("gfx942", lines, {1: address, 2: start[lane % 5], 3: x}, [10, 11], lds=20)
    memory = [int(v) for v in start]
    for i in range(64):
        assert int(old[i]) == memory[i % 5]
        memory[i % 5] = LOCAL_ATOMICS[name](memory[i % 5], int(x[i])) & 0xFFFFFFFF
    np.testing.assert_array_equal(after, np.array(memory, np.uint32)[lane % 5])


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("gfx942", "ds_cmpst_rtn_b32 v10, v1, v4, v5"),
        ("gfx1201", "ds_cmpstore_rtn_b32 v10, v1, v5, v4"),
    ],
)
def test_exchange_on_a_condition(target: str, line: str) -> None:
    """The order of what is compared (v4) and what is new (v5) changed with gfx11."""
    width, wait = lanes(target), wait_for_local(target)
    lane = LANES[width]
    write, read = (
        ("ds_store_b32", "ds_load_b32") if width == 32 else ("ds_write_b32", "ds_read_b32")
    )
    compared = np.where(lane % 2 == 0, lane + 100, 7).astype(np.uint32)
    out = execute(
        target,
        f"{write} v1, v2\n{wait}\n{line}\n{wait}\n{read} v11, v1\n{wait}",
        {1: lane * 4, 2: lane + 100, 4: compared, 5: lane + 900},
        [10, 11],
        lds=4 * width,
    )
    np.testing.assert_array_equal(out[0], lane + 100)
    np.testing.assert_array_equal(out[1], np.where(lane % 2 == 0, lane + 900, lane + 100))


def test_packed_and_float_sums_are_atomic() -> None:
    halves = np.arange(128, dtype=np.float16).view(np.uint32)
    reals = np.arange(64, dtype=np.float32)
    lines = """ds_write_b64 v1, v[2:3]
s_waitcnt lgkmcnt(0)
ds_add_f32 v1, v4
ds_pk_add_f16 v1, v5 offset:4
s_waitcnt lgkmcnt(0)
ds_read_b64 v[10:11], v1
s_waitcnt lgkmcnt(0)"""
    zero = np.zeros(64, np.uint32)
    out = execute(
        "gfx942", lines, {1: zero, 2: zero, 3: zero, 4: reals, 5: halves}, [10, 11], lds=8
    )
    assert out[0].view(np.float32)[0] == 64 * 63 / 2
    total = np.zeros(2, np.float16)
    for pair in np.arange(128, dtype=np.float16).reshape(-1, 2):
        total = total + pair
    np.testing.assert_array_equal(out[1].view(np.float16)[:2], total)


# -- between lanes

_L = LANES[64]
_DPP: dict[str, tuple[Array, Array]] = {
    "quad_perm:[1,0,3,2]": (_L ^ 1, _L >= 0),
    "row_shl:3": (_L + 3, _L % 16 + 3 < 16),
    "row_shr:4": (_L - 4, _L % 16 >= 4),
    "row_ror:5": (_L // 16 * 16 + (_L % 16 - 5) % 16, _L >= 0),
    "row_mirror": (_L ^ 15, _L >= 0),
    "row_half_mirror": (_L ^ 7, _L >= 0),
    "row_bcast:15": (_L // 16 * 16 - 1, _L >= 16),
    "row_bcast:31": (_L // 32 * 32 - 1, _L >= 32),
    "wave_shr:1": (_L - 1, _L >= 1),
    "row_newbcast:9": (_L // 16 * 16 + 9, _L >= 0),
}


@pytest.mark.parametrize("control", _DPP)
@pytest.mark.parametrize("zero", [False, True])
def test_data_parallel_primitives(control: str, zero: bool) -> None:
    there, valid = _DPP[control]
    there, x, old = np.where(valid, there, 0).astype(int), WORDS[0], WORDS[1]
    lines = (
        f"v_mov_b32_dpp v4, v1 {control} row_mask:0x7 "
        f"bank_mask:0xd{' bound_ctrl:1' if zero else ''}"
    )
    (out,) = execute("gfx942", lines, {1: x, 4: old}, [4])
    got = np.where(valid, x[there], 0 if zero else old)
    written = (_L // 16 != 3) & (_L // 4 % 4 != 1)
    np.testing.assert_array_equal(out, np.where(written, got, old))


def test_primitives_see_lanes_that_are_off_only_where_told() -> None:
    x, old = WORDS[0, :32], WORDS[1, :32]
    lane = LANES[32]
    lines = """s_mov_b32 exec_lo, 0x0f0f00ff
v_mov_b32_dpp v4, v1 row_xmask:8 row_mask:0xf bank_mask:0xf bound_ctrl:1
v_mov_b32_dpp v5, v1 row_xmask:8 row_mask:0xf bank_mask:0xf bound_ctrl:1 fi:1
v_mov_b32_dpp v6, v1 dpp8:[7,6,5,4,3,2,1,0]
v_mov_b32_dpp v7, v1 row_share:3 row_mask:0xf bank_mask:0xf
s_mov_b32 exec_lo, -1"""
    on = np.array([0x0F0F00FF >> i & 1 for i in range(32)], bool)
    out = execute("gfx1100", lines, {1: x, 4: old, 5: old, 6: old, 7: old}, [4, 5, 6, 7])
    np.testing.assert_array_equal(out[0], np.where(on, np.where(on[lane ^ 8], x[lane ^ 8], 0), old))
    np.testing.assert_array_equal(out[1], np.where(on, x[lane ^ 8], old))
    np.testing.assert_array_equal(out[2], np.where(on, np.where(on[lane ^ 7], x[lane ^ 7], 0), old))
    np.testing.assert_array_equal(
        out[3], np.where(on & on[lane // 16 * 16 + 3], x[lane // 16 * 16 + 3], old)
    )


def test_rows_are_permuted_and_swapped() -> None:
    x = WORDS[0, :32]
    lane = LANES[32]
    lines = """s_mov_b32 s8, 0x76543210
s_mov_b32 s9, 0x89abcdef
v_permlane16_b32 v4, v1, s9, s8
v_permlanex16_b32 v5, v1, s8, s9
v_readlane_b32 s10, v1, 7
v_readfirstlane_b32 s11, v1
v_writelane_b32 v6, s10, 30"""
    out = execute("gfx1100", lines, {1: x, 6: x}, [4, 5, "s10", "s11", 6])
    np.testing.assert_array_equal(
        out[0], x[lane // 16 * 16 + np.where(lane % 16 < 8, 15 - lane % 16, lane % 16 - 8)]
    )
    np.testing.assert_array_equal(
        out[1], x[(lane // 16 ^ 1) * 16 + np.where(lane % 16 < 8, lane % 16, 23 - lane % 16)]
    )
    assert out[2][0] == x[7] and out[3][0] == x[0]
    np.testing.assert_array_equal(out[4], np.where(lane == 30, x[7], x))
    a, b = execute(
        "gfx950", "v_permlane32_swap_b32 v1, v2\ns_nop 0", {1: WORDS[0], 2: WORDS[1]}, [1, 2]
    )
    np.testing.assert_array_equal(a, np.append(WORDS[0, :32], WORDS[1, :32]))
    np.testing.assert_array_equal(b, np.append(WORDS[0, 32:], WORDS[1, 32:]))


def test_lanes_push_and_pull() -> None:
    x = WORDS[0]
    lines = (
        "ds_permute_b32 v4, v2, v1\nds_bpermute_b32 v5, v2, v1\n"
        "ds_swizzle_b32 v6, v1 offset:swizzle(SWAP,4)\ns_waitcnt lgkmcnt(0)"
    )
    there = _L * 29 % 64
    out = execute("gfx942", lines, {1: x, 2: there * 4}, [4, 5, 6])
    pushed = np.zeros(64, np.uint32)
    pushed[there] = x
    np.testing.assert_array_equal(out[0], pushed)
    np.testing.assert_array_equal(out[1], x[there])
    np.testing.assert_array_equal(out[2], x[_L ^ 4])


def test_counts_of_lanes_below() -> None:
    mask = 0xF0F0_1234_8765_4321
    lines = (
        "s_mov_b32 s8, 0x87654321\ns_mov_b32 s9, 0xf0f01234\nv_mbcnt_lo_u32_b32 v4, s8, 0\n"
        "v_mbcnt_hi_u32_b32 v4, s9, v4"
    )
    (out,) = execute("gfx942", lines, {}, [4])
    np.testing.assert_array_equal(
        out, [(mask & ((1 << lane) - 1)).bit_count() for lane in range(64)]
    )


# -- scalars

SCALARS: dict[str, tuple[int, int]] = {
    # instruction on s8 = 0x80000003, s9 = 5 and s[12:13] = 0xffffffff00000010 -> s10 and SCC
    "s_add_u32 s10, s8, s8": (6, 1),
    "s_add_i32 s10, s8, s8": (6, 1),
    "s_sub_u32 s10, s9, s8": (0x80000002, 1),
    "s_mul_i32 s10, s8, s9": (0x8000000F, 0),
    "s_mul_hi_u32 s10, s8, s9": (2, 0),
    "s_mul_hi_i32 s10, s8, s9": (0xFFFFFFFD, 0),
    "s_lshl_b32 s10, s9, 30": (0x40000000, 1),
    "s_ashr_i32 s10, s8, s9": (0xFC000000, 1),
    "s_bfe_u32 s10, s8, 0x20001": (1, 1),
    "s_bfe_i32 s10, s8, 0x40000": (3, 1),
    "s_bfe_i32 s10, s8, 0x20000": (0xFFFFFFFF, 1),
    "s_bfm_b32 s10, 4, s9": (0x1E0, 0),
    "s_min_i32 s10, s8, s9": (0x80000003, 1),
    "s_max_u32 s10, s8, s9": (0x80000003, 1),
    "s_andn2_b32 s10, s8, s9": (0x80000002, 1),
    "s_absdiff_i32 s10, s9, 7": (2, 1),
    "s_abs_i32 s10, -9": (9, 1),
    "s_bcnt1_i32_b32 s10, s8": (3, 1),
    "s_ff1_i32_b32 s10, s9": (0, 0),
    "s_flbit_i32_b32 s10, s9": (29, 0),
    "s_brev_b32 s10, s9": (0xA0000000, 0),
    "s_sext_i32_i8 s10, 0x1f0": (0xFFFFFFF0, 0),
    "s_pack_lh_b32_b16 s10, s9, s8": (0x80000005, 0),
    "s_ff1_i32_b64 s10, s[12:13]": (4, 0),
    "s_bcnt1_i32_b64 s10, s[12:13]": (33, 1),
    "s_movk_i32 s10, 0xfff0": (0xFFFFFFF0, 0),
    "s_lshl2_add_u32 s10, s9, 3": (23, 0),
    "s_mov_b32 s10, s9\ns_bitset1_b32 s10, 4": (21, 0),
    "s_cmp_gt_u32 s8, s9\ns_cselect_b32 s10, 11, 22": (11, 1),
    "s_cmp_gt_i32 s8, s9\ns_cselect_b32 s10, 11, 22": (22, 0),
    "s_cmpk_lt_i32 s8, 0xffe1\ns_cselect_b32 s10, 11, 22": (11, 1),
    "s_cmpk_gt_i32 s9, 0xffe1\ns_cselect_b32 s10, 11, 22": (11, 1),
    "s_cmpk_lt_u32 s9, 0xffe1\ns_cselect_b32 s10, 11, 22": (11, 1),
    "s_cmp_eq_u32 s9, s9\ns_cmovk_i32 s10, 0xfff0": (0xFFFFFFF0, 1),
    "s_bitcmp1_b32 s8, 31\ns_mov_b32 s10, 0": (0, 1),
    "s_mov_b32 s10, 1.0": (0x3F800000, 0),
}


@pytest.mark.parametrize("lines", SCALARS)
def test_scalars(lines: str) -> None:
    head = (
        "s_mov_b32 s8, 0x80000003\ns_mov_b32 s9, 5\ns_mov_b32 s12, 16\ns_mov_b32 s13, -1\n"
        "s_cmp_lg_u32 s9, s9\n"
    )
    out = execute("gfx942", f"{head}{lines}\ns_cselect_b32 s11, 1, 0", {}, ["s10", "s11"])
    assert (int(out[0][0]), int(out[1][0])) == SCALARS[lines]


def test_branches_by_lane_and_by_wave() -> None:
    lines = """v_cmp_gt_u32_e32 vcc, 20, v1
s_and_saveexec_b64 s[8:9], vcc
s_cbranch_execz .Lskip
v_mov_b32_e32 v4, 1
.Lskip:
s_xor_b64 s[10:11], exec, s[8:9]
s_mov_b64 exec, s[8:9]
s_mov_b32 s12, 0
.Lloop:
s_add_i32 s12, s12, 1
s_cmp_lt_u32 s12, 10
s_cbranch_scc1 .Lloop"""
    out = execute("gfx942", lines, {1: _L, 4: np.zeros(64, np.uint32)}, [4, "s12", "s10", "s11"])
    np.testing.assert_array_equal(out[0], (_L < 20).astype(np.uint32))
    assert out[1][0] == 10 and out[2][0] == 0xFFF00000 and out[3][0] == 0xFFFFFFFF


def test_branches_to_far_labels() -> None:
    lines = """s_mov_b32 s12, 7
s_getpc_b64 s[8:9]
.Lpost_getpc0:
s_add_u32 s8, s8, (.Lfar-.Lpost_getpc0)&4294967295
s_addc_u32 s9, s9, (.Lfar-.Lpost_getpc0)>>32
s_setpc_b64 s[8:9]
s_mov_b32 s12, 8
.Lfar:
s_add_i32 s12, s12, 10"""
    assert execute("gfx942", lines, {}, ["s12"])[0][0] == 17


# -- waits

_GLOBAL = "v_lshlrev_b32_e32 v9, 2, v0\n"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (_GLOBAL + "global_load_dword v4, v9, s[4:5]\nv_mov_b32_e32 v5, v4", "reads v4"),
        (_GLOBAL + "global_load_dword v4, v9, s[4:5]\nv_mov_b32_e32 v4, 0", "writes v4"),
        (
            _GLOBAL
            + (
                "global_load_dword v4, v9, s[4:5]\nglobal_load_dword v5, v9, s[4:5]\n"
                "s_waitcnt vmcnt(1)\nv_mov_b32_e32 v6, v5"
            ),
            "reads v5",
        ),
        (
            (
                "s_load_dwordx2 s[8:9], s[4:5], 0x0\ns_load_dword s10, s[4:5], 0x8\n"
                "s_waitcnt lgkmcnt(1)\ns_mov_b32 s11, s8"
            ),
            "reads s8",
        ),
        (
            _GLOBAL
            + "global_load_dword v4, v9, s[4:5]\ns_waitcnt lgkmcnt(0)\nv_mov_b32_e32 v5, v4",
            "reads v4",
        ),
    ],
)
def test_registers_are_poison_until_their_wait(lines: str, message: str) -> None:
    with pytest.raises(WaveError, match=message):
        execute("gfx942", lines, {1: WORDS[0], 2: WORDS[1]}, [1])


def test_a_wait_for_some_lets_the_oldest_through() -> None:
    lines = _GLOBAL + (
        "global_load_dword v4, v9, s[4:5]\nglobal_load_dword v5, v9, s[4:5] offset:256\n"
        "s_waitcnt vmcnt(1)\nv_mov_b32_e32 v6, v4\ns_waitcnt vmcnt(0)"
    )
    out = execute("gfx942", lines, {1: WORDS[0], 2: WORDS[1]}, [6, 5])
    np.testing.assert_array_equal(out[0], WORDS[0])
    np.testing.assert_array_equal(out[1], WORDS[1])


def test_a_wave_sees_its_own_stores() -> None:
    """On gfx11 a load and a store have counters of their own; those of one wave at one address stay
    in order."""
    lines = """v_lshlrev_b32_e32 v9, 2, v0
global_store_b32 v9, v2, s[4:5]
global_load_b32 v4, v9, s[4:5]
s_waitcnt vmcnt(0)
global_store_b32 v9, v1, s[4:5]
global_load_b32 v5, v9, s[4:5]
s_waitcnt vmcnt(0)"""
    out = execute("gfx1100", lines, {1: WORDS[0, :32], 2: WORDS[1, :32]}, [4, 5])
    np.testing.assert_array_equal(out[0], WORDS[1, :32])
    np.testing.assert_array_equal(out[1], WORDS[0, :32])


# -- memory of the device


def test_the_arena_finds_what_is_not_allocated() -> None:
    arena = Arena(1 << 16)
    first = arena.put(np.arange(10, dtype=np.float32))
    assert first % 256 == 0
    np.testing.assert_array_equal(arena.get(first, np.float32, (2, 5)), np.arange(10).reshape(2, 5))
    one = np.array([[first + 36]], np.uint64)
    arena.offsets(one, 4)
    for address, size, message in (
        (first + 40, 4, "out of bounds"),
        (first + 36, 8, "out of bounds"),
        (first - 4, 4, "out of bounds"),
        (first + 2, 4, "not aligned"),
    ):
        with pytest.raises(WaveError, match=message):
            arena.offsets(np.array([[address]], np.uint64), size)
    Arena(1 << 12, unaligned=True)
    arena.release(first)
    with pytest.raises(WaveError, match="out of bounds"):
        arena.offsets(one, 4)
    with pytest.raises(WaveError, match="not the address of a part"):
        arena.release(first)
    with pytest.raises(WaveError, match="no room"):
        arena.allocate(1 << 20)
    with pytest.raises(WaveError, match="not all allocated"):
        arena.get(first, np.float32, 3)


def test_unaligned_accesses_where_they_are_allowed() -> None:
    arena = Arena(1 << 12, unaligned=True)
    address = arena.put(np.arange(16, dtype=np.uint8))
    offsets = arena.offsets(np.array([[address + 1]], np.uint64), 8)
    np.testing.assert_array_equal(arena.gather(offsets, 8)[:, 0, 0], [0x04030201, 0x08070605])
    arena.scatter(offsets[0], 4, np.array([[0xAABBCCDD]], np.uint32))
    np.testing.assert_array_equal(arena.get(address, np.uint8, 6), [0, 0xDD, 0xCC, 0xBB, 0xAA, 5])


def _kernel(lines: str, **directives: int) -> str:
    settings = {
        "user_sgpr_count": 2,
        "user_sgpr_kernarg_segment_ptr": 1,
        "kernarg_size": 16,
    } | directives
    return "\n".join(
        [
            '.amdgcn_target "amdgcn-amd-amdhsa--gfx942"',
            ".text",
            "k:",
            lines,
            ".amdhsa_kernel k",
            *(f".amdhsa_{n} {v}" for n, v in settings.items()),
            ".end_amdhsa_kernel",
        ]
    )


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (_kernel("s_endpgm"), {"threads": 2000}, "at most 1024"),
        (_kernel("s_endpgm"), {"dynamic_lds": 70000}, "70000 bytes of local memory"),
        (_kernel("s_endpgm"), {"arguments": b""}, "16 bytes of arguments"),
        (_kernel("s_endpgm"), {"schedule": "sideways"}, "no schedule"),
        (_kernel("s_nop 0"), {}, "s_endpgm is missing"),
        (_kernel(".Lx:\ns_branch .Lx"), {"limit": 100000}, "seems not to end"),
    ],
)
def test_launches_that_cannot_be(text: str, options: dict[str, Any], message: str) -> None:
    arena = Arena(1 << 16)
    given: dict[str, Any] = {
        "grid": (1, 1, 1),
        "threads": 128,
        "arguments": bytes(16),
        "arena": arena,
    } | options
    with pytest.raises(WaveError, match=message):
        run(load(text), "k", **given)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("s_barrier_wait -1", "has not signalled"),
        ("s_cbranch_vccz .Lx\ns_barrier_signal -1\ns_barrier_signal -1\n.Lx:", "twice"),
    ],
)
def test_barriers_are_signalled_once_and_then_waited_for(lines: str, message: str) -> None:
    text = _kernel(f"v_cmp_gt_u32_e32 vcc, 64, v0\n{lines}\ns_endpgm")
    with pytest.raises(WaveError, match=message):
        run(load(text), "k", grid=(1, 1, 1), threads=128, arguments=bytes(16), arena=Arena(1 << 16))


def test_waves_that_end_are_not_waited_for() -> None:
    text = _kernel(
        "v_cmp_gt_u32_e32 vcc, 64, v0\ns_cbranch_vccz .Lx\ns_barrier\ns_barrier\n.Lx:\ns_endpgm"
    )
    for schedule in ("lockstep", "random"):
        covered = run(
            load(text),
            "k",
            grid=(2, 1, 1),
            threads=256,
            arguments=bytes(16),
            arena=Arena(1 << 16),
            schedule=schedule,
        )  # type: ignore[arg-type]
        assert covered["s_barrier"] == 4 and covered["s_endpgm"] == 8


def test_texts_and_names_that_are_not_there() -> None:
    with pytest.raises(WaveError, match="no kernel 'other'"):
        run(
            load(_kernel("s_endpgm")),
            "other",
            grid=(1, 1, 1),
            threads=64,
            arguments=bytes(16),
            arena=Arena(1 << 16),
        )
    with pytest.raises(WaveError, match="no target"):
        load("k:\ns_endpgm")


def test_coverage_counts_waves() -> None:
    text = _kernel("s_nop 0\nv_mov_b32_e32 v1, v0\ns_endpgm")
    covered = run(
        load(text), "k", grid=(3, 2, 1), threads=256, arguments=bytes(16), arena=Arena(1 << 16)
    )
    assert covered == {"s_nop": 24, "v_mov_b32": 24, "s_endpgm": 24} and covered.instructions == 72
    assert covered.report().splitlines()[0].split() == ["24", "s_endpgm"]


def test_numbers_of_workgroups_and_items() -> None:
    text = _kernel(
        """s_load_dwordx2 s[6:7], s[0:1], 0x0
s_lshl_b32 s8, s3, 1
s_add_i32 s8, s8, s2
s_mul_i32 s9, s4, 6
s_add_i32 s8, s8, s9
s_lshl_b32 s8, s8, 7
v_add_u32_e32 v1, s8, v0
v_lshlrev_b32_e32 v2, 2, v1
s_waitcnt lgkmcnt(0)
global_store_dword v2, v1, s[6:7]
s_endpgm""",
        system_sgpr_workgroup_id_x=1,
        system_sgpr_workgroup_id_y=1,
        system_sgpr_workgroup_id_z=1,
    )
    out = np.full(2 * 3 * 2 * 128, 1 << 31, np.uint32)
    (got,), _ = launch(text, [out], struct.pack("<Q", 0), (2, 3, 2), 128)
    np.testing.assert_array_equal(got, np.arange(len(out)))
