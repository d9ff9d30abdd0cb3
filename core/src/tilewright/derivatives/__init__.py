"""Derivatives of kernels, as passes from Tile IR to Tile IR.

``jvp`` makes the kernel that computes tangents beside values (forward mode), ``vjp`` the adjoint
kernel, which computes cotangents of inputs from those of outputs (reverse mode). Both read one
table of partial derivatives. No operation exists for them alone, so that every backend lowers what
they make.

``analysis/`` finds what depends on the inputs, where addresses come from, which lanes may hold
values that are not finite, and whether an element is written once. ``partials`` and
``operation_table`` are the tables; ``forward_mode`` is the first pass. ``adjoint/`` is the second:
a builder that replays the kernel, rules that transpose one operation each, and loops, which are
walked forward where iterations only add and backward from a tape elsewhere. ``gauge/`` rewrites a
kernel before it is transposed, so that loops of online softmax only add.

Launches of derivatives are in :mod:`tilewright.runtime.derivatives`.
"""
