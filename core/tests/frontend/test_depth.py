"""Sources that are nested deeply or have endless numbers, and what is said where there is an end to
it."""

from __future__ import annotations

import linecache
import re
import sys
from typing import Any

import pytest

from tilewright import language
from tilewright.errors import CompilationError, DefinitionError
from tilewright.ir.hash import structural_hash
from tilewright.ir.parser import parse_module
from tilewright.language.definitions.callable import device_function
from tilewright.language.definitions.source import syntax_tree
from tilewright.passes import pipeline
from tilewright.recursion import deep_recursion
from tilewright.runtime.storage.cache_keys import stable_text

KERNEL = "@jit\ndef kernel(out, n):\n"
TERMS, CHAIN = 700, 160


def chain_of_elif(length: int) -> str:
    others = "".join(f"    elif n == {i}:\n        s = n + {i}\n" for i in range(1, length))
    return f"    s = 0\n    if n == 0:\n        s = 1\n{others}    tl.store(out, s)\n"


SOURCES = {
    "a sum": (
        "    tl.store(out, " + " + ".join(f"n * {i}" for i in range(TERMS)) + ")\n",
        3 * sum(range(TERMS)),
    ),
    "negations": (f"    tl.store(out, {'-' * TERMS}n)\n", 3),
    "comparisons": (
        f"    tl.store(out, ({' < '.join(f'n + {i}' for i in range(TERMS))}).to(tl.int32))\n",
        1,
    ),
    "a conjunction": (
        f"    tl.store(out, ({' and '.join(f'n > {-i}' for i in range(TERMS))}).to(tl.int32))\n",
        1,
    ),
    "conditional expressions": (
        f"    tl.store(out, {' '.join(f'{i} if n == {i} else' for i in range(CHAIN))} -1)\n",
        3,
    ),
    "elif": (chain_of_elif(CHAIN), 6),
    "early returns": (
        "".join(f"    if n == {i + 9}:\n        return\n" for i in range(CHAIN))
        + "    tl.store(out, n)\n",
        3,
    ),
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
    with pytest.raises(
        DefinitionError,
        match=(
            r"the function at kernels\.py:7 has an expression that is nested more deeply than "
            r"Python reads\n  help: split"
        ),
    ):
        syntax_tree(f"def f(x):\n    return {'-' * 100_000}x\n", "kernels.py", 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "tl.store(out, 10**5000)",
            (
                r"Nonrepresentable integer 0x31e20801036510f3c5\.\.\. \(of 16610 bits\): it "
                r"needs more than 64 bits"
            ),
        ),
        (
            "tl.store(out, K)",
            (
                r"Nonrepresentable integer 0x31e20801036510f3c5\.\.\. \(of 16610 bits\): it "
                r"needs more than 64 bits"
            ),
        ),
        ("y = n + 10**5000", r"Nonrepresentable integer 0x31e20801036510f3c5"),
        ("y = n < 10**5000", r"Nonrepresentable integer 0x31e20801036510f3c5"),
        ("for i in range(10**5000): pass", r"Nonrepresentable integer 0x31e20801036510f3c5"),
        (
            "for i in tl.static_range(10**5000): pass",
            r"a loop of 0x31e20801036510f3c5\.\.\. \(of 16610 bits\) iterations is not unrolled",
        ),
        ("x = tl.arange(0, 10**5000)", r"arange must fit in int32, got 0 and 0x31e20801036510f3c5"),
    ],
)
def test_an_integer_of_5000_digits_is_refused_by_its_beginning(
    source: Any, text: str, message: str
) -> None:
    made = source(
        "G = tl.constexpr(10**5000)\n@jit\ndef kernel(out, n, K: tl.constexpr):\n"
        f"    tl.static_assert(G == K)\n    {text}\n"
    )
    assert made.kernel.cache_key
    assert re.match(message, made.error(out="*i32", n="i32", K=10**5000).message)


def test_keys_tell_apart_integers_of_5000_digits() -> None:
    assert stable_text(10**5000) != stable_text(10**5000 + 1)
    assert stable_text(-(10**5000)) != stable_text(10**5000)


@pytest.mark.parametrize(
    "text", ["def plain(x):\n    return x\n", "plain = tl.constexpr(lambda x: x + 1)\n"]
)
def test_functions_of_globals_without_a_name_have_keys(text: str) -> None:
    text += "@jit\ndef kernel(out, n):\n    tl.store(out, plain(3))\n"
    file = "<functions without a module>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"tl": language, "jit": device_function}
    exec(compile(text, file, "exec"), names)
    assert len(names["kernel"].cache_key) == 64
    assert names["kernel"].__module__ == ""
