"""AMD properties that programs written for Triton read: the backend's name, options and stages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import triton
import triton.language as tl
from triton import knobs
from triton.backends import backends
from triton.backends.amd.compiler import HIPOptions
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def fused(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + at, tl.load(x + at) * 2 + 1)


assert backends["amd"].compiler.supports_target(GPUTarget("hip", "gfx942", 64))
assert not backends["amd"].compiler.supports_target(GPUTarget("cuda", 90, 32))
options = HIPOptions(waves_per_eu=2)
assert (options.waves_per_eu, options.num_stages, options.kpack, options.enable_fp_fusion) == (2, 2, 1, False)
assert knobs.amd.use_buffer_ops is True
source = ASTSource(fused, {"x": "*fp32", "y": "*fp32", "N": "constexpr"}, {"N": 256})
given = {"waves_per_eu": 2, "matrix_instr_nonkdim": 16, "kpack": 2, "schedule_hint": "attention"}
for arch, lanes in (("gfx942", 64), ("gfx1100", 32)):
    made = triton.compile(source, target=GPUTarget("hip", arch, lanes), options=given)
    assert f"amdhsa--{arch}" in made.asm["amdgcn"] and made.asm["hsaco"][:4] == b"\\x7fELF"
    assert made.metadata.waves_per_eu == 2 and made.metadata.matrix_instr_nonkdim == 16
print("all right")
"""


def test_a_program_for_triton_finds_its_amd_backend(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tilewright.compat.triton", str(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "all right", (
        done.stdout + done.stderr
    )
