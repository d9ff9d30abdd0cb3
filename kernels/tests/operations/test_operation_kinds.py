"""Kinds of parameters and results: lists, functions, element types, in-place and optional ones."""

import numpy as np
import pytest
from checks import (
    FRAMEWORKS,
    check_compiled,
    check_gradients,
    check_operation,
    check_operator,
    to_framework,
    to_numpy,
)

import tilewright as tw
import tilewright.language as tl
from tilewright_kernels.operations import (
    Array,
    Arrays,
    DType,
    Floats,
    Function,
    Ints,
    Launcher,
    Operation,
    strides,
)

MEMORY = [each for each in FRAMEWORKS if each != "jax"]


@tw.jit
def axpy_kernel(x_ptr, y_ptr, scale, x_stride, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at * x_stride, mask=at < n, other=0.0)
    tl.store(y_ptr + at, x * scale + tl.load(y_ptr + at, mask=at < n, other=0.0), mask=at < n)


def _launch_sum(run: Launcher, y, arrays: Arrays, scales: Floats, counts: Ints) -> None:
    total = run.zeros(y.shape, y.dtype)
    for x, scale, count in zip(arrays, scales, counts, strict=True):
        for _ in range(count):
            n = x.shape[0]
            run(axpy_kernel, (tw.cdiv(n, 32),), x, total, scale, strides(x)[0], n, BLOCK=32)
    n = y.shape[0]
    run(copy_kernel, (tw.cdiv(n, 32),), total, y, n, BLOCK=32)


@tw.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n, other=0.0), mask=at < n)


WEIGHTED_SUM = Operation(
    "test_weighted_sum",
    ("y",),
    lambda make, arrays, scales, counts: (make(arrays[0].shape, arrays[0].dtype),),
    _launch_sum,
)


@WEIGHTED_SUM.differentiate(saved=("arrays",))
def _sum_gradients(saved, dy):
    return {
        "arrays": [
            WEIGHTED_SUM([dy], [scale], [count])
            for _, scale, count in zip(saved.arrays, saved.scales, saved.counts, strict=True)
        ]
    }


def weighted_sum(arrays, scales, counts, *, out=None):
    return WEIGHTED_SUM(arrays, scales, counts, out=out)


def weighted_sum_reference(arrays, scales, counts):
    return sum(x * s * c for x, s, c in zip(arrays, scales, counts, strict=True))


SUM = {"arrays": [np.linspace(-1, 1, 40), np.linspace(0, 5, 40)]}
SUM_SETTINGS = {"scales": [0.5, 2.0], "counts": [1, 3]}


def test_lists_of_arrays_and_numbers():
    check_operation(weighted_sum, weighted_sum_reference, SUM, SUM_SETTINGS, frameworks=MEMORY)


def test_lists_of_tensors_have_gradients():
    pytest.importorskip("torch")
    check_gradients(weighted_sum, weighted_sum_reference, SUM, SUM_SETTINGS)
    check_compiled(weighted_sum, SUM, SUM_SETTINGS, wrt=("arrays",))
    arrays = [each.astype(np.float32) for each in SUM["arrays"]]
    check_operator(WEIGHTED_SUM, arrays, [0.5, 2.0], [1, 3])


# -- functions of kernels


@tw.jit
def apply_kernel(x_ptr, y_ptr, x_stride, n, function: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at * x_stride, mask=at < n, other=0.0)
    tl.store(y_ptr + at, function(x), mask=at < n)


@tw.jit
def square(x):
    return x * x


@tw.jit
def double(x):
    return x + x


def _apply_shapes(make, x, function):
    return (make(x.shape, x.dtype),)


def _launch_apply(run: Launcher, y, x: Array, function: Function) -> None:
    n = x.shape[0]
    run(apply_kernel, (tw.cdiv(n, 32),), x, y, strides(x)[0], n, function=function, BLOCK=32)


APPLY = Operation("test_apply", ("y",), _apply_shapes, _launch_apply)


@APPLY.differentiate(saved=("x",))
def _apply_gradients(saved, dy):
    return {"x": dy * (2 * saved.x if saved.function is square else 2)}


