"""Measure the cost of the checks in debug mode on the CPU.

Kernels compiled with ``debug`` are compared with the same kernels without it, in one process and in
alternating rounds. Each line has the processor time of one launch without and with the checks, from
the medians of the rounds, and their ratio. Kernels run on one thread. Their data fit in the
first-level caches, where the relative cost of checks is highest: all programs of a launch work on
the same few kilobytes.

    debug_mode.py                           all kernels
    debug_mode.py --only rows --rounds 30
    debug_mode.py --json before.json        write the ratios, for a later --against before.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ["TILEWRIGHT_NUM_THREADS"] = "1"

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright_conformance.kernels.exact_kernels import matmul_tiled
from tilewright_conformance.kernels.matrices import attention_forward
from tilewright_conformance.kernels.portable_kernels import dropout, layer_norm, softmax

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))
from kernels.vector_add import add_kernel

F32, I32 = np.float32, np.int32
RNG = np.random.default_rng(0)
#: Elements of an array, and of a program's tile if that is one row.
COUNT, BLOCK = 4096, 1024

#: Maximum cost of the checks, as a ratio.
LIMIT = 3.0


@tw.jit
def masked_load_kernel(x_ptr, mask_ptr, out_ptr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wanted = tl.load(mask_ptr + places) != 0
    tl.store(out_ptr + places, tl.load(x_ptr + places, mask=wanted, other=0.0))


@tw.jit
def masked_copy_kernel(x_ptr, mask_ptr, out_ptr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wanted = tl.load(mask_ptr + places) != 0
    tl.store(out_ptr + places, tl.load(x_ptr + places, mask=wanted), mask=wanted)


@tw.jit
def gather_kernel(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    tl.store(
        out_ptr + places,
        tl.load(x_ptr + tl.load(index_ptr + places, mask=inside, other=0), mask=inside),
        mask=inside,
    )


@tw.jit
def scatter_kernel(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    tl.store(
        out_ptr + tl.load(index_ptr + places, mask=inside, other=0),
        tl.load(x_ptr + places, mask=inside),
        mask=inside,
    )


@tw.jit
def masked_gather_kernel(x_ptr, index_ptr, mask_ptr, out_ptr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wanted = tl.load(mask_ptr + places) != 0
    tl.store(out_ptr + places, tl.load(x_ptr + tl.load(index_ptr + places), mask=wanted, other=0))


@tw.jit
def strided_kernel(x_ptr, out_ptr, n, step, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + places, tl.load(x_ptr + places * step, mask=places < n), mask=places < n)


@tw.jit
def reversed_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + places, tl.load(x_ptr + n - 1 - places, mask=places < n), mask=places < n)


@tw.jit
def running_kernel(x_ptr, mask_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        total += tl.load(
            x_ptr + start + places, mask=tl.load(mask_ptr + start + places) != 0, other=0.0
        )
    tl.store(out_ptr, tl.sum(total, axis=0))


@tw.jit
def rows_kernel(x_ptr, out_ptr, rows, columns, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    j = tl.arange(0, COLUMNS)[None, :]
    inside = (i < rows) & (j < columns)
    tl.store(
        out_ptr + i * stride + j, tl.load(x_ptr + i * stride + j, mask=inside) * 2.0, mask=inside
    )


@tw.jit
def masked_rows_kernel(x_ptr, mask_ptr, out_ptr, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    places = i * stride + tl.arange(0, COLUMNS)[None, :]
    wanted = tl.load(mask_ptr + places) != 0
    tl.store(out_ptr + places, tl.load(x_ptr + places, mask=wanted), mask=wanted)


@tw.jit
def lookup_kernel(table_ptr, index_ptr, out_ptr, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = tl.arange(0, COLUMNS)[None, :]
    rows = tl.load(index_ptr + i)
    tl.store(out_ptr + i[:, None] * stride + j, tl.load(table_ptr + rows[:, None] * stride + j))


@tw.jit
def transpose_kernel(x_ptr, out_ptr, n, m, BLOCK: tl.constexpr):
    i, j = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    inside = (i < n) & (j < m)
    tl.store(out_ptr + j * n + i, tl.load(x_ptr + i * m + j, mask=inside), mask=inside)


@tw.jit
def histogram_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    tl.atomic_add(out_ptr + tl.load(x_ptr + places, mask=inside, other=0), 1, mask=inside)


@tw.jit
def descriptors_kernel(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.program_id(0) * ROWS
    out.store([i, 0], x.load([i, 0]) * 2.0)


@tw.jit
def polynomial_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places)
    tl.store(out_ptr + places, (x * x + 3) * x - 7)


@tw.jit
def integer_total_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(
        out_ptr + tl.program_id(0),
        tl.sum(tl.load(x_ptr + places, mask=places < n, other=0), axis=0),
    )


@tw.jit
def products_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    tl.store(
        out_ptr + places,
        tl.load(x_ptr + places, mask=inside, other=0)
        * tl.load(y_ptr + places, mask=inside, other=0),
        mask=inside,
    )


@tw.jit
def running_total_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + places, tl.cumsum(tl.load(x_ptr + places), axis=0))


@tw.jit
def asserted_kernel(x_ptr, index_ptr, out_ptr, n, size, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + places, mask=places < n, other=0)
    tl.device_assert((index >= 0) & (index < size), "an index that the table has not")
    tl.store(out_ptr + places, tl.load(x_ptr + index), mask=places < n)


@tw.jit
def scalars_kernel(x_ptr, out_ptr, n):
    total = 0.0
    for i in range(n):
        total += tl.load(x_ptr + i)
        tl.store(out_ptr + i, total)


@tw.jit
def band_kernel(x_ptr, weight_ptr, out_ptr, n, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for tap in tl.static_range(TAPS):
        at = places + tap - TAPS // 2
        total += tl.load(weight_ptr + tap) * tl.load(
            x_ptr + at, mask=(at >= 0) & (at < n), other=0.0
        )
    tl.store(out_ptr + places, total, mask=places < n)


@tw.jit
def moments_kernel(x_ptr, length_ptr, out_ptr, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    length = tl.load(length_ptr + row)
    places = tl.arange(0, BLOCK)
    x = tl.load(
        x_ptr + row * stride + places, mask=(places % 2 == 0) & (places < length), other=0.0
    )
    tl.store(out_ptr + row, tl.sum(x * x, axis=0))


@dataclass(frozen=True)
class Case:
    """A kernel, its arguments without ``debug``, and its grid.

    ``repeats`` multiplies the number of programs, which repeat the same work; 0 chooses a number
    that takes long enough.
    """

    name: str
    kernel: Any
    arguments: tuple[Any, ...]
    programs: tuple[int, int] = (1, 1)
    repeats: int = 0
    constants: tuple[tuple[str, int], ...] = ()

    def repeated(self, least: float) -> Case:
        """Return the case with enough repeats that the time of the launch itself is negligible."""
        if self.repeats:
            return self
        repeats = 1
        replace(self, repeats=repeats).launch(False)()
        while seconds(replace(self, repeats=repeats).launch(False), 3) < least:
            repeats *= 2
        return replace(self, repeats=repeats)

    def launch(self, debug: bool) -> Callable[[], object]:
        constants = dict(self.constants)
        return lambda: self.kernel[(*self.programs, self.repeats)](
            *self.arguments, **constants, debug=debug, backend="cpu"
        )


def cases() -> Iterator[Case]:
    def floats(*shape: int) -> np.ndarray:
        return RNG.standard_normal(shape, dtype=F32)

    def case(
        name: str,
        kernel: Any,
        *arguments: Any,
        programs: tuple[int, int] = (COUNT // BLOCK, 1),
        repeats: int = 0,
        **constants: int,
    ) -> Case:
        return Case(name, kernel, arguments, programs, repeats, tuple(constants.items()))

    n = COUNT - 3
    x, y, out = floats(COUNT), floats(COUNT), floats(COUNT)
    flags = RNG.integers(0, 2, COUNT).astype(np.int8)
    index = RNG.permutation(COUNT).astype(I32)
    small, others, integers = (RNG.integers(-1000, 1000, COUNT).astype(I32) for _ in range(3))
    yield case("add", add_kernel, x, y, out, n, BLOCK=BLOCK)
    yield case("load, mask from memory", masked_load_kernel, x, flags, out, BLOCK=BLOCK)
    yield case("copy, mask from memory", masked_copy_kernel, x, flags, out, BLOCK=BLOCK)
    half = floats(COUNT).astype(np.float16)
    yield case(
        "copy f16, mask from memory", masked_copy_kernel, half, flags, half.copy(), BLOCK=BLOCK
    )
    yield case("gather", gather_kernel, x, index, out, n, BLOCK=BLOCK)
    yield case("scatter", scatter_kernel, x, index, out, n, BLOCK=BLOCK)
    yield case("gather, mask from memory", masked_gather_kernel, x, index, flags, out, BLOCK=BLOCK)
    bytes_, small_index = (
        RNG.integers(0, 100, COUNT).astype(np.int8),
        RNG.integers(0, 256, COUNT).astype(np.uint8),
    )
    yield case(
        "gather of bytes by bytes",
        masked_gather_kernel,
        bytes_,
        small_index,
        flags,
        bytes_.copy(),
        BLOCK=BLOCK,
    )
    yield case("every other element", strided_kernel, floats(2 * COUNT), out, n, 2, BLOCK=BLOCK)
    yield case("backwards", reversed_kernel, x, out, n, BLOCK=BLOCK)
    yield case(
        "add, a launch of one tile",
        add_kernel,
        x,
        y,
        out,
        n,
        programs=(1, 1),
        repeats=1,
        BLOCK=BLOCK,
    )
    yield case("tiles of 16", add_kernel, x, y, out, n, programs=(256, 1), BLOCK=16)
    yield case(
        "tiles of 16, mask from memory",
        masked_copy_kernel,
        x,
        flags,
        out,
        programs=(256, 1),
        BLOCK=16,
    )
    cut = np.where(np.arange(BLOCK) < 1000, flags[:BLOCK], 0)
    yield case(
        "copy, mask that cuts a tile",
        masked_copy_kernel,
        floats(1000),
        cut,
        floats(1000),
        programs=(1, 1),
        BLOCK=BLOCK,
    )
    yield case(
        "loop, mask from memory", running_kernel, x, flags, out, COUNT, programs=(1, 1), BLOCK=256
    )
    for columns, extent in ((3, 4), (4, 4), (16, 16), (1000, 1024)):
        tile = BLOCK // extent
        lines = COUNT // columns
        yield case(
            f"rows of {columns}",
            rows_kernel,
            x,
            out,
            lines,
            columns,
            columns,
            programs=(-(-lines // tile), 1),
            ROWS=tile,
            COLUMNS=extent,
        )
    for columns in (4, 16, 64):
        tile = BLOCK // columns
        yield case(
            f"rows of {columns}, mask from memory",
            masked_rows_kernel,
            x,
            flags,
            out,
            columns,
            ROWS=tile,
            COLUMNS=columns,
        )
    for columns in (4, 64):
        rows = RNG.integers(0, COUNT // columns, COUNT // columns).astype(I32)
        yield case(
            f"rows of {columns}, looked up",
            lookup_kernel,
            x,
            rows,
            out,
            columns,
            ROWS=BLOCK // columns,
            COLUMNS=columns,
        )
    yield case("transpose", transpose_kernel, x, out, 62, 61, programs=(1, 1), BLOCK=64)
    yield case("softmax", softmax, x, out, 1000, BLOCK=1024)
    yield case("softmax of 60", softmax, x, out, 60, programs=(64, 1), BLOCK=64)
    yield case("layer norm", layer_norm, x, y, y, out, 1000, 1e-5, BLOCK=1024)
    a, b, c = floats(100, 100), floats(100, 100), floats(100, 100)
    yield case(
        "matmul of 100", matmul_tiled, a, b, c, 100, 100, 100, programs=(16, 1), BM=32, BN=32, BK=32
    )
    yield case(
        "attention",
        attention_forward,
        *(floats(120, 32) for _ in range(4)),
        floats(120),
        120,
        0.2,
        programs=(4, 1),
        D=32,
        BM=32,
        BN=32,
    )
    yield case("histogram", histogram_kernel, np.abs(small) % 64, np.zeros(64, I32), n, BLOCK=BLOCK)
    blocks = [
        TensorDescriptor(array.reshape(64, 64), [64, 64], [64, 1], [16, 64]) for array in (x, out)
    ]
    yield case("descriptors", descriptors_kernel, *blocks, ROWS=16, COLUMNS=64)
    short = [
        TensorDescriptor(array.reshape(1024, 4), [1024, 4], [4, 1], [256, 4]) for array in (x, out)
    ]
    yield case("descriptors, rows of 4", descriptors_kernel, *short, ROWS=256, COLUMNS=4)
    yield case("integer sums", add_kernel, small, others, integers, n, BLOCK=BLOCK)
    yield case(
        "integer sums of 8 bits",
        add_kernel,
        *(array.astype(np.int8) // 4 for array in (small, others, integers)),
        n,
        BLOCK=BLOCK,
    )
    yield case("integer polynomial", polynomial_kernel, small, integers, BLOCK=BLOCK)
    yield case("integer products", products_kernel, small, others, integers, n, BLOCK=BLOCK)
    large, one = np.full(COUNT, 2**31 - 1, I32), np.ones(COUNT, I32)
    large[::2], one[::2] = 1, 2**31 - 1
    yield case("integer products, far apart", products_kernel, large, one, integers, n, BLOCK=BLOCK)
    yield case(
        "integer products of 8 bits",
        products_kernel,
        *(array.astype(np.int8) // 16 for array in (small, others, integers)),
        n,
        BLOCK=BLOCK,
    )
    yield case("running total of integers", running_total_kernel, small, integers, BLOCK=BLOCK)
    yield case("total of integers", integer_total_kernel, small, integers, n, BLOCK=BLOCK)
    yield case("dropout", dropout, x, out, n, 0.5, 7, BLOCK=BLOCK)
    yield case("device_assert", asserted_kernel, x, index, out, n, COUNT, BLOCK=BLOCK)
    yield case("scalars", scalars_kernel, x, out, COUNT, programs=(1, 1))
    yield case("band of 5", band_kernel, x, y, out, n, BLOCK=BLOCK, TAPS=5)
    lengths = RNG.integers(800, 1000, 4).astype(I32)
    yield case("every other lane", moments_kernel, x, lengths, out, 1000, BLOCK=1024)


def seconds(call: Callable[[], object], turns: int) -> float:
    """Return the processor seconds of one call."""
    began = time.process_time_ns()
    for _ in range(turns):
        call()
    return (time.process_time_ns() - began) / turns / 1e9


def measure(case: Case, rounds: int, least: float) -> tuple[float, float]:
    """Return the processor seconds of a launch without and with checks.

    They are medians of rounds that take at least ``least`` seconds each.
    """
    case = case.repeated(least)
    calls = [case.launch(debug) for debug in (False, True)]
    turns = []
    for call in calls:
        call()
        turns.append(max(1, int(least / seconds(call, 3)) + 1))
    found = [
        [seconds(call, count) for call, count in zip(calls, turns, strict=True)]
        for _ in range(rounds)
    ]
    plain, checked = (statistics.median(column) for column in zip(*found, strict=True))
    return plain, checked


def processor() -> str:
    """Return the processor's name, if the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="part of the names of the kernels to run")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--least",
        type=float,
        default=0.002,
        help="seconds of a launch of all programs, and of a round",
    )
    parser.add_argument("--json", type=Path, help="where to write the ratios")
    parser.add_argument("--against", type=Path, help="ratios to print beside these")
    options = parser.parse_args()
    before = json.loads(options.against.read_text()) if options.against else {}
    print(f"{processor()}, {tw.__name__} {getattr(tw, '__version__', '')}")
    ratios: dict[str, float] = {}
    for case in cases():
        if options.only not in case.name:
            continue
        plain, checked = measure(case, options.rounds, options.least)
        ratio = ratios[case.name] = checked / plain
        earlier = f"   before {before[case.name]:5.2f}" if case.name in before else ""
        print(
            f"{case.name:32s} {plain * 1e6:9.1f} us {checked * 1e6:9.1f} us   "
            f"{ratio:5.2f}{earlier}{'  beyond' if ratio > LIMIT else ''}",
            flush=True,
        )
    if ratios:
        print(
            f"{'worst':32s} {'':27s}{max(ratios.values()):5.2f}, "
            f"{'within' if max(ratios.values()) <= LIMIT else 'beyond'} {LIMIT}"
        )
    if options.json:
        options.json.write_text(json.dumps(ratios, indent=1))


if __name__ == "__main__":
    main()
