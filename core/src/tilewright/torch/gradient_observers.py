"""Observers of the gradient of an input whose elements share memory.

An adjoint adds the gradients of all elements at one address. The base of an expanded tensor has
that sum as its gradient, and so may receive it through the first of these elements. Each element
has a gradient of its own, though, which a leaf's ``.grad``, ``retain_grad()``, hooks and
``torch.autograd.grad`` would show.
"""

from __future__ import annotations

import torch

from tilewright.errors import LaunchError
from tilewright.torch.gradient_memory import shares_memory

#: The derivatives that add up the gradients of all elements at one address.
_SUMMING = frozenset({"ExpandBackward0", "UnfoldBackward0", "AsStridedBackward0"})


def check_observers(name: str, original: torch.Tensor) -> None:
    """Check that nobody but the base receives the gradient of elements that share memory.

    Args:
        name: the input's name.
        original: the input, as the forward pass received it, within a backward pass.

    Raises:
        LaunchError: the gradient of each element may be observed.
    """
    if not shares_memory(original):
        return
    node, base = original.grad_fn, original._base
    if node is None:
        observer = "it is a leaf"
    elif original.retains_grad:
        observer = "it retains its gradient"
    elif original._backward_hooks:
        observer = "it has hooks"
    elif node.name() not in _SUMMING:
        observer = f"its gradient passes through {node.name()}"
    elif not any(_executes(following) for following, _ in node.next_functions):
        observer = "its gradient is a result of torch.autograd.grad"
    elif base is None or shares_memory(base) or _is_summed_again(node, base):
        observer = "it is a view of a tensor whose elements share memory"
    else:
        return
    raise LaunchError(
        f"{name} has shape {tuple(original.shape)} and strides {original.stride()}: elements "
        f"share memory, so that the kernel cannot tell their gradients apart, and {observer}; pass "
        f"{name}.contiguous() and its strides"
    )


def _executes(node: torch.autograd.graph.Node | None) -> bool:
    """Return whether the backward pass that runs has the gradient for a node."""
    if node is None:
        return False
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:
        return True  # so does PyTorch say that torch.autograd.grad returns a leaf's gradient


def _is_summed_again(node: torch.autograd.graph.Node, base: torch.Tensor) -> bool:
    """Return whether elements share memory too in a tensor between a view and its base."""
    end = torch.autograd.graph.get_gradient_edge(base).node if base.requires_grad else None
    following = node.next_functions[0][0]
    while following is not None and following is not end:
        leaf = getattr(following, "variable", None)
        if following.name() in _SUMMING or (leaf is not None and shares_memory(leaf)):
            return True
        others = following.next_functions
        following = others[0][0] if others else None
    return False
