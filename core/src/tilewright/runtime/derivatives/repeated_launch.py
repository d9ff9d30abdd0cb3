"""Launches like an earlier one, which need none of its checks and planning again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from tilewright.runtime.arguments.array_checks import layout_of
from tilewright.runtime.arguments.array_copies import set_to_zero
from tilewright.runtime.arguments.array_protocols import ArrayKind
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.compiler.specialize import DescriptorKind, ScalarKind
from tilewright.runtime.derivatives.bound_launch import DerivedPlan
from tilewright.runtime.launch.compiled_kernel import CompiledKernel

#: Launches of a derivative, of arguments of some kinds, that are kept.
_MOST_KEPT = 1024

#: Launches with the arguments of the kernel, and with the derivative's own by name.
Repeated = Callable[[tuple[Any, ...], Mapping[str, Any]], CompiledKernel]


class RepeatedLaunches:
    """Launches with arguments of some kinds, by everything that they depend on beside these.

    That is the grid, the numbers among the kernel's arguments, and the extents and strides of
    descriptors, of the derivative's own arrays, and of the kernel's arrays that those are about.
    """

    def __init__(
        self, kinds: Iterable[Any], own_kinds: Iterable[Any], originals: Iterable[int]
    ) -> None:
        """Prepare.

        Args:
            kinds: of the kernel's arguments.
            own_kinds: of the derivative's own.
            originals: positions of the kernel's arguments that those are about.
        """
        kinds = list(kinds)
        every = [*kinds, *own_kinds]
        self._is_possible = not any(type(kind) is tuple for kind in every)
        numbers = [p for p, kind in enumerate(kinds) if isinstance(kind, ScalarKind)]
        described = [p for p, kind in enumerate(kinds) if isinstance(kind, DescriptorKind)]
        arrays = {p for p in originals if isinstance(kinds[p], ArrayKind)}
        items = [
            "grid",
            *(f"bound[{position}]" for position in numbers),
            *(
                f"layouts[type(bound[{position}])](bound[{position}])"
                for position in sorted({*described, *arrays})
            ),
        ]
        own = "*[layouts[type(value)](value) for value in own]"
        source = f"lambda grid, bound, own: ({', '.join(items)}, {own})"
        self._situation = eval(source, {"layouts": _LAYOUTS})
        self._kept: dict[Any, Repeated] = {}

    def situation(
        self, grid: tuple[int, int, int], bound: tuple[Any, ...], own: Iterable[Any]
    ) -> Any:
        """Return the key of a launch; None where it is not kept."""
        return self._situation(grid, bound, own) if self._is_possible else None

    def get(self, situation: Any) -> Repeated | None:
        """Return the launch of a situation, if it is kept."""
        return self._kept.get(situation)

    def keep(self, situation: Any, launch: Repeated) -> None:
        """Keep a launch."""
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        self._kept[situation] = launch


def _numpy_layout(array: Any) -> Any:
    return array.shape, array.strides


def _descriptor_layout(value: TensorDescriptor) -> Any:
    return tuple(value.shape), tuple(value.strides), _LAYOUTS[type(value.base)](value.base)


def _tensor_layout(tensor: Any) -> Any:
    return tensor.shape, tensor.stride()


class _Layouts(dict[type, Callable[[Any], Any]]):
    """Type of argument -> function that returns a hashable, the same for one layout."""

    def __missing__(self, type_: type) -> Callable[[Any], Any]:
        found: Callable[[Any], Any] = layout_of
        if issubclass(type_, TensorDescriptor):
            found = _descriptor_layout
        elif callable(getattr(type_, "stride", None)) and hasattr(type_, "shape"):
            found = _tensor_layout
        elif any(base.__module__ == "numpy" for base in type_.__mro__):
            found = _numpy_layout
        self[type_] = found
        return found


_LAYOUTS = _Layouts()


class RepeatedKernel(NamedTuple):
    """A kernel of a repeated launch.

    Attributes:
        plan: the compiled kernel.
        grid: its grid.
        names: what the values of its own parameters are named in the launch.
        numbers: values that are its own.
    """

    plan: DerivedPlan
    grid: tuple[int, int, int]
    names: tuple[str, ...]
    numbers: Mapping[str, int]

    def __call__(self, bound: tuple[Any, ...], values: Mapping[str, Any]) -> None:
        if self.numbers:
            values = {**values, **self.numbers}
        own = [values[name] for name in self.names]
        self.plan.kernel.run(self.grid, None, (*self.plan.pick(bound), *own))


class RepeatedLaunch:
    """A launch of the kernels of a derivative.

    Attributes:
        kernels: in their order.
        zeroed: own arguments that are set to zero.
        replaced: own arguments that are copied, with the function that does so.
        converted: own arguments that launchers take another value for, with the function that
            returns it.
        memory: memory of the launch -> the function that allocates it beside an own argument.
        check: checks the arguments' addresses.
    """

    def __init__(
        self,
        kernels: Iterable[RepeatedKernel],
        *,
        zeroed: Iterable[str] = (),
        replaced: Mapping[str, Callable[[Any], Any]] | None = None,
        converted: Mapping[str, Callable[[Any], Any]] | None = None,
        memory: Mapping[str, Callable[[Any], Any]] | None = None,
        check: Callable[[tuple[Any, ...], Mapping[str, Any]], None] | None = None,
    ) -> None:
        self.kernels = [kernel for kernel in kernels if 0 not in kernel.grid]
        self.zeroed = tuple(zeroed)
        self.replaced, self.converted = dict(replaced or {}), dict(converted or {})
        self.memory, self.check = dict(memory or {}), check

    def __call__(self, bound: tuple[Any, ...], own: Mapping[str, Any]) -> CompiledKernel:
        """Launch; return the last kernel."""
        if self.check is not None:
            self.check(bound, own)
        values: Any = own
        if self.replaced or self.converted or self.memory:
            values = dict(own)
            for name, copy in self.replaced.items():
                values[name] = copy(own[name])
            for name, convert in self.converted.items():
                values[name] = convert(values[name])
            if self.memory:
                like = next(iter(own.values()))
                for name, allocate in self.memory.items():
                    values[name] = allocate(like)
        for name in self.zeroed:
            value = own[name]
            set_to_zero(value.base if isinstance(value, TensorDescriptor) else value)
        for kernel in self.kernels:
            kernel(bound, values)
        return self.kernels[-1].plan.kernel
