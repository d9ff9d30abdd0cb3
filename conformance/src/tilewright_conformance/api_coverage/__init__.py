"""Coverage of the public API: its table of names, smoke tests, and ``tilewright surface``.

The command runs the smoke tests on every backend. Cases, which prove what operations compute, live
elsewhere.
"""
