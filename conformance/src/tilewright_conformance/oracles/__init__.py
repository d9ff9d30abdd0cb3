"""Exact and float64 results that cases and tests compare with, and error bounds.

It needs NumPy only: nothing here runs a backend.
"""
