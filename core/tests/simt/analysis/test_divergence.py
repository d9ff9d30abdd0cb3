"""Branches and loops that threads of a program take differently: which they are, and that no
barrier stands in one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.errors import LoweringError
from tilewright.ir.core import Operation
from tilewright.language.definitions.callable import device_function
from tilewright.llvm.assembly.assembly_operands import AssemblyOperand
from tilewright.simt import emulator
from tilewright.simt.analysis.divergence import Divergence
from tilewright.simt.compile import compile_kernel, kernel_of
from tilewright.simt.emulator.code import let_others_go_on
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.target.capabilities.kernel_assembly import InlineAssembly
from tilewright.testing.emulator_check import LANES, WARPS, build
from tilewright.testing.stage_text import after, plain, read

THREADS = WARPS * LANES


class Threads(emulator.EmulatedTarget):
    """The emulated machine with assembly."""

    def __init__(self, warp_size: int) -> None:
        super().__init__(warp_size)
        self.assembly = Assembly()


class Assembly(InlineAssembly):
    """Words for assembly: ``thread`` is the thread's number, ``twice`` doubles, ``send`` writes 1
    to an address, and ``take`` waits until there is a 1 at one, for some time, and writes 0
    there."""

    def is_uniform(self, text: str) -> bool:
        return text == "twice"

    def emit(
        self,
        context: SimtContext,
        text: str,
        constraints: str,
        results: Sequence[AssemblyOperand],
        operands: Sequence[AssemblyOperand],
    ) -> list[str]:
        w = context.writer
        if text == "thread":
            first = w.emit(f"mul i32 {context.warp}, {context.target.resources.warp_size}")
            return [w.emit(f"add i32 {first}, {context.lane}")]
        (operand,) = (each.name for each in operands)
        if text == "twice":
            return [w.emit(f"add i32 {operand}, {operand}")]
        address = w.emit(f"inttoptr i64 {operand} to ptr")
        if text == "take":
            for _ in range(4):
                let_others_go_on(w)
        return [w.emit(f"atomicrmw xchg ptr {address}, i32 {int(text == 'send')} seq_cst")]


def barriers_in(operation: Operation) -> int:
    return sum(inner.name == "barrier" for inner in operation.walk())


def compiled(kernel: Any, signature: dict[str, str], **constants: Any) -> tuple[Any, str, Threads]:
    module, target = build(kernel, signature, **constants), Threads(LANES)
    text = compile_kernel(
        module, target, {"num_warps": WARPS, "num_stages": 1, "enable_fp_fusion": False}
    )
    return kernel_of(module), text, target


def run(kernel: Any, signature: dict[str, str], arguments: list[Any], **constants: Any) -> Any:
    """Run on the emulated machine; the kernel after the last stage."""
    function, text, target = compiled(kernel, signature, **constants)
    emulator.run_text(
        text,
        target,
        [argument.type for argument in function.arguments],
        arguments,
        (1, 1, 1),
        WARPS,
    )
    return function


# ---- analysis

SOURCES = """
kernel @k(%p: ptr<i32>, %n: i32) {
  %tid = inline_asm {assembly = "thread", constraints = "=r"} : i32
  %same = inline_asm %n {assembly = "twice", constraints = "=r,r"} : i32
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %own = add %tid, %one : i32
  %at = addptr %p, %own : ptr<i32>
  %loaded = load %at : i32
  %first = load %p : i32
  %old = atomic_rmw %at, %n {kind = add} : i32
  %c = cmp %own, %n {predicate = lt} : i1
  %u = cmp %same, %n {predicate = lt} : i1
  %chosen = if %c : i32 then {
    yield %one
  } else {
    yield %zero
  }
  %equal = if %u : i32 then {
    yield %one
  } else {
    yield %zero
  }
  %either = if %u : i32 then {
    yield %tid
  } else {
    yield %zero
  }
  %sum = for %zero, %own, %one, inits=[%zero] : i32 body(%i: i32, %s: i32) {
    %t = add %s, %n : i32
    yield %t
  }
  %total = for %zero, %n, %one, inits=[%zero] : i32 body(%i: i32, %s: i32) {
    %t = add %s, %n : i32
    yield %t
  }
  %mixed = for %zero, %n, %one, inits=[%zero] : i32 body(%i: i32, %s: i32) {
    %t = add %s, %tid : i32
    yield %t
  }
  %left = while %zero : i32 before(%a: i32) {
    %go = cmp %a, %tid {predicate = lt} : i1
    condition %go, values=[%n]
  } after(%b: i32) {
    yield %b
  }
  return
}
"""


def test_what_differs_between_threads() -> None:
    module = read(SOURCES, Threads(LANES))
    function = module.kernel
    divergence = Divergence(function, Threads(LANES))
    names = {
        operation.results[0].name: operation for operation in function.body if operation.results
    }
    differ = {
        name for name, operation in names.items() if operation.results[0] in divergence.values
    }
    assert differ == {"tid", "own", "at", "loaded", "c", "chosen", "either", "sum", "mixed", "left"}
    assert {name for name, operation in names.items() if divergence.cause(operation)} == {
        "chosen",
        "sum",
        "left",
    }
    assert divergence.cause(names["left"]) is names["tid"]


def test_without_assembly_nothing_differs() -> None:
    module = read(
        SOURCES.replace('"thread"', '"twice"')
        .replace("inline_asm {", "inline_asm %n {")
        .replace('"=r"}', '"=r,r"}'),
        Threads(LANES),
    )
    assert not Divergence(module.kernel, Threads(LANES)).values


# ---- where barriers stand

BRANCH = """
#L0 = layout<8, registers [], lanes [(1) (2) (4)], warps [(0)]>

