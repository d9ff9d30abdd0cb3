"""Operations as operators of ``torch.library``, with gradients."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from tilewright_kernels.operations.frameworks import TORCH
from tilewright_kernels.operations.operation import Operation
from tilewright_kernels.operations.parameters import Array

_NAMESPACE = "tilewright_kernels"
#: Keeps operators as long as the process lives.
_library = torch.library.Library(_NAMESPACE, "FRAGMENT")
#: Operation -> its operator.
_operators: dict[Operation, Any] = {}
_names: set[str] = set()


def call(operation: Operation, values: Mapping[str, Any], out: Any) -> tuple[Any, ...]:
    """Compute the results of an operation on tensors, but the residuals.

    Raises:
        RuntimeError: ``out`` is given where a gradient is wanted.
    """
    tensors = [values[each.name] for each in operation.parameters if each.kind is Array]
    wants_gradient = torch.is_grad_enabled() and any(
        each is not None and each.requires_grad for each in tensors
    )
    if out is not None and wants_gradient:
        raise RuntimeError(
            f"{operation.name}: out= does not support automatic differentiation, and an argument "
            "requires a gradient"
        )
    if out is not None or not (wants_gradient or _is_observed(tensors)):
        return operation.launched(TORCH, values, out, with_residuals=False)
    found = operator_of(operation)(*values.values())
    found = found if isinstance(found, (tuple, list)) else (found,)
    return tuple(
        each
        for name, each in zip(operation.results, found, strict=True)
        if name not in operation.residuals
    )


def _is_observed(tensors: Sequence[Any]) -> bool:
    """Return whether something records or transforms the operators that are called."""
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
        or any(
            each is not None and type(each) not in (torch.Tensor, torch.nn.Parameter)
            for each in tensors
        )
    )


def operator_of(operation: Operation) -> Any:
    """Return the operator of an operation, which is defined at the first call."""
    found = _operators.get(operation)
    if found is None:
        found = _operators[operation] = _defined(operation)
    return found


def _defined(operation: Operation) -> Any:
    name = _free_name(operation.name)
    qualified = f"{_NAMESPACE}::{name}"
    results = ", ".join(["Tensor"] * len(operation.results))
    results = results if len(operation.results) == 1 else f"({results})"
    arguments = ", ".join(each.schema for each in operation.parameters)
    torch.library.define(
        qualified,
        f"({arguments}) -> {results}",
        lib=_library,
        tags=(torch.Tag.needs_exact_strides, torch.Tag.pt2_compliant_tag),
    )
    launch = functools.partial(_launch, operation)
    torch.library.impl(qualified, "CompositeExplicitAutograd", launch, lib=_library)
    torch.library.register_fake(qualified, functools.partial(_fake, operation), lib=_library)
    torch.library.register_autograd(
        qualified,
        functools.partial(_backward, operation),
        setup_context=functools.partial(_save, operation),
        lib=_library,
    )
    return getattr(getattr(torch.ops, _NAMESPACE), name).default


def _free_name(name: str) -> str:
    found, number = name, 0
    while found in _names:
        number += 1
        found = f"{name}_{number}"
    _names.add(found)
    return found


def _named(operation: Operation, arguments: Sequence[Any]) -> dict[str, Any]:
    return dict(zip((each.name for each in operation.parameters), arguments, strict=True))


def _unpacked(results: tuple[Any, ...]) -> Any:
    return results[0] if len(results) == 1 else results


def _launch(operation: Operation, *arguments: Any) -> Any:
    values = _named(operation, arguments)
    return _unpacked(operation.launched(TORCH, values, None, with_residuals=True))


def _fake(operation: Operation, *arguments: Any) -> Any:
    first = operation.first_array(_named(operation, arguments))

    def make(shape: Sequence[int], dtype: Any) -> Any:
        return TORCH.empty(shape, dtype, first)

    return _unpacked(tuple(operation.shapes(make, *arguments)))


def _save(operation: Operation, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    results = output if isinstance(output, (tuple, list)) else (output,)
    values = _named(operation, inputs)
    named = {**values, **dict(zip(operation.results, results, strict=True))}
    unmarked = [
        each
        for name, each in zip(operation.results, results, strict=True)
        if name in operation.residuals or not each.dtype.is_floating_point
    ]
    ctx.mark_non_differentiable(*unmarked)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*[named[name] for name in operation.saved])
    ctx.settings = {
        each.name: values[each.name] for each in operation.parameters if each.kind is not Array
    }


def _backward(operation: Operation, ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
    if operation.gradients is None:
        raise RuntimeError(f"{operation.name} has no gradient")
    saved = SimpleNamespace(
        **dict(zip(operation.saved, ctx.saved_tensors, strict=True)), **ctx.settings
    )
    given = [
        each
        for name, each in zip(operation.results, cotangents, strict=True)
        if name not in operation.residuals
    ]
    if all(each is None for each in given):
        return (None,) * len(operation.parameters)
    saved.needed = frozenset(
        each.name
        for each, needed in zip(operation.parameters, ctx.needs_input_grad, strict=True)
        if needed
    )
    found = operation.gradients(saved, *given)
    return tuple(found.get(each.name) for each in operation.parameters)
