"""Matmuls of matrices in memory: plans, packing, micro-kernels and blocking, of which no file but the remainder knows a context."""
