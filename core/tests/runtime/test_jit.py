"""Launching kernels: binding, specialisation, options, grids, errors. A recording backend stands for hardware."""

import collections
import copy
import enum
import gc
import pickle
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import BackendError, CompilationError, LaunchError
from tilewright.runtime.arguments import ArgumentError, ArrayView
from tilewright.runtime.backend_choice import DeviceError
from tilewright.runtime.descriptor import TensorDescriptor
from tilewright.runtime.hooks import hooks
from tilewright.runtime.jit import JITFunction
from tilewright.runtime.kernel import CompiledKernel


@tw.jit
def scale(x, n, factor=2.0, BLOCK: tl.constexpr = 16):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) * factor, mask=offsets < n)


def fresh(kernel: JITFunction, **options) -> JITFunction:
    """The same kernel without anything compiled."""
    return tw.jit(kernel.fn, **options) if options else tw.jit(kernel.fn)


@tw.jit
def one_int(x, i):
    tl.store(x, i)


def types_of(kernel: CompiledKernel) -> dict:
    return dict(kernel.src.signature)


def kernels(kernel: JITFunction, place: str = "recorder:0"):
    return kernel.device_caches[place][0]


# ---- binding


def test_arguments_bind_as_pythons_do(recorder):
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
def test_wrong_numbers_of_arguments(recorder, arguments, keywords, message):
    with pytest.raises(TypeError, match=message):
        scale[(1,)](*arguments, **keywords)


def test_keyword_only_and_variadic_parameters(recorder):
    @tw.jit
    def kernel(x, *rest, n, BLOCK: tl.constexpr = 4):
        for i in tl.static_range(0, BLOCK):
            tl.store(x + i, rest[0] + n)

    x = np.zeros(8, np.int32)
    compiled = kernel[(1,)](x, 5, 1, 2.5, n=7)
    assert types_of(compiled) == {"x": "*i32", "rest": ("i32", "constexpr", "fp32"), "n": "i32", "BLOCK": "constexpr"}
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


def test_an_unknown_keyword(recorder):
    with pytest.raises(KeyError, match="Keyword argument colour was specified but unrecognised") as raised:
        scale[(1,)](np.zeros(4, np.float32), 4, colour=3)
    assert "num_warps" in str(raised.value)
    assert "'recorder'" in str(raised.value)


@pytest.mark.parametrize("name", ["device", "stream", "device_type"])
def test_reserved_keywords(recorder, name):
    with pytest.raises(AssertionError, match=f"{name}= is not an option"):
        scale[(1,)](np.zeros(4, np.float32), 4, **{name: 0})


def test_calling_a_kernel():
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
def test_grids(recorder, grid, sizes):
    scale[grid](np.zeros(128, np.float32), 128)
    found = recorder.launches[-1][0]
    assert found == sizes
    assert all(type(size) is int for size in found)


def test_a_grid_function_sees_all_arguments_by_name_and_the_options(recorder):
    seen = {}
    x = np.zeros(8, np.float32)
    scale[lambda meta: seen.update(meta) or (1,)](x, 8, BLOCK=4, num_warps=2)
    assert seen == {"x": x, "n": 8, "factor": 2.0, "BLOCK": 4, "num_warps": 2}


@pytest.mark.parametrize("grid", [(), (1, 2, 3, 4), (2.5,), ("a",), (-1,), None, (3, -2)])
def test_grids_that_are_none(recorder, grid):
    with pytest.raises(LaunchError, match="grid"):
        scale[grid](np.zeros(8, np.float32), 8)
    assert recorder.launches == []


@pytest.mark.parametrize("grid", [(0,), (4, 0), (2, 2, 0)])
def test_an_empty_grid_compiles_and_launches_nothing(recorder, grid):
    kernel = fresh(scale)
    assert kernel[grid](np.zeros(8, np.float32), 8) is not None
    assert len(kernels(kernel)) == 1
    assert recorder.launches == []


# ---- specialisation


def test_the_documented_count_of_compilations(recorder):
    kernel = fresh(one_int)
    x = np.zeros(1, np.int32)
    for value in (1, 2, 4, 8, 16, 32):
        kernel[(1,)](x, value)
    assert len(kernels(kernel)) == 3
    assert len(kernel.device_caches[0][0]) == 3
    assert [launch[2] for launch in recorder.launches] == [(x,), (x, 2), (x, 4), (x, 8), (x, 16), (x, 32)]


