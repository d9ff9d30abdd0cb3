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
from tilewright.runtime.derivatives.skipped_hooks import skipped_hooks_named
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
            DerivativeError: the kernel has no derivative, or the compiler cannot derive it.
            LaunchError: an argument is missing or does not fit.
        """
        launch, plans = self.bound_launch(*args, grid=grid, **keywords)
        return self._plans_of(launch, plans).planned(self, launch)[0]

    def stored_inputs(self, *args: Any, grid: Any, **keywords: Any) -> frozenset[str]:
        """Return the inputs whose gradients a launch stores, each element at most once.

        Raises:
            DerivativeError: the kernel has no derivative, or the compiler cannot derive it.
            LaunchError: an argument is missing or does not fit.
        """
        return frozenset(self.plan(*args, grid=grid, **keywords).coverages)

    def memory_sizes(self, *args: Any, grid: Any, **keywords: Any) -> dict[str, int]:
        """Return the bytes of the buffers that a launch allocates, except for tapes, by name.

        Raises:
            DerivativeError: the kernel has no derivative, or the compiler cannot derive it.
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
            DerivativeError: the kernel has no derivative, or the compiler cannot derive it.
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
            with skipped_hooks_named(self.fn, launch):
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
    """Derive the adjoint of a kernel, which computes gradients (reverse mode).

        adjoint = tw.vjp(softmax, outputs="out", wrt="x")
        adjoint[grid](x, out, n, BLOCK=1024, d_out=gradient, d_x=dx)

    Launch the adjoint with the grid and the arguments of the kernel, and with additional keywords.
    For each output ``y`` in ``outputs``, pass an array ``d_y`` that contains the cotangent of
    ``y``, with the shape and strides of ``y``. For each parameter ``x`` in ``wrt``, pass an array
    ``d_x``, to which the adjoint writes the gradient of ``x``. The array ``d_x`` has the shape and
    strides of ``x``, or one element if ``x`` is a float. The float type of ``d_x`` may differ from
    that of ``x``: pass a float32 array if many terms are added to the gradient of a float16 array.
    If ``x`` or ``y`` is a :class:`tilewright.TensorDescriptor`, pass a descriptor of the array
    instead of the array, with the shape, strides and ``block_shape`` of ``x`` or ``y``.
    The adjoint writes only to the arrays ``d_x``. The inputs must have the same values as in the
    launch of the original kernel.

    If only one program instance loads each element of an input, and always in the same lane of a
    tile, this instance computes and stores the gradient of the element without atomics. If several
    program instances load the same element, the adjoint can consist of several kernels. They sum
    the gradient in a fixed order, so that the gradient has the same bits in each run. If the
    address of a load depends on a loaded index, or if several lanes of a tile load the same
    element, program instances add to the gradient with atomics, so the last bits of the gradient
    may differ from run to run. The method ``adjoint.plan`` returns the kernels of a launch, and
    states why each of them is a separate kernel.

    If each iteration of a loop only adds to the loop-carried floats, the adjoint needs no memory
    for the loop. For other loops, the adjoint stores the loop-carried floats of each iteration of
    each program instance. The memory for these floats is called a tape. If the number of iterations
    does not depend only on scalar arguments and the grid, the launch first runs another kernel,
    which counts the iterations on the device.

    Args:
        kernel: a kernel of ``tilewright.jit``, or a tangent kernel for second derivatives.
        outputs: the outputs whose cotangents you pass: parameters that are arrays of floats, or
            descriptors of such arrays.
        wrt: the parameters whose gradients are computed: arrays of floats, descriptors, and floats.
        saved: parameters to which the kernel stores results that they still hold when the adjoint
            runs. The adjoint reads these results instead of computing them again. If a saved array
            has no cotangent, such as the log-sum-exp of attention, do not name it in ``outputs``:
            the adjoint demands a cotangent of each output.
        residuals: float variables of the kernel, such as the mean of a row, that the adjoint reads
            instead of computing them again. ``adjoint.forward`` is the kernel that also stores
            them. Pass an array for each variable to both kernels by keyword, such as ``r_mean`` for
            ``mean``; ``adjoint.forward.shapes`` returns the shapes. ``adjoint.explain`` suggests
            residuals.
        accumulate: whether to add the gradient to the contents of ``d_x`` instead of overwriting
            them.
        deterministic: whether to raise an error for inputs whose gradients would need atomic
            additions.
        tape: whether loops may use memory for a tape.
        tape_limit: the maximum number of bytes of the tapes of a launch.
        disjoint: inputs for which you guarantee that no two program instances, and no two lanes of
            a load, load the same element. Use it if the addresses do not prove this, for example
            because the loaded indices are a permutation. The adjoint stores the gradients of these
            inputs without atomics. If the guarantee is wrong, the gradients are wrong.
        prefix: the prefix of the keywords of cotangents.

    Raises:
        DefinitionError: the kernel has no such parameter.
        DerivativeError: at a launch: the kernel has no derivative, or the compiler cannot derive
            it; or a gradient needs atomic additions although ``deterministic`` is set.
        LaunchError: at a launch: a cotangent is missing, or its array does not match that of the
            parameter; or the tapes would need more memory than ``tape_limit``.
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