def test_functions_make_operations_of_their_own():
    given = {"x": np.linspace(-1, 1, 40)}
    for function, formula in ((square, lambda x: x * x), (double, lambda x: 2 * x)):
        check_operation(lambda x, out=None, f=function: APPLY(x, f, out=out), formula, given)
    assert APPLY.specialized(function=square) is APPLY.specialized(function=square)
    assert APPLY.specialized(function=square) is not APPLY.specialized(function=double)


def test_functions_of_a_user_are_compiled_by_torch():
    pytest.importorskip("torch")
    x = np.linspace(-1, 1, 40)
    check_compiled(lambda x: APPLY(APPLY(x, square), double), {"x": x}, wrt=("x",))
    check_gradients(lambda x: APPLY(x, square), lambda x: x * x, {"x": x})
    check_operator(APPLY, x.astype(np.float32), square)


# -- element types, and results that are not asked for


@tw.jit
def cast_kernel(x_ptr, y_ptr, sign_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, x, mask=at < n)
    if sign_ptr is not None:
        tl.store(sign_ptr + at, x < 0, mask=at < n)


def _cast_shapes(make, x, dtype, with_sign):
    return make(x.shape, dtype or x.dtype), make(x.shape, "int32") if with_sign else None


def _launch_cast(
    run: Launcher, y, sign, x: Array, dtype: DType | None = None, with_sign: bool = False
) -> None:
    n = x.shape[0]
    run(cast_kernel, (tw.cdiv(n, 32),), x, y, sign, n, BLOCK=32)


CAST = Operation("test_cast", ("y", "sign"), _cast_shapes, _launch_cast, optional=("sign",))


@pytest.mark.parametrize("framework", MEMORY)
def test_element_types_are_those_of_any_framework(framework):
    x = to_framework(np.linspace(-1, 1, 40, dtype=np.float32), framework)
    module = pytest.importorskip(framework)
    for dtype in ("float16", module.float16, np.dtype("float16")):
        y, sign = CAST(x, dtype)
        assert y.dtype == module.float16
        assert sign is None
    y, sign = CAST(x, with_sign=True)
    assert y.dtype == module.float32
    np.testing.assert_array_equal(to_numpy(sign), to_numpy(x) < 0)
    with pytest.raises(TypeError, match="an element type is a name"):
        CAST(x, 3.5)


def test_results_that_are_not_asked_for_are_compiled_by_torch():
    pytest.importorskip("torch")
    x = np.linspace(-1, 1, 40)
    check_compiled(lambda x: CAST(x, "float16")[0], {"x": x})
    check_compiled(lambda x: CAST(x, "float16", with_sign=True), {"x": x})
    check_operator(CAST, x.astype(np.float32), "float16", False)


# -- arrays that an operation changes


def _launch_scale(run: Launcher, x: Array, factor: float) -> None:
    n = x.shape[0]
    run(scale_kernel, (tw.cdiv(n, 32),), x, factor, n, updates=("x_ptr",), BLOCK=32)


@tw.jit
def scale_kernel(x_ptr, factor, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)


SCALE = Operation("test_scale_", (), lambda make, x, factor: (), _launch_scale, mutated=("x",))


@pytest.mark.parametrize("framework", MEMORY)
def test_an_operation_changes_its_arguments(framework):
    x = to_framework(np.arange(40, dtype=np.float32), framework)
    assert SCALE(x, 3.0) is None
    np.testing.assert_array_equal(to_numpy(x), np.arange(40) * 3.0)


def test_changes_are_visible_to_torch():
    torch = pytest.importorskip("torch")

    def changed(x):
        y = x.clone()
        SCALE(y, 3.0)
        return y + x

    check_compiled(changed, {"x": np.arange(40.0)})
    x = torch.arange(40.0)
    version = x._version
    SCALE(x, 2.0)
    assert x._version == version + 1
    parameter = torch.arange(40.0, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"changes its arguments.*torch\.no_grad"):
        SCALE(parameter, 2.0)
    with torch.no_grad():
        SCALE(parameter, 2.0)
    assert parameter[2] == 4
    with pytest.raises(TypeError, match="changes arrays has no gradients"):
        SCALE.differentiate(saved=())
