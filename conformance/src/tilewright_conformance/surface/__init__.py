"""The public surface, name by name: the table of its names, small programs that show that each does what it should, and the command
``tilewright surface``, which runs them on every backend. What does not live here: cases, which prove what operations compute.
"""
