"""``pytest --tilewright``: a project's tests of kernels written for Triton, in processes of their
own."""

import os
import subprocess
import sys
import textwrap

import fork_server
import pytest

pytest.importorskip("tilewright_cpu")

PROJECT = """
    import os
    import numpy as np
    import pytest
    import triton
    import triton.language as tl

    @triton.jit
    def double(x, y, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + offsets, 2 * tl.load(x + offsets, mask=offsets < n), mask=offsets < n)

    @triton.jit
    def careless(x, y, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.store(y + offsets, tl.load(x + offsets))

    @pytest.fixture
    def doubled():
        x, y = np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
        kernel = double[(3,)](x, y, 10, BLOCK=4)
        return x, y, kernel

    @pytest.mark.parametrize("again", range(3))
    def test_double(doubled, again):
        x, y, kernel = doubled
        assert (y == 2 * x).all()
        assert kernel.backend.name == os.environ["EXPECTED"]

    def test_careless():
        x, y = np.zeros(24, np.float32)[:10], np.zeros(24, np.float32)[:10]
        careless[(1,)](x, y, BLOCK=16)
"""
TENSORS = """
    import pytest
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def double(x, y, n, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.store(y + offsets, 2 * tl.load(x + offsets, mask=offsets < n), mask=offsets < n)

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
    def test_double():
        device = torch.device("cuda", torch.cuda.current_device())
        x = torch.randn(10, device="cuda")
        ways = [torch.zeros(10).cuda(), torch.zeros(10, device=device), torch.zeros(10).to("cuda:0"), torch.zeros(10).to(device=device), torch.empty_like(x)]
        model = torch.nn.Linear(10, 10).cuda().to("cuda")
        assert model(x).shape == (10,)
        with torch.cuda.device(0) as nothing:
            assert nothing is None and torch.cuda.device(0).idx == torch.cuda.current_device()
        assert torch._C._cuda_getCurrentRawStream(torch.cuda.current_device()) == 0
        told = torch.cuda.get_device_properties(x.device)
        assert told.multi_processor_count > 0 and (told.major, told.minor) == torch.cuda.get_device_capability()
        for y in ways:
            assert x.is_cuda and y.is_cuda
            double[(1,)](x, y, 10, BLOCK=16)
            torch.cuda.synchronize()
            torch.testing.assert_close(y, 2 * x)
"""


def outcome(tmp_path, project, *arguments, **environment):
    """(passed and failed tests, all that was said) of a project's run."""
    (tmp_path / "test_project.py").write_text(textwrap.dedent(project))
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TILEWRIGHT", "TRITON", "PYTEST"))
    }
    variables |= {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"),
        **environment,
    }
    command = [
        "-m",
        "pytest",
        "-p",
        "xdist",
        "-p",
        "tilewright.tools.pytest_plugin",
        "-rA",
        *arguments,
    ]
    run = fork_server.run(
        command,
        cwd=tmp_path,
        env={**variables, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        timeout=300,
    )
    lines = run.stdout.splitlines()
    return sorted(
        line.partition(" - ")[0]
        for line in lines
        if line.startswith(("PASSED ", "FAILED ", "SKIPPED "))
    ), run.stdout + run.stderr


def results(**failed):
    tests = ["test_careless", *(f"test_double[{again}]" for again in range(3))]
    return sorted(
        f"{'FAILED' if name in failed else 'PASSED'} test_project.py::{name}" for name in tests
    )


def test_kernels_run_on_the_processor(tmp_path):
    found, said = outcome(tmp_path, PROJECT, "--tilewright", EXPECTED="cpu")
    assert found == results(), said


def test_the_reference(tmp_path):
    found, said = outcome(tmp_path, PROJECT, "--tilewright=reference", EXPECTED="reference")
    assert "out-of-bounds" not in said and [line for line in found if "double" in line] == [
        line for line in results() if "double" in line
    ], said


def test_checked_kernels_fail_where_they_leave_their_arrays(tmp_path):
    found, said = outcome(tmp_path, PROJECT, "--tilewright=checked", EXPECTED="reference")
    assert found == results(test_careless=True), said
    assert "careless: out-of-bounds: load outside argument x" in said


def test_tensors_of_a_gpu_lie_on_the_host(tmp_path):
    pytest.importorskip("torch")
    found, said = outcome(tmp_path, TENSORS, "--tilewright=cpu", "--tilewright-host-tensors")
    assert found == ["PASSED test_project.py::test_double"], said


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "start",
    [("-m", "pytest", "--tilewright"), ("-m", "tilewright.compat.triton", "-m", "pytest")],
    ids=["option", "launcher"],
)
def test_projects_that_take_warnings_for_errors(start, tmp_path):
    """With the plugin as it is installed, and in a worker, which has Triton's name answered before
    pytest starts."""
    installed = tmp_path / "tilewright-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: tilewright\nVersion: 1\n")
    (installed / "RECORD").write_text(
        "tilewright/__init__.py,,\ntilewright/tools/pytest_plugin.py,,\n"
    )
    (installed / "entry_points.txt").write_text(
        "[pytest11]\ntilewright = tilewright.tools.pytest_plugin\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "test_project.py").write_text(textwrap.dedent(PROJECT))
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TILEWRIGHT", "TRITON", "PYTEST"))
    }
    variables |= {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
        "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache"),
        "EXPECTED": "cpu",
    }
    run = subprocess.run(
        [sys.executable, *start, "-n", "1"],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0 and "4 passed" in run.stdout and "warning" not in run.stdout, (
        run.stdout + run.stderr
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--tilewright", "test_project.py"),
            (
                "--tilewright takes cpu, reference, checked, not 'test_project.py'; before the "
                "path of a test write --tilewright=cpu"
            ),
        ),
        (("--tilewright-host-tensors",), "--tilewright-host-tensors is said beside --tilewright"),
    ],
)
def test_what_cannot_be_asked(tmp_path, arguments, message):
    found, said = outcome(tmp_path, PROJECT, *arguments)
    assert not found and message in said
