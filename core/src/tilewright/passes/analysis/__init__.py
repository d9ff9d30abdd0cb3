"""Analyses: indices (axis, affine, intervals), accessed memory, and the work of a launch."""
