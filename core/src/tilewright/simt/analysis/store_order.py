"""Ordering of TMA stores: the stores before which earlier stores in flight must complete.

Copies that one thread issued write in any order, so that of two stores to one location the first
one could win. A store therefore *drains* the copies in flight if it may write where another store,
or the same one in an earlier iteration, may still be writing. The analysis compares offsets as
polynomials (:mod:`tilewright.passes.analysis.affine`): in

    for i in range(n):
        d.store([i * 64, j], x) never to the same place: i * 64 changes by at least the 64 rows of a
        block d.store([i * 64, j + 32], y) beside the first one, whatever i and j

nothing drains. Reductions by one kind of atomic may happen in any order. Descriptors made in the
kernel may alias if their memory is the same argument's, and so may a descriptor that a loop makes
in each iteration.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.core import Function, Operation
from tilewright.ir.ops.control import LOOPS
from tilewright.ir.ops.memory import DescriptorReduce, DescriptorStore
from tilewright.ir.types import DescriptorType
from tilewright.passes.analysis.affine import Affine
from tilewright.passes.analysis.polynomials import Polynomial
from tilewright.simt.analysis.alias import may_be_same, root_of
from tilewright.simt.dialect.loop_carried import is_repeated

_Store = DescriptorStore | DescriptorReduce


def draining_stores(stores: Sequence[_Store], function: Function) -> list[_Store]:
    """Return the stores before which all copies in flight must complete.

    ``stores`` are the stores of a function in program order.
    """
    return (
        _Order(stores, function).draining() if len(stores) > 1 or any(map(_loops, stores)) else []
    )


class _Order:
    def __init__(self, stores: Sequence[_Store], function: Function) -> None:
        self._affine = Affine(function)
        self._stores = stores
        self._offsets = {
            store: [self._affine.number(offset) for offset in store.offsets] for store in stores
        }

    def draining(self) -> list[_Store]:
        found: list[_Store] = []
        for number, store in enumerate(self._stores):
            before = [
                other
                for place, other in enumerate(self._stores)
                if _share_memory(other, store) and _precedes(other, place, store, number)
            ]
            if any(
                _are_ordered(other, store) and self._meet(other, store) for other in before
            ) and not self._drained_just_before(store, before, found):
                found.append(store)
        return found

    def _drained_just_before(
        self, store: _Store, before: Sequence[_Store], draining: Sequence[_Store]
    ) -> bool:
        """Return whether an adjacent earlier store drains, and none in between may conflict."""
        operation = store.previous
        while operation is not None:
            if isinstance(operation, _Store) and operation in before:
                if _are_ordered(operation, store) and not self._apart(operation, store):
                    return False
                if operation in draining:
                    return True
            elif any(operation in other.ancestors() for other in before):
                return False
            operation = operation.previous
        return False

    def _apart(self, one: _Store, other: _Store) -> bool:
        """Return whether two stores of one iteration write to disjoint locations."""
        return one.descriptor is other.descriptor and any(
            difference is not None and abs(difference) >= extent
            for difference, extent in zip(self._differences(one, other), _extents(one), strict=True)
        )

    def _differences(self, one: _Store, other: _Store) -> list[int | None]:
        """Return the constant difference of two stores' offsets per axis; None if not constant."""
        return [
            b.minus(a).constant
            for a, b in zip(self._offsets[one], self._offsets[other], strict=True)
        ]

    def _meet(self, one: _Store, other: _Store) -> bool:
        """Return whether two stores, or two executions of one, may write to the same location.

        Offsets are comparable only if both use one descriptor that no loop makes anew.
        """
        made = one.descriptor.definition
        if one.descriptor is not other.descriptor or (made is not None and is_repeated(made)):
            return True
        common = [loop for loop in _loops(one) if loop in _loops(other)]
        axes = [
            axis for axis in range(len(_extents(one))) if self._is_shared(axis, one, other, common)
        ]
        differences, extents = self._differences(one, other), _extents(one)
        if one is not other and not any(
            (difference := differences[axis]) is not None and abs(difference) >= extents[axis]
            for axis in axes
        ):
            return True
        return not all(
            any(
                self._moves(axis, loop, one, differences[axis], extents[axis], common)
                for axis in axes
            )
            for loop in common
        )

    def _is_shared(
        self, axis: int, one: _Store, other: _Store, common: Sequence[Operation]
    ) -> bool:
        """Return whether two offsets along an axis differ by a constant in all iterations.

        They may vary with the iterations of loops around both stores only.
        """
        difference = self._differences(one, other)[axis]
        changing = {loop for store in (one, other) for loop in _loops(store)}
        rest = self._offsets[one][axis]
        for loop in common:
            rest = rest.minus(self._step(self._offsets[one][axis], loop)[1])
        return difference is not None and not any(
            self._affine.varies(rest, loop) for loop in changing
        )

    def _step(self, offset: Polynomial, loop: Operation) -> tuple[Polynomial, Polynomial]:
        """Return an offset's step per iteration of a loop, and the part that this accounts for.

        Terms that are not proportional to the iteration number do not count.
        """
        iteration = self._affine.unknown("iteration", loop)
        (number,) = iteration.unknowns()
        terms = [piece for piece in offset.pieces() if piece.terms[0][0].count(number) == 1]
        step = Polynomial()
        for term in terms:
            quotient = term.divided(iteration)
            assert quotient is not None
            step = step.plus(quotient)
        return step, step.times(iteration)

    def _moves(
        self,
        axis: int,
        loop: Operation,
        store: _Store,
        difference: int | None,
        extent: int,
        common: Sequence[Operation],
    ) -> bool:
        """Return whether stores in different iterations of a loop are disjoint along an axis.

        This must hold for all iterations of other loops.
        """
        offset = self._offsets[store][axis]
        if difference is None or any(
            self._step(offset, other)[0].terms for other in common if other is not loop
        ):
            return False
        step = self._step(offset, loop)[0]
        if difference == 0:
            return self._at_least(step, extent)
        by = abs(step.constant or 0)
        # all of difference + k * step, for k other than 0
        return by > 0 and (
            abs(difference) + extent <= by
            or (abs(difference) % by >= extent and by - abs(difference) % by >= extent)
        )

    def _at_least(self, step: Polynomial, extent: int) -> bool:
        """Return whether a step is at least ``extent``: a constant times sizes of the grid."""
        if len(step.terms) != 1:
            return False
        ((monomial, factor),) = step.terms
        return abs(factor) >= extent and all(
            self._affine.atom(number).kind == "num_programs" for number in monomial
        )


def _share_memory(one: _Store, other: _Store) -> bool:
    """Return whether two stores are to one tensor, or to memory that may alias."""
    return one.descriptor is other.descriptor or may_be_same(
        root_of(one.descriptor), root_of(other.descriptor)
    )


def _extents(store: _Store) -> tuple[int, ...]:
    type_ = store.descriptor.type
    assert isinstance(type_, DescriptorType)
    return type_.block_type.shape


def _loops(store: Operation) -> list[Operation]:
    return [operation for operation in store.ancestors() if isinstance(operation, LOOPS)]


def _precedes(other: Operation, place: int, store: Operation, number: int) -> bool:
    """Return whether a store may be made before another one."""
    return place < number or any(loop in _loops(other) for loop in _loops(store))


def _are_ordered(one: _Store, other: _Store) -> bool:
    """Return whether it matters which of two stores to one place comes first."""
    kinds = {store.kind if isinstance(store, DescriptorReduce) else None for store in (one, other)}
    return len(kinds) > 1 or None in kinds
