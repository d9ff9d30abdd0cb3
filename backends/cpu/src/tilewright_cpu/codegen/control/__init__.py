"""Regions, loops, branches, functions, calls, and cancellation checks."""
