"""Source of derivatives: it compiles to the derived operations, and its kernels run alone."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import online_softmax_kernels as softmax_kernels
import pytest
from language_kernels import COLUMNS, kinds, part
from source_round_trip import color, kernels_in, round_trip

import tilewright as tw
import tilewright.language as tl
from tilewright.derivatives.forward_mode import TangentRequest, jvp
from tilewright.derivatives.reverse_mode import AdjointRequest, vjp
from tilewright.frontend.compile import compile_function
from tilewright.ir.core import Module
from tilewright.reference.interpreter import run

EXAMPLES = Path(__file__).parents[3] / "examples" / "kernels"


def check(module: Module) -> None:
    original, again, text = round_trip(module)
    assert color(original) == color(again), f"{text}\n{original}\n{again}"


def part_module(kind: str) -> Module:
    signature = {"x": "*fp64", "y": "*fp64", "out": "*fp64", "n": "i32"}
    signature |= {"B": "constexpr", "KIND": "constexpr"}
    return compile_function(part, signature, {"B": COLUMNS, "KIND": kind})


@pytest.mark.parametrize("kind", kinds(part))
def test_adjoints_of_parts_of_the_language_compile_to_the_same(kind: str) -> None:
    check(vjp(part_module(kind), AdjointRequest(("out",), ("x", "y"))))


@pytest.mark.full
@pytest.mark.parametrize("kind", kinds(part))
def test_tangents_of_parts_of_the_language_compile_to_the_same(kind: str) -> None:
    check(jvp(part_module(kind), TangentRequest(("x", "y"), ("out",))))


@pytest.mark.parametrize("saved", [(), ("lse_ptr", "out_ptr")], ids=len)
def test_attention_round_trips_and_computes_the_same_bits(
    tmp_path: Path, saved: tuple[str, ...]
) -> None:
    source, types = softmax_kernels.ATTENTION, softmax_kernels.ATTENTION_TYPES
    module = softmax_kernels.module_of(tmp_path, source, types, {"M": 16, "N": 16, "D": 8})
    inputs = ("q_ptr", "k_ptr", "v_ptr")
    check(jvp(module, TangentRequest(inputs, ("out_ptr",))))
    adjoint = vjp(module, AdjointRequest(("out_ptr",), inputs, saved))
    check(adjoint)
    _, again, _ = round_trip(adjoint)
    found = []
    for one in (adjoint, again):
        rng = np.random.default_rng(0)
        arrays = {
            argument.name: rng.standard_normal(37 * 8).astype("f4")
            for argument in one.kernel.arguments
            if argument.name.endswith("_ptr")
        }
        values = [
            arrays.get(argument.name, 0.5 if argument.name == "scale" else 37)
            for argument in one.kernel.arguments
        ]
        run(one, values, (3, 1, 1))
        found.append([array.tobytes() for array in arrays.values()])
    assert found[0] == found[1]


def example(name: str, kernel: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return getattr(loaded, kernel)


BLOCKS = {"BLOCK_M": 16, "BLOCK_N": 16}
MATMUL = {**BLOCKS, "BLOCK_K": 16}
HEADS = {**BLOCKS, "HEAD": 16, "CAUSAL": True}
GROUPED = {**MATMUL, "GROUP_M": 4, "ACTIVATION": "leaky_relu"}


@pytest.mark.parametrize(
    ("name", "kernel", "constants", "outputs", "inputs"),
    [
        ("softmax", "softmax_kernel", {"BLOCK": 64}, "out_ptr", ("x_ptr",)),
        ("layer_norm", "layer_norm_kernel", {"BLOCK": 64}, "out_ptr", ("x_ptr", "weight_ptr")),
        ("vector_add", "add_kernel", {"BLOCK": 64}, "out_ptr", ("x_ptr", "y_ptr")),
        ("matmul", "matmul_kernel", GROUPED, "c_ptr", ("a_ptr", "b_ptr")),
        ("attention", "attention_kernel", HEADS, "out_ptr", ("q_ptr", "k_ptr", "v_ptr")),
        ("split_k_matmul", "part_kernel", {**MATMUL, "SPLIT": 4}, "", ()),
        ("split_k_matmul", "sum_kernel", {"SPLIT": 4, "BLOCK": 64}, "", ()),
        ("attention_backward", "delta_kernel", {"BLOCK": 16, "HEAD": 16}, "", ()),
        ("attention_backward", "keys_and_values_kernel", HEADS, "", ()),
        ("attention_backward", "queries_kernel", HEADS, "", ()),
    ],
    ids=lambda value: value if isinstance(value, str) and value.endswith("_kernel") else "",
)
def test_examples_and_their_derivatives_compile_to_the_same(
    name: str, kernel: str, constants: dict[str, Any], outputs: str, inputs: tuple[str, ...]
) -> None:
    function = example(name, kernel)
    signature = {
        parameter: "constexpr"
        if parameter in constants
        else "*fp32"
        if parameter.endswith("_ptr")
        else "fp32"
        if parameter in ("eps", "scale")
        else "i32"
        for parameter in function.arg_names
    }
    module = compile_function(function, signature, constants)
    check(module)
    if outputs:
        check(vjp(module, AdjointRequest((outputs,), inputs)))
        check(jvp(module, TangentRequest(inputs, (outputs,))))


def test_the_kernels_of_attentions_plan_compile_to_the_same() -> None:
    kernel = example("attention", "attention_kernel")
    q, k, v, out, *gradients = (np.zeros((2, 48, 16), np.float32) for _ in range(8))
    lse = np.zeros((2, 48), np.float32)
    saved = ("out_ptr", "lse_ptr")
    adjoint = tw.vjp(kernel, outputs="out_ptr", wrt=("q_ptr", "k_ptr", "v_ptr"), saved=saved)
    own = dict(zip(("d_out_ptr", "d_q_ptr", "d_k_ptr", "d_v_ptr"), gradients, strict=True))
    arguments = (q, k, v, out, lse, 0.25, 48)
    with tw.backend("reference"):
        plan = adjoint.plan(*arguments, **HEADS, grid=(3, 2), **own)
        text = adjoint.source(*arguments, **HEADS, grid=(3, 2), **own)
    for planned in plan.kernels:
        check(planned.module)
        assert planned.module.kernel.name in kernels_in(text)


@tw.jit
def scale_rows(x_ptr, w_ptr, out_ptr, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    offsets = tl.program_id(0) * n + columns
    x = tl.load(x_ptr + offsets, mask=columns < n)
    w = tl.load(w_ptr + columns, mask=columns < n)
    tl.store(out_ptr + offsets, tl.exp(x) * w, mask=columns < n)


@pytest.fixture
def arrays() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x, gradient = (rng.normal(size=(6, 10)).astype(np.float32) for _ in range(2))
    w = rng.normal(size=10).astype(np.float32)
    return {"x": x, "w": w, "out": np.zeros_like(x), "gradient": gradient}


def test_the_source_of_an_adjoint_is_a_kernel_that_computes_the_same_bits(
    arrays: dict[str, Any],
) -> None:
    x, w, out, gradient = arrays.values()
    adjoint = tw.vjp(scale_rows, outputs="out_ptr", wrt="x_ptr")
    expected, found = np.zeros_like(x), np.zeros_like(x)
    cotangents = {"d_out_ptr": gradient, "d_x_ptr": expected}
    with tw.backend("reference"):
        text = adjoint.source(x, w, out, 10, BLOCK=16, grid=(6,), **cotangents)
        assert not expected.any()  # nothing was launched
        adjoint[(6,)](x, w, out, 10, BLOCK=16, **cotangents)
        kernel = kernels_in(text)["scale_rows_vjp"]
        kernel[(6,)](x, w, out, 10, d_out_ptr=gradient, d_x_ptr=found)
    assert expected.any()
    assert expected.tobytes() == found.tobytes()
    assert "scale_rows_vjp[(6, 1, 1)](x_ptr, w_ptr, out_ptr, n, d_out_ptr, d_x_ptr" in text
    assert "Constants of scale_rows: BLOCK = 16." in text
    assert '"""Gradients of x_ptr, given those of out_ptr: derived from scale_rows' in text
    assert "# Fill with zeros before: d_x_ptr." in text