def test_the_count_where_an_annotation_fixes_the_type(recorder):
    @tw.jit
    def kernel(x, i: tl.int32):
        tl.store(x, i)

    for value in (1, 8, 16, 17):
        compiled = kernel[(1,)](np.zeros(1, np.int32), value)
        assert types_of(compiled)["i"] == "i32"
    assert len(kernels(kernel)) == 3


class Colour(enum.IntEnum):
    RED = 5


@pytest.mark.parametrize(
    ("value", "type_", "divisible", "launched"),
    [
        (0, "i32", True, 0),
        (3, "i32", False, 3),
        (-16, "i32", True, -16),
        (2**31 - 1, "i32", False, 2**31 - 1),
        (-(2**31), "i32", True, -(2**31)),
        (2**31, "i64", True, 2**31),
        (2**31 + 1, "i64", False, 2**31 + 1),
        (-(2**63), "i64", True, -(2**63)),
        (2**63, "u64", True, 2**63),
        (2**64 - 1, "u64", False, 2**64 - 1),
        (True, "u1", False, True),
        (False, "u1", False, False),
        (1.0, "fp32", False, 1.0),
        (float("nan"), "fp32", False, None),
        (np.int32(7), "i32", False, 7),
        (np.uint8(32), "i32", True, 32),
        (np.float64(1.5), "fp32", False, 1.5),
        (np.float16(1.5), "fp32", False, 1.5),
        (np.bool_(True), "u1", False, True),
        (Colour.RED, "i32", False, 5),
    ],
)
def test_scalars(recorder, value, type_, divisible, launched):
    x = np.zeros(1, np.float64)
    for _ in range(2):  # the first launch compiles, the second has a plan
        compiled = one_int[(1,)](x, value)
        assert types_of(compiled)["i"] == type_
        assert compiled.src.attributes.get("i") == ({"divisibility": 16} if divisible else None)
        assert (compiled.parameters[1].divisibility == 16) == divisible
        got = recorder.launches[-1][2][1]
        assert got == launched or launched is None
        assert type(got) in (int, float, bool, Colour)


def test_one_and_none_are_constants(recorder):
    for value in (1, np.int64(1)):
        compiled = one_int[(1,)](np.zeros(1, np.int32), value)
        assert types_of(compiled)["i"] == "constexpr"
        assert compiled.src.constants == {"i": 1}

    @tw.jit
    def kernel(x, other):
        if other is not None:
            tl.store(x, tl.load(other))

    compiled = kernel[(1,)](np.zeros(1), None)
    assert compiled.src.constants == {"other": None}
    assert types_of(kernel[(1,)](np.zeros(1), np.zeros(1)))["other"] == "*fp64"


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_integers_of_more_than_64_bits(recorder, value):
    with pytest.raises(OverflowError, match="64 bits"):
        one_int[(1,)](np.zeros(1, np.int32), value)


def test_arrays_specialise_on_type_and_alignment(recorder):
    kernel = fresh(scale)
    whole = np.zeros(256, np.float32)
    start = next(i for i in range(4) if whole[i:].ctypes.data % 16 == 0)
    x = whole[start:]
    for view, divisible in ((x, True), (x[1:], False), (x[4:], True), (x[2:], False)):
        compiled = kernel[(1,)](view, 3)
        assert compiled.src.attributes.get("x") == ({"divisibility": 16} if divisible else None)
    assert len(kernels(kernel)) == 2
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        kernel[(1,)](torch.zeros(64, dtype=dtype), 3)
    assert len(kernels(kernel)) == 5  # torch's float32 is the same as NumPy's


def test_const_pointers_and_annotated_pointers(recorder):
    @tw.jit
    def kernel(x: tl.const, y: "*i8", z: torch.Tensor, o: int):  # noqa: F722
        tl.store(y, tl.load(x).to(tl.int8) + tl.load(z) + o)

    compiled = kernel[(1,)](np.zeros(4, np.float16), np.zeros(4, np.uint8), np.zeros(4, np.int8), 3)
    assert types_of(compiled) == {"x": "*kfp16", "y": "*i8", "z": "*i8", "o": "i32"}


