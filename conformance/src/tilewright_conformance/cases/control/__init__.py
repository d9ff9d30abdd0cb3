"""Families of the profile control."""
