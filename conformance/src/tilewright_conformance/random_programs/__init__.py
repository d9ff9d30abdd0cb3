"""Random tile programs, well defined by construction, by number and as a hypothesis strategy, and how the results of two runs of one are compared.

    program.py       what a program is: arguments, outputs, comparing
    language.py      what programs for a backend are drawn from, by its capabilities and the op table
    state.py         a program that is being built
    expressions.py   element by element
    shapes.py        moving, repeating, counting elements
    folds.py         reductions, scans, maps, matrix products
    memory.py        loads, stores, atomics
    descriptors.py   tensors seen in blocks
    control.py       branches, loops, calls
    strategy.py      the whole

What an operation leaves undefined is kept out as the program is built: divisors are made non-zero,
shift amounts are masked, floats are clamped before they become integers, addresses of stores are
kept apart. What does not live here: running programs (``fuzz``).
"""

from tilewright_conformance.random_programs.language import PORTABLE
from tilewright_conformance.random_programs.program import ArrayArgument, NumberArgument, Output, Program, mismatch
from tilewright_conformance.random_programs.state import is_guard
from tilewright_conformance.random_programs.strategy import programs, random_program

__all__ = ["PORTABLE", "ArrayArgument", "NumberArgument", "Output", "Program", "is_guard", "mismatch", "programs", "random_program"]
