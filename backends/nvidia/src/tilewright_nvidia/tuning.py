"""Autotuner hooks: the configurations to try, to prune, and their order.

Kernels with matmuls use :mod:`.performance_model`; others use the elements per thread of their
largest tile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tilewright.ir import Module
from tilewright.ir.ops.linear import Dot
from tilewright.ir.types import TileType, byte_size
from tilewright.ir.work import Work
from tilewright.plugins.manifest import Target
from tilewright_nvidia.architectures import ARCHITECTURES
from tilewright_nvidia.performance_model import Estimate, estimate

#: The ideal number of elements of a tile per thread.
_IDEAL_ELEMENTS: Final = 16
#: A configuration is pruned if its estimate exceeds the minimum by this factor, or if it spills
#: this many registers.
_HOPELESS: Final = 2.0
_SPILLED: Final = 96
#: Pipeline depths to try: on any GPU, with TMA, and additionally for tiles narrow enough to fit.
_STAGES, _DEEP, _DEEPEST = (2, 3, 4), (3, 4, 5), (6, 8)


def tuning_space(module: Module, target: Target) -> Sequence[Mapping[str, Any]]:
    """Return the options to try for a kernel without configurations.

    They vary the number of warps up to the largest tile, and with matmuls the pipeline depth. On
    Hopper they also vary wgmma with TMA, with and without warp specialization.
    """
    largest = max(
        (
            value.type.numel
            for operation in module.walk()
            for value in operation.results
            if isinstance(value.type, TileType)
        ),
        default=1,
    )
    warps = [count for count in (1, 2, 4, 8, 16) if 32 * count <= max(32, largest)]
    operands = [
        _bytes(operation.a.type) + _bytes(operation.b.type)
        for operation in module.walk()
        if isinstance(operation, Dot)
    ]
    if not operands:
        return [{"num_warps": count} for count in warps]
    chosen = [count for count in warps if count in (4, 8)] or warps[-1:]
    if ARCHITECTURES[target.arch].capability != 90:
        return [
            {"num_warps": count, "num_stages": stages} for count in chosen for stages in _STAGES
        ]
    shared = int(target.limits.get("shared_memory", ARCHITECTURES[target.arch].shared_memory))
    depths = (*_DEEP, *(stages for stages in _DEEPEST if stages * max(operands) <= shared))
    ways: list[dict[str, Any]] = [
        {"asynchronous": False},
        {"asynchronous": True},
        {"asynchronous": True, "warp_specialize": True},
    ]
    return [
        {"num_warps": count, "num_stages": stages, **way}
        for count in chosen
        for way in ways
        for stages in (depths if way["asynchronous"] else _STAGES)
    ]


def _bytes(type_: Any) -> int:
    return type_.numel * byte_size(type_.element) if isinstance(type_, TileType) else 0


def prune(
    configurations: Sequence[Mapping[str, Any]], target: Target, works: Sequence[Work | None]
) -> Sequence[Mapping[str, Any]]:
    """Drop configurations that cannot fit, duplicate others or are estimated to be slow.

    A configuration does not fit if it has too many threads or far too few registers. It duplicates
    another if limited shared memory reduces both pipelines to the same depth. At least one
    configuration remains.
    """
    threads = int(target.limits.get("max_threads", 1024))
    estimates = [_estimate(work, target) for work in works]
    minimum = min((found.cycles for found in estimates if found is not None), default=0.0)
    kept, seen = [], set[Any]()
    for configuration, found in zip(configurations, estimates, strict=True):
        if 32 * int(configuration.get("num_warps", 4)) > threads:
            continue
        if found is not None:
            same = (
                repr(
                    sorted(
                        (name, value)
                        for name, value in configuration.items()
                        if name != "num_stages"
                    )
                ),
                found.slots,
            )
            if found.spilled > _SPILLED or found.cycles > _HOPELESS * minimum or same in seen:
                continue
            seen.add(same)
        kept.append(configuration)
    return kept or [
        configurations[min(range(len(configurations)), key=lambda place: _order(estimates[place]))]
    ]


def _order(found: Estimate | None) -> float:
    return math.inf if found is None else found.cycles


def _estimate(work: Work | None, target: Target) -> Estimate | None:
    return estimate(work, target) if work is not None and work.multiplies else None


def cost(configuration: Mapping[str, Any], target: Target, work: Work | None) -> float:
    """Estimate a configuration's cost, to order the configurations of a kernel, lowest first.

    With matmuls this is the cycles. Otherwise it is the distance, in doublings, of a thread's
    elements of the largest tile from the ideal. It is 0 if nothing is known about the kernel.
    """
    if work is None:
        return 0.0
    found = _estimate(work, target)
    if found is not None:
        return found.cycles
    return abs(
        math.log2(
            work.max_tile_elements
            / (32 * int(work.options.get("num_warps") or 4))
            / _IDEAL_ELEMENTS
        )
    )
