"""Functions of the language as objects: source, parameters, keys, copies."""

from __future__ import annotations

import copy
import importlib
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

import tilewright.language as tl
from tilewright.errors import DefinitionError
from tilewright.language.definitions.callable import (
    ConstexprFunction,
    JitCallable,
    constexpr_function,
    device_function,
)


def test_the_source_starts_at_def_and_is_dedented(source: Any) -> None:
    made = source(
        '''
        class Outer:
            @jit
            # a comment between
            def kernel(
                x,
                y=(1,
        2),
            ):
                """Doc
        at the margin."""
                if x:
        # a comment at the margin
                    return

                return

            other = 1

        kernel = Outer.__dict__["kernel"]
        '''
    )
    kernel = made.kernel
    lines = Path(made.__file__).read_text().splitlines(keepends=True)
    assert kernel.src.startswith("def kernel(\n    x,\n")
    assert kernel.src.rstrip().endswith("return")
    assert kernel.raw_src[0].strip() == "@jit"
    assert kernel.starting_line_number == 7
    assert kernel.definition_line == 9
    assert lines[kernel.definition_line - 1].strip() == "def kernel("
    assert kernel.indent == 4
    assert kernel.parse().name == "kernel"
    assert kernel.parse() is kernel.parse()
    assert kernel.__doc__ == "Doc\nat the margin."


def test_the_last_function_of_a_file_without_a_newline(source: Any) -> None:
    assert source("@jit\ndef kernel(x):\n    y = x").kernel.src == "def kernel(x):\n    y = x\n"


def test_a_function_without_a_file_is_refused() -> None:
    namespace: dict[str, Any] = {}
    exec("".join(("def f(x):", " pass")), namespace)
    with pytest.raises(DefinitionError, match="@jit functions should be defined in a Python file"):
        device_function(namespace["f"])
    with pytest.raises(TypeError, match="made from a Python function, not from int"):
        device_function(3)  # type: ignore[call-overload]


