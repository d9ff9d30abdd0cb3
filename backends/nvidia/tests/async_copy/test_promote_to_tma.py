"""Matmuls with plain pointers and ``asynchronous=True``, without a GPU.

Tensor maps and generated code.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from hopper_support import ASYNCHRONOUS, TARGET
from pointer_kernels import KERNELS, attention, batched, dot_module, kernel_module

import tilewright.language as tl
from tilewright.errors import LoweringError
from tilewright.gpu_host.expressions import word
from tilewright.ir import Module
from tilewright.ir.parser import parse_module
from tilewright.plugins.manifest import CodeObject
from tilewright_nvidia.async_copy.launch_expressions import expressions_of
from tilewright_nvidia.lower import lower
from tilewright_nvidia.toolchain.linking import assemble

A, B, M, N, K, A_STRIDE, B_STRIDE = (["word", argument, 0] for argument in (0, 1, 3, 4, 5, 6, 7))


def compiled(module: Module, **options: Any) -> CodeObject:
    return lower(module, TARGET, {**ASYNCHRONOUS, "num_warps": 4, "num_stages": 3, **options})


def said(facts: dict[str, Any]) -> tuple[Any, ...]:
    return facts["address"], facts["extents"], facts["strides"], facts["box"]


@pytest.mark.each_value
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("transposed", [False, True], ids=["rows", "turned"])
def test_maps_of_arguments(name: str, transposed: bool) -> None:
    code = compiled(
        dot_module(
            KERNELS[name], "fp16", "fp16", (128, 64, 64), transposed=(transposed, transposed)
        )
    )
    left, right = code.metadata["tensor_maps"]
    if transposed:
        assert said(left) == (A, [K, M], [A_STRIDE, 1], [64, 64]) and said(right) == (
            B,
            [N, K],
            [B_STRIDE, 1],
            [64, 64],
        )
    else:
        assert said(left) == (A, [M, K], [A_STRIDE, 1], [128, 64]) and said(right) == (
            B,
            [K, N],
            [B_STRIDE, 1],
            [64, 64],
        )
    assert all(
        facts["implied"] and facts["element"] == "f16" and facts["span"] == 128 and not facts["nan"]
        for facts in (left, right)
    )


def test_maps_of_batches() -> None:
    aligned = ("a", "b", "a_batch", "a_row", "b_batch", "b_row")
    code = compiled(
        kernel_module(
            batched,
            {"a": "*fp16", "b": "*fp16", "c": "*fp32"},
            {"BM": 128, "BN": 64, "BK": 64},
            aligned,
        )
    )
    anywhere, (a_batch, a_row) = 2**31 - 1, [["word", argument, 0] for argument in (6, 7)]
    assert said(code.metadata["tensor_maps"][0]) == (
        A,
        [anywhere, M, K],
        [a_batch, a_row, 1],
        [1, 128, 64],
    )


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("element", "result", "sums", "precision"),
    [
        ("fp16", "fp16", tl.float32, "ieee"),
        ("bf16", "bf16", tl.float32, "ieee"),
        ("fp32", "fp32", tl.float32, "tf32"),
        ("fp8e4nv", "fp16", tl.float32, "ieee"),
        ("i8", "i32", tl.int32, "ieee"),
    ],
)
@pytest.mark.parametrize("divided", [False, True], ids=["one stream", "divided"])
def test_products_of_each_type(
    element: str, result: str, sums: Any, precision: str, divided: bool
) -> None:
    module = dot_module(
        KERNELS["wrapping"],
        element,
        result,
        (64, 128, 32 if element == "fp32" else 64),
        transposed=(False, True),
        sums=sums,
        precision=precision,
    )
    code = compiled(module, warp_specialize=divided)
    ptx, linked = str(code.stages["ptx"]), assemble(code.stages["ptx"], "sm_90a")
    assert len(code.metadata["tensor_maps"]) == 2 and code.metadata["num_warps"] == 4 + 4 * divided
    assert (
        "wgmma.mma_async" in ptx
        and "cp.async.bulk.tensor.2d" in ptx
        and not re.search(r"mma\.sync|ldmatrix|cp\.async\.c[ag]", ptx)
    )
    assert not re.search(r"\bwarning\b|C75\d\d", linked.log, re.I) and linked.spills == 0, (
        linked.log
    )


def test_attention() -> None:
    types = dict.fromkeys("qkv", "*fp16") | {"out": "*fp32", "scale": "fp32"}
    code = compiled(
        kernel_module(
            attention, types, {"BM": 64, "BN": 64, "HEAD": 64}, ("q", "k", "v", "q_head", "k_head")
        )
    )
    assert [facts["address"] for facts in code.metadata["tensor_maps"]] == [
        ["word", 1, 0],
        ["word", 2, 0],
    ]
    assert not re.search(r"\bwarning\b|C75\d\d", assemble(code.stages["ptx"], "sm_90a").log, re.I)


def test_what_is_left_at_pointers() -> None:
    """Without the option, there is no tensor map; with it, remarks say why loads stay."""
    plain = compiled(
        dot_module(KERNELS["wrapping"], "fp16", "fp16", (128, 64, 64)), asynchronous=False
    )
    assert not plain.metadata["tensor_maps"] and not any(
        "raised" in told for told in plain.metadata["notes"]
    )
    code = compiled(dot_module(KERNELS["wrapping"], "fp16", "fp16", (128, 64, 64), aligned=False))
    (told,) = (told for told in code.metadata["notes"] if "raised" in told)
    assert (
        not code.metadata["tensor_maps"]
        and "the address `a` is not known to be a multiple of 16 bytes (launches state it" in told
    )
    # tiles that no group of warps multiplies are copied as before
    small = compiled(dot_module(KERNELS["wrapping"], "fp16", "fp16", (32, 32, 32)))
    assert not small.metadata["tensor_maps"] and not any(
        "raised" in told for told in small.metadata["notes"]
    )


def test_expressions_of_scalars() -> None:
    body = """
      %two = constant 2 : i32 %w = cast %m : i64 %x = add %m, %n : i32 %y = mul %x, %two : i32 %z = sub %y, %m : i32 %q = div %z, %two : i32
      %least = min %q, %n : i32 %most = max %least, %two : i32 %s = shl %most, %two : i32 %t = neg %s : i32 %pid = program_id 0 : i32
      %bad = add %pid, %m : i32"""
    function = parse_module(
        f"tilewright.ir 1.0\nkernel @k(%p: ptr<f16>, %m: i32, %n: i32) {{{body}\nreturn\n}}"
    ).kernel
    values = {result.name: result for operation in function.walk() for result in operation.results}
    m, n = word(1), word(2)
    quotient = ("div", ("sub", ("mul", ("add", m, n), 2), m), 2)
    shifted = ("mul", ("max", ("min", quotient, n), 2), 4)
    found = expressions_of(
        [function.arguments[0], values["w"], values["q"], values["s"], values["t"]], function
    )
    assert found == (word(0), m, quotient, shifted, ("sub", 0, shifted))
    with pytest.raises(LoweringError, match="more than the kernel's arguments: program_id"):
        expressions_of([values["bad"]], function)
