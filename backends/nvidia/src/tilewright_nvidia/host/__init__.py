"""The host's side: the CUDA driver and its devices, device code ahead of time, export to C."""
