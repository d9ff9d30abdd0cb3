"""Kernels that are in no package, because a compiler writes them: recipes that have it write them
again.
"""
