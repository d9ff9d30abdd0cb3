"""Random tile programs, well defined by construction, and the comparison of two runs of one.

    program.py       a program: arguments, outputs, comparison
    language.py      the types and operations that a backend's programs may have
    state.py         a program under construction
    expressions.py   element by element
    shapes.py        moving, repeating, counting elements
    folds.py         reductions, scans, maps, matmuls
    memory.py        loads, stores, atomics
    descriptors.py   descriptors and their blocks
    control.py       branches, loops, calls
    strategy.py      a whole program, by number or as a hypothesis strategy

The generator avoids undefined behavior as it builds the program: it makes divisors non-zero, masks
shift amounts, clamps floats before they become integers, and keeps the addresses of stores apart.
Running programs is the task of ``fuzz``.
"""

from tilewright_conformance.random_programs.language import PORTABLE
from tilewright_conformance.random_programs.program import (
    ArrayArgument,
    NumberArgument,
    Output,
    Program,
    mismatch,
)
from tilewright_conformance.random_programs.state import is_guard
from tilewright_conformance.random_programs.strategy import programs, random_program

__all__ = [
    "PORTABLE",
    "ArrayArgument",
    "NumberArgument",
    "Output",
    "Program",
    "is_guard",
    "mismatch",
    "programs",
    "random_program",
]
