"""The adjoint as text, for kernels as text; and what it does not accept."""

from __future__ import annotations

import pytest

from tilewright.derivatives.refusals import DerivativeError
from tilewright.derivatives.reverse_mode import AdjointRequest, consumed_outputs, vjp
from tilewright.derivatives.trip_counts import trip_counts
from tilewright.ir.core import Module
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.ir.types import F32


def parsed(text: str) -> Module:
    return parse_module(f"tilewright.ir 1.0\n{text}")


def adjoint(text: str, **request) -> str:
    module = parsed(text)
    before = print_module(module)
    made = vjp(module, AdjointRequest(("out",), ("x",), **request))
    assert print_module(module) == before
    text = print_module(made, locations=False)
    assert print_module(parse_module(text), locations=False) == text
    return text.partition("\n\n")[2]


def test_a_load_adds_its_cotangent_and_the_value_that_is_needed_is_loaded_again() -> None:
    assert (
        adjoint("""kernel @k(%x: ptr<f32>, %y: ptr<f32>, %out: ptr<f32>) {
  %a = load %x : f32
  %b = load %y : f32
  %c = mul %a, %b : f32
  store %out, %c
  return
}""")
        == """kernel @k_vjp(%x: ptr<f32>, %y: ptr<f32>, %out: ptr<f32>, %d_out: ptr<f32>, %d_x: ptr<f32>) {
  %b = load %y : f32
  %0 = load %d_out : f32
  %1 = mul %0, %b : f32
  %2 = atomic_rmw %d_x, %1 {kind = add, order = relaxed} : f32
  return
}
"""
    )


SQUARE = """kernel @k(%x: ptr<f16>, %out: ptr<f16>) {
  %a = load %x : f16
  %c = mul %a, %a : f16
  store %out, %c
  return
}"""


@pytest.mark.parametrize(
    ("mode", "written"),
    [
        ("atomic", "  %5 = atomic_rmw %d_x, %4 {kind = add, order = relaxed} : f32\n"),
        ("store", "  store %d_x, %4\n"),
        ("add", "  %5 = load %d_x : f32\n  %6 = add %5, %4 : f32\n  store %d_x, %6\n  barrier\n"),
    ],
)
def test_narrow_cotangents_are_f32_and_written_as_asked(mode: str, written: str) -> None:
    assert adjoint(SQUARE, modes={"x": mode}, elements={"d_x": F32}) == (
        """kernel @k_vjp(%x: ptr<f16>, %out: ptr<f16>, %d_out: ptr<f16>, %d_x: ptr<f32>) {
  %a = load %x : f16
  %0 = load %d_out : f16
  %1 = cast %0 : f32
  %2 = cast %a : f32
  %3 = mul %1, %2 : f32
  %4 = add %3, %3 : f32
"""
        f"{written}  return\n}}\n"
    )


def loop(combine: str) -> str:
    return f"""kernel @k(%x: ptr<f32>, %out: ptr<f32>, %n: i32) {{
  %zero = constant 0.0 : f32
  %lower = constant 0 : i32
  %one = constant 1 : i32
  %sum, %end = for %lower, %n, %one, inits=[%zero, %x] : f32, ptr<f32> body(%i: i32, %acc: f32, %p: ptr<f32>) {{
    %v = load %p : f32
    %w = sin %v : f32
    %next = {combine} %acc, %w : f32
    %q = addptr %p, %one : ptr<f32>
    yield %next, %q
  }}
  store %out, %sum
  return
}}"""


def test_a_loop_that_adds_is_walked_forward_and_carries_its_addresses() -> None:
    assert (
        adjoint(loop("add"))
        == """kernel @k_vjp(%x: ptr<f32>, %out: ptr<f32>, %n: i32, %d_out: ptr<f32>, %d_x: ptr<f32>) {
  %lower = constant 0 : i32
  %one = constant 1 : i32
  %0 = load %d_out : f32
  %1, %2 = for %lower, %n, %one, inits=[%x, %d_x] : ptr<f32>, ptr<f32> body(%i: i32, %p: ptr<f32>, %d_p: ptr<f32>) {
    %v = load %p : f32
    %d_q = addptr %d_p, %one : ptr<f32>
    %q = addptr %p, %one : ptr<f32>
    %3 = cos %v : f32
    %4 = mul %0, %3 : f32
    %5 = atomic_rmw %d_p, %4 {kind = add, order = relaxed} : f32
    yield %q, %d_q
  }
  return
}
"""
    )


