"""A small transformer in PyTorch and in JAX, of four kernels and their derived gradients."""
