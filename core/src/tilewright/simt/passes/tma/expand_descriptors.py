"""Expansion of descriptors: select TMA accesses, and turn all others into masked pointer accesses.

The latter is done by :mod:`tilewright.passes.descriptor_pointers`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.ops.control import LOOPS
from tilewright.ir.ops.memory import (
    AtomicCas,
    AtomicLoad,
    AtomicRmw,
    DescriptorExtent,
    DescriptorLoad,
    DescriptorStore,
    DescriptorStride,
    Load,
    MakeDescriptor,
    Store,
)
from tilewright.ir.table import Effect
from tilewright.passes.analysis.axis import axis_info
from tilewright.passes.descriptor_pointers import WRITES, Expansion, has_descriptors
from tilewright.simt.analysis.alias import may_be_same, reached, root_of
from tilewright.simt.dialect.attributes import note
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.target.copy_mechanism import BLOCK_STORES, ROW_COPIES, BlockAccess
from tilewright.simt.target.simt_target import SimtTarget


def expand_descriptors(function: Function, target: SimtTarget) -> bool:
    """Expand a kernel's descriptors; return whether it has any."""
    if not has_descriptors(function):
        return False
    _Expansion(function, target).run()
    return True


class _Expansion(Expansion):
    """Expansion of all descriptor accesses of a kernel that the target does not copy by TMA."""

    def __init__(self, function: Function, target: SimtTarget) -> None:
        super().__init__(function)
        self.target = target
        #: stores of threads that loads by descriptors which the kernel makes may come after
        self._unfenced: set[Operation] = set()
        self._known = axis_info(function)

    def choose(self) -> None:
        for descriptor in self.given:
            self._keep(descriptor)
        if self.target.tma is not None and self.target.tma.device_maps is not None:
            self._keep_made()

    def stored(self, b: Builder, access: Operation) -> None:
        if access in self._unfenced:
            self._publish(b)

    def _keep(self, descriptor: Value) -> None:
        """Choose the TMA accesses of a descriptor argument.

        TMA copies and thread accesses are not ordered with each other: if an access writes, all
        must be of one kind.
        """
        accesses = [user for user in descriptor.uses if not isinstance(user, _NUMBERS)]
        kept = {user for user in accesses if isinstance(user, _KEPT) and self._is_kept(user)}
        if len(kept) == len(accesses) or not _writes(accesses):
            self.kept |= kept

    def _is_kept(self, access: BlockAccess) -> bool:
        if self.target.tma is None:
            return False
        known = [
            self._known[offset]
            for offset in ([access.column] if isinstance(access, ROW_COPIES) else access.offsets)
        ]
        return self.target.tma.keeps(
            access,
            [info.apart_from_addresses().divisibility_of_all() for info in known],
            self._width(access.descriptor),
        )

    def _width(self, descriptor: Value) -> int:
        """Return the known divisor of the last extent of a descriptor's tensor, in elements."""
        made = descriptor.definition
        if made is not None:
            assert isinstance(made, MakeDescriptor)
            return self._known[made.shape[-1]].apart_from_addresses().divisibility_of_all()
        place = self.function.arguments.index(descriptor)
        return int(self.function.argument_attributes[place].get("extent_divisibility", 1))

    def _keep_made(self) -> None:
        """Choose the device-side tensor maps, and their TMA accesses.

        Candidates are descriptors that control flow does not carry. TMA copies do not see the
        writes of threads, nor are they ordered with them: these must be to different memory, or be
        plain stores followed by TMA loads only, in which case a proxy fence follows the stores.
        """
        kept: dict[Operation, set[Operation]] = {}
        for operation in self.function.walk():
            if isinstance(operation, MakeDescriptor):
                accesses = [
                    user for user in operation.results[0].uses if not isinstance(user, _NUMBERS)
                ]
                found: set[Operation] = {
                    user for user in accesses if isinstance(user, _KEPT) and self._is_kept(user)
                }
                if (
                    all(isinstance(user, (_KEPT, WRITES)) for user in accesses)
                    and found
                    and (len(found) == len(accesses) or not _writes(accesses))
                ):
                    kept[operation] = found
        waiting = any(map(_waits_for_others, self.function.walk()))
        while kept:
            copied = self.kept.union(*kept.values())
            writers = {
                operation: roots
                for operation in self.function.walk()
                if operation not in copied and (roots := reached(operation, Effect.WRITE))
            }
            hidden: list[Operation] = []
            self._unfenced = set()
            for made, copies in kept.items():
                root = root_of(made.results[0])
                earlier = {
                    writer
                    for writer, roots in writers.items()
                    if any(may_be_same(root, other) for other in roots)
                }
                if waiting or (
                    earlier
                    and (
                        _writes([*copies])
                        or any(not isinstance(writer, _GENERIC_STORES) for writer in earlier)
                    )
                ):
                    hidden.append(made)
                self._unfenced |= earlier
            if not hidden:
                break
            for made in hidden:
                del kept[made]
                self._tell(made)
        self.made = set(kept)
        self._unfenced = self._unfenced if kept else set()
        self.kept = self.kept.union(*kept.values())
        for store in [writer for writer in self._unfenced if isinstance(writer, Store)]:
            self._publish(Builder(store.parent, store.next, store.location))

    def _publish(self, b: Builder) -> None:
        """Let copies see what threads wrote."""
        if self.target.async_proxy is not None:
            b.create(SIMT_TABLE["simt.publish"], [], {"everywhere": True})
        b.barrier()

    def _tell(self, made: Operation) -> None:
        """Note at the loop around it why a descriptor is not the target's."""
        loop = next((outer for outer in made.ancestors() if isinstance(outer, LOOPS)), None)
        if loop is not None:
            why = (
                "the kernel may write to its tensor in other ways, or waits for what others "
                "write, which TMA copies do not see"
            )
            note(
                loop,
                f"blocks of the descriptor made at {made.location} are accessed by threads: {why}",
            )


def _waits_for_others(operation: Operation) -> bool:
    """Return whether an operation lets a program see what others wrote before."""
    if isinstance(operation, Load):
        return operation.volatile
    ordered = isinstance(operation, AtomicRmw | AtomicCas | AtomicLoad) and operation.order in (
        "acquire",
        "acq_rel",
    )
    return ordered and any(result.uses for result in operation.results)


def _writes(accesses: Sequence[Operation]) -> bool:
    return any(isinstance(access, WRITES) for access in accesses)


#: What a target may copy by the descriptor itself.
_KEPT = (DescriptorLoad, *BLOCK_STORES, *ROW_COPIES)
_GENERIC_STORES = (Store, DescriptorStore)
_NUMBERS = (DescriptorExtent, DescriptorStride)
