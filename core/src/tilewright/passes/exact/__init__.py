"""Exact mode: a module on floats rewritten to compute in the ring Z/251^k, with integers alone.

Kernels that are the same algebra then return the same bits, in any order of additions, tiling,
split or fusion, on every target. :func:`tilewright.passes.exact.rewrite.exact` is the pass; each
operation's law is a row (:mod:`tilewright.passes.exact.rules`) beside the function that emits it.
"""
