"""Reductions over any axes, prefix sums, segment sums, histograms."""
