"""The conformance suite: cases, random tile programs, and comparison with the reference.

The meaning of operations is defined in ``tilewright.reference``.
"""
