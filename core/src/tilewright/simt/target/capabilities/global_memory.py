"""Access to global memory: loads, stores, atomics, and memory ordering."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.ir.types import Type
from tilewright.llvm.emission.writer import FunctionWriter

if TYPE_CHECKING:
    # handed in: the lowering calls capabilities with its context
    from tilewright.simt.lowering.emission.context import SimtContext


@dataclass(frozen=True, slots=True)
class Access:
    """The cache and eviction hints of a memory access, as in the op table."""

    cache: str = ""
    eviction: str = ""
    volatile: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """An atomic update of memory.

    Attributes:
        kind, order, scope: as in the op table.
        element: the type of an element.
        used: whether the old values are read, or needed for the memory order.
    """

    kind: str
    element: Type
    order: str
    scope: str
    used: bool


class GlobalMemory(ABC):
    """Accesses of global memory by one thread."""

    @abstractmethod
    def load(
        self,
        w: FunctionWriter,
        pointer: str,
        element: Type,
        count: int,
        predicate: str | None,
        other: Sequence[str] | None,
        access: Access,
    ) -> list[str]:
        """Load ``count`` consecutive elements from global memory in one naturally aligned access.

        The access has at most ``max_access`` bytes of the target's resources. If ``predicate`` (i1)
        is false nothing is read and the result is ``other``, or undefined if that is None.
        """

    @abstractmethod
    def store(
        self,
        w: FunctionWriter,
        pointer: str,
        element: Type,
        values: Sequence[str],
        predicate: str | None,
        access: Access,
    ) -> None:
        """Store consecutive elements to global memory in one access, if ``predicate`` holds."""

    def atomic_width(self, kind: str, element: Type, scope: str) -> int:
        """Return the maximum number of consecutive elements of one atomic update, a power of two.

        The address is a multiple of the size of all of them together. Each element is updated
        atomically by itself; other threads may see the updates of the elements at different times.
        """
        return 1

    @abstractmethod
    def atomic_rmw(
        self,
        context: SimtContext,
        update: Update,
        pointer: str,
        values: Sequence[str],
        predicate: str | None,
    ) -> list[str]:
        """Update consecutive elements of global memory atomically, if ``predicate`` holds.

        One thread updates them. They are at most :meth:`atomic_width` in number, a power of two.

        Returns:
            The old values; undefined if the predicate is false or they are not ``update.used``.
        """

    @abstractmethod
    def atomic_cas(
        self,
        context: SimtContext,
        pointer: str,
        element: Type,
        compare: str,
        value: str,
        predicate: str | None,
        order: str,
        scope: str,
    ) -> str: ...

    @abstractmethod
    def atomic_load(
        self,
        context: SimtContext,
        pointer: str,
        element: Type,
        predicate: str | None,
        order: str,
        scope: str,
    ) -> str:
        """Load an element of global memory atomically, in one thread, if ``predicate`` holds."""

    @abstractmethod
    def atomic_store(
        self,
        context: SimtContext,
        pointer: str,
        element: Type,
        value: str,
        predicate: str | None,
        order: str,
        scope: str,
    ) -> None:
        """Store an element of global memory atomically, in one thread."""

    @abstractmethod
    def fence(self, w: FunctionWriter, order: str, scope: str) -> None:
        """Emit a ``release`` or ``acquire`` fence for this thread's accesses of global memory.

        A release fence before relaxed atomic accesses, or an acquire fence after them, yields each
        of them that order.
        """
