"""Exact launches: arrays of payloads in the place of floats, and comparisons of them."""
