"""Epilogues of matmuls that are ready-made, and operations with such."""
