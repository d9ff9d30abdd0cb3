"""Operations as operators of ``torch.library``, with gradients."""

from __future__ import annotations

import functools
import string
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from tilewright_kernels.operations.frameworks import TORCH
from tilewright_kernels.operations.operation import Operation
from tilewright_kernels.operations.parameters import Function
from tilewright_kernels.operations.results import described, unpacked

_NAMESPACE = "tilewright_kernels"
#: Keeps operators as long as the process lives.
_library = torch.library.Library(_NAMESPACE, "FRAGMENT")
#: Operation -> the name of its operator.
_operators: dict[Operation, str] = {}
_names: set[str] = set()


def call(
    operation: Operation,
    arguments: tuple[Any, ...],
    tensors: Sequence[Any],
    out: Any,
    key: Any,
    store: Callable[[Any], None] | None,
) -> Any:
    """Compute what callers of an operation get, on tensors.

    Args:
        tensors: those among the arguments.
        key: of the call, see :meth:`.Operation.key`.
        store: takes the launches, to repeat them; see :meth:`.Operation.launched`.

    Raises:
        RuntimeError: ``out`` is given where a gradient is wanted, or the operation changes a tensor
            whose gradient is.
    """
    wants_gradient = False
    if torch.is_grad_enabled():
        for each in tensors:
            if each.requires_grad:
                wants_gradient = True
                _check_changes(operation, arguments, out)
                break
    if _is_observed(tensors) or (wants_gradient and operation.has_lists):
        return call_of_operator(operation, arguments, out)
    if wants_gradient:
        return unpacked(_RecordedCall.apply(operation, key, *arguments))
    results = operation.launched(TORCH, arguments, out, with_residuals=False, store=store)
    return unpacked(operation.without_residuals(results))


def call_of_operator(operation: Operation, arguments: tuple[Any, ...], out: Any) -> Any:
    """Compute what callers of an operation get by its operator, which is recorded."""
    others = [
        value
        for each, value in zip(operation.parameters, arguments, strict=True)
        if each.kind is not Function
    ]
    functions = [
        value
        for each, value in zip(operation.parameters, arguments, strict=True)
        if each.kind is Function
    ]
    found = getattr(torch.ops.tilewright_kernels, operation.operator_name(*functions))(*others)
    results = list(found) if isinstance(found, (tuple, list)) else [found]
    if operation.optional:
        made = operation.shapes(described, *arguments)
        results = [
            None if each is None else result for each, result in zip(made, results, strict=True)
        ]
    given = operation.without_residuals(results) if operation.results else ()
    if out is None:
        return unpacked(given)
    targets = out if isinstance(out, (tuple, list)) else (out,)
    for target, source in zip(targets, [each for each in given if each is not None], strict=True):
        target.copy_(source)
    return out


class _RecordedCall(torch.autograd.Function):  # type: ignore[misc]  # it has no types
    """A call that autograd alone records: it takes a third of the time of the operator's."""

    @staticmethod
    def forward(ctx: Any, operation: Operation, key: Any, *arguments: Any) -> tuple[Any, ...]:
        """Return the results but the residuals."""
        results = _all_results(operation, key, arguments)
        _save(operation, ctx, arguments, results)
        ctx.operation = operation
        return operation.without_residuals(results)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        """Return the gradients, of which the operation and the key have none."""
        return None, None, *_gradients(ctx.operation, ctx, cotangents, ctx.needs_input_grad[2:])


def _check_changes(operation: Operation, arguments: Sequence[Any], out: Any) -> None:
    """Check that a call whose gradient is wanted changes no tensor."""
    if out is not None:
        raise RuntimeError(
            f"{operation.name}: out= does not support automatic differentiation, and an argument "
            "requires a gradient: call the operation within torch.no_grad(), or without out="
        )
    if any(each.is_mutated for each in operation.parameters):
        raise RuntimeError(
            f"{operation.name} changes its arguments and has no gradient, and an argument requires "
            "one: call the operation within torch.no_grad()"
        )


def _is_observed(tensors: Sequence[Any]) -> bool:
    """Return whether something records or transforms the operators that are called."""
    if (
        torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
    ):
        return True
    for each in tensors:
        kind = type(each)
        if kind is not torch.Tensor and kind is not torch.nn.Parameter:
            return True
    return False


def operator_of(operation: Operation) -> Any:
    """Return the operator of an operation, which is defined at the first call."""
    return getattr(torch.ops.tilewright_kernels, operator_name(operation)).default


def operator_name(operation: Operation, *functions: Any) -> str:
    """Return the name of an operator, which is defined at the first call.

    Args:
        functions: those among the operation's arguments, in order.
    """
    if functions:
        names = [each.name for each in operation.parameters if each.kind is Function]
        operation = operation.specialized(**dict(zip(names, functions, strict=True)))
    found = _operators.get(operation)
    if found is None:
        found = _operators[operation] = _defined(operation)
    return found


