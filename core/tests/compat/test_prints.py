"""``tl.device_print`` as Triton has it: each thread of a program executes the print of a scalar."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")

import tilewright as tw  # noqa: E402
import tilewright.language as tl  # noqa: E402
from tilewright.compat import triton  # noqa: E402
from tilewright.ir.parser import parse_module  # noqa: E402


def prints(x, BLOCK: tl.constexpr):
    tl.device_print("scalar", tl.load(x))
    print("tile", tl.load(x + tl.arange(0, BLOCK)), BLOCK)
    print("here")


def each_thread(text):
    functions = parse_module(str(text)).functions.values()
    return [
        operation.each_thread
        for function in functions
        for operation in function.walk()
        if operation.name == "print"
    ]


def test_every_thread_of_tritons_kernels_prints_scalars_and_one_of_ours_does():
    x = torch.arange(4, dtype=torch.int32)
    assert each_thread(triton.jit(prints)[(1,)](x, BLOCK=4).asm["ttir"]) == [True] * 3
    assert each_thread(tw.jit(prints)[(1,)](x, BLOCK=4).asm["tileir"]) == [False] * 3


def test_programs_on_the_cpu_print_a_line_once(capfd):
    triton.jit(prints)[(2,)](torch.arange(2, dtype=torch.int32), BLOCK=2)
    lines = capfd.readouterr().out.splitlines()
    expected = [
        "idx () scalar: 0",
        "idx (0) tile: (operand 0) 0",
        "idx (1) tile: (operand 0) 1",
        "idx () tile: (operand 1) 2",
        "here",
    ]
    assert sorted(lines) == sorted(
        f"pid ({program}, 0, 0) {line}" for program in range(2) for line in expected
    )
