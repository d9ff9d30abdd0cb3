"""Kernels that programs write from the text of others, as triton_kernels does (in vLLM, SGLang and
gpt-oss): a function with another's text and signature."""

import inspect
import re
import sys
import types

import numpy as np
import pytest

pytest.importorskip("tilewright_cpu")

import tilewright.language as tl
from tilewright.compat import triton
from tilewright.compat.triton.backends.compiler import GPUTarget
from tilewright.compat.triton.compiler import ASTSource
from tilewright.errors import CompilationError


@triton.jit
def plus_one(x):
    return x + 1


@triton.jit
def template(x, out, n,  # what comes first
             scale, BLOCK: tl.constexpr):  # fmt: skip
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i, i < n) * scale
    tl.store(out + i, epilogue(value), i < n)  # noqa: F821  # what is written for it


def place():
    """Mock of a function: a name, globals, a signature."""


def written(module, signature, extra, **attributes):
    """A kernel with the template's body, another signature and more globals."""
    lines = inspect.getsource(template.fn).splitlines()
    body = lines[
        next(number for number, line in enumerate(lines) if line.endswith("# fmt: skip")) + 1 :
    ]
    text = "\n".join(
        [f"def {module.__name__}_kernel({signature}):", "    scale: tl.constexpr = 3", *body]
    )
    namespace = {**place.__globals__, **extra}
    exec(text, namespace)
    function = types.FunctionType(place.__code__, namespace)
    function.__module__, function.__name__ = module.__name__, f"{module.__name__}_kernel"
    function.__signature__ = inspect.signature(namespace[function.__name__])
    found = triton.JITFunction(function, **attributes)
    found._unsafe_update_src(text)
    setattr(module, function.__name__, found)
    # one line of signature and one of constants in place of two of the signature: lines of the body
    # are those of the template
    found.raw_src = list(template.raw_src)
    found.starting_line_number = template.starting_line_number
    found.def_file_line_number, found.def_file_col_number = (
        template.def_file_line_number,
        template.def_file_col_number,
    )
    found.file_name = template.fn.__code__.co_filename
    return found


SIGNATURE = "x, out, n, BLOCK: tl.constexpr"


@pytest.fixture
def module(monkeypatch):
    found = types.ModuleType("written_here")
    monkeypatch.setitem(sys.modules, found.__name__, found)
    return found


def test_a_kernel_with_another_s_text_runs(module):
    kernel = written(module, SIGNATURE, {"epilogue": plus_one}, do_not_specialize=("n",))
    assert (
        kernel.arg_names == ["x", "out", "n", "BLOCK"]
        and kernel.params[2].do_not_specialize
        and kernel.constexprs == [3]
    )
    x, out = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    kernel[(1,)](x, out, 9, BLOCK=16)
    np.testing.assert_array_equal(out, np.where(x < 9, 3 * x + 1, 0))
    assert (
        re.search(r"written_here_kernel", kernel.src)
        and kernel.fn.__name__ == kernel.__name__ == "written_here_kernel"
    )


def test_its_lines_are_those_of_the_text_it_came_from(module):
    pytest.importorskip("tilewright_nvidia")
    kernel = written(module, SIGNATURE, {"epilogue": plus_one})
    source = ASTSource(
        kernel, {"x": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {"BLOCK": 64}
    )
    text = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
    lines, first = inspect.getsourcelines(template.fn)
    (stored,) = (first + number for number, line in enumerate(lines) if "tl.store" in line)
    assert f'"{__file__}"' in text and re.search(rf"\.loc\t\d+ {stored} ", text)
    assert (
        kernel.file_name == __file__
        and kernel.def_file_line_number == first + 1
        and kernel.def_file_col_number == 1
    )


def test_so_are_those_of_errors(module):
    kernel = written(module, SIGNATURE, {"epilogue": None})
    lines, first = inspect.getsourcelines(template.fn)
    (stored,) = (first + number for number, line in enumerate(lines) if "tl.store" in line)
    with pytest.raises(CompilationError) as raised:
        kernel[(1,)](np.zeros(16, np.float32), np.zeros(16, np.float32), 9, BLOCK=16)
    assert f"{__file__}:{stored}" in str(raised.value)


def test_another_place_is_another_key():
    one, other = triton.jit(plus_one.fn), triton.jit(plus_one.fn)
    assert one.cache_key == other.cache_key
    other.def_file_line_number += 1
    assert one.cache_key != other.cache_key
