"""Families whose cases belong to several profiles."""
