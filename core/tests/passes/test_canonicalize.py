"""Every law of canonicalize: text in, text out; and what must stay as it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from arithmetic_laws import ARITHMETIC_LAWS
from control_laws import CONTROL_LAWS
from shape_laws import SHAPE_LAWS
from unchanged_texts import UNTOUCHED

from tilewright.ir import Module
from tilewright.passes.canonicalize import REWRITES, canonicalize
from tilewright.passes.rewriter import Rewriter, by_operation

CASES = [*ARITHMETIC_LAWS, *SHAPE_LAWS, *CONTROL_LAWS]


@pytest.mark.parametrize(("before", "after"), CASES)
def test_law(before: str, after: str, check_pass: Callable[..., None]) -> None:
    check_pass(canonicalize, before, after)


@pytest.mark.parametrize("text", UNTOUCHED)
def test_untouched(text: str, check_pass: Callable[..., None]) -> None:
    check_pass(canonicalize, text, text)


@pytest.mark.parametrize(("before", "after"), CASES)
def test_twice_is_once(before: str, after: str, check_pass: Callable[..., None]) -> None:
    check_pass(canonicalize, after, after)


def test_every_law_has_a_case(kernel_of: Callable[[str], Module]) -> None:
    applied: set[str] = set()

    def recorded(rewrite: object) -> object:
        def apply(operation: object, rewriter: object) -> object:
            found = rewrite.apply(operation, rewriter)  # type: ignore[attr-defined]
            if found is not None:
                applied.add(rewrite.law)  # type: ignore[attr-defined]
            return found

        return dataclasses.replace(rewrite, apply=apply)  # type: ignore[type-var]

    rows = by_operation([recorded(rewrite) for rewrite in REWRITES])  # type: ignore[misc]

    def pass_(module: Module) -> bool:
        return any(Rewriter(rows).run(function) for function in module.functions.values())

    for before, _ in CASES:
        pass_(kernel_of(before))
    assert {rewrite.law for rewrite in REWRITES} == applied


def test_laws_are_stated_once() -> None:
    laws = [(rewrite.operations, rewrite.law) for rewrite in REWRITES]
    assert len(set(laws)) == len(laws)
