"""State of one kernel's emission: its parameters, and caches of the values emitted so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilewright.llvm.emission.writer import FunctionWriter
from tilewright_nvidia.codegen.bit_fields import BitFields
from tilewright_nvidia.codegen.packed_registers import PackedRegisters
from tilewright_nvidia.codegen.wide_multiply import WideProducts

if TYPE_CHECKING:
    # handed in: TMA copies keep their tensor maps here
    from tilewright_nvidia.async_copy.tma import TensorMaps


@dataclass(slots=True)
class KernelState:
    """The attributes of the kernel being emitted, and caches of emitted values.

    Attributes:
        maps: the tensor maps that it takes.
        frugal: whether to save registers at the cost of loads in flight. The results of masked-off
            lanes then start as zero instead of undefined. ptxas does not hoist these zeros, and so
            not the loads, to where other values still occupy the registers.
        num_warps: warps of a CTA.
        most_registers: maximum number of registers of a thread; None to leave it to ptxas.
        programs: minimum number of CTAs per SM (``.minnctapersm``); 0 for none.
        cluster: CTAs per cluster.
        uniform_warps: whether a shuffle shows ptxas that the warp index is uniform: it saves
            registers where shared memory addresses depend on it.
        waits_at_entry: whether the kernel begins by waiting for the preceding kernel, with which
            its launch may overlap.
        words: the packed registers that elements come from or were packed into.
        policies: L2 cache policies, created once at the kernel's entry.
        wide: double-width integer products, whose halves ``mul`` and ``mulhi`` share.
        bit_fields: bit fields of 32-bit words, which convert to floats without shifts.
    """

    maps: TensorMaps
    frugal: bool
    num_warps: int
    most_registers: int | None
    programs: int
    cluster: int
    uniform_warps: bool
    waits_at_entry: bool
    words: PackedRegisters
    policies: dict[tuple[FunctionWriter, str], str] = field(default_factory=dict)
    wide: WideProducts = field(default_factory=WideProducts)
    bit_fields: BitFields = field(default_factory=BitFields)


def kernel_state(w: FunctionWriter) -> KernelState:
    """Return the state of the kernel being emitted."""
    state = w.module.state
    assert isinstance(state, KernelState), "a kernel is prepared before it is written"
    return state


def words_in(w: FunctionWriter) -> PackedRegisters:
    """Return the packed registers of the kernel being emitted."""
    return kernel_state(w).words
