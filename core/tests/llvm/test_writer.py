"""Names in functions that are written as LLVM IR."""

from __future__ import annotations

from tilewright.llvm.codegen.compile import compile_to_object, host_target
from tilewright.llvm.emission.writer import ModuleWriter


def test_names_on_the_stack_are_not_those_of_parameters() -> None:
    module = ModuleWriter("nounwind")
    w = module.function("f", [("i64", f"{letter}{i}") for letter in "ast" for i in range(4)])
    places = [w.alloca("i64", 1, 8) for _ in range(3)]
    w.store("i64", "%a1", places[0], 8)
    w.ret()
    triple, cpu, features = host_target()
    assert compile_to_object(module.text(), triple=triple, cpu=cpu, features=features)


def test_plain_loops_hide_how_they_count() -> None:
    """Of an index that goes through a freeze nobody sees that it moves by a step; loops that
    multiply their index and hold no other stay as they are."""
    frozen = {}
    for plain in (False, True):
        w = ModuleWriter("nounwind", plain_loops=plain).function(
            "f", [("ptr", "p"), ("i64", "n"), ("float", "s")]
        )
        with w.loop("0", "%n") as outer:
            row = w.emit(f"mul i64 {outer.index}, %n")
            with w.loop("0", "%n", 4, [("ptr", "%p"), ("float", "%s")]) as straight:
                pointer, total = straight.values
                w.store("float", total, w.gep("float", pointer, straight.index), 4)
                straight.next_values = [
                    w.gep("float", pointer, 1),
                    w.emit(f"fadd float {total}, %s"),
                ]
            with w.loop("0", "%n") as scaled:
                w.store(
                    "float", "%s", w.gep("float", "%p", w.emit(f"mul i64 {row}, {scaled.index}")), 4
                )
        w.ret()
        triple, cpu, features = host_target()
        assert compile_to_object(w.module.text(), triple=triple, cpu=cpu, features=features)
        frozen[plain] = [line.split()[3] for line in w.text().splitlines() if " = freeze " in line]
    # the pointer and the index of the first inner loop, and the index of the outer one
    assert frozen == {False: [], True: ["i64", "ptr", "i64"]}
