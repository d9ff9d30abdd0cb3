"""Tiles in flight: their readers, and matmuls that continue in the same registers."""

from __future__ import annotations

import pytest

from tilewright.ir.core import Function
from tilewright.ir.parser import parse_module
from tilewright.ir.verifier import verify
from tilewright.simt.analysis.async_hazards import FlightError, InFlight, check_in_flight
from tilewright.simt.dialect.ops import SIMT_TABLE


def function_of(body: str) -> Function:
    module = parse_module(
        f"""tilewright.ir 1.0
#S0 = shared<8x8>
kernel @k(%p: tile<8x8xptr<f32>>, %c: tile<8x8xf32>, %n: i32, %q: i1) {{
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %A = simt.buffer : buffer<2 x 8x8xf32, #S0>
  %a = simt.slot %A, %zero : slot<8x8xf32, #S0>
  %a1 = simt.slot %A, %one : slot<8x8xf32, #S0>
  %t0 = simt.commit : token<matmuls>
  {body}
  return
}}""",
        SIMT_TABLE,
    )
    verify(module)
    return module.kernel


def start(name: str, c: str, plan: str = "p") -> str:
    return (
        f'%{name}, %t_{name} = simt.dot_start %a, %a, %{c} {{plan = "{plan}"}} : tile<8x8xf32>, '
        "token<matmuls>\n"
    )


def loop(body: str, last: str) -> str:
    """A loop that carries %x, from %c, and %t, from %t0, and ends with ``last`` of both."""
    head = (
        "%acc, %tacc = for %zero, %n, %one, inits=[%c, %t0] : tile<8x8xf32>, token<matmuls> "
        "body(%i: i32, %x: tile<8x8xf32>, %t: token<matmuls>) {\n"
    )
    return f"{head}{body}yield {last}\n}}\n"


def wait(name: str, tile: str, *tokens: str) -> str:
    return (
        f"%{name} = simt.wait tokens=[{', '.join('%' + token for token in tokens)}], "
        f"tiles=[%{tile}] : tile<8x8xf32>\n"
    )


def carried_with_operand(inside: str, after: str) -> str:
    """Return a loop that carries a matmul, its token, and the operand that it reads from registers.

    ``inside`` and ``after`` are the operands that the waits hold.
    """
    return (
        "%acc, %tacc, %kept = for %zero, %n, %one, inits=[%c, %t0, %c] : tile<8x8xf32>, "
        "token<matmuls>, tile<8x8xf32> "
        "body(%i: i32, %x: tile<8x8xf32>, %t: token<matmuls>, %k: tile<8x8xf32>) {\n"
        f"%r = simt.wait tokens=[%t], tiles=[%x]{inside} : tile<8x8xf32>\n"
        "%w = add %r, %c : tile<8x8xf32>\n"
        '%d, %u = simt.dot_start %w, %a, %r {plan = "p"} : tile<8x8xf32>, token<matmuls>\n'
        "yield %d, %u, %w\n}\n"
        f"%last = simt.wait tokens=[%tacc], tiles=[%acc]{after} : tile<8x8xf32>"
    )


RIGHT = {
    "carried beside an operand in registers": carried_with_operand(", held=[%k]", ", held=[%kept]"),
    "waited for": start("d", "c") + wait("r", "d", "t_d") + "%s = add %r, %c : tile<8x8xf32>",
    "an accumulator": start("d", "c") + start("e", "d") + wait("r", "e", "t_e"),
    "waited for with a later token": start("d", "c") + start("e", "c") + wait("r", "d", "t_e"),
    "an operand in registers, held": (
        '%d, %u = simt.dot_start %c, %a, %c {plan = "p"} : tile<8x8xf32>, token<matmuls>\n'
        "%r = simt.wait tokens=[%u], tiles=[%d], held=[%c] : tile<8x8xf32>"
    ),
    "carried": loop(start("d", "x") + "simt.wait tokens=[%t]\n", "%d, %t_d")
    + wait("r", "acc", "tacc"),
    "of either branch": "%d, %u = if %q : tile<8x8xf32>, token<matmuls> then {\n"
    + start("e", "c")
    + "yield %e, %t_e\n} else {\nyield %c, %t0\n}\n"
    + wait("r", "d", "u"),
    "loaded": "%l, %u = simt.load_start %p : tile<8x8xf32>, token<loads>\n"
    + wait("r", "l", "u")
    + "simt.store %a, %r",
    "a slot that was waited for": (
        'simt.copy_start %a, %p {by = "queue"}\n%u = simt.commit : token<copies>\n'
        "simt.wait tokens=[%u]\n%x = simt.load %a : tile<8x8xf32>"
    ),
    "another slot": (
        'simt.copy_start %a1, %p {by = "queue"}\n%u = simt.commit : token<copies>\n'
        "%x = simt.load %a : tile<8x8xf32>"
    ),
    "a slot waited for by a later group": (
        'simt.copy_start %a, %p {by = "queue"}\n%u = simt.commit : token<copies>\n'
        'simt.copy_start %a1, %p {by = "queue"}\n%v = simt.commit : token<copies>\n'
        "simt.wait tokens=[%v]\n%x = simt.load %a : tile<8x8xf32>"
    ),
}

