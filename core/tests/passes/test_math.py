"""The pass that expands math operations: what remains, and that it means the same, on the
reference."""

import numpy as np
import pytest

from tilewright.ir import Builder, Function, Module, verify
from tilewright.ir.types import BF16, F8E4M3FN, F16, F32, F64, I32, PointerType, TileType
from tilewright.passes.expand_math import expand_math
from tilewright.passes.math.math_library import MATH
from tilewright.reference.interpreter import run

NAMES = ("exp", "exp2", "log", "log2", "sin", "cos", "tanh", "erf", "rsqrt")


def elementwise_kernel(source, result, compute, shape=(4, 32)):
    """y[i] = compute(x[i]) over one tile, and over the scalar x[0] into y[size]."""
    module = Module()
    function = module.add(
        Function("kernel", [PointerType(source), PointerType(result)], (), ["x", "y"])
    )
    b = Builder.at_end(function.body)
    x, y = function.arguments
    size = int(np.prod(shape))
    index = b.reshape(b.arange(start=0, end=size), result=TileType(shape, I32))
    pointers = [b.addptr(b.splat(p, result=TileType(shape, p.type)), index) for p in (x, y)]
    b.store(pointers[1], compute(b, b.load(pointers[0])))
    b.store(b.addptr(y, b.constant(value=size, result=I32)), compute(b, b.load(x)))
    b.return_([])
    verify(module)
    return module, size


def both(module, x, result_dtype, size, **options):
    """The kernel's results before and after expansion."""
    found = []
    for expand in (False, True):
        if expand:
            assert expand_math(module, **options)
            verify(module)
        y = np.zeros(size + 1, result_dtype)
        run(module, [x, y], (1, 1, 1))
        found.append(y)
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("element, dtype", [(F32, np.float32), (F64, np.float64)])
def test_math_operations_are_expanded_over_tiles_and_scalars(name, element, dtype):
    module, size = elementwise_kernel(element, element, lambda b, v: getattr(b, name)(v))
    x = np.random.default_rng(3).uniform(0.05, 9.0, size).astype(dtype)
    before, after = both(module, x, dtype, size)
    assert name not in {operation.name for operation in module.walk()}
    np.testing.assert_array_max_ulp(before, after, MATH[name, element].strict_ulp + 2)
    assert not expand_math(module)


def test_conversions_are_expanded():
    for source, result, source_dtype, result_dtype in [
        (F32, BF16, np.float32, np.uint16),
        (BF16, F8E4M3FN, np.uint16, np.uint8),
        (F64, F16, np.float64, np.float16),
    ]:
        module, size = elementwise_kernel(
            source,
            result,
            lambda b, v, result=result: b.cast(
                v, result=result if v.type.is_scalar else TileType((4, 32), result)
            ),
        )
        x = np.random.default_rng(4).uniform(-500, 500, size).astype(np.float64)
        x = (
            x.astype(np.float32).view(np.uint32).__rshift__(16).astype(np.uint16)
            if source is BF16
            else x.astype(source_dtype)
        )
        before, after = both(module, x, result_dtype, size)
        np.testing.assert_array_equal(before, after)


def test_kept_operations_stay():
    module, _ = elementwise_kernel(F32, F32, lambda b, v: b.exp2(b.tanh(v)))
    assert expand_math(module, keep=["exp2"])
    names = {operation.name for operation in module.walk()}
    assert "exp2" in names and "tanh" not in names
    assert not expand_math(module, keep=["exp2"])


def test_ldexp_is_expanded_where_the_target_has_none():
    def compute(b, v):
        exponent = b.cast(v, result=I32 if v.type.is_scalar else TileType((4, 32), I32))
        return b.ldexp(b.exp(v), exponent)

    module, size = elementwise_kernel(F32, F32, compute)
    x = np.random.default_rng(5).uniform(-9, 9, size).astype(np.float32)
    before, after = both(module, x, np.float32, size, native_ldexp=False)
    assert not {"ldexp", "exp"} & {operation.name for operation in module.walk()}
    np.testing.assert_array_max_ulp(before, after, 3)


def test_regions_are_reached():
    module = Module()
    function = module.add(Function("kernel", [PointerType(F32)], (), ["x"]))
    b = Builder.at_end(function.body)
    (x,) = function.arguments
    zero, four, one = (b.constant(value=v, result=I32) for v in (0, 4, 1))
    from tilewright.ir import Region

    body = Region([I32], ["i"])
    with b.at_region(body):
        p = b.addptr(x, body.arguments[0])
        b.store(p, b.sin(b.load(p)))
        b.yield_([])
    b.region_op("for", zero, four, one, [], regions=[body])
    b.return_([])
    verify(module)
    assert expand_math(module)
    verify(module)
    data = np.asarray([0.5, 1e10, -3.0, 2.0], np.float32)
    expected = np.sin(data.astype(np.float64)).astype(np.float32)
    run(module, [data], (1, 1, 1))
    np.testing.assert_array_max_ulp(data, expected, 2)
