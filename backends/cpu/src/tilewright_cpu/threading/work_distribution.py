"""Work distribution among threads, and the measurement of a kernel's cost, as LLVM IR.

Everything works on two structures. A *kernel record* belongs to one loaded kernel:

    { ptr function, i64 cost, i64 launches, i32 limit, i32 polls, i64 memory, i64 cleared }

    cost: cycles of a program, times 16, 0 while unknown; limit: threads, 0 for all; polls: 1 where
    its programs have cancellation checks; memory: bytes that a thread that takes part in a launch
    gives to its programs; cleared: how many of them are zero at first

A *job* is one launch. Its programs are cut into per-thread queues, called *lanes*: a cache line
each, with the next program that no thread has taken and the lane's end. A thread takes ``chunk``
programs at a time from the lane of its own number, so that launches of one grid find their data in
the same core's caches, and then from the lanes of others until none is left.

Signals and cancelled launches: :mod:`.interrupts`.
"""

from __future__ import annotations

SHARING = """
%Kernel = type { ptr, i64, i64, i32, i32, i64, i64 }
%Job = type { ptr, ptr, i64, i64, i64, i64, i64, i64, ptr, i64, i64, i64, i64, i64 }
; 0 function 1 arguments 2 programs 3 chunk 4 entered 5 cycles 6 done 7 lanes 8 lane 9 programs at a time where it is paced, else 0
; 10 whether the listener sleeps until all are done 11 whether the programs poll 12 memory 13 cleared
@raised = global [3 x ptr] zeroinitializer                  ; type, value and traceback of the exception that stopped a launch
@listener = global i64 0                                    ; the interpreter's main thread, which handles signals; 0: none
@crowded = global i64 0                                     ; whether a launch had more threads than there are processors
@pace = global i64 0                                        ; cycles of programs that a paced launch's thread takes at a time, about
@hot = global i64 0                                         ; cycles of work worth sharing with threads that are awake
@cold = global i64 0                                        ; ... that sleep

declare i64 @CYCLES()
declare ptr @malloc(i64)
declare void @free(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)

; Memory for a thread's part of a launch, %size bytes and what it takes to align them; null, and so told in the launch's status, where there is none.
define internal ptr @allocate(ptr %status, i64 %size, i64 %cleared) #1 {
  %room = add i64 %size, ALIGNMENT
  %new = call ptr @malloc(i64 %room)
  %missing = icmp eq ptr %new, null
  br i1 %missing, label %fail, label %clear
fail:
  %old = cmpxchg ptr %status, i32 0, i32 OUT_OF_MEMORY monotonic monotonic, align 4
  ret ptr null
clear:
  %some = icmp ne i64 %cleared, 0
  br i1 %some, label %zero, label %out
zero:
  %most = add i64 %cleared, ALIGNMENT
  call void @llvm.memset.p0.i64(ptr %new, i8 0, i64 %most, i1 false)
  br label %out
out:
  ret ptr %new
}

; Take chunks of a job, from the lane of a number on, until none is left; programs run. Without memory that they need they count, but do not run.
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
  %p9 = getelementptr %Job, ptr %job, i64 0, i32 9
  %slow = load i64, ptr %p9
  %paced = icmp ne i64 %slow, 0
  %size0 = select i1 %paced, i64 %slow, i64 %chunk
  %stop = call ptr @status_of(ptr %arguments)
  %budget = load i64, ptr @pace
  %quarter = lshr i64 %budget, 2
  %interval = shl i64 %budget, 6
  %p12 = getelementptr %Job, ptr %job, i64 0, i32 12
  %needed = load i64, ptr %p12
  %large = icmp ne i64 %needed, 0
  br i1 %large, label %allocate, label %begin
allocate:
  %p13 = getelementptr %Job, ptr %job, i64 0, i32 13
  %cleared = load i64, ptr %p13
  %new = call ptr @allocate(ptr %stop, i64 %needed, i64 %cleared)
  br label %begin
begin:
  %raw = phi ptr [ null, %entry ], [ %new, %allocate ]
  %raw.number = ptrtoint ptr %raw to i64
  %up = add i64 %raw.number, ALIGNED_UP
  %aligned = and i64 %up, -ALIGNMENT
  %memory = inttoptr i64 %aligned to ptr
  %missing = icmp eq ptr %raw, null
  %unable = and i1 %large, %missing
  br i1 %paced, label %attend, label %lane
attend:
  %attends = call i1 @listens()
  %start = call i64 @CYCLES()
  br label %lane
lane:
  %turn = phi i64 [ 0, %begin ], [ 0, %attend ], [ %turn1, %empty ]
  %sofar = phi i64 [ 0, %begin ], [ 0, %attend ], [ %done, %empty ]
  %size1 = phi i64 [ %size0, %begin ], [ %size0, %attend ], [ %size, %empty ]
  %listens = phi i1 [ false, %begin ], [ %attends, %attend ], [ %listens, %empty ]
  %since1 = phi i64 [ 0, %begin ], [ %start, %attend ], [ %since, %empty ]
  %heeded1 = phi i64 [ 0, %begin ], [ %start, %attend ], [ %heeded, %empty ]
  %at = add i64 %number, %turn
  %which = urem i64 %at, %count
  %next = getelementptr [8 x i64], ptr %lanes, i64 %which
  %bound = getelementptr i64, ptr %next, i64 1
  %end = load i64, ptr %bound
  br label %take
take:
  %done = phi i64 [ %sofar, %lane ], [ %sum, %ran ], [ %sum, %timed ], [ %sum, %heed ]
  %size = phi i64 [ %size1, %lane ], [ %size, %ran ], [ %resized, %timed ], [ %resized, %heed ]
  %since = phi i64 [ %since1, %lane ], [ %since, %ran ], [ %now, %timed ], [ %after, %heed ]
  %heeded = phi i64 [ %heeded1, %lane ], [ %heeded, %ran ], [ %heeded, %timed ], [ %after, %heed ]
  %said = load atomic i32, ptr %stop monotonic, align 4
  %stopped = icmp eq i32 %said, INTERRUPTED
  br i1 %stopped, label %none, label %look
look:
  ; a lane that is empty is only looked at: adding to it would take its cache line from its thread
  %seen = load atomic i64, ptr %next monotonic, align 8
  %left = icmp ult i64 %seen, %end
  br i1 %left, label %grab, label %empty
grab:
  %first = atomicrmw add ptr %next, i64 %size monotonic
  %some = icmp ult i64 %first, %end
  br i1 %some, label %run, label %empty
run:
  %past = add i64 %first, %size
  %last = call i64 @llvm.umin.i64(i64 %past, i64 %end)
  br i1 %unable, label %ran, label %call
call:
  call void %function(ptr %arguments, i64 %first, i64 %last, ptr %memory)
  br label %ran
ran:
  %took.on = sub i64 %last, %first
  %sum = add i64 %done, %took.on
  br i1 %paced, label %timed, label %take
timed:
  %now = call i64 @CYCLES()
  %took = sub i64 %now, %since
  %quick = icmp ult i64 %took, %quarter
  %late = icmp ugt i64 %took, %budget
  %twice = shl i64 %size, 1
  %half0 = lshr i64 %size, 1
  %half = call i64 @llvm.umax.i64(i64 %half0, i64 1)
  %fewer = select i1 %late, i64 %half, i64 %size
  %more0 = call i64 @llvm.umin.i64(i64 %twice, i64 %chunk)
  %resized = select i1 %quick, i64 %more0, i64 %fewer
  %unheard = sub i64 %now, %heeded
  %long = icmp uge i64 %unheard, %interval
  %due = and i1 %listens, %long
  br i1 %due, label %heed, label %take
heed:
  call void @heed(ptr %arguments)
  ; handlers took their time, and so did the interpreter lock
  %after = call i64 @CYCLES()
  br label %take
empty:
  %turn1 = add i64 %turn, 1
  %more = icmp ult i64 %turn1, %count
  br i1 %more, label %lane, label %none
none:
  br i1 %large, label %drop, label %out
drop:
  call void @free(ptr %raw)
  br label %out
out:
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

; Take chunks of a job in the first lane, and learn from them what the kernel costs; programs run.
define internal i64 @share_learning(ptr %kernel, ptr %job) #0 {
  %start = call i64 @CYCLES()
  %done = call i64 @share(ptr %job, i64 0)
  %end = call i64 @CYCLES()
  %cycles = sub i64 %end, %start
  call void @learn(ptr %kernel, i64 %cycles, i64 %done)
  ret i64 %done
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

; In the calling thread, in chunks.
define internal void @serial_in_chunks(ptr %kernel, ptr %arguments, i64 %programs) #1 {
  %job = alloca %Job, align 64
  %lanes = alloca [8 x i64], align 64
  call void @prepare(ptr %job, ptr %lanes, ptr %kernel, ptr %arguments, i64 %programs, i64 1)
  %done = call i64 @share_learning(ptr %kernel, ptr %job)
  ret void
}

; Run all programs in the calling thread. One program alone is timed now and then only: its cost decides nothing but whether to keep the interpreter lock.
define void @serial(ptr %kernel, ptr %arguments, i64 %programs) #0 {
  %function = load ptr, ptr %kernel
  %needed.at = getelementptr %Kernel, ptr %kernel, i64 0, i32 5
  %needed = load i64, ptr %needed.at
  %large = icmp ne i64 %needed, 0
  br i1 %large, label %slowly, label %choose
choose:
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
  call void %function(ptr %arguments, i64 0, i64 %programs, ptr null)
  ret void
measure:
  %work = call i64 @estimate(ptr %kernel, i64 %programs)
  %budget = load i64, ptr @pace
  %long = icmp uge i64 %work, %budget
  %paced = and i1 %long, %several
  br i1 %paced, label %slowly, label %once
slowly:
  call void @serial_in_chunks(ptr %kernel, ptr %arguments, i64 %programs)
  ret void
once:
  %start = call i64 @CYCLES()
  call void %function(ptr %arguments, i64 0, i64 %programs, ptr null)
  %end = call i64 @CYCLES()
  %cycles = sub i64 %end, %start
  call void @learn(ptr %kernel, i64 %cycles, i64 %programs)
  ret void
}

; A job for a launch, with a lane a thread but no more than programs. Eight chunks a lane even out what programs differ in. It is paced where a chunk is not
; known to take less than that time.
define void @prepare(ptr %job, ptr %lanes, ptr %kernel, ptr %arguments, i64 %programs, i64 %threads) #0 {
entry:
  %function = load ptr, ptr %kernel
  %count = call i64 @llvm.umin.i64(i64 %threads, i64 %programs)
  %parts = shl i64 %count, 3
  %share = udiv i64 %programs, %parts
  %each = udiv i64 %programs, %count
  %chunk = call i64 @llvm.umax.i64(i64 %share, i64 1)
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
  %at = call i64 @estimate(ptr %kernel, i64 %chunk)
  %budget = load i64, ptr @pace
  %short = icmp ult i64 %at, %budget
  %c = getelementptr %Kernel, ptr %kernel, i64 0, i32 1
  %cost = load atomic i64, ptr %c monotonic, align 8
  %known = call i64 @llvm.umax.i64(i64 %cost, i64 1)
  %unknown = icmp eq i64 %cost, 0
  %scaled = shl i64 %budget, 4
  %fit = udiv i64 %scaled, %known
  %bounded = call i64 @llvm.umin.i64(i64 %fit, i64 %chunk)
  %some = call i64 @llvm.umax.i64(i64 %bounded, i64 1)
  %careful = select i1 %unknown, i64 1, i64 %some
  %size = select i1 %short, i64 0, i64 %careful
  %p9 = getelementptr %Job, ptr %job, i64 0, i32 9
  store i64 %size, ptr %p9
  %p10 = getelementptr %Job, ptr %job, i64 0, i32 10
  store i64 0, ptr %p10
  %polls.at = getelementptr %Kernel, ptr %kernel, i64 0, i32 4
  %polls = load i32, ptr %polls.at
  %polls.wide = zext i32 %polls to i64
  %p11 = getelementptr %Job, ptr %job, i64 0, i32 11
  store i64 %polls.wide, ptr %p11
  %memory.at = getelementptr %Kernel, ptr %kernel, i64 0, i32 5
  %memory = load i64, ptr %memory.at
  %p12 = getelementptr %Job, ptr %job, i64 0, i32 12
  store i64 %memory, ptr %p12
  %cleared.at = getelementptr %Kernel, ptr %kernel, i64 0, i32 6
  %cleared = load i64, ptr %cleared.at
  %p13 = getelementptr %Job, ptr %job, i64 0, i32 13
  store i64 %cleared, ptr %p13
  ; an exception that waits to be raised, of a launch of the pool's own, stops this one at once
  %waiting = load ptr, ptr @raised
  %stop = icmp ne ptr %waiting, null
  br i1 %stop, label %ask, label %lane
ask:
  %mine = call i1 @listens()
  br i1 %mine, label %halt, label %lane
halt:
  call void @halt(ptr %arguments)
  br label %lane
lane:
  ; the first lanes have one program more where they do not come out even
  %i = phi i64 [ 0, %entry ], [ 0, %ask ], [ 0, %halt ], [ %i1, %lane ]
  %first = phi i64 [ 0, %entry ], [ 0, %ask ], [ 0, %halt ], [ %end, %lane ]
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
