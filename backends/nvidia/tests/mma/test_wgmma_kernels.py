"""Kernels with wgmma: the generated code, and the messages of ptxas."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hopper_support import ASYNCHRONOUS, TARGET, Operand, compiled, product_kernel
from matmuls_in_flight import overwritten
from nvidia_support import compile_kernel
from warpgroup_kernels import KINDS, SIZES, matmul_module, persistent_module, scaled_product

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.language.definitions.callable import device_function
from tilewright.passes import pipeline
from tilewright_nvidia.async_copy.swizzle_atoms import SPANS
from tilewright_nvidia.lower import lower
from tilewright_nvidia.mma.operand_loads import PAIRS_OF_A_WORD, ROWS_OF_TWO_WORDS
from tilewright_nvidia.toolchain.linking import assemble


@pytest.mark.parametrize(
    "x", [Operand(transposed, span) for transposed in (False, True) for span in SPANS], ids=str
)
def test_one_product_assembles(x: Operand) -> None:
    code = compiled(
        product_kernel((64, 64), 64, "f16", "f16", "f32", x, Operand(not x.transposed, x.span))
    )
    ptx = str(code.stages["ptx"])
    steps = re.findall(
        r"wgmma\.mma_async\.sync\.aligned\.m64n64k16\.f32\.f16\.f16 .*, 1, 1, (\d), (\d);", ptx
    )
    assert steps == [(str(int(x.transposed)), str(int(x.transposed)))] * 4
    assert (
        ptx.index("wgmma.fence")
        < ptx.index("wgmma.mma_async")
        < ptx.index("wgmma.commit_group")
        < ptx.index("wgmma.wait_group.sync.aligned 0;")
    )
    assert "C75" not in assemble(ptx, "sm_90a").log


@pytest.mark.parametrize(
    ("a", "b", "accumulator"),
    [
        ("bf16", "bf16", "f32"),
        ("f32", "f32", "f32"),
        ("f8e4m3fn", "f8e5m2", "f32"),
        ("i8", "u8", "i32"),
    ],
)
def test_other_kinds_assemble(a: str, b: str, accumulator: str) -> None:
    code = compiled(
        product_kernel(
            (64, 64),
            32 if a == "f32" else 64,
            a,
            b,
            accumulator,
            Operand(span=64),
            Operand(True, 64),
        )
    )
    assert "C75" not in assemble(code.stages["ptx"], "sm_90a").log


@pytest.mark.each_value
@pytest.mark.parametrize(("a", "b", "accumulator", "imprecise"), KINDS)
@pytest.mark.parametrize("transposed", [False, True], ids=["b", "b transposed"])
@pytest.mark.parametrize("parts", [False, True], ids=["blocks", "parts"])
def test_pipelined_products_of_each_kind_are_not_serialised(
    a: str, b: str, accumulator: str, imprecise: int | None, transposed: bool, parts: bool
) -> None:
    module = matmul_module(
        transposed, parts, (128, 128, 128 // SIZES[a]), 1024, a, b, accumulator, imprecise
    )
    ptx = str(
        lower(module, TARGET, {**ASYNCHRONOUS, "num_warps": 8, "num_stages": 3}).stages["ptx"]
    )
    linked = assemble(ptx, "sm_90a")
    # C7508: a kernel of few registers gives none away
    assert not re.search("C75(?!08)", linked.log) and not linked.spills, linked.log
    assert "mma.sync" not in ptx and len(re.findall("wgmma.mma_async", ptx)) == 4
    # what must be transposed on its way is transposed in words
    assert not re.search(r"[ls][dt]\.shared\.[bu](8|16)\b", ptx)
    # what threads wrote is visible to the async proxy before wgmma reads it
    before = ptx[: ptx.index("wgmma.mma_async")]
    written = before.rfind("st.shared")
    assert written < 0 or before.rfind("fence.proxy.async") > written
    additions = len(re.findall(r"add\.rn\.f32", ptx))
    assert additions == (64 * 128 // imprecise if imprecise else 0)


@pytest.mark.each_value
@pytest.mark.parametrize("transposed", [False, True], ids=["b", "b transposed"])
@pytest.mark.parametrize("parts", [False, True], ids=["blocks", "parts"])
@pytest.mark.parametrize(("block", "warps"), [((128, 128, 64), 4), ((128, 256, 64), 8)], ids=str)
def test_a_pipelined_product_is_not_serialised(
    transposed: bool, parts: bool, block: tuple[int, int, int], warps: int
) -> None:
    code = lower(
        matmul_module(transposed, parts, block),
        TARGET,
        {**ASYNCHRONOUS, "num_warps": warps, "num_stages": 3},
    )
    ptx = str(code.stages["ptx"])
    linked = assemble(ptx, "sm_90a")
    assert "C75" not in linked.log, linked.log
    assert linked.spills == 0, linked.log
    assert "cp.async.bulk.tensor.2d" in ptx and "mma.sync" not in ptx and "ldmatrix" not in ptx
    assert code.metadata["num_warps"] == warps + 4 * parts
    # one matmul stays in flight
    assert "wgmma.wait_group.sync.aligned 1;" in ptx
    assert [facts["address"] for facts in code.metadata["tensor_maps"]] == [
        ["word", 0, 0],
        ["word", 1, 0],
    ]
    assert len(re.findall(r"\.param \.align 64 \.b8 \w+\[128\]", ptx)) == 2


@pytest.mark.each_value
@pytest.mark.parametrize("halves", [False, True], ids=["whole", "halves"])
@pytest.mark.parametrize("flatten", [False, True], ids=["nested", "flattened"])
@pytest.mark.parametrize(
    ("block", "warps", "stages"),
    [((128, 128, 64), 4, 3), ((128, 256, 64), 8, 3), ((128, 256, 64), 8, 4)],
    ids=str,
)
def test_a_persistent_product_leaves_room_for_what_it_stores(
    block: tuple[int, int, int], warps: int, stages: int, flatten: bool, halves: bool
) -> None:
    code = lower(
        persistent_module(block, halves, flatten),
        TARGET,
        {**ASYNCHRONOUS, "num_warps": warps, "num_stages": stages},
    )
    ptx = str(code.stages["ptx"])
    linked = assemble(ptx, "sm_90a")
    assert "C75" not in linked.log and linked.spills == 0, linked.log
    assert code.metadata["num_warps"] == warps + 4 * flatten
    (bm, bn, bk) = block
    assert f"buffer<{stages} x {bk}x{bn}xf16" in str(code.stages["simt"]), (
        "as deep as was asked for"
    )
    # through atoms of 128 bytes, to which threads store without conflicts; and the program waits
    # for a store only when it needs the memory
    maps = code.metadata["tensor_maps"]
    found = [(facts["address"][1], facts["box"], facts["span"]) for facts in maps]
    assert found == [(0, [bm, bk], 128), (1, [bk, 64], 128), (2, [bm, 64], 128)]
    loop, _, _ = ptx.rpartition("cp.async.bulk.wait_group")
    assert loop.count("cp.async.bulk.commit_group") == ptx.count("cp.async.bulk.commit_group")
    first = re.search(r"cp\.async\.bulk\.wait_group|cp\.async\.bulk\.tensor\.2d\.global", ptx)
    assert first is not None and "wait_group" in first[0]


@pytest.mark.each_value
@pytest.mark.parametrize("parts", [False, True], ids=["blocks", "parts"])
@pytest.mark.parametrize("element", ["fp16", "bf16"])
def test_sums_that_are_converted_for_stores_are_not_read_early(parts: bool, element: str) -> None:
    def kernel(
        a: Any, b: Any, out: Any, M: Any, N: Any, K: Any, TO: tl.constexpr, PARTS: tl.constexpr
    ) -> None:
        m, n = tl.program_id(0) * 128, tl.program_id(1) * 256
        acc = tl.zeros((128, 256), dtype=tl.float32)
        for k in tl.range(0, K, 64, warp_specialize=PARTS):
            acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
        rows, columns = (m + tl.arange(0, 128))[:, None], (n + tl.arange(0, 256))[None, :]
        tl.store(out + rows * N + columns, acc.to(TO), mask=(rows < M) & (columns < N))

    constants = {"TO": tl.float16 if element == "fp16" else tl.bfloat16, "PARTS": parts}
    types = {
        "a": f"tensordesc<{element}[128,64]>",
        "b": f"tensordesc<{element}[64,256]>",
        "out": f"*{element}",
        **dict.fromkeys("MNK", "i32"),
    }
    facts = {name: {"divisibility": 16} for name in types}
    module = compile_function(
        device_function(kernel),
        {**types, **dict.fromkeys(constants, "constexpr")},
        constants,
        facts,
    )
    pipeline.run(module)
    code = lower(module, TARGET, {**ASYNCHRONOUS, "num_warps": 8, "num_stages": 3})
    assert "C75" not in assemble(str(code.stages["ptx"]), "sm_90a").log


def test_operands_in_registers_are_put_in_shared_memory() -> None:
    def kernel(x: Any, y: Any, out: Any, S: tl.constexpr) -> None:
        at = tl.arange(0, S)[:, None] * S + tl.arange(0, S)[None, :]
        tl.store(out + at, tl.dot((tl.load(x + at) * 2).to(tl.float16), tl.load(y + at)))

    signature = {"x": "*fp16", "y": "*fp16", "out": "*fp32"}
    code = compile_kernel(
        device_function(kernel), signature, constants={"S": 64}, asynchronous=True
    )
    ptx = str(code.stages["ptx"])
    # what threads wrote is shown to the matrix instructions before all threads meet
    assert re.search(
        r"fence\.proxy\.async\.shared::cta;(?:(?!st\.shared)[\s\S])*?bar(rier)?[.\w]*sync"
        r"[\s\S]*wgmma\.mma_async",
        ptx,
    )
    assert "C75" not in assemble(ptx, "sm_90a").log
    assert "wgmma" not in str(
        compile_kernel(
            device_function(kernel), signature, constants={"S": 64}, asynchronous=False
        ).stages["ptx"]
    )


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("format_", "element", "packed", "products"), [("e4m3", "fp8e4nv", 1, 1), ("e2m1", "u8", 2, 2)]
)
def test_block_scaled_operands_are_unpacked_by_twos(
    format_: str, element: str, packed: int, products: int
) -> None:
    constants = {"BLOCK": 128, "FORMAT": format_, "PACKED": packed}
    block, scales = f"tensordesc<{element}[128,{128 // packed}]>", "*u8"
    signature = {
        "a": block,
        "a_scales": scales,
        "b": block,
        "b_scales": scales,
        "out": "*fp32",
        "K": "i32",
        **dict.fromkeys(constants, "constexpr"),
    }
    facts = {name: {"divisibility": 16} for name in ("a", "a_scales", "b", "b_scales", "out", "K")}
    module = compile_function(device_function(scaled_product), signature, constants, facts)
    pipeline.run(module)
    ptx = str(
        lower(module, TARGET, {**ASYNCHRONOUS, "num_warps": 8, "num_stages": 2}).stages["ptx"]
    )
    linked = assemble(ptx, "sm_90a")
    # the loop that hardly ever runs spills, for the sake of a second CTA of an SM where shared
    # memory has room for one
    assert "C75" not in linked.log and (packed == 2 or not linked.spills), linked.log
    assert f".minnctapersm {packed}" in ptx
    # eight of the pipelined loop, and as many of the one that is run for scales out of bf16's range
    assert (
        "mma.sync" not in ptx
        and len(re.findall(r"wgmma\.mma_async\S+\.f32\.bf16\.bf16 ", ptx)) == 16
    )
    first = ptx[: [found.start() for found in re.finditer(r"wgmma\.mma_async", ptx)][7]]
    # each thread has 128 elements of both operands, each of which is multiplied by its scale, those
    # of e2m1 by a power of two before
    assert len(re.findall(r"mul\.(?:rn\.)?bf16x2", first)) == 64 * products and not re.search(
        r"mul\.(?:rn\.)?bf16 |mul\.rn\.f32|cvt\.rn\.bf16\.f32 %rs\d+, %r\d+;.*st\.shared", first
    )
    assert len(re.findall(r"cvt\.rn\.f16x2\.e4m3x2", first)) == (64 if packed == 1 else 0)


def test_an_operand_computed_of_copies_stays_in_registers() -> None:
    """ldmatrix reads the copied tile, threads scale it, and the instruction takes it from
    registers, which nothing writes before it has ended."""

    def kernel(
        x: Any, s: Any, y: Any, out: Any, K: Any, M: tl.constexpr, N: tl.constexpr, BK: tl.constexpr
    ) -> None:
        rows, columns, inner = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BK)
        scale = tl.load(s + rows)
        total = tl.zeros((M, N), dtype=tl.float32)
        for start in range(0, K, BK):
            a = tl.load(x + rows[:, None] * K + (start + inner)[None, :])
            b = tl.load(y + (start + inner)[:, None] * N + columns[None, :])
            total = tl.dot((a * scale[:, None]).to(tl.bfloat16), b, total)
        tl.store(out + rows[:, None] * N + columns[None, :], total)

    signature = {"x": "*bf16", "s": "*fp32", "y": "*bf16", "out": "*fp32", "K": "i32"}
    constants = {"M": 128, "N": 128, "BK": 64}
    code = compile_kernel(
        device_function(kernel),
        signature,
        constants=constants,
        num_warps=8,
        num_stages=3,
        asynchronous=True,
    )
    ptx = str(code.stages["ptx"])
    computed, multiplied = ptx.split("wgmma.mma_async", 1)
    assert "cp.async.bulk" in computed and "st.shared" not in computed
    assert computed.count("ldmatrix.sync.aligned.m8n8.x4.shared.b16") == 4
    assert "wgmma.wait_group" in multiplied and not overwritten(ptx)
    assert "C75" not in assemble(ptx, "sm_90a").log


@pytest.mark.parametrize(
    ("element", "transposed"), [("i8", False), ("i8", True), ("fp8e4nv", False), ("fp8e4nv", True)]
)
def test_narrow_weights_are_widened_in_registers(element: str, transposed: bool) -> None:
    """Weights are what instructions take from registers: the matmul is computed as its transpose.
    The loop stores nothing to shared memory and has no barrier. Bytes that follow each other along
    the rows of the weights are read by ``ldmatrix``, as pairs."""

    def kernel(
        x: Any,
        y: Any,
        out: Any,
        K: Any,
        M: tl.constexpr,
        N: tl.constexpr,
        BK: tl.constexpr,
        TURNED: tl.constexpr,
    ) -> None:
        total = tl.zeros((M, N), dtype=tl.float32)
        for k in range(0, K, BK):
            weights = y.load([0, k]).T if TURNED else y.load([k, 0])
            total = tl.dot(x.load([0, k]), weights.to(tl.bfloat16), total)
        rows, columns = tl.arange(0, M), tl.arange(0, N)
        tl.store(out + rows[:, None] * N + columns[None, :], total)

    constants = {"M": 128, "N": 128, "BK": 64, "TURNED": transposed}
    blocks = {
        "x": "tensordesc<bf16[128,64]>",
        "y": f"tensordesc<{element}[{'128,64' if transposed else '64,128'}]>",
    }
    signature = {**blocks, "out": "*fp32", "K": "i32", **dict.fromkeys(constants, "constexpr")}
    facts = {name: {"divisibility": 16} for name in ("x", "y", "out", "K")}
    module = compile_function(device_function(kernel), signature, constants, facts)
    pipeline.run(module)
    ptx = str(
        lower(module, TARGET, {**ASYNCHRONOUS, "num_warps": 8, "num_stages": 3}).stages["ptx"]
    )
    widened = ptx.split("wgmma.mma_async", 1)[0]
    assert "st.shared" not in widened and not overwritten(ptx)
    assert len(re.findall(r"ld\.shared\.b(?:8|16) ", widened)) == (
        16 if transposed else 0
    ) and not re.search(r"cvt\.rn\.f32\.s", widened)
    assert widened.count("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16") == (
        0 if transposed else 2
    )
    assert len(re.findall(rf"prmt\.b32 .*, {PAIRS_OF_A_WORD:#x}U;", widened)) == (
        0 if transposed or element == "i8" else 8
    )
    assert "C75" not in assemble(ptx, "sm_90a").log


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("element", "accumulator", "reads"),
    [("fp8e4nv", "fp32", 8), ("fp8e5", "fp16", 8), ("i8", "i32", 8), ("fp32", "fp32", 0)],
)
@pytest.mark.parametrize("parts", [False, True], ids=["blocks", "parts"])
def test_what_instructions_read_along_k_alone_is_turned_in_registers(
    element: str, accumulator: str, reads: int, parts: bool
) -> None:
    """Of elements that are not of 16 bits instructions read B from shared memory along K alone. B
    that lies along N goes through registers once: nothing is stored to shared memory in the loop,
    and it has no barrier of the threads."""
    block = 128, 128, 128 // SIZES[element]
    ptx = str(
        lower(
            matmul_module(False, parts, block, dtype=element, accumulator=accumulator),
            TARGET,
            {**ASYNCHRONOUS, "num_warps": 4, "num_stages": 3},
        ).stages["ptx"]
    )
    before = ptx.split("wgmma.mma_async", 1)[0]
    assert "st.shared" not in before and not overwritten(ptx)
    assert before.count("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16") == reads and len(
        re.findall(r"ld\.shared\.b32 ", before)
    ) == (32 if not reads else 0)
    assert [
        len(re.findall(rf"prmt\.b32 .*, {taken:#x}U;", before)) for taken in ROWS_OF_TWO_WORDS
    ] == [2 * reads] * 2
    # a copy of the block of B a stage, in rows of 128 bytes
    assert len(re.findall(r"cp\.async\.bulk\.tensor\.2d\.shared", ptx)) <= 8 * 3
    assert "C75" not in assemble(ptx, "sm_90a").log


def test_registers_that_a_product_reads_are_not_written_while_it_is_in_flight() -> None:
    """The second matmul's operand is independent of the first one's result.

    The next iteration could therefore compute it while this matmul is in flight.
    """

    def kernel(
        x: Any, y: Any, z: Any, w: Any, rows: Any, out: Any, K: Any, N: tl.constexpr
    ) -> None:
        at = tl.arange(0, N)
        square = tl.load(rows + at)[:, None] * N + at[None, :]
        aside, total = tl.zeros((N, N), dtype=tl.float32), tl.zeros((N, N), dtype=tl.float32)
        for k in range(K):
            there = k * N * N + square
            scaled = (tl.load(z + there) * 3).to(tl.bfloat16)
            aside = tl.dot(tl.load(x + there), tl.load(y + there), aside)
            total = tl.dot(scaled, tl.load(w + there), total)
        tl.store(out + at[:, None] * N + at[None, :], total + aside)

    signature = {**dict.fromkeys("xyzw", "*bf16"), "rows": "*i32", "out": "*fp32", "K": "i32"}
    code = compile_kernel(
        device_function(kernel),
        signature,
        constants={"N": 64},
        num_warps=4,
        num_stages=2,
        asynchronous=True,
    )
    ptx = str(code.stages["ptx"])
    assert "wgmma.mma_async" in ptx and not overwritten(ptx)


def test_writes_to_operands_of_products_in_flight_are_found() -> None:
    multiply = (
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2}, {%r1, %r2}, %rd1, %p1, "
        "1, 1, 0;"
    )
    loop = [
        "$L_1:",
        "cvt.rn.bf16x2.f32 %r1, %f8, %f9;",
        multiply,
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 1;",
        "@%p1 bra $L_1;",
    ]
    assert overwritten("\n".join(loop)) == [loop[1]]
    assert not overwritten("\n".join(loop).replace("aligned 1", "aligned 0"))
