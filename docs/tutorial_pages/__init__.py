"""Figures of the tutorials, from measurements."""
