"""Exact launches: ``with exact_mode(): kernel[grid](...)``."""

from __future__ import annotations

import contextvars
import functools
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal

from tilewright.ir.core import Module
from tilewright.ir.type_text import parse_type
from tilewright.ir.types import IntType, PointerType
from tilewright.passes.exact.address_groups import AddressGroups, Storage, is_address
from tilewright.passes.exact.constants import payload_of_constant
from tilewright.passes.exact.context import ExactOptions
from tilewright.passes.exact.dependences import store_dependences
from tilewright.passes.exact.report import report
from tilewright.passes.exact.rewrite import exact
from tilewright.passes.exact.ring import ring
from tilewright.runtime.arguments.array_protocols import is_array
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.arguments.mock_tensors import reinterpret
from tilewright.runtime.compiler.compile import build_module
from tilewright.runtime.devices.backend_choice import Choice, current
from tilewright.runtime.devices.backend_choice import backend as chosen_backend
from tilewright.runtime.exact.payloads import float_type
from tilewright.runtime.exact.shadows import Shadows
from tilewright.runtime.exact.stored_origins import LaunchReports
from tilewright.runtime.preparation import LaunchFunction, Preparation

#: The dots of floats that kernels may have where all dots are computed in i8.
_FLOAT_DOTS = (
    ("f16", ("f32", "f16")),
    ("bf16", ("f32",)),
    ("f32", ("f32",)),
    ("f64", ("f64",)),
    ("f8e4m3fn", ("f32", "f16")),
    ("f8e5m2", ("f32", "f16")),
)

#: The reports of the kernels that exact launches run, while somebody collects them.
_reports: contextvars.ContextVar[LaunchReports | None] = contextvars.ContextVar(
    "tilewright_exact_reports", default=None
)


class exact_mode:  # noqa: N801 (used as a statement: with exact_mode():)
    """Run the launches of a ``with`` block with elements of a ring in place of floats.

    The elements of the ring are integers modulo ``251**4`` (``251**2`` for 16-bit floats, 251 for
    8-bit floats). In the arrays that you pass to the launches, the bits of each float represent an
    element of the ring, and are called a payload. Kernels load, compute and store elements of the
    ring instead of floats, so the results have the same bits on every backend. If you pass a scalar
    float argument, such as 0.001, the kernel receives the element of the ring that represents the
    simplest fraction that rounds to this float, such as 1/1000.

        with tw.testing.exact_mode("reference"):
            kernel[grid](x, out, 0.001)

    Args:
        backend: the name of the backend to run the launches on; by default, the backend that they
            run on outside of the block.
        carry: how kernels move payloads: ``"float"`` in the types of the floats, ``"int"`` as
            integers, for backends that change the bits of floats that they move.
        dot: the type in which ``dot`` multiplies: ``"native"`` for the operands' own types, or
            ``"i8"``.
        options: launch options that are passed to all launches, as in ``tw.backend``.

    Raises:
        BackendError: no such backend is installed, or it is broken.
        ExactModeError: at a launch: the kernel does something that has no meaning over a ring.
    """

    def __init__(
        self,
        backend: str = "",
        *,
        carry: Literal["float", "int"] = "float",
        dot: Literal["native", "i8"] = "native",
        **options: Any,
    ) -> None:
        if backend:
            chosen_backend(backend)  # which says what is wrong with the name
        self._backend, self._options = backend, options
        self._preparation = _preparation(ExactOptions(carry, dot))
        self._tokens: list[tuple[contextvars.Token[Any], contextvars.Token[Any]]] = []

    def __enter__(self) -> LaunchReports:
        """Begin; the list gets a report for each launch."""
        outer, reports = current.get(), LaunchReports()
        name, options = self._backend, self._options
        if not name and outer is not None:
            name, options = outer.name, {**outer.options, **options}
        choice = Choice(name, options, self._preparation)
        self._tokens.append((current.set(choice), _reports.set(reports)))
        return reports

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        choice, reports = self._tokens.pop()
        current.reset(choice)
        _reports.reset(reports)


