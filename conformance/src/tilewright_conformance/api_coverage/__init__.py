"""Coverage of the public API: the table of its names, smoke tests of each, and ``tilewright surface``.

The command runs the smoke tests on every backend. What does not live here: cases, which prove what
operations compute.
"""
