"""Families of the profile exact."""
