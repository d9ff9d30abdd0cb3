"""The command line and the pytest plugin, as their users start them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

import fork_server
import pytest

from tilewright_conformance.suite import cli
from tilewright_conformance.suite.case import PROFILES
from tilewright_conformance.suite.catalogue import catalogue
from tilewright_conformance.suite.expectations import Expectations
from tilewright_conformance.suite.provenance import suite_version
from tilewright_conformance.suite.releases import SEEDS
from tilewright_conformance.suite.report import document
from tilewright_conformance.suite.report.document import Document, write

PICK = ["--case", "elementwise/sqrt/f32/*"]


def run(*arguments: str | Path) -> int:
    return cli.main([str(argument) for argument in arguments])


def test_verify_accepts_a_fresh_report_and_refuses_an_edited_one(
    folder: Path, report: Document, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report["results"][0]["status"] = "failed"
    write(report, tmp_path / "edited.json")
    assert run("verify", folder / "report.json") == cli.GOOD
    assert f"report.json: consistent; cpu {report['backend']['version']}" in capsys.readouterr().out
    assert run("verify", folder / "report.json", tmp_path / "edited.json") == cli.WRONG
    assert "edited.json: refused: the checksum is another" in capsys.readouterr().out
    assert run("scoreboard", folder / "report.json", tmp_path / "edited.json") == cli.WRONG
    printed = capsys.readouterr()
    assert printed.out.count("| cpu ") == 1 and "edited.json: skipped" in printed.err
    assert run("compare", folder / "report.json", tmp_path / "edited.json") == cli.GOOD
    assert "1 differences: 1 worse" in capsys.readouterr().out


@pytest.mark.full
def test_a_report_can_be_run_again_in_part(
    folder: Path,
    report: Document,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tilewright_conformance.suite.engine.pool.default_workers", lambda: 1)
    assert run("verify", folder / "report.json", "--rerun", 4) == cli.GOOD
    assert (
        f"ran 4 cases again, with the report's seed and with {SEEDS[suite_version()]}: "
        "results and errors agree"
    ) in capsys.readouterr().out
    for result in report["results"]:
        result["numbers"]["ulp"] += 1
    report["checksum"] = document.checksum(report)
    write(report, tmp_path / "invented.json")
    assert run("verify", tmp_path / "invented.json", "--rerun", 4) == cli.WRONG
    assert capsys.readouterr().out.count("the report says ulp = ") == 4
    report["device"]["name"] = "another device"
    report["checksum"] = document.checksum(report)
    write(report, tmp_path / "elsewhere.json")
    assert run("verify", tmp_path / "elsewhere.json", "--rerun", 4) == cli.GOOD
    assert (
        "results (device: not the report's, so errors may differ) agree" in capsys.readouterr().out
    )
    report["distributions"][1]["wheel"] = "0" * 64
    report["checksum"] = document.checksum(report)
    write(report, tmp_path / "another.json")
    assert run("verify", tmp_path / "another.json", "--rerun", 1) == cli.GOOD
    assert "results (tilewright, device: not the report's" in capsys.readouterr().out


def test_a_report_is_of_certain_wheels(
    report: Document, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel, other = (
        tmp_path / "tilewright_cpu-0.1.0-py3-none-any.whl",
        tmp_path / "tilewright_amd-0.1.0-py3-none-any.whl",
    )
    for path in (wheel, other):
        path.write_bytes(b"a wheel")
    (facts,) = (facts for facts in report["distributions"] if facts["name"] == "tilewright-cpu")

    def verified(hash_: str, *wheels: Path) -> int:
        facts["wheel"] = hash_
        report["claims"] = document._claims(report, Expectations(), catalogue())
        report["checksum"] = document.checksum(report)
        write(report, tmp_path / "report.json")
        return run(
            "verify",
            tmp_path / "report.json",
            *(part for path in wheels for part in ("--wheel", path)),
        )

    assert verified(hashlib.sha256(b"a wheel").hexdigest(), wheel) == cli.GOOD
    assert verified("0" * 64, wheel) == cli.WRONG
    assert f"refused: it is not of {wheel.name}, which has the hash " in capsys.readouterr().out
    assert verified("", wheel) == cli.WRONG
    assert "its tilewright-cpu is of no wheel that is known" in capsys.readouterr().out
    assert verified("0" * 64, other) == cli.WRONG
    assert (
        "refused: nothing of tilewright_amd-0.1.0-py3-none-any.whl took part in it"
        in capsys.readouterr().out
    )
    assert verified("0" * 64, tmp_path / "report.json") == cli.USAGE


def test_run_writes_reports_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run", "--backend", "cpu", *PICK, "-j", 1, "--report", tmp_path) == cli.GOOD
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "badge.svg",
        "journal.jsonl",
        "junit.xml",
        "report.html",
        "report.json",
    ]
    first = json.loads((tmp_path / "report.json").read_text())
    lines = (tmp_path / "journal.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "journal.jsonl").write_text("".join(lines[:3]) + lines[3][:20])
    capsys.readouterr()
    assert (
        run("run", "--backend", "cpu", *PICK, "-j", 1, "--report", tmp_path, "--resume") == cli.GOOD
    )
    printed = capsys.readouterr()
    assert f"{len(lines) - 1} cases, 2 of them done before" in printed.err
    assert f"total  {len(lines) - 1} cases: {len(lines) - 1} passed" in printed.out
    second = json.loads((tmp_path / "report.json").read_text())
    assert [result["numbers"] for result in first["results"]] == [
        result["numbers"] for result in second["results"]
    ]
    assert (
        run("run", "--backend", "cpu", *PICK, "--report", tmp_path, "--resume", "--seed", 1)
        == cli.USAGE
    )
    assert "is the journal of another run: seed was 0 and is 1" in capsys.readouterr().err


def test_an_unexpected_pass_fails_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "expectations.toml"
    path.write_text(
        '[[expect]]\ncase = "elementwise/sqrt/f32/scalar"\nkind = "notyet"\nreason = "r"\n'
        'exception = "MismatchError"\nissue = "https://example.com/1"\n'
    )
    assert (
        run(
            "run",
            "--backend",
            "cpu",
            *PICK,
            "-j",
            1,
            "--report",
            tmp_path / "report",
            "--expectations",
            path,
        )
        == cli.WRONG
    )
    printed = capsys.readouterr()
    assert (
        "PASSED elementwise/sqrt/f32/scalar: the expectations say that it does not pass"
        in printed.err
    )
    assert "1 unexpected-pass" in printed.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--backend", "nosuch"], "no backend named 'nosuch' is installed"),
        (["--backend", "cpu", "--case", "nothing/*"], "no case matches 'nothing/*'"),
        (["--backend", "cpu", "--load", "no_such_module"], "No module named 'no_such_module'"),
        (["--backend", "cpu", "--expectations", "/no/such/file"], "No such file"),
    ],
)
def test_wrong_questions(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("run", *arguments, "--report", tmp_path) == cli.USAGE
    assert message in capsys.readouterr().err


def test_wheels_are_named_one_or_several_at_a_time() -> None:
    options = cli.build_parser().parse_args(
        ["run", "--backend", "cpu", "--wheel", "a.whl", "b.whl", "--quick", "--wheel", "c.whl"]
    )
    assert options.wheel == [Path("a.whl"), Path("b.whl"), Path("c.whl")]


def test_listing(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "elementwise/fma/*", "--profile", "core") == cli.GOOD
    ids = capsys.readouterr().out.split()
    assert "elementwise/fma/f32/scalar" in ids and all(
        id_.startswith("elementwise/fma/") for id_ in ids
    )
    assert run("list", "elementwise/fma/", "--json", "--quick") == cli.GOOD
    assert {row["subject"] for row in json.loads(capsys.readouterr().out)} == {"fma"}


def test_profiles_can_be_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def listed(*arguments: str) -> set[str]:
        assert run("list", *arguments, "--json") == cli.GOOD
        return {row["profile"] for row in json.loads(capsys.readouterr().out)}

    assert listed("--without", "perf", "--without", "math") == set(PROFILES) - {"perf", "math"}
    assert listed("--profile", "core", "--profile", "perf", "--without", "perf") == {"core"}
    pick = ["--case", "elementwise/sqrt/f32/scalar", "--case", "math/rsqrt/f32/scalar"]
    assert (
        run("run", "--backend", "cpu", *pick, "-j", 1, "--without", "math", "--report", tmp_path)
        == cli.GOOD
    )
    written = json.loads((tmp_path / "report.json").read_text())
    assert [result["case"] for result in written["results"]] == [
        "elementwise/sqrt/f32/scalar"
    ] and "math" not in written["run"]["profiles"]
    document.verify(written, catalogue())
    assert (
        run(
            "run",
            "--backend",
            "cpu",
            "--profile",
            "perf",
            "--without",
            "perf",
            "--report",
            tmp_path,
        )
        == cli.USAGE
    )
    assert "no profile is left without perf" in capsys.readouterr().err


def pytest_run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST")
    }
    environment.update(
        PYTHONPATH=str(Path(__file__).parent), MISBEHAVE_HOW="garbage", MISBEHAVE_AT="sqrt"
    )
    command = ["-m", "pytest", "-p", "no:cacheprovider", "-rA", *arguments]
    return fork_server.run(command, cwd=cwd, env=environment)


def test_the_pytest_plugin_runs_cases_as_tests(tmp_path: Path) -> None:
    suite = ["--pyargs", "tilewright_conformance"]
    found = pytest_run(
        *suite,
        "--backend",
        "misbehaving",
        "--load",
        "misbehaving",
        *PICK,
        "--case",
        "elementwise/fma/f32/scalar",
        cwd=tmp_path,
    )
    assert found.returncode == 1, found.stdout
    sqrts = len(catalogue().select(patterns=[PICK[1]]))
    assert f"{sqrts} failed, 1 passed" in found.stdout
    assert (
        "test_conformance[elementwise/sqrt/f32/scalar]" in found.stdout
        and "failed: argument" in found.stdout
    )
    without = pytest_run(*suite, cwd=tmp_path)
    assert without.returncode != 0 and "the conformance suite needs a backend" in without.stdout


def test_the_pytest_plugin_leaves_other_suites_alone(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        'def pytest_addoption(parser):\n    parser.addoption("--backend")\n'
        '    parser.addoption("--profile")\n'
    )
    (tmp_path / "test_own.py").write_text(
        'def test_own(request):\n    assert request.config.getoption("--backend") == "mine"\n'
    )
    found = pytest_run("--backend", "mine", cwd=tmp_path)
    assert found.returncode == 0 and "1 passed" in found.stdout, found.stdout
