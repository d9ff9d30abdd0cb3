"""``tw.vjp``: adjoint kernels, which compute the cotangents of inputs from those of outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tilewright.derivatives.adjoint.loop_tape import TapeParameter
from tilewright.derivatives.analysis.write_modes import WriteMode, write_modes
from tilewright.derivatives.refusals import DerivativeError
from tilewright.derivatives.reverse_mode import AdjointRequest, consumed_outputs
from tilewright.derivatives.reverse_mode import vjp as adjoint_of
from tilewright.derivatives.trip_counts import TRIPS_OUT, trip_counts
from tilewright.errors import LaunchError
from tilewright.ir.core import Module
from tilewright.runtime.arguments.array_copies import set_to_zero
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.compiler.compile import build_module
from tilewright.runtime.compiler.selection import Selected
from tilewright.runtime.derivatives.derivative_arguments import (
    check_apart,
    copied_like,
    scalars_of,
)
from tilewright.runtime.derivatives.derivative_kernel import (
    BoundLaunch,
    DerivativeKernel,
    DerivedPlan,
    launched_value,
    request_text,
    require_parameter,
)
from tilewright.runtime.derivatives.scalar_slices import ScalarSlice, depends_on_scalars_alone
from tilewright.runtime.derivatives.tangent_kernel import names
from tilewright.runtime.derivatives.tape_memory import TapeMemory

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
        prefix: str,
    ) -> None:
        roles = {"outputs": outputs, "wrt": wrt}
        super().__init__(kernel, "vjp", prefix, roles)
        for name in saved:
            require_parameter(kernel, "saved", name)
        self.outputs, self.wrt, self.saved = outputs, wrt, saved
        self.accumulate, self.deterministic = accumulate, deterministic
        self.tape, self.tape_limit = tape, tape_limit

    @property
    def record_mark(self) -> str:
        return request_text(
            vjp=self.outputs,
            wrt=self.wrt,
            saved=self.saved,
            accumulate=self.accumulate,
            deterministic=self.deterministic,
        )

    def _run(self, launch: BoundLaunch, plans: dict[str, Any], warmup: bool) -> Any:
        plan = plans.get("vjp")
        if plan is None:
            plan = plans["vjp"] = _AdjointPlan(self, launch)
        if not warmup:
            plan.launch(self, launch)
        return plan.variant(self, launch).adjoint.kernel

    def _selections(self, launch: BoundLaunch, plans: dict[str, Any]) -> list[Selected]:
        plan = plans.get("vjp")
        if plan is None:
            plan = plans["vjp"] = _AdjointPlan(self, launch)
        return [plan.selection(self, launch)]


class _AdjointPlan:
    """The compiled adjoints of launches with arguments of some kinds."""

    def __init__(self, kernel: AdjointKernel, launch: BoundLaunch) -> None:
        self._parameters = kernel.parameters(launch)
        for name, (value, _) in launch.originals.items():
            if name not in self._parameters.elements:
                raise LaunchError(
                    f"{name} must be an array of one float, to which the cotangent of the number "
                    f"{value!r} is added"
                )
        selected = launch.selected
        self._source = build_module(selected.specialization, selected.backend, selected.target)
        self._consumed = consumed_outputs(self._source, kernel.outputs)
        self._modes = write_modes(self._source, kernel.wrt)
        self._variants: dict[tuple[str, ...], _Variant] = {}

    def variant(self, kernel: AdjointKernel, launch: BoundLaunch) -> _Variant:
        """Return the compiled adjoint of a launch, which writes as the launch's sizes allow."""
        modes = self._modes_at(kernel, launch)
        key = tuple(modes.values())
        variant = self._variants.get(key)
        if variant is None:
            selected = self._selection(kernel, launch, modes)
            variant = self._variants[key] = _Variant(kernel, launch, self._source, selected)
        return variant

    def selection(self, kernel: AdjointKernel, launch: BoundLaunch) -> Selected:
        """Return the selection of a launch's adjoint, which is not compiled."""
        return self._selection(kernel, launch, self._modes_at(kernel, launch))

    def _modes_at(self, kernel: AdjointKernel, launch: BoundLaunch) -> dict[str, str]:
        """Return how a launch writes each gradient."""
        numbers = scalars_of(launch.named)
        numbers.update((f"num_programs({axis})", size) for axis, size in enumerate(launch.grid))
        found = {name: mode.at(numbers) for name, mode in self._modes.items()}
        if kernel.deterministic:
            _refuse_atomics(kernel, found)
        return {
            name: "add" if kernel.accumulate and mode.mode == "store" else mode.mode
            for name, mode in found.items()
        }

    def _selection(
        self, kernel: AdjointKernel, launch: BoundLaunch, modes: Mapping[str, str]
    ) -> Selected:
        parts: dict[str, Any] = {
            "outputs": kernel.outputs,
            "wrt": kernel.wrt,
            "saved": kernel.saved,
            "modes": modes,
            "elements": self._parameters.elements,
            "facts": self._parameters.facts,
            "prefix": kernel.prefix,
        }
        derive = partial(adjoint_of, request=AdjointRequest(**parts))
        return kernel.selection(launch, f"vjp {request_text(**parts)}", derive)

    def launch(self, kernel: AdjointKernel, launch: BoundLaunch) -> None:
        """Prepare memory, and launch the adjoint."""
        own: dict[str, Any] = {}
        gradients: dict[str, Any] = {}
        for (name, value), kind in zip(launch.own.items(), launch.kinds, strict=True):
            argument = name.removeprefix(kernel.prefix)
            if argument in kernel.wrt:
                gradients[argument] = value
            elif argument in self._consumed:
                value = copied_like(name, value)
            own[name] = launched_value(value, kind)
        originals = {
            name.removeprefix(kernel.prefix): value for name, (value, _) in launch.originals.items()
        }
        check_apart(originals, kernel.outputs, gradients)
        variant = self.variant(kernel, launch)
        if variant.tape is not None and 0 not in launch.grid:
            like = next(iter(launch.own.values()))
            own.update(variant.tape.arguments(launch, like))
        if not kernel.accumulate:
            for value in gradients.values():
                set_to_zero(value.base if isinstance(value, TensorDescriptor) else value)
        variant.adjoint(launch, own)


