"""Compatibility layers: ``compat.triton`` lets programs written for Triton run unchanged.

What does not live here: anything that kernels written for Tilewright need.
"""
