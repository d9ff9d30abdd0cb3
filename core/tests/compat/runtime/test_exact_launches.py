"""Kernels written for Triton in exact mode, before and after ordinary launches."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.compat import triton
from tilewright.compat.triton import knobs
from tilewright.compat.triton.compiler import ASTSource
from tilewright.compat.triton.runtime import launch_policy
from tilewright.testing.exact import embed, exact_mode, fractions, same_algebra


@triton.jit
def scale(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < n)
    tl.store(out_ptr + place, x * factor, mask=place < n)


@triton.autotune(configs=[triton.Config({"BLOCK": 4}), triton.Config({"BLOCK": 8})], key=["n"])
@triton.jit
def divide(x_ptr, out_ptr, divisor, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place, mask=place < n)
    tl.store(out_ptr + place, x / divisor, mask=place < n)


def scaled(x, out) -> None:
    scale[(triton.cdiv(x.size, 4),)](x, out, 0.001, x.size, BLOCK=4)


def divided(x, out) -> None:
    divide[lambda meta: (triton.cdiv(x.size, meta["BLOCK"]),)](x, out, 1000.0, x.size)


def test_ordinary_and_exact_launches_take_turns() -> None:
    x, out = np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
    payloads, found = embed(x), np.zeros(10, np.float32)
    for _ in range(2):
        scaled(x, out)
        assert np.allclose(out, x / 1000)
        with exact_mode():
            scaled(payloads, found)
        assert [str(value) for value in fractions(found)[:3]] == ["0", "1/1000", "1/500"]


def test_a_tuned_kernel_is_compared() -> None:
    arrays = np.ones(10, np.float32), np.zeros(10, np.float32)
    found = same_algebra(scaled, divided, arrays)
    assert found, found


# ---- Triton's floating-point sanitizer


@triton.jit
def add_up(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    total = 0.0
    for start in range(0, n, BLOCK):
        place = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + place, mask=place < n, other=0.0), axis=0)
    tl.store(out_ptr, total)


def total(x, block, **options):
    out = np.zeros(1, np.float32)
    add_up[(1,)](x, out, x.size, BLOCK=block, **options)
    return out


@pytest.fixture
def sanitized(monkeypatch):
    """Set the environment variable, which is read once."""
    monkeypatch.setenv("TRITON_INSTRUMENTATION_MODE", "fpsan")
    knobs.refresh_knobs()
    yield
    monkeypatch.undo()
    knobs.refresh_knobs()


@pytest.mark.filterwarnings("ignore:instrumentation mode")
def test_the_variable_of_tritons_sanitizer_is_exact_mode(sanitized) -> None:
    x = np.random.default_rng(3).standard_normal(500, dtype=np.float32)
    first, second = total(x, 16), total(x, 128)
    assert first.view(np.uint32) == second.view(np.uint32)
    assert str(fractions(total(embed(np.full(3, 0.5, np.float32)), 16))[0]) == "3/2"


@pytest.mark.filterwarnings("ignore:instrumentation mode")
def test_its_knob_takes_turns_with_ordinary_launches(monkeypatch) -> None:
    x = embed(np.full(3, 0.25, np.float32))
    numbers = np.full(3, 0.25, np.float32)
    for _ in range(2):
        assert total(numbers, 32) == 0.75
        with monkeypatch.context() as patched:
            patched.setattr(knobs.compilation, "instrumentation_mode", "fpsan")
            assert str(fractions(total(x, 32))[0]) == "3/4"
            kernel = add_up.warmup(x, x, 3, BLOCK=32, grid=(1,))
            assert kernel.metadata.instrumentation_mode == "fpsan"
        with monkeypatch.context() as patched:
            patched.setattr(knobs.compilation, "instrumentation_mode", "another")
            assert total(numbers, 32) == 0.75


def test_a_launch_option_says_the_same_and_the_payloads_are_not_tritons() -> None:
    launch_policy.sanitized.cache_clear()
    x = embed(np.full(3, 0.5, np.float32))
    with pytest.warns(RuntimeWarning, match="residues modulo powers of 251, not Triton's"):
        found = total(x, 64, instrumentation_mode="fpsan")
    assert str(fractions(found)[0]) == "3/2"


@pytest.mark.filterwarnings("ignore:instrumentation mode")
def test_a_tuned_kernel_is_sanitized(sanitized) -> None:
    x, out = embed(np.full(10, 500.0, np.float32)), np.zeros(10, np.float32)
    divided(x, out)
    assert str(fractions(out)[0]) == "1/2"


SIGNATURE = {"x_ptr": "*fp32", "out_ptr": "*fp32", "factor": "fp32", "n": "i32"}


@pytest.mark.filterwarnings("ignore:instrumentation mode")
@pytest.mark.parametrize("way", ["option", "knob"])
def test_a_kernel_compiled_ahead_is_sanitized(way, monkeypatch) -> None:
    source = ASTSource(scale, {**SIGNATURE, "BLOCK": "constexpr"}, constexprs={"BLOCK": 4})
    options = {"instrumentation_mode": "fpsan"} if way == "option" else {}
    with monkeypatch.context() as patched:
        if way == "knob":
            patched.setattr(knobs.compilation, "instrumentation_mode", "fpsan")
        kernel = triton.compile(source, options=options)
    plain = triton.compile(source)
    x, out = np.array([1, 2, 3, 6], np.float32), np.zeros(4, np.float32)
    kernel[(1, 1, 1)](embed(x), out, 0.001, 4, 4)
    assert [str(value) for value in fractions(out)] == ["1/1000", "1/500", "3/1000", "3/500"]
    assert kernel.metadata.instrumentation_mode == "fpsan" and kernel.hash != plain.hash
    plain[(1, 1, 1)](x, out, 0.5, 4, 4)
    assert list(out) == [0.5, 1, 1.5, 3]


def test_a_file_of_tile_ir_is_not_sanitized(tmp_path) -> None:
    file = tmp_path / "scale.tileir"
    source = ASTSource(scale, {**SIGNATURE, "BLOCK": "constexpr"}, constexprs={"BLOCK": 4})
    file.write_text(triton.compile(source).asm["tileir"])
    with pytest.raises(ValueError, match=r"from the kernel's source on, and a file of Tile IR has"):
        triton.compile(str(file), options={"instrumentation_mode": "fpsan"})


def test_interpreted_kernels_stay_interpreted(monkeypatch) -> None:
    monkeypatch.setattr(knobs.runtime, "interpret", True)
    interpreted = triton.jit(scale.fn)
    x, out = embed(np.array([1, 2, 3, 6], np.float32)), np.zeros(4, np.float32)
    backends = []
    select = launch_policy.TritonPolicy.select

    def selected(*arguments):
        found = select(*arguments)
        backends.append(found.backend.name)
        return found

    monkeypatch.setattr(launch_policy.TritonPolicy, "select", selected)
    with exact_mode():
        interpreted[(1,)](x, out, 0.001, 4, BLOCK=4)
    assert backends == ["reference"] and str(fractions(out)[0]) == "1/1000"
