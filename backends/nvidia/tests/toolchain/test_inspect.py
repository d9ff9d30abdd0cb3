"""``tilewright inspect`` for absent GPUs: layouts, costs and resources."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from tilewright.gpu_host.resources import occupancy
from tilewright.plugins.manifest import CodeObject
from tilewright.simt.compile import STAGES
from tilewright.tools import cli
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.toolchain import linking, resources
from tilewright_nvidia.toolchain.resources import processor, registers_of
from tilewright_nvidia.toolchain.sass import find_nvdisasm

KERNELS = Path(__file__).resolve().parents[1] / "gpu_kernels.py"
MATMUL = "*fp16:16, *fp16:16, *fp16:16, i32:16, i32:16, i32:16"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TILEWRIGHT_BACKEND", raising=False)


def inspected(
    capsys: pytest.CaptureFixture[str],
    kernel: str,
    signature: str,
    constants: str,
    *more: str,
    arch: str = "sm_90a",
) -> str:
    command = [
        "inspect",
        f"{KERNELS}:{kernel}",
        "--backend",
        "nvidia",
        "--arch",
        arch,
        "--signature",
        signature,
        "--constants",
        constants,
        *more,
    ]
    assert cli.main(command) == 0
    return capsys.readouterr().out


def test_a_target_is_named_where_there_is_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    text = inspected(capsys, "matmul", MATMUL, "BM=64,BN=64,BK=32,GROUP=8", arch="sm_80")
    headings = re.findall(r"^## (\w+)", text, re.M)
    assert [
        name
        for name in headings
        if name in ("tileir", "simt", "layouts", "llir", "ptx", "resources")
    ] == [
        "tileir",
        "simt",
        "layouts",
        "llir",
        "ptx",
        "resources",
    ]
    assert ".target sm_80" in text
    assert re.search(r"^shared memory +\d+ bytes of 166912$", text, re.M)
    assert re.search(r"^registers +\d+ a thread \(by ptxas\)$", text, re.M)
    assert re.search(r"^spills +0 bytes stored, 0 bytes loaded$", text, re.M)
    assert re.search(
        (
            r"^occupancy +\d+%: \d+ CTAs? per SM, limited by (registers|shared "
            r"memory|threads|the maximum of \d+ CTAs)$"
        ),
        text,
        re.M,
    )


def test_layouts_conversions_and_copies_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    text = inspected(
        capsys, "matmul", MATMUL, "BM=64,BN=64,BK=32,GROUP=8", "--stage", "layouts", arch="sm_80"
    )
    assert text.startswith("matmul: 4 warps, 128 threads, ")
    assert re.search(
        r"L\d+ 64x32: a thread has 2x8 \(8 in a row along axis 1\), lanes span 8x4, warps span 4x1",
        text,
    )
    assert re.search(r"simt.convert .*shuffles and \d+ selects a thread", text)
    assert re.search(
        r"simt.copy_start .*: L\d+; 2 asynchronous copies \(cp.async\) of 16 bytes a thread", text
    )
    assert "no missed optimizations" in text


def test_stages_that_are_run_by_name_give_what_is_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One after the other, each on the text of the one before."""
    constants = "BM=64,BN=64,BK=32,GROUP=8"
    text = inspected(capsys, "matmul", MATMUL, constants, "--stage", "tileir", arch="sm_80")
    path = tmp_path / "matmul.tileir"
    for stage in STAGES:
        path.write_text(text)
        assert (
            cli.main(
                [
                    "opt",
                    str(path),
                    "--target",
                    "nvidia:sm_80",
                    "--passes",
                    stage.name,
                    "--options",
                    "num_warps=4,num_stages=3",
                ]
            )
            == 0
        )
        text = capsys.readouterr().out
    assert "simt.copy_start" in text and text == inspected(
        capsys, "matmul", MATMUL, constants, "--stage", "simt", arch="sm_80"
    )


