"""Memory of gradients: with the strides of what they are gradients of."""

from __future__ import annotations

import torch

from tilewright.errors import LaunchError


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


class GradientMemory:
    """The array to which an adjoint writes the gradient of a tensor.

    Attributes:
        array: of the tensor's shape and strides; float32 for narrow floats that are added to in
            memory, of which sums would lose digits.
        accumulates: whether the adjoint must add to it: elements of the tensor that share memory
            share their gradient too.

    Raises:
        LaunchError: elements overlap in another way than those of an expanded tensor.
    """

    def __init__(self, name: str, original: torch.Tensor, *, is_stored: bool = False) -> None:
        """Allocate.

        Args:
            is_stored: whether the adjoint stores each element once, as a sum that is complete.
        """
        self._original = original
        is_summed = is_narrow(original.dtype) and not is_stored
        dtype = torch.float32 if is_summed else original.dtype
        strides = original.stride()
        # one element stands for those that an expanded tensor repeats
        shape = [
            1 if stride == 0 else extent
            for extent, stride in zip(original.shape, strides, strict=True)
        ]
        if _overlaps(shape, strides):
            raise LaunchError(
                f"{name} has shape {tuple(original.shape)} and strides {strides}: its elements "
                f"overlap, so that their gradients are one; pass {name}.contiguous()"
            )
        self._compact = torch.empty_strided(shape, strides, dtype=dtype, device=original.device)
        self.accumulates = list(original.shape) != shape
        self.array = self._compact
        if self.accumulates:
            self.array = self._compact.as_strided(original.shape, strides)

    def zero(self) -> None:
        """Set all elements to 0, for an adjoint that adds."""
        self._compact.zero_()

    def gradient(self) -> torch.Tensor:
        """Return the gradient that was written, in the tensor's type.

        Of elements that share memory the first has all of the gradient: their sum is what counts.
        """
        compact = self._compact.to(self._original.dtype)
        if not self.accumulates:
            return compact
        gradient = compact.new_zeros(self._original.shape)
        gradient[tuple([slice(extent) for extent in compact.shape])] = compact
        return gradient


def direction(value: torch.Tensor, original: torch.Tensor) -> torch.Tensor:
    """Return a tensor's tangent, given the cotangent of its gradient.

    It has the tensor's strides. Of elements that share memory the first has all of the gradient.
    """
    strides = original.stride()
    first = tuple([slice(1) if stride == 0 else slice(None) for stride in strides])
    return with_layout_of(value[first], original[first]).expand(original.shape)


def gradient_like(original: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the shape, strides and type of a :meth:`GradientMemory.gradient`."""
    if 0 in [s for s, e in zip(original.stride(), original.shape, strict=True) if e != 1]:
        return original.new_empty(original.shape)
    return torch.empty_strided(
        original.shape, original.stride(), dtype=original.dtype, device=original.device
    )


def _overlaps(shape: list[int], strides: tuple[int, ...]) -> bool:
    """Return whether two elements of a tensor may share memory."""
    reach = 1
    for stride, extent in sorted(zip(strides, shape, strict=True)):
        if extent == 1:
            continue
        if stride < reach:
            return True
        reach += (extent - 1) * stride
    return False
