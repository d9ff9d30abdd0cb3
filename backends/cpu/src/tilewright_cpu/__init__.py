"""The CPU backend of Tilewright: fused vector loops through LLVM, run by a thread pool.

:mod:`plugin` has the hooks; nothing here is imported before a kernel needs it.
"""

__version__ = "0.1.0"
