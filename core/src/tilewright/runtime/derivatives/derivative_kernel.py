"""Kernels that are derived from others: their binding, compilation and plans."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from tilewright.errors import DefinitionError, LaunchError, similar, with_help
from tilewright.forks import setting_up
from tilewright.ir.core import Module
from tilewright.runtime.compiler import parallel_compile
from tilewright.runtime.compiler.compile import compile_kernel
from tilewright.runtime.compiler.selection import Selected
from tilewright.runtime.derivatives.bound_launch import BoundLaunch, Workspace
from tilewright.runtime.derivatives.derivative_arguments import (
    OwnParameters,
    check_layouts,
    kinds_of_own,
    taken,
)
from tilewright.runtime.derivatives.derived_source import DerivedSource
from tilewright.runtime.derivatives.repeated_launch import Repeated, RepeatedLaunches
from tilewright.runtime.devices import backend_choice
from tilewright.runtime.launch.compiled_kernel import CompiledKernel
from tilewright.runtime.launch.grid import grid_of, sizes
from tilewright.runtime.launch.jit import JITFunction
from tilewright.runtime.launch.kernel_interface import KernelInterface
from tilewright.runtime.preparation import Preparation
from tilewright.runtime.storage.artifact import Artifact


class DerivativePreparation(Preparation):
    """The derivation of a kernel from a module; derivations follow each other."""


class DerivativeKernel(KernelInterface, ABC):
    """A kernel that is derived from another one, and launched with its grid and arguments.

    Attributes:
        fn: what it is derived from: the kernel, or autotuners and heuristics around it.
        base_kernel: the innermost kernel, or the tangent kernel that this is a derivative of.
        prefix: begins the names of the arguments that it takes beside the kernel's.
        names: the kernel's parameters that those are about.
    """

    #: Whether derivatives of these kernels can be taken in turn.
    is_base = False

    def __init__(
        self, kernel: Any, kind: str, prefix: str, roles: Mapping[str, Iterable[str]]
    ) -> None:
        """Derive.

        Args:
            kernel: a kernel of ``tilewright.jit``, or of the Triton shim, or autotuners and
                heuristics around one; or a tangent kernel of these.
            kind: ``vjp`` or ``jvp``.
            roles: what parameters are -> their names.

        Raises:
            DefinitionError: it is no kernel, or has no such parameter.
        """
        self.fn, kernel = kernel, _innermost(kernel, kind)
        for role, names in roles.items():
            for name in names:
                require_parameter(kernel, role, name)
        self.base_kernel, self.prefix = kernel, prefix
        self.names = tuple(dict.fromkeys(name for names in roles.values() for name in names))
        self._own_names = {f"{prefix}{name}": name for name in self.names}
        self._kernel_names = tuple(kernel.arg_names)
        self._originals = {own: self._position(name) for own, name in self._own_names.items()}
        self.arg_names = [*self._kernel_names, *self._own_names]
        self.__name__ = f"{kernel.__name__}_{kind}"
        self._plans: dict[Any, Any] = {}
        self._kernels: dict[Any, CompiledKernel] = {}
        self._lock = threading.RLock()

    def run(self, *args: Any, grid: Any, warmup: bool = False, **keywords: Any) -> Any:
        """Launch on the kernel's grid; with ``warmup`` compile only.

        Returns:
            the compiled kernel of the derivative, the last one where it is several.

        Raises:
            DerivativeError: the kernel has no derivative, or the compiler cannot derive it.
            LaunchError: an argument is missing or does not fit.
        """
        bound, kinds, own, own_kinds, sizes_, selected, plans = self._bound(grid, args, keywords)
        situation = None
        if not warmup:
            repeated = plans.get("repeated")
            if repeated is None:
                repeated = plans["repeated"] = RepeatedLaunches(
                    kinds, own_kinds, {position for position, _ in self._originals.values()}
                )
            situation = repeated.situation(sizes_, bound, own.values())
            known = None if situation is None else repeated.get(situation)
            if known is not None:
                return known(bound, own)
        launch = self.launch_of(bound, kinds, own, own_kinds, sizes_, selected)
        if not warmup:
            self.check_own(launch)
        elif (collected := parallel_compile.collecting.get()) is not None:
            collected += [(self, one) for one in self._selections(launch, plans)]
            return None
        found = self._run(launch, plans, warmup)
        if situation is not None and 0 not in sizes_:
            again = self._repeated(launch, plans)
            if again is not None:
                plans["repeated"].keep(situation, again)
        return found

    def run_in(self, workspace: Workspace, *args: Any, grid: Any, **keywords: Any) -> None:
        """Launch in a stream of the caller's.

        Raises:
            DerivativeError: the kernel has no derivative, or the compiler cannot derive it.
            LaunchError: an argument is missing or does not fit.
        """
        launch, plans = self.bound_launch(*args, grid=grid, **keywords)
        self.check_own(launch)
        self._run(launch._replace(workspace=workspace), plans, warmup=False)

    def bound_launch(
        self, *args: Any, grid: Any, **keywords: Any
    ) -> tuple[BoundLaunch, dict[str, Any]]:
        """Bind arguments.

        Returns:
            the launch, and what was prepared for arguments of these kinds.

        Raises:
            LaunchError: an argument is missing or does not fit.
        """
        *parts, plans = self._bound(grid, args, keywords)
        return self.launch_of(*parts), plans

    def _bound(self, grid: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Bind arguments; return those of ``launch_of``, and what was prepared for their kinds."""
        own = taken(keywords, self.prefix, self._own_names, self.__name__)
        kernel = self.base_kernel
        if self.fn is not kernel or isinstance(kernel, DerivativeKernel):
            keywords = self.fn.chosen_keywords(grid, args, keywords)
        bound, kinds, options = kernel.bind(*args, **keywords)
        choice, own_kinds = backend_choice.current.get(), kinds_of_own(own)
        key = (*kinds, choice, *options.items(), "own", *own_kinds, *self._variant())
        found = self._plans.get(key)
        if found is None:
            with setting_up(), self._lock:
                found = self._plans.get(key)
                if found is None:
                    chosen = kernel.policy.select(kernel, bound, kinds, options, choice)
                    self.refuse_exact_mode(chosen)
                    found = self._plans[key] = (_flushing(_differentiated(chosen)), {})
        selected, plans = found
        if callable(grid):
            grid = grid_of(grid, {**dict(zip(self._kernel_names, bound, strict=True)), **options})
        return bound, kinds, own, own_kinds, sizes(grid), selected, plans

    def check_own(self, launch: BoundLaunch) -> None:
        """Check that the derivative's own arrays fit a launch, or raise a LaunchError."""
        check_layouts(launch.own, launch.originals)

    def launch_of(
        self,
        bound: tuple[Any, ...],
        kinds: tuple[Any, ...],
        own: Mapping[str, Any],
        own_kinds: tuple[Any, ...],
        grid: tuple[int, int, int],
        selected: Selected,
    ) -> BoundLaunch:
        """Return the launch of a kernel's arguments and the derivative's own.

        Args:
            kinds: those of ``bound``.
        """
        named = dict(zip(self._kernel_names, bound, strict=True))
        originals = {
            name: _original(bound[position], kinds[position], items)
            for name, (position, items) in self._originals.items()
        }
        return BoundLaunch(bound, named, grid, own, own_kinds, originals, selected)

    def refuse_exact_mode(self, selected: Selected) -> None:
        """Check that the base kernel's module is not transformed but by derivation.

        Raises:
            LaunchError: it is, into one that computes in a ring.
        """
        before = selected.specialization.before_passes
        if before is not None and not isinstance(before, DerivativePreparation):
            raise LaunchError(
                f"{self.__name__} cannot be launched in exact mode: a ring has no derivatives"
            )

    def source(self, *args: Any, grid: Any, **keywords: Any) -> str:
        """Return the derivative for a launch as source of the language, to read, keep and edit.

        The text is a module of Python with the kernels in the order of their launches, and a
        comment with the grid of each. The kernels are specialized as the launch's are: what is
        constant in it, such as parameters of ``tl.constexpr``, is a number in the text. Nothing is
        compiled or launched.

        Raises:
            DerivativeError: the kernel has no derivative, or the compiler cannot derive it.
            LaunchError: an argument is missing or does not fit.
            SourceError: the language has no source for an operation of the derivative.
        """
        launch, plans = self.bound_launch(*args, grid=grid, **keywords)
        return self._sources(launch, plans).text(self.base_kernel, launch.selected)

    def _position(self, name: str) -> tuple[int, tuple[int, ...]]:
        """Return the position of an argument, and the path to the item of a tuple ``t.0``."""
        if name in self._kernel_names:
            return self._kernel_names.index(name), ()
        first, *items = name.split(".")
        return self._kernel_names.index(first), tuple(map(int, items))

    def _variant(self) -> tuple[Any, ...]:
        """Return what plans depend on beside the kinds of arguments."""
        return ()

    @abstractmethod
    def _run(self, launch: BoundLaunch, plans: dict[str, Any], warmup: bool) -> Any:
        """Launch with bound arguments.

        Args:
            plans: what was prepared for these kinds of arguments.
        """

    @abstractmethod
    def _repeated(self, launch: BoundLaunch, plans: dict[str, Any]) -> Repeated | None:
        """Return a launch like one that was performed; None where each is prepared anew.

        Args:
            plans: what was prepared for these kinds of arguments.
        """

    @abstractmethod
    def _sources(self, launch: BoundLaunch, plans: dict[str, Any]) -> DerivedSource:
        """Return the kernels of a launch, to write them as source.

        Args:
            plans: what was prepared for these kinds of arguments.
        """

    @abstractmethod
    def _selections(self, launch: BoundLaunch, plans: dict[str, Any]) -> list[Selected]:
        """Return the selections of the kernels that a launch needs, without compiling them.

        Args:
            plans: what was prepared for these kinds of arguments.
        """

    def parameters(self, launch: BoundLaunch) -> OwnParameters:
        """Return the types of the derivative's own parameters."""
        devices = launch.selected.signature.devices
        return OwnParameters(launch.own, launch.kinds, launch.originals, devices)

    def selection(
        self, launch: BoundLaunch, name: str, derive: Callable[[Module], Module]
    ) -> Selected:
        """Return the selection of a kernel that is derived from a launch's.

        Args:
            name: identifies ``derive`` completely.
        """
        selected = launch.selected
        before = selected.specialization.before_passes

        def run(module: Module) -> None:
            if before is not None:
                before.run(module)
            derived = derive(module)
            module.functions.clear()
            module.functions.update(derived.functions)

        preparation = DerivativePreparation(f"{before.name}; {name}" if before else name, run)
        return selected._replace(
            specialization=replace(selected.specialization, before_passes=preparation)
        )

    def compiled(self, selected: Selected) -> CompiledKernel:
        """Return the kernel of a selection, from memory, the disk cache or the compiler."""
        found = self._kernels.get(self._key(selected))
        if found is None:
            artifact = compile_kernel(selected.specialization, selected.backend, selected.target)
            found = self.adopt(artifact, selected)
        return found

    def is_compiled(self, selected: Selected) -> bool:
        """Return whether a selection's kernel is in memory."""
        return self._key(selected) in self._kernels

    def adopt(self, compiled: Artifact | bytes, selected: Selected) -> CompiledKernel:
        """Adopt the kernel of a selection that a compile job compiled, here or elsewhere."""
        found = self._kernels[self._key(selected)] = CompiledKernel(
            parallel_compile.artifact_of(compiled),
            selected.specialization,
            selected.backend,
            selected.target,
            selected.device,
        )
        return found

    def _key(self, selected: Selected) -> tuple[Any, ...]:
        preparation = selected.specialization.before_passes
        assert preparation is not None
        plain = replace(selected.specialization, before_passes=None)
        key = self.base_kernel.policy.key(selected._replace(specialization=plain))
        return selected.place, key, preparation.name


