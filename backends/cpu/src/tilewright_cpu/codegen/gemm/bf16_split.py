"""Floats as sums of bf16 parts, for matrix units that multiply bf16 (:class:`.plan.Split`).

A part is the leading eight bits of what the parts before it leave, the last one rounded. Two parts
hold any f16 (11 bits) and the first 16 bits of an f32, three parts all 24. Each product of two
parts is exact in f32. Omitted are the products of the smallest parts, and parts below 2**-126,
which the unit takes for 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.llvm.emission.writer import FunctionWriter, float_constant, splat_constant, vector
from tilewright_cpu.codegen.gemm.plan import Split

#: The leading bits of a float, and half of the last of them.
_LEADING, _HALF = 0xFFFF0000, 0x8000


def split_float(w: FunctionWriter, value: str, lanes: int, split: Split) -> tuple[list[str], str]:
    """(the parts of ``value``, i1s: which are not infinite).

    ``value`` are floats of LLVM type ``float``; the parts are 16-bit integers that hold bf16
    numbers.
    """
    ints, floats, words, bools = (vector(type_, lanes) for type_ in ("i32", "float", "i16", "i1"))

    def bits_of(value: str) -> str:
        return w.emit(f"bitcast {floats} {value} to {ints}")

    def leading(bits: str) -> str:
        return w.emit(
            f"trunc {ints} "
            f"{w.emit(f'lshr {ints} {bits}, ' + splat_constant('i32', '16', lanes))} to {words}"
        )

    bits = bits_of(value)
    magnitude = w.call(
        f"llvm.fabs.{'f32' if not lanes else f'v{lanes}f32'}", floats, [(floats, value)]
    )
    finite = w.emit(
        f"fcmp une {floats} {magnitude}, "
        f"{splat_constant('float', float_constant('float', float('inf')), lanes)}"
    )
    parts = [leading(bits)]
    for number in range(1, split.parts):
        part = w.emit(
            f"and {ints} {bits}, {splat_constant('i32', str(_LEADING - (1 << 32)), lanes)}"
        )
        value = w.emit(f"fsub {floats} {value}, {w.emit(f'bitcast {ints} {part} to {floats}')}")
        # infinity leaves NaN
        value = w.emit(
            f"select {bools} {finite}, {floats} {value}, {floats} "
            f"{splat_constant('float', '0.0', lanes)}"
        )
        bits = bits_of(value)
        last = number == split.parts - 1
        parts.append(
            leading(
                w.emit(f"add {ints} {bits}, {splat_constant('i32', str(_HALF), lanes)}")
                if last
                else bits
            )
        )
    return parts, finite


def split_array(values: Any, split: Split) -> list[Any]:
    """The parts of an array of ``float32``, as ``int16``: what :func:`split_float` does."""
    values = np.ascontiguousarray(values, np.float32)
    finite = ~np.isinf(values)
    parts = []
    for _ in range(split.parts):
        bits = values.view(np.uint32)
        parts.append(bits & np.uint32(_LEADING))
        with np.errstate(invalid="ignore"):
            values = np.where(finite, values - parts[-1].view(np.float32), np.float32(0))
    parts[-1] = bits + np.uint32(_HALF)
    return [(part >> np.uint32(16)).astype(np.uint16).view(np.int16) for part in parts]
