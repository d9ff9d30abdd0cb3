"""The order of stores that the machine's TMA copies make: which of them must find written what was
stored before.

Copies that one thread started write in any order, so that of two stores to one place the first
could be seen in the end. A store therefore *drains* what is in flight, if it may write to where
another one, or the same one in an iteration before, may still be writing. Offsets tell, as
polynomials (:mod:`tilewright.passes.analysis.affine`): in

    for i in range(n):
        d.store([i * 64, j], x)             never to the same place: i * 64 changes by at least the 64 rows of a block
        d.store([i * 64, j + 32], y)        beside the first one, whatever i and j

nothing drains. Updates by one kind of atomic may be made in any order. Of descriptors that the
kernel makes, those of one argument's memory may be of the same places, and so may one that a loop
makes anew.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.core import Function, Operation
from tilewright.ir.ops.memory import DescriptorReduce, DescriptorStore
from tilewright.ir.types import DescriptorType
from tilewright.passes.analysis.affine import Affine
from tilewright.passes.analysis.polynomials import Polynomial
from tilewright.simt.analysis.alias import may_be_same, root_of
from tilewright.simt.dialect.loop_carried import is_repeated

_LOOPS = frozenset({"for", "while"})
_Store = DescriptorStore | DescriptorReduce


def draining_stores(stores: Sequence[_Store], function: Function) -> list[_Store]:
    """The stores of a function, given in program order, before which all that is in flight must
    have been written."""
    return _Order(stores, function).draining() if len(stores) > 1 or any(map(_loops, stores)) else []


class _Order:
    def __init__(self, stores: Sequence[_Store], function: Function) -> None:
        self._affine = Affine(function)
        self._stores = stores
        self._offsets = {store: [self._affine.number(offset) for offset in store.offsets] for store in stores}

    def draining(self) -> list[_Store]:
        found: list[_Store] = []
        for number, store in enumerate(self._stores):
            before = [other for place, other in enumerate(self._stores) if _share_memory(other, store) and _precedes(other, place, store, number)]
            if any(_are_ordered(other, store) and self._meet(other, store) for other in before) and not self._drained_just_before(store, before, found):
                found.append(store)
        return found

    def _drained_just_before(self, store: _Store, before: Sequence[_Store], draining: Sequence[_Store]) -> bool:
        """Return whether a store beside it drains, and none since may write where this one does."""
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
        """Return whether two stores of one iteration write to different places."""
        return one.descriptor is other.descriptor and any(
            difference is not None and abs(difference) >= extent for difference, extent in zip(self._differences(one, other), _extents(one), strict=True)
        )

    def _differences(self, one: _Store, other: _Store) -> list[int | None]:
        """By axis, how far apart they are at all times; None where that is not known."""
        return [b.minus(a).constant for a, b in zip(self._offsets[one], self._offsets[other], strict=True)]

    def _meet(self, one: _Store, other: _Store) -> bool:
        """Return whether two stores, or one at two times, may write to the same place.

        Offsets tell where the descriptor is one and the same: not made anew.
        """
        made = one.descriptor.definition
        if one.descriptor is not other.descriptor or (made is not None and is_repeated(made)):
            return True
        common = [loop for loop in _loops(one) if loop in _loops(other)]
        axes = [axis for axis in range(len(_extents(one))) if self._is_shared(axis, one, other, common)]
        differences, extents = self._differences(one, other), _extents(one)
        if one is not other and not any((difference := differences[axis]) is not None and abs(difference) >= extents[axis] for axis in axes):
            return True
        return not all(any(self._moves(axis, loop, one, differences[axis], extents[axis], common) for axis in axes) for loop in common)

    def _is_shared(self, axis: int, one: _Store, other: _Store, common: Sequence[Operation]) -> bool:
        """Return whether an offset along an axis is the same polynomial, but for a constant, of
        iterations of loops around both, and of nothing else that changes."""
        difference = self._differences(one, other)[axis]
        changing = {loop for store in (one, other) for loop in _loops(store)}
        rest = self._offsets[one][axis]
        for loop in common:
            rest = rest.minus(self._step(self._offsets[one][axis], loop)[1])
        return difference is not None and not any(self._affine.varies(rest, loop) for loop in changing)

    def _step(self, offset: Polynomial, loop: Operation) -> tuple[Polynomial, Polynomial]:
        """What an offset changes by in each iteration of a loop, and how much of it that is: what
        is not proportional to the iteration is left out."""
        iteration = self._affine.unknown("iteration", loop)
        (number,) = iteration.unknowns()
        terms = [piece for piece in offset.pieces() if piece.terms[0][0].count(number) == 1]
        step = Polynomial()
        for term in terms:
            quotient = term.divided(iteration)
            assert quotient is not None
            step = step.plus(quotient)
        return step, step.times(iteration)

    def _moves(self, axis: int, loop: Operation, store: _Store, difference: int | None, extent: int, common: Sequence[Operation]) -> bool:
        """Return whether stores of different iterations of a loop are apart along an axis, whatever
        the iterations of other loops are."""
        offset = self._offsets[store][axis]
        if difference is None or any(self._step(offset, other)[0].terms for other in common if other is not loop):
            return False
        step = self._step(offset, loop)[0]
        if difference == 0:
            return self._at_least(step, extent)
        by = abs(step.constant or 0)
        # all of difference + k * step, for k other than 0
        return by > 0 and (abs(difference) + extent <= by or (abs(difference) % by >= extent and by - abs(difference) % by >= extent))

    def _at_least(self, step: Polynomial, extent: int) -> bool:
        """Return whether a step is so great: a number times sizes of the grid, of which none is
        zero."""
        if len(step.terms) != 1:
            return False
        ((monomial, factor),) = step.terms
        return abs(factor) >= extent and all(self._affine.atom(number).kind == "num_programs" for number in monomial)


def _share_memory(one: _Store, other: _Store) -> bool:
    """Return whether two stores are to one tensor, or to memory that may be the same."""
    return one.descriptor is other.descriptor or may_be_same(root_of(one.descriptor), root_of(other.descriptor))


def _extents(store: _Store) -> tuple[int, ...]:
    type_ = store.descriptor.type
    assert isinstance(type_, DescriptorType)
    return type_.block_type.shape


def _loops(store: Operation) -> list[Operation]:
    return [operation for operation in store.ancestors() if operation.name in _LOOPS]


def _precedes(other: Operation, place: int, store: Operation, number: int) -> bool:
    """Return whether a store may be made before another one."""
    return place < number or any(loop in _loops(other) for loop in _loops(store))


def _are_ordered(one: _Store, other: _Store) -> bool:
    """Return whether it matters which of two stores to one place comes first."""
    kinds = {store.kind if isinstance(store, DescriptorReduce) else None for store in (one, other)}
    return len(kinds) > 1 or None in kinds
