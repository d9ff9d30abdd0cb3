"""The example kernels and the programs written for Triton on emulated devices, through hip-python:
those of a device that shares the host's memory, so that arrays and tensors of the host are the
kernels' own. A device of wide waves runs half of them here; all run on each device with

    python -m pytest -n 0 backends/amd/tests/test_emulated_examples.py --full
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DEVICES = ("gfx942", "gfx1100:lockstep", "gfx950:lockstep", "gfx1201")
#: Tests of ``examples/tests``, one of each program: what they start takes seconds.
PROGRAMS = (
    "test_kernels.py::test_vector_add[torch-1000]",
    "test_kernels.py::test_split_k_matmul[numpy-33-70-300-3]",
    "test_kernels.py::test_attention[torch-2-64-32-True]",
    "test_kernels.py::test_attention_backward[numpy-block0-2-64-32-True]",
    "test_triton_examples.py::test_vector_add[cpu-bfloat16-1000]",
    "test_triton_examples.py::test_softmax[cpu-float16-5-128]",
    "test_triton_examples.py::test_matmul[cpu-33-17-1-True-4]",
    "test_triton_examples.py::test_dropout[cpu-1000]",
    "test_triton_examples.py::test_layer_norm_and_its_gradients[cpu-float16-shape1]",
    "test_triton_examples.py::test_gradients_of_attention[cpu-shape0-float16-0-True]",
    "test_triton_examples.py::test_extern_functions[cpu-float32-3e-07]",
    "test_triton_examples.py::test_grouped_gemm_of_aligned_matrices[cpu]",
    "test_triton_examples.py::test_persistent_matmul[cpu-device-5]",
    "test_triton_examples.py::test_block_scaled_matmul[cpu-1-8-128-mxfp4]",
)

_modules = ("rocm", "torch")
_lacking = not all(map(importlib.util.find_spec, _modules)) or shutil.which("cc") is None
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(_lacking, reason="rocm-bindings-hip, PyTorch and a C compiler are needed"),
]


@pytest.mark.full
@pytest.mark.parametrize(
    "device",
    [DEVICES[0], *(pytest.param(device, marks=pytest.mark.full) for device in DEVICES[1:])],
)
def test_examples(device: str, request: pytest.FixtureRequest) -> None:
    """Starting PyTorch takes seconds for each device. The instructions of the others are met by the
    suite's emulated part and by the demo's kernels."""
    chosen = PROGRAMS if request.config.getoption("full") else PROGRAMS[::2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    for name in ("TILEWRIGHT_BACKEND", "TILEWRIGHT_EMULATION_DIR", "PYTEST_XDIST_WORKER"):
        environment.pop(name, None)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        "--durations=5",
        f"--emulate={device}",
    ]
    done = subprocess.run(
        [*command, *(f"examples/tests/{name}" for name in chosen)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        cwd=ROOT,
    )
    print(done.stdout)
    assert done.returncode == 0 and f"{len(chosen)} passed" in done.stdout, (
        done.stdout + done.stderr
    )
