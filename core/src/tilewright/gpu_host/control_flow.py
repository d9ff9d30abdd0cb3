"""Natural loops of assembly code, found by dominators of its basic blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Instruction:
    """One instruction of an assembly text, of whichever vendor.

    Attributes:
        mnemonic: without operands and predicates.
        text: the whole instruction.
        labels: the labels that stand before it.
        target: the label that it may branch to; empty if it is no branch.
        falls: whether the next instruction may follow it.
    """

    mnemonic: str
    text: str
    labels: tuple[str, ...] = ()
    target: str = ""
    falls: bool = True


@dataclass(frozen=True)
class NaturalLoop:
    """A natural loop: the instructions from which its header can be reached without leaving it.

    Attributes:
        places: the indices of its instructions, in order.
        innermost: whether it contains no other loop.
    """

    places: tuple[int, ...]
    innermost: bool = True


def loops(code: Sequence[Instruction]) -> list[NaturalLoop]:
    """Return the natural loops reachable from the first instruction, in code order.

    Loops that share a header are one.
    """
    if not code:
        return []
    blocks, successors = _blocks(code)
    predecessors: list[list[int]] = [[] for _ in blocks]
    for block, nexts in enumerate(successors):
        for each in nexts:
            predecessors[each].append(block)
    order = _postorder(successors)
    dominators = _immediate_dominators(order, predecessors)
    bodies: dict[int, set[int]] = {}
    for block in order:
        for header in successors[block]:
            if _dominates(header, block, dominators):
                bodies.setdefault(header, set()).update(
                    _body(header, block, predecessors, dominators)
                )
    found = []
    for header in sorted(bodies):
        inner = any(other != header and other in bodies[header] for other in bodies)
        places = [place for block in sorted(bodies[header]) for place in range(*blocks[block])]
        found.append(NaturalLoop(tuple(places), not inner))
    return found


def _blocks(code: Sequence[Instruction]) -> tuple[list[tuple[int, int]], list[list[int]]]:
    """Return the basic blocks as (first, end) instruction ranges, and the successors of each."""
    places = {label: place for place, each in enumerate(code) for label in each.labels}
    starts = {0, *places.values()}
    starts |= {place + 1 for place, each in enumerate(code) if each.target or not each.falls}
    bounds = sorted(place for place in starts if place < len(code))
    blocks = list(zip(bounds, [*bounds[1:], len(code)], strict=True))
    number = {first: block for block, (first, _) in enumerate(blocks)}
    successors: list[list[int]] = []
    for _, end in blocks:
        last, nexts = code[end - 1], []
        if last.falls and end < len(code):
            nexts.append(number[end])
        if last.target in places:
            nexts.append(number[places[last.target]])
        successors.append(nexts)
    return blocks, successors


def _postorder(successors: Sequence[Sequence[int]]) -> list[int]:
    """Return the blocks reachable from the entry in postorder."""
    order: list[int] = []
    seen, stack = {0}, [(0, iter(successors[0]))]
    while stack:
        block, rest = stack[-1]
        for each in rest:
            if each not in seen:
                seen.add(each)
                stack.append((each, iter(successors[each])))
                break
        else:
            order.append(block)
            stack.pop()
    return order


def _immediate_dominators(
    order: Sequence[int], predecessors: Sequence[Sequence[int]]
) -> dict[int, int]:
    """Compute immediate dominators by the algorithm of Cooper, Harvey and Kennedy."""
    rank = {block: place for place, block in enumerate(order)}
    dominators = {0: 0}

    def common(one: int, other: int) -> int:
        while one != other:
            if rank[one] < rank[other]:
                one = dominators[one]
            else:
                other = dominators[other]
        return one

    changed = True
    while changed:
        changed = False
        for block in reversed(order):
            known = [each for each in predecessors[block] if each in dominators]
            if block == 0 or not known:
                continue
            found = known[0]
            for each in known[1:]:
                found = common(found, each)
            if dominators.get(block) != found:
                dominators[block], changed = found, True
    return dominators


def _dominates(one: int, other: int, dominators: dict[int, int]) -> bool:
    while other != one and other != 0:
        other = dominators[other]
    return other == one


def _body(
    header: int, latch: int, predecessors: Sequence[Sequence[int]], reached: dict[int, int]
) -> set[int]:
    body, pending = {header, latch}, [latch]
    while pending:
        block = pending.pop()
        if block == header:
            continue
        for each in predecessors[block]:
            if each in reached and each not in body:
                body.add(each)
                pending.append(each)
    return body
