"""Builtins written outside the language: what they are given, and what of the language they may
reach into."""

from __future__ import annotations

from typing import Any

import numpy as np


def test_a_builtin_may_run_functions_of_the_language(source: Any) -> None:
    made = source(
        """
        from tilewright.language.core import builtin

        @builtin
        def twice(fn, x, offset=1, _semantic=None, _generator=None):
            once = _generator.call(fn, [x], {})
            return _semantic.add(_generator.call_JitFunction(fn, [once], kwargs={}), offset)

        @jit
        def tripled(x):
            return 3 * x

        @jit
        def kernel(out, x):
            tl.store(out, twice(tripled, x))

        @jit
        def wrong(out, x):
            tl.store(out, twice(tripled, x, 1, None))
        """
    )
    assert made.result(5, x="i32") == 46
    assert (
        "twice() takes 3 positional arguments at most, not 4"
        in made.error("wrong", out="*i32", x="i32").message
    )


def test_functions_of_the_language_that_describe_are_called_while_compiling(source: Any) -> None:
    made = source(
        """
        @jit
        def kernel(out, x):
            WIDE: tl.constexpr = tl.core.get_int_dtype(x.dtype.primitive_bitwidth * 2, signed=True)
            tl.static_assert(WIDE == tl.int64 and tl.core.get_int_dtype(bitwidth=16, signed=False) == tl.uint16)
            tl.static_assert(tl.str_to_ty("*fp32", None).element_ty == tl.float32)
            tl.store(out, (x.to(WIDE) * 3).to(tl.int32))
        """
    )
    assert made.result(7, x="i32") == 21


def test_the_semantics_know_the_builtins_and_operators_that_outside_code_calls(source: Any) -> None:
    made = source(
        """
        from tilewright.language.core import binary_op_type_legalization, builtin
        from tilewright.language.semantic import TritonSemantic

        @builtin
        def clipped_sum(pointer, n, low, _semantic=None):
            assert isinstance(_semantic, TritonSemantic)
            lanes = _semantic.arange(0, 8)
            values = _semantic.load(_semantic.add(pointer, lanes, False), _semantic.less_than(lanes, n), 0)
            values, low = binary_op_type_legalization(values, low, _semantic)
            values = _semantic.where(_semantic.and_(_semantic.greater_equal(values, low), _semantic.not_equal(values, 5)), values, _semantic.minus(low))
            return _semantic.maximum(values, 0)

        @jit
        def kernel(out, x, n):
            tl.store(out, tl.sum(clipped_sum(x, n, 2)))

        @builtin
        def missing(x, _semantic=None):
            return _semantic.nothing(x)

        @jit
        def wrong(out, x, n):
            missing(x)
        """
    )
    x = np.array([1, 5, 7, 2, 9, 4, 3, 8], np.int32)
    assert made.result(x, 6, x="*i32", n="i32") == 7 + 2 + 9 + 4
    assert (
        "Semantic has no attribute 'nothing'"
        in made.error("wrong", out="*i32", x="*i32", n="i32").message
    )