def test_annotations_fix_the_type(recorder):
    @tw.jit
    def kernel(x, a: "i64", b: tl.int8, c: "fp64", d: tl.float16, e: "u1", f: tl.uint16):  # noqa: F821
        tl.store(x, a + b + c + d + e.to(tl.int32) + f)

    x = np.zeros(1)
    compiled = kernel[(1,)](x, 32, 3, 2.0, 1, 1, 48)
    assert types_of(compiled) == {"x": "*fp64", "a": "i64", "b": "i8", "c": "fp64", "d": "fp16", "e": "u1", "f": "u16"}
    assert compiled.src.attributes.get("a") == compiled.src.attributes.get("f") == {"divisibility": 16}
    assert compiled.src.attributes.get("c") is None
    assert recorder.launches[-1][2] == (x, 32, 3, 2.0, 1.0, True, 48)
    assert [type(value) for value in recorder.launches[-1][2][3:]] == [float, float, bool, int]
    with pytest.raises(ArgumentError, match="'a' is annotated i64"):
        kernel[(1,)](x, 1.5, 3, 2.0, 1, 1, 48)


@pytest.mark.parametrize("names", [["i"], [1], ("x", "i")])
def test_do_not_specialize(recorder, names):
    kernel = fresh(one_int, do_not_specialize=names)
    for value in (1, 2, 16):
        compiled = kernel[(1,)](np.zeros(64, np.int32), value)
        assert types_of(compiled)["i"] == "i32"
        assert "i" not in compiled.src.attributes
    assert len(kernels(kernel)) == 1
    assert types_of(kernel[(1,)](np.zeros(64, np.int32), 2**40))["i"] == "i64"


def test_do_not_specialize_on_alignment(recorder):
    kernel = fresh(one_int, do_not_specialize_on_alignment=["i", 0])
    whole = np.zeros(64, np.int32)
    for view in (whole, whole[1:], whole[2:]):
        for value in (1, 2, 16):
            compiled = kernel[(1,)](view, value)
            assert compiled.src.attributes == {}
    assert len(kernels(kernel)) == 2


def test_a_constexpr_cannot_be_unspecialised(recorder):
    kernel = fresh(scale, do_not_specialize=["BLOCK"])
    with pytest.raises(CompilationError, match="'BLOCK'"):
        kernel[(1,)](np.zeros(4, np.float32), 4)


@tw.jit
def takes_constant(x, VALUE: tl.constexpr):
    tl.store(x, 1)


@tw.jit
def helper(a):
    return a + 1


@tw.jit
def other_helper(a):
    return a + 2


Pair = collections.namedtuple("Pair", ["left", "right"])


@pytest.mark.parametrize(
    "values",
    [
        (1, 1.0, True),
        (0.0, -0.0, 0, False),
        (float("inf"), float("-inf")),
        ("a", "b", ""),
        (None, 0),
        ((1, 2), (1, True), (1.0, 2), Pair(1, 2), (1, (2, 3))),
        (tl.float32, tl.float16, tl.int32),
        (helper, other_helper),
        (Colour.RED, 5),
    ],
    ids=repr,
)
def test_constants_that_differ_compile_differently_and_once_each(recorder, values):
    kernel = fresh(takes_constant)
    for _ in range(2):
        for value in values:
            kernel[(1,)](np.zeros(1, np.int32), value)
    assert len(kernels(kernel)) == len(values)
    assert len(recorder.launches) == 2 * len(values)


def test_nan_is_one_constant(recorder):
    kernel = fresh(takes_constant)
    for _ in range(3):
        kernel[(1,)](np.zeros(1, np.int32), float("nan"))
    assert len(kernels(kernel)) == 1
    assert len(kernel._plans) == 1


def test_a_constant_must_be_hashable(recorder):
    with pytest.raises(ArgumentError, match="must be hashable"):
        takes_constant[(1,)](np.zeros(1, np.int32), {"a": 1})


def test_constexpr_values_are_unwrapped(recorder):
    kernel = fresh(takes_constant)
    assert kernel[(1,)](np.zeros(1, np.int32), tl.constexpr(8)).src.constants == {"VALUE": 8}
    kernel[(1,)](np.zeros(1, np.int32), 8)
    assert len(kernels(kernel)) == 1
    compiled = one_int[(1,)](np.zeros(1, np.int32), tl.constexpr(9))
    assert compiled.src.constants == {"i": 9}


