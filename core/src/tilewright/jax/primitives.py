"""Primitives of JAX for the derivatives of kernels, which are linear in their last operands.

With J(x) the derivative of a kernel at x:

- ``tangent`` is J(x) t, whose transpose is the gradient;
- ``gradient`` is J(x)ᵀ g, whose transpose is the tangent;
- ``curvature`` is the derivative of J(x)ᵀ g along u, which is its own transpose: the second
  derivatives of <f(x), g> are symmetric.

Derivatives with respect to x follow from the tangent kernel, which is a kernel of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tilewright.errors import LaunchError
from tilewright.jax.kernel_derivatives import XlaDerivatives


class Primitives:
    """The primitives, of which there is one set a process."""

    def __init__(self) -> None:
        from jax.extend.core import Primitive
        from jax.interpreters import ad, batching, mlir

        self._ad = ad
        self.tangent, self.gradient, self.curvature = (
            Primitive(f"tilewright_{name}") for name in ("tangent", "gradient", "curvature")
        )
        for primitive, compute, derive, transpose in (
            (self.tangent, _tangent, self._derive_tangent, self._transpose_tangent),
            (self.gradient, _gradient, self._derive_gradient, self._transpose_gradient),
            (self.curvature, _curvature, self._derive_curvature, self._transpose_curvature),
        ):
            primitive.multiple_results = True
            primitive.def_impl(compute)
            primitive.def_abstract_eval(functools.partial(_shapes, primitive.name))
            ad.primitive_jvps[primitive] = derive
            ad.primitive_transposes[primitive] = transpose
            batching.primitive_batchers[primitive] = functools.partial(_batched, primitive)
            mlir.register_lowering(primitive, mlir.lower_fun(compute, multiple_results=True))

    # -- derivatives

    def _derive_tangent(
        self, primals: Any, tangents: Any, *, call: XlaDerivatives, wanted: tuple[str, ...]
    ) -> Any:
        arrays, saved, along = _split(primals, call, len(wanted))
        dots, _, along_dots = _split(tangents, call, len(wanted))
        parts = []
        if not self._all_zero(along_dots):
            operands = *arrays, *saved, *self._instantiated(along_dots, along)
            parts.append(self.tangent.bind(*operands, call=call, wanted=wanted))
        names, directions = self._directions(call, dots)
        if names:
            inner = call.tangent(wanted)
            operands = *arrays, *along, *directions
            found = self.tangent.bind(*operands, call=inner, wanted=names)
            parts.append(found[-len(call.varied) :])
        return self.tangent.bind(*primals, call=call, wanted=wanted), self._sum(parts, call, None)

    def _derive_gradient(
        self,
        primals: Any,
        tangents: Any,
        *,
        call: XlaDerivatives,
        given: tuple[str, ...],
        wanted: tuple[str, ...],
    ) -> Any:
        arrays, saved, cotangents = _split(primals, call, len(given))
        dots, _, cotangent_dots = _split(tangents, call, len(given))
        params = {"call": call, "given": given, "wanted": wanted}
        parts = []
        if not self._all_zero(cotangent_dots):
            operands = *arrays, *saved, *self._instantiated(cotangent_dots, cotangents)
            parts.append(self.gradient.bind(*operands, **params))
        names, directions = self._directions(call, dots)
        if names:
            operands = *arrays, *saved, *cotangents, *directions
            parts.append(self.curvature.bind(*operands, **params, along=names))
        return self.gradient.bind(*primals, **params), self._sum(parts, call, wanted)

    def _derive_curvature(
        self, primals: Any, tangents: Any, *, call: XlaDerivatives, **params: Any
    ) -> Any:
        along = params["along"]
        if not self._all_zero(tangents[: -len(along)]):
            raise LaunchError(
                f"{call.kernel.__name__}: third derivatives by reverse mode are not known; "
                "take one of the three by jax.jvp, innermost"
            )
        operands = (
            *primals[: -len(along)],
            *self._instantiated(tangents[-len(along) :], primals[-len(along) :]),
        )
        result = self.curvature.bind(*primals, call=call, **params)
        return result, self.curvature.bind(*operands, call=call, **params)

    # -- transposes

    def _transpose_tangent(
        self, cotangents: Any, *operands: Any, call: XlaDerivatives, wanted: tuple[str, ...]
    ) -> list[Any]:
        arrays, saved, _ = _split(operands, call, len(wanted))
        given, seeds = self._nonzero(call.varied, cotangents)
        found: list[Any] = [None] * len(wanted)
        if given:
            operands = *arrays, *saved, *seeds
            found = self.gradient.bind(*operands, call=call, given=given, wanted=wanted)
        return [None] * (len(arrays) + len(saved)) + list(found)

    def _transpose_gradient(
        self,
        cotangents: Any,
        *operands: Any,
        call: XlaDerivatives,
        given: tuple[str, ...],
        wanted: tuple[str, ...],
    ) -> list[Any]:
        arrays, saved, _ = _split(operands, call, len(given))
        along, seeds = self._nonzero(wanted, cotangents)
        tangents: dict[str, Any] = {}
        if along:
            found = self.tangent.bind(*arrays, *saved, *seeds, call=call, wanted=along)
            tangents = dict(zip(call.varied, found, strict=True))
        return [None] * (len(arrays) + len(saved)) + [tangents.get(name) for name in given]

    def _transpose_curvature(
        self,
        cotangents: Any,
        *operands: Any,
        call: XlaDerivatives,
        given: tuple[str, ...],
        wanted: tuple[str, ...],
        along: tuple[str, ...],
    ) -> list[Any]:
        residual = operands[: -len(along)]
        names, seeds = self._nonzero(wanted, cotangents)
        found: list[Any] = [None] * len(along)
        if names:
            params = {"given": given, "wanted": along, "along": names}
            found = self.curvature.bind(*residual, *seeds, call=call, **params)
        return [None] * len(residual) + list(found)

    # -- zeros

    def _all_zero(self, tangents: Sequence[Any]) -> bool:
        return all(type(each) is self._ad.Zero for each in tangents)

    def _nonzero(
        self, names: Sequence[str], values: Sequence[Any]
    ) -> tuple[tuple[str, ...], list[Any]]:
        pairs = [
            (name, value)
            for name, value in zip(names, values, strict=True)
            if type(value) is not self._ad.Zero
        ]
        return tuple(name for name, _ in pairs), [value for _, value in pairs]

    def _instantiated(self, tangents: Sequence[Any], like: Sequence[Any]) -> list[Any]:
        import jax.numpy as jnp

        return [
            jnp.zeros(value.shape, value.dtype) if type(tangent) is self._ad.Zero else tangent
            for tangent, value in zip(tangents, like, strict=True)
        ]

    def _directions(
        self, call: XlaDerivatives, tangents: Sequence[Any]
    ) -> tuple[tuple[str, ...], list[Any]]:
        names, directions = self._nonzero(call.names, tangents)
        check_differentiable(call, names)
        return names, directions

    def _sum(
        self, parts: list[Any], call: XlaDerivatives, wanted: tuple[str, ...] | None
    ) -> list[Any]:
        """Return the sum of tangents of results; zeros where there is none."""
        if parts:
            return [sum(terms[1:], terms[0]) for terms in zip(*parts, strict=True)]
        raise AssertionError(f"{call.kernel.__name__}: no operand has a tangent ({wanted})")


def check_differentiable(call: XlaDerivatives, names: Sequence[str]) -> None:
    """Check that derivatives with respect to arrays are those that the call declares.

    Raises:
        LaunchError: one is not.
    """
    for name in names:
        if name not in call.differentiable:
            raise LaunchError(
                f"{call.kernel.__name__}: the derivative with respect to {name!r} is wanted, and "
                f"differentiable= names {', '.join(call.differentiable)}: add it, or pass "
                f"jax.lax.stop_gradient({name})"
            )


def _split(operands: Any, call: XlaDerivatives, last: int) -> tuple[Any, Any, Any]:
    """Split operands into arrays, saved outputs, and the last ones."""
    arrays, end = len(call.names), len(operands) - last
    return operands[:arrays], operands[arrays:end], operands[end:]


def _tangent(*operands: Any, call: XlaDerivatives, wanted: tuple[str, ...]) -> list[Any]:
    arrays, _, along = _split(operands, call, len(wanted))
    return call.tangents(arrays, wanted, along)


def _gradient(
    *operands: Any, call: XlaDerivatives, given: tuple[str, ...], wanted: tuple[str, ...]
) -> list[Any]:
    arrays, saved, cotangents = _split(operands, call, len(given))
    return call.gradients(arrays, saved, given, cotangents, wanted)


def _curvature(
    *operands: Any,
    call: XlaDerivatives,
    given: tuple[str, ...],
    wanted: tuple[str, ...],
    along: tuple[str, ...],
) -> list[Any]:
    arrays, _, last = _split(operands, call, len(given) + len(along))
    cotangents, directions = last[: len(given)], last[len(given) :]
    inner = call.tangent(along)
    of_tangents = tuple(f"{call.prefix}{name}" for name in given)
    return inner.gradients([*arrays, *directions], (), of_tangents, cotangents, wanted)


def _shapes(name: str, *operands: Any, call: XlaDerivatives, **params: Any) -> list[Any]:
    """Return the shapes and types of a primitive's results."""
    from jax.core import ShapedArray

    if name.endswith("tangent"):
        results = [call.outputs[each] for each in call.varied]
    else:
        by_name = dict(zip(call.names, operands, strict=False))
        results = [by_name[each] for each in params["wanted"]]
    return [ShapedArray(each.shape, each.dtype) for each in results]


