"""Preparation of a module for layout assignment.

After the standard passes, inline calls, expand descriptors and block-scaled matmuls into plain
operations, and start longer programs first.
"""

from __future__ import annotations

from tilewright.ir.core import Function, Module
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.cse import cse
from tilewright.passes.dce import dce
from tilewright.passes.inline import inline
from tilewright.passes.licm import licm
from tilewright.simt.passes.program_order import start_longest_first
from tilewright.simt.passes.scaled.expand_scaled import expand_scaled
from tilewright.simt.passes.tma.expand_descriptors import expand_descriptors
from tilewright.simt.passes.unroll import unroll_short_loops
from tilewright.simt.passes.unroll_exchanges import unroll_exchanges
from tilewright.simt.target.simt_target import SimtTarget


def prepare(module: Module, target: SimtTarget) -> None:
    """Leave the module's kernel alone in it, made of operations that the toolkit lowers.

    A descriptor that is an argument becomes several: the tensor's base address, its extents, its
    strides (i64, in elements), which launchers pass in this order. Where
    ``target.tma`` asks for it, the descriptor stays, before them. So do block-scaled
    matmuls where ``target.matrix.keeps_scaled`` does.
    """
    changed = inline(module)
    (kernel,) = module.functions.values()
    changed |= expand_function(kernel, target)
    changed |= start_longest_first(kernel)
    if changed:
        for pass_ in (canonicalize, cse, licm, canonicalize, cse, dce):
            pass_(module)
    thresholds = target.costs.thresholds
    unrolled = unroll_short_loops(kernel, thresholds)
    if unrolled:
        canonicalize(module)
    while unroll_exchanges(kernel, thresholds):
        unrolled = True
        canonicalize(module)
    if unrolled:
        for pass_ in (cse, dce):
            pass_(module)


def expand_function(kernel: Function, target: SimtTarget) -> bool:
    """Expand a kernel without calls; return whether there was anything to expand."""
    scaled = expand_scaled(kernel, target)
    return expand_descriptors(kernel, target) or scaled
