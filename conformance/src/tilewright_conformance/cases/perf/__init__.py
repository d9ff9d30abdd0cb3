"""Families of the profile perf."""
