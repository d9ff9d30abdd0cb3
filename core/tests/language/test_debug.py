"""Printing, assertions, the target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.active_target as active_target
import tilewright.language as tl
from tilewright.errors import CompileTimeAssertionFailure, KernelError
from tilewright.language.definitions.callable import device_function as jit
from tilewright.language.semantic import Options
from tilewright.plugins.manifest import Target


def test_static_print(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    bench(
        tl.static_print,
        "a",
        tl.constexpr(3),
        bench.value(tl.float32, [4]),
        tl.float16,
        sep="|",
        end=";",
    )
    assert capsys.readouterr().out == "a|3|fp32[constexpr[4]]|fp16;"
    assert bench.names == []


def test_static_assert(bench: Any) -> None:
    bench(tl.static_assert, tl.constexpr(True))
    with pytest.raises(CompileTimeAssertionFailure, match=r"^too small\n"):
        bench(tl.static_assert, tl.constexpr(0), tl.constexpr("too small"))
    with pytest.raises(
        NotImplementedError, match="Assertion condition could not be determined at compile-time"
    ):
        bench(tl.static_assert, bench.value(tl.int1))


def test_device_print(bench: Any) -> None:
    bench(
        tl.device_print,
        "x: ",
        bench.value(tl.int32),
        (bench.value(tl.float32, [4]), tl.constexpr(2)),
        hex=True,
    )
    assert (bench.last.attribute("prefix"), bench.last.attribute("hex")) == ("x: ", True)
    assert [str(operand.type) for operand in bench.last.operands] == ["i32", "tile<4xf32>", "i32"]
    bench(tl.device_print, tl.constexpr("here"))
    assert bench.last.operands == [] and not bench.last.attribute("each_thread")
    for prefix, message in (
        ("é", "not printable ASCII"),
        ("a\n", "not printable ASCII"),
        (bench.value(tl.int32), "string known at compile time"),
    ):
        with pytest.raises(ValueError, match=message):
            bench(tl.device_print, prefix)
    bench.verify()


def test_device_assert_only_in_debug_mode(make_bench: Callable[..., Any]) -> None:
    for debug in (False, True):
        bench = make_bench(debug=debug)
        bench(tl.device_assert, bench.value(tl.int1, [8]), "bad", bench.value(tl.int1, [4, 1]))
        assert ("assert" in bench.names) is debug
        if debug:
            assert bench.last.attribute("message") == "bad"
            assert [str(operand.type) for operand in bench.last.operands] == ["tile<4x8xi1>"] * 2
        bench.verify()


@jit
def assert_kernel(x):
    i = tl.arange(0, 8)
    tl.device_assert(tl.load(x + i) < 5, "five or more", mask=i < 4)


def test_assertions_stop_the_kernel(run: Callable[..., None]) -> None:
    debug = Options(debug=True)
    run(assert_kernel, np.array([1, 2, 3, 4, 9, 9, 9, 9], np.int32), options=debug)
    run(assert_kernel, np.array([9, 2, 3, 4, 9, 9, 9, 9], np.int32))
    with pytest.raises(KernelError, match="five or more"):
        run(assert_kernel, np.array([1, 2, 9, 4, 1, 1, 1, 1], np.int32), options=debug)


@pytest.mark.parametrize(
    ("kind", "arch", "warp_size", "truths"),
    [
        ("cuda", "sm_90a", 32, {"is_cuda", "geq_8", "geq_9"}),
        ("cuda", "sm_89", 32, {"is_cuda", "geq_8"}),
        ("cuda", "sm_120", 32, {"is_cuda", "geq_8", "geq_9"}),
        ("hip", "gfx942", 64, {"is_hip", "is_hip_cdna3"}),
        ("hip", "gfx950:sramecc+", 64, {"is_hip", "is_hip_cdna4"}),
        ("hip", "gfx1250", 32, {"is_hip", "is_hip_gfx1250"}),
        ("cpu", "x86-64", 1, set()),
        ("xpu", "sm_90a", 16, set()),
    ],
)
@pytest.mark.parametrize("backend", ["own", "nvidia", "amd"])
def test_targets(
    make_bench: Callable[..., Any],
    backend: str,
    kind: str,
    arch: str,
    warp_size: int,
    truths: set[str],
) -> None:
    bench = make_bench(target=Target(backend, arch, warp_size=warp_size, kind=kind))
    names = ("is_cuda", "is_hip", "is_hip_cdna3", "is_hip_cdna4", "is_hip_gfx1250")
    found = {name for name in names if bench(getattr(tl.target_info, name)).value}
    found |= {
        f"geq_{major}" for major in (8, 9) if bench(tl.target_info.cuda_capability_geq, major).value
    }
    assert found == truths
    target = bench(tl.target_info.current_target).value
    assert target == (kind, arch, warp_size)


@pytest.mark.parametrize(
    ("target", "truths"),
    [
        (None, (False, False, False, False)),
        (Target("own", "sm_90a", warp_size=32, kind="cuda"), (True, True, False, False)),
        (Target("own", "gfx942", warp_size=64, kind="hip"), (False, False, True, True)),
    ],
    ids=["none", "sm_90a", "gfx942"],
)
def test_outside_a_kernel_the_answers_are_of_the_active_target(
    monkeypatch: pytest.MonkeyPatch, target: Target | None, truths: tuple[bool, ...]
) -> None:
    monkeypatch.setattr(active_target, "provider", lambda: target)
    info = tl.target_info
    assert (
        info.is_cuda(),
        info.cuda_capability_geq(9, 0),
        info.is_hip(),
        info.is_hip_cdna3(),
    ) == truths
    assert info.current_target() == (target and (target.kind, target.arch, target.warp_size))


def test_iteration_hints() -> None:
    loop = tl.range(
        2,
        10,
        num_stages=tl.constexpr(3),
        loop_unroll_factor=2,
        flatten=True,
        disallow_acc_multi_buffer=True,
    )
    assert (loop.start, loop.end, loop.step.value) == (2, 10, 1)
    assert (
        loop.num_stages,
        loop.loop_unroll_factor,
        loop.flatten,
        loop.warp_specialize,
        loop.disable_licm,
    ) == (3, 2, True, False, False)
    assert loop.disallow_acc_multi_buffer
    single = tl.range(7)
    assert (single.start.value, single.end, single.step.value, single.num_stages) == (0, 7, 1, None)
    unrolled = tl.static_range(8, 0, -2)
    assert [bound.value for bound in (unrolled.start, unrolled.end, unrolled.step)] == [8, 0, -2]
    with pytest.raises(TypeError, match="static_range takes constexpr integers"):
        tl.static_range(2.0)
    for loop in (single, unrolled):
        with pytest.raises(RuntimeError, match="only inside a kernel"):
            list(loop)
    assert tl.condition(True, disable_licm=True).disable_licm is True