def _batched(primitive: Any, operands: Any, dims: Any, **params: Any) -> tuple[Any, Any]:
    """Compute the elements of a batch one after the other."""
    import jax
    import jax.numpy as jnp

    mapped = [
        jnp.moveaxis(operand, dim, 0)
        for operand, dim in zip(operands, dims, strict=True)
        if dim is not None
    ]

    def element(batch: list[Any]) -> Any:
        rest = iter(batch)
        return primitive.bind(
            *[
                operand if dim is None else next(rest)
                for operand, dim in zip(operands, dims, strict=True)
            ],
            **params,
        )

    results = jax.lax.map(element, mapped)
    return results, [0] * len(results)


@functools.cache
def primitives() -> Primitives:
    """Return the primitives, which are registered when they are first needed."""
    return Primitives()


def differentiable(call: XlaDerivatives, compute: Any) -> Any:
    """Return a function of the arrays of a call that has derivatives of both modes.

    Args:
        compute: computes the outputs, as a tuple, of the arrays.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.custom_derivatives import SymbolicZero

    function = jax.custom_jvp(compute)

    def derive(primals: Any, tangents: Any) -> Any:
        outputs = dict(zip(call.outputs, function(*primals), strict=True))
        pairs = [
            (name, tangent)
            for name, tangent in zip(call.names, tangents, strict=True)
            if not isinstance(tangent, SymbolicZero)
            and getattr(tangent, "dtype", None) != jax.dtypes.float0
        ]
        wanted = tuple(name for name, _ in pairs)
        check_differentiable(call, wanted)
        found: dict[str, Any] = {}
        if wanted and call.varied:
            saved = [outputs[name] for name in call.saved]
            along = [tangent for _, tangent in pairs]
            results = primitives().tangent.bind(*primals, *saved, *along, call=call, wanted=wanted)
            found = dict(zip(call.varied, results, strict=True))
        return tuple(outputs.values()), tuple(
            found[name]
            if name in found
            else jnp.zeros_like(value)
            if name in call.varied
            else np.zeros(value.shape, jax.dtypes.float0)
            for name, value in outputs.items()
        )

    function.defjvp(derive, symbolic_zeros=True)
    return function
