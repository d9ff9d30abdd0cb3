"""Reverse mode: from a kernel to its adjoint kernel.

The adjoint has the kernel's parameters, then ``d_y`` for each output ``y``, from which it reads the
cotangent, and ``d_x`` for each input ``x``, to which it adds. It computes what the kernel computes,
without its effects, then walks back over it. Values that the walk does not read are dead code.

Each loop is first walked forward, and backward where that fails (:mod:`.adjoint.transpose_loop`).
Loops and rows of online softmax are first run in one gauge, in which they only add
(:mod:`.gauge.fix_gauges`); and as they are, where the adjoint would read what has no meaning in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.derivatives.adjoint.adjoint_builder import AdjointAnalysis, AdjointBuilder
from tilewright.derivatives.adjoint.fold_strict_zeros import fold_strict_zeros
from tilewright.derivatives.adjoint.loop_tape import TRIPS, TapeParameter
from tilewright.derivatives.adjoint.saved_outputs import read_saved
from tilewright.derivatives.adjoint.transpose_loop import NeedsTapeError
from tilewright.derivatives.analysis.activity import Activity
from tilewright.derivatives.analysis.addresses import Addresses, is_address
from tilewright.derivatives.analysis.finiteness import Finiteness
from tilewright.derivatives.analysis.memory_effects import MemoryEffects
from tilewright.derivatives.analysis.repeated_stores import repeated_outputs
from tilewright.derivatives.gauge.fix_gauges import FixedGauges, fix_gauges
from tilewright.derivatives.gauge.gauge_weights import place_of
from tilewright.derivatives.kernel_arguments import (
    element_of,
    named_arguments,
    normalized,
    require_new,
)
from tilewright.derivatives.refusals import refusal
from tilewright.derivatives.rule_calls import callees
from tilewright.derivatives.shadow_addresses import ShadowAddresses, add_argument
from tilewright.ir.core import Module
from tilewright.ir.ops.control import For
from tilewright.ir.ops.memory import Store
from tilewright.ir.table import Effect, Trait
from tilewright.ir.types import PointerType, Type
from tilewright.ir.verifier import verify
from tilewright.passes.clone import clone_module
from tilewright.passes.inline import inline
from tilewright.passes.pipeline import run as run_passes


@dataclass(frozen=True)
class AdjointRequest:
    """The adjoint that is wanted of a kernel.

    Attributes:
        outputs: arrays of floats whose writes have cotangents.
        wrt: arrays of floats, and float scalars, whose cotangents are wanted.
        saved: outputs that hold what the kernel wrote when the adjoint runs, so that it is read
            instead of computed.
        modes: argument of ``wrt`` -> how its cotangent is written: ``atomic`` adds atomically;
            ``add`` adds, where one program alone writes to each element; ``store`` stores, where it
            does so once. Atomic where there is none.
        elements: parameter of the adjoint -> the elements of its array, where they are not those of
            the original.
        facts: parameter of the adjoint -> attributes, as ``{"divisibility": 16}``.
        prefix: begins the names of the adjoint's parameters.
        keep_calls: leave calls of functions that have a derivative of their own, so that the
            adjoint can be differentiated again.
        disjoint: arguments of ``wrt`` of which no two programs, and no two lanes of one load, load
            one element, as the caller promises; for plans.
    """

    outputs: tuple[str, ...]
    wrt: tuple[str, ...]
    saved: tuple[str, ...] = ()
    modes: Mapping[str, str] = field(default_factory=dict)
    elements: Mapping[str, Type] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    prefix: str = "d_"
    keep_calls: bool = False
    disjoint: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoopNote:
    """The way in which the adjoint walks a loop.

    Attributes:
        location: the loop's place in the kernel's source.
        way: ``free``: forward, its iterations have no order; ``gauge``: the same, after the loop
            was rewritten to one gauge; ``tape``: backward, from a tape.
        why: the reason, in a few words.
    """

    location: str
    way: str
    why: str


@dataclass(frozen=True)
class Adjoint:
    """A kernel's adjoint.

    Attributes:
        module: its module, after the standard passes.
        loops: a note for each loop of the kernel.
    """

    module: Module
    loops: tuple[LoopNote, ...]


def vjp(module: Module, request: AdjointRequest) -> Module:
    """Return the module of a kernel's adjoint, after the standard passes.

    Raises:
        DerivativeError: the kernel has no derivative, or none that is known here.
    """
    return adjoint_of(module, request).module


def adjoint_of(module: Module, request: AdjointRequest) -> Adjoint:
    """Return a kernel's adjoint, with notes of how it was derived.

    Raises:
        DerivativeError: the kernel has no derivative, or none that is known here.
    """
    source = normalized(module, rules=True)
    count = sum(isinstance(operation, For) for operation in source.kernel.walk())
    gauges: list[tuple[str, ...]] = [request.saved, ()] if request.saved else [()]
    taped: set[int] = set()
    while True:
        try:
            return _transposed(source, request, frozenset(taped), gauges[0] if gauges else None)
        except NeedsTapeError as need:
            if need.loop < 0 or need.loop >= count:
                gauges.pop(0)  # it reads what has no meaning, or its sums depend on each other
                taped.clear()
                continue
            assert need.loop not in taped
            taped.add(need.loop)


def consumed_outputs(module: Module, outputs: Sequence[str]) -> frozenset[str]:
    """Return the outputs whose cotangents the adjoint sets to zero where it has read them.

    A program may store their elements more than once.
    """
    kernel = normalized(module).kernel
    found = named_arguments(kernel, outputs, "outputs")
    return repeated_outputs(kernel, MemoryEffects(kernel, Activity(kernel, ()), (), found), found)


def _transposed(
    module: Module,
    request: AdjointRequest,
    taped: frozenset[int],
    gauge: Sequence[str] | None,
) -> Adjoint:
    """Transpose a kernel.

    Args:
        taped: numbers of the loops that are walked backward.
        gauge: saved arguments in whose gauge loops and rows are run; None leaves them as they are.
    """
    copy = clone_module(module)
    kernel, functions = copy.kernel, callees(copy)
    loops = [operation for operation in kernel.walk() if isinstance(operation, For)]
    outputs = named_arguments(kernel, request.outputs, "outputs")
    wrt = named_arguments(kernel, request.wrt, "wrt", scalars=True)
    saved = named_arguments(kernel, request.saved, "saved")
    arrays = [value for value in wrt if is_address(value)]
    scalars = [value for value in wrt if not is_address(value)]
    names = dict.fromkeys(f"{request.prefix}{value.name}" for value in (*outputs, *wrt))
    require_new(kernel, names)
    varied = Activity(kernel, arrays, scalars, functions=functions)
    memory = MemoryEffects(kernel, varied, arrays, outputs)
    written = {value.name for value in memory.written}
    consumed = repeated_outputs(kernel, memory, outputs)
    # from here on the kernel may read its saved outputs
    fixed = FixedGauges() if gauge is None else fix_gauges(copy, gauge)
    activity = Activity(kernel, arrays, scalars, fixed.constants, functions)
    finiteness = Finiteness(kernel, fixed.normalizers)
    loaded = read_saved(kernel, memory, saved)
    shadows = ShadowAddresses(
        kernel,
        {
            value: request.elements.get(f"{request.prefix}{value.name}", element_of(value))
            for value in (*outputs, *arrays)
        },
        request.prefix,
        request.facts,
    )
    pointers = {
        value: add_argument(kernel, PointerType(value.type), f"{request.prefix}{value.name}")
        for value in scalars
    }
    analysis = AdjointAnalysis(
        activity,
        memory,
        shadows,
        finiteness,
        frozenset(wrt),
        frozenset(outputs),
        pointers,
        request.modes,
        consumed,
        taped,
        {**loaded, **fixed.values},
        fixed.undefined,
        loops,
        functions,
    )
    builder = AdjointBuilder(kernel, analysis)
    made = Module()
    made.add(builder.build())
    made.functions.update(functions)
    run_passes(made)
    if taped:
        _drop_tapes(made, builder)
        run_passes(made)
    if fold_strict_zeros(made):
        run_passes(made)
    _drop_placeholders(builder)
    if not request.keep_calls and inline(made):
        run_passes(made)
    verify(made)
    _check_reads(made, written - set(request.saved))
    return Adjoint(made, tuple(_loop_notes(loops, taped, fixed)))


def _loop_notes(
    loops: Sequence[For], taped: frozenset[int], fixed: FixedGauges
) -> Iterator[LoopNote]:
    """Yield a note for each loop."""
    remarks = {
        remark.location: remark.text
        for remark in fixed.remarks
        if remark.fixed and remark.subject == "loop"
    }
    for number, loop in enumerate(loops):
        place = place_of(loop.location)
        if number in taped:
            yield LoopNote(place, "tape", "an iteration reads what the one before computed")
        elif loop.location in remarks:
            yield LoopNote(place, "gauge", remarks[loop.location])
        else:
            yield LoopNote(place, "free", "its iterations only add to what they carry")


def _drop_tapes(module: Module, builder: AdjointBuilder) -> None:
    """Record nothing that nothing reads."""
    addresses, function = Addresses(), builder.function
    tapes = {
        value: parameter
        for value in function.arguments
        if (parameter := TapeParameter.of(value.name)) is not None
    }
    accesses = [op for op in function.walk() if Trait.ACCESS in op.spec.traits]
    bases = {op: addresses.root(op.operands[0]) for op in accesses}
    read = {base for op, base in bases.items() if not isinstance(op, Store)}
    for op, base in bases.items():
        if base in tapes and base not in read:
            op.erase()
    loops = {tapes[value].loop for value in tapes if value in read}
    for barrier, number in builder.tape_barriers.items():
        if number not in loops and barrier.parent is not None:
            barrier.erase()


def _drop_placeholders(builder: AdjointBuilder) -> None:
    """Remove the parameters that nothing reads.

    Raises:
        NeedsTapeError: something reads what a loop carries, which is walked forward, or what has no
            meaning.
        DerivativeError: something reads what cannot be repeated.
    """
    function = builder.function
    for value in list(function.arguments):
        cause = builder.placeholders.get(value)
        if value.uses:
            if isinstance(cause, int):
                raise NeedsTapeError(cause)
            if cause is not None:
                raise cause
        elif cause is not None or value.name == TRIPS or TapeParameter.of(value.name) is not None:
            del function.argument_attributes[value.index]
            function.arguments.remove(value)


def _check_reads(module: Module, written: set[str]) -> None:
    """Check that the adjoint finds the memory that it reads as the kernel found it.

    Raises:
        DerivativeError: it reads what the kernel writes to.
    """
    addresses = Addresses()
    for operation in module.kernel.walk():
        spec = operation.spec
        if Trait.ACCESS not in spec.traits or Effect.READ not in spec.effects:
            continue
        for argument in addresses.arguments(operation.operands[0]):
            if argument is not None and argument.name in written:
                raise refusal(
                    operation,
                    f"the adjoint reads {argument.name} as the kernel did, which the kernel "
                    "writes to",
                    "write the result to another array, or name the output in saved if it "
                    "holds what the kernel wrote",
                )
