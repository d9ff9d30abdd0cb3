"""Simplifications of a plan's finished kernels, whose loops then do what one by hand does.

``simplify_kernel`` runs them in order: ``delay_masks`` behind exponentials, ``drop_masks`` of lanes
that nothing stores or that are zero already, ``pull_out_factors`` of sums, ``release_accumulators``
of what spreads to all lanes, ``shorten_reductions`` of loops of long matmuls.
"""
