"""Families of the profile fp8."""
