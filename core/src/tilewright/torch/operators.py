"""Operators of ``torch.library``: a kernel, its adjoint, and their gradients."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tilewright.errors import LaunchError
from tilewright.torch import second_derivatives
from tilewright.torch.call_layout import BackwardCall, PackedCall, tensor_names
from tilewright.torch.gradient_memory import (
    GradientMemory,
    gradient_like,
    is_narrow,
    with_layout_of,
)
from tilewright.torch.gradient_observers import check_observers
from tilewright.torch.outputs import make_outputs
from tilewright.torch.second_derivatives import no_gradient

if TYPE_CHECKING:
    # handed in: the function whose operators these are
    from tilewright.torch.function import KernelFunction

_NAMESPACE = "tilewright"
#: Names of operators that there are.
_names: set[str] = set()
#: Kinds of calls of a function of which it is kept which gradients its adjoint stores.
_MOST_KEPT = 256
#: Keeps operators as long as the process lives.
_library = torch.library.Library(_NAMESPACE, "FRAGMENT")
_PACKED = "Tensor[] tensors, SymInt[] integers, float[] floats, str text"
#: The strides of tensors are arguments of kernels.
_TAGS = (torch.Tag.needs_exact_strides,)


def free_name(name: str) -> str:
    """Return a name that no operator has, which begins with ``name``; it is then taken."""
    plain = re.sub(r"\W", "_", name)
    candidates = itertools.chain([plain], (f"{plain}_{n}" for n in itertools.count(1)))
    found = next(each for each in candidates if each not in _names)
    _names.add(found)
    return found


class KernelOperators:
    """The operators of a function.

    Attributes:
        forward: launches the kernel, and returns its outputs.
        backward: launches the adjoint, and returns the gradients of the wanted inputs.
    """

    def __init__(self, function: KernelFunction, name: str) -> None:
        self._function = function
        self._stored: dict[Any, frozenset[str]] = {}
        self.forward = _defined(name, f"({_PACKED}) -> Tensor[]", self._launch, self._outputs)
        self.backward = _defined(
            f"{name}_backward",
            f"({_PACKED}, Tensor[] saved, Tensor[] cotangents, str[] given, str[] wanted)"
            " -> Tensor[]",
            self._launch_adjoint,
            self._gradients,
        )
        torch.library.register_autograd(
            self.forward, self._backward, setup_context=self._save, lib=_library
        )
        torch.library.register_autograd(
            self.backward,
            functools.partial(second_derivatives.backward, function),
            setup_context=second_derivatives.save,
            lib=_library,
        )

    # -- the kernel

    def _launch(self, *packed: Any) -> list[torch.Tensor]:
        function = self._function
        named = {**function.fixed, **PackedCall(*packed).named()}
        outputs = make_outputs(function.outputs, named)
        compiled = function.kernel[function.grid](**named, **outputs)
        for parameter in getattr(compiled, "parameters", ()):
            name = parameter.name.partition(".")[0]
            if parameter.stored and name not in outputs and _is_tensor(named.get(name)):
                raise LaunchError(
                    f"{function.__name__}: the kernel may store to {name!r}, which an operator "
                    "does not change: name it in outputs="
                )
        return list(outputs.values())

    def _outputs(self, *packed: Any) -> list[torch.Tensor]:
        function = self._function
        named = {**function.fixed, **PackedCall(*packed).named()}
        return list(make_outputs(function.outputs, named).values())

    # -- its gradient

    def _save(self, ctx: Any, inputs: tuple[Any, ...], output: list[torch.Tensor]) -> None:
        tensors, integers, floats, text = inputs
        function = self._function
        outputs = dict(zip(function.outputs, output, strict=True))
        ctx.mark_non_differentiable(
            *[
                value
                for name, value in outputs.items()
                if name not in function.results or not value.dtype.is_floating_point
            ]
        )
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, *[outputs[name] for name in function.saved])
        ctx.call = integers, floats, text

    def _backward(self, ctx: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:
        function = self._function
        integers, floats, text = ctx.call
        names = tensor_names(text)
        tensors, saved = ctx.saved_tensors[: len(names)], ctx.saved_tensors[len(names) :]
        needed = dict(zip(names, ctx.needs_input_grad[0], strict=True))
        function.check_wrt(needed)
        wanted = [name for name in function.wrt if needed.get(name)]
        by_name = dict(zip(names, tensors, strict=True))
        for name in wanted:
            check_observers(name, by_name[name])
        given = {
            name: cotangent
            for name, cotangent in zip(function.outputs, cotangents, strict=True)
            if cotangent is not None
        }
        found: Mapping[str, torch.Tensor] = {}
        if wanted and given:
            results = self.backward(
                list(tensors),
                integers,
                floats,
                text,
                list(saved),
                list(given.values()),
                list(given),
                wanted,
            )
            found = dict(zip(wanted, results, strict=True))
        gradients = [found.get(name) for name in names]
        return gradients, no_gradient(integers), no_gradient(floats), None

    def _launch_adjoint(self, *packed: Any) -> list[torch.Tensor]:
        function, backward = self._function, BackwardCall(*packed)
        call, given, wanted = backward.call, backward.given, backward.wanted
        named = {**function.fixed, **call.named()}
        kept = dict(zip(function.saved, backward.saved, strict=True))
        # the adjoint reads no other outputs: memory of their layout stands for them
        outputs = {**make_outputs(function.unsaved, named), **kept}
        own: dict[str, torch.Tensor] = {}
        for name, cotangent in zip(given, backward.cotangents, strict=True):
            own[f"d_{name}"] = with_layout_of(cotangent, outputs[name])
        memory = {name: GradientMemory(named[name]) for name in wanted}
        accumulate = any(gradient.accumulates for gradient in memory.values())
        adjoint = function.adjoint(tuple(given), tuple(wanted), accumulate)
        if not accumulate and any(is_narrow(named[name].dtype) for name in wanted):
            layouts = tuple([(t.shape, t.stride(), t.dtype, t.device) for t in call.tensors])
            numbers = tuple(call.integers), tuple(call.floats)
            key = tuple(given), tuple(wanted), *numbers, call.text, layouts
            stored = self._stored.get(key)
            if stored is None:
                launched = {**named, **outputs, **own}
                launched.update((f"d_{name}", each.array) for name, each in memory.items())
                stored = adjoint.stored_inputs(grid=function.grid, **launched)
                if len(self._stored) >= _MOST_KEPT:
                    self._stored.clear()
                self._stored[key] = stored
            memory.update((name, GradientMemory(named[name], is_stored=True)) for name in stored)
        own.update((f"d_{name}", gradient.array) for name, gradient in memory.items())
        if accumulate:
            for gradient in memory.values():
                gradient.zero()
        adjoint[function.grid](**named, **outputs, **own)
        return [gradient.gradient() for gradient in memory.values()]

    def _gradients(self, *packed: Any) -> list[torch.Tensor]:
        backward = BackwardCall(*packed)
        named = backward.call.named()
        return [gradient_like(named[name]) for name in backward.wanted]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _defined(name: str, schema: str, launch: Any, fake: Any) -> Any:
    """Define an operator, and return it."""
    qualified = f"{_NAMESPACE}::{name}"
    torch.library.define(qualified, schema, lib=_library, tags=_TAGS)
    torch.library.impl(qualified, "CompositeExplicitAutograd", launch, lib=_library)
    torch.library.register_fake(qualified, fake, lib=_library)
    return getattr(getattr(torch.ops, _NAMESPACE), name).default
