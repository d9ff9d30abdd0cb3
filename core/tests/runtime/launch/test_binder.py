"""Binding arguments to a kernel's parameters, and grids. A recording backend stands for
hardware."""

import pickle

import numpy as np
import pytest
from optional_torch import torch

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import (
    BindingError,
    ConfigError,
    LaunchError,
    TilewrightError,
    TuningArgumentError,
)
from tilewright.runtime.launch.compiled_kernel import CompiledKernel


# ---- binding
def test_arguments_bind_as_pythons_do(recorder, scale, kernels):
    x = np.zeros(64, np.float32)
    for launch in (
        lambda: scale[(4,)](x, 64, 3.0, 8),
        lambda: scale[(4,)](x, 64, factor=3.0, BLOCK=8),
        lambda: scale[(4,)](BLOCK=8, factor=3.0, n=64, x=x),
    ):
        compiled = launch()
        assert isinstance(compiled, CompiledKernel)
        assert recorder.launches[-1] == ((4, 1, 1), None, (x, 64, 3.0))
    assert len(kernels(scale)) == 1
    defaults = scale[(4,)](x, 64)
    assert defaults.src.constants == {"BLOCK": 16}
    assert recorder.launches[-1][2] == (x, 64, 2.0)


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        ((), {}, r"scale\(\) missing 2 required positional arguments: 'x' and 'n'"),
        ((1, 2, 3, 4, 5), {}, "positional arguments"),
        ((1, 2), {"x": 3}, "multiple values"),
    ],
)
def test_wrong_numbers_of_arguments(recorder, arguments, keywords, message, scale):
    with pytest.raises(TypeError, match=message):
        scale[(1,)](*arguments, **keywords)


def test_keyword_only_and_variadic_parameters(recorder, types_of):
    @tw.jit
    def kernel(x, *rest, n, BLOCK: tl.constexpr = 4):
        for i in tl.static_range(0, BLOCK):
            tl.store(x + i, rest[0] + n)

    x = np.zeros(8, np.int32)
    compiled = kernel[(1,)](x, 5, 1, 2.5, n=7)
    assert types_of(compiled) == {
        "x": "*i32",
        "rest": ("i32", "constexpr", "fp32"),
        "n": "i32",
        "BLOCK": "constexpr",
    }
    assert recorder.launches[-1][2] == (x, 5, 2.5, 7)
    with pytest.raises(TypeError, match="keyword-only argument: 'n'"):
        kernel[(1,)](x, 5)


def test_parameters_may_have_any_name(recorder):
    @tw.jit
    def kernel(grid, type, int, tuple, callable, options, self, args):
        tl.store(grid, type + int + tuple + callable + options + self + args)

    x = np.zeros(1, np.int64)
    kernel[(1,)](x, 2, 3, 4, 5, 6, 7, args=8)
    assert recorder.launches[-1][2] == (x, 2, 3, 4, 5, 6, 7, 8)


def test_an_unknown_keyword(recorder, scale):
    with pytest.raises(
        KeyError, match="Keyword argument colour was specified but unrecognised"
    ) as raised:
        scale[(1,)](np.zeros(4, np.float32), 4, colour=3)
    assert "num_warps" in str(raised.value)
    assert "'recorder'" in str(raised.value)


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"n": 4, "num_warp": 4}, "did you mean num_warps?"),
        ({"n": 4, "BLOKC": 4}, "did you mean BLOCK?"),
        ({"n_elements": 4}, "_scale has no parameter n_elements: did you mean n?"),
        ({"size": 4}, "_scale has no parameter size: did you mean n?"),
        ({"num_warps": 2}, "the parameters of _scale are x, n, factor, BLOCK"),
    ],
)
def test_what_a_keyword_may_have_meant(recorder, keywords, error, scale):
    with pytest.raises(LaunchError) as raised:
        scale[(1,)](np.zeros(4, np.float32), **keywords)
    assert str(raised.value).splitlines()[-1] == f"  help: {error}"
    with pytest.raises(LaunchError):
        scale.warmup(np.zeros(4, np.float32), grid=(1,), **keywords)


@tw.jit
def filled(x, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), 1.0)


