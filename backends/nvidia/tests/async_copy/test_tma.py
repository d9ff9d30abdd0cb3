"""Mbarriers and TMA copies: the generated code, and that ptxas accepts it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hopper_support import (
    ASYNCHRONOUS,
    TARGET,
    barrier_kernel,
    compiled,
    kernel,
    load_kernel,
    shifted_module,
    store_kernel,
)
from tma_kernels import UPDATES, updated_module
from warpgroup_kernels import matmul_module

import tilewright.language as tl
from tilewright.errors import LoweringError
from tilewright.frontend.compile import compile_function
from tilewright.language.definitions.callable import device_function
from tilewright.passes import pipeline
from tilewright_nvidia.async_copy.swizzle_atoms import SwizzleAtoms
from tilewright_nvidia.async_copy.tensor_maps import ROUNDED
from tilewright_nvidia.codegen.register_redistribution import divided_registers
from tilewright_nvidia.lower import lower
from tilewright_nvidia.toolchain.linking import assemble


def instructions(ptx: object, *names: str) -> list[str]:
    """The lines of PTX that begin with one of some names, predicates aside."""
    return [
        line.strip()
        for line in str(ptx).splitlines()
        if re.sub(r"^@!?%\w+\s+", "", line.strip()).startswith(names)
    ]


def constants(ptx: object) -> dict[str, str]:
    """Registers that are given a number."""
    return dict(re.findall(r"mov\.b32 \t(%r\d+), (\d+);", str(ptx)))


# ---- barrier objects


def test_barrier_objects() -> None:
    ptx = compiled(barrier_kernel(5)).stages["ptx"]
    begun = instructions(ptx, "mbarrier.init")
    assert len(begun) == 2 and str(ptx).rindex(begun[-1]) < str(ptx).index(
        "fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;"
    )
    assert len(instructions(ptx, "mbarrier.arrive.release.cta.shared::cta.b64 _, [")) == 5
    waits = re.findall(
        (
            r"again:\n\s*mbarrier\.try_wait\.parity\.acquire\.cta\.shared::cta\.b64 %ended, "
            r"\[%r\d+\], (%r\d+);\n\s*@!%ended bra again;"
        ),
        str(ptx),
    )
    assert [constants(ptx)[name] for name in waits] == ["1", "0", "1", "0", "0", "1"]
    assert "C75" not in assemble(ptx, "sm_90a").log


def test_parts_have_barriers_of_their_own() -> None:
    body = """
  %b = simt.barriers {count = 4} : barriers<1>
  %zero = constant 0 : i32
  %no = constant false : i1
  simt.partition parts {
    simt.part {name = "math", warps = 8, registers = 240} body {
      simt.await %b, %zero, %no
      barrier
      yield
    }
    simt.part {name = "load", warps = 4, registers = 24} body {
      barrier
      simt.arrive %b, %zero
      yield
    }
    yield
  }"""
    ptx = compiled(kernel([], body, warps=12)).stages["ptx"]
    assert ".reqntid 384" in str(ptx)
    assert instructions(ptx, "barrier.cta.sync.aligned 1", "barrier.cta.sync.aligned 2") == [
        "barrier.cta.sync.aligned 1, 256;",
        "barrier.cta.sync.aligned 2, 128;",
    ]
    assert instructions(ptx, "setmaxnreg") == [
        "setmaxnreg.inc.sync.aligned.u32 240;",
        "setmaxnreg.dec.sync.aligned.u32 24;",
    ]
    assert assemble(ptx, "sm_90a").binary


@pytest.mark.parametrize(
    ("warps", "programs", "expected"),
    [
        ({"math": 8, "load": 4}, 1, {"math": 240, "load": 24}),
        ({"math": 4, "load": 4}, 1, {}),  # 65,536 registers are enough for 256 threads
        ({"math": 2, "load": 4}, 1, {}),
        ({"math": 16, "load": 4}, 1, {"math": 112, "load": 24}),
        ({"math": 8, "load": 4}, 2, {"math": 104, "load": 24}),
        ({"math": 4, "load": 4}, 2, {"math": 232, "load": 24}),
        ({"math": 4, "load": 4}, 4, {"math": 104, "load": 24}),
    ],
)
def test_parts_share_the_registers(
    warps: dict[str, int], programs: int, expected: dict[str, int]
) -> None:
    assert divided_registers(warps, programs) == expected
    given = {name: expected.get(name, 168) for name in warps}
    assert (
        not expected
        or programs * sum(32 * count * given[name] for name, count in warps.items()) <= 65536
    )


# ---- copies


@pytest.mark.parametrize(
    ("block", "element", "slabs", "copies", "padding"),
    [
        ((64, 64), "f16", SwizzleAtoms(1, 128), [(0, 0)], "zero"),
        ((64, 64), "f16", SwizzleAtoms(1, 64), [(0, 0), (4096, 32)], "nan"),
        ((16, 16, 32), "f32", SwizzleAtoms(2, 64), [(0, 0), (16384, 16)], "zero"),
        (
            (1024,),
            "i32",
            SwizzleAtoms(0, 0),
            [(0, 0), (1024, 256), (2048, 512), (3072, 768)],
            "zero",
        ),
    ],
)
def test_blocks_to_shared_memory(
    block: tuple[int, ...],
    element: str,
    slabs: SwizzleAtoms,
    copies: list[tuple[int, int]],
    padding: str,
) -> None:
    code = compiled(load_kernel(block, element, slabs, padding))
    ptx = str(code.stages["ptx"])
    rank = len(block)
    found = re.findall(
        (
            rf"cp\.async\.bulk\.tensor\.{rank}d\.shared::cluster\.global\."
            r"mbarrier::complete_tx::bytes "
            rf"\[(%\w+)\], \[(%\w+), \{{(.*)\}}\], \[(%\w+)\];"
        ),
        ptx,
    )
    assert len(found) == len(copies) and all(
        len(axes.split(", ")) == rank for _, _, axes, _ in found
    )
    # the innermost coordinate comes first, and moves on from copy to copy
    llir = str(code.stages["llir"])
    steps = [(int(step), f"%a{1 + 2 * rank + 1 + rank}") for _, step in copies if step]
    assert re.findall(r"add i32 (%a\d+), (\d+)\n", llir) == [
        (name, str(step)) for step, name in steps
    ]
    assert re.findall(r"getelementptr i8, ptr addrspace\(3\) %t\d+, i32 (\d+)\n", llir)[
        : len(steps)
    ] == [str(offset) for offset, _ in copies[1:]]
    (facts,) = code.metadata["tensor_maps"]
    assert (facts["address"], facts["span"], facts["nan"]) == (
        ["word", 0, 0],
        slabs.span,
        padding == "nan",
    )
    assert facts["extents"] == [["word", 0, 1 + axis] for axis in range(rank)] and facts[
        "strides"
    ] == [["word", 0, 1 + rank + axis] for axis in range(rank)]
    assert assemble(ptx, "sm_90a").binary


def test_blocks_from_shared_memory() -> None:
    ptx = str(compiled(store_kernel((64, 64), "f16", SwizzleAtoms(1, 128))).stages["ptx"])
    order = [
        "st.shared",
        "fence.proxy.async.shared::cta;",
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [",
        "cp.async.bulk.commit_group;",
    ]
    order.append("cp.async.bulk.wait_group.read 0;")  # nothing of the kernel reads the tensor
    places = [ptx.index(text) for text in order]
    assert places == sorted(places) and ptx.rindex("st.shared") < places[1]
    assert re.search(r"bar\S*sync", ptx[places[1] : places[2]])
    assert assemble(ptx, "sm_90a").binary


def test_one_map_for_each_shape_of_box() -> None:
    """The copies before a loop and those in it are of one layout."""
    code = lower(
        matmul_module(transposed=True, parts=False, block=(128, 128, 64)),
        TARGET,
        {**ASYNCHRONOUS, "num_warps": 4, "num_stages": 4},
    )
    assert [(facts["address"], facts["box"]) for facts in code.metadata["tensor_maps"]] == [
        (["word", 0, 0], [128, 64]),
        (["word", 1, 0], [128, 64]),
    ]
    assert (
        len(
            re.findall(
                r'ptr byval\(\[128 x i8\]\) align 64 "nvvm.grid_constant" %map',
                str(code.stages["llir"]),
            )
        )
        == 2
    )


def copied_elements(module: Any) -> list[str]:
    code = lower(module, TARGET, {**ASYNCHRONOUS, "num_warps": 4, "num_stages": 2})
    assert "wgmma" in str(code.stages["ptx"]) or "mma.sync" in str(code.stages["ptx"])
    return [facts["element"] for facts in code.metadata["tensor_maps"]]


@pytest.mark.parametrize("parts", [False, True], ids=["blocks", "parts"])
def test_operands_of_tf32_products_are_rounded_on_the_way(parts: bool) -> None:
    block = (64, 64, 32)
    assert copied_elements(matmul_module(True, parts, block, dtype="fp32")) == [ROUNDED, ROUNDED]
    # threads read B, to turn it
    assert copied_elements(matmul_module(False, parts, block, dtype="fp32")) == [ROUNDED, "f32"]
    # more bits are wanted
    assert copied_elements(matmul_module(True, parts, block, dtype="fp32", precision="tf32x3")) == [
        "f32",
        "f32",
    ]
    assert copied_elements(matmul_module(True, parts, block, dtype="bf16")) == ["bf16", "bf16"]


def test_what_else_is_read_is_not_rounded() -> None:
    def kernel(a: Any, b: Any, out: Any, seen: Any, K: Any) -> None:
        acc, rest = tl.zeros((64, 64), dtype=tl.float32), tl.zeros((64,), dtype=tl.float32)
        for k in range(0, K, 32):
            x = a.load([0, k])
            rest += tl.sum(x, axis=1)
            acc = tl.dot(x, b.load([0, k]).T, acc, input_precision="tf32")
        at = tl.arange(0, 64)
        tl.store(out + at[:, None] * 64 + at[None, :], acc)
        tl.store(seen + at, rest)

    types = {
        "a": "tensordesc<fp32[64,32]>",
        "b": "tensordesc<fp32[64,32]>",
        "out": "*fp32",
        "seen": "*fp32",
        "K": "i32",
    }
    module = compile_function(
        device_function(kernel), types, {}, {name: {"divisibility": 16} for name in "ab"}
    )
    pipeline.run(module)
    assert copied_elements(module) == ["f32", ROUNDED]


def test_plain_launches_pass_no_maps() -> None:
    code = lower(
        matmul_module(transposed=True, parts=False, block=(128, 128, 64)),
        TARGET,
        {"num_warps": 4, "num_stages": 3, "asynchronous": False},
    )
    asynchronous = lower(
        matmul_module(transposed=True, parts=False, block=(128, 128, 64)),
        TARGET,
        {**ASYNCHRONOUS, "num_warps": 4, "num_stages": 3},
    )
    assert asynchronous.metadata.keys() == code.metadata.keys()
    assert (
        asynchronous.metadata["otherwise"] == {"asynchronous": False}
        and code.metadata["otherwise"] is None
    )
    assert code.metadata["tensor_maps"] == [] and "cp.async.bulk" not in str(code.stages["ptx"])
    with pytest.raises(LoweringError, match="asynchronous must be True or False, not 1"):
        lower(
            matmul_module(transposed=True, parts=False, block=(128, 128, 64)),
            TARGET,
            {"asynchronous": 1},
        )


@pytest.mark.parametrize(("divisor", "copied"), [(1, False), (4, False), (8, True), (16, True)])
def test_the_engine_copies_what_begins_at_16_bytes(divisor: int, copied: bool) -> None:
    ptx = str(
        lower(
            shifted_module(divisor), TARGET, {**ASYNCHRONOUS, "num_warps": 4, "num_stages": 2}
        ).stages["ptx"]
    )
    assert ("cp.async.bulk.tensor.2d.shared" in ptx) == copied
    # what is stored begins at 0
    assert "cp.async.bulk.tensor.2d.global" in ptx


def copied_on(x: Any, y: Any) -> None:
    y.store([tl.program_id(0) * 32, 0], x.load([tl.program_id(0) * 32, 0]))


@pytest.mark.parametrize(("divisor", "stored"), [(1, False), (4, False), (8, True), (16, True)])
def test_the_engine_stores_rows_that_end_at_16_bytes(divisor: int, stored: bool) -> None:
    """Of a row it writes whole pieces of 16 bytes, the last one too, which may be the beginning of
    what lies behind the tensor."""
    facts = {
        "x": {"divisibility": 16, "extent_divisibility": 1},
        "y": {"divisibility": 16, "extent_divisibility": divisor},
    }
    module = compile_function(
        device_function(copied_on), dict.fromkeys("xy", "tensordesc<fp16[32,64]>"), {}, facts
    )
    pipeline.run(module)
    ptx = str(
        lower(module, TARGET, {**ASYNCHRONOUS, "num_warps": 4, "num_stages": 2}).stages["ptx"]
    )
    assert ("cp.async.bulk.tensor.2d.global" in ptx) == stored


# ---- updates


@pytest.mark.parametrize(("kind", "element"), UPDATES)
def test_blocks_are_updated_by_the_engine(kind: str, element: str) -> None:
    code = lower(updated_module(kind, element), TARGET, {**ASYNCHRONOUS, "num_warps": 4})
    ptx = str(code.stages["ptx"])
    assert re.search(
        rf"cp\.reduce\.async\.bulk\.tensor\.2d\.global\.shared::cta\.{kind}\.bulk_group", ptx
    ) and not re.search(r"\b(atom|red)\.", ptx)
    assert [facts["address"] for facts in code.metadata["tensor_maps"]] == [
        ["word", 0, 0],
        ["word", 1, 0],
    ]
    assert assemble(ptx, "sm_90a").binary
    assert "cp.reduce" not in str(
        lower(
            updated_module(kind, element), TARGET, {"num_warps": 4, "asynchronous": False}
        ).stages["ptx"]
    )
