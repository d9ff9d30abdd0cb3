"""Re-tiling of kernels whose programs add to each other's elements."""
