"""Families of the profile launch."""
