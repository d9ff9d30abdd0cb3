"""Matmuls of matrices in memory: plans, packing, micro-kernels and blocking."""
