"""A case of gradients: both modes of a kernel on the backend, and the reference's in float64."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tilewright as tw
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.testing.gradients.derivative_launches import DerivativeLaunches
from tilewright_conformance.suite.case import Case
from tilewright_conformance.suite.session import Session
from tilewright_conformance.testlib.case_table import Table

Array = NDArray[Any]
#: Fills arrays of integers to which kernels write.
WRITTEN = 77
#: Elements of NaN before and behind an array.
_MARGIN = 64
#: What arithmetic of f32 and f16 may change, relative to an array's largest number.
_ROUNDING = {"f32": 3e-4, "f16": 2e-2}
_NUMPY = {"f32": np.float32, "f16": np.float16}


@dataclass(frozen=True)
class Operand:
    """An array of floats.

    Attributes:
        shape: its extents.
        contents: ``drawn``; ``spaced``, where their order matters; ``nan``, where kernels
            write; ``zeros``, where they add.
        type: the element type as Tile IR text.
        low, high: bounds of drawn numbers.
        block: the shape of a descriptor's blocks; an array, where it is empty.
    """

    shape: tuple[int, ...]
    contents: str = "drawn"
    type: str = "f32"
    low: float = -1.0
    high: float = 1.0
    block: tuple[int, ...] = ()


#: The arrays of a case by the kernel's parameter; those of integers are given.
Operands = Mapping[str, Operand | Array]


@dataclass(frozen=True)
class Form:
    """A launch of a kernel: its grid, and the arguments that are no arrays."""

    kernel: Any
    grid: tuple[int, ...]
    values: Mapping[str, Any]

    @property
    def parameters(self) -> frozenset[str]:
        return frozenset(self.kernel.arg_names)


def form(kernel: Any, grid: tuple[int, ...], **values: Any) -> Form:
    return Form(kernel, grid, values)


def gradient_case(
    id_: str,
    operands: Operands,
    *forms: Form,
    outputs: str,
    wrt: str,
    saved: str = "",
    atomic: bool = False,
    dot: bool = False,
    quick: bool = False,
    **needs: Any,
) -> Case:
    """A case of the family ``gradients``; its subject is the first word of ``id_``.

    Args:
        operands: the arrays by parameter.
        forms: launches that compute the same function. The reference interpreter runs the first.
        outputs, wrt, saved: parameters with blanks between, as of :func:`tilewright.vjp`.
        atomic: whether the adjoint adds atomically.
        dot: whether the kernels have dots.
        needs: as ``elements`` takes them.
    """
    types = {operand.type for operand in operands.values() if isinstance(operand, Operand)}
    if atomic:
        needs = {"atomics": {("f32", "add")}, **needs}
    if dot:
        pairs = {(type_, "f32") for type_ in types | {"f32"}}
        needs = {"dot": pairs, "dot_shape": (16, 16, 16), **needs}
    body = functools.partial(
        _compared, operands, forms, tuple(outputs.split()), tuple(wrt.split()), tuple(saved.split())
    )
    source = "central differences, and derivatives of the reference interpreter in float64"
    table = Table("gradients", "gradients", source, narrow="gradients")
    integers = ("i1", "i8", "i16", "i32", "u32", "i64", "u64", "u16", "u8")
    return table.case(
        id_,
        id_.partition("/")[0],
        body,
        *sorted(types | {"f32"}),
        *integers,
        quick=quick,
        **{"tile": 1 << 15, **needs},
    )


class _Memory:
    """An array in the middle of memory whose other elements are NaN; integers repeat their own."""

    def __init__(self, operand: Operand | Array, rng: np.random.Generator) -> None:
        self.shape, self.block, self.is_written = operand.shape, (), False
        size = int(np.prod(operand.shape))
        if not isinstance(operand, Operand):
            self.flat: Array = rng.choice(operand.reshape(-1), size + 2 * _MARGIN)
            self.array[...] = operand
            self.is_written = bool((operand == WRITTEN).all())
            return
        self.block, self.is_written = operand.block, operand.contents in ("nan", "zeros")
        self.flat = np.full(size + 2 * _MARGIN, np.nan, _NUMPY[operand.type])
        if operand.contents == "zeros":
            self.array[...] = 0
        elif operand.contents == "spaced":
            numbers = np.linspace(operand.low, operand.high, size)
            self.array[...] = rng.permutation(numbers).reshape(operand.shape)
        elif operand.contents == "drawn":
            self.array[...] = rng.uniform(operand.low, operand.high, operand.shape)

    @classmethod
    def of(cls, array: Array | None, like: _Memory) -> _Memory:
        """Return memory of f32 for a tangent or cotangent; of NaN, where it is not given."""
        found = cls(Operand(like.shape, "nan", block=like.block), np.random.default_rng(0))
        if array is not None:
            found.array[...] = array
        return found

    @property
    def array(self) -> Array:
        """The array, which shares the memory."""
        return self.flat[_MARGIN:-_MARGIN].reshape(self.shape)

    def copy(self) -> _Memory:
        found = object.__new__(_Memory)
        found.shape, found.block, found.is_written = self.shape, self.block, self.is_written
        found.flat = self.flat.copy()
        return found

    def argument(self, array: Any) -> Any:
        """Return the kernel's argument for the array, wherever it was placed."""
        if not self.block:
            return array
        strides = [int(np.prod(self.shape[axis + 1 :])) for axis in range(len(self.shape))]
        return TensorDescriptor(array, list(self.shape), strides, list(self.block))


