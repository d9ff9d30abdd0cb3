"""How each operation is written as LLVM IR for one thread. A module has ``INTERFACES``: operation name -> what the toolkit is told of it.
:mod:`tilewright.simt.interfaces` has them all.

Elementwise operations are not listed: :mod:`.elementwise` runs the emitters that the CPU and GPU backends share on each register.
"""