def test_a_loop_that_multiplies_is_walked_backward_from_a_tape() -> None:
    found = adjoint(loop("mul"))
    header, _, body = found.partition("{")
    assert header.endswith("%d_x: ptr<f32>, %tape_0_0_1: ptr<f32>, %tape_trips: i64) ")
    forward, _, backward = body.partition("  barrier\n")
    assert "store %19, %acc" in forward
    assert backward.startswith(
        """  %23 = sub %22, %1 : i32
  %24 = for %0, %22, %1, inits=[%20] : f32 body(%25: i32, %26: f32) {
    %27 = sub %23, %25 : i32
    %28 = cast %27 : i64
    %29 = add %16, %28 : i64
    %30 = addptr %tape_0_0_1, %29 : ptr<f32>
    %31 = load %30 : f32
    %32 = addptr %x, %28 : ptr<f32>
    %33 = addptr %d_x, %28 : ptr<f32>
"""
    )


def test_iterations_are_counted_without_the_effects_of_the_kernel() -> None:
    found = print_module(trip_counts(parsed(loop("mul")), {0}), locations=False)
    assert (
        found.partition("\n\n")[2]
        == """kernel @k_trips(%x: ptr<f32>, %out: ptr<f32>, %n: i32, %trips: ptr<i64>) {
  %0 = constant 0 : i32
  %1 = cmp %n, %0 {predicate = le} : i1
  %2 = select %1, %0, %n : i32
  %3 = cast %2 : i64
  %4 = atomic_rmw %trips, %3 {kind = max, order = relaxed} : i64
  return
}
"""
    )


TWICE = """kernel @k(%x: ptr<f32>, %out: ptr<f32>) {
  %a = load %x : f32
  store %out, %a
  %b = mul %a, %a : f32
  store %out, %b
  return
}"""


def test_the_last_of_two_stores_has_the_cotangent() -> None:
    assert consumed_outputs(parsed(TWICE), ("out",)) == {"out"}
    assert consumed_outputs(parsed(SQUARE), ("out",)) == frozenset()
    assert (
        adjoint(TWICE)
        == """kernel @k_vjp(%x: ptr<f32>, %out: ptr<f32>, %d_out: ptr<f32>, %d_x: ptr<f32>) {
  %a = load %x : f32
  %0 = load %d_out : f32
  %1 = constant 0.0 : f32
  store %d_out, %1
  barrier
  %2 = mul %0, %a : f32
  %3 = add %2, %2 : f32
  %4 = load %d_out : f32
  store %d_out, %1
  barrier
  %5 = add %3, %4 : f32
  %6 = atomic_rmw %d_x, %5 {kind = add, order = relaxed} : f32
  return
}
"""
    )


SAVED = """kernel @k(%x: ptr<f32>, %out: ptr<f32>) {
  %a = load %x : f32
  %y = exp %a : f32
  store %out, %y
  return
}"""


def test_a_saved_output_is_read_instead_of_computed() -> None:
    assert "exp" in adjoint(SAVED)
    assert (
        adjoint(SAVED, saved=("out",))
        == """kernel @k_vjp(%x: ptr<f32>, %out: ptr<f32>, %d_out: ptr<f32>, %d_x: ptr<f32>) {
  %0 = load %out : f32
  %1 = load %d_out : f32
  %2 = mul %1, %0 : f32
  %3 = constant 0.0 : f32
  %4 = cmp %1, %3 {predicate = eq} : i1
  %5 = select %4, %3, %2 : f32
  %6 = atomic_rmw %d_x, %5 {kind = add, order = relaxed} : f32
  return
}
"""
    )


MASKED = """kernel @k(%x: ptr<f32>, %out: ptr<f32>, %m: ptr<i1>) {
  %i = arange {start = 0, end = 4} : tile<4xi32>
  %xs = splat %x : tile<4xptr<f32>>
  %ms = splat %m : tile<4xptr<i1>>
  %os = splat %out : tile<4xptr<f32>>
  %ps = addptr %xs, %i : tile<4xptr<f32>>
  %qs = addptr %os, %i : tile<4xptr<f32>>
  %ns = addptr %ms, %i : tile<4xptr<i1>>
  %mask = load %ns : tile<4xi1>
  %a = load %ps : tile<4xf32>
  %y = exp %a : tile<4xf32>
  store %qs, %y, mask=%mask
  USE
  return
}"""


