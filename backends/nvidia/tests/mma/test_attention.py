"""Attention by wgmma: the generated code, without a wait after each matmul or spills."""

from __future__ import annotations

import re
from typing import Any

import pytest
from attention_kernels import attention_module, backward_module
from matmuls_in_flight import overwritten

from tilewright.ir import Module
from tilewright.plugins.manifest import CodeObject
from tilewright.plugins.registry import registry
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.toolchain.linking import assemble

#: (head dimension, BM, BN, warps, stages)
SHAPES = [
    (64, 128, 128, 8, 3),
    (64, 128, 64, 8, 3),
    (64, 256, 64, 16, 3),
    (64, 128, 128, 8, 2),
    (128, 128, 128, 8, 2),
    (128, 128, 64, 8, 3),
    (128, 64, 64, 4, 3),
]


def lowered(element: str, shape: tuple[int, int, int, int, int], causal: bool) -> CodeObject:
    d, bm, bn, warps, stages = shape
    return compiled(attention_module(element, d, bm, bn, causal), warps, stages)


def compiled(module: Module, warps: int, stages: int) -> CodeObject:
    backend = registry().get("nvidia")
    options = {
        **backend.manifest.options,
        "num_warps": warps,
        "num_stages": stages,
        "asynchronous": True,
    }
    code = backend.call(
        "tilewright_lower",
        module=module,
        target=target_of(ARCHITECTURES["sm_90a"]),
        options=options,
    )
    assert isinstance(code, CodeObject)
    return code


def steps_of(code: CodeObject) -> str:
    """Return an s per started matmul, and per wait the number that may stay in flight."""
    found = re.findall(
        r"wgmma\.(?:commit_group\.sync\.aligned|wait_group\.sync\.aligned (\d));",
        str(code.stages["ptx"]),
    )
    return "".join(count or "s" for count in found)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_attention_is_assembled_without_spills_and_products_stay_asynchronous(
    element: str, shape: tuple[int, int, int, int, int], causal: bool
) -> None:
    code = lowered(element, shape, causal)
    linked = assemble(code.stages["ptx"], "sm_90a")
    # bytes stored and loaded: two programs per SM are worth more than the few registers that each
    # lacks
    few = 80 if ".minnctapersm 2" in str(code.stages["ptx"]) else 0
    assert linked.spills is not None and linked.spills <= few, linked.log
    assert not re.search(r"\bwarning\b|C75\d\d", linked.log, re.I), linked.log
    assert not overwritten(str(code.stages["ptx"]))


@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
def test_a_loop_starts_both_products_before_it_waits_for_one(causal: bool) -> None:
    code = lowered("f16", SHAPES[5], causal)
    ptx = str(code.stages["ptx"])
    # before the loop, in it, after it, for each loop of the source
    assert sorted(re.findall(r"ss10|s0", steps_of(code))) == sorted(["s0", "ss10", "s0"] * 2)
    # the weights go from one matmul to the next in registers: of shared memory threads write
    # nothing, and read nothing
    assert not re.search(r"(st|ld)\.shared", ptx[: ptx.rindex("wgmma.")])
    # loops whose loads are alike share their rings: the queries' object, then full and empty ones
    # of three slots for the keys and for the values
    assert len(re.findall(r"mbarrier\.init", ptx)) == 1 + 2 * 2 * 3


#: (head dimension, BM, BN, warps, stages), whether the queries stay in registers
RESIDENT = [
    ((128, 128, 128, 8, 2), True),
    ((128, 128, 64, 8, 3), True),
    ((64, 128, 128, 8, 2), True),
    # two programs on an SM have no registers for them
    ((64, 128, 64, 8, 3), False),
    ((64, 64, 64, 4, 3), False),
    # accumulators of 256 columns leave none
    ((256, 128, 64, 8, 1), False),
]


@pytest.mark.parametrize(("shape", "resident"), RESIDENT, ids=str)
def test_queries_stay_in_registers_of_a_program_that_is_alone(
    shape: tuple[int, int, int, int, int], resident: bool
) -> None:
    assert keeps_queries(shape) == resident


@pytest.mark.parametrize(
    "other",
    [{"persistent": False}, {"causal": True}, {"parts": 2}],
    ids=["one tile", "masked", "two loops"],
)
def test_queries_stay_in_shared_memory_where_registers_do_not_pay(
    other: dict[str, Any],
) -> None:
    assert not keeps_queries(RESIDENT[0][0], **other)


def keeps_queries(
    shape: tuple[int, int, int, int, int],
    causal: bool = False,
    parts: int = 1,
    persistent: bool = True,
) -> bool:
    """Return whether all matmuls read their first operand from registers.

    Weights, the first operand of each other matmul, are there in any case.
    """
    d, bm, bn, warps, stages = shape
    module = attention_module("bf16", d, bm, bn, causal, parts, persistent)
    code = compiled(module, warps, stages)
    ptx = str(code.stages["ptx"])
    # a descriptor, or four registers
    first = re.findall(r"wgmma\.mma_async[^{]*\{[^}]*\}, (%\w|\{)", ptx)
    assert first
    assert assemble(ptx, "sm_90a").spills == 0
    return all(one == "{" for one in first)


def test_weights_are_rounded_in_pairs() -> None:
    for element in ("f16", "bf16"):
        ptx = str(lowered(element, SHAPES[0], False).stages["ptx"])
        # 64 of each thread, before and in each of two loops
        assert ptx.count(f"cvt.rn.{element}x2.f32") >= 4 * 32
        assert ptx.count(f"cvt.rn.{element}.f32") <= 32  # of the result


#: part, (head dimension, BM, BN, warps, stages), matmuls in flight: before the loop, in it, after
#: it
BACKWARD = [
    ("keys", (64, 64, 128, 8, 3), "ss10ssss3210ss10"),
    ("keys", (64, 64, 64, 4, 2), "ss10ssss3210ss10"),  # two programs on an SM
    ("queries", (64, 128, 64, 8, 3), "ss10sss210s0"),
    ("queries", (128, 128, 64, 8, 3), "ss10sss210s0"),
    # both halves read one load: two slots are filled sooner when matmuls are waited for one by one
    ("keys", (64, 64, 128, 8, 2), "s0s0s0s0"),
    ("queries", (64, 128, 64, 8, 2), "s0s0s0"),
    ("queries", (128, 128, 64, 8, 2), "s0s0s0"),
    # the results of four matmuls and two operands exceed a thread's registers: the gradient of
    # values runs beside the derivatives of weights, where its operand takes no more registers
    ("keys", (128, 64, 128, 8, 2), "s0ss0s20"),
    ("keys", (64, 128, 128, 8, 2), "s0s0s0s0"),
]


@pytest.mark.each_value
@pytest.mark.parametrize(("part", "shape", "expected"), BACKWARD, ids=str)
@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_backward(
    part: str, shape: tuple[int, int, int, int, int], expected: str, element: str
) -> None:
    d, bm, bn, warps, stages = shape
    code = compiled(backward_module(part, element, d, bm, bn), warps, stages)
    log = assemble(code.stages["ptx"], "sm_90a").log
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in log, log
    assert not re.search(r"\bwarning\b|C75\d\d", log, re.I), log
    assert steps_of(code) == expected and not overwritten(str(code.stages["ptx"]))
