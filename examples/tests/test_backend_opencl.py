"""The OpenCL example as a vendor's package: it installs and passes conformance.

A new environment contains its wheel and those of the C example, the core and the suite.
"""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[1]
PACKAGE = EXAMPLES / "backend_opencl"
DRIVER = "pocl_binary_distribution"

#: ``TILEWRIGHT_FULL_CONFORMANCE=1`` runs all cases of these profiles, which shows that the claims
#: hold; else a part of profile core is run: the driver compiles each kernel.
FULL = os.environ.get("TILEWRIGHT_FULL_CONFORMANCE", "0") not in ("", "0")
PROFILES = ("core", "math", "memory", "control", "launch", "exact") if FULL else ("core",)

#: Prints why OpenCL cannot be used here, and nothing where it can.
PROBE = """
import warnings
warnings.simplefilter("ignore")
import pyopencl as cl
try:
    devices = [device for platform in cl.get_platforms() for device in platform.get_devices(cl.device_type.CPU)]
    device = next(device for device in devices if device.double_fp_config)
    cl.Program(cl.Context([device]), "__kernel void nothing(ulong x) {}").build()
except StopIteration:
    print("no processor with f64 among OpenCL's devices")
except cl.Error as error:
    print(" ".join(str(error).split()))
"""

SCRIPT = """
import numpy as np
import tilewright as tw
import tilewright.language as tl

@tw.jit
def larger(a, b):
    return tl.where(a > b, a, b)

@tw.jit
def kernel(x_ptr, index_ptr, sums_ptr, picked_ptr, counts_ptr, steps_ptr, n, M: tl.constexpr, N: tl.constexpr, BINS: tl.constexpr):
    program = tl.program_id(0)
    i, j = tl.arange(0, M), tl.arange(0, N)
    at = program * M * N + i[:, None] * N + j[None, :]
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(sums_ptr + at, tl.cumsum(x, axis=1, reverse=True) + tl.associative_scan(x, 0, larger), mask=at < n)
    index = tl.load(index_ptr + at, mask=at < n, other=0)
    tl.store(picked_ptr + at, tl.gather(x, index, axis=1), mask=at < n)
    counts = tl.histogram(tl.reshape(index, (M * N,)), BINS)
    tl.store(counts_ptr + program * BINS + tl.arange(0, BINS), counts)
    number, steps = program + 1, 0
    while number != 1:
        number = number // 2 if number % 2 == 0 else 3 * number + 1
        steps += 1
    tl.store(steps_ptr + program, steps)

rng = np.random.default_rng(0)
M, N, BINS, programs, n = 8, 16, 8, 7, 7 * 8 * 16 - 5
x, index = rng.standard_normal(n).astype(np.float32), rng.integers(0, N, n, dtype=np.int32)
sums, picked = np.full_like(x, np.nan), np.full_like(x, np.nan)
counts, steps = np.full((programs, BINS), -1, np.int32), np.full(programs, -1, np.int32)
kernel[(programs,)](x, index, sums, picked, counts, steps, n, M=M, N=N, BINS=BINS, backend="opencl")

whole, indices = (np.pad(array, (0, 5)).reshape(programs, M, N) for array in (x.astype(np.float64), index))
exact = whole[:, :, ::-1].cumsum(2)[:, :, ::-1] + np.maximum.accumulate(whole, 1)
assert np.abs(sums - exact.ravel()[:n]).max() < 1e-5
assert (picked == np.take_along_axis(whole, indices, 2).ravel()[:n]).all()
assert (counts == [[(one == bin).sum() for bin in range(BINS)] for one in indices]).all()
assert steps.tolist() == [0, 1, 7, 2, 5, 8, 16]
print("ran")
"""


@pytest.fixture(scope="module")
def installed(request: pytest.FixtureRequest, wheel_of: Callable[[Path], Path]) -> Any:
    if importlib.util.find_spec("pyopencl") is None:
        pytest.skip("pyopencl is not installed: make opencl")
    environment = request.getfixturevalue("environment")
    driver = [DRIVER.replace("_", "-")] if importlib.util.find_spec(DRIVER) else []
    environment.install(wheel_of(EXAMPLES / "backend_c"), wheel_of(PACKAGE), *driver)
    why_not = environment.python("-c", PROBE).strip()
    if why_not:
        pytest.skip(f"OpenCL compiles nothing for this processor: {why_not}")
    return environment


def test_the_package_is_small(statements: Callable[[Path], int]) -> None:
    assert statements(PACKAGE) < 156


@pytest.mark.slow
def test_the_wheel_installs_and_runs(installed: Any, tmp_path: Path) -> None:
    listed = {entry["name"]: entry for entry in installed.backends()["backends"]}
    assert listed["opencl"]["devices"] and not listed["opencl"]["status"]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    assert installed.python(script).strip() == "ran"


@pytest.mark.slow
def test_run_tests_pass(installed: Any) -> None:
    printed = installed.python("-m", "tilewright_conformance.runtests", "--backend", "opencl")
    assert ", 0 failed," in printed


@pytest.mark.slow
def test_the_installed_backend_conforms(installed: Any, one_of_each_subject: list[str]) -> None:
    selected = [part for profile in PROFILES for part in ("--profile", profile)]
    report = installed.conformance(
        "--backend", "opencl", *selected, *(() if FULL else ("--quick", *one_of_each_subject))
    )
    assert {result["verdict"] for result in report["results"]} == {"good"}
    assert Counter(result["status"] for result in report["results"])["passed"] > (
        4000 if FULL else 80
    )
    assert [claim["profile"] for claim in report["claims"] if claim["holds"]] == (
        list(PROFILES) if FULL else []
    )
