"""Families of the profile memory."""
