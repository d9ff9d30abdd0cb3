"""Kernels as people write them, for cases, benchmarks and tests that need just some kernel.

Kernels that show one rule of the language are beside the cases of that rule; those that people copy
are in ``examples``.
"""
