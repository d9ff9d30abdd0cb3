"""Chains of matmuls of two MMAs' rows a warp become two chains: what is written, that it computes
the same, and which loops stay whole."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.ir import Module, verify
from tilewright.ir.core import Operation
from tilewright.ir.ops.linear import Dot
from tilewright.language.definitions.callable import device_function
from tilewright.passes import pipeline
from tilewright.passes.clone import clone_module
from tilewright.plugins.registry import registry
from tilewright.reference.interpreter import run
from tilewright.simt.compile import run_stages
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.manifest import OPTIONS
from tilewright_nvidia.target import PtxTarget
from tilewright_nvidia.toolchain.linking import assemble

TARGET = target_of(ARCHITECTURES["sm_90a"])


@device_function
def span(
    acc,
    total,
    highest,
    q,
    k,
    v,
    bias,
    rows,
    block,
    count,
    scale,
    D: tl.constexpr,
    BN: tl.constexpr,
    MASKED: tl.constexpr,
    KIND: tl.constexpr,
):
    lanes = tl.arange(0, D)
    for i in range(count):
        # blocks whose numbers are loaded are copied by threads
        columns = tl.load(block + i) * BN + tl.arange(0, BN)
        scores = tl.dot(q, tl.load(k + columns[:, None] * D + lanes[None, :]).T) * scale
        if KIND == "biased":
            scores += tl.load(
                bias + rows[:, None] * 256 + columns[None, :], mask=(rows < 250)[:, None], other=1.0
            )
        if MASKED:
            scores = tl.where(rows[:, None] >= columns[None, :], scores, -float("inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        if KIND == "mixed":
            higher += tl.sum(scores, 0).sum(0)
        weights = tl.exp2(scores - higher[:, None])
        kept = tl.exp2(highest - higher)
        total = total * kept + tl.sum(weights, 1)
        values = tl.load(v + columns[:, None] * D + lanes[None, :])
        if KIND == "transposed":
            acc = acc * kept[:, None] + tl.dot(values.T, weights.to(values.dtype).T).T
        else:
            acc = tl.dot(weights.to(values.dtype), values, acc * kept[:, None])
        highest = higher
    return acc, total, highest


@device_function
def attention(
    q,
    k,
    v,
    bias,
    block,
    out,
    whole,
    scale,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    KIND: tl.constexpr,
):
    rows, lanes = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    highest, total = tl.full([BM], -float("inf"), tl.float32), tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    queries = tl.load(q + rows[:, None] * D + lanes[None, :])
    acc, total, highest = span(
        acc, total, highest, queries, k, v, bias, rows, block, whole, scale, D, BN, False, KIND
    )
    acc, total, highest = span(
        acc, total, highest, queries, k, v, bias, rows, block + whole, 2, scale, D, BN, True, KIND
    )
    tl.store(out + rows[:, None] * D + lanes[None, :], acc / total[:, None] + highest[:, None])


def module_of(
    kind: str = "plain", rows: int = 128, columns: int = 128, element: str = "bf16"
) -> Module:
    signature = {
        "q": f"*{element}",
        "k": f"*{element}",
        "v": f"*{element}",
        "bias": "*fp32",
        "block": "*i32",
        "out": "*fp32",
        "whole": "i32",
        "scale": "fp32",
    }
    constants = {"D": 64, "BM": rows, "BN": columns, "KIND": kind}
    facts = {
        name: {"divisibility": 16} for name, type_ in signature.items() if type_.startswith("*")
    }
    module = compile_function(
        attention, {**signature, **dict.fromkeys(constants, "constexpr")}, constants, facts
    )
    pipeline.run(module)
    return module


def split(module: Module, warps: int = 4, **options: Any) -> Module:
    """The module after the stage, and those before it that it needs."""
    made = clone_module(module)
    given = {**OPTIONS, "num_warps": warps, "num_stages": 3, **options}
    run_stages(made, PtxTarget(TARGET, given), given, ["prepare", "warps", "rows"])
    verify(made)
    return made


def named(module: Module, name: str) -> list[Operation]:
    return [operation for operation in module.kernel.walk() if operation.name == name]


def dots(module: Module) -> list[int]:
    """The rows of each matmul."""
    return [
        operation.result.type.shape[0]
        for operation in module.kernel.walk()
        if isinstance(operation, Dot)
    ]


@pytest.mark.parametrize("kind", ["plain", "biased"])
def test_two_chains_compute_what_one_did(kind: str) -> None:
    module = module_of(kind, element="fp16")
    made = split(module)
    assert dots(module) == [128] * 4 and dots(made) == [64] * 8
    generator = np.random.default_rng(3)
    q, k, v = (generator.standard_normal((256, 64)).astype(np.float16) for _ in range(3))
    bias = generator.standard_normal((256, 256)).astype(np.float32)
    found = []
    for one in (module, made):
        out = np.full((256, 64), np.nan, np.float32)
        run(one, [q, k, v, bias, np.array([1, 0, 1, 0], np.int32), out, 1, 0.18], (2, 1, 1))
        found.append(out)
    assert not np.isnan(found[0]).any()
    np.testing.assert_allclose(found[1], found[0], rtol=2e-3, atol=2e-3)


def test_halves_go_from_loop_to_loop_as_they_are() -> None:
    made = split(module_of())
    first, second = named(made, "for")
    between, inside = [], False
    for operation in made.kernel.body:
        inside = (inside or operation is first) and operation is not second
        if inside and operation is not first:
            between.append(operation)
    # what the first loop gives is joined for nobody, and the queries are split once
    assert not any(
        user.name != "permute" for join in named(made, "join") for user in join.result.uses
    )
    assert all(
        not operation.results[0].uses for operation in between if operation.name == "reshape"
    )
    assert len(named(made, "split")) == 1
    # all of one half comes after the first matmul of both, and before the other half
    order = [operation for operation in second.regions[0] if isinstance(operation, Dot)]
    assert [
        set(order[number].operands) & set(order[0].operands) != set() for number in (1, 2, 3)
    ] == [True, False, False]


@pytest.mark.parametrize(
    ("kind", "rows", "warps", "options"),
    [
        ("mixed", 128, 4, {}),
        ("transposed", 128, 4, {}),
        ("plain", 128, 8, {}),
        ("plain", 64, 4, {}),
        ("plain", 128, 4, {"num_stages": 1}),
    ],
    ids=["mixed", "transposed", "a warp has one MMA", "one MMA", "not pipelined"],
)
def test_loops_that_stay_whole(kind: str, rows: int, warps: int, options: dict[str, Any]) -> None:
    module = module_of(kind, rows)
    made = split(module, warps, **options)
    assert dots(made) == dots(module)


def test_other_targets_have_no_use_for_halves() -> None:
    made, given = module_of(), {**OPTIONS, "num_warps": 4, "num_stages": 3}
    run_stages(
        made,
        PtxTarget(target_of(ARCHITECTURES["sm_80"]), given),
        given,
        ["prepare", "warps", "rows"],
    )
    assert dots(made) == [128] * 4


def test_halves_leave_registers() -> None:
    backend = registry().get("nvidia")
    options = {**backend.manifest.options, "num_warps": 4, "num_stages": 3}
    code = backend.call("tilewright_lower", module=module_of(), target=TARGET, options=options)
    linked = assemble(code.stages["ptx"], "sm_90a")
    assert (
        linked.spills is not None
        and linked.spills < 32
        and not re.search(r"\bwarning\b|C75\d\d", linked.log, re.I)
    ), linked.log
