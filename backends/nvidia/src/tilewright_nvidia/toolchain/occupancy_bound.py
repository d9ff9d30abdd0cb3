"""Occupancy bounds: ``.maxnreg`` and ``.minnctapersm`` where ptxas's own choice is bad.

Without a bound, ptxas minimizes registers. It starts one load of a tile, uses its result, and
starts the next load in the same registers; with many threads it spills although registers are free.
With a bound (``.minnctapersm`` or ``.maxnreg``), it uses the registers that the bound leaves and
starts all loads first.

ptxas allocates a kernel the registers of its most demanding region. This may be the exact path of a
``dot_scaled``, which runs only after an overflow, and the main loop then loses half of its CTAs.
The bound makes ptxas spill in that region instead.

If matmuls need more registers than a thread may have, ptxas without a bound abandons and uses 32
registers. It then spills several times as much as with 255.

The bound is an estimate of the registers that frequent regions need. For kernels that hold large
tiles without matmuls, ptxas may need fewer registers. The assembler first attempts more CTAs
(:mod:`.occupancy_attempt`), and keeps the result if nothing spills. If a light kernel spills
under its register limit, the assembler attempts greater limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tilewright.ir.core import Function, Module
from tilewright.ir.ops.control import Scan
from tilewright.simt.analysis.register_pressure import hot_peak_words, peak_words
from tilewright.simt.compile import kernel_of
from tilewright.simt.dialect.attributes import COLD, PROGRAMS, SHARED_BYTES, WARPS
from tilewright.simt.dialect.ops.dot import DotStep, Multiplication
from tilewright.simt.dialect.ops.warp_specialize import Part
from tilewright.simt.target.matmul_plan import MULTIPLYING, REGISTERS
from tilewright.simt.target.plan_selection import plan_of
from tilewright.simt.target.simt_target import SimtTarget

#: The maximum CTAs per SM, for kernels with matmuls and for others, and the minimum registers per
#: thread that a bound leaves.
_CTAS: Final = 4
_STREAMING_CTAS: Final = 16
_REGISTERS: Final = 64
#: Maximum b32 words of tiles that a thread of a light kernel holds at once.
_LIGHT: Final = 56
#: Maximum b32 words of tiles per thread for which ptxas gets no bound: it then starts all loads
#: with 32 registers. With a bound of 64 it uses 37 to 40 for some kernels, and 2,048 threads no
#: longer fit an SM. In kernels that hold more, it starts fewer loads at a time (GELU: one of two).
_FEW: Final = 16
#: Maximum registers per thread of other light kernels, with which 1,024 threads per SM hide the
#: memory latency. Without it, ptxas trades occupancy for a better instruction order (measured: a
#: random number generator, bound by memory with 64 registers, takes 1.13 times as long with the 70
#: that ptxas would use).
_LIGHT_REGISTERS: Final = 64
#: Registers besides tiles if no matmul reads fragments: for index arithmetic ptxas uses 20 to 45 if
#: there are plenty, and 30 if registers are scarce (sm_90a and sm_100a, scaled dots of 64x64 to
#: 128x128, 4 and 8 warps).
_INDICES: Final = 30
#: Registers per b32 word of large tiles without matmuls: ptxas starts loads before it has stored
#: earlier results. A factor of 1 made row norms of 32 to 64 elements per thread spill 340 to 800
#: bytes (sm_90a), and take 1.4 times as long (H200).
_STREAMING: Final = 2
#: Minimum registers besides such tiles when more CTAs are attempted: with fewer, ptxas serializes
#: loads (of 16 loads of `amax`, all are in flight with 96 words and 112 registers, and two with
#: 80).
_BESIDE: Final = 16
#: Function attribute: the CTAs per SM to attempt, more than the bound.
ATTEMPTED: Final = "attempted_programs"


def has_matmuls(function: Function) -> bool:
    """Return whether a kernel has matmuls."""
    return any(isinstance(operation, (*MULTIPLYING, DotStep)) for operation in function.walk())


def is_light(function: Function) -> bool:
    """Return whether a kernel has no matmuls and its threads hold few b32 words of tiles."""
    return not has_matmuls(function) and peak_words(function) <= _LIGHT


def most_registers(function: Function) -> int | None:
    """Return the maximum registers per thread of a light kernel; None to leave it to ptxas."""
    return _LIGHT_REGISTERS if is_light(function) and peak_words(function) > _FEW else None


def bound_occupancy(module: Module, target: SimtTarget, options: Mapping[str, Any]) -> None:
    """Bound the CTAs per SM of kernels with cold regions, large tiles or oversized matmuls."""
    function = kernel_of(module)
    operations = list(function.walk())
    moves_registers = any(
        isinstance(operation, Part) and operation.registers for operation in operations
    )
    is_settled = options.get("maxnreg") or PROGRAMS in function.attributes or moves_registers
    words = hot_peak_words(function)
    # a scan holds several times its tile, which the estimate ignores
    multiplies = has_matmuls(function)
    scans = any(isinstance(operation, Scan) for operation in operations)
    streams = not multiplies and not scans and _LIGHT < words <= target.resources.registers
    overflows = multiplies and words > target.resources.registers
    if is_settled or not (
        streams or overflows or any(COLD in operation.attributes for operation in operations)
    ):
        return
    threads, shared = (
        int(function.attributes[WARPS]) * target.resources.warp_size,
        int(function.attributes[SHARED_BYTES]),
    )
    reads_fragments = any(
        isinstance(operation, Multiplication) and REGISTERS in plan_of(operation, target).reads
        for operation in operations
    )
    beside = target.costs.other_registers if reads_fragments else _INDICES
    most = _STREAMING_CTAS if streams else _CTAS

    def resident(needed: int) -> int:
        """Return the CTAs per SM whose threads get ``needed`` registers; at least 1."""

        def fits(programs: int) -> bool:
            registers = min(
                target.resources.registers + 1,
                target.resources.register_file // (threads * programs),
            )
            return max(
                _REGISTERS, needed
            ) <= registers and shared <= target.resources.resident_memory(programs)

        return max((programs for programs in range(2, most + 1) if fits(programs)), default=1)

    # with a bound of one CTA, ptxas allocates all registers: without one it abandons on some
    # kernels and spills with 40
    programs = function.attributes[PROGRAMS] = resident(
        (_STREAMING * words if streams else words) + beside
    )
    if streams and (attempted := resident(words + _BESIDE)) > programs:
        function.attributes[ATTEMPTED] = attempted
