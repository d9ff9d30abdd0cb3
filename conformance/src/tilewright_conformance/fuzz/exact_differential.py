"""Programs in exact mode: the same bits on a backend, and the same algebra after each pass."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.errors import KernelError
from tilewright.ir import Value
from tilewright.ir.types import FloatType, PointerType
from tilewright.passes import pipeline
from tilewright.passes.exact.address_groups import AddressGroups, Storage, element_at
from tilewright.passes.exact.constants import payload_of_constant
from tilewright.passes.exact.dependences import store_dependences
from tilewright.passes.exact.errors import ExactModeError
from tilewright.passes.exact.report import report
from tilewright.passes.exact.rewrite import exact
from tilewright.passes.exact.ring import Ring, ring_of
from tilewright.passes.exact.stored_floats import CODE_UNIT
from tilewright.reference.numerics import decode, numpy_dtype
from tilewright.runtime.compiler.compile import passes_of
from tilewright.runtime.exact.payloads import payloads_agree, payloads_of_numbers
from tilewright_conformance.fuzz.differential import (
    AGREES,
    ERROR,
    INCONCLUSIVE,
    MISMATCH,
    NOT_MODELLED,
    UNDECLARED,
    UNDEFINED,
    Differential,
    Verdict,
    interpreted,
)
from tilewright_conformance.mutation.rewriting import copy_of
from tilewright_conformance.random_programs import Output, Program, mismatch
from tilewright_conformance.suite.requirements import needs_of

#: The share of a float array's elements that stay the payloads of its own numbers, among them
#: zeros, ones, infinities and NaN.
_KEPT = 0.2


@dataclass(frozen=True)
class ExactProgram(Program):
    """The exact form of the program ``source``.

    Its arrays of floats hold residues that are drawn, and payloads of some of the source's numbers.

    Attributes:
        source: the program on floats.
        storages: the representation of floats in each argument's memory.
        has_floats: whether the source computes or loads any.
    """

    source: Program
    storages: tuple[Storage, ...]
    has_floats: bool

    @classmethod
    def of(cls, source: Program) -> ExactProgram:
        """Rewrite a copy of a program.

        Raises:
            ExactModeError: the program does something that has no meaning over a ring.
        """
        module = copy_of(source.module)
        groups = AddressGroups(module)
        storages = tuple(
            groups.storage(argument) if isinstance(argument.type, PointerType) else Storage.PAYLOADS
            for argument in module.kernel.arguments
        )
        has_floats = exact(module)
        outputs = tuple(
            Output(one.index, element_at(module.kernel.arguments[one.index].type), payloads=True)
            for one in source.outputs
        )
        return cls(
            module,
            source.grid,
            source.parameters,
            outputs,
            source.seed,
            source,
            storages,
            has_floats,
        )

    def arguments(self) -> list[Any]:
        """Fresh arguments of the exact module, in the function's order."""
        return [
            self._argument(*each)
            for each in zip(
                self.source.arguments(),
                self.source.module.kernel.arguments,
                self.module.kernel.arguments,
                self.storages,
                strict=True,
            )
        ]

    def _argument(self, value: Any, old: Value, new: Value, storage: Storage) -> Any:
        if isinstance(old.type, FloatType):
            return payload_of_constant(float(value), ring_of(old.type))
        element = _float_behind(old)
        if element is None:
            return value
        ring = ring_of(element)
        # of the contents, so that a program with fewer arguments keeps the data of the others
        rng = np.random.default_rng([self.seed, zlib.crc32(value.tobytes())])
        drawn = rng.integers(0, ring.modulus, len(value), dtype=np.uint64)
        own = payloads_of_numbers(ring, np.asarray(decode(value, element)).astype(np.float64))
        kept = rng.random(len(value)) < _KEPT
        if storage is not Storage.PAYLOADS:
            kept &= own < ring.modulus
        return _stored(ring, np.where(kept, own, drawn), new, storage)


def _float_behind(argument: Value) -> FloatType | None:
    """The type of floats that an argument points to."""
    type_ = argument.type
    if isinstance(type_, PointerType) and isinstance(type_.pointee, FloatType):
        return type_.pointee
    return None


def _stored(ring: Ring, payloads: Any, argument: Value, storage: Storage) -> Any:
    """Payloads in an argument's representation; residues alone where that is another."""
    assert isinstance(argument.type, PointerType)
    dtype = numpy_dtype(argument.type.pointee)
    if storage is Storage.PAYLOADS:
        return payloads.astype(f"uint{ring.bits}").view(dtype)
    numbers = payloads.astype(np.int64)
    if storage is not Storage.SUMS:
        numbers = np.where(numbers > ring.half, numbers - ring.modulus, numbers)
    return numbers.astype(dtype)


