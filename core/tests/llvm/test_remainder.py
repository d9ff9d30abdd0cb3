"""The remainder of floats is exact: the function that is written for the GPU, compiled for the
host."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tilewright.ir.types import F32, F64, FloatType
from tilewright.llvm.codegen.compile import compile_to_object, host_target
from tilewright.llvm.codegen.link import load_object
from tilewright.llvm.emission.float_remainder import emit_remainder
from tilewright.llvm.emission.registers import register_type
from tilewright.llvm.emission.writer import ModuleWriter


@pytest.mark.parametrize(
    ("element", "dtype", "number"),
    [(F32, np.float32, ctypes.c_float), (F64, np.float64, ctypes.c_double)],
)
def test_remainders_are_exact(element: FloatType, dtype: type, number: type) -> None:
    type_ = register_type(element)
    module = ModuleWriter()
    w = module.function("run", [(type_, "a"), (type_, "b")], type_)
    w.ret(f"{type_} {emit_remainder(w, '%a', '%b', element)}")
    triple, cpu, features = host_target()
    loaded = load_object(
        compile_to_object(module.text(), triple=triple, cpu=cpu, features=features), ("run",)
    )
    run = ctypes.CFUNCTYPE(number, number, number)(loaded.address("run"))
    rng = np.random.default_rng(4)
    bits = rng.integers(0, 1 << (element.bits - 1), (2, 20000), dtype=np.uint64).astype(
        f"u{element.bits // 8}"
    ) << 1 | rng.integers(0, 2, (2, 20000)).astype(f"u{element.bits // 8}")
    wild = bits.view(dtype)
    near = (rng.standard_normal((2, 5000)) * 100).astype(dtype)
    tiny = np.finfo(dtype).smallest_subnormal
    special = np.array(
        [
            0.0,
            -0.0,
            1.0,
            -1.5,
            tiny,
            3 * tiny,
            np.finfo(dtype).tiny,
            np.finfo(dtype).max,
            np.inf,
            -np.inf,
            np.nan,
        ],
        dtype,
    )
    a = np.concatenate([wild[0], near[0], np.repeat(special, len(special))])
    b = np.concatenate([wild[1], near[1], np.tile(special, len(special))])
    with np.errstate(all="ignore"):
        expected = np.fmod(a, b)
    found = np.array([run(x, y) for x, y in zip(a, b, strict=True)], dtype)
    same = (found == expected) & (np.signbit(found) == np.signbit(expected)) | (
        np.isnan(found) & np.isnan(expected)
    )
    wrong = np.flatnonzero(~same)
    assert not len(wrong), (a[wrong[0]], b[wrong[0]], found[wrong[0]], expected[wrong[0]])