def test_parameters(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(a, b: tl.constexpr, c: "tl.constexpr" = 3, d: tl.int64 = 0, e: "*fp16" = None, f: tl.const = None, g: int = 1, *rest, h: "u1", i=2):
            pass
        """
    )
    params = made.kernel.params
    assert made.kernel.arg_names == ["a", "b", "c", "d", "e", "f", "g", "rest", "h", "i"]
    assert [parameter.num for parameter in params] == list(range(10))
    assert [parameter.is_constexpr for parameter in params] == [False, True, True, *[False] * 7]
    assert [parameter.annotation_type for parameter in params] == [
        "",
        "",
        "",
        "i64",
        "*fp16",
        "",
        "",
        "",
        "u1",
        "",
    ]
    assert [parameter.has_default for parameter in params] == [
        False,
        False,
        True,
        True,
        True,
        True,
        True,
        False,
        False,
        True,
    ]
    assert [parameter.default for parameter in params if parameter.has_default] == [
        3,
        0,
        None,
        None,
        1,
        2,
    ]
    assert [parameter.is_const for parameter in params].index(True) == 5
    assert [parameter.keyword_only for parameter in params] == [False] * 8 + [True, True]
    assert params[7].variadic


def test_annotations_of_modules_with_postponed_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "postponed_kernels.py").write_text(
        "from __future__ import annotations\n"
        "import tilewright.language as tl\n"
        "from tilewright.language.definitions.callable import device_function as jit\n"
        "@jit\n"
        "def kernel(a: tl.constexpr, b: tl.float32, c: tl.const, d: 'i64', e: torch.Tensor, f: "
        "tl.uint1, g: uint16, h: 'bfloat16'):\n"
        "    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    kernel = importlib.import_module("postponed_kernels").kernel
    assert [parameter.is_constexpr for parameter in kernel.params] == [True] + [False] * 7
    assert [parameter.annotation_type for parameter in kernel.params] == [
        "",
        "fp32",
        "",
        "i64",
        "",
        "u1",
        "u16",
        "bf16",
    ]
    assert kernel.params[2].is_const
    del sys.modules["postponed_kernels"]


def test_keyword_dictionaries_are_refused(source: Any) -> None:
    with pytest.raises(
        TypeError,
        match=r"JIT functions do not support \*\*kwargs: name each keyword parameter of kernel",
    ):
        source("@jit\ndef kernel(a, **rest):\n    pass\n")
    assert (
        source("@constexpr_function\ndef total(**rest):\n    return sum(rest.values())\n").total(
            a=1, b=2
        )
        == 3
    )


def test_a_constexpr_parameter_is_always_specialised(source: Any) -> None:
    made = source(
        """
        from tilewright.language.definitions.callable import JitCallable

        def kernel(a, N: tl.constexpr):
            pass

        kernel = JitCallable(kernel, do_not_specialize=["N"])
        """
    )
    error = made.error(a="i32", N=3)
    assert error.message.startswith("N marked as constexpr and listed in do_not_specialize")
    assert (error.file, error.line) == (made.__file__, 8)


def test_calling_a_function_outside_a_kernel_is_refused(source: Any) -> None:
    with pytest.raises(
        RuntimeError, match="Cannot call @jit function 'kernel' outside of the scope of a kernel"
    ):
        source("@jit\ndef kernel(a):\n    pass\n").kernel(1)


KEYED = """
N = tl.constexpr({n})

@jit
def leaf(x):
    return x + {leaf}

@jit
def middle(x):
    return leaf(x)

@constexpr_function
def size(n):
    return n * {size}

@jit
def kernel(out, x):
    tl.store(out + size(2), middle(x) + N)
"""


def test_the_key_covers_callees_and_constants(source: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    variants = {"n": 3, "leaf": 1, "size": 2}
    # The file is part of the key; only the text may differ here.
    keys = set()
    for changed in (None, "n", "leaf", "size"):
        values = dict(variants)
        if changed:
            values[changed] += 1
        made = source(KEYED.format(**values))
        for name in ("leaf", "middle", "size", "kernel"):
            monkeypatch.setattr(getattr(made, name)._source, "file", "same.py")
        keys.add(made.kernel.cache_key)
    assert len(keys) == 4
    again = source(KEYED.format(**variants))
    for name in ("leaf", "middle", "size", "kernel"):
        monkeypatch.setattr(getattr(again, name)._source, "file", "same.py")
    assert again.kernel.cache_key in keys


def test_the_key_covers_the_line(source: Any) -> None:
    made = source("@jit\ndef a(x):\n    pass\n\n@jit\ndef b(x):\n    pass\n")
    made.b._unsafe_update_src(made.a.src)
    assert made.a.src == made.b.src
    assert made.a.cache_key != made.b.cache_key


def test_used_globals_are_remembered_with_their_values(source: Any) -> None:
    made = source(
        """
        import types

        A = tl.constexpr(1)
        B = tl.constexpr(2)
        UNUSED = tl.constexpr(3)
        settings = types.SimpleNamespace
        plain = 5

        @jit
        def inner(x):
            return x + B

        @jit
        def kernel(out, x, y=plain):
            A_local = 1
            tl.store(out, inner(x) + A + A_local + math.pi)
        """
    )
    _ = made.kernel.cache_key
    used = made.kernel.used_global_vals
    assert {name: getattr(value, "value", value) for (name, _), (value, _) in used.items()} == {
        "A": 1,
        "B": 2,
        "pi": made.math.pi,
    }
    for (name, identity), (value, namespace) in used.items():
        assert id(namespace) == identity
        assert namespace[name] is value


def test_keys_of_functions_that_call_each_other(source: Any) -> None:
    text = """
    @jit
    def even(x, N: tl.constexpr):
        return {base} if N == 0 else odd(x, N - 1)

    @jit
    def odd(x, N: tl.constexpr):
        return 0 if N == 0 else even(x, N - 1)

    C = tl.constexpr(odd)
    """
    a, b = source(text.format(base=1)), source(text.format(base=2))
    assert len({a.even.cache_key, a.odd.cache_key}) == 2
    assert a.odd.cache_key != b.odd.cache_key


def test_replacing_the_source_changes_key_and_meaning(source: Any) -> None:
    made = source("@jit\ndef kernel(out):\n    tl.store(out, 1)\n")
    before = made.kernel.cache_key
    first = str(made.compile(out="*i32"))
    with pytest.raises(AttributeError, match="_unsafe_update_src"):
        made.kernel.src = "def kernel(out):\n    tl.store(out, 2)\n"
    made.kernel._unsafe_update_src("def kernel(out):\n    tl.store(out, 2)\n")
    assert made.kernel.hash is None
    assert made.kernel.cache_key != before
    assert str(made.compile(out="*i32")) != first


def test_copies_and_pickles(source: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "picklable_kernels.py").write_text(
        "import tilewright.language as tl\n"
        "from tilewright.language.definitions.callable import device_function as jit\n"
        "@jit\n"
        "def kernel(a, b: tl.constexpr = 3):\n"
        "    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    kernel = importlib.import_module("picklable_kernels").kernel
    assert pickle.loads(pickle.dumps(kernel)) is kernel
    assert copy.deepcopy(kernel) is kernel
    del sys.modules["picklable_kernels"]
    by_value = pickle.loads(pickle.dumps(kernel))
    assert by_value is not kernel
    assert (by_value.src, by_value.cache_key, by_value.arg_names) == (
        kernel.src,
        kernel.cache_key,
        ["a", "b"],
    )
    assert by_value.params[1].is_constexpr and by_value.params[1].default == 3
    assert pickle.loads(pickle.dumps(by_value)).cache_key == kernel.cache_key


def test_constexpr_functions_on_the_host_and_as_methods(source: Any) -> None:
    made = source(
        """
        @constexpr_function
        def double(n):
            return n * 2

        class Config:
            def __init__(self, n):
                self.n = n

            @constexpr_function
            def scaled(self, by):
                return self.n * by
        """
    )
    assert isinstance(made.double, ConstexprFunction) and isinstance(made.double, JitCallable)
    assert constexpr_function(made.double) is made.double
    assert made.double(4) == 8
    assert made.Config(3).scaled(5) == 15


def test_a_module_edited_after_import_keeps_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "edited_kernels.py"
    text = (
        "from tilewright.language.definitions.callable import device_function as jit\n@jit\n"
        "def kernel(x):\n    y = x + 1\n"
    )
    path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    kernel = importlib.import_module("edited_kernels").kernel
    path.write_text("# moved\n" * 20 + text)
    assert kernel.src == "def kernel(x):\n    y = x + 1\n"
    del sys.modules["edited_kernels"]


def test_functions_of_the_language_count_by_name_until_they_are_changed(
    source: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "@jit\ndef kernel(x):\n    return tl.softmax(x)\n"
    read: list[Any] = []
    original = type(tl.softmax).parse
    monkeypatch.setattr(type(tl.softmax), "parse", lambda self: read.append(self) or original(self))
    kernel = source(text).kernel
    before = kernel.cache_key
    assert [one.__name__ for one in read if one.__module__.startswith("tilewright.")] == []
    was = tl.softmax.src
    tl.softmax._unsafe_update_src(was.replace("return", "return 0 *"))
    try:
        kernel.hash = None
        assert kernel.cache_key != before, "what is not as the package has it counts by its text"
    finally:
        tl.softmax._unsafe_update_src(was)
        tl.softmax._text = None
    kernel.hash = None
    assert kernel.cache_key == before
