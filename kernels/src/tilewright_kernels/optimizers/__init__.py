"""Optimizers: steps over many arrays in one launch."""
