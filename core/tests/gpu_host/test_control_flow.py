"""Natural loops of instruction lists: which instructions they have, and which are innermost."""

from __future__ import annotations

from tilewright.gpu_host.control_flow import Instruction, NaturalLoop, loops


def program(text: str) -> list[Instruction]:
    """Instructions of lines like ``a: op``, ``op ?a`` (a conditional branch), ``op !a`` and
    ``end``."""
    code = []
    for line in text.strip().splitlines():
        label, colon, rest = line.strip().partition(": ")
        words = (rest if colon else line.strip()).split()
        target = next((word[1:] for word in words if word[0] in "?!"), "")
        falls = words[0] != "end" and not any(word[0] == "!" for word in words)
        code.append(
            Instruction(words[0], " ".join(words), (label,) if colon else (), target, falls)
        )
    return code


def test_straight_code_and_no_code_have_no_loop() -> None:
    assert loops(program("x\ny\nend")) == []
    assert loops([]) == []


def test_a_loop_is_what_reaches_its_header_again() -> None:
    assert loops(program("x\na: y\nz ?a\nend")) == [NaturalLoop((1, 2))]


def test_nested_loops_are_told_apart() -> None:
    found = loops(program("a: x\nb: y\nz ?b\nw ?a\nend"))
    assert found == [NaturalLoop((0, 1, 2, 3), innermost=False), NaturalLoop((1, 2))]


def test_a_branch_forward_is_no_loop_and_its_code_belongs_to_the_loop_it_lies_in() -> None:
    found = loops(program("a: x ?c\ny\nc: z ?a\nend"))
    assert found == [NaturalLoop((0, 1, 2))]


def test_code_out_of_line_that_goes_back_makes_no_loop_of_what_lies_between() -> None:
    # the slow path of a wait stands behind the end and has a loop of its own
    found = loops(program("a: x ?slow\nback: y\nz ?a\nend\nslow: w ?slow\nv !back"))
    assert found == [NaturalLoop((0, 1, 2, 4, 5), innermost=False), NaturalLoop((4,))]


def test_two_branches_to_one_header_make_one_loop() -> None:
    assert loops(program("a: x ?a\ny ?a\nend")) == [NaturalLoop((0, 1))]


def test_code_that_nothing_reaches_has_no_loop() -> None:
    assert loops(program("x\nend\na: y !a")) == []
