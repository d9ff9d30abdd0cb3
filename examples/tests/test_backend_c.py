"""The C example as a vendor's package: it installs, passes conformance, and uninstalls.

A new environment contains its wheel and those of the core and the suite.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
import tilewright.language as tl
from tilewright.errors import LoweringError
from tilewright.frontend.compile import compile_function
from tilewright.ir.types import TileType
from tilewright.passes.decompose.catalogue import CATALOGUE
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import lower_module
from tilewright_conformance.op_samples import samples
from tilewright_conformance.runtests.runner import FAILED, FILES, PASSED, Runner, report
from tilewright_conformance.suite.catalogue import catalogue
from tilewright_conformance.suite.profiles import OPERATIONS
from tilewright_conformance.suite.requirements_audit import used

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "examples" / "backend_c"

#: ``TILEWRIGHT_FULL_CONFORMANCE=1`` runs all cases of these profiles, which shows that the claims
#: hold; else a part of profile core is run: a C compiler is started for each kernel.
FULL = os.environ.get("TILEWRIGHT_FULL_CONFORMANCE", "0") not in ("", "0")
QUICK = () if FULL else ("--quick",)
PROFILES = (
    (
        "core",
        "math",
        "memory",
        "control",
        "matmul",
        "descriptors",
        "fp8",
        "launch",
        "autotune",
        "exact",
    )
    if FULL
    else ("core",)
)

#: Run tests of what C leaves undefined.
EDGES = ("bits", "casts", "integers")

#: Cases with each elementwise operation in a type or two: what is not lowered is not lowered in
#: any.
ONE_OF_EACH = tuple(
    part
    for types in ("f32*", "i32/*", "i1*", "0_1*", "axis*")
    for part in ("--case", f"elementwise/*/{types}")
)


SCRIPT = """
import numpy as np
import tilewright as tw
import tilewright.language as tl

