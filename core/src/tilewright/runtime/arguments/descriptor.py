"""Host-side tensor descriptors: a strided tensor that kernels access in blocks of one shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.runtime.arguments.array_protocols import (
    ALIGNMENT,
    ArrayKind,
    address_of,
    array_kind,
)
from tilewright.runtime.arguments.dtypes import ITEM_SIZE

#: values that a load returns outside the tensor
PADDINGS = ("zero", "nan")

#: arguments of descriptors that were found valid
_sound: set[tuple[Any, ...]] = set()
_MOST_SOUND = 1024
#: types whose ``data_ptr`` may be asked without more ado: tensors that have memory, of such names,
#: of which there were descriptors
_addressed: set[type] = set()
_TENSORS = frozenset(("Tensor", "Parameter"))


class DescriptorError(ValueError, AssertionError):
    """A violated rule of :class:`TensorDescriptor`; Triton programs expect AssertionError."""


@dataclass(init=False)
class TensorDescriptor:
    """A tensor descriptor made on the host, with which kernels load and store blocks of a tensor.

    ``TensorDescriptor.from_tensor(tensor, block_shape, padding="zero", round_f32_to_tf32=False)``
    makes a descriptor of a whole tensor. If the configurations of an autotuned kernel have
    different block sizes, the ``pre_hook`` of each :class:`tilewright.Config` must assign the block
    sizes of this configuration to the attribute ``block_shape`` of the descriptor.

    Attributes:
        base: an array; its address is a multiple of 16.
        shape: the extents, for rank 1 to 5. Each is positive and below 2**31, because kernels read
            it as int32.
        strides: the strides in elements. The last is 1; the others, in bytes, are multiples of 16.
        block_shape: the extents of a block, powers of two. You may assign another shape before a
            launch.
        padding: the value that loads return outside the tensor: ``"zero"``, or ``"nan"`` for
            floats.
        round_f32_to_tf32: whether the hardware rounds f32 elements to TF32 during loads, if it
            supports this.

    Raises:
        DescriptorError: an argument violates one of the rules in the table of parameters; the
            message names the rule.
    """

    base: Any
    shape: Sequence[int]
    strides: Sequence[int]
    block_shape: Sequence[int]
    padding: str = "zero"
    round_f32_to_tf32: bool = False

    def __init__(
        self,
        base: Any,
        shape: Sequence[int],
        strides: Sequence[int],
        block_shape: Sequence[int],
        padding: str = "zero",
        round_f32_to_tf32: bool = False,
    ) -> None:
        # programs make descriptors for every launch, most of them like one before: what is made
        # here is on the path of launches
        self.base = base
        self.shape = shape = list(shape)
        self.strides = strides = list(strides)
        blocks = list(block_shape)
        for extent in blocks:
            if type(extent) is not int:
                blocks = list(map(_extent, blocks))
                break
        self.block_shape = blocks
        self.padding = padding
        self.round_f32_to_tf32 = round_f32_to_tf32
        facts = None
        if type(base) in _addressed:
            try:
                address = base.data_ptr()
                if address:
                    # no rule is about the device, and equal ones are slow to compare
                    facts = (
                        type(base),
                        base.dtype,
                        address % ALIGNMENT,
                        *shape,
                        None,
                        *strides,
                        None,
                        *blocks,
                        padding,
                        round_f32_to_tf32,
                    )
                    if facts in _sound:
                        return
            except Exception:  # what is wrong is found below
                facts = None
        broken = self._broken_rule(array_kind(base))
        if broken:
            raise DescriptorError(f"TensorDescriptor: {broken}")
        if facts is not None:
            if len(_sound) >= _MOST_SOUND:
                _sound.clear()
            _sound.add(facts)
        elif type(base).__name__ in _TENSORS:
            _addressed.add(type(base))

    def __post_init__(self) -> None:
        """Validate the fields that the constructor of a derived dataclass has set."""
        TensorDescriptor.__init__(
            self,
            self.base,
            self.shape,
            self.strides,
            self.block_shape,
            self.padding,
            self.round_f32_to_tf32,
        )

    def _broken_rule(self, kind: ArrayKind) -> str:
        """Return the message of the first broken rule; empty where all hold.

        Programs rely on the wording and on the order of the checks.
        """
        shape, strides, blocks = self.shape, self.strides, self.block_shape
        rank = len(shape)
        if not 1 <= rank <= 5:
            return f"rank must be 1 to 5, not {rank}"
        if len(strides) != rank:
            return f"rank mismatch: {rank} extents and {len(strides)} strides"
        if len(blocks) != rank:
            return f"rank mismatch: {rank} extents and {len(blocks)} block extents"
        for axis, extent in enumerate(blocks):
            if extent <= 0 or extent & (extent - 1):
                return f"block_shape: Shape element {axis} must be a power of 2, not {extent}"
        if not kind.divisible:
            return f"base must be {ALIGNMENT}-byte aligned"
        item = ITEM_SIZE[kind.dtype]
        for stride in strides[:-1]:
            if stride * item % ALIGNMENT:
                return (
                    f"strides must be {ALIGNMENT}-byte aligned, not {stride} elements of "
                    f"{item} bytes"
                )
        if min(shape) <= 0:
            return f"shape must be positive, not {shape}"
        if max(shape) >= 1 << 31:
            return (
                f"extents must be below 2**31, not {shape}; describe the tensor with "
                "more dimensions"
            )
        if strides[-1] != 1:
            return f"the last dimension must be contiguous (stride 1), not {strides[-1]}"
        if self.padding not in PADDINGS:
            return f"padding must be one of {', '.join(PADDINGS)}, not {self.padding!r}"
        if self.padding == "nan" and "fp" not in kind.dtype and kind.dtype != "bf16":
            return f"padding 'nan' is for floats, not for {kind.dtype}"
        if self.round_f32_to_tf32 and kind.dtype != "fp32":
            return f"round_f32_to_tf32 is for fp32, not for {kind.dtype}"
        return ""

    @staticmethod
    def from_tensor(
        tensor: Any,
        block_shape: Sequence[int],
        padding: str = "zero",
        round_f32_to_tf32: bool = False,
    ) -> TensorDescriptor:
        """Make a descriptor of a whole tensor."""
        stride = getattr(tensor, "stride", None)
        strides = (
            stride()
            if callable(stride)
            else [stride // tensor.itemsize for stride in tensor.strides]
        )
        return TensorDescriptor(
            tensor, tensor.shape, strides, block_shape, padding, round_f32_to_tf32
        )

    @property
    def dtype(self) -> str:
        """Element type as signature text."""
        return array_kind(self.base).dtype

    def data_ptr(self) -> int:
        """The address of the first element."""
        return address_of(self.base)


def _extent(extent: Any) -> int:
    """Convert an extent of a block, of any integer type or inside a constexpr, to an int."""
    return extent if type(extent) is int else int(getattr(extent, "value", extent))
