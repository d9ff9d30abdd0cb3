"""Expansion of pipelined loops, each by its copy mechanism and partitions."""

from __future__ import annotations

from tilewright.ir.core import Function
from tilewright.ir.ops.control import For
from tilewright.passes.dce import dce_function
from tilewright.simt.dialect.pipeline_attributes import CHAIN, FORM, PARTS
from tilewright.simt.pipeline.modulo_expander import ModuloExpander, kinds
from tilewright.simt.pipeline.partitions.back_to_back_partitions import (
    BackToBackConsumer,
    BackToBackProducer,
)
from tilewright.simt.pipeline.partitions.tma_partitions import Consumer, Producer, expand_partitions
from tilewright.simt.pipeline.start_matmuls import start_matmuls
from tilewright.simt.target.simt_target import SimtTarget

#: The producer's and the consumer's copies of each warp-specialized form.
PARTITIONS = {PARTS: (Producer, Consumer), CHAIN: (BackToBackProducer, BackToBackConsumer)}


def expand(function: Function, target: SimtTarget) -> None:
    """Expand the loops that have a schedule."""
    changed = False
    # warp specialization comes before the expansion of other loops, so that the producer contains
    # nothing of them
    for form, (producer, consumer) in PARTITIONS.items():
        if loops := _loops(function, form):
            expand_partitions(loops, target, producer, consumer)
            dce_function(function)
            changed = True
    for form, copies in kinds().items():
        for loop in _loops(function, form):
            expander = ModuloExpander(loop, target)
            expander.expand(copies(expander))
            changed = True
    if start_matmuls(function, target) or changed:
        dce_function(function)


def _loops(function: Function, form: str) -> list[For]:
    """Return the loops of a form, in program order."""
    return [
        operation
        for operation in function.walk()
        if isinstance(operation, For) and operation.attributes.get(FORM) == form
    ]
