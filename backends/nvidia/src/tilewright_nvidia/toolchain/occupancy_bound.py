"""Occupancy bounds: ``.maxnreg`` and ``.minnctapersm`` where ptxas's own choice serves badly.

Without a bound on the registers ptxas takes as few as it can: of the loads of a tile it starts one, uses what it has loaded, and starts the next in the same
registers, and with many threads it spills although registers are left. With a bound, ``.minnctapersm`` or ``.maxnreg``, it takes the registers that the bound
leaves, and starts all loads first.

ptxas gives a kernel the registers of its most demanding region, be it the exact path of a ``dot_scaled``, which runs only after an overflow: the loop that
computes everything else then loses half of its CTAs. The bound makes ptxas spill in that region instead.

Where products take more registers than a thread may have, ptxas gives up without a bound, and takes 32: it then spills several times what it spills with 255.

The bound is what the regions that run often need, by an estimate. Of kernels that hold large tiles without multiplying them ptxas may need less: more CTAs are
attempted where the PTX is assembled (:mod:`.occupancy_attempt`), and taken if nothing spills.
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

#: CTAs of an SM at most, for kernels with products and for others, and registers that a bound leaves to a thread at least.
_CTAS: Final = 4
_STREAMING_CTAS: Final = 16
_REGISTERS: Final = 64
#: Words of tiles that a thread of a light kernel holds at once at most.
_LIGHT: Final = 56
#: Words of tiles that a thread holds at once at most where ptxas is left to itself: so few that it starts all loads with 32 registers. With a bound of 64 it
#: takes 37 to 40 for some, and 2,048 threads no longer fit an SM; of kernels that hold more, it starts fewer loads at a time (GELU: one of two).
_FEW: Final = 16
#: Registers of a thread of other light kernels at most: 1,024 threads of an SM then hide the memory's latency, which ptxas, left to itself, gives away for a
#: better order of instructions (measured: a generator of random numbers, bound by memory with 64 registers, takes 1.13 times as long with the 70 it would get).
_LIGHT_REGISTERS: Final = 64
#: Registers beside tiles where no product reads fragments: for index arithmetic ptxas takes 20 to 45 where there are plenty, and 30 where there are few
#: (sm_90a and sm_100a, scaled dots of 64x64 to 128x128, 4 and 8 warps).
_INDICES: Final = 30
#: How many registers ptxas takes for a word of a kernel that holds large tiles without multiplying them: it starts loads before the results of others are
#: stored. Bounds of 1 made row norms of 32 to 64 elements a thread spill 340 to 800 bytes (sm_90a), and take 1.4 times as long (H200).
_STREAMING: Final = 2
#: Registers beside the words of such tiles that more CTAs leave to a thread at least: with fewer, ptxas starts loads one after the other (of 16 loads of `amax`
#: all with 96 words and 112 registers, and two with 80).
_BESIDE: Final = 16
#: Attribute of a function: the CTAs of an SM to attempt, more than it is bound to.
ATTEMPTED: Final = "attempted_programs"


def has_products(function: Function) -> bool:
    """Return whether a kernel multiplies matrices."""
    return any(isinstance(operation, (*MULTIPLYING, DotStep)) for operation in function.walk())


def is_light(function: Function) -> bool:
    """Return whether a kernel multiplies no matrices and its threads hold few words of tiles."""
    return not has_products(function) and peak_words(function) <= _LIGHT


def most_registers(function: Function) -> int | None:
    """Return how many registers a thread of a light kernel may take; None where ptxas is left to itself."""
    return _LIGHT_REGISTERS if is_light(function) and peak_words(function) > _FEW else None


def bound_occupancy(module: Module, target: SimtTarget, options: Mapping[str, Any]) -> None:
    """Set how many CTAs share an SM, for kernels with regions that hardly ever run, and for those that hold large tiles, without multiplying them or more than
    registers can hold."""
    function = kernel_of(module)
    operations = list(function.walk())
    moves_registers = any(isinstance(operation, Part) and operation.registers for operation in operations)
    is_settled = options.get("maxnreg") or PROGRAMS in function.attributes or moves_registers
    words = hot_peak_words(function)
    # a scan holds several times its tile, which the estimate does not know
    multiplies = has_products(function)
    scans = any(isinstance(operation, Scan) for operation in operations)
    streams = not multiplies and not scans and _LIGHT < words <= target.registers
    overflows = multiplies and words > target.registers
    if is_settled or not (streams or overflows or any(COLD in operation.attributes for operation in operations)):
        return
    threads, shared = int(function.attributes[WARPS]) * target.warp_size, int(function.attributes[SHARED_BYTES])
    reads_fragments = any(isinstance(operation, Multiplication) and REGISTERS in plan_of(operation, target).reads for operation in operations)
    beside = target.costs.other_registers if reads_fragments else _INDICES
    most = _STREAMING_CTAS if streams else _CTAS

    def resident(needed: int) -> int:
        """CTAs of which each thread has the registers that it needs; 1 where not even one has."""

        def fits(programs: int) -> bool:
            registers = min(target.registers + 1, target.register_file // (threads * programs))
            return max(_REGISTERS, needed) <= registers and shared <= target.resident_memory(programs)

        return max((programs for programs in range(2, most + 1) if fits(programs)), default=1)

    # with a bound of one CTA, ptxas allocates all registers that there are: without one it gives up on some kernels and spills with 40
    programs = function.attributes[PROGRAMS] = resident((_STREAMING * words if streams else words) + beside)
    if streams and (attempted := resident(words + _BESIDE)) > programs:
        function.attributes[ATTEMPTED] = attempted
