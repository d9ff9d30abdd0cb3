"""Sorting, the largest elements, and samples of distributions."""
