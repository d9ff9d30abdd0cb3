"""Run samples of the catalogue on an emulated AMD GPU, and compare them with their references.

    python kernels/tests/emulated_samples.py gfx942 float32 [NAME ...]

Forward, on arrays whose rows are apart, and backward. Names are those of samples; all but wide ones
if there is none. Prints a line for each sample, and ends with status 1 where one differs, reads or
writes outside of its arrays, or executes nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

#: Instructions of a batch of waves: the samples execute some 300,000 at most.
_LIMIT = 1 << 24


def check(sample: Any, dtype: str) -> None:
    """Check a sample's results and gradients on PyTorch's tensors.

    Raises:
        AssertionError: they differ from the reference's.
    """
    import checks

    tolerance = checks.TOLERANCES[dtype] * sample.tolerance
    given = (sample.function, sample.reference, sample.arrays, sample.settings)
    options: dict[str, Any] = {"own": sample.own, "dtype": dtype}
    options |= {"rtol": tolerance, "atol": tolerance}
    layouts = ("rows",) if sample.any_strides else ("contiguous",)
    checks.check_operation(
        *given, frameworks=("torch",), layouts=layouts, with_out=False, **options
    )
    if sample.wrt:
        checks.check_gradients(*given, wrt=sample.wrt, layouts=("contiguous",), **options)


def main(target: str, dtype: str, names: list[str]) -> int:
    """Run samples, and return how many fail."""
    os.environ["TILEWRIGHT_BACKEND"] = "amd"
    import torch  # noqa: F401  (tensors are shared with the device once it is imported)
    from catalogue import SAMPLES

    from tilewright_amd_emulator.hip.emulation import emulate
    from tilewright_amd_emulator.hip.host_arrays import host_arrays

    samples = [SAMPLES[each] for each in names] or [
        each for each in SAMPLES.values() if not each.is_wide
    ]
    device, failures = emulate(target, shared=True, limit=_LIMIT), 0
    with host_arrays(device):
        for sample in samples:
            if dtype not in sample.dtypes:
                continue
            before, said = device.covered.total(), "right"
            try:
                check(sample, dtype)
            except Exception as error:  # report it, and continue
                said = f"{type(error).__name__}: {error}"
            executed = device.covered.total() - before
            if device.error is not None:
                said, device.error = f"{said}; {device.error}", None
            if said == "right" and not executed:
                said = "executes nothing"
            failures += said != "right"
            print(f"{target} {dtype} {sample.name}: {executed} instructions, {said}", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(int(main(sys.argv[1], sys.argv[2], sys.argv[3:]) > 0))
