"""How threads share the programs of a launch, and how a kernel's cost is learnt, as LLVM IR.

Everything works on two structures. A *kernel record* belongs to one loaded kernel:

    { ptr function, i64 cost, i64 launches, i32 limit }     cost: cycles a program takes, times 16, 0 while unknown; limit: threads, 0 for all

A *job* is one launch. Its programs are cut into *lanes*, one a thread: a cache line each, with the next program that nobody has taken and the lane's end. A
thread takes ``chunk`` programs at a time from the lane of its own number, so that launches of one grid find their data in the same core's caches, and then
from the lanes of others until none is left.
"""

from __future__ import annotations

SHARING = """
%Kernel = type { ptr, i64, i64, i32 }
%Job = type { ptr, ptr, i64, i64, i64, i64, i64, i64, ptr } ; function, arguments, programs, chunk, entered, cycles, done, lanes, lane
@hot = global i64 0                                         ; cycles of work worth sharing with threads that are awake
@cold = global i64 0                                        ; ... that sleep

declare i64 @CYCLES()
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)

; Take chunks of a job, from the lane of a number on, until none is left; programs run.
define i64 @share(ptr %job, i64 %number) #0 {
entry:
  %function = load ptr, ptr %job
  %p1 = getelementptr %Job, ptr %job, i64 0, i32 1
  %arguments = load ptr, ptr %p1
  %p3 = getelementptr %Job, ptr %job, i64 0, i32 3
  %chunk = load i64, ptr %p3
  %p7 = getelementptr %Job, ptr %job, i64 0, i32 7
  %count = load i64, ptr %p7
  %p8 = getelementptr %Job, ptr %job, i64 0, i32 8
  %lanes = load ptr, ptr %p8
  br label %lane
lane:
  %turn = phi i64 [ 0, %entry ], [ %turn1, %empty ]
  %sofar = phi i64 [ 0, %entry ], [ %done, %empty ]
  %at = add i64 %number, %turn
  %which = urem i64 %at, %count
  %next = getelementptr [8 x i64], ptr %lanes, i64 %which
  %bound = getelementptr i64, ptr %next, i64 1
  %end = load i64, ptr %bound
  br label %take
take:
  %done = phi i64 [ %sofar, %lane ], [ %sum, %run ]
  ; a lane that is empty is only looked at: adding to it would take its cache line from its thread
  %seen = load atomic i64, ptr %next monotonic, align 8
  %left = icmp ult i64 %seen, %end
  br i1 %left, label %grab, label %empty
grab:
  %first = atomicrmw add ptr %next, i64 %chunk monotonic
  %some = icmp ult i64 %first, %end
  br i1 %some, label %run, label %empty
run:
  %past = add i64 %first, %chunk
  %last = call i64 @llvm.umin.i64(i64 %past, i64 %end)
  call void %function(ptr %arguments, i64 %first, i64 %last)
  %ran = sub i64 %last, %first
  %sum = add i64 %done, %ran
  br label %take
empty:
  %turn1 = add i64 %turn, 1
  %more = icmp ult i64 %turn1, %count
  br i1 %more, label %lane, label %none
none:
  ret i64 %done
}

; Take chunks in the next free lane, and add the cycles and programs to the job's sums.
define void @share_timed(ptr %job) #0 {
  %p4 = getelementptr %Job, ptr %job, i64 0, i32 4
  %number = atomicrmw add ptr %p4, i64 1 monotonic
  call void @share_numbered(ptr %job, i64 %number)
  ret void
}

define internal void @share_numbered(ptr %job, i64 %number) #0 {
  %start = call i64 @CYCLES()
  %done = call i64 @share(ptr %job, i64 %number)
  %end = call i64 @CYCLES()
  %cycles = sub i64 %end, %start
  %some = icmp ne i64 %done, 0
  br i1 %some, label %add, label %out
add:
  %p5 = getelementptr %Job, ptr %job, i64 0, i32 5
  %p6 = getelementptr %Job, ptr %job, i64 0, i32 6
  %x = atomicrmw add ptr %p5, i64 %cycles monotonic
  %y = atomicrmw add ptr %p6, i64 %done monotonic
  br label %out
out:
  ret void
}

; Move a kernel's cost most of the way down to what was measured, or a quarter of the way up, at most to twice what it was: a thread that lost its processor
; for a while measures thousands of times the kernel's cost, and one that believes it goes on sharing what is too short for that, with threads that lose theirs.
define internal void @learn(ptr %kernel, i64 %cycles, i64 %done) #0 {
  %some = icmp ne i64 %done, 0
  br i1 %some, label %go, label %out
go:
  %cost = getelementptr %Kernel, ptr %kernel, i64 0, i32 1
  %old = load atomic i64, ptr %cost monotonic, align 8
  %scaled = shl i64 %cycles, 4
  %each0 = udiv i64 %scaled, %done
  %each = call i64 @llvm.umax.i64(i64 %each0, i64 1)
  %first = icmp eq i64 %old, 0
  %less = icmp ult i64 %each, %old
  %heavy = select i1 %less, i64 %each, i64 %old
  %light = select i1 %less, i64 %old, i64 %each
  %three = mul i64 %heavy, 3
  %four = add i64 %three, %light
  %mean0 = lshr i64 %four, 2
  %double = shl i64 %old, 1
  %mean1 = call i64 @llvm.umin.i64(i64 %mean0, i64 %double)
  %mean = call i64 @llvm.umax.i64(i64 %mean1, i64 1)
  %new = select i1 %first, i64 %each, i64 %mean
  store atomic i64 %new, ptr %cost monotonic, align 8
  br label %out
out:
  ret void
}

; Cycles that the kernel's cost predicts; all ones while it is unknown.
define i64 @estimate(ptr %kernel, i64 %programs) #0 {
  %p = getelementptr %Kernel, ptr %kernel, i64 0, i32 1
  %cost = load atomic i64, ptr %p monotonic, align 8
  %unknown = icmp eq i64 %cost, 0
  %product = mul i64 %cost, %programs
  %cycles = lshr i64 %product, 4
  %found = select i1 %unknown, i64 -1, i64 %cycles
  ret i64 %found
}

; Run all programs in the calling thread. One program alone is timed now and then only: its cost decides nothing but whether to keep the interpreter lock.
define void @serial(ptr %kernel, ptr %arguments, i64 %programs) #0 {
  %function = load ptr, ptr %kernel
  %p = getelementptr %Kernel, ptr %kernel, i64 0, i32 2
  %launches = load atomic i64, ptr %p monotonic, align 8
  %more = add i64 %launches, 1
  store atomic i64 %more, ptr %p monotonic, align 8
  %phase = and i64 %launches, 15
  %due = icmp eq i64 %phase, 0
  %several = icmp ugt i64 %programs, 1
  %timed = or i1 %due, %several
  br i1 %timed, label %measure, label %plain
plain:
  call void %function(ptr %arguments, i64 0, i64 %programs)
  ret void
measure:
  %start = call i64 @CYCLES()
  call void %function(ptr %arguments, i64 0, i64 %programs)
  %end = call i64 @CYCLES()
  %cycles = sub i64 %end, %start
  call void @learn(ptr %kernel, i64 %cycles, i64 %programs)
  ret void
}

; A job for a launch, with a lane a thread but no more than programs. Eight chunks a lane even out what programs differ in.
define void @prepare(ptr %job, ptr %lanes, ptr %kernel, ptr %arguments, i64 %programs, i64 %threads) #0 {
entry:
  %function = load ptr, ptr %kernel
  %count = call i64 @llvm.umin.i64(i64 %threads, i64 %programs)
  %parts = shl i64 %count, 3
  %share = udiv i64 %programs, %parts
  %chunk = call i64 @llvm.umax.i64(i64 %share, i64 1)
  %each = udiv i64 %programs, %count
  %rest = urem i64 %programs, %count
  store ptr %function, ptr %job
  %p1 = getelementptr %Job, ptr %job, i64 0, i32 1
  store ptr %arguments, ptr %p1
  %p2 = getelementptr %Job, ptr %job, i64 0, i32 2
  store i64 %programs, ptr %p2
  %p3 = getelementptr %Job, ptr %job, i64 0, i32 3
  store i64 %chunk, ptr %p3
  %p4 = getelementptr %Job, ptr %job, i64 0, i32 4
  store i64 0, ptr %p4
  %p5 = getelementptr %Job, ptr %job, i64 0, i32 5
  store i64 0, ptr %p5
  %p6 = getelementptr %Job, ptr %job, i64 0, i32 6
  store i64 0, ptr %p6
  %p7 = getelementptr %Job, ptr %job, i64 0, i32 7
  store i64 %count, ptr %p7
  %p8 = getelementptr %Job, ptr %job, i64 0, i32 8
  store ptr %lanes, ptr %p8
  br label %lane
lane:
  ; the first lanes have one program more where they do not come out even
  %i = phi i64 [ 0, %entry ], [ %i1, %lane ]
  %first = phi i64 [ 0, %entry ], [ %end, %lane ]
  %longer = icmp ult i64 %i, %rest
  %one = zext i1 %longer to i64
  %length = add i64 %each, %one
  %end = add i64 %first, %length
  %next = getelementptr [8 x i64], ptr %lanes, i64 %i
  store i64 %first, ptr %next
  %bound = getelementptr i64, ptr %next, i64 1
  store i64 %end, ptr %bound
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %count
  br i1 %more, label %lane, label %out
out:
  ret void
}
"""
