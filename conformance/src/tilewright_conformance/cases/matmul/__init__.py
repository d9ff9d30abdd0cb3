"""Families of the profile matmul."""
