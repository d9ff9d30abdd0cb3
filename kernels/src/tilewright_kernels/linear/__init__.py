"""Matmuls and what is built of them."""
