"""Compare our AMDGPU code with Triton's for the same sources, without a GPU.

Prints registers, LDS, spills and the hot loop.

    python benchmarks/amd/static_quality.py --triton PYTHON [--arch gfx942] [--keep FOLDER]
    [KERNEL...]

PYTHON is an interpreter that has Triton installed; without it, only our figures are printed. The
ratio is our instructions of the hot loop for the same work divided by Triton's.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "backends" / "amd" / "tests")]
from amd_support import compiled, example
from listings import Figures, figures

SIZES = ", ".join(
    f"{name}=i32:16" for name in ("M", "N", "K", "stride_am", "stride_bk", "stride_cm")
)
UNITS = {"stride_ak": 1, "stride_bn": 1, "stride_cn": 1}
BLOCKS = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "ACTIVATION": ""}
NORM = (
    "x_ptr=*fp16:16, out_ptr=*fp16:16, weight_ptr=*fp16:16, bias_ptr=*fp16:16, "
    "mean_ptr=*fp32:16, rstd_ptr=*fp32:16, stride=i32:16, n=i32:16, eps=fp32"
)
HEADS = (
    "q_ptr=*fp16:16, k_ptr=*fp16:16, v_ptr=*fp16:16, out_ptr=*fp16:16, lse_ptr=*fp32:16, "
    "scale=fp32, length=i32:16"
)


def product(kind: str) -> tuple[str, str, str, dict[str, Any]]:
    return (
        "matmul",
        "matmul_kernel",
        f"a_ptr=*{kind}:16, b_ptr=*{kind}:16, c_ptr=*fp16:16, {SIZES}",
        {**UNITS, **BLOCKS},
    )


def kernels(arch: str) -> dict[str, tuple[str, str, str, dict[str, Any]]]:
    """Return the kernels by name: (module of examples/kernels, kernel, signature, constants)."""
    fp8 = "fp8e4b8" if arch == "gfx942" else "fp8e5"
    return {
        "vector add": (
            "vector_add",
            "add_kernel",
            "x_ptr=*fp32:16, y_ptr=*fp32:16, out_ptr=*fp32:16, n=i32:16",
            {"BLOCK": 1024},
        ),
        "softmax": (
            "softmax",
            "softmax_kernel",
            (
                "x_ptr=*fp32:16, out_ptr=*fp32:16, x_stride=i32:16, out_stride=i32:16, "
                "n_columns=i32:16"
            ),
            {"BLOCK": 1024},
        ),
        "layer norm": ("layer_norm", "layer_norm_kernel", NORM, {"BLOCK": 1024}),
        "matmul f16": product("fp16"),
        "matmul fp8": product(fp8),
        "attention": (
            "attention",
            "attention_kernel",
            HEADS,
            {"CAUSAL": False, "BLOCK_M": 128, "BLOCK_N": 64, "HEAD": 64},
        ),
    }


def ours(arch: str, name: str, keep: Path | None) -> Figures:
    module, kernel, signature, constants = kernels(arch)[name]
    code = compiled(getattr(example(module), kernel), signature, arch, constants)
    listing = code.stages["amdgcn"]
    assert isinstance(listing, str)
    _keep(keep, arch, name, "ours", listing)
    return figures(listing, int(code.metadata["shared"]))


def theirs(python: str, arch: str, names: list[str], keep: Path | None) -> dict[str, Figures]:
    """Return Triton's assembly, compiled in a separate process."""
    wanted = {
        name: (str(ROOT / "examples" / "kernels" / f"{row[0]}.py"), *row[1:])
        for name, row in kernels(arch).items()
        if name in names
    }
    done = subprocess.run(
        [python, str(HERE / "triton_listings.py"), arch],
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"Triton's side failed:\n{done.stderr[-3000:]}")
    found = {}
    for name, (listing, shared) in json.loads(done.stdout.splitlines()[-1]).items():
        _keep(keep, arch, name, "triton", listing)
        one = figures(listing)
        found[name] = figures(listing, 0 if one.lds else shared)
    return found


def _keep(folder: Path | None, arch: str, name: str, whose: str, listing: str) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{arch}-{name.replace(' ', '-')}-{whose}.s").write_text(listing)


def line(name: str, whose: str, one: Figures, rest: str = "") -> str:
    numbers = (
        f"{one.vector:6} {one.accumulators:5} {one.scalar:5} {one.lds:7} {one.spilled:7} "
        f"{one.loop:6} {one.matrix:7} {one.share:7.1%}"
    )
    return f"{name:12} {whose:7} {numbers} {rest}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="KERNEL")
    parser.add_argument("--triton", metavar="PYTHON")
    parser.add_argument("--arch", action="append", default=[])
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave the assembly there")
    options = parser.parse_args()
    for arch in options.arch or ["gfx942", "gfx1100"]:
        names = options.names or list(kernels(arch))
        beside = theirs(options.triton, arch, names, options.keep) if options.triton else {}
        print(f"{arch}\n{'':20}   VGPR  AGPR  SGPR     LDS  spilled   loop  matrix   share  ratio")
        ratios = []
        for name in names:
            mine = ours(arch, name, options.keep)
            if name not in beside:
                print(line(name, "ours", mine))
                continue
            other = beside[name]
            ratios.append((mine.loop / mine.work) / (other.loop / other.work))
            print(line(name, "ours", mine, f"{ratios[-1]:6.2f}"))
            print(line("", "Triton", other))
        if ratios:
            print(
                f"geometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f}, most "
                f"{max(ratios):.2f}\n"
            )


if __name__ == "__main__":
    main()
