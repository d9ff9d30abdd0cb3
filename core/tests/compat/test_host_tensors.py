"""The GPU that programs see on a machine without one."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")


def test_no_two_answers_are_one_function():
    """PyTorch's compiler, where a program imports it meanwhile, lists the functions of
    ``torch.cuda`` and takes each for one name's."""
    from tilewright.compat.host_tensors import HostTensors

    with HostTensors():
        answers = [
            torch.cuda.synchronize,
            torch.cuda.empty_cache,
            torch.cuda.init,
            torch.cuda.set_device,
            torch.cuda.manual_seed,
        ]
    assert len(set(answers)) == len(answers)


PROGRAM = """
import sys
import torch
import triton
import triton.language as tl

@triton.jit
def double(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets) * 2)

x = torch.ones(16, device="cuda")
double[(1,)](x, BLOCK=16)
print(x.tolist() == [2] * 16, x.device, torch.cuda.is_available(), sys.argv[1:])
"""


@pytest.mark.parametrize("how", [["double.py"], ["-m", "double"], ["-c", PROGRAM]])
def test_a_program_runs_with_tensors_on_the_host(how, tmp_path):
    (tmp_path / "double.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "tilewright.compat.triton", "--host-tensors", *how]
    found = subprocess.run(
        [*command, "a", "--host-tensors"],  # the second is the program's
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "TILEWRIGHT_BACKEND"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert found.stdout == "True cpu True ['a', '--host-tensors']\n", found.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="the program finds a GPU")
def test_without_the_option_the_error_names_it(tmp_path):
    (tmp_path / "double.py").write_text(PROGRAM)
    found = subprocess.run(
        [sys.executable, "-m", "tilewright.compat.triton", "double.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert found.stderr.endswith(
        "  help: without a GPU, let PyTorch create the tensors on the CPU: "
        "python -m tilewright.compat.triton --host-tensors double.py ...\n"
    ), found.stderr
