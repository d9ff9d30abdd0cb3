"""What the core's wheel holds: what runs kernels. What tests backends is the conformance suite's,
and the core finds it by name where it is installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tilewright.tools import cli

ROOT = Path(__file__).resolve().parents[2]


def files_of(distribution: str) -> set[str]:
    """Return the contents of a wheel, without metadata."""
    return {
        file.distribution_path
        for file in WheelBuilder(str(ROOT / distribution)).recurse_included_files()
    }


def test_samples_and_probes_are_in_the_wheel_of_the_conformance_suite_alone() -> None:
    ours, suite = files_of("core"), files_of("conformance")
    assert "tilewright/ir/verifier.py" in ours
    assert not [
        file for file in ours if "sample" in file or "/probes/" in file or "api_coverage" in file
    ]
    assert {
        "tilewright_conformance/op_samples/memory.py",
        "tilewright_conformance/api_coverage/public_names.toml",
        "tilewright_conformance/api_coverage/probes/memory.py",
    } <= suite


@pytest.mark.parametrize(
    "command",
    [["ops"], ["surface"], ["selftest", "--backend", "cpu"]],
    ids=lambda command: command[0],
)
def test_commands_of_the_suite_say_what_to_install(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [
        name for name in sys.modules if name.partition(".")[0] == "tilewright_conformance"
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tilewright_conformance", None)
    assert cli.main(command) == 2
    assert (
        "the conformance suite is not installed" in (told := capsys.readouterr().err)
        and "pip install tilewright-conformance" in told
    )