def test_functions_of_the_language_are_constants_anywhere(recorder):
    @tw.jit
    def kernel(x, function):
        tl.store(x, function(tl.load(x)))

    x = np.zeros(1, np.int32)
    assert kernel[(1,)](x, helper).src.constants["function"] is helper
    kernel[(1,)](x, other_helper)
    kernel[(1,)](x, helper)
    assert len(kernels(kernel)) == 2
    assert recorder.launches[-1][2] == (x,)


@pytest.mark.parametrize("value", ["text", tl.float32, torch.float32, object(), [1, 2], {1: 2}, slice(3)])
def test_unsupported_arguments(recorder, value):
    with pytest.raises(TypeError, match="Unsupported type"):
        one_int[(1,)](np.zeros(1, np.int32), value)


def test_tuples_and_named_tuples(recorder):
    @tw.jit
    def kernel(t, p):
        tl.store(t[0], t[1] + p.left + p.right[1] + t[2][0])

    x, y = np.zeros(64, np.int32), np.zeros(64, np.int8)
    for _ in range(2):
        compiled = kernel[(1,)]((x, 16, (1, y, None)), Pair(2.5, (np.int64(3), 5)))
        assert recorder.launches[-1][2] == (x, 16, y, 2.5, 3, 5)
        assert type(recorder.launches[-1][2][4]) is int
    assert types_of(compiled) == {"t": ("*i32", "i32", ("constexpr", "*i8", "constexpr")), "p": Pair("fp32", ("i32", "i32"))}
    assert compiled.src.constants == {"t.2.0": 1, "t.2.2": None}
    assert compiled.src.attributes["t.1"] == {"divisibility": 16}
    assert [parameter.name for parameter in compiled.parameters] == ["t.0", "t.1", "t.2.1", "p.0", "p.1.0", "p.1.1"]
    kernel[(1,)]((x, 17, (1, y, None)), Pair(2.5, (3, 5)))
    assert len(kernels(kernel)) == 2


def test_tensor_descriptors(recorder):
    @tw.jit
    def kernel(d, pair):
        d.store([0, 0], d.load([0, 0]) + pair[1])

    tensor = torch.zeros(8, 64, dtype=torch.float16)
    descriptor = TensorDescriptor.from_tensor(tensor, [4, 32])
    compiled = kernel[(1,)](descriptor, (descriptor, 3))
    assert types_of(compiled) == {"d": "tensordesc<fp16[4,32]>", "pair": ("tensordesc<fp16[4,32]>", "i32")}
    assert recorder.launches[-1][2] == (descriptor, descriptor, 3)
    assert [parameter.type for parameter in compiled.parameters] == ["desc<4x32xf16>", "desc<4x32xf16>", "i32"]
    kernel[(1,)](TensorDescriptor.from_tensor(tensor, [8, 32]), (descriptor, 3))
    kernel[(1,)](TensorDescriptor.from_tensor(torch.ones(8, 64, dtype=torch.float16), [4, 32]), (descriptor, 3))
    assert len(kernels(kernel)) == 2


def test_foreign_arrays_reach_the_launcher_as_views(recorder):
    class Foreign:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **keywords):
            return self.array.__dlpack__(**keywords)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    array = np.zeros(16, np.float32)
    for _ in range(2):
        scale[(1,)](Foreign(array), 16)
        view = recorder.launches[-1][2][0]
        assert isinstance(view, ArrayView)
        assert view.data_ptr() == array.ctypes.data


# ---- options


def test_options_are_part_of_the_key_and_reach_the_backend(install_recorder):
    recorder = install_recorder(options={"depth": 7, "num_warps": 2})
    kernel = fresh(scale)
    x = np.zeros(8, np.float32)
    kernel[(1,)](x, 8)
    assert (recorder.lowered[-1]["depth"], recorder.lowered[-1]["num_warps"]) == (7, 2)
    for _ in range(2):
        kernel[(1,)](x, 8, depth=3, num_warps=8)
    assert (recorder.lowered[-1]["depth"], recorder.lowered[-1]["num_warps"]) == (3, 8)
    kernel[(1,)](x, 8, num_warps=2)
    assert len(kernels(kernel)) == len(recorder.lowered) == 2
    kernel[(1,)](x, 8, depth={"a": [1]})
    kernel[(1,)](x, 8, depth={"a": [1]})
    assert len(kernels(kernel)) == 3