kernel @k(%p: ptr<i64>, %n: i32) attributes {warps = 2, shared_bytes = 0} {
  ASSEMBLY
  %c = cmp %tid, %n {predicate = lt} : i1
  %at = arange {start = 0, end = 8} : tile<8xi32, #L0>
  %base = splat %p : tile<8xptr<i64>, #L0>
  %where = addptr %base, %at : tile<8xptr<i64>, #L0>
  %to = load %where : tile<8xi64, #L0>
  OUTER
  if %c then {
    INNER
    %a = inline_asm %to {assembly = "send", constraints = "=r,l", pure = false} : tile<8xi32, #L0>
    INNER
    %b = inline_asm %to {assembly = "take", constraints = "=r,l", pure = false} : tile<8xi32, #L0>
    yield
  } else {
    yield
  }
  barrier
  %again = load %where : tile<8xi64, #L0>
  return
}
"""


@pytest.mark.parametrize("differs", [True, False])
def test_a_barrier_before_a_branch_serves_for_it(differs: bool) -> None:
    """A branch that all threads take has barriers in it, between accesses of memory that any thread
    may have made."""
    assembly = (
        'inline_asm {assembly = "thread", constraints = "=r"}'
        if differs
        else 'inline_asm %n {assembly = "twice", constraints = "=r,r"}'
    )
    own, outer = ("", "barrier") if differs else ("barrier", "")
    wanted = (
        BRANCH.replace("ASSEMBLY", f"%tid = {assembly} : i32")
        .replace("INNER", own)
        .replace("OUTER", outer)
    )
    wanted = re.sub(r"(?m)^ +\n", "", wanted)
    assert after(re.sub(r"(?m)^ *barrier\n", "", wanted), "barriers", target=Threads(8)) == plain(
        wanted
    )


# ---- kernels


@device_function
def thread():
    return tl.inline_asm_elementwise("thread", "=r", [], dtype=tl.int32, is_pure=True, pack=1)


@device_function
def all_reduce(pads, buffers, out, rank, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    ranks, at = tl.arange(0, WORLD), tl.arange(0, BLOCK)
    sends = tl.load(pads + ranks).to(tl.pointer_type(tl.int32)) + rank
    takes = tl.load(pads + rank).to(tl.pointer_type(tl.int32)) + ranks
    if thread() < WORLD:
        tl.inline_asm_elementwise(
            "send", "=r,l", [sends.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1
        )
        tl.inline_asm_elementwise(
            "take", "=r,l", [takes.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1
        )
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(WORLD):
        total += tl.load(tl.load(buffers + i).to(tl.pointer_type(tl.float32)) + at)
    tl.store(out + at, total + tl.sum(total, 0))


@pytest.mark.parametrize("world", [1, 2, 8])
def test_an_all_reduce_through_signal_pads(world: int) -> None:
    """The devices run one after the other, when the others have sent already."""
    rng = np.random.default_rng(world)
    pads = np.ones((world, world), np.int32)
    values = rng.integers(-3, 4, (world, 64)).astype(np.float32)
    places = (
        np.array([row.ctypes.data for row in pads]),
        np.array([row.ctypes.data for row in values]),
    )
    signature = {"pads": "*i64", "buffers": "*i64", "out": "*fp32", "rank": "i32"}
    for rank in range(world):
        out = np.zeros(64, np.float32)
        function = run(all_reduce, signature, [*places, out, rank], WORLD=world, BLOCK=64)
        np.testing.assert_array_equal(out, values.sum(0) + values.sum())
        assert not pads[rank].any() and pads[rank + 1 :].all(), "each took what was sent to it"
        (branch,) = [operation for operation in function.body if operation.name == "if"]
        assert not barriers_in(branch) and barriers_in_front(branch)
        pads[:, rank] = 1


def barriers_in_front(operation: Operation) -> bool:
    return operation.previous is not None and operation.previous.name == "barrier"


@device_function
def own_trips(x, out, n):
    i = 0
    while i < thread() % n:
        tl.inline_asm_elementwise(
            "send", "=r,l", [(x + i).to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1
        )
        i += 1
    tl.store(out + tl.arange(0, 8), tl.load(x + tl.arange(0, 8)))


def test_a_loop_that_threads_run_as_often_as_they_like() -> None:
    x, out = np.zeros(8, np.int32), np.full(8, 7, np.int32)
    function = run(own_trips, {"x": "*i32", "out": "*i32", "n": "i32"}, [x, out, 4])
    np.testing.assert_array_equal(out, [1, 1, 1, 0, 0, 0, 0, 0])
    (loop,) = [operation for operation in function.body if operation.name == "while"]
    assert not barriers_in(loop)


@device_function
def returning(x, out, n):
    tl.store(x + tl.arange(0, 16), 1)
    if thread() >= n:
        return
    tl.inline_asm_elementwise(
        "send", "=r,l", [(out + thread()).to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1
    )


def test_threads_that_return_early() -> None:
    x, out = np.zeros(16, np.int32), np.zeros(16, np.int32)
    run(returning, {"x": "*i32", "out": "*i32", "n": "i32"}, [x, out, 3])
    np.testing.assert_array_equal(out, [1, 1, 1, *[0] * 13])
    assert x.all()


# ---- refusals


@device_function
def sum_in_branch(x, out, n):
    value = tl.load(x + tl.arange(0, 64))
    if thread() < n:
        tl.store(out, tl.sum(value, 0))


@device_function
def barrier_in_branch(x, out, n):
    if thread() < n:
        tl.debug_barrier()


@device_function
def sum_in_while(x, out, n):
    i = thread()
    while i < n:
        tl.store(out + i, tl.sum(tl.load(x + i + tl.arange(0, 64)), 0))
        i += 1


@device_function
def sum_in_for(x, out, n):
    for i in range(thread()):
        tl.store(out + i, tl.sum(tl.load(x + i + tl.arange(0, 64)), 0))


@device_function
def sum_after_return(x, out, n):
    if thread() > n:
        return
    tl.store(out, tl.sum(tl.load(x + tl.arange(0, 64)), 0))


@device_function
def atomic_in_branch(x, out, n):
    if thread() < n:
        tl.store(out, tl.atomic_add(x, 1.0))


@pytest.mark.parametrize(
    ("kernel", "construct", "operation"),
    [
        (sum_in_branch, "if", "reduce"), (barrier_in_branch, "if", "barrier"),
        (sum_in_while, "while", "reduce"), (sum_in_for, "for", "reduce"),
        (sum_after_return, "if", "reduce"), (atomic_in_branch, "if", "atomic_rmw"),
    ],
)  # fmt: skip
def test_what_needs_all_threads_is_refused(kernel: Any, construct: str, operation: str) -> None:
    """The error names the operation's line, the branch's, and that of the assembly."""
    places = r" at \S+test_divergence\.py:\d+:\d+"
    with pytest.raises(
        LoweringError,
        match=(
            rf"^{operation}{places}.* inside of the {construct}{places}.* inline "
            rf"assembly{places}.* each thread's own"
        ),
    ):
        compiled(kernel, {"x": "*fp32", "out": "*fp32", "n": "i32"})


@device_function
def sum_where_all_agree(x, out, n):
    if tl.inline_asm_elementwise("twice", "=r,r", [n], dtype=tl.int32, is_pure=True, pack=1) > 4:
        tl.store(out, tl.sum(tl.load(x + tl.arange(0, 64)), 0))


@pytest.mark.parametrize("n", [2, 3])
def test_a_branch_that_all_threads_take_alike_may_have_barriers(n: int) -> None:
    x, out = np.ones(64, np.float32), np.zeros(1, np.float32)
    function = run(sum_where_all_agree, {"x": "*fp32", "out": "*fp32", "n": "i32"}, [x, out, n])
    assert out[0] == (64 if n == 3 else 0) and function
