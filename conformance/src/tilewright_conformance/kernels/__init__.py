"""Library of whole kernels, which cases, benchmarks and tests share.

Kernels that show one rule of the language are beside the cases of that rule; those that people copy
are in ``examples``.
"""