@pytest.mark.parametrize("option", [{"num_warps": 0}, {"num_warps": 2.5}, {"num_ctas": -1}, {"num_stages": "x"}, {"num_warps": True}])
def test_options_that_make_no_sense(recorder, option):
    with pytest.raises(LaunchError, match=next(iter(option))):
        scale[(1,)](np.zeros(8, np.float32), 8, **option)


def test_an_option_may_be_a_constexpr_parameter_too(recorder):
    @tw.jit
    def kernel(x, num_warps: tl.constexpr):
        tl.store(x, num_warps)

    compiled = kernel[(1,)](np.zeros(1, np.int32), num_warps=8)
    assert compiled.src.constants == {"num_warps": 8}
    assert recorder.lowered[-1]["num_warps"] == 8


def test_debug_comes_from_the_decorator_the_environment_and_the_launch(recorder, monkeypatch):
    x = np.zeros(8, np.float32)
    assert fresh(scale)[(1,)](x, 8).metadata.debug is False
    assert fresh(scale, debug=True)[(1,)](x, 8).metadata.debug is True
    assert fresh(scale, debug=True)[(1,)](x, 8, debug=False).metadata.debug is False
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
    assert fresh(scale)[(1,)](x, 8).metadata.debug is True
    assert fresh(scale, debug=False)[(1,)](x, 8).metadata.debug is False


# ---- choosing a backend


def test_the_backend_is_chosen_by_keyword_context_environment_and_device(install_recorder, monkeypatch):
    from tilewright.runtime import backend_choice

    first, second = install_recorder(name="first", priority=2000), install_recorder(name="second", priority=1500)
    kernel = fresh(scale)
    x = np.zeros(8, np.float32)
    kernel[(1,)](x, 8)
    assert (len(first.launches), len(second.launches)) == (1, 0)
    with tw.backend("second") as found:
        assert found.name == "second"
        kernel[(1,)](x, 8)
        with tw.backend("first"):
            kernel[(1,)](x, 8)
        kernel[(1,)](x, 8)
    assert (len(first.launches), len(second.launches)) == (2, 2)
    kernel[(1,)](x, 8, backend="second")
    with tw.backend("first"):
        kernel[(1,)](x, 8, backend="second")
    assert (len(first.launches), len(second.launches)) == (2, 4)
    assert set(kernel.device_caches) == {"first:0", "second:0"}
    monkeypatch.setenv("TILEWRIGHT_BACKEND", "second")
    backend_choice.refresh_environment()
    again = fresh(scale)
    again[(1,)](x, 8)
    assert len(second.launches) == 5
    with tw.backend("first"):
        again[(1,)](x, 8)
    assert len(first.launches) == 3


def test_a_parameter_named_backend_is_a_parameter(recorder):
    @tw.jit
    def kernel(x, backend):
        tl.store(x, backend)

    x = np.zeros(1, np.int32)
    kernel[(1,)](x, backend=7)
    assert recorder.launches[-1][2] == (x, 7)


def test_options_of_a_context(install_recorder):
    recorder = install_recorder(options={"depth": 1})
    x = np.zeros(8, np.float32)
    with tw.backend("recorder", depth=5):
        scale[(1,)](x, 8)
        assert recorder.lowered[-1]["depth"] == 5
        scale[(1,)](x, 8, depth=6)
        assert recorder.lowered[-1]["depth"] == 6
    with tw.backend("recorder", hue=5), pytest.raises(KeyError, match="hue"):
        scale[(1,)](x, 8)


def test_the_context_is_of_its_thread(install_recorder):
    import threading

    install_recorder(name="first", priority=2000)
    second = install_recorder(name="second", priority=1500)
    with tw.backend("second"):
        thread = threading.Thread(target=lambda: fresh(scale)[(1,)](np.zeros(8, np.float32), 8))
        thread.start()
        thread.join()
    assert second.launches == []


def test_a_backend_that_is_not_there(recorder):
    with pytest.raises(BackendError, match="pip install tilewright-npu"):
        tw.backend("npu")
    with pytest.raises(BackendError, match="pip install tilewright-npu"):
        scale[(1,)](np.zeros(8, np.float32), 8, backend="npu")


