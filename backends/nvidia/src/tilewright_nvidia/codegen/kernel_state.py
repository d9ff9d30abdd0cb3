"""State of one kernel's emission: its parameters, and caches of the values emitted so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright_nvidia.codegen.bit_fields import BitFields
from tilewright_nvidia.codegen.packed_registers import PackedRegisters
from tilewright_nvidia.codegen.wide_multiply import WideProducts

if TYPE_CHECKING:
    from tilewright_nvidia.async_copy.tma import TensorMaps
    from tilewright_nvidia.codegen.memory_access import GlobalMemory


@dataclass(slots=True)
class KernelState:
    """What is known of a kernel while it is written.

    Attributes:
        maps: the tensor maps that it takes.
        memory: writes its accesses of global memory.
        num_warps: of a program.
        most_registers: that a thread may take; None for as many as the assembler gives it.
        programs: how many CTAs are to share an SM's registers; 0 for as many as there is room for.
        cluster: CTAs that run a program.
        uniform_warps: whether the assembler is to know that a warp's number is the same in all its lanes:
            it saves registers where addresses in shared memory depend on it, and costs a shuffle.
        waits_at_entry: whether it begins by waiting for the kernel before it, which it may overlap.
        words: the packed registers that elements were taken from, or put into.
        wide: double-width integer products, whose halves ``mul`` and ``mulhi`` share.
        bit_fields: the fields of 32-bit words, whose conversions to f32 take no shifts.
    """

    maps: TensorMaps
    memory: GlobalMemory
    num_warps: int
    most_registers: int | None
    programs: int
    cluster: int
    uniform_warps: bool
    waits_at_entry: bool
    words: PackedRegisters
    wide: WideProducts = field(default_factory=WideProducts)
    bit_fields: BitFields = field(default_factory=BitFields)


def kernel_state(w: FunctionWriter) -> KernelState:
    """The state of the kernel that is written."""
    state = w.module.state
    assert isinstance(state, KernelState), "a kernel is prepared before it is written"
    return state


def words_in(w: FunctionWriter) -> PackedRegisters:
    """The words of the kernel that is written."""
    return kernel_state(w).words