def _refuse_atomics(kernel: AdjointKernel, modes: Mapping[str, WriteMode]) -> None:
    for name, mode in modes.items():
        if mode.mode == "atomic":
            raise DerivativeError(
                f"the gradient of {name} is added to atomically, in any order: {mode.why}",
                f"leave deterministic=False, or let one program alone load each element of {name}",
            )


class _Variant:
    """A compiled adjoint that writes gradients in some modes.

    Attributes:
        adjoint: its plan.
        tape: the memory of its tapes; None where it has none.
    """

    def __init__(
        self, kernel: AdjointKernel, launch: BoundLaunch, source: Module, selected: Selected
    ) -> None:
        self.adjoint = DerivedPlan(kernel.compiled(selected), launch)
        self.tape: TapeMemory | None = None
        loops = {
            tape.loop
            for parameter in self.adjoint.own
            if (tape := TapeParameter.of(parameter.name)) is not None
        }
        if not loops:
            return
        if not kernel.tape:
            raise DerivativeError(
                f"{kernel.base_kernel.__name__} has a loop that carries what has a derivative "
                "from one iteration to the next, and tape=False",
                "let the loop only add to what it carries, or leave tape=True",
            )
        derive = partial(trip_counts, loops=frozenset(loops))
        counted = derive(source)
        count: ScalarSlice[int] | DerivedPlan
        if depends_on_scalars_alone(counted, TRIPS_OUT):
            count = ScalarSlice(counted, TRIPS_OUT, lambda trips: int(trips[0]))
        else:
            name = f"trips {request_text(loops=frozenset(loops))}"
            counter = kernel.compiled(kernel.selection(launch, name, derive))
            count = DerivedPlan(counter, launch)
        self.tape = TapeMemory(count, self.adjoint.own, kernel.tape_limit)


def vjp(
    kernel: Any,
    *,
    outputs: str | Sequence[str],
    wrt: str | Sequence[str],
    saved: str | Sequence[str] = (),
    accumulate: bool = False,
    deterministic: bool = False,
    tape: bool = True,
    tape_limit: int = TAPE_LIMIT,
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
    (``stride >= n``) are completed at the launch. Programs that load one element add to its
    gradient atomically, so that its last bits may differ from run to run.

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
        accumulate: add to ``d_x`` instead of writing it.
        deterministic: refuse atomic additions.
        tape: whether loops may take memory.
        tape_limit: bytes that the loops of a launch may take.
        prefix: begins the names of the arguments of cotangents.

    Raises:
        DefinitionError: the kernel has no such parameter.
        DerivativeError: of a launch: the kernel has no derivative, or none that is known; or a
            gradient would be added to atomically though ``deterministic`` is set.
        LaunchError: of a launch: an array of cotangents is missing, or not like the original; or
            loops would take more memory than ``tape_limit``.
    """
    return AdjointKernel(
        kernel,
        names(outputs),
        names(wrt),
        names(saved),
        accumulate=accumulate,
        deterministic=deterministic,
        tape=tape,
        tape_limit=tape_limit,
        prefix=prefix,
    )
