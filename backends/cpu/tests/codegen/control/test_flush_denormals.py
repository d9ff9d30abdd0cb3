"""The option ``flush_denormals``: in its kernels alone, on all threads, and on in derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LoweringError
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import build_module
from tilewright.tools.inspect import specialize
from tilewright_cpu.hardware import named_target
from tilewright_cpu.lower import lower

N, BLOCK = 64 * 64, 64
TINY = np.float32(1e-39)


@tw.jit
def scaled(x, out, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) * factor)


def result(factor: float, value: Any = TINY, **options: Any) -> np.ndarray:
    x, out = np.full(N, value, np.float32), np.full(N, np.nan, np.float32)
    scaled[(N // BLOCK,)](x, out, factor, BLOCK=BLOCK, backend="cpu", **options)
    return out


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_denormal_operands_and_results_are_zero(threads: int) -> None:
    flushing = {"flush_denormals": True, "num_threads": threads}
    assert (result(3.0, **flushing) == 0).all()
    assert (result(1e-5, 1e-34, **flushing) == 0).all()
    assert (result(3.0, 1.0, **flushing) == 3).all()


def test_other_launches_keep_denormals() -> None:
    expected = np.full(N, TINY) * np.float32(3)
    assert expected[0] > 0
    for options in ({}, {"flush_denormals": False}, {"flush_denormals": None}):
        result(3.0, flush_denormals=True)  # whose mode ends with the launch, on each thread
        assert (result(3.0, **options) == expected).all()
        assert np.float32(TINY) * np.float32(0.5) > 0  # and on the host's


def test_derivatives_flush_unless_they_are_told_otherwise() -> None:
    x, out = np.ones(N, np.float32), np.empty(N, np.float32)
    d_out, d_x = np.full(N, TINY), np.empty(N, np.float32)
    t_out = np.empty(N, np.float32)
    adjoint = tw.vjp(scaled, outputs="out", wrt="x")
    tangent = tw.jvp(scaled, inputs="x", outputs="out")
    for options, expected in (({}, 0.0), ({"flush_denormals": False}, d_out * np.float32(2))):
        with tw.backend("cpu"):
            arguments: dict[str, Any] = {"BLOCK": BLOCK, **options}
            adjoint[(N // BLOCK,)](x, out, 2.0, d_out=d_out, d_x=d_x, **arguments)
            tangent[(N // BLOCK,)](x, out, 2.0, t_x=d_out, t_out=t_out, **arguments)
        assert (d_x == expected).all()
        assert (t_out == expected).all()


def test_its_value_is_checked() -> None:
    with pytest.raises(LoweringError, match="flush_denormals must be True, False or None, not 'x'"):
        result(3.0, flush_denormals="x")


def test_ordinary_code_is_the_same_and_other_machines_have_a_mode_of_their_own() -> None:
    backend = registry().get("cpu")
    texts = {}
    for name, flushes in (("x86-64-v3", True), ("aarch64", True), ("riscv64", False)):
        target = backend.completed(named_target(name))
        for flush in (None, False, True):
            found = specialize(
                scaled, "*fp32, *fp32, fp32", {"BLOCK": 64}, backend, {"flush_denormals": flush}
            )
            module = build_module(found, backend, target)
            texts[name, flush] = str(lower(module, target, found.options).stages["llir"])
        assert texts[name, None] == texts[name, False]
        assert "csr" not in texts[name, None]
        assert "fpcr" not in texts[name, None]
        assert (texts[name, True] != texts[name, None]) == flushes
    assert "llvm.x86.sse.ldmxcsr" in texts["x86-64-v3", True]
    assert "llvm.aarch64.set.fpcr" in texts["aarch64", True]
