"""Rewrites of a kernel before and after layouts are assigned, one a file, named by what it does."""
