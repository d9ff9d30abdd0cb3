"""Block-scaled matmuls by ``mma.sync`` with ``block_scale``.

Tests fragments and scales against the formulas of the PTX ISA, whole kernels in an emulated warp
that multiplies by those formulas against the reference interpreter, and the messages of ptxas. No
GPU has run them.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from kernel_states import state_of
from numpy.typing import NDArray
from scaled_kernels import SIGNATURE, constants, scaled_kernel

import tilewright as tw
import tilewright.language as tl
from tilewright.ir import Module
from tilewright.ir.core import Function
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt import emulator
from tilewright.simt.emulator import EmulatedMatrix, EmulatedTarget
from tilewright.simt.layouts.linear_layout import coordinates
from tilewright.simt.layouts.mma_tiling import layouts, tile
from tilewright.simt.target.simt_target import VendorDialect
from tilewright_nvidia.codegen.kernel_state import KernelState
from tilewright_nvidia.codegen.packed_registers import PackedRegisters
from tilewright_nvidia.mma import block_scaled

Array = NDArray[Any]
NUMBERS = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m1": ml_dtypes.float4_e2m1fn,
}


# ---- where the PTX ISA has operands and scales


def byte_of_a(lane: int, i: int) -> tuple[int, int]:
    """(row, byte along k) of byte i of A's four registers: "Matrix Fragments for mma.m16n8k32", of
    elements in bytes, and "mma.m16n8k64", of pairs of e2m1."""
    group, thread = divmod(lane, 4)
    return group + (8 if 4 <= i < 8 or i >= 12 else 0), thread * 4 + i % 4 + (16 if i >= 8 else 0)


def byte_of_b(lane: int, i: int) -> tuple[int, int]:
    """(byte along k, column) of byte i of B's two registers."""
    group, thread = divmod(lane, 4)
    return thread * 4 + i % 4 + (16 if i >= 4 else 0), group


