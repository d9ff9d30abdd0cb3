"""Kernels that LLVM compiled for each target give what NumPy gives, whatever the schedule."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from wave_kernels import (
    BARRIER,
    SCHEDULES,
    TARGETS,
    WAVE32,
    WAVE64,
    compiled,
    kernel,
    lanes,
    launch,
)

P = "ptr addrspace(1)"
L = "ptr addrspace(3)"

every = pytest.mark.parametrize("target", TARGETS)
both = pytest.mark.parametrize("schedule", SCHEDULES)


def _global(index: str, pointer: str, name: str, kind: str = "float") -> str:
    return f"  {name} = getelementptr {kind}, {P} {pointer}, i32 {index}\n"


VECTOR_ADD = kernel(
    f"""  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %b = mul i32 %g, 128
  %i = add i32 %b, %t
  %c = icmp slt i32 %i, %n
  br i1 %c, label %body, label %end
body:
{_global("%i", "%x", "%px")}{_global("%i", "%y", "%py")}{_global("%i", "%o", "%po")}
  %u = load float, {P} %px
  %v = load float, {P} %py
  %s = fadd float %u, %v
  store float %s, {P} %po
  br label %end
end:""",
    f"{P} noalias %x, {P} noalias %y, {P} noalias %o, i32 %n",
    threads=128,
)


@every
@both
def test_a_masked_sum_of_vectors(target: str, schedule: str) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(1000).astype(np.float32) for _ in range(2))
    (_, _, out), covered = launch(
        compiled(VECTOR_ADD, target),
        [x, y, np.zeros(1000, np.float32)],
        struct.pack("<i", 1000),
        (8, 1, 1),
        128,
        0,
        schedule,
    )
    np.testing.assert_array_equal(out, x + y)
    assert covered["v_add_f32"] == 8 * 128 // lanes(target)


#: thread t of 256 stores to shared memory, and loads what thread (37 t) % 256 stored, twice, with
#: two barriers each time
EXCHANGE = kernel(
    f"""  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %b = mul i32 %g, 256
  %i = add i32 %b, %t
{_global("%i", "%x", "%px")}{_global("%i", "%o", "%po")}
  %m = mul i32 %t, 37
  %j = and i32 %m, 255
  %s = getelementptr float, {L} @lds, i32 %t
  %q = getelementptr float, {L} @lds, i32 %j
  %u = load float, {P} %px
  store float %u, {L} %s
{BARRIER}  %v = load float, {L} %q
{BARRIER}  %w = fmul float %v, 2.0
  store float %w, {L} %s
{BARRIER}  %z = load float, {L} %q
  store float %z, {P} %po""",
    f"{P} noalias %x, {P} noalias %o",
    "@lds = external addrspace(3) global [0 x float], align 16\n",
    256,
)


def exchanged(x: Any) -> Any:
    there = np.arange(256) * 37 % 256
    rows = x.reshape(-1, 256)
    return (2 * rows[:, there])[:, there].reshape(-1)


@every
@both
def test_an_exchange_through_shared_memory(target: str, schedule: str) -> None:
    x = np.arange(1024, dtype=np.float32)
    (_, out), _ = launch(
        compiled(EXCHANGE, target),
        [x, np.zeros_like(x)],
        b"",
        (4, 1, 1),
        256,
        1024,
        schedule,
        seed=3,
    )
    np.testing.assert_array_equal(out, exchanged(x))


#: atomic updates that many lanes and workgroups make at one address: i32 sum, f32 sum, maximum, and
#: a sum under a lock
ATOMICS = kernel(
    f"""  %g = call i32 @llvm.amdgcn.workgroup.id.x()
  %b = mul i32 %g, 64
  %i = add i32 %b, %t
  %k = and i32 %i, 3
  %p = getelementptr i32, {P} %sums, i32 %k
  %old = atomicrmw add {P} %p, i32 %i syncscope("agent") monotonic
{_global("%i", "%olds", "%po", "i32")}
  store i32 %old, {P} %po
  %f = sitofp i32 %i to float
  %r1 = atomicrmw fadd {P} %total, float %f syncscope("agent") monotonic, !amdgpu.no.fine.grained.memory !1, !amdgpu.ignore.denormal.mode !1
  %h = xor i32 %i, 85
  %r2 = atomicrmw umax {P} %most, i32 %h syncscope("agent") monotonic
  %leader = icmp eq i32 %t, 0
  br i1 %leader, label %spin, label %end
spin:
  %seen = cmpxchg {P} %lock, i32 0, i32 1 syncscope("agent") acquire monotonic
  %ok = extractvalue {{ i32, i1 }} %seen, 1
  br i1 %ok, label %inside, label %spin
inside:
  %w = load i32, {P} %count
  %w1 = add i32 %w, 3
  store i32 %w1, {P} %count
  store atomic i32 0, {P} %lock syncscope("agent") release, align 4
  br label %end
