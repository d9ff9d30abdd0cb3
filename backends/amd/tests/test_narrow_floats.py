"""Conversions to fp8 by the machine's instruction: the nearest number, ties to even, saturating to the maximum."""

from __future__ import annotations

import amd_kernels as kernels
import ml_dtypes
import numpy as np
import pytest
from amd_emulated import launched
from amd_support import compiled

from tilewright.ir.types import F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, FloatType
from tilewright.llvm.registers import encode_float
from tilewright_conformance.formats import saturated

FNUZ, OCP = (("fp8e4b8", F8E4M3FNUZ), ("fp8e5b16", F8E5M2FNUZ)), (("fp8e4nv", F8E4M3FN), ("fp8e5", F8E5M2))
FORMATS = [(arch, *kind) for arch, kinds in (("gfx942", FNUZ), ("gfx950", OCP), ("gfx1201", OCP)) for kind in kinds]
SOURCES = {"fp32": np.float32, "fp16": np.float16, "bf16": ml_dtypes.bfloat16}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(("arch", "name", "format_"), FORMATS)
def test_conversions(arch: str, name: str, format_: FloatType, source: str) -> None:
    rng = np.random.default_rng(0)
    of_all_sizes = rng.standard_normal(300) * np.exp2(rng.integers(-20, 20, 300))
    # every number of 11 bits about the smallest and the greatest: all middles between neighbours are among them
    dense = np.concatenate([np.arange(0, 512) * 2.0**scale for scale in (-22, -18, -13, 0, 8)])
    edges = [np.nan, np.inf, -np.inf, 0.0, -0.0]
    with np.errstate(over="ignore"):
        values = np.resize(np.concatenate([edges, of_all_sizes, dense, -dense]), 8192).astype(SOURCES[source])
    code = compiled(kernels.converted, f"x=*{source}:16, out=*{name}:16", arch, {"N": 8192})
    assert f"v_cvt_pk_{'fp8' if format_.mantissa == 3 else 'bf8'}_f32" in str(code.stages["amdgcn"])
    found = np.zeros(8192, np.uint8)
    launched(code, [values.view(np.uint16) if source == "bf16" else values, found])
    expected = [encode_float(saturated(float(value), format_), format_) for value in values]
    np.testing.assert_array_equal(found, np.array(expected, np.uint8))
