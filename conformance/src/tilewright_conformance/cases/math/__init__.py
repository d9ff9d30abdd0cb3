"""Families of the profile math."""