def test_what_leaves_the_fast_path_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    text = inspected(
        capsys,
        "matmul",
        "*fp32, *fp32, *fp32, i32, i32, i32",
        "BM=64,BN=64,BK=32,GROUP=8",
        "--stage",
        "layouts",
        arch="sm_75",
    )
    assert "no matrix instruction for tile<64x32xf32>" in text
    assert "load moves 4 bytes at once instead of 16" in text


def test_without_ptxas_the_rest_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linking, "find_ptxas", lambda: None)
    text = inspected(capsys, "add", "*fp32:16, *fp32:16, *fp32:16, i32:16", "BLOCK=1024")
    assert re.search(r"^registers +not known: ptxas was not found", text, re.M)


def test_a_target_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.main(
            [
                "inspect",
                f"{KERNELS}:add",
                "--backend",
                "nvidia",
                "--arch",
                "sm_20",
                "--signature",
                "*fp32",
                "--constants",
                "BLOCK=1",
            ]
        )
        == 2
    )
    assert "no target 'sm_20'; it has sm_75" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arch", "registers", "shared", "threads", "programs", "share", "limit"),
    [
        ("sm_80", 64, 0, 256, 4, 0.5, "registers"),
        ("sm_80", 32, 0, 256, 8, 1.0, "threads"),
        ("sm_80", 33, 0, 256, 6, 0.75, "registers"),
        ("sm_80", 255, 0, 128, 2, 0.125, "registers"),
        ("sm_80", 16, 0, 32, 32, 0.5, "programs"),
        ("sm_86", 16, 0, 32, 16, 1 / 3, "programs"),
        ("sm_90a", 32, 100 << 10, 128, 2, 0.125, "shared memory"),
        ("sm_80", 32, 48 << 10, 128, 3, 3 * 128 / 2048, "shared memory"),
        ("sm_75", 32, 32 << 10, 128, 2, 0.25, "shared memory"),
    ],
)
def test_occupancy(
    arch: str, registers: int, shared: int, threads: int, programs: int, share: float, limit: str
) -> None:
    """By NVIDIA's occupancy calculator."""
    found = occupancy(processor(arch), registers, shared, threads)
    assert (found.programs, found.limit) == (programs, limit)
    assert found.share == pytest.approx(share)


def test_what_the_driver_said_is_taken_before_ptxas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "assemble", lambda *arguments: pytest.fail("ptxas was asked"))
    log = (
        "ptxas info    : 8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads\n"
        "ptxas info    : Used 40 registers"
    )
    metadata = {"num_warps": 4, "shared": 1024, "link_log": log}
    code = CodeObject("kernel", b"", {"ptx": ""}, metadata)
    found = resources.resources(code, target_of(ARCHITECTURES["sm_90a"]))
    assert found["registers"] == "40 a thread (by the driver)"
    assert found["spills"] == "4 bytes stored, 12 bytes loaded"
    assert registers_of("nothing") is None
    assert dataclasses.asdict(occupancy(processor("sm_90a"), 40, 1024, 128))["programs"] == 12


@pytest.mark.skipif(find_nvdisasm() is None, reason="nvdisasm is not installed")
def test_the_machine_code_and_its_innermost_loop_are_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = inspected(capsys, "matmul", MATMUL, "BM=64,BN=64,BK=32,GROUP=8", arch="sm_80")
    (loop,) = re.findall(r"^innermost loop +(.*)$", text, re.M)
    assert re.match(
        (
            r"\d+ instructions; 1 barrier; \d+ accesses of shared memory; asynchronous copies: "
            r"\d+ cp\.async of 16 bytes; matrix instructions: 16 HMMA"
        ),
        loop,
    )
    assert re.search(
        r"^machine code +\d+ instructions; .*global stores: \d+ of 16 bytes", text, re.M
    )


def test_machine_code_that_cannot_be_read_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright_nvidia.toolchain.sass.find_nvdisasm", lambda: None)
    text = inspected(capsys, "matmul", MATMUL, "BM=64,BN=64,BK=32,GROUP=8", arch="sm_80")
    assert re.search(
        r"^machine code +not known: nvdisasm was not found: pip install nvidia-cuda-nvdisasm$",
        text,
        re.M,
    )
