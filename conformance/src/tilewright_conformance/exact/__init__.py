"""Kernels in exact mode on any backend: pairs of one algebra, and mistakes that are another.

``python -m tilewright_conformance.exact --backend NAME`` runs them.
"""
