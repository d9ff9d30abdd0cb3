"""Bounds checks of kernels compiled with ``debug``: lane by lane, and once a loop nest."""
