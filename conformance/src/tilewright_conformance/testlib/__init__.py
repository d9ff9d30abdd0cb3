"""What families of cases are written with: tables of cases, numbers and bits of every type, tiles in dense arrays, threads, settings of the environment.

What does not live here: what one family alone needs, which is in its package below ``cases``, and
whole kernels.
"""
