"""Taking operations apart: a row for each operation that others can do the work of, so that a
backend lowers few of the table's.

A backend's manifest says which operations it lowers (``lowers``) and which floats it computes in
(``computes``); the runtime runs :func:`tilewright.passes.decompose.catalogue.decompose` before the
backend sees a module. Functions of real numbers come from
:mod:`tilewright.passes.math.math_library`; what is faster on some machine, but needs its facts,
belongs to a toolkit or a backend.
"""
