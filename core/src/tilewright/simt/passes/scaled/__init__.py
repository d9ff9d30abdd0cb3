"""Block-scaled matmuls (``dot_scaled``) as plain ones: operands unpacked, scales applied."""
