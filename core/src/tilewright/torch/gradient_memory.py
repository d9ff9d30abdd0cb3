"""Memory of gradients: with the strides of what they are gradients of."""

from __future__ import annotations

from collections.abc import Sequence

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

    Raises:
        LaunchError: elements of the tensor share memory, as those of an expanded one do. The
            adjoint computes one gradient for them all, and autograd needs that of each.
    """

    def __init__(self, name: str, original: torch.Tensor, *, is_stored: bool = False) -> None:
        """Allocate.

        Args:
            is_stored: whether the adjoint stores each element once, as a sum that is complete.
        """
        self._dtype = original.dtype
        is_summed = is_narrow(original.dtype) and not is_stored
        shape, strides = original.shape, original.stride()
        if _overlaps(shape, strides):
            raise LaunchError(
                f"{name} has shape {tuple(shape)} and strides {strides}: elements share memory, "
                "so that the kernel cannot tell their gradients apart; pass "
                f"{name}.contiguous() and its strides"
            )
        self.array = torch.empty_strided(
            shape,
            strides,
            dtype=torch.float32 if is_summed else original.dtype,
            device=original.device,
        )

    def gradient(self) -> torch.Tensor:
        """Return the gradient that was written, in the tensor's type."""
        return self.array.to(self._dtype)


def gradient_like(original: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the shape, strides and type of a :meth:`GradientMemory.gradient`."""
    return torch.empty_strided(
        original.shape, original.stride(), dtype=original.dtype, device=original.device
    )


def _overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether two elements of a tensor may share memory."""
    if 0 in shape:
        return False
    reach = 1
    for stride, extent in sorted(zip(strides, shape, strict=True)):
        if extent == 1:
            continue
        if stride < reach:
            return True
        reach += (extent - 1) * stride
    return False