end:""",
    ", ".join(
        f"{P} noalias %{name}" for name in ("sums", "olds", "total", "most", "lock", "count")
    ),
    "!1 = !{}\n",
)


@pytest.mark.each_value
@every
@both
def test_atomic_updates_and_a_lock(target: str, schedule: str) -> None:
    arrays = [
        np.zeros(4, np.int32),
        np.zeros(640, np.int32),
        np.zeros(1, np.float32),
        np.zeros(1, np.uint32),
        np.zeros(1, np.int32),
        np.zeros(1, np.int32),
    ]
    (sums, olds, total, most, lock, count), _ = launch(
        compiled(ATOMICS, target), arrays, b"", (10, 1, 1), 64, 0, schedule, seed=5
    )
    numbers = np.arange(640)
    np.testing.assert_array_equal(sums, [numbers[numbers % 4 == k].sum() for k in range(4)])
    for k in range(4):  # what was there before is a running sum in some order
        mine = numbers[numbers % 4 == k]
        order = np.argsort(olds[mine], kind="stable")
        steps = np.diff(np.append(olds[mine][order], sums[k]))
        np.testing.assert_array_equal(np.sort(steps), mine)
    assert (
        total[0] == numbers.sum()
        and most[0] == (numbers ^ 85).max()
        and lock[0] == 0
        and count[0] == 30
    )


#: a loop whose length differs by lane, an array in scratch, and a table of constants
LOOPS = kernel(
    f"""  %a = alloca [16 x i32], align 4, addrspace(5)
{_global("%t", "%x", "%px", "i32")}{_global("%t", "%o", "%po", "i32")}
  %n = load i32, {P} %px
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %i1, %loop ]
  %v = phi i32 [ %t, %entry ], [ %v1, %loop ]
  %v3 = mul i32 %v, 3
  %v1 = add i32 %v3, 1
  %k = and i32 %v1, 15
  %p = getelementptr [16 x i32], ptr addrspace(5) %a, i32 0, i32 %i
  %c = getelementptr [16 x i32], ptr addrspace(4) @table, i32 0, i32 %k
  %w = load i32, ptr addrspace(4) %c
  store i32 %w, ptr addrspace(5) %p
  %i1 = add i32 %i, 1
  %more = icmp slt i32 %i1, %n
  br i1 %more, label %loop, label %done
done:
  %last = sub i32 %i1, 1
  %d = udiv i32 %last, 2
  %q = getelementptr [16 x i32], ptr addrspace(5) %a, i32 0, i32 %d
  %r = load i32, ptr addrspace(5) %q
  store i32 %r, {P} %po""",
    f"{P} noalias %x, {P} noalias %o",
    "@table = internal addrspace(4) constant [16 x i32] ["
    + ", ".join(f"i32 {v * v + 7}" for v in range(16))
    + "], align 4\n",
)


@every
@both
def test_loops_scratch_and_constants(target: str, schedule: str) -> None:
    rng = np.random.default_rng(2)
    n = rng.integers(1, 17, 64).astype(np.int32)
    (_, out), _ = launch(compiled(LOOPS, target), [n, np.zeros(64, np.int32)], schedule=schedule)
    for t in range(64):
        v, stored = t, []
        for _ in range(n[t]):
            v = (3 * v + 1) & 0xFFFFFFFF
            stored.append((v & 15) ** 2 + 7)
        assert out[t] == stored[(n[t] - 1) // 2]


#: sums of rows of a wave by DPP: the butterfly within 16 lanes
ROW_SUM = kernel(
    f"""{_global("%t", "%x", "%px", "i32")}{_global("%t", "%o", "%po", "i32")}
  %v0 = load i32, {P} %px
  %s0 = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 %v0, i32 177, i32 15, i32 15, i1 true)
  %v1 = add i32 %v0, %s0
  %s1 = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 %v1, i32 78, i32 15, i32 15, i1 true)
  %v2 = add i32 %v1, %s1
  %s2 = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 %v2, i32 321, i32 15, i32 15, i1 true)
  %v3 = add i32 %v2, %s2
  %s3 = call i32 @llvm.amdgcn.update.dpp.i32(i32 0, i32 %v3, i32 320, i32 15, i32 15, i1 true)
  %v4 = add i32 %v3, %s3
  store i32 %v4, {P} %po""",
    f"{P} noalias %x, {P} noalias %o",
    "declare i32 @llvm.amdgcn.update.dpp.i32(i32, i32, i32, i32, i32, i1)\n",
)


@every
def test_sums_of_rows_by_data_parallel_primitives(target: str) -> None:
    x = np.random.default_rng(3).integers(-100, 100, 64).astype(np.int32)
    (_, out), _ = launch(compiled(ROW_SUM, target), [x, np.zeros_like(x)])
    np.testing.assert_array_equal(out, np.repeat(x.reshape(-1, 16).sum(axis=1), 16))


#: any lane of the wave, through the hardware of shared memory, and lane 5 through a scalar register
SHUFFLE = kernel(
    f"""{_global("%t", "%x", "%px", "i32")}{_global("%t", "%o", "%po", "i32")}
  %v = load i32, {P} %px
  %m = mul i32 %t, 7
  %w = shl i32 %m, 2
  %s = call i32 @llvm.amdgcn.ds.bpermute(i32 %w, i32 %v)
  %f = call i32 @llvm.amdgcn.readlane.i32(i32 %v, i32 5)
  %z = call i32 @llvm.amdgcn.ds.swizzle(i32 %v, i32 2079)
  %r0 = sub i32 %s, %f
  %r = add i32 %r0, %z
  store i32 %r, {P} %po""",
    f"{P} noalias %x, {P} noalias %o",
    """declare i32 @llvm.amdgcn.ds.bpermute(i32, i32)
