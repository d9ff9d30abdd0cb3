"""How each operation is written as LLVM IR for one thread. A module has ``INTERFACES``: operation name -> what the toolkit is told of it.

Elementwise operations are not listed: :mod:`.elementwise` runs the emitters that the CPU and GPU backends share on each register.
"""

from __future__ import annotations

from typing import Final

#: The modules here that have interfaces.
WITH_INTERFACES: Final = (
    "accesses", "accumulators", "asynchronous", "atomics", "barrier_objects", "control", "conversions", "debug", "dot",
    "groups", "indices", "made_descriptors", "partitions", "phases", "reduce", "scan", "scattered", "shape", "shared",
)  # fmt: skip
