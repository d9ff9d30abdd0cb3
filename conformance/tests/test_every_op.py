"""Every operation of the table, over its samples' dtypes and attributes: the CPU backend agrees with the reference interpreter, without passes before it.

The suite runs all samples, after the passes; this runs one in four."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from tilewright.ir import TABLE
from tilewright.reference.interpreter import run
from tilewright_conformance.catalogue import catalogue
from tilewright_conformance.samples import check_outputs, samples
from tilewright_conformance.session import Session, Subject

#: Operations that only a target can give a meaning: they are tested with the backend that has it.
TARGET_CODE = {"inline_asm", "extern"}


NAMES = [spec.name for spec in TABLE if spec.name not in TARGET_CODE]


def lines(printed: str) -> list[str]:
    """What a kernel printed, in any order of the programs, without the addresses of this run's arrays."""
    return sorted(re.sub(r"address: 0x[0-9a-f]{16}", "address", printed).splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_cpu_agrees_with_the_reference(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    count, session = 0, Session(Subject("cpu"), "every operation")
    for sample in itertools.islice(samples(name), 0, None, 4):
        expected, found = (sample.make_arguments(np.random.default_rng(count)) for _ in range(2))
        with np.errstate(all="ignore"):
            run(sample.module, expected, sample.grid)
        printed = lines(capsys.readouterr().out)
        session.run_module(sample.module, found, sample.grid, with_passes=False)
        assert lines(capsys.readouterr().out) == printed
        check_outputs(sample, expected, found)
        count += 1
    assert count, f"{name} has no samples"


def test_the_samples_are_cases_of_the_suite() -> None:
    ids = {case.id.partition("/")[2] for case in catalogue() if case.source == "the reference interpreter"}
    assert [sample.name for name in NAMES for sample in samples(name) if sample.name not in ids] == []
