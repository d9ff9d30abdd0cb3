"""Kernels as people write them, one file a kind: what cases, benchmarks and tests run when they do not mind which kernel it is.

What does not live here: kernels that show one rule of the language, which are beside the cases of
that rule, and those of ``examples``, which people copy.
"""
