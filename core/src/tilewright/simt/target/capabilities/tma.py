"""TMA: tensor copies of blocks, by tensor maps of the host or of the kernel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.ir.types import DescriptorType
from tilewright.simt.dialect.ops.tensor_maps import (
    Descriptors,
    FreeDescriptors,
    MakeTensorMap,
    ShowDescriptor,
    Tensor,
)
from tilewright.simt.target.copy_mechanism import BlockAccess

if TYPE_CHECKING:
    # handed in: the lowering calls capabilities with its context
    from tilewright.simt.lowering.emission.context import SimtContext
    from tilewright.simt.target.matmul_plan import Matmul


@dataclass(frozen=True, slots=True)
class MadeDescriptor:
    """A device-side descriptor, as :meth:`DeviceTensorMaps.make` receives it.

    Attributes:
        memory: the i32 that identifies the global memory of the descriptor.
        shared: the address of the shared memory in which the descriptor is assembled.
        base: the address of the tensor.
        extents, strides: i64, the strides in elements.
        padding: the value of elements outside the tensor: ``zero`` or ``nan``.
    """

    memory: str
    shared: str
    base: str
    extents: tuple[str, ...]
    strides: tuple[str, ...]
    padding: str


class DeviceTensorMaps(ABC):
    """Tensor maps that a kernel makes in global memory.

    Attributes:
        bytes: size and alignment of the shared memory in which a descriptor is assembled.
    """

    bytes: int

    @abstractmethod
    def allocate(self, context: SimtContext, operation: Descriptors) -> str:
        """Allocate the program's memory for device-side descriptors; return an i32 handle.

        All threads of the program, or of a partition, run this (``simt.descriptors``), and the
        first one allocates.
        """

    @abstractmethod
    def make(self, context: SimtContext, operation: MakeTensorMap, made: MadeDescriptor) -> str:
        """Make a device-side descriptor (``simt.make_descriptor``) and return its ``ptr``.

        The first of the threads that run this, or its warp, makes it. Copies that this thread
        starts may use it after :meth:`show`.
        """

    @abstractmethod
    def show(self, context: SimtContext, operation: ShowDescriptor, descriptor: str) -> None:
        """Make a device-side descriptor visible to copies that its thread starts afterwards.

        That thread is the first one that runs this (``simt.show_descriptor``).
        """

    @abstractmethod
    def free(self, context: SimtContext, operation: FreeDescriptors, memory: str) -> None:
        """Free the memory of device-side descriptors, in the thread that allocated it."""


class Tma(ABC):
    """Tensor copies, which a copy mechanism of kind ``barrier`` starts.

    Attributes:
        device_maps: tensor maps that kernels make; None if copies use those of the host alone.
    """

    device_maps: DeviceTensorMaps | None = None

    @abstractmethod
    def keeps(self, operation: BlockAccess, divisors: Sequence[int], width: int) -> bool:
        """Return whether a descriptor load or store is kept for tensor copies.

        The descriptor is the kernel's argument or, if there are :attr:`device_maps`, made in the
        kernel (``make_descriptor``). ``divisors`` are powers of two that divide the block's
        offsets, one an axis, or the first column of a gather or scatter of rows; ``width`` is one
        that divides the tensor's last extent, in elements.
        """

    def promotes(self, matmul: Matmul) -> bool:
        """Return whether loads at pointers that feed a matmul in a loop are promoted to TMA copies.

        Their tensor maps are made on the host at the launch.
        """
        return False

    def reaches(self, block: DescriptorType, divisor: int) -> bool:
        """Return whether TMA copies can access a tensor with the given byte alignment.

        Its address and strides, and the offsets of its blocks in a row, are multiples of
        ``divisor`` bytes.
        """
        return False

    @abstractmethod
    def tensor(self, context: SimtContext, operation: Tensor) -> str:
        """Return the ``ptr`` of the descriptor that a ``simt.tensor`` stands for."""