def instructions(text: str) -> Counter[str]:
    """Count the instructions of LLVM IR, by opcode."""
    found = re.findall(r"^ +(?:%\S+ = )?(?:tail |fast )*([a-z]+)\b", text, re.MULTILINE)
    return Counter(found)


def test_the_source_is_compiled_to_the_instructions_of_the_derivative(
    arrays: dict[str, Any],
) -> None:
    pytest.importorskip("tilewright_cpu")
    x, w, out, gradient = arrays.values()
    adjoint = tw.vjp(scale_rows, outputs="out_ptr", wrt="x_ptr")
    own = {"d_out_ptr": gradient, "d_x_ptr": np.zeros_like(x)}
    with tw.backend("cpu"):
        text = adjoint.source(x, w, out, 10, BLOCK=16, grid=(6,), **own)
        derived = adjoint.warmup(x, w, out, 10, BLOCK=16, grid=(6,), **own)
        kernel = kernels_in(text)["scale_rows_vjp"]
        written = kernel.warmup(x, w, out, 10, **own, flush_denormals=True, grid=(6,))
    assert "num_warps=4, num_stages=3, num_ctas=1, flush_denormals=True)" in text
    assert instructions(derived.asm["llir"])
    assert instructions(derived.asm["llir"]) == instructions(written.asm["llir"])


