"""``tw.jvp``: kernels that compute tangents beside values."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tilewright.derivatives.forward_mode import TangentRequest
from tilewright.derivatives.forward_mode import jvp as tangents_of
from tilewright.errors import LaunchError
from tilewright.runtime.compiler.selection import Selected
from tilewright.runtime.derivatives.augmented_kernel import AugmentedKernel
from tilewright.runtime.derivatives.bound_launch import BoundLaunch
from tilewright.runtime.derivatives.derivative_kernel import request_text


class TangentKernel(AugmentedKernel):
    """The kernel that computes tangents beside values; see :func:`jvp`."""

    def __init__(
        self, kernel: Any, inputs: tuple[str, ...], outputs: tuple[str, ...], prefix: str
    ) -> None:
        super().__init__(kernel, "jvp", prefix, {"inputs": inputs, "outputs": outputs})
        self.inputs, self.outputs = inputs, outputs

    @property
    def record_mark(self) -> str:
        return request_text(jvp=self.outputs, inputs=self.inputs)

    @property
    def heading(self) -> str:
        return f"Tangents of {', '.join(self.outputs)}, given those of {', '.join(self.inputs)}"

    def selection_of(self, launch: BoundLaunch, *, keep_calls: bool = False) -> Selected:
        parameters = self.parameters(launch)
        for name, (value, _) in launch.originals.items():
            if isinstance(value, int | float) and name in parameters.elements:
                raise LaunchError(f"{name} must be a float: the argument is a number")
        request = TangentRequest(
            self.inputs, self.outputs, parameters.elements, parameters.facts, self.prefix
        )
        text = request_text(
            inputs=self.inputs,
            outputs=self.outputs,
            elements=parameters.elements,
            facts=parameters.facts,
            prefix=self.prefix,
        )
        derive = partial(tangents_of, request=request)
        return self.selection(launch, f"jvp {text}", derive)


def jvp(
    kernel: Any,
    *,
    inputs: str | Sequence[str],
    outputs: str | Sequence[str],
    prefix: str = "t_",
) -> TangentKernel:
    """Derive a kernel that also computes the tangents of its outputs (forward mode).

        double = tw.jvp(scale, inputs=("x", "factor"), outputs="out")
        double[grid](x, out, factor, n, BLOCK=256, t_x=tx, t_factor=1.0, t_out=t_out)

    Launch the derived kernel with the grid and the arguments of the original kernel. For each ``x``
    in ``inputs`` and ``outputs``, also pass the tangent of ``x`` as the keyword ``t_x``: an array
    with the same shape and strides as ``x``, or a float if ``x`` is a float. The derived kernel
    writes the outputs as the original kernel does, and also writes the tangents of the outputs. In
    the example above, the derived kernel writes to ``t_out`` the directional derivative of ``out``
    in the direction of ``t_x`` and ``t_factor``. The float type of a tangent may differ from that
    of the array that the tangent belongs to.

    Args:
        kernel: a kernel of ``tilewright.jit``, or a tangent kernel for second derivatives.
        inputs: the parameters that have tangents: arrays of floats, descriptors of them, and
            floats.
        outputs: the parameters whose tangents are computed: arrays of floats.
        prefix: the prefix of the keywords of tangents.

    Raises:
        DefinitionError: the kernel has no such parameter.
        DerivativeError: at a launch: the kernel has no derivative, or the compiler cannot derive
            it.
        LaunchError: at a launch: a tangent is missing, or its array does not match that of the
            parameter.
    """
    return TangentKernel(kernel, names(inputs), names(outputs), prefix)


def names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return one name, or several, as a tuple."""
    return (given,) if isinstance(given, str) else tuple(given)
