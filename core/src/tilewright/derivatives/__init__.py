"""Derivatives of kernels, as passes from Tile IR to Tile IR."""