def _flushing(selected: Selected) -> Selected:
    """Return a selection whose kernels flush denormals, where the backend leaves that open.

    Cotangents underflow as a matter of course, those of an activation far from zero for one.
    """
    specialization = selected.specialization
    if specialization.options.get("flush_denormals", False) is not None:
        return selected
    options = {**specialization.options, "flush_denormals": True}
    return selected._replace(specialization=replace(specialization, options=options))


def _innermost(kernel: Any, kind: str) -> Any:
    """Return the kernel, or the tangent kernel, within autotuners and heuristics.

    Args:
        kind: what is derived from it, for errors.

    Raises:
        DefinitionError: there is none.
    """
    found = kernel
    while isinstance(found, KernelInterface) and not isinstance(
        found, JITFunction | DerivativeKernel
    ):
        found = getattr(found, "fn", None)
    if not isinstance(found, JITFunction) and not getattr(found, "is_base", False):
        remedy = ""
        if isinstance(found, DerivativeKernel):
            remedy = (
                "an adjoint may be several kernels: for second derivatives take the adjoint of "
                f"tw.jvp({found.base_kernel.__name__}, ...)"
            )
        raise DefinitionError(
            with_help(
                f"{kind} is of a kernel of tilewright.jit, not of a {type(found).__name__}", remedy
            )
        )
    return found


