"""The pool's workers, as LLVM IR: threads that sleep on a futex, and sharing a launch with them.

The state word of the pool has an epoch in its upper half, odd while a job is open, and in its lower half how many workers are inside the job. A worker
joins by a compare-and-swap that fails once the job is closed, so the caller waits for those only that joined. Every spin is bounded and ends in a futex
wait: where threads outnumber processors, a thread that spins keeps the one it waits for from running.
"""

from __future__ import annotations

WORKERS = """
%Pool = type { i64, [7 x i64], i32, i32, i32, i32, i32, i32, i64, [4 x i64] }
; 0 state | 2 sleepers 3 lock 4 shutdown 5 started 6 wanted workers 7 workers let in 8 end of the last shared launch
@pool = global %Pool zeroinitializer, align 64
@job = global %Job zeroinitializer, align 64
@lanes = internal global [LANES x [8 x i64]] zeroinitializer, align 64
@workers = internal global [MAX_WORKERS x i64] zeroinitializer

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

; One turn of waiting for a word to change: a pause while the turns are few, else sleep, and signals handled by whom they concern. The turns from then on.
define internal i64 @linger(i64 %turns, ptr %word, i32 %value, ptr %arguments) #1 {
  %spinning = icmp ult i64 %turns, SPIN_CALLER
  br i1 %spinning, label %pause, label %sleep
pause:
  call void @PAUSE(PAUSE_ARG)
  %more = add i64 %turns, 1
  ret i64 %more
sleep:
  %woken = call i1 @wait_shortly(ptr %word, i32 %value)
  br i1 %woken, label %out, label %unwoken
unwoken:
  %mine = call i1 @listens()
  br i1 %mine, label %heed, label %out
heed:
  call void @heed(ptr %arguments)
  br label %out
out:
  ret i64 %turns
}

define internal void @wake(ptr %word, i32 %count) #0 {
  %r = call i64 (i64, ...) @syscall(i64 FUTEX, ptr %word, i32 129, i32 %count, ptr null, ptr null, i32 0)
  ret void
}

; Whether the pool in a state has an open job that a worker was not in, whose last job's epoch is %seen, and that has room for it.
define internal i1 @admits(i64 %state, i64 %seen) #0 {
  %epoch = and i64 %state, -4294967296
  %openbit = and i64 %state, 4294967296
  %open = icmp ne i64 %openbit, 0
  %new = icmp ne i64 %epoch, %seen
  %inside = trunc i64 %state to i32
  %limit = load atomic i32, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 7) monotonic, align 4
  %room = icmp ult i32 %inside, %limit
  %mine0 = and i1 %open, %new
  %mine = and i1 %mine0, %room
  ret i1 %mine
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
  %mine = call i1 @admits(i64 %state, i64 %seen)
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
  %mine1 = call i1 @admits(i64 %state1, i64 %seen)
  %down0 = load atomic i32, ptr getelementptr (%Pool, ptr @pool, i64 0, i32 4) acquire, align 4
  %down = icmp ne i32 %down0, 0
  %up = or i1 %mine1, %down
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
  %epoch = and i64 %state, -4294967296
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
  %done = call i64 @share_learning(ptr %kernel, ptr @job)
  call void @helped(i64 %programs, i64 %done)
  %closing = atomicrmw add ptr @pool, i64 4294967296 seq_cst
  br label %waiting
waiting:
  %k = phi i64 [ 0, %go ], [ %k1, %linger ]
  %state = load atomic i64, ptr @pool acquire, align 64
  %inside = trunc i64 %state to i32
  %alone = icmp eq i32 %inside, 0
  br i1 %alone, label %out, label %linger
linger:
  %k1 = call i64 @linger(i64 %k, ptr @pool, i32 %inside, ptr %arguments)
  br label %waiting
out:
  ret void
}
"""
