"""Failing launches, read-only arrays, caches of compiled code, hooks, warm-up, options."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LaunchError
from tilewright.runtime.hooks import hooks
from tilewright_conformance.cases.launch.launch.arguments import put_number
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table, elements
from tilewright_conformance.testlib.environment import own_cache

CASES = Table("launch", "launch", "Python and NumPy")


@tw.jit
def scaled(x, out, n, factor=2.0, BLOCK: tl.constexpr = 16):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * factor, mask=offsets < n)


def _fresh() -> Any:
    """The kernel, as if nothing had been compiled of it in this process."""
    return tw.jit(scaled.fn)


def _arrays(session: Session, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    return session.rng.integers(-8, 9, n).astype(np.float32), np.zeros(n, np.float32)


# ---- what is no argument


#: name -> (arguments after the array, keywords, type of the error, what it says)
REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = {
    "missing": ((), {}, TypeError, "missing 1 required"),
    "too_many": ((1, 2, 3), {}, TypeError, "positional arguments"),
    "twice": ((1,), {"number": 2}, TypeError, "multiple values"),
    "unknown_keyword": ((1,), {"colour": 2}, KeyError, "colour"),
    "list": (([1, 2],), {}, TypeError, "number"),
    "text": (("seven",), {}, TypeError, "number"),
    "object": ((object(),), {}, TypeError, "number"),
    "complex": ((1j,), {}, TypeError, "number"),
    "wide": ((2**64,), {}, OverflowError, "64 bits"),
    "very_negative": ((-(2**63) - 1,), {}, OverflowError, "64 bits"),
    "no_warps": ((1,), {"num_warps": 0}, LaunchError, "num_warps"),
    "half_a_warp": ((1,), {"num_warps": 2.5}, LaunchError, "num_warps"),
    "objects": ((np.array([None]),), {}, TypeError, ""),
    "structure": ((np.zeros(3, [("a", "f4")]),), {}, TypeError, ""),
}


@CASES("errors/arguments", "LaunchError", each=REFUSED, quick=("missing", "list", "wide"))
def wrong_arguments_are_refused(
    session: Session, given: tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]
) -> None:
    """Before anything runs, by an error that names what is wrong; the next launch runs."""
    arguments, keywords, kind, text = given
    out = np.full(2, 9, np.int64)
    place = session.placement()
    for _ in range(2):
        with session.use(), session.raises(kind, text):
            put_number[(1,)](place(out), *arguments, **keywords)
    place.fetch()
    session.check(out, np.full(2, 9), name="an array of a launch that was refused")
    session.launch(put_number, (1,), out, 4)
    session.check(out, np.array([4, 5]))


# ---- arrays that are read-only


@CASES("read_only", "launch", needs=elements("f32", tile=16), quick=True)
def read_only_arrays_are_read_and_not_written(session: Session) -> None:
    """Refuse a kernel that stores to a read-only array before it runs.

    The same kernel with another array runs, before and after.
    """
    for _ in range(2):
        x, out = _arrays(session)
        x.flags.writeable = False
        session.launch(scaled, (3,), x, out, 40)
        session.check(out, x * 2, zero_sign=False)
        kept = out.copy()
        out.flags.writeable = False
        with session.raises(LaunchError, "read-only"):
            session.launch(scaled, (3,), x, out, 40, 5.0)
        session.check(out, kept, name="a read-only array")


# ---- compiled code is kept


@contextlib.contextmanager
def _compilations() -> Iterator[list[bool]]:
    """Record whether each kernel that the block compiles or loads came from the disk cache."""
    found: list[bool] = []
    before = hooks.compilation_listener
    hooks.compilation_listener = lambda **facts: found.append(bool(facts["cache_hit"]))
    try:
        yield found
    finally:
        hooks.compilation_listener = before


def _launch(session: Session, kernel: Any, factor: float = 2.0, **options: Any) -> None:
    x, out = _arrays(session)
    session.launch(kernel, (tw.cdiv(40, options.get("BLOCK", 16)),), x, out, 40, factor, **options)
    session.check(out, x * np.float32(factor), zero_sign=False)


@CASES("cache/memory", "launch", needs=elements("f32", tile=32), quick=True)
def a_second_launch_compiles_nothing(session: Session) -> None:
    with own_cache(), _compilations() as events:
        kernel = _fresh()
        _launch(session, kernel)
        session.require(events == [False], f"the first launch compiles once, and gave {events}")
        for factor in (2.0, 3.0, -0.5):
            _launch(session, kernel, factor)
        session.require(len(events) == 1, f"later launches compile nothing, and gave {events}")
        _launch(session, kernel, BLOCK=32)
        session.require(events == [False, False], f"another constant compiles, and gave {events}")
        _launch(session, kernel, BLOCK=16)
        _launch(session, kernel, BLOCK=32)
        session.require(len(events) == 2, f"constants of before compile nothing, and gave {events}")
        _launch(session, kernel, num_warps=8)
        session.require(len(events) == 3, f"another option compiles, and gave {events}")


@CASES("cache/disk", "launch", needs=elements("f32", tile=32), quick=True)
def the_disk_cache_serves_other_kernels_of_the_same_source(session: Session) -> None:
    """Load from disk as another process would: the same source, nothing compiled in memory.

    Damaged entries are compiled anew.
    """
    with own_cache(), _compilations() as events:
        _launch(session, _fresh())
        _launch(session, _fresh(), 3.0)
        session.require(
            events == [False, True], f"the second kernel comes from the disk, and gave {events}"
        )
        _launch(session, _fresh(), BLOCK=32)
        session.require(
            events == [False, True, False],
            f"another constant is not on the disk, and gave {events}",
        )
        _launch(session, _fresh(), 0.5, BLOCK=32)
        session.require(events[-1] is True, f"it is there afterwards, and gave {events}")
        for folder, _, files in os.walk(os.environ["TILEWRIGHT_CACHE_DIR"]):
            for name in files:
                with open(os.path.join(folder, name), "r+b") as file:
                    file.truncate(os.path.getsize(file.name) // 2)
        with warnings.catch_warnings(action="ignore"):
            _launch(session, _fresh(), 4.0)
        session.require(events[-1] is False, f"a damaged entry is compiled anew, and gave {events}")


@CASES("cache/cleared", "launch", needs=elements("f32", tile=16))
def a_cleared_kernel_is_loaded_again(session: Session) -> None:
    with own_cache(), _compilations() as events:
        kernel = _fresh()
        _launch(session, kernel)
        kernel.clear_cache()
        _launch(session, kernel, 3.0)
        session.require(
            events == [False, True],
            f"after clear_cache the code comes from the disk, and gave {events}",
        )


@tw.jit
def stores_number(out, NUMBER: tl.constexpr, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), NUMBER)


@CASES("cache/constants", "launch", needs=elements(tile=8), quick=True)
def kernels_that_differ_in_a_constant_are_kept_apart(session: Session) -> None:
    """In memory and on the disk."""
    with own_cache():
        for make in (lambda: stores_number, lambda: tw.jit(stores_number.fn)):
            for number in (3, 4, -3, 0, 3, 1 << 30):
                out = np.full(8, 9, np.int32)
                session.launch(make(), (1,), out, NUMBER=number, BLOCK=8)
                session.check(out, np.full(8, number, np.int32))


OFFSET = tl.constexpr(5)


@tw.jit
def adds_global(out, n):
    tl.store(out, n + OFFSET)


@CASES("globals", "launch", quick=True)
def a_global_that_changed_is_noticed(session: Session) -> None:
    kernel, out = tw.jit(adds_global.fn), np.zeros(1, np.int32)
    names = adds_global.fn.__globals__
    for _ in range(3):
        session.launch(kernel, (1,), out, 7)
        session.check(out, np.array([12], np.int32))
    names["OFFSET"] = tl.constexpr(6)
    try:
        with session.raises(RuntimeError, "OFFSET has changed"):
            session.launch(kernel, (1,), out, 7)
        again = tw.jit(adds_global.fn)
        session.launch(again, (1,), out, 7)
        session.check(out, np.array([13], np.int32))
    finally:
        names["OFFSET"] = tl.constexpr(5)
    session.launch(kernel, (1,), out, 8)
    session.check(out, np.array([13], np.int32))


# ---- warm-up and hooks


@CASES("warmup", "launch", needs=elements("f32", tile=16), quick=True)
def warming_up_compiles_and_runs_nothing(session: Session) -> None:
    """With arrays, and with what stands for them; the launch that follows compiles nothing."""
    x, out = _arrays(session)
    with own_cache(), _compilations() as events:
        kernel, place = _fresh(), session.placement()
        with session.use():
            compiled = kernel.warmup(place(x), place(out), 40, grid=(3,))
        place.fetch()
        session.check(out, np.zeros(40, np.float32), name="an array after a warm-up")
        session.require(
            events == [False] and compiled is not None,
            f"a warm-up compiles once, and gave {events}",
        )
        with session.use():
            found = kernel.warmup(
                tw.MockTensor(tl.float32), tw.MockTensor(tl.float32), 40, 2.0, grid=(3,)
            )
        session.require(found is not None, "a warm-up with mock arrays returns the compiled kernel")
        _launch(session, kernel)
        session.require(
            len(events) == 1, f"the launch after it compiles nothing, and gave {events}"
        )


@CASES("hooks/pre_run", "launch", needs=elements("f32", tile=32), quick=True)
def hooks_run_before_each_launch(session: Session) -> None:
    kernel, seen = _fresh(), []
    kernel.add_pre_run_hook(lambda *args, **named: seen.append((len(args), args[2], named)))
    for n, named in ((40, {}), (33, {"BLOCK": 32}), (40, {"factor": 3.0})):
        x, out = _arrays(session)
        session.launch(kernel, (3,), x, out, n, **named)
        session.check(
            out,
            np.where(np.arange(40) < n, x * named.get("factor", 2.0), 0).astype(np.float32),
            zero_sign=False,
        )
    session.require(
        seen == [(3, 40, {}), (3, 33, {"BLOCK": 32}), (3, 40, {"factor": 3.0})],
        f"the hook was given {seen}",
    )


@CASES("hooks/around", "launch", needs=elements("f32", tile=16), quick=True)
def hooks_run_around_launches(session: Session) -> None:
    """In pairs, with the launch's metadata, and not for empty grids."""
    events: list[tuple[str, Any, Any]] = []

    def enter(metadata: Any) -> None:
        events.append(("enter", metadata.get()["name"], metadata.get()["grid"]))

    def leave(metadata: Any) -> None:
        events.append(("exit", metadata.get()["name"], metadata.get()["grid"]))

    x, out = _arrays(session)
    hooks.launch_enter.add(enter)
    hooks.launch_exit.add(leave)
    try:
        for grid in ((3,), (0,), (3, 1, 1)):
            session.launch(scaled, grid, x, out, 40)
    finally:
        hooks.launch_enter.remove(enter)
        hooks.launch_exit.remove(leave)
    session.launch(scaled, (3,), x, out, 40)
    session.require(
        events == [("enter", "scaled", (3, 1, 1)), ("exit", "scaled", (3, 1, 1))] * 2,
        f"the hooks were given {events}",
    )
    session.check(out, x * 2, zero_sign=False)


