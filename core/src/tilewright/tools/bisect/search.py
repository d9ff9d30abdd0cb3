"""Search for the pass, the backend or the launch option that changes a kernel's results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.errors import LaunchError, TilewrightError
from tilewright.ir.core import Module
from tilewright.passes import pipeline
from tilewright.passes.clone import clone_module
from tilewright.passes.exact.report import report
from tilewright.plugins.registry import Backend, registry
from tilewright.reference.checks.checked_mode import CheckedOptions, CheckError
from tilewright.runtime.arguments.array_copies import clone, copy_into
from tilewright.runtime.compiler.compile import (
    build_module,
    lower_module,
    parameters_of,
    passes_of,
    take_apart,
)
from tilewright.runtime.compiler.selection import Selected
from tilewright.runtime.devices import device_registry
from tilewright.runtime.exact.exact_mode import exact_mode
from tilewright.runtime.exact.stored_origins import LaunchReports
from tilewright.runtime.launch.compiled_kernel import CompiledKernel
from tilewright.runtime.launch.grid import grid_of
from tilewright.runtime.launch.jit import JITFunction
from tilewright.runtime.storage.artifact import Artifact
from tilewright.tools.bisect.results import (
    ResultDifference,
    arrays_of,
    difference,
    draw_payloads,
    on_host,
    payload_differences,
    payloads_on_host,
    ring_of_array,
    tolerance,
)

Results = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class CompilationStep:
    """One step of :func:`bisect`: a run of the Tile IR after one pass, or a run on the backend.

    Attributes:
        name: how the step computes the results. ``pass 2 cse``: the reference interpreter runs the
            module after this pass. ``decomposed``: it runs the module whose operations are
            decomposed for the backend. ``cpu``: this backend runs the kernel. ``cpu with
            num_stages=1``: it does so with another launch option.
        difference: the difference from the results of the frontend's module on the reference
            interpreter; None if there is none.
        failure: why the step could not be computed; "" if it could.
    """

    name: str
    difference: ResultDifference | None
    failure: str = ""

    @property
    def right(self) -> bool:
        """Return whether the results differ by no more than rounding explains.

        In exact mode a difference that proves nothing counts as none.
        """
        found = self.difference
        return not self.failure and (found is None or found.within or bool(found.behind))

    def __str__(self) -> str:
        if self.failure:
            return f"{self.name}: failed ({self.failure})"
        if self.difference is None:
            return f"{self.name}: the same bits"
        if self.difference.behind:
            return f"{self.name}: inconclusive behind {', '.join(self.difference.behind)}"
        words = "rounding differs" if self.difference.within else "DIFFERS"
        return f"{self.name}: {words} ({self.difference})"


@dataclass(frozen=True)
class Bisection:
    """The result of :func:`bisect`: all steps, and the first step whose results are wrong.

    Attributes:
        kernel: the kernel's name.
        steps: the passes in order, then the backend.
        options: steps that run the backend with another value of one launch option; empty if the
            backend's results are right, or if ``faults`` explain them.
        faults: races, overlapping arguments and accesses out of bounds that checked mode finds in
            the frontend's module. They can explain why a step changes the results, so they are
            searched for only if a step does.
    """

    kernel: str
    steps: tuple[CompilationStep, ...]
    options: tuple[CompilationStep, ...] = ()
    faults: tuple[str, ...] = ()

    @property
    def culprit(self) -> CompilationStep | None:
        """The first step whose results are wrong; None where all are right."""
        return next((step for step in self.steps if not step.right), None)

    def conclusion(self) -> str:
        """Return a sentence that names what changes the results."""
        culprit = self.culprit
        if culprit is None:
            return (
                f"every step of {self.kernel} preserves its results: if they are wrong, the fault "
                "is in the kernel or its arguments; try checked mode"
            )
        if culprit.failure:
            return f"{culprit.name} fails: {culprit.failure}"
        text = f"{culprit.name} changes the results: {culprit.difference}"
        if self.faults:
            return (
                f"{text}; but the kernel itself has faults that can do that, and that can make the "
                "expected results wrong, so mend them first: " + "; ".join(self.faults)
            )
        helpful = [step.name for step in self.options if step.right]
        if helpful:
            text += f"; they are right for {', '.join(helpful)}"
        return text

    def __str__(self) -> str:
        lines = [f"  {step}" for step in (*self.steps, *self.options)]
        return "\n".join([f"{self.kernel}:", *lines, self.conclusion()])


class Bisected:
    """A kernel whose compilation is searched: ``bisected[grid](*args, **keywords)``."""

    def __init__(self, kernel: JITFunction, exact: bool = False) -> None:
        self.kernel, self.exact = kernel, exact

    def __getitem__(self, grid: Any) -> Any:
        """Return the function that searches for a launch over a grid."""

        def search(*args: Any, **keywords: Any) -> Bisection:
            bound, _, _ = self.kernel.bind(*args, **keywords)
            names = self.kernel.arg_names
            sizes = grid_of(grid, dict(zip(names, bound, strict=True)))
            if not self.exact:
                selected = self.kernel.selected(args, keywords)
                return _Bisection(self.kernel, selected, bound, sizes).run()
            with exact_mode() as reports:
                selected = self.kernel.selected(args, keywords)
                return _ExactBisection(reports, self.kernel, selected, bound, sizes).run()

        return search


def bisect(kernel: Any, *, exact: bool = False) -> Bisected:
    """Return an object whose launches search for the compilation step that changes the results.

    Launch the returned object as ``bisect(kernel)[grid](*args, **keywords)``, with the arguments of
    a launch of the kernel itself. The launch returns a :class:`Bisection`. The search has the
    following steps. First, the reference interpreter runs the Tile IR that the frontend generates.
    Then the interpreter runs the Tile IR after each pass of the backend, and compares the results
    of each run with those of the frontend's Tile IR. At the end, the backend runs the kernel. If
    the results of any step are wrong, the kernel also runs in checked mode, which searches for
    faults of the kernel, such as races. If checked mode finds none, and only the results of the
    backend are wrong, the backend runs the kernel again several times, each time with another value
    of ``num_warps``, ``num_stages`` or a Boolean launch option.

    After the search, the arrays that you passed contain the results of the frontend's Tile IR on
    the reference interpreter.

    Args:
        kernel: a kernel of ``tilewright.jit``, or of Triton through the shim. If it has a decorator
            (``autotune``, ``heuristics``), the decorator is ignored: pass the values of a
            configuration as keywords.
        exact: whether to search in exact mode, with random payloads in place of the arrays' floats
            and no tolerance. There are then two steps for each pass. One applies exact mode to the
            module after the pass, which must compute the same algebra. The other applies the pass
            to the module in exact mode, and must not change any bit. The arrays keep their values.

    Raises:
        TypeError: ``kernel`` is not a kernel, or an array cannot be copied.
        ExactModeError: the kernel does something for which exact mode has no rule.
    """
    found = getattr(kernel, "base_kernel", kernel)
    if not isinstance(found, JITFunction):
        raise TypeError(f"bisect takes a kernel (a function with @jit), not {found!r:.100}")
    return Bisected(found, exact)


class _Bisection:
    def __init__(
        self,
        kernel: JITFunction,
        selected: Selected,
        bound: Sequence[Any],
        sizes: tuple[int, int, int],
    ) -> None:
        self.kernel, self.selected, self.sizes = kernel, selected, sizes
        self.bound = tuple(bound)
        self.arrays = arrays_of(kernel.arg_names, bound)
        self.saved = {name: clone(array) for name, array in self.arrays.items()}
        self.tolerances = {name: tolerance(array) for name, array in self.arrays.items()}

    def copied(self, array: Any) -> np.ndarray[Any, Any]:
        """Return an array's results on the host."""
        return on_host(array)

    def difference(self, found: Results) -> ResultDifference | None:
        """Return how results differ from those of what the frontend made."""
        return difference(self.expected, found, self.tolerances)

    def run(self) -> Bisection:
        module = build_module(
            self.selected.specialization, self.selected.backend, self.selected.target
        )
        self.expected = self._interpreted(module)
        steps = [*self.algebra()]
        steps += [self._step(name, self._interpreted, each) for name, each in self._modules(module)]
        steps.append(self._step(self.selected.backend.name, self._lowered, {}))
        differs = any(not step.right and not step.failure for step in steps)
        faults = self._faults(module) if differs else ()
        options: list[CompilationStep] = []
        if not faults and not steps[-1].right and all(step.right for step in steps[:-1]):
            for name, value in self._alternatives():
                label = f"{self.selected.backend.name} with {name}={value}"
                options.append(self._step(label, self._lowered, {name: value}))
        self.finish(module)
        return Bisection(self.kernel.__name__, tuple(steps), tuple(options), faults)

    def _faults(self, module: Module) -> tuple[str, ...]:
        """Return what checked mode finds in a module and may change from run to run."""
        checked = CheckedOptions(undefined=False, overflow=False, arithmetic=False, promises=False)
        try:
            self._interpreted(module, checked)
        except CheckError as error:
            return tuple(str(finding) for finding in error.findings)
        except LaunchError as error:  # it refuses arrays whose memory has other numbers
            return (str(error).splitlines()[0],)
        return ()

    def algebra(self) -> Iterator[CompilationStep]:
        """Yield the steps before the passes run on the module that the backend compiles."""
        return iter(())

    def finish(self, module: Module) -> None:
        """Leave in the arrays what the frontend's module computes."""
        self._interpreted(module)

    def _step(self, name: str, compute: Any, what: Any) -> CompilationStep:
        try:
            found = compute(what)
        except TilewrightError as error:
            return CompilationStep(name, None, f"{type(error).__name__}: {error}".splitlines()[0])
        return CompilationStep(name, self.difference(found))

    def _modules(self, module: Module) -> Iterator[tuple[str, Module]]:
        """Yield the module after each pass of the backend, each a copy."""
        backend, specialization = self.selected.backend, self.selected.specialization
        passes = passes_of(backend, self.selected.target, specialization.options)
        current = clone_module(module)
        for number, pass_ in enumerate(passes, 1):
            pipeline.run(current, (pass_,))
            yield f"pass {number} {pipeline.pass_name(pass_)}", clone_module(current)
        if backend.manifest.lowers or backend.manifest.computes:
            take_apart(current, backend)
            yield "decomposed", current

    def _interpreted(self, module: Module, checked: CheckedOptions | None = None) -> Results:
        """Run a module on the reference interpreter, in checked mode if options are given."""
        backend = registry().get("reference")
        device = device_registry.find(backend, None)
        target = device_registry.target_of(backend, device)
        parameters = parameters_of(module)
        code = backend.require(
            "tilewright_lower", module=module, target=target, options=backend.manifest.options
        )
        options = {"checked": checked} if checked else {}
        return self._launched(Artifact("", code, parameters, {}), backend, options)

    def _lowered(self, options: Mapping[str, Any]) -> Results:
        """Run the kernel on its own backend, with some launch options changed."""
        selected = self.selected
        specialization = replace(
            selected.specialization, options={**selected.specialization.options, **options}
        )
        module = build_module(specialization, selected.backend, selected.target)
        artifact = lower_module(module, specialization.options, selected.backend, selected.target)
        return self._launched(artifact, selected.backend, options)

    def _launched(
        self, artifact: Artifact, backend: Backend, options: Mapping[str, Any]
    ) -> Results:
        """Launch on the arrays' first values, and return the values afterwards."""
        selected = self.selected
        own = backend is selected.backend
        device = selected.device if own else device_registry.find(backend, None)
        specialization = replace(
            selected.specialization,
            options={
                **(selected.specialization.options if own else backend.manifest.options),
                **options,
            },
        )
        compiled = CompiledKernel(
            artifact,
            specialization,
            backend,
            selected.target if own else device_registry.target_of(backend, device),
            device,
            selected.signature.converters,
        )
        for name, array in self.arrays.items():
            copy_into(array, self.saved[name])
        if 0 not in self.sizes:
            compiled.run(self.sizes, None, compiled.pick(self.bound))
        memory = backend.call("tilewright_memory", device=device)
        if memory is not None:
            memory.synchronize()
        return {name: self.copied(array) for name, array in self.arrays.items()}

    def _alternatives(self) -> Iterator[tuple[str, Any]]:
        """Yield other values of the launch options, one option at a time."""
        options = self.selected.specialization.options
        for name, value in options.items():
            if isinstance(value, bool):
                yield name, not value
        for name, values in (("num_stages", (1, 2)), ("num_warps", (1, 2, 4, 8))):
            for value in values if name in options else ():
                if options[name] != value:
                    yield name, value


