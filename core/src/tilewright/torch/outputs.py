"""Outputs of a kernel: tensors that are allocated for it, described by its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tilewright.errors import LaunchError

#: Allocates an output, given the arguments by name.
MakeOutput = Callable[[Mapping[str, Any]], torch.Tensor]


@dataclass(frozen=True)
class OutputLike:
    """An output that is described by an argument; see :func:`like`.

    Attributes:
        name: the argument.
        shape: the output's shape, or a function of the argument that returns it; None for the
            argument's own, with its strides.
        dtype: the output's type; None for the argument's.
    """

    name: str
    shape: Sequence[int] | Callable[[torch.Tensor], Sequence[int]] | None = None
    dtype: torch.dtype | None = None

    def __call__(self, arguments: Mapping[str, Any]) -> torch.Tensor:
        tensor = arguments[self.name]
        dtype = tensor.dtype if self.dtype is None else self.dtype
        if self.shape is None:
            return torch.empty_like(tensor, dtype=dtype)
        shape = self.shape(tensor) if callable(self.shape) else self.shape
        return torch.empty(tuple(shape), dtype=dtype, device=tensor.device)


def like(
    name: str,
    shape: Sequence[int] | Callable[[torch.Tensor], Sequence[int]] | None = None,
    dtype: torch.dtype | None = None,
) -> OutputLike:
    """Describe an output as a tensor like an argument, on its device.

        like("q")
        like("q", shape=lambda q: q.shape[:-1], dtype=torch.float32)

    Args:
        name: the argument.
        shape: another shape, row by row, or a function of the argument that returns it; None for
            the argument's shape and strides (row by row where its elements are not dense).
        dtype: another type.
    """
    return OutputLike(name, shape, dtype)


def make_outputs(
    outputs: Mapping[str, MakeOutput], arguments: Mapping[str, Any]
) -> dict[str, torch.Tensor]:
    """Allocate the outputs of a call, by name.

    Raises:
        LaunchError: a function of outputs returns something else than a tensor.
    """
    made: dict[str, torch.Tensor] = {}
    for name, make in outputs.items():
        made[name] = tensor = make(arguments)
        if not isinstance(tensor, torch.Tensor):
            raise LaunchError(
                f"outputs[{name!r}] must return a tensor, and returned a {type(tensor).__name__}"
            )
    return made
