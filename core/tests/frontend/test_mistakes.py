"""Errors for a newcomer's mistakes.

Each kernel has one mistake, on the marked line, and the proposed remedy works in its place.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import CompilationError


@tw.jit
def numpy_exp(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 16))
    tl.store(out_ptr + tl.arange(0, 16), np.exp(x))  # here


@tw.jit
def math_exp(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 16))
    tl.store(out_ptr + tl.arange(0, 16), math.exp(x))  # here


@tw.jit
def numpy_absolute(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 16))
    tl.store(out_ptr + tl.arange(0, 16), np.absolute(x))  # here


@tw.jit
def numpy_concatenate(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 8))
    tl.store(out_ptr + tl.arange(0, 16), np.concatenate((x, x)))  # here


@tw.jit
def if_tile(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 16))
    if x > 0:  # here
        tl.store(out_ptr + tl.arange(0, 16), x)


@tw.jit
def while_tile(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 16))
    while x > 0:  # here
        x -= 1
    tl.store(out_ptr + tl.arange(0, 16), x)


@tw.jit
def conditional_tile(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 16))
    tl.store(out_ptr + tl.arange(0, 16), x if x > 0 else -x)  # here


@tw.jit
def not_constant(x_ptr, out_ptr, n):
    x = tl.load(x_ptr + tl.arange(0, n))  # here
    tl.store(out_ptr + tl.arange(0, 16), x)


@tw.jit
def computed(x_ptr, out_ptr, n):
    half = n // 2
    x = tl.load(x_ptr + tl.arange(0, half))  # here
    tl.store(out_ptr + tl.arange(0, 16), x)


@tw.jit
def shape_not_constant(x_ptr, out_ptr, n):
    x = tl.full((n,), 0, x_ptr.dtype.element_ty)  # here
    tl.store(out_ptr + tl.arange(0, 16), x)


@tw.jit
def twelve(x_ptr, out_ptr):
    tl.store(out_ptr + tl.arange(0, 12), 1.0)  # here


@tw.jit
def four_to_ten(x_ptr, out_ptr):
    tl.store(out_ptr + tl.arange(4, 10), 1.0)  # here


@tw.jit
def append(x_ptr, out_ptr):
    items = []
    items.append(tl.load(x_ptr))  # here
    tl.store(out_ptr, items[0])


@tw.jit
def indexed_pointer(x_ptr, out_ptr):
    i = tl.arange(0, 16)
    x = x_ptr[i]  # here
    tl.store(out_ptr + i, x)


@tw.jit
def indexed_by_difference(x_ptr, out_ptr):
    i = tl.arange(0, 16)
    x = x_ptr[i % 4]  # here
    tl.store(out_ptr + i, x)


@tw.jit
def indexed_tile(x_ptr, out_ptr):
    i = tl.arange(0, 16)
    x = tl.load(x_ptr + i)
    y = x[15 - i]  # here
    tl.store(out_ptr + i, y)


@tw.jit
def element_of_tile(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 16))
    tl.store(out_ptr, x[3])  # here


@tw.jit
def assigned_pointer(x_ptr, out_ptr):
    out_ptr[2] = 1.0  # here


@tw.jit
def misspelt_function(x_ptr, out_ptr):
    x = tl.laod(x_ptr)  # here
    tl.store(out_ptr, x)


@tw.jit
def misspelt_name(x_ptr, out_ptr):
    values = tl.load(x_ptr)  # noqa: F841
    tl.store(out_ptr, vlaues)  # here # noqa: F821


@tw.jit
def misspelt_keyword(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 16), maks=tl.arange(0, 16) < 3)  # here
    tl.store(out_ptr, x)


@tw.jit
def scaled(x, FACTOR: tl.constexpr):
    return x * FACTOR


@tw.jit
def misspelt_parameter(x_ptr, out_ptr):
    tl.store(out_ptr, scaled(tl.load(x_ptr), FACTR=2))  # here


@tw.jit
def comprehension_of_a_number(x_ptr, out_ptr, n):
    parts = [tl.load(x_ptr + i) for i in range(n)]  # here
    tl.store(out_ptr, parts[0])


@tw.jit
def max_of_python(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 16))
    tl.store(out_ptr, max(x))  # here


@tw.jit
def value_before_the_pointer(x_ptr, out_ptr):
    i = tl.arange(0, 16)
    tl.store(tl.load(x_ptr + i), out_ptr + i)  # here


@tw.jit
def debugger_in_a_kernel(x_ptr, out_ptr):
    import pdb  # here

    pdb.set_trace()


@tw.jit
def dtype_as_text(x_ptr, out_ptr):
    x = tl.load(x_ptr).to("float16")  # here
    tl.store(out_ptr, x)


@tw.jit
def dtype_of_numpy(x_ptr, out_ptr):
    x = tl.load(x_ptr).to(np.int32)  # here
    tl.store(out_ptr, x)


@tw.jit
def no_dtype(x_ptr, out_ptr):
    x = tl.load(x_ptr).to("half")  # here
    tl.store(out_ptr, x)


@tw.jit
def sum_without_a_first_value(x_ptr, out_ptr):
    for i in range(4):
        total += tl.load(x_ptr + i)  # here # noqa: F821
    tl.store(out_ptr, total)


@tw.jit
def tile_at_one_pointer(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 16))
    tl.store(out_ptr, x)  # here


@tw.jit
def row_for_a_column(x_ptr, out_ptr):
    i = tl.arange(0, 4)
    x = tl.load(x_ptr + i[:, None] * 2 + tl.arange(0, 2)[None, :])
    tl.store(out_ptr + i, tl.sum(x - tl.max(x, axis=1), axis=1))  # here


@tw.jit
def sum_of_python(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 16))
    tl.store(out_ptr, sum(x))  # here


@tw.jit
def round_of_python(x_ptr, out_ptr):
    tl.store(out_ptr, round(tl.load(x_ptr)))  # here


@tw.jit
def in_the_device_library(x_ptr, out_ptr):
    tl.store(out_ptr, tl.tanh(tl.load(x_ptr)))  # here


@tw.jit
def root_of_integers(x_ptr, out_ptr):
    tl.store(out_ptr, tl.sqrt(tl.program_id(0)))  # here


@tw.jit
def range_without_a_start(x_ptr, out_ptr):
    i = tl.arange(16)  # here
    tl.store(out_ptr + i, i)


HALF = tl.constexpr(16 / 2)


@tw.jit
def range_of_a_float(x_ptr, out_ptr):
    i = tl.arange(0, HALF)  # here
    tl.store(out_ptr + i, i)


@tw.jit
def extent_left_open(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 16)).reshape(4, -1)  # here
    tl.store(out_ptr + tl.arange(0, 4), tl.sum(x, 1))


@tw.jit
def mask_of_integers(x_ptr, out_ptr):
    i = tl.arange(0, 16)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i & 1))  # here


@tw.jit
def mask_of_one(x_ptr, out_ptr):
    tl.store(out_ptr + tl.arange(0, 16), 1.0, mask=1)  # here


@tw.jit
def atomic_mask_of_integers(x_ptr, out_ptr):
    tl.atomic_add(out_ptr + tl.arange(0, 16), 1.0, mask=tl.arange(0, 16))  # here


@tw.jit
def other_alone(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr, other=0.0))  # here


@tw.jit
def dot_of_vectors(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 16))
    tl.store(out_ptr, tl.dot(x, x))  # here


@tw.jit
def other_extents(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 16)) + tl.load(x_ptr + tl.arange(0, 8))  # here
    tl.store(out_ptr + tl.arange(0, 16), x)


@tw.jit
def offset_of_floats(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr + tl.program_id(0) / 2))  # here


@tw.jit
def length_of_a_pointer(x_ptr, out_ptr):
    tl.store(out_ptr, len(x_ptr))  # here


@tw.jit
def shape_of_a_pointer(x_ptr, out_ptr):
    tl.store(out_ptr, x_ptr.shape[0])  # here


@tw.jit
def strides_of_a_pointer(x_ptr, out_ptr):
    tl.store(out_ptr, x_ptr.stride(0))  # here


@tw.jit
def astype(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr).astype(tl.int32))  # here


@tw.jit
def mean_of_a_tile(x_ptr, out_ptr):
    tl.store(out_ptr, tl.load(x_ptr + tl.arange(0, 16)).mean())  # here


@tw.jit
def called_dtype(x_ptr, out_ptr):
    tl.store(out_ptr, tl.float32(tl.load(x_ptr), tl.load(out_ptr)))  # here


@tw.jit
def where_without_the_other(x_ptr, out_ptr):
    x = tl.load(x_ptr + tl.arange(0, 16))
    tl.store(out_ptr + tl.arange(0, 16), tl.where(x > 0, x))  # here


@tw.jit
def list_for_a_tile(x_ptr, out_ptr):
    i = tl.arange(0, 4)
    tl.store(out_ptr + i, [1, 2, 3, 4])  # here


@tw.jit
def zeros_of_no_type(x_ptr, out_ptr):
    tl.store(out_ptr + tl.arange(0, 16), tl.zeros((16,)))  # here


MASK = (
    "where it may be any number, take the next power of two as a constant instead, and a mask "
    "for what is beyond it"
)
TRUTH = (
    "choose for each element with tl.where(condition, a, b), or reduce to one value: "
    "tl.max(condition.to(tl.int32)) is 1 where the condition holds for any "
    "element, tl.min(...) where it does for all"
)


@pytest.mark.parametrize(
    ("kernel", "remedy"),
    [
        (numpy_exp, "use tl.exp"),
        (math_exp, "use tl.exp"),
        (numpy_absolute, "use tl.abs"),
        (numpy_concatenate, "use tl.cat"),
        (if_tile, TRUTH),
        (while_tile, TRUTH),
        (conditional_tile, TRUTH),
        (
            not_constant,
            (
                "n is an argument known only when the kernel runs: annotate `n: tl.constexpr` "
                f"in the `def` of not_constant; {MASK}"
            ),
        ),
        (
            computed,
            (
                "half is computed when the kernel runs: compute with parameters that are "
                f"annotated tl.constexpr; {MASK}"
            ),
        ),
        (
            shape_not_constant,
            (
                "n is an argument known only when the kernel runs: annotate `n: tl.constexpr` "
                f"in the `def` of shape_not_constant; {MASK}"
            ),
        ),
        (
            twelve,
            (
                "take the next power of two, 16, and a mask: offsets = tl.arange(0, 16), and "
                "mask=offsets < 12 in tl.load and tl.store"
            ),
        ),
        (
            four_to_ten,
            (
                "take the next power of two, 8, and a mask: offsets = tl.arange(4, 12), and "
                "mask=offsets < 10 in tl.load and tl.store"
            ),
        ),
        (append, "lists are tuples here, and do not change: `items = items + (tl.load(x_ptr),)`"),
        (indexed_pointer, "read memory with tl.load: tl.load(x_ptr + i)"),
        (indexed_by_difference, "read memory with tl.load: tl.load(x_ptr + (i % 4))"),
        (indexed_tile, "pick elements of a tile with tl.gather: tl.gather(x, 15 - i, axis=0)"),
        (
            element_of_tile,
            (
                "sum up the tile without its other elements: tl.sum(tl.where(tl.arange(0, 16) == "
                "3, x, 0), axis=0)"
            ),
        ),
        (assigned_pointer, "write to memory with tl.store: tl.store(out_ptr + 2, value)"),
        (dtype_as_text, "write tl.float16"),
        (dtype_of_numpy, "write tl.int32"),
        (no_dtype, "write a type of the language, such as tl.float32"),
        (sum_without_a_first_value, "give total its first value before the loop"),
        (
            tile_at_one_pointer,
            "a tile takes a pointer for each of its elements: pointer + tl.arange(0, 16)",
        ),
        (
            row_for_a_column,
            "a tile of 4 elements is a row of a matrix: x[:, None] makes a column of it",
        ),
        (sum_of_python, "use tl.sum"),
        (debugger_in_a_kernel, "stop with breakpoint(), under the reference interpreter"),
        (max_of_python, "use tl.max(x, axis)"),
        (
            comprehension_of_a_number,
            (
                "loop over it with `for`, or take bounds that are known while compiling: "
                "parameters annotated tl.constexpr"
            ),
        ),
        (value_before_the_pointer, "the pointer comes first: tl.store(pointer, value)"),
        (round_of_python, "use tl.extra.libdevice.round"),
        (in_the_device_library, "use tl.extra.libdevice.tanh"),
        (root_of_integers, "convert it first: x.to(tl.float32)"),
        (range_without_a_start, "a range begins somewhere: tl.arange(0, 16)"),
        (
            where_without_the_other,
            "both values are given: tl.where(x > 0, x, 0) is 0 where the condition does not hold",
        ),
        (
            list_for_a_tile,
            (
                "a tile is made by tl.full, tl.arange or tl.load; tl.join and tl.cat put tiles "
                "together"
            ),
        ),
        (zeros_of_no_type, "say what its elements are: tl.zeros((16,), tl.float32)"),
        (range_of_a_float, "its bounds are integers, not 8.0"),
        (extent_left_open, "no extent is worked out from the others: write it, as x.numel // 4"),
        (mask_of_integers, "compare it: `mask != 0`"),
        (mask_of_one, "compare it: `mask != 0`"),
        (atomic_mask_of_integers, "compare it: `mask != 0`"),
        (
            other_alone,
            "it is what lanes that the mask leaves out read as: give a mask, or leave it out",
        ),
        (
            dot_of_vectors,
            (
                "the dot of two vectors is tl.sum(a * b); a vector is a matrix of one row as "
                "x[None, :], of one column as x[:, None]"
            ),
        ),
        (
            other_extents,
            "extents along an axis, counted from the last one, must be equal, or one of them 1",
        ),
        (
            offset_of_floats,
            (
                "a pointer moves by whole elements: divide integers with `//`, or convert with "
                "`.to(tl.int32)`"
            ),
        ),
        (
            length_of_a_pointer,
            "a pointer knows no sizes: pass them, and the strides, as arguments of the kernel",
        ),
        (
            shape_of_a_pointer,
            (
                "a scalar or pointer has the shape (): pass the sizes of an array as arguments "
                "of the kernel"
            ),
        ),
        (
            strides_of_a_pointer,
            "a pointer knows no sizes: pass them, and the strides, as arguments of the kernel",
        ),
        (astype, "convert with `.to(dtype)`"),
        (mean_of_a_tile, "divide a sum by a number: tl.sum(x, axis) / n"),
        (called_dtype, "convert with `.to(tl.float32)`"),
        (misspelt_function, "did you mean load?"),
        (misspelt_name, "did you mean values?"),
        (misspelt_keyword, "did you mean mask?"),
        (misspelt_parameter, "did you mean FACTOR?"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_remedy_of_a_mistake(kernel: Any, remedy: str) -> None:
    x, out = np.zeros(16, np.float32), np.zeros(16, np.float32)
    arguments = (x, out, 16) if "n" in kernel.arg_names else (x, out)
    with pytest.raises(CompilationError) as raised, tw.backend("reference"):
        kernel[(1,)](*arguments)
    lines = str(raised.value).splitlines()
    assert lines[-1] == f"  help: {remedy}"
    assert sum(line.startswith("  help: ") for line in lines) == 1
    source = kernel.src.splitlines()
    (place,) = [number for number, line in enumerate(source) if "# here" in line]
    assert raised.value.line == kernel.definition_line + place
    assert raised.value.file == __file__


def plain(x):
    return x


@tw.jit
def calls_a_plain_function(x_ptr):
    tl.store(x_ptr, plain(1.0))


def test_a_function_of_the_programs_own_is_to_be_decorated() -> None:
    with (
        pytest.raises(CompilationError, match=r"help: decorate it with @jit"),
        tw.backend("reference"),
    ):
        calls_a_plain_function[(1,)](np.zeros(4, np.float32))


@tw.jit
def by_remedies(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    items = ()
    items = items + (tl.exp(x),)  # noqa: RUF005  # as the remedy says
    picked = tl.gather(x, 15 - i, axis=0)
    third = tl.sum(tl.where(tl.arange(0, 16) == 3, x, 0), axis=0)
    condition = x > 14
    if tl.max(condition.to(tl.int32)):
        tl.store(out_ptr + i, items[0])
    if tl.min(condition.to(tl.int32)) == 0:
        tl.store(out_ptr + 16 + i, picked)
    offsets = tl.arange(0, 16)
    tl.store(out_ptr + 32 + offsets, third, mask=offsets < 12)


def test_what_the_remedies_say_works() -> None:
    x, out = np.arange(16, dtype=np.float32), np.zeros(48, np.float32)
    with tw.backend("reference"):
        by_remedies[(1,)](x, out, BLOCK=16)
    np.testing.assert_allclose(out[:16], np.exp(x), rtol=1e-5)
    assert out[16:32].tolist() == x[::-1].tolist()
    assert out[32:].tolist() == [3.0] * 12 + [0.0] * 4


@pytest.mark.parametrize("module", ["tl", "tl.math"])
@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("tanh", "use tl.extra.libdevice.tanh"),
        ("pow", "use tl.extra.libdevice.pow"),
        ("mean", "divide a sum by a number: tl.sum(x, axis) / n"),
        ("any", "some element is not zero: tl.max((x != 0).to(tl.int32), axis) != 0"),
        ("all", "no element is zero: tl.min((x != 0).to(tl.int32), axis) != 0"),
        (
            "prod",
            "reduce with a function of the language that multiplies: tl.reduce(x, axis, multiply)",
        ),
        (
            "argsort",
            (
                "sort keys that hold their positions in the low bits: tl.sort(key * N + "
                "tl.arange(0, N)) % N"
            ),
        ),
        ("ones", "use tl.full(shape, 1, dtype)"),
        ("stack", "use tl.join(a, b), which makes the last axis"),
        ("matmul", "use tl.dot"),
        (
            "roll",
            (
                "load from shifted offsets, or pick elements: tl.gather(x, (tl.arange(0, N) + "
                "shift) % N, axis=0)"
            ),
        ),
    ],
)
def test_the_remedy_of_a_function_that_the_language_says_otherwise(
    source: Any, module: str, name: str, remedy: str
) -> None:
    error = source(f"@jit\ndef kernel(x):\n    y = {module}.{name}(x)\n").error(x="fp32")
    assert error.message.endswith(f"has no attribute '{name}'\n  help: {remedy}")


def test_the_remedy_of_a_function_of_another_module_of_the_language(source: Any) -> None:
    assert (
        source("@jit\ndef kernel(x):\n    y = tl.math.sum(x)\n")
        .error(x="fp32")
        .message.endswith("help: use tl.sum")
    )
