"""Exact and float64 answers that cases and tests compare with, and how far a correct backend may be off. NumPy only: nothing here runs a backend."""
