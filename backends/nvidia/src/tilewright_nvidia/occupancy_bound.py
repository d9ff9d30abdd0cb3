"""How many registers a thread may take, or how many CTAs are to share an SM, for kernels to which ptxas gives registers that do not serve them.

Without a bound on the registers ptxas takes as few as it can: of the loads of a tile it starts one, uses what it has loaded, and starts the next in the same
registers, and with many threads it spills although registers are left. With a bound, ``.minnctapersm`` or ``.maxnreg``, it takes the registers that the bound
leaves, and starts all loads first. So a bound serves loops that load large tiles, and takes CTAs from kernels that run once through: their CTAs hide each
other's latencies (a rotary embedding took 48 registers with a bound of 64, and 1.6 times as long as Triton's code, which has 32; H200).

ptxas gives a kernel the registers of its most demanding region, be it the exact path of a ``dot_scaled``, which runs only after an overflow: the loop that
computes everything else then loses half of its CTAs. The bound makes ptxas spill in that region instead.

Where products take more registers than a thread may have, ptxas gives up without a bound, and takes 32: it then spills several times what it spills with 255.

The bound is what the regions that run often need, by an estimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tilewright.ir.core import Function, Module, Region
from tilewright.ir.ops.control import For, If, Reduce, Scan, While
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.types import TileType
from tilewright.simt.compile import kernel_of
from tilewright.simt.facts import COLD, PROGRAMS, SHARED_BYTES, WARPS
from tilewright.simt.matmul_plans import MULTIPLYING, REGISTERS
from tilewright.simt.ops.partitions import Part
from tilewright.simt.ops.products import DotStep, Multiplication
from tilewright.simt.plans import plan_of
from tilewright.simt.pressure import hot_peak_words, peak_words, words_of
from tilewright.simt.target import SimtTarget

#: CTAs of an SM at most, for kernels with products and for others, and registers that a bound leaves to a thread at least.
_CTAS: Final = 4
_STREAMING_CTAS: Final = 16
_REGISTERS: Final = 64
#: Words of tiles that a thread of a light kernel holds at once at most.
_LIGHT: Final = 56
#: Words that the loads of a loop's turn hold at least, where their latencies are those that count: four loads of 16 bytes.
_LOADED: Final = 16
#: Elementwise operations for each load and store of kernels that mostly compute: a generator of random numbers has about 100.
_ARITHMETIC: Final = 32
#: Words of tiles that a thread of a kernel with reductions holds at once, where ptxas is left to itself: of more, which wait for a reduction, it spills some to
#: take 32 registers. Without reductions it computes tiles element by element.
_WAITING: Final = 12
#: Registers of a thread of other light kernels at most: 1,024 threads of an SM then hide the memory's latency, which ptxas, left to itself, gives away for a
#: better order of instructions (measured: a generator of random numbers, bound by memory with 64 registers, takes 1.13 times as long with the 70 it would get).
_LIGHT_REGISTERS: Final = 64
#: Registers beside tiles where no product reads fragments: for index arithmetic ptxas takes 20 to 45 where there are plenty, and 30 where there are few
#: (sm_90a and sm_100a, scaled dots of 64x64 to 128x128, 4 and 8 warps).
_INDICES: Final = 30
#: How many registers ptxas takes for a word of a kernel that loads large tiles without multiplying them: it starts loads before the results of others are
#: stored. Bounds of 1 made row norms of 32 to 64 elements a thread spill 340 to 800 bytes (sm_90a), and take 1.4 times as long (H200).
_STREAMING: Final = 2


def has_products(function: Function) -> bool:
    """Return whether a kernel multiplies matrices."""
    return any(isinstance(operation, (*MULTIPLYING, DotStep)) for operation in function.walk())


def is_light(function: Function) -> bool:
    """Return whether a kernel multiplies no matrices and its threads hold few words of tiles."""
    return not has_products(function) and peak_words(function) <= _LIGHT


def most_registers(function: Function) -> int | None:
    """Return how many registers a thread of a light kernel may take; None where ptxas is left to itself."""
    if not is_light(function):
        return None
    operations = list(function.walk())
    accesses = sum(isinstance(operation, Load | Store) for operation in operations)
    arithmetic = sum(operation.spec.elementwise and isinstance(operation.results[0].type, TileType) for operation in operations)
    waits = any(isinstance(operation, Reduce | Scan) for operation in operations) and hot_peak_words(function) > _WAITING
    return _LIGHT_REGISTERS if waits or arithmetic > _ARITHMETIC * max(1, accesses) else None


def words_loaded_in_loops(function: Function) -> int:
    """Return the most 32-bit words that a thread loads in one turn of a loop, without those of loops within it."""
    return max((_loaded(region) for loop in function.walk() if isinstance(loop, For | While) for region in loop.regions), default=0)


def _loaded(region: Region) -> int:
    loads = [operation for operation in region if isinstance(operation, Load) and isinstance(operation.result.type, TileType)]
    inside = [_loaded(inner) for operation in region if isinstance(operation, If) for inner in operation.regions]
    return sum(words_of(load.result) for load in loads) + max(inside, default=0)


def bound_occupancy(module: Module, target: SimtTarget, options: Mapping[str, Any]) -> None:
    """Set how many CTAs share an SM, for kernels with regions that hardly ever run, for those that load large tiles in loops or hold more than a CTA's
    registers without multiplying them, and for products of more than registers can hold."""
    function = kernel_of(module)
    operations = list(function.walk())
    moves_registers = any(isinstance(operation, Part) and operation.registers for operation in operations)
    is_settled = options.get("maxnreg") or PROGRAMS in function.attributes or moves_registers
    words = hot_peak_words(function)
    # a scan holds several times its tile, which the estimate does not know
    multiplies = has_products(function)
    scans = any(isinstance(operation, Scan) for operation in operations)
    threads, shared = int(function.attributes[WARPS]) * target.warp_size, int(function.attributes[SHARED_BYTES])
    # where tiles take more registers than one CTA has for its threads, the bound has ptxas use them all
    is_crowded = words + _INDICES > target.register_file // threads
    is_served = is_crowded or words_loaded_in_loops(function) >= _LOADED
    streams = not multiplies and not scans and _LIGHT < words <= target.registers and is_served
    overflows = multiplies and words > target.registers
    if is_settled or not (streams or overflows or any(COLD in operation.attributes for operation in operations)):
        return
    reads_fragments = any(isinstance(operation, Multiplication) and REGISTERS in plan_of(operation, target).reads for operation in operations)
    needed = max(_REGISTERS, (_STREAMING * words if streams else words) + (target.costs.other_registers if reads_fragments else _INDICES))
    most = _STREAMING_CTAS if streams else _CTAS

    def fits(programs: int) -> bool:
        registers = min(target.registers + 1, target.register_file // (threads * programs))
        return needed <= registers and shared <= target.resident_memory(programs)

    # with a bound of one CTA, ptxas allocates all registers that there are: without one it gives up on some kernels and spills with 40
    function.attributes[PROGRAMS] = max((programs for programs in range(2, most + 1) if fits(programs)), default=1)
