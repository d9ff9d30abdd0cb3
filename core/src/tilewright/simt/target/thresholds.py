"""Thresholds of the toolkit's heuristics: numbers that were tuned on one GPU, for targets to set.

Nothing that a kernel computes depends on them. Their defaults come from kernels that were timed on
the first GPU that needed each, and other targets share them until they measure their own.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Thresholds of layout assignment, unrolling, staging and occupancy.

    Attributes:
        loop_trips: assumed iterations of a loop, by which costs inside weigh more.
        rematerialized_cost: maximum cost of a tile that is computed again in another layout rather
            than converted, in issue slots for each element.
        live_register_cost: issue slots for each register of a tile where nothing is computed; it
            deters layouts in which threads hold the same elements without need.
        transposed_bytes: bytes along K that a thread holds of a matmul operand that it transposes
            in registers: what one store to shared memory moves.
        shared_read_bytes: minimum bytes that a lane reads of shared memory at once; with narrower
            reads, direct-to-shared loads cost more than loads through registers.
        short_loop_trips: maximum iterations of a loop of loads that is unrolled.
        short_loop_elements: maximum elements of all tiles that such a loop computes.
        exchange_loop_trips: maximum iterations of a loop of exchanges that is unrolled: a network
            over 2**n elements has n stages of at most n steps.
        exchange_loop_elements: maximum elements of a tile that it exchanges: twice as many take
            more than twice as long to compile.
        unrolled_lines: maximum lines of LLVM IR of a loop that the code generator unrolls in full.
        fma_body: maximum multiplications in the body of the loop over K of a matmul of scalars.
        registers_beside_accumulator: minimum registers of a thread for other values than the
            accumulators of a loop.
        staged_row_bytes: minimum bytes of a row of a piece of a tile that TMA stores.
        staged_piece_bytes: preferred bytes of such a piece: smaller ones need too many barriers.
        promoted_ratio: loads that are smaller than the loop's largest one by more than this factor
            are not promoted to TMA.
        mbarrier_bytes: bytes of shared memory that are kept for mbarriers and alignment.
        registers_in_flight: registers of a consumer thread beside the tiles in flight where
            matmuls are waited for one by one: not all of those tiles are live at a time.
        matmul_registers: registers beside its accumulator that one matmul instruction may need.
            They count against the registers at the kernel's start, before partitions reallocate
            them.
        pipelined_programs: maximum programs on an SM for which the halves of back-to-back matmuls
            are software-pipelined; with more there is always one that computes.
    """

    loop_trips: float = 8.0
    rematerialized_cost: float = 24.0
    live_register_cost: float = 0.25
    transposed_bytes: int = 16
    shared_read_bytes: int = 4
    short_loop_trips: int = 8
    short_loop_elements: int = 1 << 16
    exchange_loop_trips: int = 16
    exchange_loop_elements: int = 4096
    unrolled_lines: int = 8192
    fma_body: int = 512
    registers_beside_accumulator: int = 8
    staged_row_bytes: int = 128
    staged_piece_bytes: int = 32768
    promoted_ratio: int = 8
    mbarrier_bytes: int = 2048
    registers_in_flight: int = 8
    matmul_registers: int = 32
    pipelined_programs: int = 2


__all__ = ["Thresholds"]
