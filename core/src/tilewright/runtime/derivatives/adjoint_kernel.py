"""``tw.vjp``: adjoint kernels, which compute the cotangents of inputs from those of outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.derivatives.kernel_arguments import normalized
from tilewright.derivatives.plan.adjoint_plan import AdjointPlan
from tilewright.errors import DefinitionError, similar, with_help
from tilewright.runtime.compiler.selection import Selected
from tilewright.runtime.derivatives.adjoint_plans import AdjointPlans
from tilewright.runtime.derivatives.bound_launch import BoundLaunch
from tilewright.runtime.derivatives.compiled_plan import buffer_size, selections_of
from tilewright.runtime.derivatives.derivative_arguments import are_apart, check_apart
from tilewright.runtime.derivatives.derivative_kernel import (
    DerivativeKernel,
    request_text,
    require_parameter,
)
from tilewright.runtime.derivatives.derived_source import DerivedSource, adjoint_source
from tilewright.runtime.derivatives.explanation import AdjointExplanation, explained
from tilewright.runtime.derivatives.repeated_launch import Repeated
from tilewright.runtime.derivatives.residual_kernel import RESIDUAL_PREFIX, ResidualKernel
from tilewright.runtime.derivatives.tangent_kernel import names

#: Bytes that the tapes of a launch may take, unless a limit is given.
TAPE_LIMIT = 8 << 30


class AdjointKernel(DerivativeKernel):
    """The adjoint of a kernel; see :func:`vjp`."""

    def __init__(
        self,
        kernel: Any,
        outputs: tuple[str, ...],
        wrt: tuple[str, ...],
        saved: tuple[str, ...],
        *,
        accumulate: bool,
        deterministic: bool,
        tape: bool,
        tape_limit: int,
        disjoint: tuple[str, ...],
        prefix: str,
    ) -> None:
        roles = {"outputs": outputs, "wrt": wrt}
        super().__init__(kernel, "vjp", prefix, roles)
        for name in saved:
            require_parameter(kernel, "saved", name)
        self.outputs, self.wrt, self.saved = outputs, wrt, saved
        self.accumulate, self.deterministic = accumulate, deterministic
        self.tape, self.tape_limit = tape, tape_limit
        for name in disjoint:
            if name not in wrt:
                raise DefinitionError(
                    with_help(
                        f"disjoint names {name!r}, which wrt does not: it is ({', '.join(wrt)})",
                        similar(name, wrt),
                    )
                )
        self.disjoint = disjoint

    def check_addresses(self) -> Callable[[tuple[Any, ...], Mapping[str, Any]], None]:
        """Return the function that checks that a launch's arrays are apart.

        See :func:`.derivative_arguments.check_apart`.
        """
        own = {name: argument for argument, name in self._own_names.items()}
        positions = {name: self._originals[own[name]][0] for name in self.names}
        gradients = [own[name] for name in self.wrt]
        kernel_positions = list(positions.values())

        def check(bound: tuple[Any, ...], values: Mapping[str, Any]) -> None:
            if are_apart([bound[position] for position in kernel_positions]) and (
                len(gradients) == 1 or are_apart([values[name] for name in gradients])
            ):
                return
            originals = {name: bound[position] for name, position in positions.items()}
            check_apart(originals, self.outputs, {name: values[own[name]] for name in self.wrt})

        return check

    @property
    def forward(self) -> Any:
        """The kernel to launch before the adjoint: with ``residuals``, it stores these, too."""
        return self.fn

    def check_own(self, launch: BoundLaunch) -> None:
        super().check_own(launch)
        if isinstance(self.base_kernel, ResidualKernel):
            self.base_kernel.check_arrays(launch, launch.named)

    @property
    def record_mark(self) -> str:
        return request_text(
            vjp=self.outputs,
            wrt=self.wrt,
            saved=self.saved,
            accumulate=self.accumulate,
            deterministic=self.deterministic,
            disjoint=self.disjoint,
        )

    def plan(self, *args: Any, grid: Any, **keywords: Any) -> AdjointPlan:
        """Return the plan of a launch with these arguments: its kernels, and notes about them.

        Nothing is compiled or launched.

        Raises:
            DerivativeError: the kernel has no derivative, or none that is known.
            LaunchError: an argument is missing or does not fit.
        """
        launch, plans = self.bound_launch(*args, grid=grid, **keywords)
        return self._plans_of(launch, plans).planned(self, launch)[0]

    def stored_inputs(self, *args: Any, grid: Any, **keywords: Any) -> frozenset[str]:
        """Return the inputs whose gradients a launch stores, each element at most once.

        Raises:
            DerivativeError: the kernel has no derivative, or none that is known.
            LaunchError: an argument is missing or does not fit.
        """
        return frozenset(self.plan(*args, grid=grid, **keywords).coverages)

    def memory_sizes(self, *args: Any, grid: Any, **keywords: Any) -> dict[str, int]:
        """Return the bytes of the buffers that a launch allocates, except for tapes, by name.

        Raises:
            DerivativeError: the kernel has no derivative, or none that is known.
            LaunchError: an argument is missing or does not fit.
        """
        launch, plans = self.bound_launch(*args, grid=grid, **keywords)
        plan, facts = self._plans_of(launch, plans).planned(self, launch)
        buffers = (buffer for kernel in plan.kernels for buffer in kernel.scratch.values())
        return {buffer.name: buffer_size(buffer, facts) for buffer in buffers}

    def explain(self, *args: Any, grid: Any, **keywords: Any) -> AdjointExplanation:
        """Explain the adjoint of a launch with these arguments.

        For each input the way in which its gradient is written, for each loop the way in which it
        is walked, the kernels with their grids and memory, conditions on scalars that held or
        failed, and values that are computed again and could be saved. Nothing is compiled or
        launched. ``print()`` shows it, and ``record()`` returns it as JSON has it.

        Raises:
            DerivativeError: the kernel has no derivative, or none that is known.
            LaunchError: an argument is missing or does not fit.
        """
        launch, plans = self.bound_launch(*args, grid=grid, **keywords)
        found = self._plans_of(launch, plans)
        plan, facts = found.planned(self, launch)
        selected = launch.selected
        target = f"{selected.backend.name} {selected.target.arch}"
        forward = [parameter.name for parameter in found.source.kernel.arguments]
        others = found.with_more_saved(self, facts)
        source = normalized(found.source, rules=True)
        return explained(self.__name__, target, plan, facts, forward, others, source)

    def _sources(self, launch: BoundLaunch, plans: dict[str, Any]) -> DerivedSource:
        found = self._plans_of(launch, plans)
        plan, facts = found.planned(self, launch)
        return adjoint_source(self, plan, facts, found.consumed)

    def _run(self, launch: BoundLaunch, plans: dict[str, Any], warmup: bool) -> Any:
        found = self._plans_of(launch, plans)
        plan, facts = found.compiled(self, launch)
        if not warmup:
            found.launch(self, launch, plan, facts)
        return plan.kernels[-1].kernel

    def _repeated(self, launch: BoundLaunch, plans: dict[str, Any]) -> Repeated | None:
        return self._plans_of(launch, plans).repeated(self, launch)

    def _plans_of(self, launch: BoundLaunch, plans: dict[str, Any]) -> AdjointPlans:
        found = plans.get("vjp")
        if found is None:
            found = plans["vjp"] = AdjointPlans(self, launch)
        return found

    def _selections(self, launch: BoundLaunch, plans: dict[str, Any]) -> list[Selected]:
        found = self._plans_of(launch, plans)
        return selections_of(self, launch, found.planned(self, launch)[0])


def vjp(
    kernel: Any,
    *,
    outputs: str | Sequence[str],
    wrt: str | Sequence[str],
    saved: str | Sequence[str] = (),
    residuals: str | Sequence[str] = (),
    accumulate: bool = False,
    deterministic: bool = False,
    tape: bool = True,
    tape_limit: int = TAPE_LIMIT,
    disjoint: str | Sequence[str] = (),
    prefix: str = "d_",
) -> AdjointKernel:
    """Derive the adjoint of a kernel: reverse mode.

        adjoint = tw.vjp(softmax, outputs="out", wrt="x")
        adjoint[grid](x, out, n, BLOCK=1024, d_out=gradient, d_x=dx)

    It is launched with the kernel's grid and arguments; and by keyword, for each output ``y`` with
    ``d_y``, an array of its shape and strides that holds the cotangent of what the kernel writes,
    and for each ``x`` of ``wrt`` with ``d_x``, to which the cotangent of ``x`` is written: an array
    of its shape and strides, or an array of one float for a float. Arrays of cotangents may have
    another type of floats than the originals: pass float32 for the gradient of float16 of which
    many are summed. The adjoint writes to nothing else. Inputs must have the values that the kernel
    read.

    A gradient is stored where the addresses prove that each element of the input is loaded once,
    and added to without atomics where one program alone loads it. Proofs that depend on sizes
    (``stride >= n``) are completed at the launch. Where programs load one element, the adjoint is
    several kernels, of other tiles, so that one program sums up what the others would add, or
    partial sums are added up in a fixed order: the same bits in each run. What is in neither form,
    as an element that a loaded index chooses, is added to atomically, so that its last bits may
    differ from run to run. ``plan`` returns the kernels, and the reasons.

    A loop that carries what has a derivative from one iteration to the next, and does not only add,
    takes memory: what it carries in each iteration of each program. Its iterations are counted
    before the launch: on the host, once per combination of scalar arguments, where they depend on
    those alone, else by a kernel of its own.

    Args:
        kernel: a kernel of ``tilewright.jit``.
        outputs: parameters whose cotangents are given: arrays of floats, or descriptors of them.
        wrt: parameters whose cotangents are wanted: arrays of floats, descriptors, and floats.
        saved: arrays that hold what the kernel wrote to them when the adjoint runs: their values
            are read instead of being computed again, where that is the same.
        residuals: float variables of the kernel that its adjoint reads instead of computing them
            again, as a row's mean. ``adjoint.forward`` is the kernel that also stores them: both
            take, by keyword, ``r_mean`` for ``mean``, an array that ``adjoint.forward.shapes``
            describes. ``explain`` proposes some.
        accumulate: add to ``d_x`` instead of writing it.
        deterministic: refuse the inputs whose gradients would be added to atomically.
        tape: whether loops may take memory.
        tape_limit: bytes that the loops of a launch may take.
        disjoint: inputs of which no two programs, and no two lanes of one load, load one element,
            as you promise, where addresses do not prove it (loaded indices, permutations): their
            gradients are written without atomics. They are wrong where that does not hold.
        prefix: begins the names of the arguments of cotangents.

    Raises:
        DefinitionError: the kernel has no such parameter.
        DerivativeError: of a launch: the kernel has no derivative, or none that is known; or a
            gradient would be added to atomically though ``deterministic`` is set.
        LaunchError: of a launch: an array of cotangents is missing, or not like the original; or
            loops would take more memory than ``tape_limit``.
    """
    stored = names(residuals)
    forward = ResidualKernel(kernel, stored) if stored else kernel
    return AdjointKernel(
        forward,
        names(outputs),
        names(wrt),
        (*names(saved), *(f"{RESIDUAL_PREFIX}{name}" for name in stored)),
        accumulate=accumulate,
        deterministic=deterministic,
        tape=tape,
        tape_limit=tape_limit,
        disjoint=names(disjoint),
        prefix=prefix,
    )
