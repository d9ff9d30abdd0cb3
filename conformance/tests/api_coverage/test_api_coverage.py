"""The table of public names: whole, true to the objects, and shown by probes that run on the
reference and the CPU and compile for GPUs."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.language import backend_modules
from tilewright.language.extra import libdevice
from tilewright.plugins.registry import registry
from tilewright.runtime.devices import device_registry
from tilewright.tools import cli
from tilewright_conformance.api_coverage.examine import (
    ABSENT,
    COMPILES,
    DECLARED,
    FAILS,
    OUTSIDE,
    WORKS,
    examine,
    is_absent,
    machines_of,
    run_probe,
)
from tilewright_conformance.api_coverage.probes import (
    BackendMachine,
    Machine,
    TargetMachine,
    all_probes,
)
from tilewright_conformance.api_coverage.public_names import names, resolve
from tilewright_conformance.api_coverage.shim import shim

PROBES = all_probes()
KERNELS = [title for title, probe in PROBES.items() if not probe.host]
HOST = [title for title, probe in PROBES.items() if probe.host]
#: probes of what not every machine has
OPTIONAL = [title for title in KERNELS if PROBES[title].feature or PROBES[title].target]
#: targets without a device here, for which every probe is compiled; the reference runs it then
TARGETS = [("nvidia", "sm_90a")]


def _devices() -> list[Any]:
    """The backends with a device but the reference; those whose device is a GPU are marked."""
    found = []
    for backend in registry().backends():
        if (
            backend.name == "reference"
            or backend.manifest.status
            or not device_registry.devices(backend)
        ):
            continue
        gpu = device_registry.devices(backend)[0].kind != "cpu"
        found.append(pytest.param(backend.name, marks=pytest.mark.gpu if gpu else ()))
    return found


@pytest.fixture(scope="module", params=_devices())
def machine(request: pytest.FixtureRequest) -> Machine:
    return BackendMachine(request.param)


@pytest.mark.parametrize("title", KERNELS)
def test_a_probe_agrees_with_its_oracle(machine: Machine, title: str) -> None:
    verdict, error = run_probe(PROBES[title], machine)
    if verdict == ABSENT:
        pytest.skip("its language comes with a backend that is not installed")
    assert verdict in (WORKS, DECLARED), error


@pytest.mark.parametrize("title", OPTIONAL)
def test_a_probe_of_what_the_reference_may_lack(title: str) -> None:
    verdict, error = run_probe(PROBES[title], BackendMachine("reference"))
    assert verdict in (WORKS, DECLARED, ABSENT), error


@pytest.mark.parametrize("title", HOST)
def test_a_probe_of_the_host(title: str) -> None:
    verdict, error = run_probe(PROBES[title], BackendMachine("reference"))
    if verdict == ABSENT:
        pytest.skip("its language comes with a backend that is not installed")
    assert verdict == WORKS, error


@pytest.fixture(scope="module", params=TARGETS, ids=":".join)
def target(request: pytest.FixtureRequest) -> Machine:
    name, arch = request.param
    if name not in [backend.name for backend in registry().backends()]:
        pytest.skip(f"backend {name} is not installed")
    return TargetMachine(name, arch)


@pytest.mark.sampled(110)
@pytest.mark.parametrize("title", KERNELS)
def test_a_probe_compiles_for_a_target_without_a_device(target: Machine, title: str) -> None:
    verdict, error = run_probe(PROBES[title], target)
    if verdict == ABSENT:
        pytest.skip("its language comes with a backend that is not installed")
    assert verdict in (COMPILES, DECLARED), error


# -- the table -------------------------------------------------------------------------------------


def test_every_name_is_there_and_is_shown_by_a_probe() -> None:
    shown = {full for probe in PROBES.values() for full in probe.names}
    wrong = []
    with shim():
        for full, name in names().items():
            try:
                found = resolve(name)
            except LookupError as error:
                if "is outside what" not in str(error) and not is_absent(
                    error
                ):  # the shim says why it has none
                    wrong.append(str(error))
                continue
            if name.alias and found is not resolve(names()[name.alias]):
                wrong.append(f"{full} is not {name.alias}")
            if (name.alias or full) not in shown:
                wrong.append(f"{full} is shown by no probe")
    assert wrong == []


def test_probes_name_what_is_in_the_table() -> None:
    assert {full for probe in PROBES.values() for full in probe.names} - set(names()) == set()


@pytest.mark.parametrize(
    ("module", "prefix"),
    [(tl, "tl."), (libdevice, "tl.extra.libdevice."), (tw, "tilewright.")],
    ids=["tl", "libdevice", "tilewright"],
)
def test_what_a_module_makes_public_is_in_the_table(module: Any, prefix: str) -> None:
    public = {f"{prefix}{name}" for name in module.__all__} - {
        f"tilewright.{name}" for name in ("__version__", "errors", "ir", "language", "testing")
    }
    assert public - set(names()) - {"tl.libdevice"} == set()


#: names that are spelled by a piece of syntax
_SPELLED = {
    "and": " and ",
    "[]": "[",
    "star_arguments": "(*",
    "comprehension": " for ",
    "ternary": " if ",
    "walrus": ":=",
    "f_string": 'f"',
    "call": "square(",
    "annotation_constexpr": "tl.constexpr =",
    "global_constexpr": "= tl.constexpr(",
    "return_in_loop": "return",
    "tuple": "(",
    "math": "math.",
}


@pytest.mark.parametrize("title", [title for title in PROBES if not title.startswith("libdevice.")])
def test_a_probe_uses_what_it_claims_to_show(title: str) -> None:
    module = inspect.getmodule(PROBES[title].body)
    assert module is not None
    claims = ('"t', "@probe", '"operator', '"python', '"syntax')
    source = "\n".join(
        line
        for line in inspect.getsource(module).splitlines()
        if not line.lstrip().startswith(claims)
    )
    for full in PROBES[title].names:
        last = full.removeprefix("operator ").rpartition(".")[2]
        assert _SPELLED.get(last, last) in source or last in getattr(module, "PREDICATES", ()), full


# -- the command -----------------------------------------------------------------------------------


def test_the_command_prints_a_table_and_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["surface", "--backend", "reference", "--family", "Loops"]) == 0
    text = capsys.readouterr().out
    assert [line.split()[:3] for line in text.splitlines() if line.startswith("  tl.")] == [
        ["tl.range", "3.0", "works"],
        ["tl.static_range", "3.0", "works"],
        ["tl.condition", "3.4", "works"],
    ]
    assert "iteration.static_range" in text and "reference: 3 works" in text


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["surface", "--json", "--backend", "reference", "--family", "Loops"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["machines"] == ["reference"] and report["counts"]["reference"]["works"] == 3
    assert report["names"][0]["states"] == {"reference": "works"} and report["names"][0][
        "probes"
    ] == ["iteration.range_hints"]


@tw.jit
def flips_nothing(x, dim: tl.constexpr = None):
    return x


@pytest.fixture
def compiled_anew() -> Iterator[None]:
    """What a probe's kernels were compiled to with other functions stays out of the test, and what
    the test compiles out of others."""
    from tilewright_conformance.api_coverage.probes.shapes import axes_of_one, reversed_axes

    kernels = reversed_axes, axes_of_one
    for kernel in kernels:
        kernel.clear_cache()
    yield
    for kernel in kernels:
        kernel.clear_cache()


def test_a_function_that_is_wrong_or_gone_is_found(
    compiled_anew: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tl, "flip", flips_nothing)
    monkeypatch.delattr(tl, "unsqueeze")
    monkeypatch.setenv("TILEWRIGHT_CACHE_SIZE", "0")
    assert cli.main(["surface", "--missing", "--backend", "reference", "--family", "Shape"]) == 1
    text = capsys.readouterr().out
    failed = {
        line.split()[0]: line.split()[2] for line in text.splitlines() if line.startswith("  tl.")
    }
    assert failed == {"tl.flip": "FAILS", "tl.unsqueeze": "MISSING", "tl.squeeze": "FAILS"}
    assert "shapes.flip: AssertionError" in text


def test_an_unknown_family_or_target_is_a_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["surface", "--backend", "reference", "--family", "no such"]) == 2
    assert "no family is called" in capsys.readouterr().err
    assert cli.main(["surface", "--backend", "reference", "--compile", "cpu:sm_3"]) == 2
    assert "has no target 'sm_3'" in capsys.readouterr().err


def test_a_probe_without_the_feature_it_needs_is_declared() -> None:
    machine = BackendMachine("reference")
    assert "inline_asm" not in machine.features
    states = {
        state.name.full: state
        for state in examine({"reference": machine}, wanted={"tl.inline_asm_elementwise"})
    }
    assert (
        states["tl.inline_asm_elementwise"].columns == {"reference": DECLARED}
        and states["tl.inline_asm_elementwise"].good
    )
    assert {WORKS, DECLARED, OUTSIDE, COMPILES} & {FAILS} == set()


def test_machines_are_all_that_have_a_device() -> None:
    found = machines_of()
    assert "reference" in found and all(found[name].backend == name for name in found)
    assert found["reference"].kind == "cpu"


def test_language_of_a_backend_that_is_not_installed_is_absent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = registry().languages()
    monkeypatch.setattr(
        registry(),
        "languages",
        lambda: {name: found for name, found in known.items() if name != "cuda"},
    )
    backend_modules.install().forget()
    try:
        assert (
            cli.main(
                ["surface", "--json", "--backend", "reference", "--family", "vendor functions"]
            )
            == 0
        )
    finally:
        monkeypatch.undo()
    found = {
        row["name"]: row["states"]["reference"]
        for row in json.loads(capsys.readouterr().out)["names"]
    }
    assert (
        {name for name, state in found.items() if state == ABSENT}
        == {name for name in found if name.startswith("tl.extra.cuda.")}
        != set()
    )
    verdict, error = run_probe(PROBES["assembly.cuda_sizes"], BackendMachine("reference"))
    assert (verdict == ABSENT) == ("cuda" not in known) and not error


def test_a_target_machine_compiles_for_the_target_and_computes_on_the_reference() -> None:
    pytest.importorskip("tilewright_nvidia")
    from tilewright_conformance.api_coverage.probes.launching import plain_kernel

    machine = TargetMachine("nvidia", "sm_90a")
    x, out = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    artifact = machine.compile(plain_kernel, (x, out, 32), {})
    assert "sm_90a" in str(artifact.code.stages["ptx"])
    machine(plain_kernel)[(1,)](x, out, 32)
    np.testing.assert_array_equal(out, 2 * x)
