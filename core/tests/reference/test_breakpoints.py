"""Breakpoints in kernels: the debugger sees the variables of the function they stand in, by
name."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import fork_server
import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import CompilationError
from tilewright.plugins.manifest import Capabilities, Target

PROGRAM = """
import numpy as np
import tilewright as tw
import tilewright.language as tl


@tw.jit
def doubled(v, weight):
    pair = (v * 2, (weight, MODE))
    if tl.program_id(0) == 1:
        breakpoint()
    return pair[0]


@tw.jit
def scale_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    narrow = x.to(tl.bfloat16)
    total = 0.0
    for i in range(2):
        total += tl.sum(x)
        breakpoint()
    tl.store(out_ptr + offsets, doubled(x, 3), mask=offsets < n)


MODE = tl.constexpr("fast")
x = np.arange(6, dtype=np.float32)
out = np.zeros_like(x)
with tw.backend("reference"):
    scale_kernel[(2,)](x, out, x.size, BLOCK=4)
print(out.tolist())
"""


def debugged(
    tmp_path: Path, commands: list[str], program: str = PROGRAM, **environment: str
) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "kernels.py"
    file.write_text(program)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONBREAKPOINT"}
    text = "".join(f"{command}\n" for command in commands)
    return fork_server.run(
        [str(file)],
        input=text,
        timeout=600,
        env={**kept, **environment},
    )


def answers(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the debugger's answer to each command."""
    return [part.strip() for part in done.stdout.split("(Pdb)")[1:]]


def test_the_debugger_prints_tiles_and_numbers_by_name(tmp_path: Path) -> None:
    done = debugged(
        tmp_path,
        [
            "p x",
            "p x.max(), n, BLOCK, i, total, program_id",
            "p narrow",
            "p offsets.shape",
            "x[0] = 1",
            "c",
            "p total",
            *"ccccc",
        ],
    )
    assert done.returncode == 0, done.stderr
    found = answers(done)
    assert found[0] == "array([0., 1., 2., 3.], dtype=float32)"
    assert found[1] == "(np.float32(3.0), 6, 4, 0, 6.0, (0, 0, 0))".replace(
        "np.float32(3.0)", repr(np.float32(3))
    )
    assert found[2] == "array([0., 1., 2., 3.], dtype=float32)"
    assert found[3] == "(4,)"
    assert "read-only" in found[4]
    assert found[6] == "12.0"
    assert done.stdout.endswith("[0.0, 2.0, 4.0, 6.0, 8.0, 10.0]\n")


def test_a_program_is_followed_to_its_end_and_every_step_goes_to_the_next_breakpoint(
    tmp_path: Path,
) -> None:
    done = debugged(tmp_path, ["n", "s", "r", "c", "p pair", "c"])
    assert done.returncode == 0, done.stderr
    stops = [
        line.rpartition("breakpoint in ")[2]
        for line in done.stdout.splitlines()
        if "breakpoint in " in line
    ]
    first, second = "scale_kernel, program (0, 0, 0)", "scale_kernel, program (1, 0, 0)"
    assert stops == [first, first, second, second, "doubled, program (1, 0, 0)"]
    assert answers(done)[4] == "(array([ 8., 10.,  0.,  0.], dtype=float32), (3, 'fast'))"
    assert "kernels.py(" in done.stdout
    assert "scale_kernel()" in done.stdout


def test_checked_mode_stops_too(tmp_path: Path) -> None:
    program = PROGRAM.replace('tw.backend("reference")', 'tw.backend("reference", checked=True)')
    done = debugged(tmp_path, ["c", "c", "p x", *"ccc"], program)
    assert done.returncode == 0, done.stderr
    assert answers(done)[2] == "array([4., 5., 0., 0.], dtype=float32)"


def test_quitting_ends_the_launch(tmp_path: Path) -> None:
    done = debugged(tmp_path, ["q"])
    assert done.returncode == 1
    assert done.stderr.endswith("BdbQuit\n")


def test_the_debugger_that_the_user_has_chosen_is_called(tmp_path: Path) -> None:
    (tmp_path / "chosen.py").write_text(
        "import sys\ndef look():\n    print('chosen', sys._getframe(1).f_locals['program_id'])\n"
    )
    done = debugged(
        tmp_path,
        [],
        PYTHONBREAKPOINT="chosen.look",
        PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("chosen (") == 5
    assert debugged(tmp_path, [], PYTHONBREAKPOINT="0").stdout.endswith(
        "[0.0, 2.0, 4.0, 6.0, 8.0, 10.0]\n"
    )


@tw.jit
def stopping_kernel(x_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    breakpoint()
    tl.store(x_ptr + tl.arange(0, BLOCK), x)


def compiled(kernel: object, **constants: int) -> CompilationError:
    from tilewright.frontend import compile_function
    from tilewright.language.options import Options

    target = Target(
        "small", "one", kind="cpu", capabilities=Capabilities(dtypes=frozenset({"f32", "i32"}))
    )
    with pytest.raises(CompilationError) as caught:
        compile_function(
            kernel,
            {"x_ptr": "*fp32", **dict.fromkeys(constants, "constexpr")},
            constants,
            None,
            Options(target=target),
        )  # type: ignore[arg-type]
    return caught.value


def test_a_compiled_kernel_refuses_and_says_what_to_do() -> None:
    text = str(compiled(stopping_kernel, BLOCK=4))
    assert "breakpoint() stops no compiled kernel, and backend 'small' compiles kernels" in text
    assert "    breakpoint()\n" in text
    assert 'with tilewright.backend("reference"):' in text
    assert "TILEWRIGHT_BACKEND=reference" in text


def test_set_trace_is_spelled_breakpoint(tmp_path: Path) -> None:
    done = debugged(
        tmp_path, [], "import pdb\n" + PROGRAM.replace("breakpoint()", "pdb.set_trace()")
    )
    assert "set_trace is a plain Python function: a kernel cannot call it" in done.stderr
    assert "help: write breakpoint()" in done.stderr