@CASES("hooks/veto", "launch", needs=elements("f32", tile=16))
def a_hook_may_forbid_compilation(session: Session) -> None:
    called: list[str] = []

    def veto(**facts: Any) -> bool:
        called.append(facts["fn"].name)
        return True

    x, out = _arrays(session)
    kernel, before = _fresh(), hooks.jit_cache
    hooks.jit_cache = veto
    try:
        found = session.launch(kernel, (3,), x, out, 40)
    finally:
        hooks.jit_cache = before
    session.require(
        found is None and called == ["scaled"],
        f"a launch that was forbidden gave {found}, and called the hook for {called}",
    )
    session.check(out, np.zeros(40, np.float32))
    session.launch(kernel, (3,), x, out, 40)
    session.check(out, x * 2, zero_sign=False)


# ---- options and compiled kernels


@CASES(
    "options/num_warps",
    "launch",
    each={str(n): n for n in (1, 2, 4, 8)},
    needs=elements("f32", tile=256),
    quick=("8",),
)
def warps_change_no_result(session: Session, warps: int) -> None:
    for stages in (1, 3):
        x, out = _arrays(session, 1000)
        session.launch(
            scaled, (4,), x, out, 1000, 0.5, BLOCK=256, num_warps=warps, num_stages=stages
        )
        session.check(out, x * np.float32(0.5), zero_sign=False)


