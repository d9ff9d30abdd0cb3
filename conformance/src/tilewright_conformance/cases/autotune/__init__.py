"""Families of the profile autotune."""
