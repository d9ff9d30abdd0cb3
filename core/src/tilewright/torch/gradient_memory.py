"""Memory of gradients: with the strides of what they are gradients of."""

from __future__ import annotations

from collections.abc import Sequence

import torch


def is_narrow(dtype: torch.dtype) -> bool:
    """Return whether sums of a type of floats are taken in float32."""
    return bool(dtype.is_floating_point) and dtype.itemsize < 4


def with_layout_of(value: torch.Tensor, original: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the elements of one and the strides of another of its shape.

    PyTorch hands out cotangents of any strides; those of a sum are expanded. A kernel applies the
    offsets of the original.
    """
    if value.stride() == original.stride() and not value.is_neg():
        return value
    laid_out = torch.empty_strided(
        original.shape, original.stride(), dtype=value.dtype, device=value.device
    )
    return laid_out.copy_(value)


def direction(value: torch.Tensor, original: torch.Tensor) -> torch.Tensor:
    """Return a tensor's tangent, given the cotangent of its gradient.

    It has the tensor's strides. Where elements share memory, their cotangents are equal: they are
    those of one element of the tensor's base.
    """
    first = _unexpanded(original)
    return with_layout_of(value[first], original[first]).expand(original.shape)


class GradientMemory:
    """The array to which an adjoint writes the gradient of a tensor.

    Attributes:
        array: of the tensor's shape and strides; float32 for narrow floats that are added to in
            memory, of which sums would lose digits.
        accumulates: whether the adjoint must add to it, as elements of the tensor share memory:
            each address has one gradient, the sum over the elements there.
    """

    def __init__(self, original: torch.Tensor, *, is_stored: bool = False) -> None:
        """Allocate.

        Args:
            is_stored: whether the adjoint stores each element once, as a sum that is complete.
        """
        self._dtype = original.dtype
        is_summed = is_narrow(original.dtype) and not is_stored
        self.accumulates = shares_memory(original)
        self.array = torch.empty_strided(
            original.shape,
            original.stride(),
            dtype=torch.float32 if is_summed else original.dtype,
            device=original.device,
        )

    def zero(self) -> None:
        """Set all elements to 0, for an adjoint that adds."""
        self.array[_unexpanded(self.array)].zero_()

    def gradient(self) -> torch.Tensor:
        """Return the gradient that was written, in the tensor's type.

        Of elements that share memory, the first has their whole gradient and the others have 0:
        the derivative of ``expand`` or ``unfold``, which adds them up, has the gradient of the
        base.
        """
        if not self.accumulates:
            return self.array.to(self._dtype)
        first = _unexpanded(self.array)
        distinct = self.array[first]
        if shares_memory(distinct):
            distinct = torch.where(_is_first(distinct), distinct, 0)
        gradient = torch.zeros(self.array.shape, dtype=self._dtype, device=self.array.device)
        gradient[first] = distinct.to(self._dtype)
        return gradient


def gradient_like(original: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the shape, strides and type of a :meth:`GradientMemory.gradient`."""
    if shares_memory(original):
        return torch.empty(original.shape, dtype=original.dtype, device=original.device)
    return torch.empty_strided(
        original.shape, original.stride(), dtype=original.dtype, device=original.device
    )


def shares_memory(tensor: torch.Tensor) -> bool:
    """Return whether two elements of a tensor may share memory, as those of an expanded one do."""
    shape: Sequence[int] = tensor.shape
    if 0 in shape:
        return False
    reach = 1
    for stride, extent in sorted(zip(tensor.stride(), shape, strict=True)):
        if extent == 1:
            continue
        if stride < reach:
            return True
        reach += (extent - 1) * stride
    return False


def _unexpanded(tensor: torch.Tensor) -> tuple[slice, ...]:
    """Return the slices that take one element of those that an expanded tensor repeats."""
    return tuple([slice(1) if stride == 0 else slice(None) for stride in tensor.stride()])


def _is_first(tensor: torch.Tensor) -> torch.Tensor:
    """Return for each element whether none before it has its address."""
    shape, strides, device = tensor.shape, tensor.stride(), tensor.device
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
    addresses = torch.arange(span, device=device).as_strided(shape, strides).flatten()
    numbers = torch.arange(addresses.numel(), device=device)
    first = numbers.new_zeros(span).scatter_reduce(
        0, addresses, numbers, "amin", include_self=False
    )
    return (first[addresses] == numbers).view(shape)
