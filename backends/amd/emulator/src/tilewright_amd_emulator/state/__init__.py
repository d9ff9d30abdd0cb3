"""State of waves: registers, masks, and memory operations in flight."""
