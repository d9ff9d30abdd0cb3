"""Linking: cached code, rejected code kept for inspection, and resources in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.errors import LoweringError
from tilewright.gpu_host.linking import Linked, is_worker, kept_binary, log_text, rejected
from tilewright.gpu_host.resources import Occupancy, Processor, Usage, described, occupancy
from tilewright.runtime.compiler import worker_server

PROCESSOR = Processor(
    warp=64,
    threads=2048,
    programs=32,
    registers=4 * 512 * 64,
    register_step=8 * 64,
    schedulers=4,
    shared=64 << 10,
    shared_step=512,
    system_shared=0,
)


def test_code_is_linked_once_for_all_it_depends_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    linked: list[bytes] = []

    def ask(source: bytes, *facts: str) -> bytes:
        def link() -> Linked:
            linked.append(source)
            return Linked(source.upper(), "fine", 8)

        return kept_binary("k", source, facts, link)

    assert [
        ask(b"code", "toy", "1"),
        ask(b"code", "toy", "1"),
        ask(b"code", "toy", "2"),
        ask(b"more", "toy", "2"),
    ] == [b"CODE"] * 3 + [b"MORE"]
    assert linked == [b"code", b"code", b"more"]


def test_rejected_code_is_written_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_REPRODUCER_DIR", str(tmp_path / "new"))
    error = rejected("the linker says no", b"\xff code", ".toy")
    (path,) = (tmp_path / "new").iterdir()
    assert (
        isinstance(error, LoweringError) and str(error) == f"the linker says no\nreproducer: {path}"
    )
    assert path.read_bytes() == b"\xff code" and path.suffix == ".toy"


def test_logs_end_at_their_first_zero() -> None:
    assert log_text(bytearray(b" all \xff is well\n\0\0rest")) == "all \ufffd is well"
    assert not is_worker()


def test_workers_of_a_tuning_are_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_server, "serving", True)
    assert is_worker()


@pytest.mark.parametrize(
    ("registers", "shared", "threads", "programs", "limit"),
    [
        (0, 0, 256, 8, "threads"),
        (64, 0, 256, 8, "threads"),
        (65, 0, 256, 7, "registers"),  # 72 each, 7 warps in each quarter
        (129, 0, 256, 3, "registers"),
        (
            129,
            0,
            64,
            12,
            "registers",
        ),  # 136 each: 3 in each quarter, though 15 would fit were they one
        (512, 0, 64, 4, "registers"),
        (512, 0, 512, 0, "registers"),
        (16, 0, 64, 32, "threads"),
        (16, 0, 32, 32, "threads"),
        (16, 16 << 10, 256, 4, "shared memory"),
        (16, (16 << 10) + 1, 256, 3, "shared memory"),
    ],
)
def test_occupancy(registers: int, shared: int, threads: int, programs: int, limit: str) -> None:
    found = occupancy(PROCESSOR, registers, shared, threads)
    assert (found.programs, found.limit) == (programs, limit)
    assert found.share == programs * -(-threads // 64) * 64 / 2048


def test_what_a_program_takes_is_told_in_words() -> None:
    known = described(PROCESSOR, 256, 1024, 64 << 10, Usage(64, "the toy", 16, 8, 12))
    assert known == {
        "threads": 256,
        "shared memory": "1024 bytes of 65536",
        "registers": "64 a thread (by the toy)",
        "stack": "16 bytes a thread",
        "spills": "8 bytes stored, 12 bytes loaded",
        "occupancy": "100%: 8 CTAs per processor, limited by threads",
    }
    assert "stack" not in described(PROCESSOR, 256, 0, 1, Usage(64, "the toy"))
    few = replace(PROCESSOR, programs=4)
    assert described(few, 256, 0, 1, Usage(64, "the toy"))["occupancy"] == (
        "50%: 4 CTAs per processor, limited by the maximum of 4 CTAs"
    )
    assert described(PROCESSOR, 256, 0, 1, "no linker")["registers"] == "not known: no linker"
    assert occupancy(PROCESSOR, 64, 0, 256) == Occupancy(8, 1.0, "threads")
