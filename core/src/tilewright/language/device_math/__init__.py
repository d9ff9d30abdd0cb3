"""Functions of ``tl.extra.libdevice`` composed of operations of the IR, alike on every backend.

Each is Python code that emits arithmetic on
:class:`~tilewright.language.device_math.numbers.MathValue`, element by element and without
branches. fp64 is within a few ULP. Elementary functions of fp32 are computed in fp32; special ones
in fp64, rounded once.
"""
