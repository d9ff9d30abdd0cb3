"""Inline assembly of kernels: constraints, operands, places for the assembler's errors."""
