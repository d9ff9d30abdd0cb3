"""Every operation of the table, over its samples' dtypes and attributes: the CPU backend agrees
with the reference interpreter, without passes before it.

The suite runs all samples, after the passes; this runs one in four."""

from __future__ import annotations

import faulthandler
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from tilewright.ir import TABLE
from tilewright.reference.interpreter import run
from tilewright_conformance.op_samples import check_outputs, samples
from tilewright_conformance.suite.catalogue import catalogue
from tilewright_conformance.suite.session import Session, Subject

#: Operations that only a target can give a meaning: they are tested with the backend that has it.
TARGET_CODE = {"inline_asm", "extern"}


NAMES = [spec.name for spec in TABLE if spec.name not in TARGET_CODE]


def lines(printed: str) -> list[str]:
    """Return a kernel's output, in any order of the programs, without this run's addresses."""
    return sorted(re.sub(r"address: 0x[0-9a-f]{16}", "address", printed).splitlines())


def framed(name: str, run: Callable[[], Any]) -> None:
    """Call ``run`` in a frame of that name. Should the process crash in it, Python prints the names
    of the frames, whoever has its output, and nothing else."""

    def frame() -> None:
        run()

    code = frame.__code__.replace(co_name=name, co_qualname=name)
    FunctionType(code, globals(), closure=frame.__closure__)()


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", NAMES)
def test_cpu_agrees_with_the_reference(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    count, session = 0, Session(Subject("cpu"), "every operation")
    for sample in itertools.islice(samples(name), 0, None, 4):
        expected, found = (sample.make_arguments(np.random.default_rng(count)) for _ in range(2))
        with np.errstate(all="ignore"):
            run(sample.module, expected, sample.grid)
        printed = lines(capsys.readouterr().out)
        framed(
            sample.name,
            lambda: session.run_module(sample.module, found, sample.grid, with_passes=False),
        )
        assert lines(capsys.readouterr().out) == printed
        check_outputs(sample, expected, found)
        count += 1
    assert count, f"{name} has no samples"


def test_a_crash_is_told_with_the_name_of_the_sample(tmp_path: Path) -> None:
    """By what Python writes where a process crashes, asked for without a crash. (It writes 100
    threads at most, and other tests have left some.)"""
    with (tmp_path / "told").open("w+") as told:
        framed("add/f32/128", lambda: faulthandler.dump_traceback(told, all_threads=False))
        told.seek(0)
        assert " in add/f32/128\n" in told.read()


def test_the_samples_are_cases_of_the_suite() -> None:
    ids = {
        case.id.partition("/")[2]
        for case in catalogue()
        if case.source == "the reference interpreter"
    }
    assert [
        sample.name for name in NAMES for sample in samples(name) if sample.name not in ids
    ] == []