@tw.jit
def row_kernel(x_ptr, out_ptr, n, stride, scale, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    x = tl.load(x_ptr + row * stride + columns, mask=inside, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    for i in range(2):
        e = e * scale
    if row > 1:
        e = e + 0.0
    tl.store(out_ptr + row * stride + columns, e / tl.sum(e, axis=0), mask=inside)

@tw.jit
def product_kernel(a_ptr, b_ptr, c_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    at = i[:, None] * N + i[None, :]
    tl.store(c_ptr + at, tl.dot(tl.load(a_ptr + at), tl.trans(tl.load(b_ptr + at))))

rng = np.random.default_rng(0)
x = rng.standard_normal((5, 40_000), dtype=np.float32)
out = np.full_like(x, np.nan)
with tw.backend("c"):
    row_kernel[(5,)](x, out, x.shape[1], x.shape[1], 0.5, BLOCK=65536)
exact = np.exp(x.astype(np.float64))
exact /= exact.sum(axis=1, keepdims=True)
assert np.abs(out / exact - 1).max() < 1e-3

a, b = rng.standard_normal((2, 16, 16), dtype=np.float32)
c = np.full_like(a, np.nan)
with tw.backend("c"):
    product_kernel[(1,)](a, b, c, N=16)
assert np.abs(c - a.astype(np.float64) @ b.T).max() < 1e-4
print("ran")
"""

#: A plugin module: the example without some of its lowerings.
WITHOUT = """
from tilewright_c.lower import lowers
from tilewright_c.plugin import *

for operation in {operations!r}:
    del lowers.functions[operation]
"""


def broken_project(folder: Path) -> Path:
    """A plugin that fails when it is imported."""
    project = folder / "broken"
    (project / "tilewright_broken").mkdir(parents=True)
    (project / "tilewright_broken" / "__init__.py").write_text("")
    (project / "tilewright_broken" / "plugin.py").write_text(
        'raise OSError("the vendor\'s library is missing")\n'
    )
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
        '[project]\nname = "tilewright-broken"\nversion = "0.0.1"\n'
        '[project.entry-points.tilewright]\nbroken = "tilewright_broken.plugin"\n'
    )
    return project


def test_the_package_is_small(statements: Callable[[Path], int]) -> None:
    assert statements(PACKAGE) < 340


def test_it_lowers_no_operation_that_is_taken_apart(lower: Any) -> None:
    """All that profiles need without atomic updates, and no more."""
    from tilewright_c.lower import lowers

    assert lowers.names == OPERATIONS["core"] | OPERATIONS["control"]
    assert not lowers.names & set(CATALOGUE)


@pytest.mark.slow
def test_the_wheel_installs_runs_and_uninstalls_without_an_edit_of_the_core(
    environment: Any, wheel_of: Callable[[Path], Path], tmp_path: Path
) -> None:
    environment.install(wheel_of(PACKAGE))
    listed = {entry["name"]: entry for entry in environment.backends()["backends"]}
    assert set(listed) == {"reference", "c"}
    assert listed["c"]["devices"] and not listed["c"]["status"]

    environment.install(wheel_of(broken_project(tmp_path)))
    report = environment.backends()
    assert {entry["name"] for entry in report["backends"]} == {"reference", "c"}
    assert list(report["disabled"]) == ["broken"]
    assert "the vendor's library is missing" in report["disabled"]["broken"]

    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    assert environment.python(script).strip() == "ran"

    environment.pip("uninstall", "--yes", "tilewright-c", "tilewright-broken")
    assert [entry["name"] for entry in environment.backends()["backends"]] == ["reference"]


@pytest.mark.full
@pytest.mark.slow
def test_the_installed_backend_conforms(
    environment: Any, wheel_of: Callable[[Path], Path], one_of_each_subject: list[str]
) -> None:
    environment.install(wheel_of(PACKAGE))
    selected = [part for profile in PROFILES for part in ("--profile", profile)]
    report = environment.conformance(
        "--backend", "c", *selected, *QUICK, *(() if FULL else one_of_each_subject)
    )
    assert {result["verdict"] for result in report["results"]} == {"good"}
    assert Counter(result["status"] for result in report["results"])["passed"] > 80
    assert [claim["profile"] for claim in report["claims"] if claim["holds"]] == (
        list(PROFILES) if FULL else []
    )


@pytest.mark.full
@pytest.mark.slow
def test_without_two_lowerings_exactly_these_operations_fail(
    environment: Any,
    wheel_of: Callable[[Path], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = {"rem", "num_programs"}  # no decomposition yields one of them
    environment.install(wheel_of(PACKAGE))
    (tmp_path / "without.py").write_text(WITHOUT.format(operations=sorted(missing)))
    selected = ("--profile", "core") if FULL else ONE_OF_EACH
    report = environment.conformance(
        "--backend", "c", "--load", "without", *selected, *QUICK, code=1, path=tmp_path
    )
    failing = {
        result["case"]: result for result in report["results"] if result["verdict"] != "good"
    }
    monkeypatch.setenv(
        "TILEWRIGHT_CACHE_DIR", str(tmp_path / "audit")
    )  # what a cache holds is not lowered, and so not seen
    cases = catalogue()
    wanted = {
        result["case"]: used(cases[result["case"]]).operations & missing
        for result in report["results"]
    }
    assert failing.keys() == {case for case, operations in wanted.items() if operations}
    assert set().union(*wanted.values()) == missing
    for case, result in failing.items():
        assert any(
            f"does not lower {operation} yet (at " in result["message"]
            for operation in wanted[case]
        )


@pytest.fixture(scope="module")
def lower(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Lowers a module with the example of the working tree."""
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.syspath_prepend(str(PACKAGE / "src"))
    import tilewright_c.plugin

    backend = registry().register(tilewright_c.plugin, "c")
    target = backend.require("tilewright_target", device=backend.require("tilewright_devices")[0])
    yield lambda module: lower_module(module, backend.manifest.options, backend, target)
    registry().unregister("c")
    monkeypatch.undo()


@pytest.mark.parametrize("operation", ["atomic_load", "atomic_store"])
def test_what_is_not_lowered_is_refused_with_its_place(lower: Any, operation: str) -> None:
    with pytest.raises(
        LoweringError,
        match=(
            rf"backend 'c' does not lower {operation} yet \(at samples.py:2:4 in {operation}/.*: "
            r"write a function for it"
        ),
    ):
        lower(next(iter(samples(operation))).module)


@pytest.mark.parametrize(
    "path",
    sorted(FILES.glob("*.tileir")) if FULL else [FILES / f"{name}.tileir" for name in EDGES],
    ids=lambda path: path.stem,
)
def test_run_tests_pass(lower: Any, path: Path) -> None:
    outcomes = Runner("c").run_file(path)
    assert [report(path, "c", each) for each in outcomes if each.status == FAILED] == []
    assert Counter(each.status for each in outcomes)[PASSED] > 5


def test_large_tiles_are_on_the_heap(lower: Any) -> None:
    module = next(sample.module for sample in samples("arange") if "0_1024" in sample.name)
    source = lower(module).code.stages["c"]
    tiles = [
        value.type
        for operation in module.walk()
        for value in operation.results
        if isinstance(value.type, TileType)
    ]
    assert tiles and "malloc(sizeof *t)" in source
    assert source.count(f"[{tiles[0].numel}];") == source.partition("char end; };")[0].count(
        f"[{tiles[0].numel}];"
    )


@tilewright.jit
def _scaled(x, out, k, s, COUNT: tl.constexpr):
    """Tiles and numbers that statements, branches and loops give, by another factor in each
    program."""
    lanes = tl.arange(0, 16)
    v = tl.load(x + lanes)
    n = k
    for i in tl.static_range(COUNT):
        v = v * s + tl.program_id(0)
        if n > i:
            n = n + 2
            v = v + tl.max(v)
        else:
            n = n - tl.num_programs(0)
    for turn in range(n):
        v = v + turn
        n = n - 1
    tl.store(out + tl.program_id(0) * 16 + lanes, v + n)


def _expected(x: Any, program: int, k: int, s: float, count: int) -> Any:
    v, n = x.astype(np.float64), k
    for i in range(count):
        v = v * s + program
        if n > i:
            n, v = n + 2, v + v.max()
        else:
            n -= 3
    for turn in range(n):
        v, n = v + turn, n - 1
    return v + n


@pytest.mark.parametrize("longest", [1, 4, 30])
def test_parts_of_a_kernel_share_what_they_compute(
    lower: Any, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright_c.lower.LONG", 0)
    monkeypatch.setattr("tilewright_c.lower.LONGEST", longest)
    types = {"x": "*fp32", "out": "*fp32", "k": "i32", "s": "fp32", "COUNT": "constexpr"}
    artifact = lower(compile_function(_scaled, types, {"COUNT": 9}))
    parts = artifact.code.stages["c"].count("static __attribute__((noinline)) void part")
    assert parts > 40 / longest
    x, out = (
        np.random.default_rng(longest).random(16, dtype=np.float32),
        np.zeros((3, 16), np.float32),
    )
    from tilewright_c.plugin import tilewright_launcher, tilewright_load

    tilewright_launcher(tilewright_load(artifact.code), artifact.parameters)(
        (3, 1, 1), None, (x, out, 3, 0.5)
    )
    np.testing.assert_allclose(
        out, [_expected(x, program, 3, 0.5, 9) for program in range(3)], rtol=1e-5
    )


def test_code_of_a_long_kernel_has_no_long_function(lower: Any) -> None:
    types = {"x": "*fp32", "out": "*fp32", "k": "i32", "s": "fp32", "COUNT": "constexpr"}
    source = lower(compile_function(_scaled, types, {"COUNT": 150})).code.stages["c"]
    functions = source.split("\n}\n")
    assert len(source.splitlines()) > 800
    assert max(function.count("\n") for function in functions) < 400
