"""Kernels in models of other libraries."""
