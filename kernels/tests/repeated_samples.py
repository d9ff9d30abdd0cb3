"""Repeat samples of the catalogue with warm caches into poisoned memory, and compare the bits.

    python kernels/tests/repeated_samples.py --device cuda
    python kernels/tests/repeated_samples.py --slice 2/8 --repeats 5 softmax matmul

Each sample runs forward and backward on arrays whose rows are apart. All memory that operations
allocate is filled with NaN or the largest integer first. Prints a line for each sample, and ends
with status 1 where a result differs from the reference in float64, or from that of the first run.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parent))

import checks
import torch
from catalogue import SAMPLES, Sample

from tilewright_kernels.operations.frameworks import TORCH


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Fill the memory that operations allocate with NaN or the largest integer."""
    allocate = TORCH.empty

    def empty(shape: Any, dtype: Any, beside: Any) -> Any:
        found = allocate(shape, dtype, beside)
        is_float = found.is_floating_point()
        return found.fill_(torch.nan if is_float else torch.iinfo(found.dtype).max)

    with patch.object(TORCH, "empty", empty):
        yield


def on_device(value: Any, device: str, wanted: bool = False) -> Any:
    """Return tensors on a device, with the strides that they have, and NaN between elements."""

    def moved(tensor: Any) -> Any:
        size = tensor.untyped_storage().nbytes() // tensor.element_size()
        memory = torch.empty(size, dtype=tensor.dtype, device=device)
        memory.view(torch.uint8).fill_(255 if tensor.is_floating_point() else 0)
        found = memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        with torch.no_grad():
            found.copy_(tensor)
        return found.detach().requires_grad_(wanted)

    if value is None:
        return None
    return [moved(each) for each in value] if isinstance(value, list) else moved(value)


def results_of(sample: Sample, given: dict[str, Any], cotangents: list[Any]) -> list[Any]:
    """Run a sample forward and, where it has gradients, backward: results, then gradients."""
    for name in sample.wrt:
        given[name].grad = None
    found = sample.function(**given, **sample.settings, **sample.own)
    found = list(found) if isinstance(found, (tuple, list)) else [found]
    if not sample.wrt:
        return found
    tracked = [each for each in found if each.requires_grad]
    if not cotangents:
        generator = torch.Generator().manual_seed(0)
        cotangents += [
            torch.randn(each.shape, generator=generator).to(each.device, each.dtype)
            for each in tracked
        ]
    gradients = torch.autograd.grad(tracked, [given[each] for each in sample.wrt], cotangents)
    return [*(each.detach() for each in found), *gradients]


def expected_of(sample: Sample, dtype: str, cotangents: list[Any]) -> list[Any]:
    """Return the reference's results and gradients in float64."""
    typed = {name: checks.rounded(each, dtype) for name, each in sample.arrays.items()}
    exact = {name: checks.doubled(each) for name, each in typed.items()}
    found = sample.reference(**exact, **sample.settings)
    expected = list(found) if isinstance(found, (tuple, list)) else [found]
    if not sample.wrt:
        return expected
    tensors = {name: checks.to_framework(each, "torch") for name, each in exact.items()}
    for name in sample.wrt:
        tensors[name].requires_grad_()
    found = sample.reference(**tensors, **sample.settings)
    found = list(found) if isinstance(found, (tuple, list)) else [found]
    slopes = [each.cpu().double() for each in cotangents]
    tracked = [each for each in found if each.requires_grad]
    gradients = torch.autograd.grad(tracked, [tensors[each] for each in sample.wrt], slopes)
    return [*expected, *gradients]


def check(sample: Sample, dtype: str, device: str, repeats: int) -> None:
    """Check a sample's results and gradients, and that they are the same in each run.

    Raises:
        AssertionError: they are not.
    """
    layout = "rows" if sample.any_strides else "contiguous"
    given = {
        name: on_device(
            checks.to_framework(checks.rounded(each, dtype), "torch", layout),
            device,
            name in sample.wrt,
        )
        for name, each in sample.arrays.items()
    }
    cotangents: list[Any] = []
    with poisoned_memory():
        first = results_of(sample, given, cotangents)
        tolerance = checks.TOLERANCES[dtype] * sample.tolerance
        expected = expected_of(sample, dtype, cotangents)
        checks.assert_close(tuple(first), tuple(expected), dtype, rtol=tolerance, atol=tolerance)
        bits = [bytes_of(each) for each in first]
        for number in range(repeats):
            again = results_of(sample, given, cotangents)
            for place, (one, other) in enumerate(zip(again, bits, strict=True)):
                assert torch.equal(bytes_of(one), other), f"result {place}, run {number}: new bits"


def bytes_of(tensor: Any) -> Any:
    """Return a copy of a tensor's elements as bytes."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).clone()


def main() -> int:
    """Run samples, each in one of its element types, by turns."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("names", nargs="*", help="beginnings of samples' names; all if none")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--slice", default="0/1", help="the sample I, and every Nth after it: I/N")
    parser.add_argument("--dtypes", action="store_true", help="in all element types")
    options = parser.parse_args()
    first, step = map(int, options.slice.split("/"))
    chosen = [
        each
        for each in SAMPLES.values()
        if not options.names or each.name.startswith(tuple(options.names))
    ]
    failures = 0
    for number, sample in list(enumerate(chosen))[first::step]:
        by_turns = sample.dtypes[number // step % len(sample.dtypes)]
        for dtype in sample.dtypes if options.dtypes else (by_turns,):
            start, said = time.perf_counter(), "right"
            try:
                check(sample, dtype, options.device, options.repeats)
            except Exception as error:  # report it, and continue
                said = f"{type(error).__name__}: {error}"
                if not isinstance(error, AssertionError):
                    said += traceback.format_exc()
            failures += said != "right"
            seconds = time.perf_counter() - start
            print(f"{sample.name} {dtype} ({seconds:.1f} s): {said}", flush=True)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
