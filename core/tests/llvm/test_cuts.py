"""Blocks that are cut compute what they did, in pieces no longer than was asked for."""

from __future__ import annotations

import ctypes
import re

import pytest

from tilewright.llvm.codegen.compile import compile_to_object, host_target
from tilewright.llvm.codegen.link import load_object
from tilewright.llvm.emission.split_blocks import LONGEST, cut_blocks
from tilewright.llvm.emission.writer import ModuleWriter

#: Instructions in a row.
CHAIN = 25


def written() -> str:
    """``f(n)``: a loop with a branch, long chains in every block, and phis that name blocks of all
    kinds."""
    module = ModuleWriter("nounwind")
    module.function("g", [("i64", "x")], "i64").ret("i64 %x")
    w = module.function("f", [("i64", "n")], "i64")
    place = w.alloca("i64", 1, 8)

    def chain(value: str, step: int) -> str:
        for i in range(CHAIN):
            value = w.emit(f"{'xor' if i % 2 else 'add'} i64 {value}, {step + i}")
        return value

    start = chain("%n", 3)
    with w.loop("0", "%n", 1, [("i64", start)]) as loop:
        value = chain(loop.values[0], 5)
        odd, even, join = (w.new_block(name) for name in ("odd", "even", "join"))
        w.branch_if(w.emit(f"trunc i64 {value} to i1"), odd, even)
        w.place(odd)
        w.store("i64", chain(value, 7), place, 8)
        first = w.load("i64", place, 8)
        w.branch(join)
        w.place(even)
        second = chain(value, 11)
        w.branch(join)
        w.place(join)
        loop.next_values = [chain(w.phi("i64", ((first, odd), (second, even))), 13)]
    w.ret(f"i64 {loop.results[0]}")
    return module.text()


def called(text: str, n: int) -> int:
    triple, cpu, features = host_target()
    loaded = load_object(
        compile_to_object(text, triple=triple, cpu=cpu, features=features, opt=0), ("f",)
    )
    return int(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address("f"))(n))


@pytest.mark.parametrize("longest", [1, 2, 7, CHAIN, CHAIN + 1])
def test_pieces_compute_what_the_whole_does(longest: int) -> None:
    text = written()
    cut = cut_blocks(text, longest)
    assert [called(cut, n) for n in range(9)] == [called(text, n) for n in range(9)]
    bodies = [part.split("\n") for part in re.split(r"\n[\w.]+:\n", cut)]
    counted = [
        sum(
            line.startswith("  ") and not re.search(r" = (phi|alloca) |br label %cut\.", line)
            for line in body
        )
        for body in bodies
    ]
    assert max(counted) == longest or longest > CHAIN


def test_short_blocks_are_left() -> None:
    text = written()
    assert cut_blocks(text, LONGEST) == text
