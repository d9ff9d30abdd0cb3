"""Launches: the kernel arguments, the waves' schedule, and the coverage of instructions."""
