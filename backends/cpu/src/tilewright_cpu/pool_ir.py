"""The native part of the thread pool, as LLVM IR: the decision to share a grid among threads, what that costs, and workers that sleep on a futex.

The kernel records and jobs of :mod:`.sharing_ir` are what all of it works on.

The state word of the pool has an epoch in its upper half, odd while a job is open, and in its lower half how many workers are inside the job. A worker
joins by a compare-and-swap that fails once the job is closed, so the caller waits for those only that joined. Every spin is bounded and ends in a futex
wait: where threads outnumber processors, a thread that spins keeps the one it waits for from running.

A launch that is worth sharing with threads that are awake, and too short to wake them for, runs alone. Where such launches follow one another, closer than
threads take to fall asleep, what they came to is added up, and once that is worth waking threads for they are woken: the next launches find them awake.
Where they do not, since other processes keep the threads from running, waking gets dearer each time, and cheaper with each launch that others took part in.
"""

from __future__ import annotations

from tilewright_cpu.sharing_ir import DEAF, LISTENING, MOST_TURNS, SHARING
from tilewright_cpu.status import INTERRUPTED

#: Most workers a pool can have.
MAX_WORKERS = 1023
#: Meetings of threads that the hand-off is measured by.
_MEETINGS = 8

_FUTEX_CALL = {"x86_64": 202, "aarch64": 98}
_PAUSE = {"x86_64": ("llvm.x86.sse2.pause", ""), "aarch64": ("llvm.aarch64.hint", "i32 1")}
_CYCLES = {"x86_64": "llvm.readcyclecounter", "aarch64": "llvm.readsteadycounter"}

