"""Autotuning: configurations worth trying, their measurement, the keys of its results."""
