"""The host side: the CUDA driver and its devices, ahead-of-time compilation, export to C."""
