"""Devices: those of each backend, the choice among backends, timing, memory of the host."""
