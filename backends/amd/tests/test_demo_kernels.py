"""The demonstration kernels, compiled from their source and executed instruction by instruction on
emulated waves: right against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amd_emulated import launched
from amd_support import compiled, example

from tilewright.errors import LoweringError
from tilewright.plugins.manifest import CodeObject
from tilewright_conformance.oracles import attention, rowwise

#: The architectures whose code is executed: of each family one.
RUN = ("gfx942", "gfx1100")
SCHEDULES = ("lockstep", "random")
both = pytest.mark.parametrize("arch", RUN)


def run(code: CodeObject, arguments: list[Any], grid: tuple[int, ...], schedule: str) -> None:
    assert code.metadata["n_spills"] == 0
    launched(code, arguments, grid, schedule=schedule)


@both
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_vector_add(arch: str, schedule: str) -> None:
    code = compiled(
        example("vector_add").add_kernel,
        "x_ptr=*fp32:16, y_ptr=*fp32:16, out_ptr=*fp32:16, n=i32",
        arch,
        {"BLOCK": 1024},
    )
    x, y = np.random.default_rng(0).standard_normal((2, 3001)).astype(np.float32)
    out = np.zeros_like(x)
    run(code, [x, y, out, len(x)], (3,), schedule)
    np.testing.assert_array_equal(out, x + y)


@both
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_softmax(arch: str, schedule: str) -> None:
    signature = "x_ptr=*fp32:16, out_ptr=*fp32:16, x_stride=i32, out_stride=i32, n_columns=i32"
    code = compiled(example("softmax").softmax_kernel, signature, arch, {"BLOCK": 1024})
    x = np.random.default_rng(1).standard_normal((3, 781)).astype(np.float32)
    out = np.zeros_like(x)
    run(code, [x, out, 781, 781, 781], (3,), schedule)
    np.testing.assert_allclose(out, rowwise.softmax(x), rtol=3e-6, atol=1e-9)


@both
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_layer_norm(arch: str, schedule: str) -> None:
    pointers = (
        "x_ptr=*fp16:16, out_ptr=*fp16:16, weight_ptr=*fp16:16, bias_ptr=*fp16:16, "
        "mean_ptr=*fp32:16, rstd_ptr=*fp32:16"
    )
    code = compiled(
        example("layer_norm").layer_norm_kernel,
        f"{pointers}, stride=i32, n=i32, eps=fp32",
        arch,
        {"BLOCK": 512},
    )
    rng = np.random.default_rng(2)
    x, (weight, bias) = (
        rng.standard_normal((2, 1000)).astype(np.float16),
        rng.standard_normal((2, 1000)).astype(np.float16),
    )
    out, mean, rstd = np.zeros_like(x), np.zeros(2, np.float32), np.zeros(2, np.float32)
    run(code, [x, out, weight, bias, mean, rstd, 1000, 1000, 1e-5], (2,), schedule)
    expected, exact_mean, exact_rstd = rowwise.layer_norm(x, weight, bias, 1e-5)
    np.testing.assert_allclose(mean, exact_mean, atol=1e-6)
    np.testing.assert_allclose(rstd, exact_rstd, rtol=1e-5)
    np.testing.assert_allclose(out, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.each_value
@both
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("aligned", [True, False])
def test_matmul(arch: str, schedule: str, aligned: bool) -> None:
    """Loads are prefetched through registers; masks cover the odd extents on all sides."""
    module = example("matmul")
    m, n, k = (96, 64, 96) if aligned else (70, 50, 83)
    note = ":16" if aligned else ""
    sizes = ", ".join(
        f"{name}=i32{note}" for name in ("M", "N", "K", "stride_am", "stride_bk", "stride_cm")
    )
    constants = {
        "stride_ak": 1,
        "stride_bn": 1,
        "stride_cn": 1,
        "BLOCK_M": 64,
        "BLOCK_N": 64,
        "BLOCK_K": 32,
        "GROUP_M": 8,
        "ACTIVATION": "leaky_relu",
    }
    code = compiled(
        module.matmul_kernel,
        f"a_ptr=*fp16:16, b_ptr=*fp16:16, c_ptr=*fp16:16, {sizes}",
        arch,
        constants,
        num_stages=3,
    )
    assert "simt.load_start" in code.stages["simt"]
    rng = np.random.default_rng(3)
    a, b = (
        rng.standard_normal((m, k)).astype(np.float16),
        rng.standard_normal((k, n)).astype(np.float16),
    )
    c = np.full((m, n), np.nan, np.float16)
    run(code, [a, b, c, m, n, k, k, n, n], (-(-m // 64) * -(-n // 64),), schedule)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(c, np.where(exact >= 0, exact, 0.01 * exact), rtol=2e-3, atol=2e-2)


SIGNATURE = (
    "a_ptr=*fp16:16, b_ptr=*fp16:16, c_ptr=*fp16:16, M=i32:16, N=i32:16, K=i32:16, "
    "stride_am=i32:16, stride_bk=i32:16, stride_cm=i32:16"
)
CONSTANTS = {
    "stride_ak": 1,
    "stride_bn": 1,
    "stride_cn": 1,
    "BLOCK_M": 64,
    "BLOCK_N": 64,
    "BLOCK_K": 64,
    "GROUP_M": 8,
    "ACTIVATION": "",
}


@pytest.mark.each_value
@pytest.mark.parametrize(
    "options",
    [{"kpack": 2}, {"schedule_hint": "attention"}, {"kpack": 2, "matrix_instr_nonkdim": 16}],
)
@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "gfx1201"])
def test_options_of_matrix_instructions(arch: str, options: dict[str, Any]) -> None:
    kernel = example("matmul").matmul_kernel
    code, plain = (compiled(kernel, SIGNATURE, arch, CONSTANTS, **given) for given in (options, {}))
    notes = "\n".join(code.metadata["notes"])
    if arch == "gfx1201":
        assert code.binary == plain.binary
        assert all(
            f"{name}={value!r} changes nothing on gfx1201: it is of MFMA instructions" in notes
            for name, value in options.items()
        )
        return
    assert "changes nothing" not in notes and code.stages["amdgcn"] != plain.stages["amdgcn"]
    if "kpack" in options:
        assert " x 2" in code.stages["simt"]
    rng = np.random.default_rng(6)
    a, b = (
        rng.integers(-3, 4, (64, 192)).astype(np.float16),
        rng.integers(-3, 4, (192, 64)).astype(np.float16),
    )
    c = np.full((64, 64), np.nan, np.float16)
    run(code, [a, b, c, 64, 64, 192, 192, 64, 64], (1,), "random")
    np.testing.assert_array_equal(
        c, (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kpack": 4}, "kpack must be 1 or 2, not 4"),
        ({"schedule_hint": "fast"}, "must be one of '', 'attention', "),
    ],
)
def test_options_that_say_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(LoweringError, match=message):
        compiled(example("matmul").matmul_kernel, SIGNATURE, "gfx942", CONSTANTS, **options)


@pytest.mark.each_value
@both
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("causal", [False, True])
def test_attention(arch: str, schedule: str, causal: bool) -> None:
    pointers = ", ".join(f"{name}_ptr=*fp16:16" for name in ("q", "k", "v", "out"))
    constants = {"CAUSAL": causal, "BLOCK_M": 32, "BLOCK_N": 32, "HEAD": 32}
    code = compiled(
        example("attention").attention_kernel,
        f"{pointers}, lse_ptr=*fp32:16, scale=fp32, length=i32",
        arch,
        constants,
    )
    heads, length, head = 2, 80, 32
    q, k, v = np.random.default_rng(4).standard_normal((3, heads, length, head)).astype(np.float16)
    out, lse = np.zeros_like(q), np.zeros((heads, length), np.float32)
    run(code, [q, k, v, out, lse, float(np.float32(head**-0.5)), length], (3, heads), schedule)
    expected, expected_lse = attention.forward(q, k, v, head**-0.5, causal)
    np.testing.assert_allclose(out, expected, atol=4e-3)
    np.testing.assert_allclose(lse * np.log(2), expected_lse, atol=1e-3)