def _differentiated(selected: Selected) -> Selected:
    """Return a selection whose module keeps calls of functions that have derivatives."""
    specialization = replace(selected.specialization, differentiated=True)
    return selected._replace(specialization=specialization)


def require_parameter(kernel: Any, role: str, name: str) -> None:
    """Check that a kernel has a parameter.

    Raises:
        DefinitionError: it has none of that name.
    """
    if name.partition(".")[0] not in kernel.arg_names:
        raise DefinitionError(
            with_help(
                f"{kernel.__name__} has no parameter {name!r}, which {role} names: it has "
                f"{', '.join(kernel.arg_names)}",
                similar(name, kernel.arg_names),
            )
        )


def _original(value: Any, kind: Any, items: tuple[int, ...]) -> tuple[Any, Any]:
    """Return an argument, or an item of a tuple, and its kind."""
    for item in items:
        value, kind = value[item], kind[item + 1]
    return value, kind


def request_text(**parts: Any) -> str:
    """Return a text that identifies a request: its parts, in order."""

    def text(part: Any) -> str:
        if isinstance(part, Mapping):
            return "{" + ", ".join(f"{key}: {text(part[key])}" for key in sorted(part)) + "}"
        if isinstance(part, frozenset | set):
            return text(tuple(sorted(part)))
        return str(part)

    return " ".join(f"{name}={text(part)}" for name, part in parts.items())
