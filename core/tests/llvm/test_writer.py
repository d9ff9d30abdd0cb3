"""Names in functions that are written as LLVM IR."""

from __future__ import annotations

from tilewright.llvm.compile import compile_to_object, host_target
from tilewright.llvm.writer import ModuleWriter


def test_names_on_the_stack_are_not_those_of_parameters() -> None:
    module = ModuleWriter("nounwind")
    w = module.function("f", [("i64", f"{letter}{i}") for letter in "ast" for i in range(4)])
    places = [w.alloca("i64", 1, 8) for _ in range(3)]
    w.store("i64", "%a1", places[0], 8)
    w.ret()
    triple, cpu, features = host_target()
    assert compile_to_object(module.text(), triple=triple, cpu=cpu, features=features)
