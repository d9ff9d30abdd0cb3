"""Lowering of operations to LLVM IR for one thread, with one file for each family of operations.

A family registers the interfaces of its operations. Elementwise operations have no interface:
:mod:`.elementwise` runs the emitters that the CPU and GPU backends share on each register.
"""

# for their registration
from tilewright.simt.lowering import (  # noqa: F401
    async_copy,
    atomics,
    control,
    convert_layout,
    debug,
    dot,
    element_groups,
    gather,
    global_memory,
    index,
    mbarrier,
    reduce,
    scan,
    shape,
    shared_memory,
    stagger,
    tensor_maps,
    tensor_memory,
    warp_specialize,
)
