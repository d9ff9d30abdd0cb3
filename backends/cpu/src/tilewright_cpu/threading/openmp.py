"""Sharing a launch with the threads of an OpenMP library that the process has loaded, as LLVM IR."""

from __future__ import annotations

OPENMP = """
@openmp = global ptr null                                   ; GOMP_parallel, where another library's OpenMP runs the threads
@openmp_threads = global ptr null                           ; omp_get_max_threads
@openmp_number = global ptr null                            ; omp_get_thread_num

; A thread of OpenMP's: the lane of its number, so that it is the same one at every launch.
define internal void @share_openmp(ptr %job) #0 {
  %get = load ptr, ptr @openmp_number
  %narrow = call i32 %get()
  %number = zext i32 %narrow to i64
  call void @share_numbered(ptr %job, i64 %number)
  %p11 = getelementptr %Job, ptr %job, i64 0, i32 11
  %polls0 = load i64, ptr %p11
  %polls = icmp ne i64 %polls0, 0
  br i1 %polls, label %waits, label %out
waits:
  call void @attend(ptr %job)
  br label %out
out:
  ret void
}

; OpenMP's threads wait for each other deaf to signals, and programs that poll may never end: the listener waits here instead, until all are done, and is told
; by the one that was last.
define internal void @attend(ptr %job) #1 {
entry:
  fence seq_cst
  %p1 = getelementptr %Job, ptr %job, i64 0, i32 1
  %arguments = load ptr, ptr %p1
  %p2 = getelementptr %Job, ptr %job, i64 0, i32 2
  %programs = load i64, ptr %p2
  %p6 = getelementptr %Job, ptr %job, i64 0, i32 6
  %asleep = getelementptr %Job, ptr %job, i64 0, i32 10
  %mine = call i1 @listens()
  br i1 %mine, label %waiting, label %other
other:
  %done0 = load atomic i64, ptr %p6 seq_cst, align 8
  %last = icmp uge i64 %done0, %programs
  %flag = load atomic i64, ptr %asleep seq_cst, align 8
  %sleeps = icmp ne i64 %flag, 0
  %tell = and i1 %last, %sleeps
  br i1 %tell, label %rouse, label %out
rouse:
  store atomic i64 0, ptr %asleep seq_cst, align 8
  call void @wake(ptr %asleep, i32 1)
  ret void
waiting:
  %k = phi i64 [ 0, %entry ], [ %k1, %linger ]
  %done1 = load atomic i64, ptr %p6 seq_cst, align 8
  %all = icmp uge i64 %done1, %programs
  %halted = call i1 @halted(ptr %arguments)
  %leave = or i1 %all, %halted
  br i1 %leave, label %out, label %patience
patience:
  %spinning = icmp ult i64 %k, SPIN_CALLER
  br i1 %spinning, label %linger, label %sleep
sleep:
  store atomic i64 1, ptr %asleep seq_cst, align 8
  %done2 = load atomic i64, ptr %p6 seq_cst, align 8
  %late = icmp uge i64 %done2, %programs
  br i1 %late, label %out, label %linger
linger:
  %k1 = call i64 @linger(i64 %k, ptr %asleep, i32 1, ptr %arguments)
  br label %waiting
out:
  ret void
}

define internal void @with_openmp(ptr %kernel, ptr %arguments, i64 %programs, i64 %threads, i32 %asked) #0 {
  %job = alloca %Job, align 64
  %count = call i64 @llvm.umin.i64(i64 %threads, i64 LANES)
  %lanes = alloca [8 x i64], i64 %count, align 64
  call void @prepare(ptr %job, ptr %lanes, ptr %kernel, ptr %arguments, i64 %programs, i64 %count)
  %parallel = load ptr, ptr @openmp
  call void %parallel(ptr @share_openmp, ptr %job, i32 %asked, i32 0)
  ; its threads meet at the end, so that all of them have been awake
  call void @helped(i64 %programs, i64 0)
  %p5 = getelementptr %Job, ptr %job, i64 0, i32 5
  %p6 = getelementptr %Job, ptr %job, i64 0, i32 6
  %cycles = load i64, ptr %p5
  %done = load i64, ptr %p6
  call void @learn(ptr %kernel, i64 %cycles, i64 %done)
  ret void
}
"""
