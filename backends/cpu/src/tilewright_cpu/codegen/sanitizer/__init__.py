"""Checks of memory accesses against the arguments' bounds, in kernels compiled with ``debug``: lane by lane, and once a loop nest."""
