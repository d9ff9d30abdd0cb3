"""The conformance suite: random tile programs and the comparison of a backend with the reference interpreter.

What does not live here: the meaning of operations (``tilewright.reference``).
"""
