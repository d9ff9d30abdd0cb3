"""What every LLVM-based backend needs from llvmlite: target machines and object code (:mod:`compile`), linking objects into the process
(:mod:`link`), a writer of IR text (:mod:`writer`), and functions made by LLVM that Python calls directly (:mod:`native`).

Nothing here knows Tile IR or a backend; nothing is imported until it is asked for, since importing llvmlite takes tens of milliseconds.
"""
