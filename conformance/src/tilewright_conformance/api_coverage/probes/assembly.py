"""The target's own code, and what kernels ask about their target."""

# Kernels are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

import platform
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import TilewrightError
from tilewright_conformance.api_coverage.machines import Machine
from tilewright_conformance.api_coverage.probe import probe
from tilewright_conformance.api_coverage.probes.debug import refusal

#: kind of target -> (assembly that adds 1 to an int32, constraints)
_INCREMENT = {"cuda": ("add.s32 $0, $1, 1;", "=r,r"), "hip": ("v_add_u32 $0, $1, 1", "=v,v")}
_HOST = {"x86_64": ("leal 1($1), $0", "=r,r"), "aarch64": ("add ${0:w}, ${1:w}, #1", "=r,r")}


@tw.jit
def incremented(x, out, ASSEMBLY: tl.constexpr, CONSTRAINTS: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    value = tl.inline_asm_elementwise(
        ASSEMBLY, CONSTRAINTS, [tl.load(x + at)], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(out + at, value)


def _refuses_assembly(on: Machine, rng: Any) -> None:
    x, out = np.zeros(16, np.int32), np.zeros(16, np.int32)
    try:
        on(incremented)[(1,)](x, out, ASSEMBLY="nop", CONSTRAINTS="=r,r", N=16)
    except TilewrightError:
        return
    raise AssertionError("assembly was accepted by a backend that does not declare it")


@probe("tl.inline_asm_elementwise", feature="inline_asm", otherwise=_refuses_assembly)
def inline_asm(on: Machine, rng: Any) -> None:
    x, out = rng.integers(-99, 99, 16).astype(np.int32), np.zeros(16, np.int32)
    assembly, constraints = _INCREMENT.get(on.kind) or _HOST[platform.machine()]
    try:
        on(incremented)[(1,)](x, out, ASSEMBLY=assembly, CONSTRAINTS=constraints, N=16)
    except TilewrightError:
        if on.runs:
            raise
        return  # compiled; the reference has no such machine to run it on
    np.testing.assert_array_equal(out, x + 1)


@tw.jit
def asks(out):
    tl.store(out, tl.target_info.is_cuda())
    tl.store(out + 1, tl.target_info.is_hip())
    tl.store(out + 2, tl.target_info.cuda_capability_geq(8, 0))
    tl.store(out + 3, tl.target_info.cuda_capability_geq(99))
    tl.store(
        out + 4,
        tl.target_info.is_hip_cdna3()
        or tl.target_info.is_hip_cdna4()
        or tl.target_info.is_hip_gfx1250(),
    )
    target: tl.constexpr = tl.target_info.current_target()
    tl.store(out + 5, target.warp_size)


@probe(
    "tl.target_info",
    "tl.target_info.is_cuda",
    "tl.target_info.is_hip",
    "tl.target_info.cuda_capability_geq",
    "tl.target_info.is_hip_cdna3",
    "tl.target_info.is_hip_cdna4",
    "tl.target_info.is_hip_gfx1250",
    "tl.target_info.current_target",
)
def target_info(on: Machine, rng: Any) -> None:
    out = np.full(6, 7, np.int32)
    on(asks)[(1,)](out)
    kind = on.kind if on.runs else "cpu"  # the reference's, which computed it
    np.testing.assert_array_equal(
        out[:5], [kind == "cuda", kind == "hip", kind == "cuda", 0, 0 if kind != "hip" else out[4]]
    )
    assert out[5] in {"cpu": (1,), "cuda": (32,), "hip": (32, 64)}.get(kind, range(1, 1024))
    outside = tl.target_info.current_target()
    assert outside is None or tl.target_info.is_cuda() is (outside.backend == "cuda")


@tw.jit
def sizes(out):
    tl.store(out, tl.extra.cuda.num_warps())
    tl.store(out + 1, tl.extra.cuda.num_threads())


@probe("tl.extra.cuda.num_warps", "tl.extra.cuda.num_threads", languages=("cuda",))
def cuda_sizes(on: Machine, rng: Any) -> None:
    out = np.zeros(2, np.int32)
    on(sizes)[(1,)](out, num_warps=8)
    np.testing.assert_array_equal(out, [8, 256])


@tw.jit
def hip_warps(out):
    tl.store(out, tl.extra.hip.num_warps())


@probe("tl.extra.hip.num_warps", languages=("hip",))
def hip_sizes(on: Machine, rng: Any) -> None:
    out = np.zeros(1, np.int32)
    on(hip_warps)[(1,)](out, num_warps=8)
    assert out[0] == 8


@tw.jit
def through_fp8(x, out, N: tl.constexpr):
    at = tl.arange(0, N)
    value = tl.load(x + at)
    a = tl.extra.cuda.convert_custom_float8(value, tl.float8e4b15)
    b = tl.extra.cuda.convert_custom_float8_sm80(value, tl.float8e4b15)
    c = tl.extra.cuda.convert_custom_float8_sm70(value, tl.float8e4b15)
    tl.store(out + at, a.to(tl.float16))
    tl.store(out + N + at, b.to(tl.float16))
    tl.store(out + 2 * N + at, c.to(tl.float16))


@probe(
    "tl.extra.cuda.convert_custom_float8",
    "tl.extra.cuda.convert_custom_float8_sm80",
    "tl.extra.cuda.convert_custom_float8_sm70",
    languages=("cuda",),
)
def custom_float8(on: Machine, rng: Any) -> None:
    x = (rng.integers(8, 16, 32) / 8 * 2.0 ** rng.integers(-8, 0, 32)).astype(
        np.float16
    )  # numbers of the format
    out = np.zeros((3, 32), np.float16)
    on(through_fp8)[(1,)](x, out, N=32)
    np.testing.assert_array_equal(out, [x] * 3)


@tw.jit
def clocks(out):
    tl.extra.cuda.gdc_wait()
    tl.store(out + tl.program_id(0), tl.extra.cuda.globaltimer())
    tl.store(out + tl.num_programs(0) + tl.program_id(0), tl.extra.cuda.smid())
    tl.extra.cuda.gdc_launch_dependents()


def _compiled_only(on: Machine, kernel: Any, out: Any) -> bool:
    """Return whether the machine only compiles.

    Launching a kernel with inline assembly there fails, because the reference has no such assembly.
    """
    try:
        on(kernel)[(4,)](out)
    except TilewrightError:
        if on.runs:
            raise
    return not on.runs


def _refuses_clocks(on: Machine, rng: Any) -> None:
    try:
        on(clocks)[(4,)](np.zeros(8, np.int64))
    except TilewrightError:
        return
    raise AssertionError("assembly of another target was accepted")


@probe(
    "tl.extra.cuda.globaltimer",
    "tl.extra.cuda.smid",
    "tl.extra.cuda.gdc_wait",
    "tl.extra.cuda.gdc_launch_dependents",
    target="cuda",
    languages=("cuda",),
    otherwise=_refuses_clocks,
)
def cuda_registers(on: Machine, rng: Any) -> None:
    out = np.full(8, -1, np.int64)
    if _compiled_only(on, clocks, out):
        return
    assert (out[:4] > 0).all() and ((out[4:] >= 0) & (out[4:] < 1024)).all()


@tw.jit
def hip_clock(out):
    tl.store(out, tl.extra.hip.memrealtime())


def _refuses_hip_clock(on: Machine, rng: Any) -> None:
    try:
        on(hip_clock)[(1,)](np.zeros(1, np.int64))
    except TilewrightError:
        return
    raise AssertionError("a clock of another target was accepted")


@probe("tl.extra.hip.memrealtime", target="hip", languages=("hip",), otherwise=_refuses_hip_clock)
def hip_registers(on: Machine, rng: Any) -> None:
    out = np.zeros(1, np.int64)
    assert _compiled_only(on, hip_clock, out) or out[0] > 0


@tl.core.extern
def c_cosine(x, _semantic=None):
    table = {(tl.float32,): ("cosf", tl.float32), (tl.float64,): ("cos", tl.float64)}
    return tl.core.extern_elementwise("m", "", [x], table, is_pure=True, _semantic=_semantic)


@tw.jit
def cosines(x, out, DTYPE: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(out + at, c_cosine(tl.load(x + at).to(DTYPE)))


def _refuses_extern(on: Machine, rng: Any) -> None:
    x = np.ones(4, np.float32)
    assert "input arg type does not match" in str(
        refusal(on(cosines)[(1,)], x, x, DTYPE=tl.int32, N=4)
    )
    try:
        on(cosines)[(1,)](x, x, DTYPE=tl.float32, N=4)
    except TilewrightError:
        return
    raise AssertionError("a function of a library was called by a backend that declares none")


@probe(
    "tl.core.extern",
    "tl.core.extern_elementwise",
    "tl.core.dispatch",
    "tl.core.builtin",
    "tl.core.is_builtin",
    feature="extern",
    otherwise=_refuses_extern,
)
def extern(on: Machine, rng: Any) -> None:
    assert tl.core.is_builtin(c_cosine) and tl.core.is_builtin(
        tl.core.builtin(lambda _semantic=None: None)
    )
    assert not tl.core.is_builtin(len) and callable(tl.core.dispatch)
    for dtype, element in ((np.float32, tl.float32), (np.float64, tl.float64)):
        x, out = rng.uniform(-3, 3, 32).astype(dtype), np.zeros(32, dtype)
        on(cosines)[(1,)](x, out, DTYPE=element, N=32)
        np.testing.assert_allclose(out, np.cos(x), rtol=1e-6)
    x = np.ones(4, np.float32)
    assert "input arg type does not match" in str(
        refusal(on(cosines)[(1,)], x, x, DTYPE=tl.int32, N=4)
    )
