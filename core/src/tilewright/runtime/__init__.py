"""From a call of a kernel to running code.

The runtime has ``jit``, specialisation, compilation, the disk cache, launch plans, autotuning and
argument protocols.

Not in this package: the language and its frontend, passes, and hardware-specific code (which
belongs to backends).
"""
