"""The command as a process: bad targets and bad environments end with a sentence and an exit code,
never with a traceback."""

import os
import subprocess
import sys
import textwrap

import fork_server
import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("kernels")
    (found / "good.py").write_text(
        textwrap.dedent("""
        import tilewright as tw
        import tilewright.language as tl

        @tw.jit
        def fill(y, n, BLOCK: tl.constexpr):
            tl.store(y + tl.arange(0, BLOCK), n)
        """)
    )
    (found / "syntax.py").write_text("def (\n")
    (found / "leaves.py").write_text("raise SystemExit(3)\n")
    (found / "raises.py").write_text("1 / 0\n")
    (found / "text.tileir").write_text("not IR\n")
    return found


def run(folder, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(folder / "cache"), **environment}
    command = ["-m", "tilewright.tools.cli", *arguments]
    return fork_server.run(command, timeout=900, env=settings, cwd=folder)


FILL = (
    "good.py:fill",
    "--signature",
    "*i32, i32",
    "--constants",
    "BLOCK=8",
    "--backend",
    "reference",
)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nothing.py:k",), 2, "there is no file 'nothing.py'"),
        (("good.py:k",), 2, "has no kernel 'k'; it has fill"),
        (("good.py:fill",), 2, "parameter 'y' of fill needs a type in --signature"),
        (
            ("good.py:fill", "--signature", "z=*i32"),
            2,
            "fill has no parameter z; it has y, n, BLOCK",
        ),
        (
            ("good.py:fill", "--signature", "*i99, i32", "--constants", "BLOCK=8"),
            2,
            "--signature of 'y': '*i99' is not the type",
        ),
        ((*FILL, "--option", "nope=1"), 2, "Keyword argument nope was specified but unrecognised"),
        (
            (*FILL, "--option", "num_warps=x"),
            1,
            "option num_warps must be a positive integer, not 'x'",
        ),
        (
            (*FILL, "--stage", "nope"),
            2,
            "there is no stage 'nope'; the stages are source, frontend",
        ),
        ((*FILL[:4], "BLOCK=0"), 1, "arange"),
        (("syntax.py:k",), 2, "syntax.py cannot be imported"),
        (("leaves.py:k",), 2, "leaves.py cannot be imported: SystemExit: 3"),
        (("raises.py:k",), 2, "raises.py cannot be imported: ZeroDivisionError"),
        (("text.tileir", "--backend", "reference"), 2, "text.tileir is not valid Tile IR"),
    ],
)
def test_bad_targets(folder, arguments, code, message):
    result = run(folder, "inspect", *arguments)
    assert (result.returncode, result.stdout) == (code, ""), result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_every_stage_has_its_time(folder):
    result = run(folder, "inspect", *FILL)
    assert result.returncode == 0, result.stderr
    for stage in ("frontend", "1 canonicalize"):
        assert f"\n## {stage}  " in result.stdout
    times = result.stdout.partition("## times (ms)")[2]
    for stage in ("frontend", "passes", "lower", "total"):
        assert f"\n{stage} " in times


def test_inspect_and_doctor_follow_the_environments_backend(folder):
    assert run(folder, "inspect", *FILL[:-2], TILEWRIGHT_BACKEND="reference").stdout.startswith(
        "# fill for reference|"
    )
    assert (
        "reference on cpu:0, as TILEWRIGHT_BACKEND says"
        in run(folder, "doctor", TILEWRIGHT_BACKEND="reference").stdout
    )
    wrong = run(folder, "doctor", TILEWRIGHT_BACKEND="npu")
    assert wrong.returncode == 1
    assert "TILEWRIGHT_BACKEND asks for it" in wrong.stdout


@pytest.mark.parametrize("action", ["info", "clear"])
def test_an_environment_that_is_not_understood(folder, action):
    result = run(folder, "cache", action, TILEWRIGHT_CACHE_SIZE="plenty")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        "tilewright cache: TILEWRIGHT_CACHE_SIZE must be bytes, or a number with K, M or G, "
        "not 'plenty'\n  see: tilewright help reference/environment\n"
    )


def test_a_cache_that_cannot_be_made(folder):
    for action in ("info", "clear"):
        result = run(folder, "cache", action, TILEWRIGHT_CACHE_DIR="/dev/null/cache")
        assert result.returncode == 0, result.stderr
    assert (
        "cannot be written"
        in run(folder, "cache", "info", TILEWRIGHT_CACHE_DIR="/dev/null/cache").stdout
    )


def test_python_runs_the_package_as_the_command(folder):
    found = subprocess.run(
        [sys.executable, "-m", "tilewright", "--version"],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        cwd=folder,
    )
    assert (found.returncode, found.stdout.partition(" ")[0]) == (0, "tilewright"), found.stderr
