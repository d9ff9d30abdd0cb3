"""The simplifications of a finished kernel, in order."""

from __future__ import annotations

from tilewright.derivatives.simplify.masks import delay_masks, drop_masks
from tilewright.derivatives.simplify.shorten_reductions import shorten_reductions
from tilewright.derivatives.simplify.spread_accumulators import release_accumulators
from tilewright.derivatives.simplify.uniform_factors import Allows, pull_out_factors
from tilewright.ir.core import Module
from tilewright.ir.verifier import verify
from tilewright.passes.clone import clone_module
from tilewright.passes.pipeline import run as run_passes


def simplify_kernel(module: Module, allows: Allows) -> Module:
    """Return a kernel with fewer operations that computes the same gradients.

    Args:
        allows: see :func:`.uniform_factors.pull_out_factors`.
    """
    made = clone_module(module)
    delayed = delay_masks(made)
    if delayed:
        run_passes(made)
    dropped = drop_masks(made)
    pulled = pull_out_factors(made, allows)
    released = release_accumulators(made)
    shortened = shorten_reductions(made)
    if dropped or pulled or released or shortened:
        run_passes(made)
    elif not delayed:
        return module
    verify(made)
    return made


__all__ = ["simplify_kernel"]