class ExactDifferential(Differential):
    """Judges the exact forms of programs on a backend, by their bits."""

    def expected(self, program: Program) -> Verdict:
        """Run the exact form on the reference alone.

        The verdict is ``agrees`` with the expected values, ``undefined``, ``undeclared`` or ``not
        modelled``.
        """
        missing = needs_of(program.module).missing(self.session.capabilities)
        if missing:
            return Verdict(UNDECLARED, ", ".join(missing))
        try:
            executed = ExactProgram.of(program)
        except ExactModeError as error:
            return Verdict(NOT_MODELLED, error.reason)
        if not executed.has_floats:
            return Verdict(NOT_MODELLED, "a program without floats")
        missing = needs_of(executed.module).missing(self.session.capabilities)
        if missing:
            return Verdict(UNDECLARED, ", ".join(missing))
        try:
            return Verdict(AGREES, "", interpreted(executed), executed)
        except KernelError as error:
            return Verdict(UNDEFINED, str(error))


class RewriteDifferential(ExactDifferential):
    """Judges a backend's passes: exact forms before and after each, on the reference."""

    @property
    def executes(self) -> str:
        """The backend that a reproducer runs on."""
        return "reference"

    def judge(self, program: Program, known: Verdict | None = None) -> Verdict:
        """Compare the program with what each pass makes of it; the message names the pass."""
        known = known or self.expected(program)
        if known.kind != AGREES:
            return known
        subject = self.session.subject
        options = {**subject.backend.manifest.options, "enable_fp_fusion": False}
        current, text = copy_of(program.module), str(program.module)
        for number, pass_ in enumerate(passes_of(subject.backend, subject.target, options), 1):
            name = f"pass {number} {pipeline.pass_name(pass_)}"
            pipeline.run(current, (pass_,))
            if str(current) == text:
                continue
            text = str(current)
            try:
                executed = ExactProgram.of(replace(program, module=copy_of(current)))
                found = interpreted(executed)
            except ExactModeError as error:
                return Verdict(NOT_MODELLED, f"after {name}: {error.reason}")
            except KernelError as error:
                return replace(known, kind=ERROR, message=f"after {name}: {error}")
            verdict = _compared(known, executed, found)
            if verdict is not known:
                return replace(verdict, message=f"{name} changes the algebra: {verdict.message}")
        return known


def _compared(known: Verdict, executed: ExactProgram, found: tuple[Any, ...]) -> Verdict:
    """Compare a rewritten program's results; return ``known`` where they are the same algebra."""
    before = known.executed
    assert isinstance(before, ExactProgram)
    facts = report(before.source.module) | report(executed.source.module)
    digits = 3 if facts.loses_digit else None
    expected = list(known.expected)
    behind: set[str] = set()
    wrong = ""
    origins = [
        store_dependences(one.source.module, AddressGroups(one.source.module))
        for one in (before, executed)
    ]
    for one, other in zip(before.outputs, executed.outputs, strict=True):
        if one.element is not other.element:
            return Verdict(INCONCLUSIVE, "an array's floats lie in memory in another form")
        same = _agree(before, one, expected[one.index], found[one.index], digits)
        # undefined payloads agree with all: those of the rewritten program stand in a reproducer
        expected[one.index] = np.where(same, found[one.index], expected[one.index])
        message = mismatch(one, expected[one.index], found[one.index])
        if not message:
            continue
        operations = {
            each.operation
            for dependences in origins
            if one.index in dependences
            for each in dependences[one.index].operations
        }
        behind |= operations
        if not operations:
            wrong = wrong or f"argument {one.index}: {message}"
    if not wrong and not behind:
        return known
    if not wrong:
        return Verdict(INCONCLUSIVE, f"results differ behind {', '.join(sorted(behind))}")
    return Verdict(MISMATCH, wrong, tuple(expected), executed)


def _agree(program: ExactProgram, output: Output, one: Any, other: Any, digits: int | None) -> Any:
    """Return where two results of an output are the same algebra."""
    element = _float_behind(program.source.module.kernel.arguments[output.index])
    if element is None:
        return one == other
    ring, storage = ring_of(element), program.storages[output.index]
    if storage is Storage.PAYLOADS:
        left, right = (bits.view(f"uint{ring.bits}") for bits in (one, other))
        return payloads_agree(ring, left, right, digits)
    if storage is Storage.SUMS:
        return payloads_agree(ring, _of_sums(ring, one), _of_sums(ring, other), digits)
    info = np.iinfo(np.int32)
    undefined = (info.min + 1, info.max - 1)
    return (one == other) | np.isin(one, undefined) | np.isin(other, undefined)


def _of_sums(ring: Ring, sums: Any) -> Any:
    """The payloads of sums of residues."""
    residues, codes = sums % CODE_UNIT % ring.modulus, sums // CODE_UNIT
    stored = np.array([ring.negative_infinity, ring.infinity, ring.nan, ring.undefined], np.uint64)
    code = np.where((codes > 0) & (codes <= 4), stored[(codes - 1) % 4], np.uint64(ring.nan))
    return np.where(codes == 0, residues.astype(np.uint64), code).astype(f"uint{ring.bits}")
