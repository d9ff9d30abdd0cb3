"""Analyses and rewrites of Tile IR, one file each: a pass is a function from a module to whether it
changed it.

What does not live here: anything about one target (backends add passes of their own), and the
meaning of operations (``reference``).
"""
