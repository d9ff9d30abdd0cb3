"""Occupancy of kernels whose rarely executed region needs the most registers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hopper_support import ASYNCHRONOUS
from scaled_kernels import SIGNATURE, constants, scaled_kernel

import tilewright.language as tl
from tilewright import jit
from tilewright.ir.parser import parse_module
from tilewright.simt.compile import kernel_of
from tilewright.simt.dialect.attributes import COLD, PROGRAMS
from tilewright.simt.passes.scaled import expand_scaled
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.target import PtxTarget
from tilewright_nvidia.toolchain.linking import assemble
from tilewright_nvidia.toolchain.occupancy_attempt import attempt_line, limit_line
from tilewright_nvidia.toolchain.occupancy_bound import bound_occupancy
from tilewright_nvidia.toolchain.resources import registers_of

#: (architecture, formats, shape, warps, CTAs of an SM); the loop of the last needs all registers.
CASES = [
    ("sm_90a", ("e4m3", "e5m2"), (64, 64, 64), 4, 4),
    ("sm_90a", ("e2m1", "e2m1"), (128, 128, 128), 8, 2),
    ("sm_80", ("e4m3", "e5m2"), (64, 64, 64), 4, 4),
    ("sm_100a", ("e2m1", "e4m3"), (128, 64, 64), 4, 4),
    ("sm_80", ("e2m1", "e2m1"), (128, 128, 128), 8, 1),
]


def bound_in(ptx: Any) -> int | None:
    found = re.search(r"\.minnctapersm (\d+)", str(ptx))
    return None if found is None else int(found[1])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("arch", "formats", "shape", "warps", "programs"), CASES, ids=str)
def test_the_exact_path_takes_no_cta_from_an_sm(
    assembled: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    arch: str,
    formats: tuple[str, str],
    shape: tuple[int, int, int],
    warps: int,
    programs: int,
) -> None:
    """Without the exact path, ptxas needs no more registers than the bound leaves: in the loop
    there is nothing to spill."""
    given = {"constants": constants(formats, shape, trips=4), "num_warps": warps}
    code, linked = assembled(scaled_kernel, SIGNATURE, arch, **given)
    limit = min(255, 65536 // (32 * warps * programs))
    registers = registers_of(linked.log)
    assert bound_in(code.stages["ptx"]) == programs and registers is not None and registers <= limit
    if programs > 1:
        monkeypatch.setattr(expand_scaled, "_is_guarded", lambda operation: False)
        code, linked = assembled(scaled_kernel, SIGNATURE, arch, **given)
        registers = registers_of(linked.log)
        assert (
            bound_in(code.stages["ptx"]) is None
            and linked.spills == 0
            and registers is not None
            and registers <= limit
        )


def test_who_says_the_registers_says_them_alone(ptx: Callable[..., str]) -> None:
    text = ptx(
        scaled_kernel,
        SIGNATURE,
        "sm_90a",
        constants=constants(("e4m3", "e5m2"), (64, 64, 64)),
        maxnreg=168,
    )
    assert bound_in(text) is None and ".maxnreg 168" in text


@jit
def running_maximum(x, out, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    best = tl.full([ROWS, COLUMNS], float("-inf"), tl.float32)
    for start in range(0, n, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        best = tl.maximum(
            best,
            tl.load(
                x + rows[:, None] * 8192 + columns[None, :],
                mask=columns[None, :] < n // 16 * 16,
                other=float("-inf"),
            ).to(tl.float32),
        )
    tl.store(out + rows, tl.max(best, 1))


@pytest.mark.parametrize(("rows", "warps", "programs"), [(8, 4, 2), (16, 4, 1)])
def test_all_loads_of_a_large_tile_are_under_way_at_once(
    assembled: Callable[..., Any], rows: int, warps: int, programs: int
) -> None:
    """A thread holds what it loads, 16 bits an element, beside the 32 bits that the loop carries
    for each; left to itself, ptxas starts two loads at a time."""
    given = {"constants": {"ROWS": rows, "COLUMNS": 1024}, "num_warps": warps}
    signature = {"x": "*bf16", "out": "*fp32", "n": "i32"}
    code, linked = assembled(running_maximum, signature, "sm_90a", **given)
    elements = rows * 1024 // (32 * warps)
    registers = registers_of(linked.log)
    assert bound_in(code.stages["ptx"]) == programs
    assert linked.spills == 0 and registers is not None and registers >= elements + elements // 2


@jit
def added_and_normalized(x, residual, weight, out, rows, COLUMNS: tl.constexpr):
    columns = tl.arange(0, COLUMNS)
    factors = tl.load(weight + columns)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        total = tl.load(x + row * COLUMNS + columns).to(tl.float32) + tl.load(
            residual + row * COLUMNS + columns
        ).to(tl.float32)
        tl.store(residual + row * COLUMNS + columns, total.to(tl.bfloat16))
        scale = tl.rsqrt(tl.sum(total * total, 0) / COLUMNS + 1e-6)
        tl.store(out + row * COLUMNS + columns, (total * scale).to(tl.bfloat16) * factors)


def test_a_row_norm_does_not_spill(assembled: Callable[..., Any]) -> None:
    """A thread of 64 elements takes 155 registers where it may: the bound leaves as many."""
    given = {"constants": {"COLUMNS": 4096}, "num_warps": 2}
    code, linked = assembled(
        added_and_normalized,
        {**dict.fromkeys(("x", "residual", "weight", "out"), "*bf16"), "rows": "i32"},
        "sm_90a",
        **given,
    )
    assert linked.spills == 0 and bound_in(code.stages["ptx"]) is not None


@jit
def running_sums(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    tl.store(out + at, tl.cumsum(tl.load(x + at), 0))


def test_scans_are_not_bounded(ptx: Callable[..., str]) -> None:
    assert (
        bound_in(
            ptx(
                running_sums,
                {"x": "*fp32", "out": "*fp32"},
                "sm_90a",
                constants={"ROWS": 64, "COLUMNS": 64},
                num_warps=2,
            )
        )
        is None
    )


@jit
def scanned_backward(
    x, out, sums, n, steps, stride_x, stride_out, stride_sums, BLOCK: tl.constexpr
):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    from_, to = x + (steps - 1) * stride_x + at, out + (steps - 1) * stride_out + at
    state = tl.zeros([BLOCK], tl.float32)
    for step in range(steps):
        new = tl.load(from_, mask=mask, other=0.0)
        tl.store(sums + step * stride_sums + tl.program_id(0), tl.sum(new * state))
        state = state * 0.5 + new
        tl.store(to, state, mask=mask)
        from_ -= stride_x
        to -= stride_out


def test_ptxas_is_left_to_itself_where_threads_hold_few_words(
    assembled: Callable[..., Any],
) -> None:
    """An SM has room for 2,048 threads of 32 registers."""
    signature = {
        "x": "*fp32",
        "out": "*bf16",
        "sums": "*fp32",
        **dict.fromkeys(("n", "steps", "stride_x", "stride_out", "stride_sums"), "i32"),
    }
    code, linked = assembled(
        scanned_backward, signature, "sm_90a", constants={"BLOCK": 256}, num_warps=4
    )
    registers = registers_of(linked.log)
    assert (
        ".maxnreg" not in code.stages["ptx"]
        and linked.spills == 0
        and registers is not None
        and registers <= 32
    )


@jit
def noise(out, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first, second, third, fourth = tl.rand4x(seed, at)
    tl.store(out + 4 * tl.program_id(0) * BLOCK + at, first + second)
    tl.store(out + 4 * tl.program_id(0) * BLOCK + at + BLOCK, third + fourth)


def test_other_light_kernels_leave_room_for_threads(assembled: Callable[..., Any]) -> None:
    """Left to itself, ptxas takes 76 registers."""
    code, linked = assembled(
        noise, {"out": "*fp32", "seed": "i32"}, "sm_90a", constants={"BLOCK": 1024}, num_warps=4
    )
    assert ".maxnreg 64" in code.stages["ptx"] and linked.spills == 0


TEXT = """tilewright.ir 1.0
kernel @k(%p: ptr<f32>, %c: i1) attributes {warps = 4, shared_bytes = SHARED} {
  %x = load %p : f32
  %r = if %c {COLD} : f32 then {
    yield %x
  } else {
    yield %x
  }
  store %p, %r
  return
}
"""


@pytest.mark.parametrize(
    ("cold", "shared", "programs"),
    [
        (True, 0, 4),
        (True, 57345, 3),
        (True, 57344, 4),
        (True, 115712, 2),
        (True, 115713, 1),
        (False, 0, None),
    ],
)
def test_the_bound_is_on_the_function(cold: bool, shared: int, programs: int | None) -> None:
    """Of 227 KiB of shared memory, and 1 KiB for each CTA that it does not see."""
    machine = PtxTarget(target_of(ARCHITECTURES["sm_90a"]), ASYNCHRONOUS)
    module = parse_module(
        TEXT.replace("SHARED", str(shared)).replace("COLD", f"{COLD} = true" if cold else ""),
        machine.dialect.table,
    )
    bound_occupancy(module, machine, {})
    assert kernel_of(module).attributes.get(PROGRAMS) == programs


@jit
def many_products(x, y, out, TILES: tl.constexpr, M: tl.constexpr):
    rows = tl.arange(0, M)
    places = rows[:, None] * M + rows[None, :]
    found = ()
    for i in tl.static_range(TILES):
        found += (tl.dot(tl.load(x + i * M * M + places), tl.load(y + i * M * M + places)),)
    total = tl.zeros((M, M), tl.float32)
    for i in tl.static_range(TILES):
        for j in tl.static_range(TILES):
            total += tl.exp2(found[i] - found[j])
    tl.store(out + places, total)


@pytest.mark.parametrize(("tiles", "programs"), [(2, None), (6, 1)])
def test_products_that_overflow_the_registers_get_all_there_are(
    assembled: Callable[..., Any], tiles: int, programs: int | None
) -> None:
    """Six tiles are 384 words of a thread: ptxas spills some of them, and keeps the others in
    registers."""
    signature = {"x": "*bf16", "y": "*bf16", "out": "*fp32"}
    code, linked = assembled(
        many_products, signature, "sm_90a", constants={"TILES": tiles, "M": 64}, num_warps=2
    )
    registers = registers_of(linked.log)
    assert bound_in(code.stages["ptx"]) == programs and registers is not None and registers > 128


def test_more_ctas_are_taken_where_nothing_spills(ptx: Callable[..., str]) -> None:
    """The estimate counts loads that start early twice: ptxas needs less for this loop. Attempted
    with as many CTAs as spill, the kernel is what it is without an attempt."""
    text = ptx(
        running_maximum,
        {"x": "*bf16", "out": "*fp32", "n": "i32"},
        constants={"ROWS": 8, "COLUMNS": 1024},
        num_warps=4,
    )
    line, _, bound = text.partition("\n")
    attempted = int(line.removeprefix(attempt_line(0).strip().removesuffix("0")))
    plain, tried, spilling = (
        assemble(each, "sm_90a") for each in (bound, text, f"{attempt_line(16)}{bound}")
    )
    assert bound_in(text) == 2 and attempted > 2
    registers = [int(registers_of(each.log) or 0) for each in (plain, tried, spilling)]
    assert tried.spills == 0 and registers[1] < registers[0] <= 65536 // (128 * attempted)
    assert spilling.spills == plain.spills == 0 and registers[2] == registers[0]


@jit
def first_minimum(value, index, other_value, other_index):
    smaller = other_value < value
    return tl.where(smaller, other_value, value), tl.where(smaller, other_index, index)


@jit
def running_minimum(x, out, at, COLUMNS: tl.constexpr):
    columns = tl.arange(0, COLUMNS)
    value, index = tl.associative_scan(
        (tl.load(x + columns).to(tl.float32), columns), 0, first_minimum
    )
    tl.store(out + columns, value)
    tl.store(at + columns, index)


def test_a_light_kernel_that_spills_gets_a_greater_register_limit(ptx: Callable[..., str]) -> None:
    text = ptx(
        running_minimum,
        {"x": "*bf16", "out": "*fp32", "at": "*i32"},
        constants={"COLUMNS": 2048},
        num_warps=4,
    )
    line, _, limited = text.partition("\n")
    assert f"{line}\n" == limit_line() and ".maxnreg 64" in limited
    attempted, plain = (assemble(each, "sm_90a") for each in (text, limited))
    assert attempted.spills == 0 < plain.spills
    registers = [int(registers_of(each.log) or 0) for each in (attempted, plain)]
    assert registers[0] > registers[1] == 64


def test_a_register_limit_of_the_user_stays(ptx: Callable[..., str]) -> None:
    text = ptx(
        running_minimum,
        {"x": "*bf16", "out": "*fp32", "at": "*i32"},
        constants={"COLUMNS": 2048},
        num_warps=4,
        maxnreg=64,
    )
    assert ".maxnreg 64" in text and limit_line() not in text
