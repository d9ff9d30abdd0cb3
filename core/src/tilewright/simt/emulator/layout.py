"""Layout of the memory that machine code and engine share; codes of calls and faults."""

from __future__ import annotations

from typing import Final

# ---- words of the block, which all threads share; each has 8 bytes. In a cluster there are as many
# such rows as blocks: what is each one's own is in its row (shared memory, what shuffles exchange,
# barriers but for those of all, turns), all else in the first one's

SHARED_BASE: Final = 0
EXCHANGE: Final = 1
FAULT: Final = 2
GRID: Final = 3
#: address of the engine's entry
ENGINE: Final = 6
#: not zero: threads end at their next wait
STOP: Final = 7
#: threads that are in a wait, threads that have not ended, waits that have ended
WAITING, LIVE, PROGRESS = 8, 9, 10
#: when copies happen: one of the modes
MODE: Final = 11
#: barriers: of the program, between programs, of parts, of warps; each has arrivals and rounds, an
#: i32 each
BARRIER: Final = 12
BETWEEN: Final = 13
PART_BARRIERS: Final = 14
MAX_PARTS: Final = 16
#: the place whose turn it is in each order, an i32
TURNS: Final = PART_BARRIERS + MAX_PARTS
MAX_ORDERS: Final = 16
WARP_BARRIERS: Final = TURNS + MAX_ORDERS
#: the barrier of all blocks of a cluster
MEETING: Final = WARP_BARRIERS + 64
#: address of the function that calls the kernel; threads, and blocks of the cluster
KERNEL, THREADS, BLOCKS = range(MEETING + 1, MEETING + 4)
BLOCK_WORDS: Final = MEETING + 4

# ---- words of a thread

BLOCK, QUEUE, LANE, WARP, SHARED_BYTES, SLOTS, NUMBER = range(7)
#: addresses of its ``ucontext_t``, behind which its stack lies, and of that of the scheduler;
#: not zero: it has ended
CONTEXT, HOME, ENDED = range(7, 10)
#: the engine's call that it asks for, or -1; its arguments, and the answer
CODE, ARGUMENTS, COUNT, ANSWER = range(10, 14)
#: what it waits for: a kind, the part that it runs, and a word of memory of which ``word & mask``
#: is, or is no longer, a value
KIND, PART, WORD, MASK, VALUE, EQUAL, OBJECT = range(14, 21)
#: address of the registers of matmuls in flight
AREA: Final = 21
#: 1 where what it waits for in :data:`AT_QUEUE` may happen
RELEASED: Final = 22
#: the block's number in its cluster
RANK: Final = 23
#: number of its proxy fences so far, from 1 on; where it marks with that what it reads and what it
#: writes in shared memory by the generic proxy: addresses of an i32 for each granule, less what the
#: first granule's number takes
FENCES, READ_MARKS, WRITE_MARKS = range(24, 27)
THREAD_WORDS: Final = 27

#: Bytes of shared memory that have a mark: no access is wider, and all are aligned to their size.
GRANULE: Final = 16

#: Bytes for a context, and of a thread's stack, which are memory once they are touched.
CONTEXT_BYTES: Final = 8192
STACK_BYTES: Final = (8 << 20) - CONTEXT_BYTES

#: What a thread may wait for.
NOTHING, AT_BARRIER, AT_WARP_BARRIER, AT_OBJECT, AT_TURN, AT_QUEUE = range(6)

# ---- a thread's queue of copies: groups that were ended, copies in flight, the state of its coin,
# then (group, to, from, bytes) each

QUEUE_GROUPS, QUEUE_LENGTH, QUEUE_COIN, QUEUE_FIRST = range(4)
QUEUE_ENTRIES: Final = 4096
QUEUE_WORDS: Final = QUEUE_FIRST + 4 * QUEUE_ENTRIES

# ---- an mbarrier in shared memory, an i32 each: phases that have ended, copies in flight, and what
# tells it from other bytes

OBJECT_BYTES: Final = 16
OBJECT_COPIES: Final = 4
OBJECT_MARK: Final = 8
MARK: Final = 0x0BA221E5

# ---- modes

#: When what was started happens. ``late``: when a wait needs it and no other thread can go on
#: without. ``early``: at once. ``crossed``: what writes shared memory at once, what reads it late.
#: ``random``: at any time in between, in any order that is allowed.
MODES: Final = ("late", "early", "crossed", "random")
LATE, EARLY, CROSSED, RANDOM = range(4)

#: Queues whose operations are waited for by the thread that started them, and happen in the engine.
MATMUL_QUEUE, STORE_QUEUE = range(2)

# ---- faults; those of assertions follow

MISALIGNED, ENGINE_FAULT, QUEUE_FULL, ASSERTION = 1, 2, 3, 16
FAULTS: Final = {
    MISALIGNED: "an access is not aligned to its size",
    QUEUE_FULL: "too many asynchronous copies are in flight",
}

# ---- calls of the engine

(
    NEXT_PROGRAM,
    IS_STUCK,
    INIT,
    EXPECT,
    ARRIVE,
    NO_OBJECT,
    FORCE,
    LOAD_BLOCK,
    STORE_BLOCK,
    START_MATMUL,
    BUSY,
    COMMIT,
    ASK,
    SETTLE,
    PASS_TURN,
    TAKE_MEMORY,
    MAKE_DESCRIPTOR,
    SHOW_DESCRIPTOR,
    FREE_MEMORY,
    LEAVE,
    TAKE_ACCUMULATORS,
    START_INTO,
    ARRIVE_AFTER,
    LOAD_ACCUMULATORS,
    STORE_ACCUMULATORS,
    FREE_ACCUMULATORS,
) = range(26)
