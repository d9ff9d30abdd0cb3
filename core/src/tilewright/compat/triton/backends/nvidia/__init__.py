"""``triton.backends.nvidia``: what programs import of Triton's backend for NVIDIA's GPUs."""
