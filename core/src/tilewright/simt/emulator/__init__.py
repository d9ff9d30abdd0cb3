"""A machine for tests: programs of warps run on the host.

The threads of a program run one after another, each
until it waits, in an order that a seed yields.

What :mod:`tilewright.simt` makes for a GPU is thus run anywhere, slowly, and stricter than
hardware. Shared memory is filled with a pattern before each program. What is started asynchronously
happens as late as a wait allows, or at once, or at any time in between (``completion``), so that a
wait that is missing shows. Mbarriers have phases, parts of a partition are groups of threads.
Accesses must be aligned to their size, and threads that wait for what cannot happen end with a
report of who waits for what instead of hanging.

    emulator.run(module, [x, y, out, n], (4, 1, 1), num_warps=2, warp_size=8)
"""

from tilewright.simt.emulator.async_matmul import accumulating_plan, asynchronous_plan
from tilewright.simt.emulator.blocks import EmulatedDescriptor
from tilewright.simt.emulator.launch import expanded_arguments, run, run_text
from tilewright.simt.emulator.memory import start_copy
from tilewright.simt.emulator.synchronization import (
    EmulatedClusters,
    EmulatedProxy,
    EmulatedTensorMemory,
)
from tilewright.simt.emulator.target import EmulatedMatrix, EmulatedTarget
from tilewright.simt.emulator.tma import EmulatedTma, bulk_mechanism

__all__ = [
    "EmulatedClusters",
    "EmulatedDescriptor",
    "EmulatedMatrix",
    "EmulatedProxy",
    "EmulatedTarget",
    "EmulatedTensorMemory",
    "EmulatedTma",
    "accumulating_plan",
    "asynchronous_plan",
    "bulk_mechanism",
    "expanded_arguments",
    "run",
    "run_text",
    "start_copy",
]
