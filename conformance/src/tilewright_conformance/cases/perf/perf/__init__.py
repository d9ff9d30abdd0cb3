"""Speed of a backend: figures for the report, and loose demands.

Demands hold on a busy machine and fail where something is wrong. Everything is timed by the wall
clock around launches and a synchronization; results are checked too. A demand gets several tries,
and the figures of the last one are kept.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from tilewright_conformance.cases.perf.perf.compute_speed import (
    dot_and_sum,
    many_programs,
    matmul_speed,
    twice_the_work,
)
from tilewright_conformance.cases.perf.perf.launch_speed import (
    bench_speed,
    first_launch,
    launch_times,
    timer_speed,
    tuning_speed,
)
from tilewright_conformance.cases.perf.perf.memory_speed import bandwidth, strided_copies
from tilewright_conformance.cases.perf.perf.perf_case import perf_case
from tilewright_conformance.suite.case import Case


def cases() -> Iterator[Case]:
    for name in ("copy", "add", "softmax", "transpose"):
        yield perf_case(
            f"bandwidth/{name}",
            functools.partial(bandwidth, name),
            quick=name in ("copy", "softmax"),
        )
    yield perf_case("bandwidth/contiguous_and_strided", strided_copies, quick=True)
    yield perf_case("scaling/twice_the_work", twice_the_work, quick=True)
    yield perf_case("scaling/programs_side_by_side", many_programs)
    for type_ in ("f16", "f32"):
        yield perf_case(
            f"matmul/{type_}",
            functools.partial(matmul_speed, type_),
            f"f32 {type_}",
            {(type_, "f32")},
            quick=type_ == "f16",
        )
    yield perf_case("matmul/dot_and_sum", dot_and_sum, "f32", {("f32", "f32")}, quick=True)
    yield perf_case("launch/arguments", launch_times, quick=True)
    yield perf_case("launch/cold_disk_and_warm", first_launch, quick=True)
    yield perf_case("timer/repetitions_and_work", timer_speed, quick=True)
    yield perf_case("timer/do_bench", bench_speed)
    yield perf_case("autotune/finds_the_faster", tuning_speed, quick=True)
