"""Tensor descriptors made on the host: a strided tensor, accessed by kernels in blocks of one shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.runtime.arguments import ALIGNMENT, address_of, array_kind
from tilewright.runtime.dtypes import ITEM_SIZE

#: what a load gives outside the tensor
PADDINGS = ("zero", "nan")


class DescriptorError(ValueError, AssertionError):
    """A rule of :class:`TensorDescriptor` is broken. Programs written for Triton expect an AssertionError here."""


@dataclass
class TensorDescriptor:
    """A tensor of ``shape`` and ``strides`` (in elements) at ``base``, seen in blocks of ``block_shape``.

    Attributes:
        base: an array; its address is a multiple of 16.
        shape: extents, each positive and below 2**31, since kernels read them as int32; rank 1 to 5.
        strides: in elements; the last is 1, each other one times the element size is a multiple of 16 bytes.
        block_shape: powers of two.
        padding: what loads give outside the tensor: ``"zero"``, or ``"nan"`` for floats.
        round_f32_to_tf32: let the hardware round f32 elements to TF32 while loading, where it can.

    Raises:
        DescriptorError: a rule above is broken; the message names it.
    """

    base: Any
    shape: Sequence[int]
    strides: Sequence[int]
    block_shape: Sequence[int]
    padding: str = "zero"
    round_f32_to_tf32: bool = False

    def __post_init__(self) -> None:
        self.shape, self.strides, self.block_shape = (
            list(self.shape),
            list(self.strides),
            [int(getattr(extent, "value", extent)) for extent in self.block_shape],
        )
        rank = len(self.shape)
        _require(1 <= rank <= 5, f"rank must be 1 to 5, not {rank}")
        _require(len(self.strides) == rank, f"rank mismatch: {rank} extents and {len(self.strides)} strides")
        _require(len(self.block_shape) == rank, f"rank mismatch: {rank} extents and {len(self.block_shape)} block extents")
        _require(all(extent > 0 for extent in self.shape), f"shape must be positive, not {self.shape}")
        _require(all(extent < 1 << 31 for extent in self.shape), f"extents must be below 2**31, not {self.shape}; describe the tensor with more dimensions")
        _require(all(extent > 0 and extent & (extent - 1) == 0 for extent in self.block_shape), f"block_shape must be powers of two, not {self.block_shape}")
        _require(self.strides[-1] == 1, f"the last dimension must be contiguous (stride 1), not {self.strides[-1]}")
        _require(self.padding in PADDINGS, f"padding must be one of {', '.join(PADDINGS)}, not {self.padding!r}")
        kind = array_kind(self.base)
        item = ITEM_SIZE[kind.dtype]
        _require(address_of(self.base) % ALIGNMENT == 0, f"base must be {ALIGNMENT}-byte aligned")
        for stride in self.strides[:-1]:
            _require(stride * item % ALIGNMENT == 0, f"strides must be multiples of {ALIGNMENT} bytes, not {stride} elements of {item} bytes")
        is_float = "fp" in kind.dtype or kind.dtype == "bf16"
        _require(self.padding != "nan" or is_float, f"padding 'nan' is for floats, not for {kind.dtype}")
        _require(not self.round_f32_to_tf32 or kind.dtype == "fp32", f"round_f32_to_tf32 is for fp32, not for {kind.dtype}")

    @staticmethod
    def from_tensor(tensor: Any, block_shape: Sequence[int], padding: str = "zero", round_f32_to_tf32: bool = False) -> TensorDescriptor:
        """A descriptor of a whole tensor."""
        if callable(getattr(tensor, "stride", None)):
            strides = tensor.stride()
        else:
            strides = [stride // tensor.itemsize for stride in tensor.strides]
        return TensorDescriptor(tensor, tuple(tensor.shape), tuple(strides), block_shape, padding, round_f32_to_tf32)

    @property
    def dtype(self) -> str:
        """Element type as signature text."""
        return array_kind(self.base).dtype

    def data_ptr(self) -> int:
        """The address of the first element."""
        return address_of(self.base)


def _require(condition: bool, rule: str) -> None:
    if not condition:
        raise DescriptorError(f"TensorDescriptor: {rule}")
