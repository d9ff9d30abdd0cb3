"""``triton.backends.amd``: what programs import of Triton's backend for AMD's GPUs."""
