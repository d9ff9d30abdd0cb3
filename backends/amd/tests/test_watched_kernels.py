"""Instrumented kernels on emulated waves record what the reference interpreter records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from amd_emulated import run_module
from amd_support import example

from tilewright.passes import pipeline
from tilewright.passes.clone import clone_module
from tilewright.passes.watch import record
from tilewright.passes.watch.instrument import instrument
from tilewright.plugins.registry import registry
from tilewright.reference.interpreter import run
from tilewright.runtime.compiler.compile import build_module
from tilewright.runtime.devices.device_registry import named_target
from tilewright.tools.inspect import specialize

SOFTMAX = "x_ptr=*fp32:16, out_ptr=*fp32:16, x_stride=i32, out_stride=i32, n_columns=i32"


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_records_of_a_softmax(arch: str) -> None:
    backend = registry().get("amd")
    target = named_target(backend, arch)
    specialization = specialize(
        example("softmax").softmax_kernel, SOFTMAX, {"BLOCK": 256}, backend, {}
    )
    module = build_module(specialization, backend, target)
    watched = instrument(module)
    x = np.random.default_rng(1).standard_normal((3, 200)).astype(np.float32)
    x[1, 7], x[2, 70] = np.inf, np.nan

    def launched(interpret: bool) -> tuple[np.ndarray[Any, Any], ...]:
        arrays = np.zeros_like(x), record.empty(len(watched)), np.zeros(len(watched), np.float32)
        arguments = [x.copy(), arrays[0], 200, 200, 200, *arrays[1:]]
        copy = clone_module(module)
        if interpret:
            with np.errstate(all="ignore"):
                run(copy, arguments, (3, 1, 1))
        else:
            pipeline.run(copy, pipeline.STANDARD)
            run_module(copy, arguments, (3, 1, 1), arch)
        return arrays

    expected, found = launched(True), launched(False)
    np.testing.assert_allclose(found[0], expected[0], rtol=3e-6)
    exact = [
        field for field in record.Field if field not in (record.Field.MINIMUM, record.Field.MAXIMUM)
    ]
    np.testing.assert_array_equal(found[1][:, exact], expected[1][:, exact])
    for slot, value in enumerate(watched):
        for field in (record.Field.MINIMUM, record.Field.MAXIMUM):
            ours, theirs = (
                record.number_of(int(each[1][slot, field]), value.type)
                for each in (found, expected)
            )
            assert ours == pytest.approx(theirs, rel=3e-6), value
    np.testing.assert_allclose(found[2], expected[2], rtol=1e-4, atol=1e-4)
    assert found[1][:, record.Field.NAN_ORIGINS].sum() > 0
