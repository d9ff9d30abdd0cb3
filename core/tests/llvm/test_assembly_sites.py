"""Errors of inline assembly name the line of the user's that brought it."""

from __future__ import annotations

import pytest

from tilewright.errors import LoweringError
from tilewright.ir.core import Location
from tilewright.llvm.assembly.assembly_sites import site
from tilewright.llvm.codegen.compile import compile_to_object, host_target, parse
from tilewright.llvm.emission.writer import ModuleWriter

FIRST = Location('a "kernel".py', 3, 4, "kernel")
INLINED = Location("helper.py", 7, 8, "helper", caller=FIRST)


def module(*calls: tuple[str, str, Location | None]) -> str:
    """The text of a module with calls of assembly, (text, constraints, location), each on the
    result of the one before."""
    writer = ModuleWriter()
    w = writer.function("f", [("i32", "x")], "i32")
    value = "%x"
    for text, constraints, location in calls:
        quoted = text.replace("\n", "\\0A")
        value = w.emit(
            f'call i32 asm sideeffect "{quoted}", "{constraints}"(i32 '
            f"{value}){site(writer, location)}"
        )
    w.ret(f"i32 {value}")
    return writer.text()


def refusal(text: str) -> LoweringError:
    triple, cpu, features = host_target()
    with pytest.raises(LoweringError) as caught:
        compile_to_object(text, triple=triple, cpu=cpu, features=features)
    return caught.value


def test_an_instruction_that_is_not_known_is_told_at_its_call() -> None:
    error = refusal(module(("", "=r,0", FIRST), ("\nfrobnicate", "=r,0", INLINED)))
    assert str(error).startswith(
        "inline assembly at helper.py:7:8 in helper: "
    ) and "(line 2 of it)\n    frobnicate" in str(error)
    assert error.__notes__ == [
        "  see: tilewright help guides/faq#errors-by-message",
        'called at a "kernel".py:3:4 in kernel',
    ]


def test_calls_are_told_apart_by_the_lines_of_their_assembly() -> None:
    both = [
        ("\n\n", "=r,0", FIRST),
        ("frobnicate", "=r,0", Location("other.py", 9)),
        ("\n", "=r,0", INLINED),
    ]
    for places in ([0, 1, 2], [2, 1, 0], [0, 2, 1], [1, 0, 2]):
        assert str(refusal(module(*(both[place] for place in places)))).startswith(
            "inline assembly at other.py:9:0: "
        )


def test_constraints_that_no_register_satisfies_are_told_at_their_call() -> None:
    error = refusal(module(("", "=r,0", INLINED), ("", "={no_such_register},0", FIRST)))
    assert str(error).startswith(
        'inline assembly at a "kernel".py:3:4 in kernel: couldn\'t allocate output register '
        "for constraint '{no_such_register}'"
    )


@pytest.mark.parametrize("constraints", ["=r,r,r", "r", "=r,5"])
def test_constraints_that_do_not_fit_the_operands_are_no_defect_of_the_backend(
    constraints: str,
) -> None:
    with pytest.raises(
        LoweringError,
        match=(
            r"inline assembly at helper.py:7:8 in helper: the constraints '.*' do not fit the "
            r"results and inputs: "
        ),
    ) as caught:
        parse(module(("", constraints, INLINED)))
    assert "reproducer" not in str(caught.value)


def test_where_the_place_is_not_known_all_places_are_told() -> None:
    error = refusal(module(("", "=r,0", FIRST), ("frobnicate", "=r,0", None)))
    assert str(error).startswith(
        "the target's assembler rejects the inline assembly of this kernel (at a "
        '"kernel".py:3:4 in kernel):'
    )
