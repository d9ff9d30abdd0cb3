"""The emulated machine: that it runs threads together, and that it finds what hardware hides."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.errors import KernelError
from tilewright.ir.parser import parse_module
from tilewright.ir.types import F32, I32, I64, DescriptorType, PointerType
from tilewright.llvm.emission.writer import FunctionWriter, ModuleWriter
from tilewright.simt import emulator
from tilewright.simt.compile import run_stages
from tilewright.simt.emulator.launch import expanded_arguments
from tilewright.simt.lowering.lower_function import lower_function
from tilewright.simt.target.capabilities.global_memory import Access
from tilewright.testing.stage_text import read

Body = Callable[[emulator.EmulatedTarget, FunctionWriter, str], None]


def run(
    body: Body,
    out: Any,
    *,
    warps: int = 2,
    warp_size: int = 8,
    grid: tuple[int, int, int] = (1, 1, 1),
    number: int = 0,
    completion: str = "late",
) -> None:
    """Run a kernel of (pointer, number); ``body`` gets the number of the thread in its program."""
    target, module = emulator.EmulatedTarget(warp_size), ModuleWriter("nounwind")
    w = target.begin(module, "kernel", [("ptr", "out"), ("i32", "number")], warps, {})
    thread = w.emit(f"add i32 %lane, {w.emit(f'mul i32 %warp, {warp_size}')}")
    body(target, w, thread)
    w.ret()
    emulator.run_text(
        module.text(),
        target,
        [PointerType(I32), I32],
        [out, number],
        grid,
        warps,
        completion=completion,
    )


def at(w: FunctionWriter, base: str, index: str) -> str:
    return w.emit(f"getelementptr i32, ptr {base}, i32 {index}")


@pytest.mark.parametrize(("warps", "warp_size"), [(1, 4), (2, 8), (4, 32), (1, 64)])
def test_threads_exchange_through_shuffles_and_shared_memory(warps: int, warp_size: int) -> None:
    threads = warps * warp_size

    def body(target: emulator.EmulatedTarget, w: FunctionWriter, thread: str) -> None:
        shared = target.shared.base(w)
        value = target.lanes.shuffle_xor(w, w.emit(f"add i32 {thread}, %number"), 1)
        w.do(f"store i32 {value}, ptr {at(w, shared, thread)}")
        target.threads.barrier(w, target.record.everyone)
        far = w.emit(f"sub i32 {threads - 1}, {thread}")
        found = w.emit(
            f"add i32 {w.load('i32', at(w, shared, far), 4)}, {w.emit('mul i32 %px, 1000')}"
        )
        place = w.emit(f"add i32 {thread}, {w.emit(f'mul i32 %px, {threads}')}")
        target.memory.store(w, at(w, "%out", place), I32, [found], None, Access())

    out = np.full((3, threads), -1, np.int32)
    run(body, out, warps=warps, warp_size=warp_size, grid=(3, 1, 1), number=100)
    thread = np.arange(threads)[::-1]
    np.testing.assert_array_equal(out, (thread ^ 1) + 100 + 1000 * np.arange(3)[:, None])


@pytest.mark.parametrize("grid", [(1, 1, 1), (3, 1, 1)])
def test_a_barrier_that_some_threads_miss_is_reported(grid: tuple[int, int, int]) -> None:
    def body(target: emulator.EmulatedTarget, w: FunctionWriter, thread: str) -> None:
        with w.when(w.emit("icmp eq i32 %warp, 0")):
            target.threads.barrier(w, target.record.everyone)

    with pytest.raises(KernelError) as caught:
        run(body, np.zeros(1, np.int32), grid=grid)
    assert str(caught.value).splitlines() == [
        "threads are stuck:",
        (
            "  program: 8 threads of warps 0 wait for a barrier that others do not reach, where "
            "8 have arrived"
        ),
        "  program: 8 threads of warps 1 wait for the program's end, where 8 have arrived",
    ]


def test_an_access_must_be_aligned_to_its_whole_size() -> None:
    def body(target: emulator.EmulatedTarget, w: FunctionWriter, thread: str) -> None:
        target.memory.load(w, at(w, "%out", "1"), F32, 4, None, None, Access())

    with pytest.raises(KernelError, match="not aligned"):
        run(body, np.zeros(8, np.int32))


COPIES = """
#L0 = layout<16, registers [], lanes [(1) (2) (4)], warps [(8)]>
#S0 = shared<16>
kernel @k(%in: ptr<i32>, %out: ptr<i32>) attributes {warps = 2} {
  %0 = constant 0 : i32
  %1 = constant 1 : i32
  %2 = constant 2 : i32
  %all = arange {start = 0, end = 16} : tile<16xi32, #L0>
  %ins = splat %in : tile<16xptr<i32>, #L0>
  %from = addptr %ins, %all : tile<16xptr<i32>, #L0>
  %false = constant false : i1
  %none = splat %false : tile<16xi1, #L0>
  %ring = simt.buffer : buffer<3 x 16xi32, #S0>
  %a = simt.slot %ring, %0 : slot<16xi32, #S0>
  %b = simt.slot %ring, %1 : slot<16xi32, #S0>
  %c = simt.slot %ring, %2 : slot<16xi32, #S0>
  simt.copy_start %a, %from {by = "queue"}
  simt.copy_start %b, %from, mask=%none {by = "queue"}
  %first = simt.commit : token<copies>
  simt.copy_start %c, %from {by = "queue"}
  %second = simt.commit : token<copies>
  simt.wait tokens=[%first]
"""
SHOW = """
  %far{i} = constant {far} : i32
  %there{i} = addptr %out, %far{i} : ptr<i32>
  %outs{i} = splat %there{i} : tile<16xptr<i32>, #L0>
  %to{i} = addptr %outs{i}, %all : tile<16xptr<i32>, #L0>
  %v{i} = simt.load %{slot} : tile<16xi32, #L0>
  store %to{i}, %v{i}
"""


def test_a_copy_happens_when_it_is_waited_for() -> None:
    """Two groups in flight: waiting for the first finishes that one only. A false mask gives
    zeros."""
    shown = [SHOW.format(i=i, far=16 * i, slot=slot) for i, slot in enumerate(("a", "b", "c", "c"))]
    target = emulator.EmulatedTarget(8)
    module = read(
        "".join([COPIES, *shown[:3], "simt.wait tokens=[%second]", shown[3], "return\n}"]), target
    )
    run_stages(module, target, {"num_warps": 2}, ["allocate"])
    given, out = np.arange(5, 21, dtype=np.int32), np.zeros((4, 16), np.int32)
    emulator.run_text(
        lower_function(module.kernel, target, {}),
        target,
        [PointerType(I32)] * 2,
        [given, out],
        (1, 1, 1),
        2,
    )
    pattern = np.frombuffer(b"\xa5" * 4, np.int32)[0]
    np.testing.assert_array_equal(out, [given, np.zeros(16), np.full(16, pattern), given])


@pytest.mark.parametrize(("completion", "second"), [("late", None), ("early", 7)])
def test_when_a_copy_happens_is_the_mode_s_to_say(completion: str, second: int | None) -> None:
    """Two groups in flight: waiting for all but one finishes the first only, unless all happens
    early. A false predicate gives zeros."""

    def body(target: emulator.EmulatedTarget, w: FunctionWriter, thread: str) -> None:
        context: Any = SimpleNamespace(writer=w)
        shared = target.shared.base(w)
        (mechanism,) = target.async_copy.mechanisms
        assert mechanism.start is not None
        with w.when(target_is_first(w)):
            for i, predicate in enumerate((None, "false", None)):
                mechanism.start(context, at(w, shared, str(i)), at(w, "%out", str(i)), 4, predicate)
                if i:
                    target.async_copy.commit(context, "copies")
            target.async_copy.wait(context, "copies", 1, [])
            for i in range(3):
                value = w.load("i32", at(w, shared, str(i)), 4)
                w.do(f"store i32 {value}, ptr {at(w, '%out', str(8 + i))}")
            target.async_copy.wait(context, "copies", 0, [])
            w.do(f"store i32 {w.load('i32', at(w, shared, '2'), 4)}, ptr {at(w, '%out', '11')}")

    out = np.zeros(12, np.int32)
    out[:3] = 5, 6, 7
    run(body, out, completion=completion)
    pattern = np.frombuffer(b"\xa5" * 4, np.int32)[0]
    np.testing.assert_array_equal(out[8:], [5, 0, pattern if second is None else second, 7])


DESCRIPTORS = """tilewright.ir 1.0
kernel @kernel(%before: i32, %x: desc<4x8xf32> {padding = "nan"}, %out: ptr<f32>, %row: i32) {
  %zero = constant 0 : i32
  %numbers = arange {start = 0, end = 32} : tile<32xi32>
  %bases = splat %out : tile<32xptr<f32>>
  %pointers = addptr %bases, %numbers : tile<32xptr<f32>>
  %block = descriptor_load %x, offsets=[%row, %zero] : tile<4x8xf32>
  %flat = reshape %block : tile<32xf32>
  store %pointers, %flat
  return
}"""


def test_a_descriptor_stands_for_all_that_its_parameter_becomes() -> None:
    """Also for strides of all kinds; one that the target keeps comes before its parts."""
    x, out = np.arange(60, dtype=np.float32).reshape(6, 10).T[::2], np.zeros((4, 8), np.float32)
    descriptor = emulator.EmulatedDescriptor(x, (4, 8))
    emulator.run(parse_module(DESCRIPTORS), [1, descriptor, out, 3], num_warps=2, warp_size=8)
    expected = np.full((4, 8), np.nan, np.float32)
    expected[:2, :6] = x[3:5]
    np.testing.assert_array_equal(out, expected)
    assert descriptor.words() == [x.ctypes.data, 5, 6, 2, 10]
    given = [I32, DescriptorType((4, 8), F32), I32]
    kept = [I32, DescriptorType((4, 8), F32), PointerType(F32), *[I64] * 4, I32]
    assert expanded_arguments(given, kept, [1, descriptor, 2]) == [1, descriptor, x, 5, 6, 2, 10, 2]


def target_is_first(w: FunctionWriter) -> str:
    return w.emit(f"icmp eq i32 {w.emit('or i32 %lane, %warp')}, 0")
