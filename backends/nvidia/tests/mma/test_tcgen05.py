"""Matmuls by tcgen05, with accumulators in tensor memory.

Tests descriptors and layouts against the tables of the PTX ISA, the generated code, the messages of
ptxas, and the layouts in the emulator. No GPU with tensor memory has run them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from nvidia_support import compile_kernel
from warpgroup_kernels import matmul_module, persistent_module

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.ir.types import BF16, F8E4M3FN, F8E5M2, F16, F32, I8, I32, DescriptorType
from tilewright.language.definitions.callable import device_function
from tilewright.passes import pipeline
from tilewright.simt import emulator
from tilewright.simt.layouts.linear_layout import combine
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan
from tilewright.testing.emulator_check import small
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.async_copy.swizzle_atoms import SwizzleAtoms, matrix_offsets, swizzled_layout
from tilewright_nvidia.lower import lower
from tilewright_nvidia.manifest import OPTIONS
from tilewright_nvidia.mma import tcgen05
from tilewright_nvidia.target import PtxTarget
from tilewright_nvidia.toolchain.linking import assemble

TARGET = target_of(ARCHITECTURES["sm_100a"])


def bits(value: int, first: int, last: int) -> int:
    return value >> first & ((1 << last - first + 1) - 1)


# ---- descriptors


#: PTX ISA, section "Shared memory descriptor" of tcgen05, table of its layout: span of a slab ->
#: value of the field "swizzling mode".
SWIZZLING_MODE = {128: 2, 64: 4, 32: 6}


@pytest.mark.parametrize("span", SWIZZLING_MODE)
@pytest.mark.parametrize(("size", "inner"), [(2, 1), (2, 0), (1, 1), (1, 0), (4, 1)])
def test_a_shared_memory_descriptor_has_the_fields_of_the_table(
    span: int, size: int, inner: int
) -> None:
    shared = swizzled_layout((128, 128), size, SwizzleAtoms(inner, span))
    assert shared is not None
    found = matrix_offsets(shared, size, 1)
    assert found is not None and found.transposed == (inner == 0)
    value = tcgen05.descriptor_bits(found)
    # section "Strides": of layouts with K innermost the leading offset is not used (taken for 1);
    # of the others it is from one piece of a swizzle's width along M or N to the next, and the
    # stride offset from 8 rows to the next 8
    assert bits(value, 16, 29) == (1 if inner == 1 else 128 * span // 16)
    assert bits(value, 32, 45) == 8 * span // 16
    assert (
        bits(value, 46, 48) == 0b001
        and bits(value, 49, 51) == 0
        and bits(value, 52, 52) == 0
        and bits(value, 53, 60) == 0
    )
    assert bits(value, 61, 63) == SWIZZLING_MODE[span]
    assert bits(value, 0, 15) == bits(value, 30, 31) == 0


#: PTX ISA, section "Instruction descriptor", table for .kind::tf32, .kind::f16, .kind::f8f6f4:
#: operands -> (kind, atype, btype).
INSTRUCTION_TYPES = [
    (F16, F16, "f16", 0, 0),
    (BF16, BF16, "f16", 1, 1),
    (F32, F32, "tf32", 2, 2),
    (F8E4M3FN, F8E4M3FN, "f8f6f4", 0, 0),
    (F8E4M3FN, F8E5M2, "f8f6f4", 0, 1),
    (F8E5M2, F8E4M3FN, "f8f6f4", 1, 0),
]


@pytest.mark.parametrize(("a", "b", "name", "a_type", "b_type"), INSTRUCTION_TYPES)
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True)])
def test_an_instruction_descriptor_has_the_fields_of_the_table(
    a: Any, b: Any, name: str, a_type: int, b_type: int, transposed: tuple[bool, bool]
) -> None:
    kind = tcgen05.kind_of(Matmul((128, 64), 64, a, b, F32, "tf32", 0, 4))
    assert kind is not None and kind.name == name
    for rows, columns in ((128, 16), (64, 64), (128, 256)):
        value = tcgen05.instruction_descriptor(kind, a, b, rows, columns, transposed)
        assert bits(value, 0, 3) == 0 and bits(value, 4, 5) == 1 and bits(value, 6, 6) == 0
        assert (bits(value, 7, 9), bits(value, 10, 12)) == (a_type, b_type)
        assert bits(value, 13, 14) == 0 and (bits(value, 15, 15), bits(value, 16, 16)) == tuple(
            map(int, transposed)
        )
        assert (
            bits(value, 17, 22) == columns >> 3
            and bits(value, 23, 23) == 0
            and bits(value, 24, 28) == rows >> 4
            and bits(value, 29, 31) == 0
        )


# ---- layouts


def product_of(
    shape: tuple[int, int],
    k: int = 64,
    warps: int = 4,
    a: Any = F16,
    b: Any = None,
    accumulator: Any = F32,
    precision: str = "tf32",
) -> Matmul:
    return Matmul(shape, k, a, b or a, accumulator, precision, 0, warps)


@pytest.mark.parametrize(
    ("shape", "warps"),
    [
        ((128, 16), 4),
        ((128, 128), 4),
        ((128, 256), 8),
        ((256, 128), 8),
        ((256, 64), 4),
        ((128, 64), 16),
        ((512, 64), 8),
    ],
)
def test_registers_hold_what_instructions_move(shape: tuple[int, int], warps: int) -> None:
    """PTX ISA, "Data path layout organization", layout D: row i of 128 is in lane i, column j in
    column j. "Access restrictions": warp w of four reaches lanes
    32 w to 32 w + 31. "Matrix fragments for shape .32x32b": register i of lane l of a warp is
    column i of its lane l.
    """
    m, n = shape
    tiling = tcgen05.tile(product_of(shape, warps=warps))
    assert tiling is not None
    c = tcgen05.layouts(tiling, shape, 64)[2]
    images, elements = tcgen05.warp_images(tiling, shape), c.register_elements()
    seen = set()
    for warp in range(warps):
        address = combine(images, warp)
        first_lane, first_column = address >> 16, address & 0xFFFF
        assert first_lane == 32 * (warp % 4)
        for run in tcgen05.runs(tiling, shape):
            assert run.count in (1, 2, 4, 8, 16, 32, 64, 128)
            for lane in range(32):
                for i in range(run.count):
                    column = first_column + run.column + i
                    element = (
                        elements[run.register + i] ^ combine(c.lanes, lane) ^ combine(c.warps, warp)
                    )
                    assert divmod(element, n) == (column // n * 128 + first_lane + lane, column % n)
                    seen.add(element)
    assert len(seen) == m * n and tcgen05.columns_of(shape) >= m // 128 * n


@pytest.mark.parametrize(("n", "warps"), [(16, 4), (64, 4), (256, 4), (128, 8), (256, 16)])
def test_registers_hold_what_instructions_of_64_rows_move(n: int, warps: int) -> None:
    """Layout F: row i of 64 is in lane 32 (i / 16) + i mod 16. "Matrix fragments for shape
    .16x256b": of 8 columns, lane l has in registers 0 and 1 those from
    2 (l mod 4) on of its row l / 4, in registers 2 and 3 the same ones 8 rows on; the next four
    registers are of the next 8 columns.
    """
    shape = 64, n
    tiling = tcgen05.tile(product_of(shape, warps=warps))
    assert tiling is not None and tiling.rows == 64
    c = tcgen05.layouts(tiling, shape, 64)[2]
    images, elements = tcgen05.warp_images(tiling, shape), c.register_elements()
    seen = set()
    for warp in range(warps):
        address = combine(images, warp)
        assert address >> 16 == 32 * (warp % 4)
        for run in tcgen05.runs(tiling, shape):
            assert run.count in (4, 8, 16, 32, 64, 128)
            for lane in range(32):
                for i in range(run.count):
                    column = (address & 0xFFFF) + run.column + 8 * (i // 4) + 2 * (lane % 4) + i % 2
                    tensor_lane = (address >> 16) + lane // 4 + 8 * (i // 2 % 2)
                    element = (
                        elements[run.register + i] ^ combine(c.lanes, lane) ^ combine(c.warps, warp)
                    )
                    assert divmod(element, n) == (tensor_lane // 32 * 16 + tensor_lane % 16, column)
                    seen.add(element)
    assert len(seen) == 64 * n


@pytest.mark.parametrize(
    ("columns", "taken"), [(1, 32), (32, 32), (33, 64), (192, 256), (512, 512)]
)
def test_a_power_of_two_of_columns_is_taken(columns: int, taken: int) -> None:
    assert tcgen05.taken_columns(columns) == taken


# ---- plans


@pytest.mark.parametrize(
    ("a", "b", "accumulator", "precision", "name"),
    [
        (F16, F16, F32, "ieee", "tcgen05.f16.m128n64k16"),
        (BF16, BF16, F32, "ieee", "tcgen05.f16.m128n64k16"),
        (F32, F32, F32, "tf32", "tcgen05.tf32.m128n64k8"),
        (F8E4M3FN, F8E5M2, F32, "ieee", "tcgen05.f8f6f4.m128n64k32"),
        (F16, BF16, F32, "ieee", ""),
        (F16, F16, F16, "ieee", ""),
        (F32, F32, F32, "ieee", ""),
        (F32, F32, F32, "tf32x3", ""),
        (I8, I8, I32, "ieee", ""),
    ],
)
def test_kinds_of_products(a: Any, b: Any, accumulator: Any, precision: str, name: str) -> None:
    found = tcgen05.plans(
        product_of((128, 64), a=a, b=b, accumulator=accumulator, precision=precision)
    )
    assert [plan.name for plan in found] == ([name] if name else [])


@pytest.mark.parametrize(
    ("shape", "k", "warps"),
    [
        ((32, 64), 64, 4),
        ((64, 16), 64, 8),
        ((128, 8), 64, 4),
        ((128, 64), 8, 4),
        ((128, 64), 64, 2),
        ((128, 256), 64, 4),
        ((512, 256), 64, 16),
        ((2, 128, 64), 64, 4),
    ],
)
def test_products_that_are_too_small_or_too_large(
    shape: tuple[int, ...], k: int, warps: int
) -> None:
    assert not tcgen05.plans(Matmul(shape, k, F16, F16, F32, "ieee", 0, warps))


def test_operands_that_instructions_cannot_read() -> None:
    (plan,) = tcgen05.plans(product_of((128, 64), a=F32, k=32))
    along_k, along_m = (
        swizzled_layout((128, 32), 4, SwizzleAtoms(1, 128)),
        swizzled_layout((128, 32), 4, SwizzleAtoms(0, 128)),
    )
    assert along_k is not None and along_m is not None
    assert plan.can_read(0, along_k) and not plan.can_read(0, along_m), (
        "slabs of words along M would need another swizzle"
    )
    assert len(plan.wishes(0)) == 1
    (plan,) = tcgen05.plans(product_of((128, 16)))
    assert all(matrix_offsets(wish, 2, 0) is not None for wish in plan.wishes(1))


def test_on_data_center_blackwell_alone_and_where_it_is_not_refused() -> None:
    matmul = product_of((128, 128))
    for arch in ("sm_100a", "sm_103a"):
        target = PtxTarget(target_of(ARCHITECTURES[arch]))
        assert [plan.name.partition(".")[0] for plan in target.matrix.plans(matmul)] == [
            "tcgen05",
            "mma",
        ]
        assert [one.name for one in target.async_copy.mechanisms] == [
            "tma",
            "cp.async",
        ] and target.tensor_memory.columns == 512
    for arch, options in (
        ("sm_100a", {"asynchronous": False}),
        ("sm_90a", {}),
        ("sm_120a", {}),
        ("sm_80", {}),
    ):
        target = PtxTarget(target_of(ARCHITECTURES[arch]), {**OPTIONS, **options})
        assert target.tensor_memory is None and not any(
            plan.name.startswith("tcgen05") for plan in target.matrix.plans(matmul)
        )


# ---- kernels


def assembled(module: Any, arch: str = "sm_100a", **options: Any) -> str:
    """The PTX of a kernel, which ptxas takes without a warning or a spill."""
    ptx = str(
        lower(
            module,
            target_of(ARCHITECTURES[arch]),
            {**OPTIONS, "num_warps": 4, "num_stages": 3, **options},
        ).stages["ptx"]
    )
    linked = assemble(ptx, arch)
    assert not linked.spills and not re.search(r"\bwarning\b|C75(?!08)", linked.log, re.I), (
        linked.log
    )
    return ptx


def count(ptx: str, text: str) -> int:
    return len(re.findall(text, ptx))


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("a", "b", "k"),
    [("fp16", "fp16", 64), ("bf16", "bf16", 64), ("fp32", "fp32", 32), ("fp8e4nv", "fp8e5", 128)],
)
@pytest.mark.parametrize("transposed", [False, True], ids=["b", "b transposed"])
@pytest.mark.parametrize("parts", [False, True], ids=["blocks", "parts"])
def test_pipelined_products_of_each_kind(
    a: str, b: str, k: int, transposed: bool, parts: bool
) -> None:
    ptx = assembled(matmul_module(transposed, parts, (128, 128, k), dtype=a, other=b))
    assert count(ptx, r"tcgen05\.mma\.") == 4 and not count(ptx, r"mma\.sync")
    # accumulator stay where they are while the loop runs, and are read once
    assert count(ptx, r"tcgen05\.ld\.") == 4 and not count(ptx, r"tcgen05\.st\.")
    order = [
        ptx.index(text)
        for text in (
            "tcgen05.alloc",
            "tcgen05.relinquish",
            "tcgen05.mma",
            "tcgen05.commit",
            "tcgen05.ld",
            "tcgen05.wait::ld",
            "tcgen05.dealloc",
        )
    ]
    assert order == sorted(order)
    # the matmul releases its slot, and another mbarrier signals the end of the last one, unless
    # threads must release it
    threads_turn = not transposed and a == "fp32"
    assert count(ptx, r"tcgen05\.commit\.") == (1 if threads_turn else 2)
    (descriptor,) = set(re.findall(r"mov\.b32 %i, (\d+);", ptx))
    assert bits(int(descriptor), 16, 16) == (not transposed and not threads_turn)


@pytest.mark.each_value
@pytest.mark.parametrize("arch", ["sm_100a", "sm_103a"])
@pytest.mark.parametrize(
    ("block", "warps", "reads"),
    [((128, 128, 64), 8, 2), ((128, 256, 64), 8, 4), ((256, 64, 64), 8, 2), ((256, 64, 64), 4, 4)],
    ids=str,
)
def test_blocks_of_several_sizes(
    block: tuple[int, int, int], warps: int, reads: int, arch: str
) -> None:
    ptx = assembled(matmul_module(True, False, block), arch, num_warps=warps)
    assert (
        count(ptx, r"tcgen05\.mma\.") == 4 * block[0] // 128
        and count(ptx, r"tcgen05\.ld\.") == reads
    )
    assert (
        f".b32 [%r{re.search(r'shared::cta.b32 .%r([0-9]+).', ptx)[1]}], "
        f"{block[0] // 128 * block[1]};"
    ) in ptx  # type: ignore[index]


@pytest.mark.parametrize(("columns", "warps"), [(64, 4), (128, 4), (256, 8)])
def test_blocks_of_64_rows(columns: int, warps: int) -> None:
    ptx = assembled(matmul_module(True, False, (64, columns, 64)), num_warps=warps)
    assert (
        count(ptx, r"tcgen05\.mma\.") == 4
        and count(ptx, r"tcgen05\.ld\.sync\.aligned\.16x256b\.x")
        == max(2, columns // 64 * 4 // warps)
        and "mma.sync" not in ptx
    )


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("block", [(128, 128, 64), (128, 256, 64)], ids=str)
def test_persistent_products(block: tuple[int, int, int], halves: bool) -> None:
    ptx = assembled(persistent_module(block, halves, flatten=True), num_warps=8)
    assert (
        count(ptx, r"tcgen05\.alloc\.") == count(ptx, r"tcgen05\.dealloc\.") == 1
        and count(ptx, r"tcgen05\.mma\.") == 4
    )


def two_sums(
    a: Any, b: Any, c: Any, out: Any, K: Any, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
) -> None:
    first, second = tl.zeros((BM, BN), dtype=tl.float32), tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        first = tl.dot(a.load([0, k]), b.load([k, 0]), first)
    for k in range(0, K, BK):
        second = tl.dot(a.load([0, k]), c.load([k, 0]), second)
    tl.store(out + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], first * second)


@pytest.mark.parametrize(("columns", "taken"), [(128, 256), (256, 512)])
def test_several_sums_of_a_kernel(columns: int, taken: int) -> None:
    constants = {"BM": 128, "BN": columns, "BK": 32}
    types = {
        "a": "tensordesc<fp16[128,32]>",
        **dict.fromkeys("bc", f"tensordesc<fp16[32,{columns}]>"),
    }
    signature = {**types, "out": "*fp32", "K": "i32", **dict.fromkeys(constants, "constexpr")}
    facts = {name: {"divisibility": 16} for name in "abc"}
    module = compile_function(
        device_function(two_sums), signature, constants, {**facts, "out": {"divisibility": 16}}
    )
    pipeline.run(module)
    ptx = str(lower(module, TARGET, {**OPTIONS, "num_warps": 8, "num_stages": 2}).stages["ptx"])
    assert assemble(ptx, "sm_100a").binary.startswith(b"\x7fELF")
    assert (
        re.findall(r"tcgen05\.alloc\S* \[%r\d+\], (\d+);", ptx) == [str(taken)]
        and count(ptx, r"tcgen05\.mma\.") == 4
    )


def three_sums(a: Any, b: Any, out: Any, K: Any, BN: tl.constexpr) -> None:
    for i in tl.static_range(3):
        accumulator = tl.zeros((128, BN), dtype=tl.float32)
        for k in range(0, K, 32):
            accumulator = tl.dot(a.load([128 * i, k]), b.load([k, 0]), accumulator)
        tl.store(
            out + (128 * i + tl.arange(0, 128))[:, None] * BN + tl.arange(0, BN)[None, :],
            accumulator,
        )


@pytest.mark.parametrize(("columns", "instruction"), [(128, "tcgen05.mma"), (256, "mma.sync")])
def test_more_sums_than_tensor_memory_holds_are_in_registers(
    columns: int, instruction: str
) -> None:
    types = {"a": "tensordesc<fp16[128,32]>", "b": f"tensordesc<fp16[32,{columns}]>"}
    signature = {**types, "out": "*fp32", "K": "i32", "BN": "constexpr"}
    facts = {name: {"divisibility": 16} for name in ("a", "b", "out")}
    module = compile_function(device_function(three_sums), signature, {"BN": columns}, facts)
    pipeline.run(module)
    code = lower(module, TARGET, {**OPTIONS, "num_warps": 8, "num_stages": 2})
    ptx = str(code.stages["ptx"])
    told = any(
        "would take 768 columns of tensor memory, which has 512" in note
        for note in code.metadata["notes"]
    )
    assert told == (instruction == "mma.sync")
    assert {name for name in ("tcgen05.mma", "mma.sync") if name in ptx} == {instruction}
    assert assemble(ptx, "sm_100a").binary.startswith(b"\x7fELF")


def attend(
    q: Any, k: Any, v: Any, out: Any, n: Any, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
) -> None:
    queries = q.load([tl.program_id(0) * BM, 0])
    most, total = tl.full((BM,), -float("inf"), tl.float32), tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    for j in range(0, n, BN):
        scores = tl.dot(queries, k.load([j, 0]).T)
        higher = tl.maximum(most, tl.max(scores, 1))
        weights, scale = tl.exp2(scores - higher[:, None]), tl.exp2(most - higher)
        total, most = total * scale + tl.sum(weights, 1), higher
        acc = tl.dot(weights.to(tl.float16), v.load([j, 0]), acc * scale[:, None])
    out.store([tl.program_id(0) * BM, 0], (acc / total[:, None]).to(tl.float16))


@pytest.mark.parametrize(("d", "warps"), [(64, 4), (64, 8), (128, 8)])
def test_a_chain_of_products_writes_and_reads_its_sums(d: int, warps: int) -> None:
    """Those of attention: the first starts at zero, the second at accumulator that threads scale,
    and its left operand is put into shared memory. Each is written
    twice: before the loop and in it, in the loop and behind it."""
    types = {
        name: f"tensordesc<fp16[{rows},{d}]>"
        for name, rows in (("q", 128), ("k", 64), ("v", 64), ("out", 128))
    }
    constants = {"D": d, "BM": 128, "BN": 64}
    signature = {**types, "n": "i32", **dict.fromkeys(constants, "constexpr")}
    facts = {name: {"divisibility": 16, "extent_divisibility": 8} for name in types}
    module = compile_function(device_function(attend), signature, constants, facts)
    pipeline.run(module)
    ptx = assembled(module, num_warps=warps)
    assert (
        count(ptx, r"tcgen05\.mma\.") == 2 * (d // 16 + 4)
        and count(ptx, r"tcgen05\.st\.")
        and not count(ptx, r"mma\.sync")
    )
    stored, fenced = ptx.index("tcgen05.st"), ptx.index("tcgen05.wait::st")
    assert (
        stored
        < fenced
        < ptx.index("tcgen05.fence::before_thread_sync", fenced)
        < ptx.index("barrier.cta.sync", fenced)
        < ptx.index("tcgen05.mma", fenced)
    )


def at_pointers(
    a: Any, b: Any, c: Any, K: Any, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
) -> None:
    rows, columns, along = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        # rows by a rule that no block has
        x = tl.load(a + ((rows * 5) % BM)[:, None] * K + (k + along)[None, :])
        y = tl.load(b + (k + ((along * 3) % BK))[:, None] * BN + columns[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rows[:, None] * BN + columns[None, :], acc)


def test_products_of_what_threads_copy() -> None:
    constants = {"BM": 128, "BN": 128, "BK": 64}
    code = compile_kernel(
        device_function(at_pointers),
        {**dict.fromkeys("ab", "*fp16"), "c": "*fp32", "K": "i32"},
        "sm_100a",
        constants=constants,
        num_stages=3,
    )
    ptx = str(code.stages["ptx"])
    assert (
        count(ptx, r"cp\.async\.cg")
        and count(ptx, r"tcgen05\.mma\.") == 4
        and count(ptx, r"tcgen05\.ld\.") == 4
        and not count(ptx, r"tcgen05\.st\.")
    )
    linked = assemble(ptx, "sm_100a")
    assert not linked.spills, linked.log


# ---- on the emulated machine


class Emulated(emulator.EmulatedTarget):
    """The emulator with tensor memory layouts, and operands in swizzle atoms."""

    name = "emulated tensor memory"

    def __init__(self, completion: str) -> None:
        super().__init__(32, completion=completion)
        self.async_copy.mechanisms = (emulator.bulk_mechanism(stores=False),)
        self.async_proxy, self.tensor_memory = (
            emulator.EmulatedProxy(self.record),
            emulator.EmulatedTensorMemory(512),
        )
        self.tma = emulator.EmulatedTma(
            self.record, lambda operation, divisors, width: operation.name == "descriptor_load"
        )
        self.matrix = emulator.EmulatedMatrix(self._plans)

    def _plans(self, matmul: Matmul) -> Sequence[MatmulPlan]:
        (plan,) = tcgen05.plans(matmul)
        assert plan.accumulator is not None
        made = emulator.accumulating_plan(plan.name, matmul, plan.c, plan.accumulator.units)
        return (
            MatmulPlan(
                plan.name,
                plan.a,
                plan.b,
                plan.c,
                made.emit,
                made.reads,
                a_shared=plan.a_shared,
                b_shared=plan.b_shared,
                a_others=plan.a_others,
                b_others=plan.b_others,
                accepts=plan.accepts,
                accumulator=made.accumulator,
            ),
        )


def scaled_sums(
    a: Any,
    b: Any,
    out: Any,
    n: Any,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    EACH: tl.constexpr,
) -> None:
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, n, BK):
        if EACH:
            acc = acc * 2.0
        acc = tl.dot(a.load([0, k]), b.load([k, 0]), acc, input_precision="tf32")
    tl.store(out + tl.arange(0, BM)[:, None] * BN + tl.arange(0, BN)[None, :], acc)


@pytest.mark.each_value
@pytest.mark.parametrize("completion", ["late", "early", "random"])
@pytest.mark.parametrize("each", [False, True], ids=["kept", "scaled"])
@pytest.mark.parametrize(("m", "warps"), [(128, 4), (256, 8), (128, 8), (64, 4)])
def test_layouts_of_tensor_memory_on_the_emulated_machine(
    m: int, warps: int, each: bool, completion: str
) -> None:
    constants = {"BM": m, "BN": 16, "BK": 8, "EACH": each}
    types = {"a": f"tensordesc<fp32[{m},8]>", "b": "tensordesc<fp32[8,16]>"}
    module = compile_function(
        device_function(scaled_sums),
        {**types, "out": "*fp32", "n": "i32", **dict.fromkeys(constants, "constexpr")},
        constants,
    )
    pipeline.run(module)
    assert isinstance(module.kernel.arguments[0].type, DescriptorType)
    rng = np.random.default_rng(warps)
    a, b, out = small(rng, m, 40), small(rng, 40, 16), np.full((m, 16), np.nan, np.float32)
    emulator.run(
        module,
        [emulator.EmulatedDescriptor(a), emulator.EmulatedDescriptor(b), out, 40],
        target=Emulated(completion),
        num_warps=warps,
        num_stages=3,
    )
    expected = np.zeros((m, 16), np.float32)
    for k in range(0, 40, 8):
        expected = expected * (2 if each else 1) + a[:, k : k + 8] @ b[k : k + 8]
    np.testing.assert_array_equal(out, expected)
    assert any(operation.name == "simt.dot_into" for operation in module.walk())


def weighted_rows(
    q: Any, k: Any, v: Any, out: Any, n: Any, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr
) -> None:
    queries = q.load([0, 0])
    most, acc = tl.full((BM,), -100.0, tl.float32), tl.zeros((BM, D), dtype=tl.float32)
    for j in tl.range(0, n, BN, warp_specialize=True):
        scores = tl.dot(queries, k.load([j, 0]).T, input_precision="tf32")
        higher = tl.maximum(most, tl.max(scores, 1))
        acc = tl.dot(
            scores - higher[:, None],
            v.load([j, 0]),
            acc + (higher - most)[:, None],
            input_precision="tf32",
        )
        most = higher
    tl.store(out + tl.arange(0, BM)[:, None] * D + tl.arange(0, D)[None, :], acc)


@pytest.mark.parametrize("completion", ["late", "random"])
@pytest.mark.parametrize("m", [64, 128])
def test_a_chain_with_layouts_of_tensor_memory_on_the_emulated_machine(
    m: int, completion: str
) -> None:
    """In whole numbers, which all machines sum up exactly."""
    constants = {"BM": m, "BN": 16, "D": 16}
    types = {
        name: f"tensordesc<fp32[{rows},16]>" for name, rows in (("q", m), ("k", 16), ("v", 16))
    }
    module = compile_function(
        device_function(weighted_rows),
        {**types, "out": "*fp32", "n": "i32", **dict.fromkeys(constants, "constexpr")},
        constants,
    )
    pipeline.run(module)
    rng = np.random.default_rng(m)
    q, k, v, out = (
        small(rng, m, 16),
        small(rng, 48, 16),
        small(rng, 48, 16),
        np.full((m, 16), np.nan, np.float32),
    )
    emulator.run(
        module,
        [*map(emulator.EmulatedDescriptor, (q, k, v)), out, 48],
        target=Emulated(completion),
        num_warps=4,
        num_stages=2,
    )
    most, acc = np.full(m, -100.0, np.float32), np.zeros((m, 16), np.float32)
    for j in range(0, 48, 16):
        scores = q @ k[j : j + 16].T
        higher = np.maximum(most, scores.max(axis=1))
        acc, most = (
            acc + (higher - most)[:, None] + (scores - higher[:, None]) @ v[j : j + 16],
            higher,
        )
    np.testing.assert_array_equal(out, acc)
    assert sum(operation.name == "simt.part" for operation in module.walk()) == 2