def _compared(
    operands: Operands,
    forms: tuple[Form, ...],
    outputs: tuple[str, ...],
    wrt: tuple[str, ...],
    saved: tuple[str, ...],
    session: Session,
) -> None:
    """Run both modes of all forms, and compare them with the reference's of the first."""
    rng = session.rng
    memories = {name: _Memory(operand, rng) for name, operand in operands.items()}
    along = {name: rng.uniform(-1, 1, memories[name].shape) for name in wrt}
    cotangents = {name: rng.uniform(-1, 1, memories[name].shape) for name in outputs}
    narrow = "f16" if any(memory.flat.dtype == np.float16 for memory in memories.values()) else ""
    rounding = _ROUNDING[narrow or "f32"]
    first = forms[0]
    arrays = {
        name: memory.argument(memory.array)
        for name, memory in memories.items()
        if name in first.parameters
    }
    launches = DerivativeLaunches(
        first.kernel, first.grid, (), {**arrays, **first.values}, outputs, wrt, saved
    )
    values, gradients = launches.values(), launches.gradients(cotangents)
    precision = launches.precision
    differences = [launches.differences(along, step, 1.0) for step in precision.steps]
    for number, one in enumerate(forms, 1):
        name = f"form {number} of {len(forms)}: "
        run = _Run(session, one, memories, outputs, wrt)
        found, tangents = run.forward(along)
        for output in outputs:
            near(session, f"{name}{output}", found[output], values[output], rounding)
            noise = 4 * precision.epsilon * largest(values[output]) / precision.steps[0]
            near(
                session,
                f"{name}the tangent of {output}",
                tangents[output],
                nearest(tangents[output], [each[output] for each in differences]),
                max(rounding, precision.difference),
                noise,
            )
        cotangent_of = run.reverse(cotangents, launches.saved_values(saved))
        for each in wrt:
            near(session, f"{name}the cotangent of {each}", cotangent_of[each], gradients[each],
                  rounding)  # fmt: skip
        pairs = [(cotangents[output], tangents[output], 1) for output in outputs]
        pairs += [(cotangent_of[each], along[each], -1) for each in wrt]
        total = sum(sign * float((a * b).sum(dtype=np.float64)) for a, b, sign in pairs)
        scale = sum(float(np.abs(a * b).sum(dtype=np.float64)) for a, b, _ in pairs)
        session.require(
            abs(total) <= rounding * scale,
            f"{name}the cotangents of inputs along a direction and those of outputs along its "
            f"tangent differ by {total:.3g}, of {scale:.3g}",
        )


