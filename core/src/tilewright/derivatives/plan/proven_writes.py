"""Atomic additions that become stores, where no two programs write to one element."""

from __future__ import annotations

from collections.abc import Collection

from tilewright.derivatives.analysis.address_digits import AddressDigits, NotDigitsError
from tilewright.derivatives.analysis.write_modes import WriteMode, access_mode
from tilewright.derivatives.tiling.kernel_memory import KernelMemory, is_addition
from tilewright.ir.builder import Builder
from tilewright.ir.core import Module, Operation
from tilewright.ir.ops.memory import AtomicRmw
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
        if len(atomics) < len(writes):
            why = "blocks of a descriptor are added, whose places are not followed"
            found[name] = WriteMode("atomic", why)
            continue
        try:
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
        assert isinstance(write, AtomicRmw)
        b = Builder.at(write)
        b.location = write.location
        total = write.value
        if name in added:
            total = b.add(b.load(write.pointer, mask=write.mask), total)
        b.store(write.pointer, total, write.mask)
        if name in added:
            b.barrier()  # another addition of the program may follow by other threads
        write.erase()
    return made


__all__ = ["proven_writes", "without_atomics"]
