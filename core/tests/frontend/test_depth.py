"""Sources that are nested deeply: long expressions, chains of ``elif`` and of early returns; and what is said where there is an end to it."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tilewright.errors import CompilationError, DefinitionError
from tilewright.ir.hash import structural_hash
from tilewright.ir.parser import parse_module
from tilewright.language.source import syntax_tree
from tilewright.passes import pipeline
from tilewright.recursion import deep_recursion

KERNEL = "@jit\ndef kernel(out, n):\n"
TERMS, CHAIN = 700, 160


def chain_of_elif(length: int) -> str:
    others = "".join(f"    elif n == {i}:\n        s = n + {i}\n" for i in range(1, length))
    return f"    s = 0\n    if n == 0:\n        s = 1\n{others}    tl.store(out, s)\n"


SOURCES = {
    "a sum": ("    tl.store(out, " + " + ".join(f"n * {i}" for i in range(TERMS)) + ")\n", 3 * sum(range(TERMS))),
    "negations": (f"    tl.store(out, {'-' * TERMS}n)\n", 3),
    "comparisons": (f"    tl.store(out, ({' < '.join(f'n + {i}' for i in range(TERMS))}).to(tl.int32))\n", 1),
    "a conjunction": (f"    tl.store(out, ({' and '.join(f'n > {-i}' for i in range(TERMS))}).to(tl.int32))\n", 1),
    "conditional expressions": (f"    tl.store(out, {' '.join(f'{i} if n == {i} else' for i in range(CHAIN))} -1)\n", 3),
    "elif": (chain_of_elif(CHAIN), 6),
    "early returns": ("".join(f"    if n == {i + 9}:\n        return\n" for i in range(CHAIN)) + "    tl.store(out, n)\n", 3),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_deeply_nested_source_is_compiled_printed_read_and_run(source: Any, name: str) -> None:
    text, expected = SOURCES[name]
    made = source(KERNEL + text)
    assert made.kernel.cache_key
    assert made.result(3, n="i32") == expected
    module = made.compile(out="*i32", n="i32")
    pipeline.run(module, pipeline.STANDARD)
    assert structural_hash(parse_module(str(module))) == structural_hash(module)


def test_what_is_nested_too_deeply_names_kernel_and_line(source: Any) -> None:
    made = source(KERNEL + chain_of_elif(CHAIN))
    limit = sys.getrecursionlimit()
    with deep_recursion():  # the limit is raised once for all
        sys.setrecursionlimit(700)
        try:
            with pytest.raises(CompilationError) as caught:
                made.compile(out="*i32", n="i32")
        finally:
            sys.setrecursionlimit(limit)
    assert "nested too deeply" in caught.value.message
    assert "in kernel" in str(caught.value)
    assert "help: split a long expression" in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.line is not None


def test_an_expression_deeper_than_pythons_parser_goes_names_its_place() -> None:
    with pytest.raises(DefinitionError, match=r"the function at kernels\.py:7 has an expression that is nested more deeply than Python reads\n  help: split"):
        syntax_tree(f"def f(x):\n    return {'-' * 100_000}x\n", "kernels.py", 7)
