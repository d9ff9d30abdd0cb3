"""Number of groups that may be in flight at a wait for a token: the minimum over all paths."""

from __future__ import annotations

import pytest

from tilewright.simt.dialect.async_groups import Tokens
from tilewright.testing.stage_text import read

HEAD = (
    "kernel @k(%n: i32, %go: i1, %given: token<copies>, %t: tile<4x4xf32>) attributes {warps = "
    "2} {\n%zero = constant 0 : i32\n%one = constant 1 : i32\n"
)
COMMIT = "%{} = simt.commit : token<copies>\n"
A, B, C, D = (COMMIT.format(name) for name in "abcd")


def pending(body: str) -> list[list[tuple[str, int]]]:
    """Return the number of pending groups of each wait, in program order."""
    function = read(f"{HEAD}{body}\nreturn\n}}").kernel
    tokens = Tokens(function)
    return [
        tokens.pending(operation) for operation in function.walk() if operation.name == "simt.wait"
    ]


def copies(body: str) -> list[int]:
    """The same where all waits are for copies."""
    found = pending(body)
    assert all([queue for queue, _ in wait] == ["copies"] for wait in found)
    return [count for wait in found for _, count in wait]


def test_groups_that_ended_later_may_be_in_flight() -> None:
    assert copies(A + B + C + "simt.wait tokens=[%a]") == [2]
    assert copies(A + B + C + "simt.wait tokens=[%c]") == [0]
    assert copies(
        A + "simt.wait tokens=[%a]\n" + B + "simt.wait tokens=[%a]\nsimt.wait tokens=[%b]"
    ) == [0, 1, 0]


def test_the_youngest_of_several_tokens_counts() -> None:
    assert copies(A + B + C + "simt.wait tokens=[%a, %b]") == [1]


def test_queues_are_counted_apart() -> None:
    dot = '%r, %p = simt.dot_start %t, %t, %t {plan = "p"} : tile<4x4xf32>, token<matmuls>\n'
    body = (
        A
        + dot
        + B
        + (
            "%v = simt.commit : token<vendor>\nsimt.wait tokens=[%a]\nsimt.wait tokens=[%p, %b]\n"
            "simt.wait tokens=[%v]"
        )
    )
    assert pending(body) == [[("copies", 1)], [("matmuls", 0), ("copies", 0)], [("vendor", 0)]]


def loop(inits: str, arguments: str, body: str, yields: str) -> str:
    types = ", ".join(["token<copies>"] * (inits.count(",") + 1))
    results = ", ".join(f"%r{i}" for i in range(inits.count(",") + 1))
    declared = "".join(f", {name.strip()}: token<copies>" for name in arguments.split(","))
    return (
        f"{results} = for %zero, %n, %one, inits=[{inits}] : {types} body(%i: i32{declared}) {{\n"
        f"{body}yield {yields}\n}}\n"
    )


def test_a_token_that_is_carried_one_iteration() -> None:
    body = loop("%a", "%x", "simt.wait tokens=[%x]\n" + B, "%b")
    # before the wait nothing else was ended; after the loop the token is that of the last group, or
    # of the one before
    assert copies(A + body + "simt.wait tokens=[%r0]") == [0, 0]


def test_tokens_that_are_handed_on_from_iteration_to_iteration() -> None:
    """Three slots: two groups are in flight at the top, one may be where the first is waited
    for."""
    body = loop("%a, %b", "%x, %y", "simt.wait tokens=[%x]\n" + C, "%y, %c")
    assert copies(A + B + body + "simt.wait tokens=[%r0]\nsimt.wait tokens=[%r1]") == [1, 1, 0]


def test_a_wait_after_the_next_group_has_started() -> None:
    body = loop("%a", "%x", B + "simt.wait tokens=[%x]\n", "%b")
    assert copies(A + body) == [1]


def test_a_group_in_the_loop_counts_for_tokens_from_outside() -> None:
    """In the first iteration no group was committed since.

    In later ones more were, but the minimum counts.
    """
    body = loop("%a", "%x", "simt.wait tokens=[%d]\n" + B, "%b")
    assert copies(D + A + body) == [1]


