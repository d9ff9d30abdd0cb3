"""Triton's code objects for AMD GPUs, executed in the emulator and compared with NumPy.

Hardware has run code of this compiler, so the emulator must execute it correctly too. These tests
do not run by default, because they need a Python with Triton:

    pip install --no-deps --target FOLDER triton==3.6.0 TILEWRIGHT_REAL_TRITON=FOLDER python -m
    pytest backends/amd/emulator/tests/test_triton_code_objects.py

Triton runs in a separate process, because ``triton`` may be Tilewright in this one. It needs no GPU
to compile.
"""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from triton_cases import ARCHS, CASES, Case

from tilewright_amd_emulator import Arena, disassembled, load, run
from tilewright_amd_emulator.engine.kernel_arguments import packed, sizes_of_arguments

FOLDER = os.environ.get("TILEWRIGHT_REAL_TRITON", "")
_THERE = (
    bool(FOLDER)
    and importlib.util.find_spec("rocm") is not None
    and importlib.util.find_spec("rocm.bindings.llvm") is not None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not _THERE,
        reason=(
            "TILEWRIGHT_REAL_TRITON names no folder with Triton, or rocm-bindings-compiler is "
            "not installed"
        ),
    ),
]


def made(name: str, arch: str) -> Case:
    """A case, the same in every process."""
    return CASES[name](np.random.default_rng(zlib.crc32(name.encode())), arch)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of all code objects, and what Triton says of each."""
    folder = tmp_path_factory.mktemp("code_objects")
    jobs = []
    for arch in ARCHS:
        for name in CASES:
            one = made(name, arch)
            jobs.append(
                [f"{arch}-{name}", one.kernel, arch, one.signature, one.constants, one.options]
            )
    environment = {**os.environ, "PYTHONPATH": FOLDER, "TRITON_CACHE_DIR": str(folder / "cache")}
    environment.pop("TILEWRIGHT_TRITON", None)
    command = [sys.executable, str(Path(__file__).with_name("triton_compile.py")), str(folder)]
    done = subprocess.run(
        command,
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return folder, json.loads(done.stdout.splitlines()[-1])["kernels"]


@pytest.mark.parametrize("schedule", ["lockstep", "random"])
@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("arch", ARCHS)
def test_triton_code_gives_what_numpy_gives(
    arch: str, name: str, schedule: Any, compiled: tuple[Path, dict[str, Any]]
) -> None:
    folder, told = compiled
    one, about = made(name, arch), told[f"{arch}-{name}"]
    assert "error" not in about, about["error"]
    listing = (folder / f"{arch}-{name}.s").read_text()
    program = load(disassembled((folder / f"{arch}-{name}.hsaco").read_bytes()))
    arena = Arena(unaligned=True)
    values: list[bytes | int] = []
    for value in one.arguments:
        if isinstance(value, np.ndarray):
            values.append(arena.put(np.ascontiguousarray(value).view(np.uint8)))
        else:
            values.append(struct.pack("<f", value) if isinstance(value, float) else value)
    places = list(values)
    # behind them are memory for kernels that ask for some, and for profilers: there is none
    values += [0] * (len(sizes_of_arguments(listing)) - len(values))
    own_memory = program.kernel(about["kernel"]).directives.get("group_segment_fixed_size")
    run(
        program, about["kernel"], grid=one.grid, threads=program.wave_size * about["num_warps"],
        arguments=packed(listing, values, one.grid), arena=arena,
        dynamic_lds=0 if own_memory else about["shared"], schedule=schedule, seed=1,
    )  # fmt: skip
    for number, expected in one.expected.items():
        before = one.arguments[number]
        address = places[number]
        assert isinstance(address, int)
        found = arena.get(address, np.uint8, before.nbytes).view(before.dtype).reshape(before.shape)
        if one.tolerance:
            wide, scale = expected.astype(np.float64), np.abs(expected.astype(np.float64)).max()
            np.testing.assert_allclose(
                found.astype(np.float64),
                wide,
                rtol=one.tolerance,
                atol=one.tolerance * scale,
                err_msg=f"output {number}",
            )
        else:
            np.testing.assert_array_equal(
                found,
                expected.astype(before.dtype).reshape(before.shape),
                err_msg=f"output {number}",
            )
