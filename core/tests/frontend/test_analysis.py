"""Liveness and assignments from the syntax tree alone."""

from __future__ import annotations

import ast
import textwrap
from typing import Any

import pytest

from tilewright.frontend.analysis import Analysis


def analysis(text: str) -> Analysis:
    tree = ast.parse(textwrap.dedent(text)).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return Analysis(tree)


def facts_at(made: Analysis, line: int) -> Any:
    return next(facts for node, facts in made.facts.items() if node.lineno == line)


def test_what_a_loop_reads_first_is_live_at_its_head() -> None:
    made = analysis(
        """\
        def f(n, out):
            a = b = c = d = 0
            for i in range(n):
                a = a + 1
                b = i
                e = b
                d = e
            use(d)
        """
    )
    loop = facts_at(made, 3)
    assert loop.assigned == {"a", "b", "d", "e", "i"}
    assert loop.live_head == {"a", "d", "use", "range"} - {"range"}
    assert loop.live_after == {"d", "use"}
    assert made.locals == {"n", "out", "a", "b", "c", "d", "e", "i"}


def test_what_is_live_at_the_target_of_a_jump_is_live_at_the_jump() -> None:
    made = analysis(
        """\
        def f(n):
            x = y = 0
            for i in range(n):
                if i > 3:
                    x = 5
                    break
                x = 7
                if i > 2:
                    y = 1
                    continue
                y = 3
                use(x)
            use(x, y)
        """
    )
    assert "x" in facts_at(made, 4).live_after
    assert "y" in facts_at(made, 8).live_after
    assert facts_at(made, 3).jumps == frozenset()
    assert facts_at(made, 4).jumps == {"break"}


def test_nothing_assigned_after_a_possible_jump_is_sure_to_be() -> None:
    made = analysis(
        """\
        def f(n):
            x = 1
            for i in range(n):
                with m:
                    if i:
                        continue
                    x = 2
                use(x)
            use(x)
        """
    )
    assert facts_at(made, 4).kills == frozenset()
    assert "x" in facts_at(made, 3).live_head


@pytest.mark.parametrize(
    ("statement", "reads", "stores"),
    [
        ("a, (b, *c) = d[e], f.g", {"d", "e", "f"}, {"a", "b", "c"}),
        ("a += b", {"a", "b"}, {"a"}),
        ("a: t = b", {"b"}, {"a"}),
        ("a: t", set(), set()),
        ("x = [y + z for y in t for z in y if w]", {"z", "t", "w"} - {"z"}, {"x"}),
        ("x = [x for x in x]", {"x"}, {"x"}),
        ("x = (y := z) + y", {"z", "y"}, {"x", "y"}),
        ("assert a, b", {"a", "b"}, set()),
        ("f(*a, k=b)", {"f", "a", "b"}, set()),
        ("x = f'{a:{b}}'", {"a", "b"}, {"x"}),
        ("del a", set(), {"a"}),
    ],
)
def test_reads_and_assignments_of_statements(
    statement: str, reads: set[str], stores: set[str]
) -> None:
    made = analysis(f"def f():\n    {statement}\n")
    facts = facts_at(made, 2)
    assert (facts.reads, facts.assigned) == (reads, stores)


def test_with_and_while_heads() -> None:
    made = analysis(
        """\
        def f(n):
            while (x := g(n)) > y:
                n = x
            with a as b:
                z = b
            return z
        """
    )
    loop = facts_at(made, 2)
    assert loop.assigned == {"x", "n"}
    assert {"g", "n", "y"} <= loop.live_head
    assert "x" not in loop.live_head
    assert facts_at(made, 4).kills == {"b", "z"}
