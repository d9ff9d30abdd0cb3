"""Selection of the number of warps: as requested, or more to relieve register pressure.

A loop keeps the results of all its matmuls in registers. If these exceed the registers of a thread,
they would be spilled and reloaded in each iteration; with twice the threads, each holds half. A
program has the same meaning with any number of warps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.ir.core import Function, Operation, Region
from tilewright.ir.ops.control import LOOPS
from tilewright.ir.ops.linear import DOTS
from tilewright.ir.types import TileType, bit_width
from tilewright.simt.dialect.attributes import WARPS, note
from tilewright.simt.target.simt_target import SimtTarget


def set_warps(function: Function, target: SimtTarget, options: Mapping[str, Any]) -> None:
    """Set the number of warps of a function.

    With ``maxnreg``, it is the requested number.
    """
    warps = int(options["num_warps"])
    while (
        not options.get("maxnreg")
        and (crowded := _crowded(function, target, warps)) is not None
        and _may_double(function, target, warps)
    ):
        note(
            crowded,
            f"{2 * warps} warps instead of {warps}, for want of registers for the results of the "
            "loop's matmuls",
        )
        warps *= 2
    function.attributes[WARPS] = warps


def warps_asked(function: Function, options: Mapping[str, Any]) -> int:
    """Return the number of warps of a function; from the options before :func:`set_warps`."""
    return int(function.attributes.get(WARPS, options["num_warps"]))


def _crowded(function: Function, target: SimtTarget, warps: int) -> Operation | None:
    """Return a loop whose matmul results exceed the registers of ``warps`` warps, or None."""
    threads = target.resources.warp_size * warps
    room = min(target.resources.registers, target.resources.register_file // threads)
    room -= target.costs.thresholds.registers_beside_accumulator
    loops = (operation for operation in function.walk() if isinstance(operation, LOOPS))
    return next(
        (loop for loop in loops if any(_words(region) > room * threads for region in loop.regions)),
        None,
    )


def _words(region: Region) -> int:
    """Return the 32-bit words of the matmul results of a region."""
    results = (operation.results[0].type for operation in region if isinstance(operation, DOTS))
    return sum(
        type_.numel * bit_width(type_.element) // 32
        for type_ in results
        if isinstance(type_, TileType)
    )


def _may_double(function: Function, target: SimtTarget, warps: int) -> bool:
    """Return whether twice the threads are possible.

    Each must have as many registers, and an element of each matmul.
    """
    threads = 2 * target.resources.warp_size * warps
    results = [
        operation.results[0].type for operation in function.walk() if isinstance(operation, DOTS)
    ]
    minimum = min(type_.numel for type_ in results if isinstance(type_, TileType))
    sizes = target.resources
    producers = (
        0 if target.warp_specialization is None else target.warp_specialization.warp_multiple
    )
    fits = (
        threads + sizes.warp_size * producers <= sizes.max_threads
        and threads * sizes.registers <= sizes.register_file
    )
    return fits and threads <= minimum
