"""Runs of kernels that record their values."""