class OnDevice:
    """A tensor somewhere."""

    def __init__(self, device, dtype="float32"):
        self.device, self.dtype = device, dtype

    def data_ptr(self):
        return 4096


def test_the_device_of_the_arguments(install_recorder):
    recorder = install_recorder(name="rec", kinds=("xpu",), count=3)
    scale[(1,)](OnDevice("xpu:2"), 8)
    assert recorder.loaded[-1][1].index == 2
    scale[(1,)](OnDevice("xpu:1"), 8)
    assert recorder.loaded[-1][1].index == 1
    assert {"rec:1", "rec:2"} <= set(scale.device_caches)
    with pytest.raises(BackendError, match=r"no device xpu:7; it found xpu:0"):
        scale[(1,)](OnDevice("xpu:7"), 8)


def test_a_device_that_nobody_serves(recorder):
    with pytest.raises(BackendError, match=r"no installed backend serves 'tpu' devices.*installed: recorder \(for cpu\).*pip install 'tilewright\[all\]'"):
        scale[(1,)](OnDevice("tpu"), 8)


def test_arguments_on_several_devices(install_recorder):
    install_recorder(name="rec", kinds=("xpu", "cpu"), count=3)

    @tw.jit
    def kernel(x, y):
        tl.store(x, tl.load(y))

    with pytest.raises(DeviceError, match=r"one device, and these lie on xpu:0 and xpu:1\. Move"):
        kernel[(1,)](OnDevice("xpu:0"), OnDevice("xpu:1"))
    with pytest.raises(ValueError, match=r"Pointer argument cannot be accessed \(cpu tensor\?\)"):
        kernel[(1,)](OnDevice("xpu:0"), np.zeros(4, np.float32))


def test_a_backend_that_cannot_reach_the_arguments(install_recorder):
    install_recorder(name="rec", kinds=("xpu",))
    with tw.backend("rec"), pytest.raises(ValueError, match=r"Pointer argument cannot be accessed \(cpu tensor\?\): backend 'rec' serves xpu devices"):
        scale[(1,)](np.zeros(8, np.float32), 8)


def test_kernels_without_arrays_run_on_the_default_backend(recorder):
    @tw.jit
    def kernel(n):
        tl.device_assert(n > 0)

    kernel[(2,)](5)
    assert recorder.launches[-1] == ((2, 1, 1), None, (5,))


# ---- compiled kernels


def test_compiled_kernels_tell_about_themselves(recorder):
    compiled = fresh(scale)[(1,)](np.zeros(8, np.float32), 8, num_warps=2)
    assert compiled.name == "scale"
    assert compiled.asm["paper"] == "text"
    assert "kernel @scale" in compiled.asm["tileir"]
    assert compiled.asm["source"].startswith("def scale")
    assert set(compiled.asm) == {"source", "tileir", "paper", "binary"}
    with pytest.raises(KeyError, match="Unknown key: 'ptx'"):
        compiled.asm["ptx"]
    assert compiled.metadata.num_warps == 2
    assert compiled.metadata.shared == 12
    assert compiled.metadata.name == "scale"
    assert compiled.metadata.target.arch == "paper"
    assert compiled.metadata._asdict()["hash"] == compiled.hash
    assert compiled.packed_metadata == (2, 1, 12)
    assert (compiled.n_regs, compiled.n_spills, compiled.n_max_threads) == (0, 0, 0)
    assert compiled.kernel == b"\0code"
    assert compiled.src.fn.arg_names == ["x", "n", "factor", "BLOCK"]
    assert set(compiled.timings) >= {"frontend", "passes", "lower", "lower.write", "load"}
    assert set(compiled.metadata_group) == {"scale.tileir", "scale.paper"}


def test_compiled_kernels_launch_with_all_arguments_in_order(recorder):
    x = np.zeros(8, np.float32)
    compiled = scale[(1,)](x, 8)
    y = np.ones(8, np.float32)
    assert compiled[(3, 2)](y, 8, 4.0, 16, stream="s") is compiled
    assert recorder.launches[-1] == ((3, 2, 1), "s", (y, 8, 4.0))
    compiled[lambda meta: (meta["n"],)](y, 8, 4.0, 16)
    assert recorder.launches[-1][0] == (8, 1, 1)
    with pytest.raises(LaunchError, match="takes 4 arguments"):
        compiled[(1,)](y, 8)


