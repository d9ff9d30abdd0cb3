"""Reverse mode: from a kernel to its adjoint kernel, a rule an operation."""