#: -> what the message says
WRONG = {
    "read": (
        start("d", "c") + "%s = add %d, %c : tile<8x8xf32>",
        "^add at .*: reads %d, which is in flight",
    ),
    "stored": (
        start("d", "c") + "simt.store %a, %d",
        "simt.store at .*: reads %d, which is in flight",
    ),
    "an operand": (
        start("d", "c")
        + '%e, %u = simt.dot_start %d, %a, %c {plan = "p"} : tile<8x8xf32>, token<matmuls>',
        "simt.dot_start at .*: reads %d",
    ),
    "an operand in registers that is not held": (
        '%d, %u = simt.dot_start %c, %a, %c {plan = "p"} : tile<8x8xf32>, token<matmuls>\n'
        + wait("r", "d", "u"),
        "simt.dot_start at .*: reads %c in registers, which the simt.wait for it does not hold",
    ),
    "an operand in registers while the next iteration begins": (
        loop(
            (
                '%d, %u = simt.dot_start %c, %a, %x {plan = "p"} : tile<8x8xf32>, '
                "token<matmuls>\nsimt.wait tokens=[%t]\n"
            ),
            "%d, %u",
        ),
        "reads %c in registers, which the yield for it does not hold",
    ),
    "an operand in registers that the next iteration does not hold": (
        carried_with_operand("", ", held=[%kept]"),
        "reads %k in registers, which the simt.wait",
    ),
    "an operand in registers that is not held after the loop": (
        carried_with_operand(", held=[%k]", ""),
        "reads %kept in registers, which the simt.wait",
    ),
    "of another plan": (
        start("d", "c") + start("e", "d", "other"),
        "goes on by other with %d, which is in flight by p",
    ),
    "carried and read": (
        loop("%s = add %x, %c : tile<8x8xf32>\n" + start("d", "x"), "%d, %t_d"),
        "add at .*: reads %x",
    ),
    "read after the loop": (
        loop(start("d", "x"), "%d, %t_d") + "%s = add %acc, %c : tile<8x8xf32>",
        "add at .*: reads %acc",
    ),
    "without its token": (
        start("d", "c") + "%u = simt.commit : token<copies>\n" + wait("r", "d", "u"),
        "simt.wait at .*: waits for %d without a token of matmuls",
    ),
    "with an earlier token": (
        start("d", "c") + start("e", "c") + wait("r", "e", "t_d"),
        "waits for %e with tokens of earlier operations only",
    ),
    "a load": (
        "%l, %u = simt.load_start %p : tile<8x8xf32>, token<loads>\nsimt.store %a, %l",
        "simt.store at .*: reads %l",
    ),
    "a load that a product goes on with": (
        "%l, %u = simt.load_start %p : tile<8x8xf32>, token<loads>\n" + start("d", "l"),
        "simt.dot_start at .*: reads %l",
    ),
    "a slot that is copied to": (
        (
            'simt.copy_start %a, %p {by = "queue"}\n%u = simt.commit : token<copies>\n'
            "%x = simt.load %a : tile<8x8xf32>"
        ),
        "simt.load at .*: reads %a while a copy into it is in flight",
    ),
    "a slot whose group did not end": (
        (
            '%t1 = simt.commit : token<copies>\nsimt.copy_start %a, %p {by = "queue"}\n'
            "simt.wait tokens=[%t1]\n%x = simt.load %a : tile<8x8xf32>"
        ),
        "simt.load at .*: reads %a",
    ),
    "a slot by a product": (
        '%u = simt.commit : token<copies>\nsimt.copy_start %a, %p {by = "queue"}\n'
        "%v = simt.commit : token<copies>\nsimt.wait tokens=[%u]\n"
        '%x = simt.dot %a, %a1, %c {plan = "p"} : tile<8x8xf32>',
        "simt.dot at .*: reads %a",
    ),
    "a slot by a product that one thread starts": (
        'simt.copy_start %a, %p {by = "queue"}\n%u = simt.commit : token<copies>\n'
        "%m = simt.accumulators {units = 8} : i32\n"
        "%s = simt.accumulator %m {first = 0} : accumulator<8x8xf32>\n"
        'simt.dot_into %a, %a1, %s, %q {plan = "p"}',
        "simt.dot_into at .*: reads %a",
    ),
    "a slot in a branch": (
        (
            'simt.copy_start %a, %p {by = "queue"}\n%u = simt.commit : token<copies>\n'
            "if %q then {\n%x = simt.load %a : tile<8x8xf32>\nyield\n} else {\nyield\n}"
        ),
        "simt.load at .*: reads %a",
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_tiles_in_flight_may_be(name: str) -> None:
    check_in_flight(function_of(RIGHT[name]))


@pytest.mark.parametrize("name", WRONG)
def test_what_reads_too_early_is_named(name: str) -> None:
    body, message = WRONG[name]
    with pytest.raises(FlightError, match=message):
        check_in_flight(function_of(body))


def test_products_that_go_on_in_the_same_registers_are_a_chain() -> None:
    function = function_of(
        start("a0", "c") + start("a1x", "a0") + start("b0", "c") + loop(start("d", "x"), "%d, %t_d")
    )
    flights = InFlight(function)
    named = {value.name: value for value in flights.values}
    chains = {name: flights.chain(value) for name, value in named.items()}
    assert chains["a0"] == chains["a1x"]
    assert chains["d"] == chains["x"] == chains["acc"]
    assert len({chains["a0"], chains["b0"], chains["d"]}) == 3 == len(set(chains.values()))
    assert not flights.may_be(function.arguments[1])
