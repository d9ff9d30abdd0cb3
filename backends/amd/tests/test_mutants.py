"""A lowering that is wrong in one place is found by running what it writes: barriers and waits that
are missing, lanes and places that are off by one."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import amd_kernels as kernels
import numpy as np
import pytest
from amd_emulated import launched
from amd_support import all_barriers_but, example, listed

from tilewright.ir.core import Function
from tilewright.plugins.manifest import CodeObject
from tilewright.simt import compile as stages
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.thread_hierarchy import Threads
from tilewright.simt.target.simt_target import SimtTarget
from tilewright_amd.codegen import cross_lane, memory_access, waitcnt
from tilewright_amd.codegen.global_memory import GcnGlobalMemory
from tilewright_amd.codegen.thread_hierarchy import GcnThreads
from tilewright_amd.mma.mma import _Matmul
from tilewright_amd_emulator import WaveError

Run = Callable[[str, str, int], bool]


def code_of(kernel: Any, signature: str, arch: str, **constants: Any) -> CodeObject:
    return listed(kernel, signature, arch, constants)


def agrees(
    code: CodeObject,
    arguments: Sequence[Any],
    expected: np.ndarray[Any, Any],
    grid: tuple[int, ...],
    schedule: str,
    seed: int,
) -> bool:
    """Return whether a run leaves the expected values in its last array, without an error."""
    try:
        launched(code, arguments, grid, schedule=schedule, seed=seed)
    except WaveError:
        return False
    return bool(
        np.array_equal(
            [value for value in arguments if isinstance(value, np.ndarray)][-1], expected
        )
    )


def add(arch: str, schedule: str, seed: int) -> bool:
    code = code_of(kernels.add, "x=*fp32:16, y=*fp32:16, z=*fp32:16, n=i32", arch, BLOCK=256)
    x, y = np.arange(1, 701, dtype=np.float32), np.arange(1, 701, dtype=np.float32)
    return agrees(code, [x, y, np.zeros_like(x), 700], x + y, (3,), schedule, seed)


def sums(arch: str, schedule: str, seed: int) -> bool:
    """Sums across the waves of a program: through LDS."""
    code = code_of(kernels.sum_of_rows, "x=*fp32:16, out=*fp32:16", arch, ROWS=2, COLUMNS=2048)
    x = np.random.default_rng(0).integers(-9, 9, (2, 2048)).astype(np.float32)
    return agrees(code, [x, np.zeros(2, np.float32)], x.sum(1), (1,), schedule, seed)


def turned(arch: str, schedule: str, seed: int) -> bool:
    code = code_of(kernels.transposed, "x=*fp32:16, out=*fp32:16", arch, N=64)
    x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    return agrees(code, [x, np.zeros_like(x)], x.T, (1,), schedule, seed)


def product(arch: str, schedule: str, seed: int) -> bool:
    """A loop whose loads go through registers, two iterations deep in LDS."""
    sizes = ", ".join(
        f"{name}=i32:16" for name in ("M", "N", "K", "stride_am", "stride_bk", "stride_cm")
    )
    constants = {
        "stride_ak": 1,
        "stride_bn": 1,
        "stride_cn": 1,
        "BLOCK_M": 32,
        "BLOCK_N": 32,
        "BLOCK_K": 32,
        "GROUP_M": 1,
        "ACTIVATION": "",
    }
    code = code_of(
        example("matmul").matmul_kernel,
        f"a_ptr=*fp16:16, b_ptr=*fp16:16, c_ptr=*fp16:16, {sizes}",
        arch,
        **constants,
    )
    rng = np.random.default_rng(1)
    a, b = (
        rng.integers(-3, 4, (32, 128)).astype(np.float16),
        rng.integers(-3, 4, (128, 32)).astype(np.float16),
    )
    return agrees(
        code,
        [a, b, np.zeros((32, 32), np.float16), 32, 32, 128, 128, 32, 32],
        a @ b,
        (1,),
        schedule,
        seed,
    )


def passed_on(arch: str, schedule: str, seed: int) -> bool:
    """One part of a program stores what another part reads after a barrier."""
    code = code_of(kernels.passed_on, "scratch=*i32:16, out=*i32:16", arch, BLOCK=64)
    return agrees(
        code,
        [np.zeros((6, 64), np.int32), np.zeros((6, 64), np.int32)],
        np.tile(np.arange(64)[::-1] + 1, (6, 1)),
        (6,),
        schedule,
        seed,
    )


def taken_in_turn(arch: str, schedule: str, seed: int) -> bool:
    """One program at a time changes data that all share."""
    code = code_of(kernels.taken_in_turn, "lock=*i32:16, data=*i32:16", arch, BLOCK=128)
    return agrees(
        code,
        [np.zeros(1, np.int32), np.zeros(128, np.int32)],
        np.full(128, 2**4 - 1),
        (4,),
        schedule,
        seed,
    )


def _nothing(*arguments: Any, **named: Any) -> None:
    return None


def _no_fences(self: GcnThreads, w: Any, threads: Threads) -> None:
    w.call("llvm.amdgcn.s.barrier", "void", [])


def _one_barrier_less(number: int) -> Callable[[Function, SimtTarget], None]:
    def insert(function: Function, machine: SimtTarget) -> None:
        _INSERT(function, machine)
        barriers = [operation for operation in function.walk() if operation.name == "barrier"]
        assert len(barriers) > number
        barriers[number].erase()

    return insert


_INSERT = stages.insert_barriers


def _lane(self: GcnThreads, w: Any) -> str:
    return str(w.emit(f"and i32 {_LANE(self, w)}, 31"))


_LANE, _EXCHANGE, _STORE, _EMIT = (
    GcnThreads.lane,
    cross_lane.exchange,
    GcnGlobalMemory.store,
    _Matmul.emit,
)


def _moved_store(
    self: GcnGlobalMemory,
    w: Any,
    pointer: str,
    element: Any,
    values: Sequence[str],
    predicate: str | None,
    access: Any,
) -> None:
    _STORE(
        self,
        w,
        str(w.emit(f"getelementptr i8, ptr {pointer}, i64 4")),
        element,
        values,
        predicate,
        access,
    )


def _late(
    context: SimtContext, matmul: _Matmul, a: list[str], b: list[str], c: list[str]
) -> list[str]:
    return _EMIT(matmul, context, a[1:] + a[:1], b, c)


def _stage(name: str, run: Callable[[Function, SimtTarget], None]) -> tuple[Any, ...]:
    return tuple(
        stages.Stage(
            one.name,
            lambda module, machine, options: run(stages.kernel_of(module), machine),
            one.meaning,
        )
        if one.name == name
        else one
        for one in stages.STAGES
    )


#: name -> (what to run, module or class, attribute, what stands in its place)
MUTANTS: dict[str, tuple[Run, Any, str, Any]] = {
    "no barrier": (sums, GcnThreads, "barrier", _nothing),
    "no barrier between layouts": (turned, GcnThreads, "barrier", _nothing),
    "barriers that order nothing": (sums, GcnThreads, "barrier", _no_fences),
    "barriers that order nothing in a loop": (product, GcnThreads, "barrier", _no_fences),
    "the first barrier of a loop is missing": (
        product,
        stages,
        "STAGES",
        _stage("barriers", _one_barrier_less(0)),
    ),
    "the barrier of a reduction is missing": (sums, GcnThreads, "barrier", all_barriers_but(0)),
    "the barrier of a conversion is missing": (turned, GcnThreads, "barrier", all_barriers_but(0)),
    "loads pass barriers": (passed_on, memory_access, "KEEP", ""),
    "others' stores are not waited for": (taken_in_turn, waitcnt, "MFMA_MEMORY", 0xCF7F),
    "half of the lanes": (add, GcnThreads, "lane", _lane),
    "an exchange with the next lane, always": (
        sums,
        cross_lane,
        "exchange",
        lambda w, row, value, lane, mask: _EXCHANGE(w, row, value, lane, 1),
    ),
    "stores one element late": (add, GcnGlobalMemory, "store", _moved_store),
    "stores of all lanes": (
        add,
        GcnGlobalMemory,
        "store",
        lambda self, w, pointer, element, values, predicate, access: _STORE(
            self, w, pointer, element, values, None, access
        ),
    ),
    "operands of a product that are one element late": (
        product,
        _Matmul,
        "emit",
        lambda self, context, a, b, c: _late(context, self, a, b, c),
    ),
    "operands of a product in each other's place": (
        product,
        _Matmul,
        "emit",
        lambda self, context, a, b, c: _EMIT(self, context, b, a, c),
    ),
}

ALL = (add, sums, turned, product, passed_on, taken_in_turn)


@pytest.mark.parametrize("run", ALL, ids=lambda run: run.__name__)
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_what_is_not_changed_is_right(run: Run, arch: str) -> None:
    assert all(run(arch, schedule, seed) for schedule in ("lockstep", "random") for seed in (0, 1))


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run, owner, attribute, value = MUTANTS[name]
    arch = "gfx1100" if name == "loads pass barriers" else "gfx942"
    monkeypatch.setattr(owner, attribute, value)
    assert not all(
        run(arch, schedule, seed) for schedule in ("lockstep", "random") for seed in (0, 1)
    ), f"{name}: nothing was seen"


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_every_wait_of_a_loop_that_is_missing_is_found(
    arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each wait for loads or for LDS, by itself."""
    code = code_of(kernels.sum_of_rows, "x=*fp32:16, out=*fp32:16", arch, ROWS=2, COLUMNS=2048)
    listing = str(code.stages["amdgcn"])
    waits = list(re.finditer(r"^\ts_waitcnt (?:lgkmcnt|vmcnt)\(0\)\n", listing, re.M))
    assert len(waits) >= 4
    for wait in waits:
        changed = listing[: wait.start()] + listing[wait.end() :]
        mutant = CodeObject(
            code.name, code.binary, {**code.stages, "amdgcn": changed}, code.metadata, code.timings
        )
        monkeypatch.setattr(sys.modules[__name__], "listed", lambda *given, mutant=mutant: mutant)
        line = listing[: wait.start()].count("\n")
        assert not all(
            sums(arch, schedule, seed) for schedule in ("lockstep", "random") for seed in (0, 1)
        ), f"line {line}: nothing was seen"