def test_saved_lanes_that_were_masked_off_are_computed_where_something_reads_them() -> None:
    assert "exp" not in adjoint(MASKED.replace("USE", ""), saved=("out",))
    read = MASKED.replace("%m: ptr<i1>", "%m: ptr<i1>, %more: ptr<f32>").replace(
        "USE",
        "%ss = splat %more : tile<4xptr<f32>>\n  %ts = addptr %ss, %i : tile<4xptr<f32>>\n"
        "  store %ts, %y",
    )
    assert "exp" in adjoint(read, saved=("out",))


# ---- refusals


@pytest.mark.parametrize(
    ("request_of", "message"),
    [
        (
            AdjointRequest(("out",), ("z",)),
            "k has no argument 'z' at run time, which wrt names: it has x, out",
        ),
        (
            AdjointRequest(("out",), ("x",), prefix=""),
            "k has a parameter 'out', which is to be the derivative's\n  help: choose another "
            "prefix",
        ),
    ],
)
def test_a_request_must_fit_the_kernel(request_of: AdjointRequest, message: str) -> None:
    with pytest.raises(DerivativeError) as caught:
        vjp(parsed(SQUARE), request_of)
    assert str(caught.value) == message


UNKNOWN = """kernel @k(%x: ptr<f32>, %out: ptr<f32>, %c: i1, %table: ptr<i64>) {
  BODY
  return
}"""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            "%e = load %table : i64\n%q = bitcast %e : ptr<f32>\n%v = load %q : f32\n"
            "%w = load %x : f32\n%z = mul %v, %w : f32\nstore %out, %z",
            "load: reads floats through an address that is not made of an argument",
        ),
        (
            "%p = select %c, %x, %out : ptr<f32>\n%v = load %p : f32\nstore %out, %v",
            "load: reads through an address that is made of several arguments",
        ),
        (
            "%p = bitcast %x : ptr<i32>\n%v = load %p : i32\n%f = bitcast %v : f32\nstore %out, %f",
            "load: reads what varies through a pointer to another type",
        ),
        (
            "%v = load %x : f32\n%p = bitcast %out : ptr<i32>\n%b = bitcast %v : i32\nstore %p, %b",
            "store: writes what has a derivative to an output as another type",
        ),
        (
            "%v = load %x : f32\n%zero = constant 0.0 : f32\nstore %x, %zero\nstore %out, %v",
            "store: writes to x, by which the derivative is taken",
        ),
        (
            '%v = load %x : f32\n%q = extern %v {symbol = "f"} : f32\nstore %out, %q',
            "extern: has no derivative",
        ),
    ],
)
def test_memory_that_cannot_be_followed_is_refused(body: str, message: str) -> None:
    with pytest.raises(DerivativeError) as caught:
        vjp(parsed(UNKNOWN.replace("BODY", body)), AdjointRequest(("out",), ("x",)))
    assert caught.value.reason == message
    assert caught.value.remedy


def test_halves_of_two_extents_are_not_cut_apart() -> None:
    text = """kernel @k(%x: ptr<f32>, %out: ptr<f32>) {
  %i = arange {start = 0, end = 4} : tile<4xi32>
  %j = arange {start = 0, end = 12} : tile<12xi32>
  %xs = splat %x : tile<4xptr<f32>>
  %ps = addptr %xs, %i : tile<4xptr<f32>>
  %a = load %ps : tile<4xf32>
  %zero = constant 0.0 : f32
  %zeros = splat %zero : tile<8xf32>
  %c = cat %a, %zeros {axis = 0} : tile<12xf32>
  %os = splat %out : tile<12xptr<f32>>
  %qs = addptr %os, %j : tile<12xptr<f32>>
  store %qs, %c
  return
}"""
    with pytest.raises(DerivativeError) as caught:
        adjoint(text)
    assert caught.value.reason == (
        "cat: of extents 4 and 8, between which no operation cuts a tile"
    )