class _Run:
    """Launches of both modes of a form on the backend."""

    def __init__(
        self,
        session: Session,
        form: Form,
        memories: Mapping[str, _Memory],
        outputs: tuple[str, ...],
        wrt: tuple[str, ...],
    ) -> None:
        self._session, self._form, self._outputs, self._wrt = session, form, outputs, wrt
        self._memories = {name: memories[name] for name in memories if name in form.parameters}

    def forward(self, along: Mapping[str, Array]) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return the outputs and their tangents."""
        own = {f"t_{name}": _Memory.of(along[name], self._memories[name]) for name in self._wrt}
        for name in self._outputs:
            memory = self._memories[name]
            adds = bool((memory.array == 0).all())
            own[f"t_{name}"] = _Memory.of(np.zeros(memory.shape) if adds else None, memory)
        kernel = tw.jvp(self._form.kernel, inputs=self._wrt, outputs=self._outputs)
        written = {name for name, memory in self._memories.items() if memory.is_written}
        written |= {f"t_{name}" for name in self._outputs}
        memories = self._launch(kernel, own, written)
        return (
            {name: memories[name].array for name in self._outputs},
            {name: memories[f"t_{name}"].array for name in self._outputs},
        )

    def reverse(
        self, cotangents: Mapping[str, Array], saved: Mapping[str, Array]
    ) -> dict[str, Array]:
        """Return the cotangents of inputs.

        Args:
            saved: outputs that the adjoint may read, and their contents.
        """
        own = {
            f"d_{name}": _Memory.of(cotangents[name], self._memories[name]) for name in cotangents
        }
        own |= {f"d_{name}": _Memory.of(None, self._memories[name]) for name in self._wrt}
        kernel = tw.vjp(self._form.kernel, outputs=self._outputs, wrt=self._wrt, saved=tuple(saved))
        memories = self._launch(kernel, own, {f"d_{name}" for name in self._wrt}, saved)
        return {name: memories[f"d_{name}"].array for name in self._wrt}

    def _launch(
        self,
        kernel: Any,
        own: Mapping[str, _Memory],
        written: set[str],
        contents: Mapping[str, Array] | None = None,
    ) -> dict[str, _Memory]:
        """Launch a derivative on copies; demand that nothing but ``written`` changes."""
        memories = {**self._memories, **own}
        for name, memory in memories.items():
            memories[name] = memory.copy()
            if contents and name in contents:
                memories[name].array[...] = contents[name]
        before = {name: memory.flat.copy() for name, memory in memories.items()}
        place = self._session.placement()
        placed = {name: memory.argument(place(memory.array)) for name, memory in memories.items()}
        with self._session.use():
            kernel[self._form.grid](**placed, **self._form.values)
        place.fetch()
        for name, memory in memories.items():
            kept = memory.flat.view(np.uint8).reshape(memory.flat.size, -1)
            kept = (kept == before[name].view(np.uint8).reshape(kept.shape)).all(axis=1)
            if name in written:
                kept[_MARGIN:-_MARGIN] = True
            wrong = np.flatnonzero(~kept)
            self._session.require(
                not wrong.size,
                f"{name}: {wrong.size} elements that are not to be written have changed, the first "
                f"at {wrong[0] - _MARGIN if wrong.size else 0}, counted from the array's start",
            )
        return memories


def near(
    session: Session, name: str, found: Array, expected: Array, relative: float, noise: float = 0.0
) -> None:
    bound = relative * largest(expected) + noise
    session.check(
        found.astype(np.float64), expected, atol=bound + 1e-30, zero_sign=False, name=name
    )


def nearest(found: Array, differences: list[Array]) -> Array:
    """Return, of the differences of each element, the one that is nearest to what was found."""
    stacked = np.stack(differences)
    errors = np.abs(stacked - found)
    chosen = np.where(np.isnan(errors), np.inf, errors).argmin(axis=0)
    return np.asarray(np.take_along_axis(stacked, chosen[None], axis=0)[0])


def largest(array: Array) -> float:
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
