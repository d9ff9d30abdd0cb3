"""Every operation's samples run, are clean in the checked mode, and give the same results there."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from tilewright.errors import KernelError
from tilewright.ir import TABLE
from tilewright.reference.checked import CheckedOptions
from tilewright.reference.interpreter import run
from tilewright.testing.op_samples import check_outputs, samples

TARGET_CODE = {"inline_asm", "extern"}


@pytest.mark.parametrize("name", [spec.name for spec in TABLE])
def test_samples_are_clean(name, rng):
    """Overflow is off: samples wrap around on purpose."""
    found = 0
    for sample in samples(name):
        found += 1
        plain = sample.make_arguments(np.random.default_rng(found))
        checked = copy.deepcopy(plain)
        lines: list[str] = []
        checked_lines: list[str] = []
        if name in TARGET_CODE:
            with pytest.raises(KernelError, match="runs no code of a target's own"):
                run(sample.module, plain, sample.grid)
            continue
        run(sample.module, plain, sample.grid, printer=lines.append)
        run(sample.module, checked, sample.grid, checked=CheckedOptions(overflow=False), printer=checked_lines.append)
        check_outputs(sample, plain, checked)
        # Addresses differ between copies of the arguments.
        assert len(lines) == len(checked_lines)
        assert [line for line in lines if "address: 0x" not in line] == [line for line in checked_lines if "address: 0x" not in line]
    assert found
