"""Globals in a kernel's key and checks.

Covers names in the order of the text, captured variables, and functions that run at compile time.
"""

import subprocess

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl

FACTOR = tl.constexpr(3)
LIMIT = tl.constexpr(4)


def test_a_global_that_is_read_before_it_is_hidden(recorder, monkeypatch):
    @tw.jit
    def kernel(y):
        first = FACTOR  # noqa: F823
        FACTOR = 5
        tl.store(y, first + FACTOR)

    kernel[(1,)](np.zeros(1, np.int32))
    assert "FACTOR" in {name for name, _ in kernel.used_global_vals}
    monkeypatch.setitem(globals(), "FACTOR", tl.constexpr(7))
    with pytest.raises(RuntimeError, match="Global variable FACTOR has changed"):
        kernel[(1,)](np.zeros(1, np.int32))


def test_its_value_is_the_globals():
    pytest.importorskip("tilewright_cpu")

    @tw.jit
    def kernel(y):
        first = FACTOR  # noqa: F823
        FACTOR = 5  # noqa: F841
        tl.store(y, first)

    y = np.zeros(1, np.int32)
    with tw.backend("cpu"):
        kernel[(1,)](y)
    assert y[0] == 3


def test_a_name_that_is_assigned_first_is_no_global(recorder, monkeypatch):
    @tw.jit
    def kernel(y):
        FACTOR = 5
        for LIMIT in range(2):
            FACTOR += LIMIT
        tl.store(y, FACTOR)

    kernel[(1,)](np.zeros(1, np.int32))
    assert not kernel.used_global_vals
    monkeypatch.setitem(globals(), "FACTOR", tl.constexpr(7))
    kernel[(1,)](np.zeros(1, np.int32))
    assert len(recorder.launches) == 2


@pytest.mark.parametrize(
    "body",
    [
        "FACTOR = FACTOR + 1",
        "FACTOR: tl.constexpr = FACTOR",
        "FACTOR += 1",
        "for FACTOR in range(FACTOR): pass",
        "(FACTOR := FACTOR)",
        "a = [FACTOR for FACTOR in (FACTOR, 1)]",
    ],
)
def test_values_are_read_before_targets_are_assigned(tmp_path, body):
    import importlib.util

    path = tmp_path / "kernels.py"
    path.write_text(
        "import tilewright as tw, tilewright.language as tl\nFACTOR = tl.constexpr(3)\n\n"
        f"@tw.jit\ndef kernel(y):\n    {body}\n"
    )
    spec = importlib.util.spec_from_file_location("kernels_by_body", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    before = module.kernel.cache_key
    assert [name for name, _ in module.kernel.used_global_vals] == ["FACTOR"]
    module.FACTOR = tl.constexpr(4)
    module.kernel.hash = None
    module.kernel._dependencies = None
    assert module.kernel.cache_key != before


def test_captured_constants_are_known(recorder):
    def make(value):
        LIMIT = value

        @tw.jit
        def kernel(y):
            tl.store(y, LIMIT)

        return kernel

    two, nothing = make(tl.constexpr(2)), make(None)
    two.cache_key, nothing.cache_key
    assert [(name, value.value) for (name, _), (value, _) in two.used_global_vals.items()] == [
        ("LIMIT", 2)
    ]
    assert not nothing.used_global_vals
    for _ in range(4):
        two[(1,)](np.zeros(1, np.int32))
    assert len(recorder.launches) == 4


@tw.constexpr_function
def processors():
    return subprocess.list2cmdline([])


def helper():
    return 1


@tw.constexpr_function
def asks_another():
    return helper()


@tw.constexpr_function
def asks_its_like():
    return processors()


def test_functions_whose_source_is_no_part_of_the_key_are_refused():
    with pytest.raises(
        RuntimeError,
        match=(
            r"Unsupported function referenced: <function helper .* by "
            r"asks_another.*constexpr_function"
        ),
    ):
        asks_another.cache_key
    assert (
        processors.cache_key != asks_its_like.cache_key
    )  # the standard library's are fixed by the version of Python
