"""Launches: ``jit``, binding of arguments, native dispatch, compiled kernels and their plans."""
