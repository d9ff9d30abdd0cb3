"""Signals during launches, and cancellation of programs that may never end, as LLVM IR.

A launch that is not known to be short is *paced*, that is throttled: its threads take as many
programs at a time as run for about a millisecond, one at first where their cost is unknown. Between
them, a few times a second, the interpreter's main thread takes the interpreter lock and lets
pending signals be handled. Where a handler raises, the exception is kept in ``raised`` and the
launch's status block says :data:`~tilewright_cpu.status.INTERRUPTED`, which the job's threads see
before they take more programs; the thread that started the launch raises the exception.

Programs with ``while`` loops, which may never end, have cancellation checks: they call ``poll`` now
and then, which lets signals be handled as above and makes a program stop where the launch was
cancelled, or where another program has failed, for which this one may wait. A thread that runs out
of programs and waits for others that still run theirs handles signals meanwhile.
"""

from __future__ import annotations

#: Iterations of a loop between two calls of ``poll`` at most: a loop whose iterations get slow all of a sudden must still ask soon.
MOST_TURNS = 4096

#: Status of a launch, and the function that cancellation checks call.
CANCELLATION = """
; The status block of a launch.
define internal ptr @status_of(ptr %arguments) #0 {
  %p = getelementptr ptr, ptr %arguments, i64 3
  %status = load ptr, ptr %p
  ret ptr %status
}

; Stop a launch: its threads take no more programs, and those that poll end.
define internal void @halt(ptr %arguments) #0 {
  %status = call ptr @status_of(ptr %arguments)
  store atomic i32 INTERRUPTED, ptr %status monotonic, align 4
  ret void
}

define internal i1 @halted(ptr %arguments) #0 {
  %status = call ptr @status_of(ptr %arguments)
  %said = load atomic i32, ptr %status monotonic, align 4
  %is = icmp eq i32 %said, INTERRUPTED
  ret i1 %is
}

; Whether the launch has failed: a program that waits for the one that failed would wait for ever.
define internal i1 @failed(ptr %arguments) #0 {
  %status = call ptr @status_of(ptr %arguments)
  %said = load atomic i32, ptr %status monotonic, align 4
  %is = icmp ne i32 %said, 0
  ret i1 %is
}

; What a program calls in a loop that may never end: after how many turns of the loop to call again, about a quarter of @pace later; 0 to stop at once.
; %heeded: a word of the program's, 0 at first: when it last let signals be handled. %loop: two of the loop's: the turns, and 0 at first: the last call.
define i64 @poll(ptr %arguments, ptr %heeded, ptr %loop) #1 {
entry:
  %over = call i1 @failed(ptr %arguments)
  br i1 %over, label %stop, label %look
look:
  %others = load atomic i64, ptr @crowded monotonic, align 8
  %alone = icmp eq i64 %others, 0
  br i1 %alone, label %time, label %yield
yield:
  ; what it waits for may not run before this thread lets it
  call void @give_way()
  br label %time
time:
  %now = call i64 @CYCLES()
  %turns = load i64, ptr %loop
  %at = getelementptr i64, ptr %loop, i64 1
  %last = load i64, ptr %at
  store i64 %now, ptr %at
  %took = sub i64 %now, %last
  %budget = load i64, ptr @pace
  %quarter = lshr i64 %budget, 2
  %quick = icmp ult i64 %took, %quarter
  %late = icmp ugt i64 %took, %budget
  %haste = lshr i64 %budget, 6
  %instant = icmp ult i64 %took, %haste
  %shift = select i1 %instant, i64 3, i64 1
  %more = shl i64 %turns, %shift
  %twice = call i64 @llvm.umin.i64(i64 %more, i64 MOST_TURNS)
  %half0 = lshr i64 %turns, 1
  %half = call i64 @llvm.umax.i64(i64 %half0, i64 1)
  %fewer = select i1 %late, i64 %half, i64 %turns
  %sized = select i1 %quick, i64 %twice, i64 %fewer
  %fresh = icmp eq i64 %last, 0
  %resized = select i1 %fresh, i64 %turns, i64 %sized
  store i64 %resized, ptr %loop
  %before = load i64, ptr %heeded
  %first = icmp eq i64 %before, 0
  br i1 %first, label %begin, label %wait
begin:
  store i64 %now, ptr %heeded
  br label %go
wait:
  %interval = shl i64 %budget, 6
  %unheard = sub i64 %now, %before
  %long = icmp uge i64 %unheard, %interval
  br i1 %long, label %due, label %go
due:
  %mine = call i1 @listens()
  br i1 %mine, label %listen, label %go
listen:
  call void @heed(ptr %arguments)
  %after = call i64 @CYCLES()
  store i64 %after, ptr %heeded
  %ended = call i1 @halted(ptr %arguments)
  br i1 %ended, label %stop, label %go
go:
  ret i64 %resized
stop:
  ret i64 0
}
"""

#: Handling signals, where an interpreter with CPython's interface runs in a POSIX system.
LISTENING = """
declare i64 @pthread_self()
declare i32 @sched_yield()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Fetch(ptr, ptr, ptr)

define internal void @give_way() #1 {
  %done = call i32 @sched_yield()
  ret void
}

; Whether the calling thread is the one that handles signals.
define internal i1 @listens() #0 {
  %self = call i64 @pthread_self()
  %listener = load i64, ptr @listener
  %mine = icmp eq i64 %self, %listener
  ret i1 %mine
}

; Let pending signals be handled, and stop the launch where a handler raises.
define internal void @heed(ptr %arguments) #1 {
entry:
  %lock = call i32 @PyGILState_Ensure()
  %failed = call i32 @PyErr_CheckSignals()
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %keep, label %out
keep:
  %value = getelementptr ptr, ptr @raised, i64 1
  %traceback = getelementptr ptr, ptr @raised, i64 2
  call void @PyErr_Fetch(ptr @raised, ptr %value, ptr %traceback)
  call void @halt(ptr %arguments)
  br label %out
out:
  call void @PyGILState_Release(i32 %lock)
  ret void
}
"""

#: Elsewhere launches run to their end.
DEAF = """
define internal i1 @listens() #0 {
  ret i1 false
}

define internal void @heed(ptr %arguments) #1 {
  ret void
}

define internal void @give_way() #1 {
  ret void
}
"""
