"""Code objects of both sides executed in the emulator: ours of a kernel, and of one that is
wrong."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from corpus.comparison import Row
from corpus.compilation import Outcome
from corpus.execution import run as execute
from corpus.launches import Argument, Launch
from corpus.verdict import Verdict

import tilewright as tw
import tilewright.language as tl
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import Specialization, compile_kernel
from tilewright.runtime.devices.device_registry import named_target

_THERE = importlib.util.find_spec("rocm") is not None
needs_disassembler = pytest.mark.skipif(
    not _THERE, reason="rocm-bindings-compiler is not installed"
)

LAUNCH = Launch(
    "p", "1", "m", "k", "c",
    (
        Argument("x", "*fp32", shape=(1024,), strides=(1,), aligned=True),
        Argument("out", "*fp32", shape=(1024,), strides=(1,), aligned=True),
        Argument("n", "i32", 1000),
        Argument("BLOCK", "constexpr", 256),
    ),
    {"num_warps": 4},
    (4, 1, 1),
)  # fmt: skip


@tw.jit
def double(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, offsets < n) * 2.0, offsets < n)


@tw.jit
def triple(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, offsets < n) * 3.0, offsets < n)


def compiled(kernel: Any, folder: Path) -> Outcome:
    """The outcome of a kernel for gfx942, with its code in a folder."""
    backend = registry().get("amd")
    types = {"x": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    target = named_target(backend, "gfx942")
    options = {**backend.manifest.options, "num_warps": 4}
    code = compile_kernel(
        Specialization(kernel, types, {"BLOCK": 256}, options=options), backend, target
    ).code
    place = folder / code.name
    place.with_suffix(".amdgcn").write_text(str(code.stages["amdgcn"]))
    place.with_suffix(".hsaco").write_bytes(code.binary)
    facts = {"shared": code.metadata["shared"], "num_warps": 4, "name": code.name}
    return Outcome(code=str(place), facts=facts)


def row(ours: Outcome, theirs: Outcome) -> Row:
    """A row of two outcomes that both compiled."""
    return Row(LAUNCH.id, "gfx942", ours, theirs, Verdict(0.0))


@needs_disassembler
def test_the_same_code_gives_the_same_in_as_many_instructions(tmp_path: Path) -> None:
    one = compiled(double, tmp_path)
    found = execute.execute(LAUNCH, row(one, one))
    assert (found.equal, found.note, found.difference) == (True, "", 0.0)
    assert found.ours == found.theirs > 0
    assert found.ratio == 1.0


@needs_disassembler
def test_a_wrong_result_is_told_by_the_name_of_its_tensor(tmp_path: Path) -> None:
    found = execute.execute(LAUNCH, row(compiled(triple, tmp_path), compiled(double, tmp_path)))
    assert not found.equal
    assert found.note.startswith("out differs by 0.5")
    assert found.ours and found.theirs


@needs_disassembler
def test_rows_run_apart_and_what_cannot_be_passed_is_told(tmp_path: Path) -> None:
    one = compiled(double, tmp_path)
    described = replace(LAUNCH, arguments=(Argument("x", "tensordesc<fp32[64]>"),))
    ok, not_ok = (
        next(iter(execute.execute_all([row(one, one)], [launch]))) for launch in (LAUNCH, described)
    )
    assert ok.equal
    assert not_ok.note == "an argument of type tensordesc<fp32[64]> is not executed"
    assert execute.table([ok, not_ok]).startswith("gfx942: 1 executed, instructions by Triton's")
