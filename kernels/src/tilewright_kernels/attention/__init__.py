"""Attention: forward and backward, over batches, packed sequences and pages of keys and values."""
