"""Gradients of online softmax: in one gauge, without a tape, right to the rounding of f32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import online_softmax_kernels as kernels
import pytest

from tilewright.derivatives.adjoint.loop_tape import TapeParameter
from tilewright.derivatives.reverse_mode import AdjointRequest, vjp
from tilewright.ir.core import Module
from tilewright.ir.ops.control import For
from tilewright.reference.interpreter import run

BLOCKS = {"M": 16, "N": 16, "D": 8}
LENGTH, SCALE = 37, 0.5


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Attention with powers of 2, and the logarithms of the sums."""
    scores = q @ k.T * SCALE
    highest = scores.max(1, keepdims=True)
    weights = np.exp2(scores - highest)
    total = weights.sum(1, keepdims=True)
    return weights / total @ v, (highest + np.log2(total))[:, 0]


def expected(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    q, k, v, cotangent = (arrays[name].astype("f8") for name in ("q", "k", "v", "d_out"))
    scores = q @ k.T * SCALE
    p = np.exp2(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    dp = cotangent @ v.T
    ds = p * (dp - (p * dp).sum(1, keepdims=True)) * np.log(2) * SCALE
    return {"d_q": ds @ k, "d_k": ds.T @ q, "d_v": p.T @ cotangent}


def gradients(adjoint: Module, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    found = {f"d_{name}": np.zeros((LENGTH, 8), "f4") for name in "qkv"}
    named: dict[str, object] = {f"{name}_ptr": array for name, array in (arrays | found).items()}
    named |= {"scale": SCALE, "length": LENGTH, "extra_ptr": np.zeros(LENGTH, "f4")}
    values = []
    for argument in adjoint.kernel.arguments:
        tape = TapeParameter.of(argument.name)
        size = 0 if tape is None else 3 * LENGTH * tape.elements
        values.append(np.full(size, np.nan, "f4") if size else named.get(argument.name, LENGTH))
    run(adjoint, values, (3, 1, 1))
    return found


@pytest.mark.parametrize("source", [kernels.ATTENTION, kernels.TWO_LOOPS], ids=["one", "two"])
@pytest.mark.parametrize("saved", [(), ("lse_ptr",), ("lse_ptr", "out_ptr")], ids=len)
def test_attention_has_gradients_without_a_tape(
    tmp_path: Path, source: str, saved: tuple[str, ...]
) -> None:
    module = kernels.module_of(tmp_path, source, kernels.ATTENTION_TYPES, BLOCKS)
    wrt = ("q_ptr", "k_ptr", "v_ptr")
    adjoint = vjp(module, AdjointRequest(("out_ptr",), wrt, saved))
    names = [argument.name for argument in adjoint.kernel.arguments]
    assert not any(name.startswith(("tape", "missing")) for name in names)
    rng = np.random.default_rng(0)
    q, k, v, cotangent = (rng.standard_normal((LENGTH, 8)).astype("f4") for _ in range(4))
    out, lse = (array.astype("f4") for array in attention(*(x.astype("f8") for x in (q, k, v))))
    if not saved:
        out, lse = np.full_like(out, np.nan), np.full_like(lse, np.nan)  # which are not read
    arrays = {"q": q, "k": k, "v": v, "out": out, "lse": lse, "d_out": cotangent}
    found = gradients(adjoint, arrays)
    for name, gradient in expected(arrays).items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-4, atol=2e-5, err_msg=name)


def test_saved_outputs_leave_one_loop_that_only_adds(tmp_path: Path) -> None:
    module = kernels.module_of(tmp_path, kernels.ATTENTION, kernels.ATTENTION_TYPES, BLOCKS)
    wrt = ("q_ptr", "k_ptr", "v_ptr")
    adjoint = vjp(module, AdjointRequest(("out_ptr",), wrt, ("lse_ptr", "out_ptr")))
    loops = [operation for operation in adjoint.walk() if isinstance(operation, For)]
    assert len(loops) == 1
    names = [operation.name for operation in loops[0].walk()]
    assert names.count("dot") == 5
    assert names.count("exp2") == 1
    assert "max" not in names


def test_a_reference_that_is_stored_is_no_gauge_and_the_loop_has_a_tape(tmp_path: Path) -> None:
    """The unnormalized sum depends on the reference, so the loop is walked backward."""
    source = kernels.ATTENTION.replace(
        "    tl.store(lse_ptr",
        "    tl.store(extra_ptr + rows, total, mask=inside)\n    tl.store(lse_ptr",
    )
    module = kernels.module_of(tmp_path, source, kernels.ATTENTION_TYPES, BLOCKS)
    wrt = ("q_ptr", "k_ptr", "v_ptr")
    adjoint = vjp(module, AdjointRequest(("out_ptr",), wrt))
    names = [argument.name for argument in adjoint.kernel.arguments]
    assert any(name.startswith("tape_0_") for name in names)
    rng = np.random.default_rng(0)
    q, k, v, cotangent = (rng.standard_normal((LENGTH, 8)).astype("f4") for _ in range(4))
    arrays = {"q": q, "k": k, "v": v, "d_out": cotangent}
    arrays |= {"out": np.zeros_like(q), "lse": np.zeros(LENGTH, "f4")}
    found = gradients(adjoint, arrays)
    for name, gradient in expected(arrays).items():
        np.testing.assert_allclose(found[name], gradient, rtol=1e-4, atol=2e-5, err_msg=name)
