"""From a call of a kernel to running code: ``jit``, specialisation, compilation, the disk cache, launch plans, autotuning, argument protocols.

Not in this package: the language and its frontend, passes, and hardware-specific code (which
belongs to backends).
"""
