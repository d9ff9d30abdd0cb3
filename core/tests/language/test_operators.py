"""Operators and conversions: the IR they become."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.language.definitions.callable import device_function as jit


def test_text_of_arithmetic(bench: Any) -> None:
    x, n = bench.value(tl.float16, [8], "x"), bench.value(tl.int32, (), "n")
    total = bench.semantic.binary("add", x, 2.0)
    bench.semantic.binary("truediv", total, n)
    assert re.sub(r"%\d+", "%", bench.text).splitlines()[:3] == [
        "% = constant 2.0 : f16",
        "% = splat % : tile<8xf16>",
        "% = add %x, % : tile<8xf16>",
    ]
    assert bench.names == ["constant", "splat", "add", "cast", "cast", "splat", "div"]
    assert str(bench.last.result.type) == "tile<8xf32>"
    bench.verify()


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("add", "add"),
        ("sub", "sub"),
        ("mul", "mul"),
        ("floordiv", "div"),
        ("mod", "rem"),
        ("and", "and"),
        ("or", "or"),
        ("xor", "xor"),
        ("lshift", "shl"),
    ],
)
@pytest.mark.parametrize("dtype", [tl.int8, tl.int32, tl.uint64])
def test_integer_operators(bench: Any, op: str, name: str, dtype: Any) -> None:
    x, y = bench.value(dtype, [4]), bench.value(dtype, [4])
    assert bench.semantic.binary(op, x, y).type is tl.block_type(dtype, [4])
    assert bench.names == [name]


@pytest.mark.parametrize(
    ("op", "name"), [("add", "xor"), ("sub", "xor"), ("mul", "and"), ("and", "and"), ("or", "or")]
)
def test_booleans_are_computed_modulo_two(bench: Any, op: str, name: str) -> None:
    x, y = bench.value(tl.int1, [4]), bench.value(tl.int1, [4])
    assert bench.semantic.binary(op, x, y).dtype is tl.int1
    assert bench.names == [name]


@pytest.mark.parametrize("op", ["floordiv", "and", "or", "xor", "lshift", "rshift"])
def test_operators_of_integers_refuse_floats(bench: Any, op: str) -> None:
    message = (
        "unexpected type fp32" if op == "floordiv" else "invalid operands of type fp32 and int8"
    )
    with pytest.raises(TypeError, match=message):
        bench.semantic.binary(op, bench.value(tl.float32), bench.value(tl.int8))


@pytest.mark.parametrize("op", ["truediv", "floordiv", "mod"])
def test_division_of_mixed_signedness_is_refused(bench: Any, op: str) -> None:
    with pytest.raises(TypeError, match="int32 and uint32 because they have different signedness"):
        bench.semantic.binary(op, bench.value(tl.int32), bench.value(tl.uint32))


def test_division_of_integers_is_fp32(bench: Any) -> None:
    assert (
        bench.semantic.binary("truediv", bench.value(tl.int64), bench.value(tl.int64)).dtype
        is tl.float32
    )
    assert bench.names == ["cast", "cast", "div"]


@pytest.mark.parametrize(
    ("left", "right", "arithmetic"),
    [
        ("int32", "uint32", True),
        ("uint32", "int32", False),
        ("int8", "int8", True),
        ("uint8", "uint8", False),
        ("int32", "uint64", True),
    ],
)
def test_right_shift_follows_the_left_operand(
    bench: Any, left: str, right: str, arithmetic: bool
) -> None:
    x, y = bench.value(tl.dtype(left)), bench.value(tl.dtype(right))
    result = bench.semantic.binary("rshift", x, y)
    shift = next(operation for operation in bench.function.body if operation.name == "shr")
    assert shift.result.type.signed is arithmetic
    assert (
        result.dtype.name
        == {
            "int32uint32": "uint32",
            "uint32int32": "uint32",
            "int8int8": "int8",
            "uint8uint8": "uint8",
            "int32uint64": "uint64",
        }[left + right]
    )
    bench.verify()


def test_reflected_right_shift_follows_the_tensor(bench: Any) -> None:
    bench.semantic.binary("rshift", 8, bench.value(tl.uint8))
    assert bench.last.result.type.signed is False


def test_wide_shifts_warn(bench: Any) -> None:
    with pytest.warns(UserWarning, match="shift by 32 of a value of 32 bits"):
        bench.semantic.binary("lshift", bench.value(tl.int32), tl.constexpr(32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bench.semantic.binary("lshift", bench.value(tl.int32), tl.constexpr(31))


def test_unary(bench: Any) -> None:
    x = bench.value(tl.float32, [4])
    assert bench.semantic.unary("pos", x) is x
    bench.semantic.unary("neg", x)
    bench.semantic.unary("invert", bench.value(tl.uint8, [4]))
    assert bench.names == ["neg", "constant", "splat", "xor"]
    assert bench.last.operands[1].definition.operands[0].definition.attribute("value") == 255
    bench.semantic.unary("invert", bench.value(tl.int1))
    assert bench.last.operands[1].definition.attribute("value") is True
    with pytest.raises(ValueError, match=r"wrong type argument to unary invert \(fp32\)"):
        bench.semantic.unary("invert", x)
    with pytest.raises(ValueError, match="wrong type argument to unary minus"):
        bench.semantic.unary("neg", bench.value("*fp32"))


def test_pointer_arithmetic(bench: Any) -> None:
    p = bench.value("*kfp32")
    moved = bench.semantic.binary("add", bench.value(tl.int64, [8]), p)
    assert moved.type is tl.block_type(tl.pointer_type(tl.float32, const=True), [8])
    assert bench.names == ["splat", "addptr"]
    back = bench.semantic.binary("sub", p, bench.value(tl.uint32))
    assert back.type is p.type
    assert bench.names[2:] == ["cast", "neg", "addptr"]
    bench.verify()


def test_logical_operators(bench: Any) -> None:
    a, b = bench.value(tl.int1), bench.value(tl.int1)
    bench.semantic.logical("and", a, b)
    bench.semantic.logical("or", a, tl.constexpr(True))
    bench.semantic.unary("not", a)
    assert bench.names == ["and", "constant", "or", "constant", "xor"]
    assert bench.semantic.logical("or", tl.constexpr(3), tl.constexpr(0)).value == 3
    assert bench.semantic.logical("and", tl.constexpr(3), tl.constexpr(0)).value == 0
    with pytest.raises(
        ValueError, match="Cannot bitcast data-type of size 32 to data-type of size 1"
    ):
        bench.semantic.logical("and", a, bench.value(tl.int32))
    with pytest.warns(UserWarning, match="write `&`, and comparisons in brackets"):
        bench.semantic.logical("and", bench.value(tl.int1, [4]), a)


def test_what_is_no_operand(bench: Any) -> None:
    x = bench.value(tl.float32)
    with pytest.raises(TypeError, match="unsupported operand 'a' of type str"):
        bench.semantic.binary("add", x, tl.constexpr("a"))
    with pytest.raises(TypeError, match="unsupported operand None"):
        bench.semantic.compare("eq", x, None)
    with pytest.raises(TypeError, match="cannot convert None of type NoneType to tensor"):
        bench.semantic.to_tensor(None)


# -- shapes of operands ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        ([4, 1], [1, 8], (4, 8)),
        ([8], [4, 8], (4, 8)),
        ([], [2], (2,)),
        ([2], [], (2,)),
        ([1], [4, 2, 1], (4, 2, 1)),
        ([2, 1, 4], [8, 1], (2, 8, 4)),
    ],
)
def test_broadcasting(bench: Any, a: list[int], b: list[int], result: tuple[int, ...]) -> None:
    assert np.broadcast_shapes(tuple(a), tuple(b)) == result
    made = bench.semantic.binary("add", bench.value(tl.float32, a), bench.value(tl.float32, b))
    assert made.extents == result
    bench.verify()


def test_shapes_that_do_not_fit(bench: Any) -> None:
    x, y = bench.value(tl.float32, [4, 8]), bench.value(tl.float32, [4, 2])
    with pytest.raises(
        ValueError,
        match=(
            r"^Cannot make_shape_compatible: incompatible dimensions at index 1: 8 and 2\n  "
            r"help: extents along an axis"
        ),
    ):
        bench.semantic.binary("add", x, y)


def test_casts_come_before_broadcasts(bench: Any) -> None:
    bench.semantic.binary("mul", bench.value(tl.float32, [64, 64]), bench.value(tl.int32))
    assert bench.names == ["cast", "splat", "mul"]


def test_subscripts(bench: Any) -> None:
    x = bench.value(tl.float32, [8, 4])
    assert bench.semantic.subscript(
        x, (None, slice(None), tl.constexpr(None), slice(None))
    ).extents == (1, 8, 1, 4)
    assert bench.semantic.subscript(x, tl.tuple([slice(None), None])).extents == (8, 1, 4)
    assert bench.semantic.subscript(bench.value(tl.int32), None).extents == (1,)
    for index in (0, slice(0, 4), (slice(None), 1), "a"):
        with pytest.raises(ValueError, match="unsupported tensor index"):
            bench.semantic.subscript(x, index)


def test_attributes(bench: Any) -> None:
    x = bench.value(tl.float32, [8, 4])
    assert bench.semantic.attribute(x, "T").extents == (4, 8)
    assert bench.last.attribute("order") == (1, 0)
    assert bench.semantic.attribute(tl.constexpr(tl.float16), "is_fp16")() is True
    assert bench.semantic.attribute(tl.constexpr(3), "value") == 3
    bound = bench.semantic.attribute(x, "sum")
    assert (bound.fn, bound.receiver) == (tl.sum, x)
    with pytest.raises(ValueError, match="transpose of a 2-D tensor"):
        bench.semantic.attribute(bench.value(tl.float32, [8]), "T")


def test_conditions(bench: Any) -> None:
    assert bench.semantic.truth(tl.constexpr(3)).value == 3
    scalar = bench.value(tl.int1)
    assert bench.semantic.truth(scalar) is scalar
    assert bench.semantic.truth(bench.value(tl.int32)).type is tl.int1
    with pytest.warns(UserWarning, match="multidimensional Tensor"):
        assert bench.semantic.truth(bench.value(tl.int1, [1, 1])).type is tl.int1
    with pytest.raises(
        ValueError, match="Boolean value of Tensor with more than one value is ambiguous"
    ):
        bench.semantic.truth(bench.value(tl.int1, [2]))


# -- conversions -----------------------------------------------------------------------------------

NUMBERS = [*tl.dtype.SINT_TYPES, *tl.dtype.UINT_TYPES, *tl.dtype.FP_TYPES]


@pytest.mark.parametrize("source", NUMBERS)
def test_every_number_converts_to_every_other(bench: Any, source: str) -> None:
    x = bench.value(tl.dtype(source), [4])
    for target in NUMBERS:
        assert bench(tl.cast, x, tl.dtype(target)).type is tl.block_type(tl.dtype(target), [4])
    bench.verify()


def test_conversions(bench: Any) -> None:
    x = bench.value(tl.float32, [4])
    assert bench(tl.cast, x, tl.float32) is x
    bench(x.to, tl.float16)
    bench(x.to, tl.bfloat16, fp_downcast_rounding="rtz")
    assert bench.last.attribute("rounding") == "rtz"
    bench(x.to, tl.int32, bitcast=True)
    bench(tl.cast, bench.value(tl.int32), tl.uint32)
    assert bench.names == ["cast", "cast", "bitcast", "bitcast"]
    assert bench(tl.cast, 3, tl.float64).type is tl.float64
    with pytest.raises(
        ValueError,
        match=(
            r"^fp_downcast_rounding should be set only for truncating fp conversions. Source "
            r"scalar type is fp32 and destination"
        ),
    ):
        bench(x.to, tl.float64, fp_downcast_rounding="rtz")
    with pytest.raises(ValueError, match="fp_downcast_rounding should be set only"):
        bench(x.to, tl.int32, fp_downcast_rounding="rtne")
    narrow = bench.value(tl.bfloat16, [4])
    assert (
        bench(narrow.to, tl.bfloat16, fp_downcast_rounding="rtne") is narrow
        and bench(tl.cast, x, tl.float32, fp_downcast_rounding="rtz") is x
    )
    with pytest.raises(ValueError, match='must be "rtne" or "rtz"'):
        bench(x.to, tl.float16, fp_downcast_rounding="up")
    with pytest.raises(
        ValueError, match=r"^Cannot bitcast data-type of size 32 to data-type of size 16"
    ):
        bench(x.to, tl.float16, bitcast=True)
    with pytest.raises(TypeError, match="a tensor is cast to a dtype"):
        bench(x.to, "fp16")
    with pytest.raises(
        TypeError, match="the elements of a tensor are of a dtype, not of 'float32'"
    ):
        bench(tl.full, (4,), 0, "float32")


def test_pointers_convert_to_and_from_int64(bench: Any) -> None:
    p = bench.value("*fp32")
    address = bench(tl.cast, p, tl.int64)
    assert bench(tl.cast, address, p.type).type is p.type
    assert bench(p.to, tl.pointer_type(tl.int8)).type is tl.pointer_type(tl.int8)
    assert bench(p.to, tl.int1).type is tl.int1
    assert bench.names == ["bitcast", "bitcast", "bitcast", "bitcast", "cast"]
    assert bench(bench.value("*u1").to, tl.pointer_type(tl.int8)).type is tl.pointer_type(tl.int8)
    assert len(bench.names) == 5
    for target in (tl.int32, tl.float32, tl.float64):
        with pytest.raises(TypeError, match=f"^cannot cast pointer<fp32> to {target}$"):
            bench(p.to, target)
    bench.verify()


def test_types_the_target_lacks_are_refused(make_bench: Callable[..., Any]) -> None:
    from tilewright.plugins.manifest import Capabilities

    bench = make_bench(capabilities=Capabilities(frozenset({"i32", "i64", "i8", "i1", "f32"})))
    x = bench.value(tl.float32, [4])
    for target in (tl.float8e5, tl.float64):
        with pytest.raises(
            ValueError,
            match=rf"^type {target} not supported in this architecture \(backend small\)",
        ):
            bench(x.to, target)
    with pytest.raises(ValueError, match="type fp16 not supported"):
        bench(tl.load, bench.value("*fp16"))
    bench(x.to, tl.int32)


def test_a_compilation_may_have_fewer_fp8_kinds_than_the_target(
    make_bench: Callable[..., Any],
) -> None:
    bench = make_bench(supported_fp8_dtypes=("fp8e5", "fp8e4nv"))
    x = bench.value(tl.float16, [8])
    for target in (tl.float8e5, tl.float8e4nv, tl.bfloat16, tl.int8):
        assert bench(x.to, target).dtype is target
    for target in (tl.float8e4b8, tl.float8e5b16, tl.float8e4b15):
        with pytest.raises(
            ValueError,
            match=(
                rf"^type {target} not supported in this architecture; supported: .*fp8e4nv, fp8e5"
            ),
        ):
            bench(x.to, target)
        with pytest.raises(ValueError, match=f"^type {target} not supported in this architecture"):
            bench(bench.value(tl.uint8, [8]).to, target, bitcast=True)


# -- overflow checks -------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"debug": True, "sanitize_overflow": False}])
def test_no_overflow_checks_by_default(
    make_bench: Callable[..., Any], options: dict[str, Any]
) -> None:
    bench = make_bench(**options)
    bench.semantic.binary("add", bench.value(tl.int32), bench.value(tl.int32))
    assert bench.names == ["add"]


@jit
def overflow_kernel(x, y, out, OP: tl.constexpr, SANITIZE: tl.constexpr):
    a, b = tl.load(x), tl.load(y)
    if OP == "add":
        tl.store(out, tl.add(a, b, sanitize_overflow=SANITIZE))
    elif OP == "sub":
        tl.store(out, tl.sub(a, b, sanitize_overflow=SANITIZE))
    else:
        tl.store(out, tl.mul(a, b, sanitize_overflow=SANITIZE))


@pytest.mark.each_value
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
@pytest.mark.parametrize("op", ["add", "sub", "mul"])
def test_overflow_is_found_in_debug_mode(run: Callable[..., None], dtype: str, op: str) -> None:
    from tilewright.errors import KernelError
    from tilewright.language.semantic import Options

    limits = np.iinfo(dtype)
    numbers = sorted({limits.min, limits.max, 0, 1, 2, limits.max // 2, limits.min // 2 + 1})
    apply = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b}[op]
    debug = Options(debug=True)
    seen = set()
    for a in numbers:
        for b in numbers:
            exact = apply(int(a), int(b))
            fits = limits.min <= exact <= limits.max
            seen.add(fits)
            x, y, out = np.array([a], dtype), np.array([b], dtype), np.zeros(1, dtype)
            if fits:
                run(overflow_kernel, x, y, out, OP=op, SANITIZE=True, options=debug)
                assert int(out[0]) == exact
            else:
                with pytest.raises(
                    KernelError, match=f"{dtype} overflow detected for operation {op}"
                ):
                    run(overflow_kernel, x, y, out, OP=op, SANITIZE=True, options=debug)
                run(overflow_kernel, x, y, out, OP=op, SANITIZE=False, options=debug)
    assert seen == {True, False}


@jit
def compared(x, out, N: tl.constexpr):
    a = tl.load(x)
    tl.store(out, a < N)
    tl.store(out + 1, a == N)
    tl.store(out + 2, a > N)
    tl.store(out + 3, a > N)


@pytest.mark.parametrize(
    ("dtype", "values", "numbers"),
    [
        ("uint8", (0, 44, 255), (300, -1, 200, 2**16, 2**31)),
        ("int8", (-128, -56, 127), (300, -1, 200, 2**16)),
        ("uint16", (0, 65535), (300, -1, 2**16, 2**31)),
        ("int32", (-(2**31), 2**31 - 1), (300, -1, 2**40)),
    ],
)
def test_a_number_is_compared_as_it_is(
    run: Callable[..., None], dtype: str, values: tuple[int, ...], numbers: tuple[int, ...]
) -> None:
    """Not as what a tensor's type would make of it: 300 is no 44 of a byte."""
    for value, number in itertools.product(values, numbers):
        out = np.full(4, 9, np.int32)
        run(compared, np.array([value], dtype), out, N=number)
        assert out.tolist() == [value < number, value == number, value > number, number < value], (
            value,
            number,
        )