@pytest.mark.parametrize(
    ("then", "otherwise", "expected"),
    [
        (B, "", [0]),  # where it was not started
        (B, B.replace("%b", "%e"), [1]),
        (B + C, B.replace("%b", "%e"), [1]),
        ("", "", [0]),
    ],
)
def test_branches_that_start_groups(then: str, otherwise: str, expected: list[int]) -> None:
    body = f"if %go then {{\n{then}yield\n}} else {{\n{otherwise}yield\n}}\nsimt.wait tokens=[%a]"
    assert copies(A + body) == expected


def test_a_branch_chooses_a_token() -> None:
    """The older of the two is waited for by waiting for the younger."""
    body = (
        "%t1 = if %go : token<copies> then {\nyield %a\n} else {\nyield %b\n}\n"
        "simt.wait tokens=[%t1]"
    )
    assert copies(A + B + body) == [0]
    assert copies(A + B + C + body) == [1]


def test_of_a_token_that_is_not_known_all_is_waited_for() -> None:
    body = (
        "%t1 = if %go : token<copies> then {\nyield %given\n} else {\nyield %a\n}\n"
        "simt.wait tokens=[%t1]\nsimt.wait tokens=[%given]"
    )
    assert copies(A + B + body) == [0, 0]


def test_a_while_waits_on_both_sides_of_its_condition() -> None:
    body = """
    %r = while %a : token<copies> before(%x: token<copies>) {
      simt.wait tokens=[%x]
      %b = simt.commit : token<copies>
      condition %go, values=[%b]
    } after(%y: token<copies>) {
      %c = simt.commit : token<copies>
      simt.wait tokens=[%y]
      yield %c
    }
    simt.wait tokens=[%r]
    """
    assert copies(A + body) == [0, 1, 0]


def test_loops_in_loops() -> None:
    inner = (
        "%q = for %zero, %n, %one, inits=[%x] : token<copies> body(%j: i32, %y: token<copies>) {\n"
        + B
        + "simt.wait tokens=[%y]\nyield %b\n}\n"
    )
    assert copies(A + loop("%a", "%x", inner + "simt.wait tokens=[%q]\n", "%q")) == [1, 0]


def test_parts_count_their_own() -> None:
    part = 'simt.part {{name = "{0}", warps = 1}} body {{\n{1}yield\n}}\n'
    one = part.format("one", A + B + "simt.wait tokens=[%a]\n")
    other = part.format("other", C + "simt.wait tokens=[%c]\n")
    assert copies("simt.partition parts {\n" + one + other + "yield\n}") == [1, 0]


def counted(body: str) -> list[int]:
    """Return the pending copies of each wait, with three copies per ``simt.copy_start``."""
    slot = (
        "%buffer = simt.buffer : buffer<1 x 4x4xf32, shared<4x4>>\n"
        "%s = simt.slot %buffer, %zero : slot<4x4xf32, shared<4x4>>\n"
    )
    head = HEAD.replace("%n: i32", "%p: tile<4x4xptr<f32>>, %n: i32")
    function = read(f"{head}{slot}{body}\nreturn\n}}").kernel
    tokens = Tokens(function, lambda operation: 3)
    return [
        count
        for wait in function.walk()
        if wait.name == "simt.wait"
        for _, count in tokens.pending(wait)
    ]


START = 'simt.copy_start %s, %p {by = "x"}\n'


def test_copies_are_counted_where_the_machine_counts_them() -> None:
    """Those that were started after the group ended, whether their own has ended or not, and groups
    do not count."""
    assert counted(START + A + START + START + B + "simt.wait tokens=[%a]") == [6]
    assert counted(START + A + B + C + "simt.wait tokens=[%a]") == [0]
    assert counted(START + A + START + "simt.wait tokens=[%a]") == [3]
    assert counted(
        A + START + B + loop("%a, %b", "%x, %y", "simt.wait tokens=[%x]\n" + START + C, "%y, %c")
    ) == [3]
    assert counted(
        A
        + (
            f"if %go then {{\n{START}yield\n}} else {{\n{START}{START}yield\n}}\n"
            "simt.wait tokens=[%a]"
        )
    ) == [3]
