"""Families of the profile atomics."""
