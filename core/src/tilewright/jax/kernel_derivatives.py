"""A call of a kernel that has derivatives, and the launches that compute them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.jax.derivative_launch import PositionalDerivative
from tilewright.runtime.derivatives.adjoint_kernel import vjp
from tilewright.runtime.derivatives.tangent_kernel import jvp

#: Launches a kernel by XLA: (kernel, parameter -> value, result -> shape and type, grid, options).
Launch = Callable[[Any, Mapping[str, Any], Mapping[str, Any], Any, Mapping[str, Any]], list[Any]]


@dataclass(frozen=True, eq=False)
class XlaDerivatives:
    """A kernel with everything about its launch but the arrays.

    Attributes:
        launch: launches kernels by XLA.
        kernel: a kernel of ``tilewright.jit``, or a tangent kernel.
        names: the parameters of arrays that come in, in order.
        others: parameter -> value, of those that are no arrays.
        options: of the launch.
        grid: its sizes.
        outputs: parameter -> shape and type of the arrays that go out.
        differentiable: the arrays that derivatives are taken with respect to.
        saved: the outputs that the adjoint reads.
    """

    launch: Launch
    kernel: Any
    names: tuple[str, ...]
    others: Mapping[str, Any]
    options: Mapping[str, Any]
    grid: Any
    outputs: Mapping[str, Any]
    differentiable: tuple[str, ...]
    saved: tuple[str, ...]
    _derived: dict[Any, Any] = field(default_factory=dict)

    @property
    def varied(self) -> tuple[str, ...]:
        """The outputs that have derivatives: those of floats."""
        import jax.numpy as jnp

        return tuple(
            name for name, each in self.outputs.items() if jnp.issubdtype(each.dtype, jnp.floating)
        )

    @property
    def prefix(self) -> str:
        """The beginning of the names of tangents: the kernel may be a tangent kernel."""
        prefixes = itertools.chain(["t_"], (f"t{order}_" for order in itertools.count(2)))
        names = self.kernel.arg_names
        return next(each for each in prefixes if not any(name.startswith(each) for name in names))

    def tangent(self, wanted: tuple[str, ...]) -> XlaDerivatives:
        """Return the call that computes tangents along inputs, which come in after the arrays."""
        found = self._derived.get(wanted)
        if found is None:
            prefix, varied = self.prefix, self.varied
            tangents = tuple(f"{prefix}{name}" for name in wanted)
            found = self._derived[wanted] = XlaDerivatives(
                self.launch,
                jvp(self.kernel, inputs=wanted, outputs=varied, prefix=prefix),
                (*self.names, *tangents),
                self.others,
                self.options,
                self.grid,
                {**self.outputs, **{f"{prefix}{name}": self.outputs[name] for name in varied}},
                (*self.differentiable, *tangents),
                (),
            )
        return found

    def tangents(self, arrays: Sequence[Any], wanted: tuple[str, ...], along: Any) -> list[Any]:
        """Launch the tangent kernel; return the tangents of the varied outputs.

        Args:
            along: the tangents of the inputs ``wanted``.
        """
        call = self.tangent(wanted)
        bound = {**self.others, **dict(zip(call.names, [*arrays, *along], strict=True))}
        kernel = self._positional(("jvp", wanted), lambda: call.kernel)
        results = self.launch(kernel, bound, call.outputs, self.grid, self.options)
        return results[len(self.outputs) :]

    def gradients(
        self,
        arrays: Sequence[Any],
        saved: Sequence[Any],
        given: tuple[str, ...],
        cotangents: Sequence[Any],
        wanted: tuple[str, ...],
    ) -> list[Any]:
        """Launch the adjoint; return the gradients of the inputs ``wanted``.

        Args:
            saved: the saved outputs.
            cotangents: those of the outputs ``given``.
        """
        import jax
        import jax.numpy as jnp

        by_name = dict(zip(self.names, arrays, strict=True))
        kept = dict(zip(self.saved, saved, strict=True))
        # the adjoint reads no other outputs: memory of their shapes stands for them
        stand_ins = dict(zip(given, cotangents, strict=True))
        outputs = {**stand_ins, **kept}
        unread = {name: each for name, each in self.outputs.items() if name not in outputs}
        results = {
            f"d_{name}": jax.ShapeDtypeStruct(
                by_name[name].shape, jnp.promote_types(by_name[name].dtype, jnp.float32)
            )
            for name in wanted
        }
        bound = {**self.others, **by_name, **outputs}
        bound.update((f"d_{name}", stand_ins[name]) for name in given)
        kernel = self._positional(
            ("vjp", given, wanted),
            lambda: vjp(self.kernel, outputs=given, wrt=wanted, saved=self.saved),
        )
        found = self.launch(kernel, bound, {**unread, **results}, self.grid, self.options)
        return [
            gradient.astype(by_name[name].dtype)
            for name, gradient in zip(wanted, found[len(unread) :], strict=True)
        ]

    def _positional(self, key: Any, make: Callable[[], Any]) -> PositionalDerivative:
        found = self._derived.get(key)
        if found is None:
            found = self._derived[key] = PositionalDerivative(make())
        return found