def test_warmup_compiles_and_does_not_launch(recorder):
    kernel = fresh(scale)
    compiled = kernel.warmup(tw.MockTensor(torch.float16), 64, BLOCK=8, grid=(4,))
    assert types_of(compiled) == {"x": "*fp16", "n": "i32", "factor": "fp32", "BLOCK": "constexpr"}
    assert compiled.src.attributes == {"x": {"divisibility": 16}, "n": {"divisibility": 16}}
    kernel.warmup(torch.float16, 64, BLOCK=8, grid=(4,))
    assert len(kernels(kernel)) == 1
    assert recorder.launches == recorder.loaded == []
    kernel[(1,)](torch.zeros(64, dtype=torch.float16), 64, BLOCK=8)
    assert len(kernels(kernel)) == 1
    assert len(recorder.launches) == 1
    assert kernel.run(torch.zeros(64, dtype=torch.float16), 64, BLOCK=8, grid=(2,), warmup=True) is compiled


def test_repr_names_the_symbol(recorder):
    kernel = fresh(scale, repr=lambda context: f"scale_{context.constants['BLOCK']}_{context.signature['x'][1:]}")
    compiled = kernel[(1,)](np.zeros(8, np.float32), 8, BLOCK=32)
    assert compiled.name == "scale_32_fp32"
    assert "kernel @scale_32_fp32(" in compiled.asm["tileir"]


def test_pre_run_hooks_get_the_arguments(recorder):
    kernel = fresh(scale)
    seen = []
    kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append((args, kwargs)))
    x = np.zeros(8, np.float32)
    kernel[(1,)](x, 8, BLOCK=4, num_warps=2)
    assert seen == [((x, 8), {"BLOCK": 4, "num_warps": 2})]


@pytest.fixture
def clean_hooks():
    yield hooks
    hooks.reset()


def test_launch_hooks(recorder, clean_hooks):
    events = []
    kernel = fresh(scale, launch_metadata=lambda grid, metadata, arguments: {"flops": grid[0] * arguments["n"] * metadata.num_warps})
    x = np.zeros(8, np.float32)
    kernel[(2,)](x, 8)
    enter = lambda metadata: events.append(("enter", metadata.get()))  # noqa: E731
    leave = lambda metadata: events.append(("exit", metadata.get()["name"]))  # noqa: E731
    hooks.launch_enter.add(enter)
    hooks.launch_exit.add(leave)
    kernel[(2,)](x, 8)
    kernel[(0,)](x, 8)
    hooks.launch_enter.remove(enter)
    hooks.launch_exit.remove(leave)
    kernel[(2,)](x, 8)
    assert [event[0] for event in events] == ["enter", "exit"]
    assert events[0][1]["flops"] == 2 * 8 * 4
    assert (events[0][1]["name"], events[0][1]["grid"]) == ("scale", (2, 1, 1))
    assert len(recorder.launches) == 3


def test_compilation_hooks(recorder, clean_hooks):
    kernel = fresh(scale)
    x = np.zeros(8, np.float32)
    before, after, listened, loads = [], [], [], []
    hooks.jit_cache = lambda **facts: before.append(facts) and None
    hooks.jit_post_compile = lambda **facts: after.append(facts)
    hooks.compilation_listener = lambda **facts: listened.append(facts)
    hooks.kernel_load_start.add(lambda *facts: loads.append("start"))
    hooks.kernel_load_end.add(lambda *facts: loads.append(facts[2]))
    for _ in range(2):
        kernel[(1,)](x, 8)
    kernel.warmup(x, 8, BLOCK=64, grid=(1,))
    assert [facts["is_manual_warmup"] for facts in before] == [False, True]
    assert len(after) == len(listened) == 2
    assert before[0]["fn"].name == "scale"
    assert before[0]["fn"].jit_function is kernel
    assert before[0]["repr"] == "scale(x: *fp32, n: i32, factor: fp32, BLOCK: constexpr)"
    assert before[0]["already_compiled"] is False
    assert [facts["cache_hit"] for facts in listened] == [False, False]
    assert listened[0]["times"]["frontend"] > 0
    assert loads == ["start", "scale"]
    unloaded = []
    gc.collect()  # what earlier tests left
    hooks.kernel_unload.add(lambda *facts: unloaded.append(facts[2]))
    kernel._reset_launching()
    gc.collect()
    assert unloaded == ["scale"]  # the other one was never loaded
    hooks.jit_cache = lambda **facts: True
    assert kernel[(1,)](x, 8, BLOCK=32) is None
    assert len(kernels(kernel)) == 0


