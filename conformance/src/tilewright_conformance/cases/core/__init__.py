"""Families of the profile core."""
