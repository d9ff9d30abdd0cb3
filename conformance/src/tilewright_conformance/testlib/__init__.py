"""Test utilities of the families: tables of cases, numbers and bits, tiles, threads, environment.

The needs of a single family are in its package below ``cases``; whole kernels are in ``kernels``.
"""
