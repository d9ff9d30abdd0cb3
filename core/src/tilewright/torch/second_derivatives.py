"""The gradient of a backward pass.

A backward pass maps tensors x and cotangents g to Jᵀ g, where J is the kernel's derivative at x.
Along u, which is the cotangent of its result, <u, Jᵀ g> = <J u, g>: the gradient with respect to g
is J u, which the tangent kernel computes, and that with respect to x is the tangent kernel's own
gradient. Saved outputs are functions of x, and have no gradient of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.runtime.derivatives.tangent_kernel import jvp
from tilewright.torch.call_layout import tensor_names, with_tensors
from tilewright.torch.gradient_memory import direction

if TYPE_CHECKING:
    # handed in: the function whose backward pass is differentiated
    from tilewright.torch.function import KernelFunction


def save(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Keep the inputs of a backward pass."""
    tensors, integers, floats, text, saved, cotangents, given, wanted = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, *cotangents)
    ctx.call = integers, floats, text
    ctx.roles = list(given), list(wanted), len(saved)


def backward(function: KernelFunction, ctx: Any, seeds: Sequence[Any]) -> tuple[Any, ...]:
    """Return the gradients of a backward pass with respect to its inputs.

    Args:
        seeds: the cotangents of its results; None for zeros.
    """
    integers, floats, text = ctx.call
    given, wanted, saved = ctx.roles
    names = tensor_names(text)
    tensors, cotangents = ctx.saved_tensors[: len(names)], ctx.saved_tensors[len(names) :]
    by_name = dict(zip(names, tensors, strict=True))
    directions = {
        name: direction(seed, by_name[name])
        for name, seed in zip(wanted, seeds, strict=True)
        if seed is not None
    }
    needed = [name for name, needs in zip(names, ctx.needs_input_grad[0], strict=True) if needs]
    gradients: dict[str, Any] = {}
    tangents: list[Any] = [None] * len(given)
    if directions:
        prefix = tangent_prefix(function.plain.arg_names)
        tangent = function.tangent(tuple(directions), tuple(given))
        own_text = with_tensors(text, [f"{prefix}{name}" for name in directions])
        call = [*tensors, *directions.values()], integers, floats, own_text
        if any(ctx.needs_input_grad[5]):
            results = dict(zip(tangent.outputs, tangent.operators.forward(*call), strict=True))
            tangents = [results[f"{prefix}{name}"] for name in given]
        if needed:
            own_given = [f"{prefix}{name}" for name in given]
            found = tangent.operators.backward(*call, [], list(cotangents), own_given, needed)
            gradients = dict(zip(needed, found, strict=True))
    return (
        [gradients.get(name) for name in names],
        no_gradient(integers),
        no_gradient(floats),
        None,
        [None] * saved,
        tangents,
        no_gradient(given),
        no_gradient(wanted),
    )


def no_gradient(values: Sequence[Any]) -> Any:
    """Return the gradient of a list of something else than tensors.

    PyTorch takes a list without elements for one of tensors.
    """
    return None if len(values) else []


def tangent_prefix(names: Iterable[str]) -> str:
    """Return a prefix of tangents that begins no name: the kernel may be a tangent kernel."""
    prefixes = itertools.chain(["t_"], (f"t{order}_" for order in itertools.count(2)))
    return next(each for each in prefixes if not any(name.startswith(each) for name in names))


def tangent_function(
    function: KernelFunction, inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> KernelFunction:
    """Return the function of the tangent kernel along some inputs, with gradients of its own."""
    prefix = tangent_prefix(function.plain.arg_names)
    made = dict(function.results)
    made.update((f"{prefix}{name}", function.results[name]) for name in outputs)
    return type(function)(
        jvp(function.plain, inputs=inputs, outputs=outputs, prefix=prefix),
        made,
        (*function.wrt, *[f"{prefix}{name}" for name in inputs]),
        (),
        function.grid,
        function.fixed,
        f"{function.__name__}_tangent",
        function.adjoint_options,
    )
