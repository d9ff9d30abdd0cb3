"""The launch decision, as LLVM IR: whether a launch is shared among threads, and which.

A launch that is worth sharing with threads that are awake, and too short to wake them for, runs
alone. Where such launches follow one another, closer than threads take to fall asleep, their costs
are added up, and once the sum is worth waking threads for they are woken: the next launches find
them awake. Where they do not, since other processes keep the threads from running, the price of
waking grows each time, and falls with each launch that others took part in.
"""

from __future__ import annotations

LAUNCH = """
@owed = global i64 0                                        ; cycles of launches one after another that sleeping threads were not woken for
@price = global i64 0                                       ; cycles owed that are worth waking threads for; the cold threshold is the least
@owed_until = internal global i64 0                         ; when the last of these ended
@measured = global i32 0                                    ; 1 once the hand-off has been measured
@forced = global i32 0                                      ; threads asked for by the user; 0: as many as OpenMP would use

; A kernel in which threads meet: each program waits, but not for long, until all have begun. How long that takes is what handing work over costs.
define internal void @meet(ptr %place, i64 %first, i64 %last, ptr %memory) #0 {
entry:
  %mine = sub i64 %last, %first
  %before = atomicrmw add ptr %place, i64 %mine seq_cst
  %p = getelementptr i64, ptr %place, i64 1
  %wanted = load i64, ptr %p
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %k1, %again ]
  %arrived = load atomic i64, ptr %place acquire, align 8
  %all = icmp uge i64 %arrived, %wanted
  %enough = icmp uge i64 %k, SPIN_CALLER
  %leave = or i1 %all, %enough
  br i1 %leave, label %out, label %again
again:
  call void @PAUSE(PAUSE_ARG)
  %k1 = add i64 %k, 1
  br label %look
out:
  ret void
}

; Measure the hand-off to threads that are awake: the least of some meetings. Work of three times that is worth sharing; two threads break even at twice.
define internal void @measure(i64 %threads, i32 %asked) #0 {
entry:
  %kernel = alloca %Kernel, align 8
  ; where a kernel's slots are: the third word is a status block, the fourth its address
  %place = alloca [4 x i64], align 64
  store %Kernel zeroinitializer, ptr %kernel
  store ptr @meet, ptr %kernel
  %p = getelementptr i64, ptr %place, i64 1
  store i64 %threads, ptr %p
  %status = getelementptr i64, ptr %place, i64 2
  store i64 0, ptr %status
  %p3 = getelementptr i64, ptr %place, i64 3
  store ptr %status, ptr %p3
  %parallel = load ptr, ptr @openmp
  %foreign = icmp ne ptr %parallel, null
  %narrow = trunc i64 %threads to i32
  br label %meeting
meeting:
  %i = phi i64 [ 0, %entry ], [ %i1, %met ]
  %least = phi i64 [ -1, %entry ], [ %less, %met ]
  store atomic i64 0, ptr %place monotonic, align 64
  %start = call i64 @CYCLES()
  br i1 %foreign, label %theirs, label %ours
theirs:
  call void @with_openmp(ptr %kernel, ptr %place, i64 %threads, i64 %threads, i32 %asked)
  br label %met
ours:
  call void @with_workers(ptr %kernel, ptr %place, i64 %threads, i32 %narrow)
  br label %met
met:
  %end = call i64 @CYCLES()
  %took = sub i64 %end, %start
  %less = call i64 @llvm.umin.i64(i64 %least, i64 %took)
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, MEETINGS
  br i1 %more, label %meeting, label %out
out:
  %three = mul i64 %less, 3
  %usual = load i64, ptr @hot
  %least.hot = lshr i64 %usual, 3
  %raised = call i64 @llvm.umax.i64(i64 %three, i64 %least.hot)
  %bounded = call i64 @llvm.umin.i64(i64 %raised, i64 %usual)
  store i64 %bounded, ptr @hot
  ret void
}

; Others took part in a launch of which this thread did some programs: waking them has paid.
define internal void @helped(i64 %programs, i64 %done) #0 {
  %price = load atomic i64, ptr @price monotonic, align 8
  %dear = icmp ne i64 %price, 0
  %some = icmp ult i64 %done, %programs
  %cheaper = and i1 %dear, %some
  br i1 %cheaper, label %lower, label %out
lower:
  %quarter = lshr i64 %price, 2
  %less = sub i64 %price, %quarter
  store atomic i64 %less, ptr @price monotonic, align 8
  br label %out
out:
  ret void
}

; Run all programs of a launch: alone where the work is too little to share or the pool is busy, else with the threads there are.
define void @launch(ptr %kernel, ptr %arguments, i64 %programs) #0 {
entry:
  %single = icmp ule i64 %programs, 1
  br i1 %single, label %alone, label %several
several:
  %p = getelementptr %Kernel, ptr %kernel, i64 0, i32 3
  %limit = load i32, ptr %p
  %work = call i64 @estimate(ptr %kernel, i64 %programs)
  %hot = load i64, ptr @hot
  %little = icmp ult i64 %work, %hot
  br i1 %little, label %alone, label %choose
choose:
  %cold = load i64, ptr @cold
  %parallel = load ptr, ptr @openmp
  %foreign = icmp ne ptr %parallel, null
  br i1 %foreign, label %openmp, label %own
openmp:
  %now = call i64 @CYCLES()
  %before = load atomic i64, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 8) monotonic, align 8
  %gap = sub i64 %now, %before
  ; OpenMP's threads spin for about a millisecond after their last region; ten times the cold threshold is of that size
  %recently = mul i64 %cold, 10
  %awake = icmp ult i64 %gap, %recently
  %big = icmp uge i64 %work, %cold
  %worth = or i1 %awake, %big
  br i1 %worth, label %ask, label %owing
ask:
  %forced = load i32, ptr @forced
  %limited = icmp ne i32 %limit, 0
  %asked = select i1 %limited, i32 %limit, i32 %forced
  %free = icmp eq i32 %asked, 0
  br i1 %free, label %default, label %team
default:
  %get = load ptr, ptr @openmp_threads
  %usual = call i32 %get()
  br label %team
team:
  %count = phi i32 [ %asked, %ask ], [ %usual, %default ]
  %pair = icmp ugt i32 %count, 1
  br i1 %pair, label %both, label %alone
both:
  %wide = zext i32 %count to i64
  %first0 = atomicrmw xchg ptr @measured, i32 1 monotonic
  %fresh0 = icmp eq i32 %first0, 0
  br i1 %fresh0, label %measure0, label %shared
measure0:
  call void @measure(i64 %wide, i32 %asked)
  br label %shared
shared:
  call void @with_openmp(ptr %kernel, ptr %arguments, i64 %programs, i64 %wide, i32 %asked)
  %after = call i64 @CYCLES()
  store atomic i64 %after, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 8) monotonic, align 8
  ret void
own:
  %sleepers = load atomic i32, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 2) monotonic, align 4
  %asleep = icmp ne i32 %sleepers, 0
  %small = icmp ult i64 %work, %cold
  %unfit = and i1 %asleep, %small
  ; our own spin for about a third of the cold threshold
  %shortly = lshr i64 %cold, 2
  br i1 %unfit, label %owing, label %lock
owing:
  %window = phi i64 [ %recently, %openmp ], [ %shortly, %own ]
  %began = call i64 @CYCLES()
  %ended = load atomic i64, ptr @owed_until monotonic, align 8
  %pause = sub i64 %began, %ended
  %soon = icmp ult i64 %pause, %window
  %old = load atomic i64, ptr @owed monotonic, align 8
  %carried = select i1 %soon, i64 %old, i64 0
  %owed = add i64 %carried, %work
  %asked0 = load atomic i64, ptr @price monotonic, align 8
  %price = call i64 @llvm.umax.i64(i64 %asked0, i64 %cold)
  %due = icmp uge i64 %owed, %price
  %left = select i1 %due, i64 0, i64 %owed
  store atomic i64 %left, ptr @owed monotonic, align 8
  br i1 %due, label %rouse, label %postpone
rouse:
  %dearer = shl i64 %price, 2
  %dearest = shl i64 %cold, 8
  %raised = call i64 @llvm.umin.i64(i64 %dearer, i64 %dearest)
  store atomic i64 %raised, ptr @price monotonic, align 8
  br i1 %foreign, label %ask, label %lock
postpone:
  call void @serial(ptr %kernel, ptr %arguments, i64 %programs)
  %finished = call i64 @CYCLES()
  store atomic i64 %finished, ptr @owed_until monotonic, align 8
  ret void
lock:
  %wanted = load i32, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 6)
  %nobody = icmp eq i32 %wanted, 0
  %justone = icmp eq i32 %limit, 1
  %refused = or i1 %nobody, %justone
  br i1 %refused, label %alone, label %try
try:
  %swap = cmpxchg ptr getelementptr (%Pool, ptr @pool, i64 0, i32 3), i32 0, i32 1 acquire monotonic
  %ok = extractvalue { i32, i1 } %swap, 1
  br i1 %ok, label %ready, label %alone
ready:
  %started = load atomic i32, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 5) monotonic, align 4
  %none = icmp eq i32 %started, 0
  br i1 %none, label %begin, label %share
begin:
  call void @start()
  br label %share
share:
  %workers = load atomic i32, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 5) monotonic, align 4
  %all = add i32 %workers, 1
  %unlimited = icmp eq i32 %limit, 0
  %fewer = icmp ult i32 %limit, %all
  %bounded = select i1 %fewer, i32 %limit, i32 %all
  %threads = select i1 %unlimited, i32 %all, i32 %bounded
  %pairs = icmp ugt i32 %threads, 1
  br i1 %pairs, label %known, label %go
known:
  %first1 = atomicrmw xchg ptr @measured, i32 1 monotonic
  %fresh1 = icmp eq i32 %first1, 0
  br i1 %fresh1, label %measure1, label %go
measure1:
  %team1 = zext i32 %threads to i64
  call void @measure(i64 %team1, i32 0)
  br label %go
go:
  call void @with_workers(ptr %kernel, ptr %arguments, i64 %programs, i32 %threads)
  store atomic i32 0, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 3) release, align 4
  ret void
alone:
  call void @serial(ptr %kernel, ptr %arguments, i64 %programs)
  ret void
}
"""
