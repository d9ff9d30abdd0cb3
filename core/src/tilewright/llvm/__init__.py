"""LLVM through llvmlite, for every backend based on it.

:mod:`emission` writes IR text, :mod:`assembly` takes the inline assembly of kernels, :mod:`codegen`
makes object code and links it into the process, and :mod:`native` makes functions that Python calls
directly. No module here knows a backend, and none imports llvmlite before it is used, since that
takes tens of milliseconds.
"""
