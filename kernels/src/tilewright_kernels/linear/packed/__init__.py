"""Weights of 2, 4 and 8 bits in words: their layout, and kernels that unpack them."""
