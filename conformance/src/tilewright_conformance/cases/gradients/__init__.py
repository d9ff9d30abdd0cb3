"""Families of the profile gradients."""
