"""Other projects' names for what Tilewright does: ``compat.triton`` lets programs written for Triton run unchanged.

What does not live here: anything that kernels written for Tilewright need.
"""
