"""Every operation over its samples' dtypes on the GPU, for several numbers of warps: equal to the
reference."""

from __future__ import annotations

import re

import numpy as np
import pytest
from gpu_support import gpu_is_there, run_on_gpu

from tilewright.errors import LoweringError
from tilewright.ir import TABLE
from tilewright.reference.interpreter import run
from tilewright_conformance.op_samples import check_outputs, samples

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_is_there(), reason="there is no NVIDIA GPU here"),
]

#: What is printed, or names addresses, is compared by its own tests; the target's own code has its
#: own meaning.
_APART = {"inline_asm", "extern", "print"}


@pytest.mark.parametrize("num_warps", [1, 4, 8])
@pytest.mark.parametrize("name", [spec.name for spec in TABLE if spec.name not in _APART])
def test_gpu_agrees_with_the_reference(name: str, num_warps: int) -> None:
    failures, count = [], 0
    for number, sample in enumerate(samples(name)):
        if not sample.runnable:
            continue
        expected, found = (sample.make_arguments(np.random.default_rng(number)) for _ in range(2))
        with np.errstate(all="ignore"):
            run(sample.module, expected, sample.grid, printer=lambda *_: None)
        try:
            run_on_gpu(sample.module, found, sample.grid, num_warps=num_warps)
            check_outputs(sample, expected, found)
        except LoweringError as error:
            if "powers of two" not in str(error):
                failures.append(f"{sample.name}: {error}")
        except AssertionError as error:
            failures.append(str(error))
        count += 1
    assert not failures, f"{len(failures)} of {count} samples:\n" + "\n".join(failures[:20])
    assert count, f"{name} has no samples"


def test_print(capfd: pytest.CaptureFixture[str]) -> None:
    """Return a kernel's output without the addresses of this run."""

    def lines(text: str) -> list[str]:
        return sorted(re.sub(r"0x[0-9a-f]{16}", "address", text).splitlines())

    for number, sample in enumerate(samples("print")):
        expected, found = (sample.make_arguments(np.random.default_rng(number)) for _ in range(2))
        capfd.readouterr()
        with np.errstate(all="ignore"):
            run(sample.module, expected, sample.grid)
        printed = lines(capfd.readouterr().out)
        try:
            run_on_gpu(sample.module, found, sample.grid)
        except LoweringError as error:
            assert "powers of two" in str(error)
            continue
        assert lines(capfd.readouterr().out) == printed, sample.name
