"""Gradients of single operations, on the samples of the op table in f32."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.derivatives.analysis.write_modes import write_modes
from tilewright.derivatives.forward_mode import TangentRequest, jvp
from tilewright.derivatives.kernel_arguments import element_of
from tilewright.derivatives.refusals import DerivativeError
from tilewright.derivatives.reverse_mode import AdjointRequest, vjp
from tilewright.ir import Module
from tilewright.ir.types import F32, FloatType
from tilewright.reference.interpreter import DescriptorValue
from tilewright_conformance.cases.gradients.gradients.gradient_case import largest, near, nearest
from tilewright_conformance.op_samples import Sample, samples
from tilewright_conformance.suite.case import Case, Needs
from tilewright_conformance.suite.requirements import needs_of
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table, elements

Array = NDArray[Any]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Operations with a derivative of which samples run.
OPS = _words(
    "add sub mul div rem neg abs min max select fma cast exp exp2 log log2 sin cos tanh erf "
    "sqrt rsqrt floor ceil round_even trunc copysign ldexp splat unsplat broadcast "
    "expand_dims reshape permute cat join split gather load store if for reduce scan map hint"
)
#: Those of which whole kernels run, since their adjoints need more than samples prove.
OF_KERNELS = _words(
    "atomic_rmw descriptor_load descriptor_store descriptor_reduce descriptor_gather "
    "descriptor_scatter dot dot_scaled call"
)
#: Samples that a case runs; the operation's first.
_SAMPLES = 3
#: Inputs lie between these, in the domain of every function; their order is their own.
_LOW, _HIGH = 0.3, 0.9
#: Steps of central differences in f32, of which an element's best counts.
_STEPS = (2.0**-8, 2.0**-10, 2.0**-12)
_ROUNDING, _DIFFERENCE, _NOISE = 3e-4, 1e-2, 2e-3
_INTEGERS = ("i1", "i8", "i16", "i32", "u32", "i64", "u64", "u16", "u8")
#: Differences of the smallest step beyond this are jumps, where there is no derivative.
_JUMP = 100.0


def cases() -> Iterator[Case]:
    source = "central differences, and derivatives of the reference interpreter"
    table = Table("gradients", "gradients", source, narrow="gradients")
    for op in sorted(OPS):
        needs = elements("f32", *_INTEGERS, tile=1 << 15)
        yield table.case(
            f"op/{op}",
            op,
            functools.partial(_samples, op, needs),
            "f32",
            *_INTEGERS,
            quick=op in ("mul", "reduce"),
            tile=1 << 15,
        )


@dataclass(frozen=True)
class Derived:
    """A sample and its derivatives.

    Attributes:
        inputs, outputs: arguments by name.
    """

    sample: Sample
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tangent: Module
    adjoint: Module


def derived(op: str, needs: Needs) -> Iterator[Derived]:
    """Derive the samples of an operation that need no more than a case, where they can be."""
    for sample in samples(op):
        arguments = sample.module.kernel.arguments
        floats = [one for one in arguments if isinstance(element_of(one), FloatType)]
        names = {argument.name for argument in floats if element_of(argument) is F32}
        written = {arguments[position].name for position in sample.outputs}
        inputs, outputs = tuple(sorted(names - written)), tuple(sorted(names & written))
        if not sample.runnable or len(names) < len(floats) or not inputs or not outputs:
            continue
        sizes = {f"num_programs({axis})": size for axis, size in enumerate(sample.grid)}
        try:
            modes = {
                name: mode.at(sizes).mode
                for name, mode in write_modes(sample.module, inputs).items()
            }
            if set(modes.values()) != {"store"}:
                continue  # a kernel of another case adds atomically
            found = Derived(
                sample,
                inputs,
                outputs,
                jvp(sample.module, TangentRequest(inputs, outputs)),
                vjp(sample.module, AdjointRequest(outputs, inputs, modes=modes)),
            )
        except DerivativeError:
            continue
        known = {f"{prefix}{name}" for prefix in ("", "d_") for name in (*inputs, *outputs)}
        known |= {argument.name for argument in arguments}
        if any(argument.name not in known for argument in found.adjoint.kernel.arguments):
            continue  # a tape; kernels of other cases have some
        all_needs = (needs_of(module) for module in (sample.module, found.tangent, found.adjoint))
        if all(not each.missing(needs.capabilities()) for each in all_needs):
            yield found


def _samples(op: str, needs: Needs, session: Session) -> None:
    count = 0
    for one in derived(op, needs):
        count += _compared(one, session)
        if count == _SAMPLES:
            break
    session.require(count, f"no sample of {op} has a derivative: the case is of no use")


def _compared(one: Derived, session: Session) -> bool:
    """Run both modes of a sample on the backend, and compare them with differences.

    Returns:
        False where the sample computes infinities or NaN, and was not compared.
    """
    sample, rng = one.sample, session.rng
    made = sample.make_arguments(rng)
    given = {
        argument.name: value
        for argument, value in zip(sample.module.kernel.arguments, made, strict=True)
    }
    for name in one.inputs:
        if isinstance(given[name], float | np.floating):
            given[name] = float(rng.uniform(_LOW, _HIGH))
        else:
            array = _array(given[name])
            spaced = np.linspace(_LOW, _HIGH, array.size, dtype=array.dtype)
            array[...] = rng.permutation(spaced).reshape(array.shape)
    for name in one.outputs:
        _array(given[name])[...] = 0
    along = {name: rng.uniform(-1, 1, np.shape(_array(given[name]))) for name in one.inputs}
    cotangents = {name: rng.uniform(-1, 1, _array(given[name]).shape) for name in one.outputs}
    plain = {name: _copied(value) for name, value in given.items()}
    _run(functools.partial(Session.run_reference, grid=sample.grid), sample.module, plain)
    if not all(np.isfinite(_array(plain[name])).all() for name in one.outputs):
        return False
    differences = [_differences(one, given, along, step) for step in _STEPS]
    run = functools.partial(session.run_module, grid=sample.grid)

    tangent_arguments = _with(given, "t_", {**along, **dict.fromkeys(one.outputs)})
    _run(run, one.tangent, tangent_arguments)
    tangents = {name: _array(tangent_arguments[f"t_{name}"]) for name in one.outputs}
    for name, tangent in tangents.items():
        expected = nearest(tangent, [difference[name] for difference in differences])
        is_jump = np.abs(differences[-1][name]) > _JUMP
        expected = np.where(is_jump, tangent, expected)
        what = f"{sample.name}: the tangent of {name}"
        noise = _NOISE * largest(_array(tangent_arguments[name]))
        near(session, what, tangent, expected, _DIFFERENCE, noise)
        value = _array(tangent_arguments[name])
        near(session, f"{sample.name}: {name}", value, _array(plain[name]), _ROUNDING)

    adjoint = _with(given, "d_", {**cotangents, **dict.fromkeys(one.inputs)})
    expected_adjoint = {name: _copied(value) for name, value in adjoint.items()}
    _run(run, one.adjoint, adjoint)
    _run(functools.partial(Session.run_reference, grid=sample.grid), one.adjoint, expected_adjoint)
    total = scale = 0.0
    for name in one.inputs:
        found, expected = (_array(each[f"d_{name}"]) for each in (adjoint, expected_adjoint))
        near(session, f"{sample.name}: the cotangent of {name}", found, expected, _ROUNDING)
        total -= float((found * along[name]).sum())
        scale += float(np.abs(found * along[name]).sum())
    for name, tangent in tangents.items():
        total += float((cotangents[name] * tangent).sum())
        scale += float(np.abs(cotangents[name] * tangent).sum())
    session.require(
        abs(total) <= _ROUNDING * scale + 1e-6,
        f"{sample.name}: the cotangents of inputs along a direction and those of outputs along its "
        f"tangent differ by {total:.3g}, of {scale:.3g}",
    )
    return True


def _differences(
    one: Derived, given: Mapping[str, Any], along: Mapping[str, Array], step: float
) -> dict[str, Array]:
    found = []
    for sign in (1, -1):
        moved = {name: _copied(value) for name, value in given.items()}
        for name, direction in along.items():
            if isinstance(moved[name], float):
                moved[name] += sign * step * float(direction)
            else:
                array = _array(moved[name])
                array += (sign * step * direction).astype(array.dtype)
        reference = functools.partial(Session.run_reference, grid=one.sample.grid)
        _run(reference, one.sample.module, moved)
        found.append({name: _array(moved[name]).astype(np.float64) for name in one.outputs})
    return {name: (found[0][name] - found[1][name]) / (2 * step) for name in one.outputs}


def _with(given: Mapping[str, Any], prefix: str, own: Mapping[str, Array | None]) -> dict[str, Any]:
    """Return copies of arguments, and those of a derivative; without values they are zero."""
    found = {name: _copied(value) for name, value in given.items()}
    for name, value in own.items():
        like = given[name]
        if isinstance(like, float):
            is_number = prefix == "t_"
            found[f"{prefix}{name}"] = (
                float(value) if is_number and value is not None else np.zeros(1, np.float32)
            )
            continue
        array = np.zeros_like(_array(like), np.float32)
        if value is not None:
            array[...] = value
        found[f"{prefix}{name}"] = (
            DescriptorValue(array, like.shape, like.strides)
            if isinstance(like, DescriptorValue)
            else array
        )
    return found


def _run(run: Any, module: Module, arguments: Mapping[str, Any]) -> None:
    run(module, [arguments[argument.name] for argument in module.kernel.arguments])


def _array(value: Any) -> Array:
    return np.asarray(value.base if isinstance(value, DescriptorValue) else value)


def _copied(value: Any) -> Any:
    if isinstance(value, DescriptorValue):
        return DescriptorValue(value.base.copy(), value.shape, value.strides, value.padding)
    return value.copy() if isinstance(value, np.ndarray) else value