declare i32 @llvm.amdgcn.readlane.i32(i32, i32)
declare i32 @llvm.amdgcn.ds.swizzle(i32, i32)
""",
)


@every
def test_lanes_read_others(target: str) -> None:
    width = lanes(target)
    x = np.random.default_rng(4).integers(-100, 100, 64).astype(np.int32)
    (_, out), _ = launch(compiled(SHUFFLE, target), [x, np.zeros_like(x)])
    waves = x.reshape(-1, width)
    lane = np.arange(width)
    want = waves[:, lane * 7 % width] - waves[:, 5:6] + waves[:, lane ^ 2]
    np.testing.assert_array_equal(out, want.reshape(-1))


#: a buffer of n bytes: what is beyond reads as 0 and is not written
BUFFERS = kernel(
    f"""  %r = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1({P} %x, i16 0, SIZE %n, i32 159744)
  %w = call ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1({P} %o, i16 0, SIZE %n, i32 159744)
  %b = shl i32 %t, 4
  %v = call <4 x i32> @llvm.amdgcn.raw.ptr.buffer.load.v4i32(ptr addrspace(8) %r, i32 %b, i32 0, i32 0)
  %z = add <4 x i32> %v, <i32 1, i32 2, i32 3, i32 4>
  call void @llvm.amdgcn.raw.ptr.buffer.store.v4i32(<4 x i32> %z, ptr addrspace(8) %w, i32 %b, i32 0, i32 0)
{_global("%t", "%seen", "%ps", "i32")}
  %e = extractelement <4 x i32> %v, i32 3
  store i32 %e, {P} %ps""",
    f"{P} noalias %x, {P} noalias %o, {P} noalias %seen, SIZE %n",
    """declare ptr addrspace(8) @llvm.amdgcn.make.buffer.rsrc.p8.p1(ptr addrspace(1), i16, SIZE, i32)
declare <4 x i32> @llvm.amdgcn.raw.ptr.buffer.load.v4i32(ptr addrspace(8), i32, i32, i32)
declare void @llvm.amdgcn.raw.ptr.buffer.store.v4i32(<4 x i32>, ptr addrspace(8), i32, i32, i32)
""",
).replace("SIZE", "i64")


@every
@both
def test_buffers_have_bounds(target: str, schedule: str) -> None:
    x = np.arange(1, 4 * 40 + 1, dtype=np.int32)
    arrays = [x, np.full_like(x, -1), np.full(64, -1, np.int32)]
    (_, out, seen), _ = launch(
        compiled(BUFFERS, target), arrays, struct.pack("<q", x.nbytes), schedule=schedule
    )
    np.testing.assert_array_equal(out, x + np.tile([1, 2, 3, 4], 40))
    np.testing.assert_array_equal(seen, np.append(x.reshape(-1, 4)[:, 3], np.zeros(24)))


#: a copy that goes to shared memory without registers in between
TO_LDS = kernel(
    f"""{_global("%t", "%x", "%px", "i32")}
  %u = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %t)
  %s = getelementptr i32, {L} @lds, i32 %u
  call void @llvm.amdgcn.global.load.lds({P} %px, {L} %s, i32 4, i32 0, i32 0)
{BARRIER}  %m = sub i32 127, %t
  %q = getelementptr i32, {L} @lds, i32 %m
  %v = load i32, {L} %q
{_global("%t", "%o", "%po", "i32")}
  store i32 %v, {P} %po""",
    f"{P} noalias %x, {P} noalias %o",
    """@lds = external addrspace(3) global [0 x i32], align 16
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)
declare void @llvm.amdgcn.global.load.lds(ptr addrspace(1), ptr addrspace(3), i32, i32, i32)
""",
    128,
)


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
@both
def test_a_copy_to_shared_memory(target: str, schedule: str) -> None:
    x = np.arange(128, dtype=np.int32)
    (_, out), covered = launch(
        compiled(TO_LDS, target), [x, np.zeros_like(x)], b"", (1, 1, 1), 128, 512, schedule
    )
    np.testing.assert_array_equal(out, x[::-1])
    assert any("lds" in name for name in covered) or target == "gfx90a"


def test_the_targets_are_of_both_wave_sizes() -> None:
    assert {lanes(t) for t in WAVE64} == {64} and {lanes(t) for t in WAVE32} == {32}
