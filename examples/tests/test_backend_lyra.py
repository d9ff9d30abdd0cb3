"""The example on the GPU toolkit as a vendor's package.

It installs, computes and passes conformance.

A new environment contains its wheel and those of the core and the suite.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "examples" / "backend_lyra"

#: ``TILEWRIGHT_FULL_CONFORMANCE=1`` runs all cases of these profiles, which shows that the claims
#: hold; else a part of profile core is run.
FULL = os.environ.get("TILEWRIGHT_FULL_CONFORMANCE", "0") not in ("", "0")
PROFILES = (
    (
        "core",
        "math",
        "memory",
        "control",
        "matmul",
        "atomics",
        "descriptors",
        "fp8",
        "launch",
        "autotune",
        "exact",
    )
    if FULL
    else ("core",)
)

SCRIPT = """
import numpy as np
import tilewright as tw
import tilewright.language as tl

@tw.jit
def product_kernel(a_ptr, b_ptr, c_ptr, K, M: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, BLOCK)
    sums = tl.zeros((M, N), tl.float32)
    for start in range(0, K, BLOCK):
        inside = start + k < K
        a = tl.load(a_ptr + i[:, None] * K + (start + k)[None, :], mask=inside[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * N + j[None, :], mask=inside[:, None])
        sums = tl.dot(a, b, sums)
    tl.store(c_ptr + i[:, None] * N + j[None, :], sums)

rng = np.random.default_rng(0)
for M, N, BLOCK, K, warps in ((32, 32, 32, 100, 2), (16, 64, 16, 77, 4), (64, 32, 64, 64, 1), (4, 8, 4, 9, 2), (16, 16, 8, 40, 8)):
    a, b = rng.standard_normal((M, K)).astype(np.float16), rng.standard_normal((K, N)).astype(np.float16)
    c = np.full((M, N), np.nan, np.float32)
    kernel = product_kernel[(1,)](a, b, c, K, M=M, N=N, BLOCK=BLOCK, num_warps=warps, backend="lyra")
    assert np.abs(c - a.astype(np.float64) @ b.astype(np.float64)).max() < 1e-4
    assert "lyra.dot4" in kernel.asm["simt"]
print("ran")
"""


@pytest.fixture(scope="module")
def installed(environment: Any, wheel_of: Callable[[Path], Path]) -> Any:
    environment.install(wheel_of(PACKAGE))
    return environment


def test_the_package_is_small() -> None:
    lines = sum(len(file.read_text().splitlines()) for file in PACKAGE.rglob("*.py"))
    assert lines <= 400


@pytest.mark.slow
def test_the_wheel_installs_and_multiplies_by_its_own_instruction(
    installed: Any, tmp_path: Path
) -> None:
    listed = {entry["name"]: entry for entry in installed.backends()["backends"]}
    assert listed["lyra"]["devices"] and not listed["lyra"]["status"]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    assert installed.python(script).strip() == "ran"


@pytest.mark.slow
def test_the_installed_backend_conforms(installed: Any, one_of_each_subject: list[str]) -> None:
    selected = [part for profile in PROFILES for part in ("--profile", profile)]
    report = installed.conformance(
        "--backend", "lyra", *selected, *(() if FULL else ("--quick", *one_of_each_subject))
    )
    assert {result["verdict"] for result in report["results"]} == {"good"}
    assert Counter(result["status"] for result in report["results"])["passed"] > (
        5000 if FULL else 80
    )
    assert [claim["profile"] for claim in report["claims"] if claim["holds"]] == (
        list(PROFILES) if FULL else []
    )