class _ExactBisection(_Bisection):
    """The search on payloads, of a selection made in exact mode."""

    def __init__(self, reports: LaunchReports, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.original, self.reports = self.saved, reports
        reports.begin_with(list(self.arrays.values()))
        rng = np.random.default_rng(0)
        for array in self.arrays.values():
            draw_payloads(array, rng)
        self.saved = {name: clone(array) for name, array in self.arrays.items()}
        self.rings = {name: ring_of_array(array) for name, array in self.arrays.items()}
        #: as :func:`payload_differences` takes them: the passes on the exact kernel keep all bits
        self.digits: int | None = 0
        #: operations without algebra behind each array
        self.behind: dict[str, tuple[str, ...]] = {}

    def copied(self, array: Any) -> np.ndarray[Any, Any]:
        return payloads_on_host(array)

    def difference(self, found: Results) -> ResultDifference | None:
        differences = [
            replace(each, behind=self.behind.get(each.argument, ()))
            for each in payload_differences(self.expected, found, self.rings, self.digits)
        ]
        return min(differences, key=lambda each: bool(each.behind), default=None)

    def algebra(self) -> Iterator[CompilationStep]:
        """Yield a step for each pass: exact mode applied to what the pass makes of the kernel."""
        preparation = self.selected.specialization.before_passes
        assert preparation is not None
        plain = replace(self.selected.specialization, before_passes=None)
        current = build_module(plain, self.selected.backend, self.selected.target)
        facts = report(current)
        self.digits = 3 if facts.loses_digit else None
        for name, array in self.arrays.items():
            operations = {each.operation for each in self.reports.behind(array)}
            self.behind[name] = tuple(sorted(operations))
        passes = passes_of(self.selected.backend, self.selected.target, plain.options)

        def made_exact(module: Module) -> Results:
            preparation.run(module)
            return self._interpreted(module)

        for number, pass_ in enumerate(passes, 1):
            pipeline.run(current, (pass_,))
            name = f"algebra after pass {number} {pipeline.pass_name(pass_)}"
            yield self._step(name, made_exact, clone_module(current))
        self.digits, self.behind = 0, {}

    def finish(self, module: Module) -> None:
        """Restore the arrays' values."""
        for name, array in self.arrays.items():
            copy_into(array, self.original[name])