def element_of_c(lane: int, i: int) -> tuple[int, int]:
    group, thread = divmod(lane, 4)
    return group + 8 * (i // 2), thread * 2 + i % 2


def lane_of_scale_a(row: int, thread_id: int = 0) -> int:
    """ "Block Scaling for mma.sync": of each four lanes thread-id-a 0 names the first two, 1 the
    others; the first has the scales of row ``groupID``."""
    return 4 * (row % 8) + 2 * thread_id + row // 8


def lane_of_scale_b(column: int, thread_id: int = 0) -> int:
    """Of each four lanes thread-id-b names one."""
    return 4 * column + thread_id


def taken_from(kind: block_scaled.Kind, byte: int) -> int:
    """The byte of a row of an operand that is given for byte ``byte`` along k: of k = 32 the order
    is another one within the 32 that share a scale."""
    thread, rest = divmod(byte % 16, 4)
    return 8 * thread + rest + (4 if byte >= 16 else 0) if kind is block_scaled.MXF8F6F4 else byte


@pytest.mark.parametrize(
    "kind", [block_scaled.MXF8F6F4, block_scaled.MXF4], ids=lambda kind: kind.name
)
def test_fragments_are_those_of_the_instruction_set(kind: block_scaled.Kind) -> None:
    """Of elements of a byte, or pairs of them of four bits: 16 bytes of a lane in A, 8 in B, both
    words of a row after each other."""
    per_unit = 2 if kind is block_scaled.MXF4 else 1
    shape = block_scaled._shape(kind, per_unit)
    a, b, c = layouts(shape, tile(shape, (16, 8), 32, 1), (16, 8), 32, 1)
    assert (a.register_count, b.register_count, c.register_count) == (16, 8, 4)
    seen = set()
    for lane in range(32):
        for i in range(16):
            row, byte = byte_of_a(lane, 4 * (0, 2, 1, 3)[i // 4] + i % 4)
            assert coordinates(a.element(i, lane), a.shape) == (row, taken_from(kind, byte))
        for i in range(8):
            byte, column = byte_of_b(lane, i)
            assert coordinates(b.element(i, lane), b.shape) == (taken_from(kind, byte), column)
            seen.add(taken_from(kind, byte))
        for i in range(4):
            assert coordinates(c.element(i, lane), c.shape) == element_of_c(lane, i)
    assert seen == set(range(32))


@pytest.mark.parametrize(
    "kind", [block_scaled.MXF8F6F4, block_scaled.MXF4], ids=lambda kind: kind.name
)
def test_scales_are_in_the_lanes_that_the_selectors_name(kind: block_scaled.Kind) -> None:
    shape = block_scaled._shape(kind, 32)
    groups = kind.depth // 32
    a, b, _ = layouts(shape, tile(shape, (16, 8), groups, 1), (16, 8), groups, 1)
    assert a.register_count == b.register_count == groups
    for group in range(groups):
        assert [
            coordinates(a.element(group, lane_of_scale_a(row)), a.shape) for row in range(16)
        ] == [(row, group) for row in range(16)]
        assert [
            coordinates(b.element(group, lane_of_scale_b(column)), b.shape) for column in range(8)
        ] == [(group, column) for column in range(8)]


# ---- whole kernels, on an emulated warp


class Warp:
    """The instruction on a warp of the emulated machine: lanes put their registers down, the first
    one multiplies by the tables above, all take the result.

    Attributes:
        names: the instructions that were written.
    """

    def __init__(self, warps: int) -> None:
        self.names: list[str] = []
        self.errors: list[BaseException] = []
        self._sites: list[tuple[str, tuple[int, int]]] = []
        #: registers of each lane: a, b, c, scales of a and b, and the result
        self._area = np.zeros((warps, 32, 16), np.uint32)
        self._entry = ctypes.CFUNCTYPE(None, ctypes.c_int32, ctypes.c_int32)(self._multiply)

    def write(
        self,
        w: FunctionWriter,
        name: str,
        a: Sequence[str],
        b: Sequence[str],
        c: Sequence[str],
        scales: Sequence[tuple[str, int]],
    ) -> list[str]:
        """In place of :func:`tilewright_nvidia.mma.block_scaled.multiply`."""
        site = len(self._sites)
        self._sites.append((name, (scales[0][1], scales[1][1])))
        self.names.append(name)
        number = w.emit(f"add i32 {w.emit('mul i32 %warp, 32')}, %lane")
        own = w.emit(
            f"getelementptr i32, ptr inttoptr (i64 {self._area.ctypes.data} to ptr), i32 "
            f"{w.emit(f'mul i32 {number}, 16')}"
        )
        words = (
            [("i32", word) for word in (*a, *b)]
            + [("float", number) for number in c]
            + [("i32", register) for register, _ in scales]
        )
        for i, (type_, word) in enumerate(words):
            w.do(f"store {type_} {word}, ptr {w.gep('i32', own, i)}, align 4")
        machine = EmulatedTarget()
        machine.threads.warp_barrier(w)
        entry = ctypes.cast(self._entry, ctypes.c_void_p).value
        with w.when(w.emit("icmp eq i32 %lane, 0")):
            w.do(f"call void inttoptr (i64 {entry} to ptr)(i32 %warp, i32 {site})")
        machine.threads.warp_barrier(w)
        return [w.load("float", w.gep("i32", own, 12 + i), 4) for i in range(4)]

    def _multiply(self, warp: int, site: int) -> None:
        try:
            name, chosen = self._sites[site]
            self._area[warp, :, 12:] = self._product(name, chosen, self._area[warp]).view(np.uint32)
        except BaseException as error:  # which would end in the thread that called
            self.errors.append(error)

    @staticmethod
    def _product(name: str, chosen: tuple[int, int], lanes: Array) -> Array:
        found = re.fullmatch(
            r"mma\.sync\.aligned\.m16n8k(\d+)\.row\.col\.kind::(\w+)\.block_scale\."
            r"scale_vec::(\d)X\.f32\.(\w+)\.(\w+)\.f32\.ue8m0",
            name,
        )
        assert found is not None, name
        assert (
            found[1] == {"mxf8f6f4": "32", "mxf4": "64"}[found[2]]
            and found[3] == {"mxf8f6f4": "1", "mxf4": "2"}[found[2]]
        ), name
        own, groups = np.ascontiguousarray(lanes).view(np.uint8), int(found[3])
        a, b, c = np.zeros((16, 32), np.uint8), np.zeros((32, 8), np.uint8), np.zeros((16, 8))
        for lane in range(32):
            for i in range(16):
                a[byte_of_a(lane, i)] = own[lane, i]
            for i in range(8):
                b[byte_of_b(lane, i)] = own[lane, 16 + i]
            for i in range(4):
                c[element_of_c(lane, i)] = own[lane, 24:40].view(np.float32)[i]
        left, right = numbers(a, found[4], found[2]), numbers(b.T, found[5], found[2])
        scales = [
            np.array(
                [
                    [own[lane(line), first + chosen[side] + group] for group in range(groups)]
                    for line in range(lines)
                ]
            )
            for side, (lane, lines, first) in enumerate(
                ((lane_of_scale_a, 16, 40), (lane_of_scale_b, 8, 44))
            )
        ]
        left, right = (
            factor * np.repeat(power(scale), 32, 1)
            for factor, scale in zip((left, right), scales, strict=True)
        )
        accumulator = (left @ right.T + c).astype(np.float32)
        return np.array(
            [[accumulator[element_of_c(lane, i)] for i in range(4)] for lane in range(32)],
            np.float32,
        )


def numbers(codes: Array, format_: str, kind: str = "") -> Array:
    """What bytes along the last axis stand for; of e2m1, in pairs, or for ``mxf8f6f4`` in the
    middle of each byte, about which nothing may be."""
    if format_ == "e2m1" and kind == "mxf8f6f4":
        assert not np.any(codes & 0xC3), "bits beside a number of four bits"
        codes = codes >> 2
    elif format_ == "e2m1":
        codes = np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:-1], -1)
    return np.ascontiguousarray(codes).view(NUMBERS[format_]).astype(np.float64)


def power(scale: Array) -> Array:
    return np.where(scale == 255, np.nan, np.ldexp(1.0, scale.astype(int) - 127))


class Blackwell(EmulatedTarget):
    """The emulated machine with the instructions."""

    dialect = VendorDialect(interfaces=block_scaled.INTERFACES)

    def __init__(self) -> None:
        super().__init__()
        self.matrix = EmulatedMatrix(
            keeps_scaled=lambda operation: block_scaled.serves(120, operation)
        )

    def prepare(self, function: Function) -> KernelState:
        super().prepare(function)
        return state_of(PackedRegisters())


def drawn(rng: np.random.Generator, format_: str, rows: int, k: int) -> Array:
    """Bytes of rows of finite numbers."""
    if format_ == "e2m1":
        return rng.integers(0, 256, (rows, k // 2)).astype(np.uint8)
    return rng.standard_normal((rows, k)).astype(NUMBERS[format_]).view(np.uint8)


CASES = [
    (("e4m3", "e4m3"), (32, 16, 64), 1, (True, True), "kind::mxf8f6f4", 8),
    (("e4m3", "e5m2"), (16, 32, 128), 2, (True, False), "kind::mxf8f6f4", 8),
    (("e2m1", "e5m2"), (16, 8, 64), 1, (False, True), "kind::mxf8f6f4", 2),
    (("e5m2", "e2m1"), (8, 32, 32), 1, (True, True), "kind::mxf8f6f4", 2),
    (("e2m1", "e2m1"), (32, 16, 128), 2, (True, True), "kind::mxf4", 4),
    (("e2m1", "e2m1"), (8, 16, 64), 1, (True, False), "kind::mxf4", 1),
    (("e2m1", "e2m1"), (16, 16, 32), 1, (True, True), "kind::mxf8f6f4", 2),
    (("e4m3", "e2m1"), (16, 16, 256), 4, (True, True), "kind::mxf8f6f4", 8),
]


@pytest.mark.parametrize(("formats", "shape", "warps", "scales", "kind", "count"), CASES, ids=str)
def test_kernels_give_what_the_reference_gives(
    monkeypatch: pytest.MonkeyPatch,
    tile_ir: Callable[..., Module],
    formats: tuple[str, str],
    shape: tuple[int, int, int],
    warps: int,
    scales: tuple[bool, bool],
    kind: str,
    count: int,
) -> None:
    """Two pieces along K in a loop, whose operands and scales come through shared memory; a warp
    writes so many instructions for a piece."""
    (m, n, k), trips = shape, 2
    rng = np.random.default_rng(m * n + k)
    a, b = drawn(rng, formats[0], m, trips * k), drawn(rng, formats[1], n, trips * k)
    powers = [rng.integers(118, 136, (rows, trips * k // 32)).astype(np.uint8) for rows in (m, n)]
    if scales[0]:
        powers[0][3, 1] = 255
    c = rng.standard_normal((m, n)).astype(np.float32)
    given = constants(formats, shape, scales, trips)
    expected, found = np.full((m, n), 7, np.float32), np.full((m, n), 7, np.float32)
    scaled_kernel[(1,)](
        a, powers[0], b, powers[1], c, expected, trips, **given, backend="reference"
    )
    warp = Warp(warps)
    monkeypatch.setattr(block_scaled, "multiply", warp.write)
    module = tile_ir(scaled_kernel, SIGNATURE, given, arch="sm_120a", num_warps=warps)
    emulator.run(
        module, [a, powers[0], b, powers[1], c, found, trips], num_warps=warps, target=Blackwell()
    )
    assert not warp.errors, warp.errors
    assert all(kind in name for name in warp.names) and len(warp.names) == count
    exact = c + sum(
        np.nan_to_num(factor(a, formats[0], powers[0], scales[0]))[:, i * k : i * k + k]
        @ np.nan_to_num(factor(b, formats[1], powers[1], scales[1]))[:, i * k : i * k + k].T
        for i in range(trips)
    )
    assert np.isfinite(expected).any() and np.isnan(expected).sum() == (n if scales[0] else 0)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * float(np.abs(exact).max()))


def factor(codes: Array, format_: str, scale: Array, is_scaled: bool) -> Array:
    return numbers(codes, format_) * (np.repeat(power(scale), 32, 1) if is_scaled else 1)


# ---- what is written


@pytest.mark.each_value
@pytest.mark.parametrize("arch", ["sm_120a", "sm_121a"])
@pytest.mark.parametrize(
    ("formats", "shape", "warps", "name", "count"),
    [
        (
            ("e4m3", "e4m3"),
            (128, 128, 128),
            8,
            "m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0",
            64,
        ),
        (
            ("e2m1", "e2m1"),
            (128, 128, 128),
            8,
            "m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0",
            32,
        ),
        (
            ("e2m1", "e5m2"),
            (64, 64, 64),
            4,
            "m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e2m1.e5m2.f32.ue8m0",
            16,
        ),
        (
            ("e4m3", "e2m1"),
            (8, 64, 64),
            2,
            "m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e2m1.e4m3.f32.ue8m0",
            4,
        ),
    ],
)
def test_ptxas_takes_them_without_spills(
    assembled: Callable[..., Any],
    arch: str,
    formats: tuple[str, str],
    shape: tuple[int, int, int],
    warps: int,
    name: str,
    count: int,
) -> None:
    code, linked = assembled(
        scaled_kernel,
        SIGNATURE,
        arch,
        constants=constants(formats, shape, trips=4),
        num_warps=warps,
    )
    written = re.findall(
        r"mma\.sync\.aligned\.(\S+) .*\{(\d), 0\}, %r\d+, \{(\d), 0\};", code.stages["ptx"]
    )
    assert len(written) == count and {one[0] for one in written} == {name}
    # all four bytes of a register of scales, or both pairs of them
    assert {one[1] for one in written} == ({"0", "2"} if "k64" in name else {"0", "1", "2", "3"})
    assert linked.spills == 0 and "ex2" not in code.stages["ptx"]


def test_without_scales_the_scales_are_one(assembled: Callable[..., Any]) -> None:
    code, _ = assembled(
        scaled_kernel,
        SIGNATURE,
        "sm_120a",
        constants=constants(("e4m3", "e5m2"), (16, 8, 32), (False, False)),
        num_warps=1,
    )
    assert "block_scale" in code.stages["ptx"] and "2139062143" in code.stages["ptx"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("arch", "own"),
    [
        ("sm_120a", {"packed": False, "formats": ("e2m1", "e2m1")}),
        ("sm_120a", {"shape": (8, 8, 64)}),
        ("sm_120a", {"shape": (4, 32, 64)}),
        ("sm_100a", {}),
        ("sm_90a", {}),
        ("sm_89", {}),
    ],
)
def test_others_are_scaled_before_they_are_multiplied(
    assembled: Callable[..., Any], arch: str, own: dict[str, Any]
) -> None:
    given = {"formats": ("e4m3", "e4m3"), "shape": (32, 32, 64), **own}
    code, _ = assembled(scaled_kernel, SIGNATURE, arch, constants=constants(**given), num_warps=1)
    assert "block_scale" not in code.stages["ptx"]


def test_scales_of_fp8_keep_their_sign(assembled: Callable[..., Any]) -> None:
    """Of 16 elements, in f8e4m3fn: the instruction's are without sign."""

    @tw.jit
    def kernel(a, scale, out):
        rows, ks = tl.arange(0, 32), tl.arange(0, 64)
        left = tl.load(a + rows[:, None] * 64 + ks[None, :])
        scales = tl.load(scale + rows[:, None] * 8 + tl.arange(0, 8)[None, :])
        matmul = tl.dot_scaled(left, scales, "e2m1", left.T, scales, "e2m1")
        tl.store(out + rows[:, None] * 32 + rows[None, :], matmul)

    code, _ = assembled(
        kernel, {"a": "*u8", "scale": "*fp8e4nv", "out": "*fp32"}, "sm_120a", num_warps=1
    )
    assert "block_scale" not in code.stages["ptx"]


def test_the_report_names_the_instruction(assembled: Callable[..., Any]) -> None:
    code, _ = assembled(
        scaled_kernel, SIGNATURE, "sm_120a", constants=constants(("e2m1", "e2m1"), (32, 32, 64))
    )
    assert any(
        "mxf4" in str(stage) for name, stage in code.stages.items() if name not in ("ptx", "llvm")
    )