# torch.compile calls it instead of tracing it; a method, for not all versions of PyTorch take the
# operation as an argument
torch.compiler.assume_constant_result(Operation.operator_name)


def _defined(operation: Operation) -> str:
    name = _free_name(operation.name)
    qualified = f"{_NAMESPACE}::{name}"
    results = ", ".join(["Tensor"] * len(operation.results))
    results = results if len(operation.results) == 1 else f"({results})"
    arguments = ", ".join(
        each.schema(alias) for each, alias in zip(operation.parameters, _aliases(), strict=False)
    )
    torch.library.define(
        qualified,
        f"({arguments}) -> {results}",
        lib=_library,
        tags=(torch.Tag.needs_exact_strides, torch.Tag.pt2_compliant_tag),
    )
    launch = functools.partial(_launch, operation)
    torch.library.impl(qualified, "CompositeExplicitAutograd", launch, lib=_library)
    torch.library.register_fake(qualified, functools.partial(_fake, operation), lib=_library)
    if not any(each.is_mutated for each in operation.parameters):
        torch.library.register_autograd(
            qualified,
            functools.partial(_backward, operation),
            setup_context=functools.partial(_save_operator, operation),
            lib=_library,
        )
    return name


def _aliases() -> list[str]:
    letters = string.ascii_lowercase
    return [*letters, *(one + other for one in letters for other in letters)]


def _free_name(name: str) -> str:
    found, number = name, 0
    while found in _names:
        number += 1
        found = f"{name}_{number}"
    _names.add(found)
    return found


def _launch(operation: Operation, *arguments: Any) -> Any:
    found = _all_results(operation, operation.key(arguments, None), arguments)
    first = operation.first_array(arguments)
    return unpacked(tuple(_placeholder(first) if each is None else each for each in found))


def _all_results(operation: Operation, key: Any, arguments: tuple[Any, ...]) -> list[Any]:
    """Return the results with the residuals; None for what is not made."""
    prepared = None if key is None else operation.recorded.get(key)
    if prepared is not None:
        return operation.repeated(prepared, arguments, None)
    store = operation.recorded.storing(key)
    return operation.launched(TORCH, arguments, None, with_residuals=True, store=store)


def _fake(operation: Operation, *arguments: Any) -> Any:
    first = operation.first_array(arguments)

    def make(shape: Sequence[int], dtype: Any) -> Any:
        return TORCH.empty(shape, dtype, first)

    found = operation.shapes(make, *arguments)
    return unpacked(tuple(_placeholder(first) if each is None else each for each in found))


def _placeholder(first: Any) -> Any:
    """Return the tensor in place of a result that is not made."""
    return first.new_empty((0,))


def _save(operation: Operation, ctx: Any, arguments: Sequence[Any], results: Sequence[Any]) -> None:
    unmarked = [
        each
        for position, each in enumerate(results)
        if each is not None
        and (position in operation.residual_positions or not each.dtype.is_floating_point)
    ]
    if unmarked:
        ctx.mark_non_differentiable(*unmarked)
    ctx.set_materialize_grads(False)
    saved: list[Any] = []
    ctx.counts = {}
    for name, is_result, position in operation.saved_places:
        value = (results if is_result else arguments)[position]
        if isinstance(value, (list, tuple)):
            ctx.counts[name] = len(value)
            saved.extend(value)
        else:
            saved.append(value)
    ctx.save_for_backward(*saved)
    ctx.settings = {name: arguments[position] for name, position in operation.setting_places}


def _save_operator(operation: Operation, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    _save(operation, ctx, inputs, output if isinstance(output, (tuple, list)) else (output,))


def _saved(operation: Operation, ctx: Any) -> SimpleNamespace:
    tensors = list(ctx.saved_tensors)
    found = dict(ctx.settings)
    for name in operation.saved:
        count = ctx.counts.get(name)
        found[name] = tensors.pop(0) if count is None else [tensors.pop(0) for _ in range(count)]
    return SimpleNamespace(**found)


def _backward(operation: Operation, ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
    given = operation.without_residuals(cotangents)
    return _gradients(operation, ctx, given, ctx.needs_input_grad)


def _gradients(
    operation: Operation, ctx: Any, given: Sequence[Any], is_needed: Sequence[Any]
) -> tuple[Any, ...]:
    """Return the gradients of all arguments, from the cotangents of the results that callers get.

    Raises:
        RuntimeError: the operation has none.
    """
    if operation.gradients is None:
        raise RuntimeError(
            f"{operation.name} has no gradient: detach its arguments, or differentiate with "
            "tilewright_kernels.use_references()"
        )
    if all(each is None for each in given):
        return (None,) * len(operation.parameters)
    saved = _saved(operation, ctx)
    saved.needed = frozenset(
        each.name
        for each, needed in zip(operation.parameters, is_needed, strict=True)
        if (any(needed) if isinstance(needed, (tuple, list)) else needed)
    )
    found = operation.gradients(saved, *given)
    return tuple(found.get(each.name) for each in operation.parameters)
