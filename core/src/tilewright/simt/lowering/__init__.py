"""How each operation is written as LLVM IR for one thread. A module has ``LOWERINGS``: operation name -> function of (context, operation).

Elementwise operations are not listed: :mod:`.elementwise` runs the emitters that the CPU and GPU backends share on each register.
"""

from __future__ import annotations

from tilewright.simt.lowering import accesses, atomics, control, conversions, debug, dot, groups, indices, reduce, scan, scattered, shape, shared

_MODULES = (accesses, atomics, control, conversions, debug, dot, groups, indices, reduce, scan, scattered, shape, shared)
TABLES = tuple(module.LOWERINGS for module in _MODULES)