def test_the_source_of_a_plan_has_its_kernels_in_order(arrays: dict[str, Any]) -> None:
    x, w, out, gradient = arrays.values()
    adjoint = tw.vjp(scale_rows, outputs="out_ptr", wrt=("x_ptr", "w_ptr"))
    own = {"d_out_ptr": gradient, "d_x_ptr": np.zeros_like(x), "d_w_ptr": np.zeros_like(w)}
    with tw.backend("reference"):
        plan = adjoint.plan(x, w, out, 10, BLOCK=16, grid=(6,), **own)
        text = adjoint.source(x, w, out, 10, BLOCK=16, grid=(6,), **own)
    names = [planned.module.kernel.name for planned in plan.kernels]
    places = [text.index(f"def {name}(") for name in names]
    launches = [text.index(f"#     {name}[(") for name in names]
    assert places + launches == sorted(places + launches)
    assert set(names) <= set(kernels_in(text))


def test_an_adjoint_of_tangents_has_a_source(arrays: dict[str, Any]) -> None:
    x, w, out, gradient = arrays.values()
    forward = tw.jvp(scale_rows, inputs="x_ptr", outputs="out_ptr")
    adjoint = tw.vjp(forward, outputs="t_out_ptr", wrt="x_ptr")
    expected, found, t_out = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    own = {"t_x_ptr": x, "t_out_ptr": t_out, "d_t_out_ptr": gradient}
    with tw.backend("reference"):
        adjoint[(6,)](x, w, out, 10, BLOCK=16, **own, d_x_ptr=expected)
        text = adjoint.source(x, w, out, 10, BLOCK=16, grid=(6,), **own, d_x_ptr=found)
        name = next(name for name in kernels_in(text) if name.startswith("scale_rows_jvp_vjp"))
        kernels_in(text)[name][(6,)](x, w, out, 10, **own, d_x_ptr=found)
    assert expected.any()
    assert expected.tobytes() == found.tobytes()


def test_the_source_of_tangents_computes_the_same_bits(arrays: dict[str, Any]) -> None:
    x, w, out, tangent = arrays.values()
    forward = tw.jvp(scale_rows, inputs="x_ptr", outputs="out_ptr")
    expected, found = np.zeros_like(x), np.zeros_like(x)
    with tw.backend("reference"):
        tangents = {"t_x_ptr": tangent, "t_out_ptr": expected}
        text = forward.source(x, w, out, 10, BLOCK=16, grid=(6,), **tangents)
        forward[(6,)](x, w, out, 10, BLOCK=16, **tangents)
        kernel = kernels_in(text)["scale_rows_jvp"]
        kernel[(6,)](x, w, out, 10, t_x_ptr=tangent, t_out_ptr=found)
    assert expected.any()
    assert expected.tobytes() == found.tobytes()
