"""Families of the profile descriptors."""
