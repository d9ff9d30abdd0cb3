"""What the autotuner is told about this backend: what is worth trying, what cannot fit, what to try first.

The estimates look only at a configuration: its block sizes (integer constants that are powers of two, or are named like a block), up to the three greatest,
taken as the extents M, N, K of a matrix product or of one tile, and its ``num_warps`` and ``num_stages``. They are lower bounds of what a kernel needs,
so that nothing is dropped that could run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir import Module
from tilewright.ir.types import TileType
from tilewright.plugins.manifest import Target

#: Options that are no block sizes.
_OPTIONS = frozenset(("num_warps", "num_stages", "num_ctas", "maxnreg", "math", "launch_pdl", "enable_fp_fusion", "debug", "sanitize_overflow"))
#: Bytes that an operand's element takes at least.
_NARROW = 1
#: Registers a thread may have.
_MOST_REGISTERS = 255
#: Elements that a thread should have of a tile.
_IDEAL_ELEMENTS = 16


def tuning_space(module: Module, target: Target) -> Sequence[Mapping[str, Any]]:
    """Option sets worth trying for a kernel without configurations: warps by the greatest tile, and stages where it multiplies matrices in a loop."""
    greatest = max((value.type.numel for operation in module.walk() for value in operation.results if isinstance(value.type, TileType)), default=1)
    warps = [count for count in (1, 2, 4, 8, 16) if 32 * count <= max(32, greatest)]
    if not any(operation.name == "dot" for operation in module.walk()):
        return [{"num_warps": count} for count in warps]
    return [{"num_warps": count, "num_stages": stages} for count in warps if count in (4, 8) or len(warps) < 3 for stages in (2, 3, 4)]


def block_sizes(configuration: Mapping[str, Any]) -> list[int]:
    """The block sizes of a configuration by the order of their names' axes, at most three: those named with M, N and K, or the greatest ones."""
    found = {}
    for name, value in configuration.items():
        upper = name.upper()
        if name in _OPTIONS or isinstance(value, bool) or not isinstance(value, int) or value < 2 or "GROUP" in upper:
            continue
        if upper.startswith("BLOCK") or upper.endswith(("BLOCK", "_SIZE", "BLOCK_SIZE")) or (value >= 16 and value & (value - 1) == 0):
            found[upper] = value
    axes = [next((value for name, value in found.items() if name.rstrip("0123456789").endswith(axis)), None) for axis in "MNK"]
    if None not in axes:
        return [value for value in axes if value is not None]
    return sorted(found.values(), reverse=True)[:3]


def shared_bytes(configuration: Mapping[str, Any]) -> int:
    """Bytes that the operands of a product take at least in a pipeline; 0 for configurations of fewer than three extents."""
    sizes = block_sizes(configuration)
    if len(sizes) < 3:
        return 0
    m, n, k = sizes
    return (m + n) * k * _NARROW * max(1, int(configuration.get("num_stages", 3)) - 1)


def registers(configuration: Mapping[str, Any]) -> float:
    """Registers that a thread needs at least: its part of the result."""
    sizes = block_sizes(configuration)
    if len(sizes) < 3:
        return 0.0
    return sizes[0] * sizes[1] / (32 * int(configuration.get("num_warps", 4)))


def prune(configurations: Sequence[Mapping[str, Any]], target: Target, arguments: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Drop configurations that cannot fit: operands beyond the shared memory, results beyond the registers, too many threads; never all of them."""
    shared = int(target.limits.get("shared_memory", 48 << 10))
    threads = int(target.limits.get("max_threads", 1024))
    fitting = [
        configuration
        for configuration in configurations
        if shared_bytes(configuration) <= shared and registers(configuration) <= 2 * _MOST_REGISTERS and 32 * int(configuration.get("num_warps", 4)) <= threads
    ]
    if fitting or not configurations:
        return fitting
    return [min(configurations, key=lambda configuration: (shared_bytes(configuration), registers(configuration)))]


def cost(configuration: Mapping[str, Any], target: Target, arguments: Mapping[str, Any]) -> float:
    """How far a configuration is from the usual best, in doublings, lowest first: a product's result that takes about half of the registers and is square;
    a tile of which each thread has about sixteen elements. Spilling and missing stages cost extra."""
    sizes = block_sizes(configuration)
    warps, stages = int(configuration.get("num_warps", 4)), int(configuration.get("num_stages", 3))
    if not sizes:
        return abs(math.log2(warps / 4))
    if len(sizes) < 3:
        return abs(math.log2(max(1, math.prod(sizes)) / (32 * warps) / _IDEAL_ELEMENTS))
    needed = registers(configuration)
    distance = abs(math.log2(needed / (_MOST_REGISTERS / 2)))
    if needed > 0.75 * _MOST_REGISTERS:
        distance += 4 * math.log2(needed / (0.75 * _MOST_REGISTERS))
    return distance + abs(math.log2(sizes[0] / sizes[1])) / 2 + max(0, 3 - stages) / 2