def in_exact_mode() -> bool:
    """Return whether launches of this context compute in exact mode."""
    choice = current.get()
    preparation = None if choice is None else choice.preparation
    return preparation is not None and preparation.adapt is _adapted


def exact_choice(choice: Choice | None) -> Choice:
    """Return the choice of the same backend and options whose launches compute in exact mode."""
    if choice is None:
        return Choice("", {}, _preparation(ExactOptions()))
    if choice.preparation is not None:
        return choice
    return Choice(choice.name, choice.options, _preparation(ExactOptions()))


@functools.cache
def _preparation(options: ExactOptions) -> Preparation:
    dots = _FLOAT_DOTS if options.dot == "i8" else ()
    return Preparation(options.name, functools.partial(exact, options=options), _adapted, dots)


def _unchanged(module: Module) -> None:
    """Leave the frontend's module as it is."""


def _adapted(launcher: LaunchFunction, kernel: Any) -> LaunchFunction:
    """Wrap a backend's launcher for the arguments of an exact kernel."""
    preparation = replace(kernel.specialization.before_passes, run=_unchanged)
    plain = replace(kernel.specialization, before_passes=preparation)
    module = build_module(plain, kernel.backend, kernel.target)
    groups, found = AddressGroups(module), report(module)
    dependences = store_dependences(module, groups)
    converters = [
        _Converter(
            parameter.type,
            groups.storage(argument) if is_address(argument.type) else Storage.PAYLOADS,
        )
        for parameter, argument in zip(kernel.parameters, module.kernel.arguments, strict=True)
    ]

    @functools.cache
    def memory() -> Any:
        return kernel.backend.call("tilewright_memory", device=kernel.device)

    def launch(grid: tuple[int, int, int], stream: Any, values: tuple[Any, ...]) -> None:
        reports = _reports.get()
        if reports is not None:
            reports.launched(found, dependences, values)
        with Shadows(memory) as shadows:
            converted = tuple(
                [convert(value, shadows) for convert, value in zip(converters, values, strict=True)]
            )
            shadows.check_overlaps()
            launcher(grid, stream, converted)

    return launch


class _Converter:
    """Conversion of a launch's argument to the exact kernel's parameter."""

    def __init__(self, parameter_type: str, storage: Storage) -> None:
        self._storage = storage
        self._type = None if parameter_type.startswith("desc") else parse_type(parameter_type)

    def __call__(self, value: Any, shadows: Shadows) -> Any:
        if type(value) is int:
            return value
        if isinstance(value, TensorDescriptor):
            return self._descriptor(value, shadows)
        if type(value) is not float and is_array(value):
            return self._array(value, shadows)
        if isinstance(self._type, IntType) and not isinstance(value, bool | int):
            try:
                number = float(value)
            except (TypeError, ValueError):
                return value
            return payload_of_constant(number, ring(self._type.bits))
        return value

    def _array(self, array: Any, shadows: Shadows) -> Any:
        if float_type(array) is None:
            shadows.add_plain(array)
            return array
        if self._storage is not Storage.PAYLOADS:
            return shadows.shadow(array, self._storage)
        shadows.add_plain(array)
        if isinstance(self._type, PointerType) and isinstance(self._type.pointee, IntType):
            return reinterpret(array, f"uint{self._type.pointee.bits}")
        return array

    def _descriptor(self, descriptor: TensorDescriptor, shadows: Shadows) -> Any:
        """A descriptor of payloads: loads pad in the kernel, and round nothing."""
        if float_type(descriptor.base) is None:
            shadows.add_plain(descriptor.base)
            return descriptor
        return TensorDescriptor(
            self._array(descriptor.base, shadows),
            descriptor.shape,
            descriptor.strides,
            descriptor.block_shape,
        )
