"""How many warps run a program: as many as are asked for, or twice as many where the threads of
those could not hold the results of its matmuls.

What a loop's matmuls give is in registers all at once. Where that is more than a thread has, it
would be written to memory and read back in each iteration; with twice the threads each holds half
of it. A program means the same with any number of warps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tilewright.ir.core import Function, Operation, Region
from tilewright.ir.types import TileType, bit_width
from tilewright.simt.dialect.attributes import WARPS, note
from tilewright.simt.target.simt_target import SimtTarget

_MATMULS: Final = frozenset({"dot", "dot_scaled"})
#: Registers of a thread that are not for the results of matmuls, at the least.
_BESIDE: Final = 8


def set_warps(function: Function, target: SimtTarget, options: Mapping[str, Any]) -> None:
    """Set how many warps run a function.

    ``maxnreg`` leaves it at what is asked for: who knows the registers knows the warps.
    """
    warps = int(options["num_warps"])
    while not options.get("maxnreg") and (crowded := _crowded(function, target, warps)) is not None and _may_double(function, target, warps):
        note(crowded, f"{2 * warps} warps instead of {warps}, for want of registers for the results of the loop's matmuls")
        warps *= 2
    function.attributes[WARPS] = warps


def warps_asked(function: Function, options: Mapping[str, Any]) -> int:
    """The warps that run a function, of which the options tell where :func:`set_warps` was not
    asked."""
    return int(function.attributes.get(WARPS, options["num_warps"]))


def _crowded(function: Function, target: SimtTarget, warps: int) -> Operation | None:
    """A loop whose matmuls give more than the threads of some warps can hold."""
    threads = target.warp_size * warps
    room = min(target.registers, target.register_file // threads) - _BESIDE
    loops = (operation for operation in function.walk() if operation.name in ("for", "while"))
    return next((loop for loop in loops if any(_words(region) > room * threads for region in loop.regions)), None)


def _words(region: Region) -> int:
    """Words of the results of the matmuls of a region."""
    results = (operation.results[0].type for operation in region if operation.name in _MATMULS)
    return sum(type_.numel * bit_width(type_.element) // 32 for type_ in results if isinstance(type_, TileType))


def _may_double(function: Function, target: SimtTarget, warps: int) -> bool:
    """Return whether there may be twice the threads, each with as many registers, and with
    something of each matmul."""
    threads = 2 * target.warp_size * warps
    results = [operation.results[0].type for operation in function.walk() if operation.name in _MATMULS]
    least = min(type_.numel for type_ in results if isinstance(type_, TileType))
    fits = threads + target.warp_size * target.part_warps <= target.max_threads and threads * target.registers <= target.register_file
    return fits and threads <= least
