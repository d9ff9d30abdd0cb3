"""The emulated machine: that it runs threads together, and that it finds what hardware hides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.errors import KernelError
from tilewright.ir.types import F32, I32, PointerType
from tilewright.llvm.writer import FunctionWriter, ModuleWriter
from tilewright.simt import emulator
from tilewright.simt.target import Access

Body = Callable[[emulator.EmulatedTarget, FunctionWriter, str], None]


def run(body: Body, out: Any, *, warps: int = 2, warp_size: int = 8, grid: tuple[int, int, int] = (1, 1, 1), number: int = 0) -> None:
    """Run a kernel of (pointer, number); ``body`` gets the number of the thread in its program."""
    target, module = emulator.EmulatedTarget(warp_size), ModuleWriter("nounwind")
    w = target.begin(module, "kernel", [("ptr", "out"), ("i32", "number")], warps, {})
    thread = w.emit(f"add i32 %lane, {w.emit(f'mul i32 %warp, {warp_size}')}")
    body(target, w, thread)
    w.ret()
    emulator.run_text(module.text(), target, [PointerType(I32), I32], [out, number], grid, warps)


def at(w: FunctionWriter, base: str, index: str) -> str:
    return w.emit(f"getelementptr i32, ptr {base}, i32 {index}")


@pytest.mark.parametrize(("warps", "warp_size"), [(1, 4), (2, 8), (4, 32), (1, 64)])
def test_threads_exchange_through_shuffles_and_shared_memory(warps: int, warp_size: int) -> None:
    threads = warps * warp_size

    def body(target: emulator.EmulatedTarget, w: FunctionWriter, thread: str) -> None:
        shared = target.shared_base(w)
        value = target.shuffle_xor(w, w.emit(f"add i32 {thread}, %number"), 1)
        w.do(f"store i32 {value}, ptr {at(w, shared, thread)}")
        target.barrier(w)
        far = w.emit(f"sub i32 {threads - 1}, {thread}")
        found = w.emit(f"add i32 {w.load('i32', at(w, shared, far), 4)}, {w.emit('mul i32 %px, 1000')}")
        place = w.emit(f"add i32 {thread}, {w.emit(f'mul i32 %px, {threads}')}")
        target.store(w, at(w, "%out", place), I32, [found], None, Access())

    out = np.full((3, threads), -1, np.int32)
    run(body, out, warps=warps, warp_size=warp_size, grid=(3, 1, 1), number=100)
    thread = np.arange(threads)[::-1]
    np.testing.assert_array_equal(out, (thread ^ 1) + 100 + 1000 * np.arange(3)[:, None])


def test_a_barrier_that_some_threads_miss_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulator, "_PATIENCE", 1000)

    def body(target: emulator.EmulatedTarget, w: FunctionWriter, thread: str) -> None:
        with w.when(w.emit("icmp eq i32 %warp, 0")):
            target.barrier(w)

    with pytest.raises(KernelError, match="wait for a barrier"):
        run(body, np.zeros(1, np.int32))


def test_an_access_must_be_aligned_to_its_whole_size() -> None:
    def body(target: emulator.EmulatedTarget, w: FunctionWriter, thread: str) -> None:
        target.load(w, at(w, "%out", "1"), F32, 4, None, None, Access())

    with pytest.raises(KernelError, match="not aligned"):
        run(body, np.zeros(8, np.int32))


def test_a_copy_happens_when_it_is_waited_for() -> None:
    """Two groups under way: waiting for all but one finishes the first only. A false predicate gives zeros."""

    def body(target: emulator.EmulatedTarget, w: FunctionWriter, thread: str) -> None:
        shared = target.shared_base(w)
        with w.when(target_is_first(w)):
            for i, predicate in enumerate((None, "false", None)):
                target.async_copy(w, at(w, shared, str(i)), at(w, "%out", str(i)), 4, predicate)
                if i:
                    target.async_commit(w)
            target.async_wait(w, 1)
            for i in range(3):
                value = w.load("i32", at(w, shared, str(i)), 4)
                w.do(f"store i32 {value}, ptr {at(w, '%out', str(8 + i))}")
            target.async_wait(w, 0)
            w.do(f"store i32 {w.load('i32', at(w, shared, '2'), 4)}, ptr {at(w, '%out', '11')}")

    out = np.zeros(12, np.int32)
    out[:3] = 5, 6, 7
    run(body, out)
    pattern = np.frombuffer(b"\xa5" * 4, np.int32)[0]
    np.testing.assert_array_equal(out[8:], [5, 0, pattern, 7])


def target_is_first(w: FunctionWriter) -> str:
    return w.emit(f"icmp eq i32 {w.emit('or i32 %lane, %warp')}, 0")
