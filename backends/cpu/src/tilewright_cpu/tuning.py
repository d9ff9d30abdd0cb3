"""The autotuner's hooks: configurations worth trying, those that cannot fit, the order of trials.

A tile lives in the caches while a program works on it. The estimates look only at a configuration's
block sizes: its integer constants that are powers of two (or are named like a block), up to the
three largest, taken as the extents of a matmul's operands or of one tile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir import Module
from tilewright.plugins.manifest import Target
from tilewright_cpu.manifest import IGNORED
from tilewright_cpu.target import available_cores

#: Options by which configurations are not distinguished: those that change nothing in this
#: backend's code, but for one that kernels may take as a constant.
IGNORED_OPTIONS = IGNORED - {"num_stages"}
#: Options that are no block sizes.
_OPTIONS = IGNORED | {"num_threads", "enable_fp_fusion", "debug", "sanitize_overflow"}
#: Bytes an element is taken to have: tiles are computed in 32 bits where nothing else is known.
_ELEMENT = 4
#: A tile of this many elements amortises the cost of starting a program.
_WORTHWHILE = 1024
#: Elements a vector unit should get in a row.
_MIN_ROW = 16


def tuning_space(module: Module, target: Target) -> Sequence[Mapping[str, Any]]:
    """Option sets worth trying for a kernel without configurations: all threads, and half of them.

    Half are enough where memory is the limit.
    """
    half = available_cores() // 2
    return [{"num_threads": 0}, {"num_threads": half}] if half else [{"num_threads": 0}]


def block_sizes(configuration: Mapping[str, Any]) -> list[int]:
    """The block sizes of a configuration, largest first."""
    found = []
    for name, value in configuration.items():
        if name in _OPTIONS or isinstance(value, bool) or not isinstance(value, int) or value < 2:
            continue
        named = name.upper().startswith("BLOCK") or name.upper().endswith(
            ("BLOCK", "_SIZE", "BLOCK_SIZE")
        )
        # GROUP_SIZE_M and the like order programs, they are no extents
        if "GROUP" not in name.upper() and (
            named or (value >= _MIN_ROW and value & (value - 1) == 0)
        ):
            found.append(value)
    return sorted(found, reverse=True)[:3]


def footprint(configuration: Mapping[str, Any]) -> int:
    """Bytes that the tiles of one program take at once, by its block sizes; 0 where it has none."""
    sizes = block_sizes(configuration)
    if len(sizes) < 2:
        return _ELEMENT * sum(sizes)
    # with three extents: both operands and the result of a matmul; with two: one tile and its
    # counterpart
    pairs = [a * b for i, a in enumerate(sizes) for b in sizes[i + 1 :]]
    return _ELEMENT * (sum(pairs) if len(pairs) > 1 else 2 * pairs[0])


def prune(
    configurations: Sequence[Mapping[str, Any]], target: Target, arguments: Mapping[str, Any]
) -> Sequence[Mapping[str, Any]]:
    """Drop configurations with the code of an earlier one, and those too large for the L2 cache.

    One at least is left.
    """
    distinct: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for configuration in configurations:
        distinct.setdefault(_code_key(configuration), configuration)
    limit = target.limits.get("l2_bytes", 1 << 20)
    fitting = [
        configuration
        for configuration in distinct.values()
        if len(block_sizes(configuration)) < 2 or footprint(configuration) <= limit
    ]
    return fitting or [min(distinct.values(), key=footprint)] if distinct else []


def _code_key(configuration: Mapping[str, Any]) -> tuple[Any, ...]:
    """Key that is equal for configurations with the same code."""
    return tuple(
        sorted(
            (name, type(value).__name__, repr(value))
            for name, value in configuration.items()
            if name not in IGNORED_OPTIONS
        )
    )


def cost(configuration: Mapping[str, Any], target: Target, arguments: Mapping[str, Any]) -> float:
    """Distance of a configuration from the best, in doublings.

    Tiles that fill about half of the L2 cache (matmuls), or of the L1 cache (one extent), are tried
    first; short rows and tiles that hardly pay for starting a program cost extra.
    """
    sizes = block_sizes(configuration)
    if not sizes:
        return 0.0
    used = footprint(configuration)
    ideal = target.limits.get("l2_bytes" if len(sizes) > 1 else "l1d_bytes", 1 << 15) / 2
    distance = abs(math.log2(used / ideal))
    if used > ideal:
        distance *= 2  # too large is worse than too small
    elements = math.prod(sizes[:2])
    starting = max(0.0, math.log2(_WORTHWHILE / elements))
    rows = sum(max(0.0, math.log2(_MIN_ROW / size)) for size in sizes)
    return distance + starting + rows