@tw.jit
def multiply_add(x, y, z, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets) * tl.load(y + offsets) + tl.load(z + offsets))


@CASES("options/enable_fp_fusion", "launch", needs=elements("f32", tile=256), quick=True)
def fusion_can_be_disabled(session: Session) -> None:
    """Without fusion a multiplication rounds before the addition; else it may."""
    x, y, z = (session.rng.uniform(0.5, 2.0, 256).astype(np.float32) for _ in range(3))
    out = np.zeros(256, np.float32)
    session.launch(multiply_add, (1,), x, y, z, out, BLOCK=256, enable_fp_fusion=False)
    session.check(out, x * y + z)
    session.launch(multiply_add, (1,), x, y, z, out, BLOCK=256)
    once = (x.astype(np.float64) * y + z).astype(np.float32)
    session.require(
        bool(((out == once) | (out == x * y + z)).all()),
        "a multiplication and an addition round once or twice",
    )


@CASES("compiled", "launch", needs=elements("f32", tile=16), quick=True)
def compiled_kernels_launch_and_tell_of_themselves(session: Session) -> None:
    x, out = _arrays(session)
    compiled = session.launch(scaled, (3,), x, out, 40, num_warps=4)
    session.require(compiled.name == "scaled", f"the compiled kernel is called {compiled.name!r}")
    session.require(
        "kernel @scaled" in compiled.asm["tileir"], "asm['tileir'] holds the kernel's Tile IR"
    )
    session.require(
        compiled.metadata.num_warps == 4,
        f"its metadata has num_warps {compiled.metadata.num_warps}",
    )
    session.require(
        compiled.metadata.target.backend == session.backend,
        f"its target is of backend {compiled.metadata.target.backend}",
    )
    second = np.zeros(40, np.float32)
    place = session.placement()
    with session.use():
        compiled[(3,)](place(x), place(second), 40, 4.0, 16)
    place.fetch()
    session.check(second, x * 4, zero_sign=False)
