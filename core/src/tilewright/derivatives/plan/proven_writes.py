"""Atomic additions that become stores, where no two programs write to one element."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.derivatives.analysis.address_digits import AddressDigits, NotDigitsError
from tilewright.derivatives.analysis.write_modes import WriteMode, access_mode, block_mode
from tilewright.derivatives.tiling.kernel_memory import Addition, KernelMemory, is_addition
from tilewright.derivatives.tiling.partial_sums import write_total
from tilewright.ir.builder import Builder
from tilewright.ir.core import Module, Operation
from tilewright.ir.ops.memory import AtomicRmw, DescriptorReduce
from tilewright.passes.clone import clone_module


def proven_writes(module: Module) -> dict[str, WriteMode]:
    """Return how each argument that a kernel adds to may be written.

    Raises:
        NoTilingError: it has accesses that are not followed.
    """
    kernel = module.kernel
    additions: dict[str, list[Operation]] = {}
    for write, name in KernelMemory(module).writes.items():
        if is_addition(write):
            additions.setdefault(name, []).append(write)
    digits = AddressDigits(kernel)
    found = {}
    for name, writes in additions.items():
        atomics = [write for write in writes if isinstance(write, AtomicRmw)]
        blocks = [write for write in writes if isinstance(write, DescriptorReduce)]
        try:
            if atomics and blocks:
                raise NotDigitsError("both elements and blocks of descriptors are added")
            if blocks:
                found[name] = block_mode(kernel, digits, blocks, "add to")
            else:
                found[name] = access_mode(kernel, digits, atomics, "add to")
        except NotDigitsError as error:
            found[name] = WriteMode("atomic", str(error))
    return found


def without_atomics(module: Module, stored: Collection[str], added: Collection[str]) -> Module:
    """Return a kernel with stores in place of atomic additions.

    Args:
        stored: arguments each of whose elements is added to once, and is zero before.
        added: arguments each of whose elements one program alone adds to.
    """
    made = clone_module(module)
    for write, name in KernelMemory(made).writes.items():
        if not is_addition(write) or name not in (*stored, *added):
            continue
        assert isinstance(write, Addition)
        b = Builder.at(write)
        unchanged = {value: value for value in write.operands}
        write_total(b, write, write.value, unchanged, "add" if name in added else "store")
        if name in added:
            b.barrier()  # another addition of the program may follow by other threads
        write.erase()
    return made


__all__ = ["proven_writes", "without_atomics"]