# ---- globals and source


SIZE = tl.constexpr(4)


@tw.jit
def reads_global(x):
    tl.store(x + tl.arange(0, SIZE), 1)


def test_a_global_that_changed_is_refused(recorder, monkeypatch):
    x = np.zeros(8, np.int32)
    kernel = fresh(reads_global)
    kernel[(1,)](x)
    kernel[(1,)](x)
    monkeypatch.setitem(globals(), "SIZE", tl.constexpr(8))
    with pytest.raises(RuntimeError, match="Global variable SIZE has changed since we compiled this kernel"):
        kernel[(1,)](x)
    with pytest.raises(RuntimeError, match="Global variable SIZE has changed"):
        kernel[(1,)](np.zeros(8, np.int64))
    monkeypatch.setitem(globals(), "SIZE", tl.constexpr(4))
    kernel[(1,)](x)
    monkeypatch.delitem(globals(), "SIZE")
    with pytest.raises(RuntimeError, match="Global variable SIZE has changed"):
        kernel[(1,)](x)


def test_changed_source_compiles_anew(recorder):
    kernel = fresh(one_int)
    x = np.zeros(1, np.int32)
    first = kernel[(1,)](x, 5)
    kernel._unsafe_update_src(kernel.src.replace("tl.store(x, i)", "tl.store(x, i + 1)"))
    second = kernel[(1,)](x, 5)
    assert first is not second
    assert first.hash != second.hash


def test_kernels_copy_and_pickle_by_name(recorder):
    assert pickle.loads(pickle.dumps(scale)) is scale
    assert copy.deepcopy(scale) is scale
    assert copy.deepcopy({"kernel": scale})["kernel"] is scale


def test_changing_the_backends_makes_new_plans(install_recorder):
    low = install_recorder(name="low", priority=1500)
    kernel = fresh(scale)
    x = np.zeros(8, np.float32)
    kernel[(1,)](x, 8)
    high = install_recorder(name="high", priority=1600)
    kernel[(1,)](x, 8)
    assert (len(low.launches), len(high.launches)) == (1, 1)


def test_threads_compile_a_kernel_once(recorder):
    import threading
    import time

    recorder.on_lower = lambda *_: time.sleep(0.05)
    kernel = fresh(scale)
    x = np.zeros(8, np.float32)
    threads = [threading.Thread(target=lambda: kernel[(1,)](x, 8)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(recorder.lowered) == 1
    assert len(recorder.launches) == 4


def test_jit_refuses_what_is_no_function():
    with pytest.raises(TypeError, match="Python function"):
        tw.jit(3)
    assert tw.jit(scale) is not scale
    assert tw.jit(scale).fn is scale.fn
    assert tw.jit(debug=True)(scale.fn).debug is True


@pytest.mark.parametrize("how", ["-c", "exec"])
def test_kernels_without_a_file_are_refused_with_the_remedy(how):
    source = "import tilewright as tw\n@tw.jit\ndef k(x):\n    pass\n"
    if how == "exec":
        with pytest.raises(ValueError, match="@jit functions should be defined in a Python file"):
            exec(source, {"__name__": "somewhere"})
        return
    result = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert "@jit functions should be defined in a Python file" in result.stderr.splitlines()[-1]


def test_kernels_in_the_cache_of_source_lines_work(recorder):
    """What IPython, Jupyter and the REPL of Python 3.13 do with what is typed in."""
    import linecache

    source = textwrap.dedent("""
        @tw.jit
        def typed(x, n):
            tl.store(x, n)
    """)
    name = "<ipython-input-3-abc>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace = {"tw": tw, "tl": tl, "__name__": "__main__"}
    exec(compile(source, name, "exec"), namespace)
    compiled = namespace["typed"][(1,)](np.zeros(1, np.int32), 5)
    assert "store" in compiled.asm["tileir"]
