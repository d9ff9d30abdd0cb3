"""The types of an operation's operands and results, found by querying its rule.

The op table states types in code; this module derives a table from it. It tries the rule with every
combination of element types in place of those that a sample of the operation has, so the table
states exactly what the verifier accepts.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir import Operation
from tilewright.ir.builder import infer_types
from tilewright.ir.table import OpSpec, RuleError
from tilewright.ir.types import F32, FLOATS, INTEGERS, DescriptorType, PointerType, TileType, Type
from tilewright_conformance.op_samples import FAMILIES

#: What values hold, beside numbers: pointers, of which one stands for all. It is none that points
#: to numbers: those stand for the numbers.
POINTER = PointerType(PointerType(F32))
_CANDIDATES: tuple[Type, ...] = (*INTEGERS, *FLOATS, POINTER)
#: Combinations to try for one operation; where there are more, the table lists its samples' types.
_MOST = 120_000
#: Letters of an attribute that may be a choice, and not a text.
_SHORT = 12

Row = dict[str, tuple[Type, ...]]


@dataclass(frozen=True)
class OpTypes:
    """The element types of an operation.

    Attributes:
        rows: role -> element types. Each row is a whole: any choice of one type a role is allowed.
            A role is an operand, ``result`` (of several ``result 0`` …), or several that always
            have one type, such as ``a, b``.
        signatures: whole types of samples, operands to results, as text.
        refusal: what the verifier says where operands that have to have one type have two; empty
            where none have to.
        complete: whether the rows are all there is, and not only what samples have.
    """

    rows: tuple[Row, ...]
    signatures: tuple[str, ...]
    refusal: str
    complete: bool


@dataclass(frozen=True)
class _Use:
    """An operation of a sample: types by group, and results."""

    groups: tuple[tuple[Type, ...], ...]
    attributes: Mapping[str, Any]
    results: tuple[Type, ...]


@functools.cache
def op_types(spec: OpSpec) -> OpTypes | None:
    """The types of an operation; None without samples, or with neither operands nor results."""
    uses = [use for use in _uses(spec) if any(use.groups) or use.results]
    if not uses:
        return None
    names = [operand.name for operand in spec.operands]
    found: set[tuple[tuple[str, Type], ...]] = set()
    complete = True
    for base in _bases(uses):
        given = [
            name
            for name, group in zip(names, base.groups, strict=True)
            if group and _leaf(group[0]) is not None
        ]
        free = [*given, *(_result_names(base.results) if spec.explicit_results else ())]
        if len(_CANDIDATES) ** len(free) > _MOST:
            complete = False
            continue
        found |= set(_accepted(spec, base, names, given, free))
    if not complete:
        found |= {pairs for use in uses if (pairs := _pairs(names, use.groups, use.results))}
    signatures = dict.fromkeys(
        _signature(use)
        for use in sorted(uses, key=lambda use: sum(map(len, use.groups)), reverse=True)
    )
    rows, together = _rows(found)
    return OpTypes(
        rows,
        tuple(itertools.islice(signatures, 3)),
        _refusal(spec, uses, names, together),
        complete,
    )


def _uses(spec: OpSpec) -> Iterator[_Use]:
    family = FAMILIES.get(spec.name)
    for sample in family() if family is not None else ():
        for function in sample.module.functions.values():
            for operation in function.walk():
                if operation.name == spec.name:
                    yield _use(operation)


def _use(operation: Operation) -> _Use:
    types = iter([operand.type for operand in operation.operands])
    groups = tuple(tuple(itertools.islice(types, count)) for count in operation.segments)
    return _Use(groups, operation.attributes, tuple(result.type for result in operation.results))


def _bases(uses: Sequence[_Use]) -> list[_Use]:
    """Return the uses whose operand types are varied.

    They have the same operands and results, with as many operands as any use has, and together
    they have every choice of every attribute.
    """
    form = max(map(_form, uses))
    chosen: list[_Use] = []
    met: set[tuple[str, str]] = set()
    for use in uses:
        if _form(use) == form and not any(
            _leaf(type_) is POINTER for group in use.groups for type_ in group
        ):
            choices = {(name, _kind(value)) for name, value in use.attributes.items()}
            if not chosen or not choices <= met:
                chosen.append(use)
                met |= choices
    return chosen


def _kind(value: Any) -> str:
    """The part of an attribute that a rule may read: a choice, or the type and sign of a number."""
    if isinstance(value, str) and len(value) < _SHORT:
        return value
    return f"{type(value).__name__} {isinstance(value, int | float) and value < 0}"


def _form(use: _Use) -> tuple[Any, ...]:
    """The operand groups of a use and how its results sort.

    Uses with the most groups are the maximum, then those with the fewest results, one at minimum.
    """
    given = tuple(bool(group) for group in use.groups)
    return sum(given), -abs(len(use.results) - 1), given


def _accepted(
    spec: OpSpec, base: _Use, names: list[str], given: list[str], free: list[str]
) -> Iterator[tuple[tuple[str, Type], ...]]:
    for choice in itertools.product(_CANDIDATES, repeat=len(free)):
        chosen = dict(zip(free, choice, strict=True))
        try:
            groups = [
                tuple(
                    _with_leaf(type_, chosen[name]) if name in given else type_ for type_ in group
                )
                for name, group in zip(names, base.groups, strict=True)
            ]
            stated = (
                [
                    _with_leaf(type_, chosen[name])
                    for name, type_ in zip(_result_names(base.results), base.results, strict=True)
                ]
                if spec.explicit_results
                else ()
            )
            results = infer_types(spec, groups, base.attributes, stated)
        except (RuleError, ValueError):
            continue
        yield _pairs(names, groups, results)


def _pairs(
    names: Sequence[str], groups: Sequence[Sequence[Type]], results: Sequence[Type]
) -> tuple[tuple[str, Type], ...]:
    """(role, what it holds) for each operand group and result that holds anything."""
    roles = [(name, group[0]) for name, group in zip(names, groups, strict=True) if group]
    roles += list(zip(_result_names(results), results, strict=True))
    return tuple((name, leaf) for name, type_ in roles if (leaf := _leaf(type_)) is not None)


def _result_names(results: Sequence[Type]) -> list[str]:
    return ["result"] if len(results) == 1 else [f"result {index}" for index in range(len(results))]


def _rows(
    found: set[tuple[tuple[str, Type], ...]],
) -> tuple[tuple[Row, ...], list[tuple[str, ...]]]:
    """Combinations as few rows, and the roles that always have one type."""
    roles = list(
        dict.fromkeys(name for pairs in sorted(found, key=len, reverse=True) for name, _ in pairs)
    )
    combinations = [dict(pairs) for pairs in found]
    together: list[list[str]] = []
    for role in roles:
        group = next((group for group in together if _alike(combinations, group[0], role)), None)
        group.append(role) if group is not None else together.append([role])
    order = {type_: index for index, type_ in enumerate(_CANDIDATES)}
    tuples = {tuple(one.get(group[0]) for group in together) for one in combinations}
    rows: list[tuple[frozenset[Type | None], ...]] = [
        tuple(frozenset([type_]) for type_ in one) for one in tuples
    ]
    for position in range(len(together)):  # rows that differ in one role alone become one
        merged: dict[tuple[Any, ...], frozenset[Type | None]] = {}
        for row in rows:
            key = (*row[:position], *row[position + 1 :])
            merged[key] = merged.get(key, frozenset()) | row[position]
        rows = [(*key[:position], types, *key[position:]) for key, types in merged.items()]
    named = [
        {
            ", ".join(group): tuple(
                sorted((t for t in types if t is not None), key=order.__getitem__)
            )
            for group, types in zip(together, row, strict=True)
        }
        for row in rows
    ]
    first = ", ".join(together[0]) if together else ""
    named.sort(key=lambda row: [order[type_] for type_ in row[first]] if row else [])
    return tuple(named), [tuple(group) for group in together if len(group) > 1]


def _alike(combinations: Sequence[Mapping[str, Type]], first: str, second: str) -> bool:
    """Return whether two roles always have one type, which is not the same in all combinations."""
    both = [(one[first], one[second]) for one in combinations if first in one and second in one]
    return bool(both) and all(a is b for a, b in both) and len({a for a, _ in both}) > 1


def _refusal(
    spec: OpSpec, uses: Sequence[_Use], names: list[str], together: Sequence[tuple[str, ...]]
) -> str:
    """The rule's error where one of several operands that always have one type has another."""
    pair = next(
        (
            operands
            for group in together
            if len(operands := [name for name in group if name in names]) > 1
        ),
        None,
    )
    if pair is None:
        return ""
    index = names.index(pair[1])
    for use in uses:
        if not use.groups[index]:
            continue
        other = next(type_ for type_ in _CANDIDATES if type_ is not _leaf(use.groups[index][0]))
        groups = list(use.groups)
        try:
            groups[index] = tuple(_with_leaf(type_, other) for type_ in groups[index])
            infer_types(spec, groups, use.attributes, use.results if spec.explicit_results else ())
        except RuleError as error:
            return str(error)
        except ValueError:
            continue
    return ""


def _leaf(type_: Type) -> Type | None:
    """The number type that a value holds, or a pointer type below a pointer.

    None where it holds nothing that could be another.
    """
    type_ = _below(type_)
    if isinstance(type_, PointerType):
        return POINTER if isinstance(type_.pointee, PointerType) else type_.pointee
    return type_ if type_ in _CANDIDATES else None


def _below(type_: Type) -> Type:
    """The scalar that tiles and descriptors are of."""
    return type_.element if isinstance(type_, TileType | DescriptorType) else type_


def _with_leaf(type_: Type, leaf: Type) -> Type:
    if isinstance(type_, TileType):
        return TileType(type_.shape, _with_leaf(type_.element, leaf))
    if isinstance(type_, DescriptorType):
        return DescriptorType(type_.block_shape, leaf)
    return PointerType(leaf, type_.space) if isinstance(type_, PointerType) else leaf


def _signature(use: _Use) -> str:
    operands = ", ".join(str(type_) for group in use.groups for type_ in group)
    return f"({operands}) -> {', '.join(map(str, use.results)) or 'nothing'}"
