"""Random programs in exact mode: well formed, and the same bits on the CPU and the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.ir.core import Module, Value
from tilewright.ir.parser import parse_module
from tilewright.ir.types import FloatType, IntType, PointerType
from tilewright.ir.verifier import verify
from tilewright.passes.exact.constants import payload_of_constant
from tilewright.passes.exact.context import ExactOptions
from tilewright.passes.exact.rewrite import exact
from tilewright.passes.exact.ring import ring_of
from tilewright.reference.interpreter import run
from tilewright.reference.numerics import numpy_dtype
from tilewright_conformance.random_programs import Program, random_program
from tilewright_conformance.suite.requirements import needs_of
from tilewright_conformance.suite.session import Session, Subject


def rewritten(program: Program, carry: str) -> Module:
    module = parse_module(str(program.module))
    exact(module, ExactOptions(carry))
    verify(module)
    return module


def payloads(program: Program, module: Module) -> list[Any]:
    """Arguments of the exact module: drawn residues, where the program has floats."""
    rng = np.random.default_rng(program.seed)

    def one(value: Any, old: Value, new: Value) -> Any:
        if isinstance(old.type, FloatType):
            return payload_of_constant(float(value), ring_of(old.type))
        if not (isinstance(old.type, PointerType) and isinstance(old.type.pointee, FloatType)):
            return value
        ring, element = ring_of(old.type.pointee), new.type.pointee
        drawn = rng.integers(0, ring.modulus, np.shape(value), dtype=np.uint64)
        if isinstance(element, IntType) and element.signed:  # sums, or keys
            numbers = drawn.astype(np.int64)
            return np.minimum(numbers, ring.half).astype(numpy_dtype(element))
        return drawn.astype(f"uint{ring.bits}").view(numpy_dtype(element))

    arguments = zip(
        program.arguments(), program.module.kernel.arguments, module.kernel.arguments, strict=True
    )
    return [one(*argument) for argument in arguments]


@pytest.mark.parametrize("carry", ["float", "int"])
def test_random_programs_are_well_formed(carry) -> None:
    for seed in range(24):
        rewritten(random_program(seed), carry)


@pytest.mark.parametrize("carry", ["float", "int"])
def test_random_programs_have_the_same_bits_everywhere(carry) -> None:
    session, judged = Session(Subject("cpu"), "exact"), 0
    for seed in range(1000, 1007):
        program = random_program(seed)
        if needs_of(program.module).missing(session.capabilities):
            continue
        module = rewritten(program, carry)
        expected, found = payloads(program, module), payloads(program, module)
        with np.errstate(all="ignore"):
            run(module, expected, program.grid)
        session.run_module(module, found, program.grid)
        for a, b in zip(expected, found, strict=True):
            if isinstance(a, np.ndarray):
                assert a.tobytes() == b.tobytes(), f"random program {seed}"
        judged += 1
    assert judged >= 5
