"""Evaluation of regions of scalars (combine, map) on LLVM scalars."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.core import Region
from tilewright.llvm.emission.scalar_regions import evaluate_vectors, is_straight_line
from tilewright_cpu.codegen.context import Context
from tilewright_cpu.codegen.control.region import lower_region


def evaluate_scalars(context: Context, region: Region, arguments: Sequence[str]) -> list[str]:
    """Results of any region of scalars, control flow and memory accesses included."""
    if is_straight_line(region):
        return evaluate_vectors(context, region, arguments, 0)
    for value, name in zip(region.arguments, arguments, strict=True):
        context.bind_scalar(value, name)
    saved, context.in_elements = context.in_elements, True
    try:
        terminator = lower_region(context, region)
    finally:
        context.in_elements = saved
    return [context.scalar(value) for value in terminator.operands]