def test_a_block_by_another_name(recorder):
    with pytest.raises(BindingError) as raised:
        filled[(1,)](np.zeros(16, np.float32), BLOCK=16)
    assert str(raised.value) == (
        "filled() missing 1 required positional argument: 'B'\n"
        "  help: filled has no parameter BLOCK: did you mean B?"
    )
    assert isinstance(raised.value, TypeError)
    with pytest.raises(BindingError, match="filled has no parameter BLOCK: did you mean B"):
        tw.autotune([tw.Config({"BLOCK": 16}), tw.Config({"BLOCK": 8})], key=[])(filled)[(1,)](
            np.zeros(16, np.float32)
        )
    with pytest.raises(BindingError, match="takes 2 positional arguments but 3 were given"):
        filled[(1,)](np.zeros(16, np.float32), 16, 4)


def test_what_a_configuration_may_have_meant():
    with pytest.raises(ConfigError, match=r"no keyword 'num_warp'[\s\S]*did you mean num_warps\?"):
        tw.Config({"B": 16}, num_warp=4)
    with pytest.raises(TuningArgumentError, match=r"names 'm'"):
        tw.autotune([tw.Config({"B": 16})], key=["m"])(filled)
    with pytest.raises(TuningArgumentError, match=r"did you mean B\?"):
        tw.autotune([tw.Config({})], key=["BLOCK"])(filled)


def test_errors_of_a_launch_are_of_one_family_and_of_pythons_kind(recorder, scale):
    x = np.zeros(4, np.float32)
    wrong = {
        lambda: scale[(1,)](): TypeError,
        lambda: scale[(1,)](x, 4, nope=1): KeyError,
        lambda: scale[(1,)](x, 4, stream=1): AssertionError,
        lambda: scale(x, 4): RuntimeError,
        lambda: tl.load(x): ValueError,
        lambda: tw.Config(5): TypeError,
        lambda: tw.autotune([3], key=[])(scale): TypeError,
        lambda: tw.autotune([tw.Config({})], key=["q"])(scale): ValueError,
    }
    for call, kind in wrong.items():
        with pytest.raises(TilewrightError) as raised:
            call()
        assert isinstance(raised.value, kind)
        again = pickle.loads(pickle.dumps(raised.value))
        assert (type(again), str(again)) == (type(raised.value), str(raised.value))


@pytest.mark.parametrize("name", ["device", "stream", "device_type"])
def test_reserved_keywords(recorder, name, scale):
    with pytest.raises(AssertionError, match=f"{name}= is not an option"):
        scale[(1,)](np.zeros(4, np.float32), 4, **{name: 0})


def test_calling_a_kernel(scale):
    with pytest.raises(RuntimeError, match="Cannot call @jit'd outside of the scope of a kernel"):
        scale(np.zeros(4, np.float32), 4)


# ---- grids
@pytest.mark.parametrize(
    ("grid", "sizes"),
    [
        ((3,), (3, 1, 1)),
        ((3, 4), (3, 4, 1)),
        ((3, 4, 5), (3, 4, 5)),
        ([6, 2], (6, 2, 1)),
        (7, (7, 1, 1)),
        ((np.int64(3), torch.tensor(2)), (3, 2, 1)),
        (lambda meta: (meta["n"] // meta["BLOCK"],), (8, 1, 1)),
        (lambda meta: [tw.cdiv(meta["n"], 5), int(meta["factor"])], (26, 2, 1)),
    ],
)
def test_grids(recorder, grid, sizes, scale):
    scale[grid](np.zeros(128, np.float32), 128)
    found = recorder.launches[-1][0]
    assert found == sizes
    assert all(type(size) is int for size in found)


def test_a_grid_function_sees_all_arguments_by_name_and_the_options(recorder, scale):
    seen = {}
    x = np.zeros(8, np.float32)
    scale[lambda meta: seen.update(meta) or (1,)](x, 8, BLOCK=4, num_warps=2)
    assert seen == {"x": x, "n": 8, "factor": 2.0, "BLOCK": 4, "num_warps": 2}


@pytest.mark.parametrize("grid", [(), (1, 2, 3, 4), (2.5,), ("a",), (-1,), None, (3, -2)])
def test_grids_that_are_none(recorder, grid, scale):
    with pytest.raises(LaunchError, match="grid"):
        scale[grid](np.zeros(8, np.float32), 8)
    assert recorder.launches == []


@pytest.mark.parametrize("grid", [(0,), (4, 0), (2, 2, 0)])
def test_an_empty_grid_compiles_and_launches_nothing(recorder, grid, scale, fresh, kernels):
    kernel = fresh(scale)
    assert kernel[grid](np.zeros(8, np.float32), 8) is not None
    assert len(kernels(kernel)) == 1
    assert recorder.launches == []