_THREADS = """
%Pool = type { i64, [7 x i64], i32, i32, i32, i32, i32, i32, i64, [4 x i64] }
; 0 state | 2 sleepers 3 lock 4 shutdown 5 started 6 wanted workers 7 workers let in 8 end of the last shared launch
@pool = global %Pool zeroinitializer, align 64
@job = global %Job zeroinitializer, align 64
@lanes = internal global [LANES x [8 x i64]] zeroinitializer, align 64
@workers = internal global [MAX_WORKERS x i64] zeroinitializer
@openmp = global ptr null                                   ; GOMP_parallel, where another library's OpenMP runs the threads
@openmp_threads = global ptr null                           ; omp_get_max_threads
@openmp_number = global ptr null                            ; omp_get_thread_num
@owed = global i64 0                                        ; cycles of launches one after another that sleeping threads were not woken for
@price = global i64 0                                       ; cycles owed that are worth waking threads for; the cold threshold is the least
@owed_until = internal global i64 0                         ; when the last of these ended
@measured = global i32 0                                    ; 1 once the hand-off has been measured
@forced = global i32 0                                      ; threads asked for by the user; 0: as many as OpenMP would use

@shortly = internal constant [2 x i64] [i64 0, i64 50000000] ; seconds and nanoseconds

declare void @PAUSE(PAUSE_TYPE)
declare i64 @syscall(i64, ...)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sigdelset(ptr, i32)

define internal void @wait(ptr %word, i32 %value) #0 {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 128, i32 %value, ptr null, ptr null, i32 0)
  ret void
}

; ... for 50 milliseconds at most; whether somebody woke it.
define internal i1 @wait_shortly(ptr %word, i32 %value) #0 {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 128, i32 %value, ptr @shortly, ptr null, i32 0)
  %woken = icmp eq i64 %r, 0
  ret i1 %woken
}

define internal void @wake(ptr %word, i32 %count) #0 {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 129, i32 %count, ptr null, ptr null, i32 0)
  ret void
}

define internal ptr @worker(ptr %self) #0 {
entry:
  %number = ptrtoint ptr %self to i64
  br label %idle
idle:
  ; %seen: the epoch, in the upper half, of the job this worker was in last
  %seen = phi i64 [ 0, %entry ], [ %seen, %awake ], [ %seen, %join ], [ %epoch, %left ], [ %epoch, %last ]
  br label %spin
spin:
  %k = phi i64 [ 0, %idle ], [ %k1, %again ]
  %state = load atomic i64, ptr @pool acquire, align 64
  %epoch = and i64 %state, -4294967296
  %openbit = and i64 %state, 4294967296
  %open = icmp ne i64 %openbit, 0
  %new = icmp ne i64 %epoch, %seen
  %inside = trunc i64 %state to i32
  %limit = load atomic i32, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 7) monotonic, align 4
  %room = icmp ult i32 %inside, %limit
  %mine0 = and i1 %open, %new
  %mine = and i1 %mine0, %room
  br i1 %mine, label %join, label %again
again:
  call void @PAUSE(PAUSE_ARG)
  %k1 = add i64 %k, 1
  %more = icmp ult i64 %k1, SPIN
  br i1 %more, label %spin, label %sleep
sleep:
  %s0 = atomicrmw add ptr getelementptr (%Pool, ptr @pool, i64 0, i32 2), i32 1 seq_cst
  br label %check
check:
  ; The futex word is the epoch: a job opened after this load changes it, so that the wait returns at once. The caller wakes where it sees sleepers;
  ; both sides are sequentially consistent, so one of them sees the other.
  %state1 = load atomic i64, ptr @pool seq_cst, align 64
  %high = lshr i64 %state1, 32
  %word = trunc i64 %high to i32
  %epoch1 = and i64 %state1, -4294967296
  %odd = and i32 %word, 1
  %open1 = icmp ne i32 %odd, 0
  %new1 = icmp ne i64 %epoch1, %seen
  %inside1 = trunc i64 %state1 to i32
  %limit1 = load atomic i32, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 7) monotonic, align 4
  %room1 = icmp ult i32 %inside1, %limit1
  %mine1 = and i1 %open1, %new1
  %mine2 = and i1 %mine1, %room1
  %down0 = load atomic i32, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 4) acquire, align 4
  %down = icmp ne i32 %down0, 0
  %up = or i1 %mine2, %down
  br i1 %up, label %awake, label %block
block:
  call void @wait(ptr getelementptr (i8, ptr @pool, i64 4), i32 %word)
  br label %check
awake:
  %s1 = atomicrmw sub ptr getelementptr (%Pool, ptr @pool, i64 0, i32 2), i32 1 seq_cst
  br i1 %down, label %exit, label %idle
join:
  %joined = add i64 %state, 1
  %swap = cmpxchg ptr @pool, i64 %state, i64 %joined acq_rel monotonic, align 64
  %ok = extractvalue { i64, i1 } %swap, 1
  br i1 %ok, label %run, label %idle
run:
  %done = call i64 @share(ptr @job, i64 %number)
  %old = atomicrmw sub ptr @pool, i64 1 acq_rel
  %count = trunc i64 %old to i32
  %one = icmp eq i32 %count, 1
  %oldopen = and i64 %old, 4294967296
  %closed = icmp eq i64 %oldopen, 0
  %tell = and i1 %one, %closed
  br i1 %tell, label %last, label %left
left:
  br label %idle
last:
  call void @wake(ptr @pool, i32 1)
  br label %idle
exit:
  ret ptr null
}

; Start the wanted workers, signals blocked: they are the interpreter's business.
define internal void @start() #0 {
entry:
  %attributes = alloca [128 x i8], align 16
  %all = alloca [128 x i8], align 16
  %saved = alloca [128 x i8], align 16
  %wanted = load i32, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 6)
  %r0 = call i32 @pthread_attr_init(ptr %attributes)
  %r1 = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 8388608)
  %r2 = call i32 @sigfillset(ptr %all)
  ; a fault whose signal is blocked ends the process before any handler can tell of it
  %f0 = call i32 @sigdelset(ptr %all, i32 4)
  %f1 = call i32 @sigdelset(ptr %all, i32 7)
  %f2 = call i32 @sigdelset(ptr %all, i32 8)
  %f3 = call i32 @sigdelset(ptr %all, i32 11)
  %r3 = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %saved)
  br label %next
next:
  %i = phi i32 [ 0, %entry ], [ %i1, %made ]
  %more = icmp slt i32 %i, %wanted
  br i1 %more, label %make, label %out
make:
  %slot = getelementptr [MAX_WORKERS x i64], ptr @workers, i64 0, i32 %i
  ; the caller's lane is the first
  %number = add i32 %i, 1
  %wide = zext i32 %number to i64
  %self = inttoptr i64 %wide to ptr
  %r4 = call i32 @pthread_create(ptr %slot, ptr %attributes, ptr @worker, ptr %self)
  %ok = icmp eq i32 %r4, 0
  %i1 = add i32 %i, 1
  br i1 %ok, label %made, label %out
made:
  br label %next
out:
  %r5 = call i32 @pthread_sigmask(i32 2, ptr %saved, ptr null)
  %r6 = call i32 @pthread_attr_destroy(ptr %attributes)
  store atomic i32 %i, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 5) monotonic, align 4
  ; a system that refuses threads is not asked again
  store i32 %i, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 6)
  ret void
}

; End the workers and wait for them. No launch may be running.
define void @stop() #0 {
entry:
  store atomic i32 1, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 4) seq_cst, align 4
  %e = atomicrmw add ptr @pool, i64 8589934592 seq_cst
  call void @wake(ptr getelementptr (i8, ptr @pool, i64 4), i32 2147483647)
  %n = load atomic i32, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 5) monotonic, align 4
  br label %next
next:
  %i = phi i32 [ 0, %entry ], [ %i1, %join ]
  %more = icmp slt i32 %i, %n
  br i1 %more, label %join, label %out
join:
  %slot = getelementptr [MAX_WORKERS x i64], ptr @workers, i64 0, i32 %i
  %t = load i64, ptr %slot
  %r = call i32 @pthread_join(i64 %t, ptr null)
  %i1 = add i32 %i, 1
  br label %next
out:
  store atomic i32 0, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 5) monotonic, align 4
  store atomic i32 0, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 4) seq_cst, align 4
  ret void
}

; In the child of a fork there are no workers, nobody holds the lock, and OpenMP's threads are gone too.
define void @forget() #0 {
  %wanted = load i32, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 6)
  store %Pool zeroinitializer, ptr @pool
  store i32 %wanted, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 6)
  store ptr null, ptr @openmp
  ret void
}

define void @set_workers(i32 %wanted) #0 {
  store i32 %wanted, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 6)
  ret void
}

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
  %k = phi i64 [ 0, %entry ], [ %k1, %pause ], [ %k, %heed ], [ %k, %block ]
  %done1 = load atomic i64, ptr %p6 seq_cst, align 8
  %all = icmp uge i64 %done1, %programs
  %halted = call i1 @halted(ptr %arguments)
  %leave = or i1 %all, %halted
  br i1 %leave, label %out, label %patience
patience:
  %spinning = icmp ult i64 %k, SPIN_CALLER
  br i1 %spinning, label %pause, label %sleep
pause:
  call void @PAUSE(PAUSE_ARG)
  %k1 = add i64 %k, 1
  br label %waiting
sleep:
  store atomic i64 1, ptr %asleep seq_cst, align 8
  %done2 = load atomic i64, ptr %p6 seq_cst, align 8
  %late = icmp uge i64 %done2, %programs
  br i1 %late, label %out, label %block
block:
  %woken = call i1 @wait_shortly(ptr %asleep, i32 1)
  br i1 %woken, label %waiting, label %heed
heed:
  call void @heed(ptr %arguments)
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

; A kernel in which threads meet: each program waits, but not for long, until all have begun. How long that takes is what handing work over costs.
define internal void @meet(ptr %place, i64 %first, i64 %last) #0 {
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

; Share a launch with the pool's workers. The lock is held.
define internal void @with_workers(ptr %kernel, ptr %arguments, i64 %programs, i32 %threads) #0 {
entry:
  %wide = zext i32 %threads to i64
  call void @prepare(ptr @job, ptr @lanes, ptr %kernel, ptr %arguments, i64 %programs, i64 %wide)
  %guests = sub i32 %threads, 1
  store atomic i32 %guests, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 7) monotonic, align 4
  %opened = atomicrmw add ptr @pool, i64 4294967296 seq_cst
  %sleepers = load atomic i32, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 2) seq_cst, align 4
  %any = icmp ne i32 %sleepers, 0
  br i1 %any, label %rouse, label %go
rouse:
  call void @wake(ptr getelementptr (i8, ptr @pool, i64 4), i32 %guests)
  br label %go
go:
  %start = call i64 @CYCLES()
  %done = call i64 @share(ptr @job, i64 0)
  %end = call i64 @CYCLES()
  %cycles = sub i64 %end, %start
  call void @learn(ptr %kernel, i64 %cycles, i64 %done)
  call void @helped(i64 %programs, i64 %done)
  %closing = atomicrmw add ptr @pool, i64 4294967296 seq_cst
  br label %waiting
waiting:
  %k = phi i64 [ 0, %go ], [ %k1, %pause ], [ %k, %block ], [ %k, %unwoken ], [ %k, %heed ]
  %state = load atomic i64, ptr @pool acquire, align 64
  %inside = trunc i64 %state to i32
  %alone = icmp eq i32 %inside, 0
  br i1 %alone, label %out, label %patience
patience:
  %spinning = icmp ult i64 %k, SPIN_CALLER
  br i1 %spinning, label %pause, label %block
pause:
  call void @PAUSE(PAUSE_ARG)
  %k1 = add i64 %k, 1
  br label %waiting
block:
  %woken = call i1 @wait_shortly(ptr @pool, i32 %inside)
  br i1 %woken, label %waiting, label %unwoken
unwoken:
  %mine = call i1 @listens()
  br i1 %mine, label %heed, label %waiting
heed:
  call void @heed(ptr %arguments)
  br label %waiting
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

_ATTRIBUTES = "\nattributes #0 = { nounwind }\nattributes #1 = { nounwind noinline }\n"

#: What the IR defines that Python calls or sets.
COMMON_SYMBOLS = ("prepare", "share_timed", "serial", "estimate", "hot", "cold", "pace", "listener", "raised", "poll")
THREAD_SYMBOLS = ("launch", "stop", "forget", "set_workers", "pool", "openmp", "openmp_threads", "openmp_number", "owed", "measured", "forced")


def supports_threads(machine: str, system: str) -> bool:
    """Whether the native pool runs there; ``machine`` and ``system`` as LLVM triples name them."""
    return system == "linux" and machine in _FUTEX_CALL


def pool_ir(machine: str, *, threads: bool, listening: bool, spin: int, spin_caller: int) -> str:
    """The module's text: with ``threads`` all of it, else what only shares a job among threads that Python makes.

    Args:
        machine: ``x86_64`` or ``aarch64``; others get no measured costs.
        listening: whether the interpreter's signals are handled during launches; else these run to their end.
        spin: how often a worker looks for a job before it sleeps.
        spin_caller: how often the caller looks whether the workers have left before it sleeps.
    """
    text = SHARING + (LISTENING if listening else DEAF) + (_THREADS if threads else "") + _ATTRIBUTES
    pause, argument = _PAUSE.get(machine, ("", ""))
    cycles = _CYCLES.get(machine, "llvm.readcyclecounter")
    words = {
        "MAX_WORKERS": str(MAX_WORKERS),
        "LANES": str(MAX_WORKERS + 1),
        "MEETINGS": str(_MEETINGS),
        "PAUSE_TYPE": argument.split(" ")[0],
        "PAUSE_ARG": argument,
        "PAUSE": pause,
        "FUTEX": str(_FUTEX_CALL.get(machine, 0)),
        "SPIN_CALLER": str(spin_caller),
        "SPIN": str(spin),
        "CYCLES": cycles,
        "INTERRUPTED": str(INTERRUPTED),
        "MOST_TURNS": str(MOST_TURNS),
    }
    for word, replacement in words.items():
        text = text.replace(word, replacement)
    return text
