"""From a call of a kernel to running code: ``jit``, specialisation, compilation, the disk cache, launch plans, autotuning, argument protocols.

What does not live here: the language and its frontend, passes, and anything that knows one kind of hardware (that is a backend's).
"""
