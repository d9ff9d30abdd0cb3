"""Random programs with every kind of control flow mean the same in a kernel as in Python.

Each program is written once. Python executes it as it is, on integers; the frontend compiles it and
the reference interpreter runs the IR. Both leave a
trace: every ``emit`` writes a value to the next place of an array, so that not only the results but
also the path is compared.

Values stay in 0 .. 255, where Python's ``%`` and a kernel's agree.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

_LENGTH = 4096


class Writer:
    """Writes one random program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.variables = ["a", "b", "c", "d"]
        self.counters = 0
        self.loops: list[str] = []
        self.budget = 30
        self.returns = "value"
        self.helpers: list[str] = []
        self.static: list[str] = []

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def atom(self) -> str:
        choices = [
            self.random.choice(self.variables),
            str(self.random.randint(0, 20)),
            *self.static,
        ]
        return self.random.choice(choices)

    def expression(self, depth: int = 0) -> str:
        kind = self.random.randint(0, 7 if depth < 2 else 1)
        if kind <= 1:
            return self.atom()
        left, right = self.expression(depth + 1), self.expression(depth + 1)
        if kind == 2:
            return f"(({left} + {right}) % 97)"
        if kind == 3:
            return f"(({left} * {right}) % 53)"
        if kind == 4:
            return f"(({left} + 300 - {right}) % 41)"
        if kind == 5:
            return f"({left} if {self.condition(depth + 1)} else {right})"
        if kind == 6 and self.helpers:
            return f"{self.random.choice(self.helpers)}({left}, {right})"
        return f"({left} ^ {right})"

    def condition(self, depth: int = 0) -> str:
        kind = self.random.randint(0, 6 if depth < 2 else 2)
        if kind == 6:
            return self.random.choice(["YES", "NO", "NO is None", "YES is not None"])
        if kind <= 2:
            relation = self.random.choice(["<", ">", "==", "!=", "<=", ">="])
            return f"{self.expression(depth + 1)} {relation} {self.expression(depth + 1)}"
        if kind == 3:
            return f"({self.condition(depth + 1)} and {self.condition(depth + 1)})"
        if kind == 4:
            return f"({self.condition(depth + 1)} or {self.condition(depth + 1)})"
        return f"(not {self.condition(depth + 1)})"

    def block(self, depth: int) -> None:
        count = self.random.randint(1, 4)
        for _ in range(count):
            if self.budget <= 0:
                break
            self.budget -= 1
            if self.statement(depth):
                break
        else:
            return
        self.put(depth, "pass")

    def statement(self, depth: int) -> bool:
        """Write a statement; whether it ends the block."""
        kind = self.random.random()
        nested = depth < 6
        if kind < 0.06:
            self.put(depth, f"v = (v * 3 + {self.expression()}) % 101")
            return False
        if kind < 0.30:
            target = self.random.choice(self.variables)
            if self.random.random() < 0.25:
                operator = self.random.choice(["+", "^"])
                self.put(depth, f"{target} = ({target} {operator} {self.expression()}) % 89")
            elif self.random.random() < 0.2:
                # not one name twice: CPython 3.11 before 3.11.3 assigns to it in the wrong order
                other = self.random.choice([name for name in self.variables if name != target])
                self.put(depth, f"{target}, {other} = {self.expression()}, {self.expression()}")
            else:
                self.put(depth, f"{target} = {self.expression()}")
        elif kind < 0.42:
            self.emit(depth)
        elif kind < 0.66 and nested:
            self.put(depth, f"if {self.condition()}:")
            self.block(depth + 1)
            for _ in range(self.random.choice([0, 0, 1])):
                self.put(depth, f"elif {self.condition()}:")
                self.block(depth + 1)
            if self.random.random() < 0.5:
                self.put(depth, "else:")
                self.block(depth + 1)
        elif kind < 0.86 and nested and len(self.loops) < 3:
            self.loop(depth)
        elif kind < 0.95 and self.loops:
            self.put(depth, self.random.choice(["break", "continue"]))
            return True
        elif kind >= 0.97:
            self.put(depth, self.return_statement())
            return True
        else:
            self.emit(depth)
        return False

    def return_statement(self) -> str:
        return f"return {self.expression()}" if self.returns == "value" else "return"

    def emit(self, depth: int) -> None:
        if self.returns == "value":
            self.put(depth, f"{self.random.choice(self.variables)} = {self.expression()}")
        else:
            self.put(depth, f"if t < {_LENGTH - 1}:")
            self.put(depth + 1, f"tl.store(out + t, {self.expression()})")
            self.put(depth + 1, "t += 1")

    def loop(self, depth: int) -> None:
        self.counters += 1
        name = f"i{self.counters}"
        kind = self.random.randint(0, 5)
        count = self.random.randint(0, 5)
        known, after = False, ""
        if kind == 0:
            self.put(depth, f"for {name} in range({self.atom()} % 6):")
        elif kind == 1:
            self.put(
                depth,
                (
                    f"for {name} in range({self.random.randint(0, 4)}, {self.atom()} % 12, "
                    f"{self.random.randint(1, 3)}):"
                ),
            )
        elif kind == 2:
            self.put(
                depth,
                (
                    f"for {name} in range({self.atom()} % 9, {self.random.randint(-1, 3)}, "
                    f"-{self.random.randint(1, 3)}):"
                ),
            )
        elif kind == 3:
            known = True
            self.put(depth, f"for {name} in tl.static_range({min(count, 3)}):")
        else:
            self.put(depth, f"{name} = 0")
            test = (
                "True"
                if kind == 5 and self.random.random() < 0.5
                else f"{name} < {self.atom()} % 7"
            )
            if kind == 5 and test != "True" and self.random.random() < 0.5:
                test = f"({test}) and {self.condition()}"
            elif kind == 4 and self.random.random() < 0.4:
                name_of_value = self.random.choice([*self.variables, f"w{self.counters}"])
                test = (
                    f"({name_of_value} := ({name} + {self.expression()}) % 61) < "
                    f"{self.random.randint(10, 60)}"
                )
                if name_of_value not in self.variables:
                    after = f"a = (a + {name_of_value}) % 83"
            self.put(depth, f"while {test}:")
            self.put(depth + 1, f"{name} += 1")
            self.put(depth + 1, f"if {name} > 7:")
            self.put(depth + 2, "break")
        self.loops.append(name)
        saved_variables, saved_static = list(self.variables), list(self.static)
        if known:
            self.static.append(name)
        elif kind in (0, 1):
            self.variables.append(name)
        self.block(depth + 1)
        self.variables, self.static = saved_variables, saved_static
        self.loops.pop()
        if self.random.random() < 0.25:
            self.put(depth, "else:")
            self.block(depth + 1)
        if after:
            self.put(depth, after)


_PREAMBLE = """\
from tilewright.language.definitions.callable import device_function

YES = tl.constexpr(True)
NO = tl.constexpr(False)
noinline = device_function(noinline=True)
"""


def program(seed: int) -> str:
    """The text of a program: helpers that return values, and a kernel. Scalars are merged and
    carried, and one tile, ``v``."""
    lines: list[str] = []
    helpers: list[str] = []
    for index in range(2):
        writer = Writer(seed * 31 + index)
        writer.budget = 8
        writer.helpers = list(helpers)
        writer.put(0, writer.random.choice(["@jit", "@noinline"]))
        writer.put(0, f"def helper{index}(a, b):")
        writer.put(1, "c = a")
        writer.put(1, "d = b")
        writer.put(1, "v = tl.arange(0, 4)")
        writer.block(1)
        writer.put(1, f"return {writer.expression()}")
        lines += [*writer.lines, ""]
        helpers.append(f"helper{index}")
    writer = Writer(seed)
    writer.returns = "nothing"
    writer.helpers = helpers
    writer.put(0, "@jit")
    writer.put(0, "def kernel(out, a0, b0):")
    for name, value in (
        ("a", "a0"),
        ("b", "b0"),
        ("c", "7"),
        ("d", "a0"),
        ("t", "0"),
        ("v", "tl.arange(0, 4)"),
    ):
        writer.put(1, f"{name} = {value}")
    while writer.budget > 0:
        writer.budget -= 1
        if writer.statement(1):
            break
    for name in ("a", "b", "c", "d"):
        writer.put(1, f"tl.store(out + t, {name})")
        writer.put(1, "t += 1")
    writer.put(1, "tl.store(out + t + tl.arange(0, 4), v)")
    return "\n".join([*lines, *writer.lines, ""])


class Pointer:
    """Python's side of a pointer argument."""

    def __init__(self, array: np.ndarray, offset: Any = 0) -> None:
        self.array, self.offset = array, offset

    def __add__(self, offset: Any) -> Pointer:
        return Pointer(self.array, self.offset + offset)


class Language:
    """Python's side of ``tl``."""

    static_range = range
    arange = staticmethod(np.arange)

    @staticmethod
    def store(pointer: Pointer, value: Any) -> None:
        pointer.array[pointer.offset] = value


def expected(text: str, arguments: tuple[int, int]) -> np.ndarray:
    """Return Python's result of a program."""
    namespace: dict[str, Any] = {
        "jit": lambda fn: fn,
        "noinline": lambda fn: fn,
        "tl": Language,
        "YES": True,
        "NO": False,
    }
    exec(compile(text, "<program>", "exec"), namespace)
    out = np.full(_LENGTH + 8, -1, np.int32)
    namespace["kernel"](Pointer(out), *arguments)
    return out


def check(source: Any, seed: int) -> None:
    text = program(seed)
    made = source(_PREAMBLE + text)
    module = made.compile(out="*i32", a0="i32", b0="i32")
    for arguments in ((0, 0), (3, 5), (17, 90), (64, 1)):
        out = np.full(_LENGTH + 8, -1, np.int32)
        made.interpret(module, [out, *arguments])
        want = expected(text, arguments)
        assert np.array_equal(out, want), (
            f"seed {seed}, arguments {arguments}\n{text}\n"
            f"{out[: int((want >= 0).sum()) + 8]}\n{want[want >= 0]}"
        )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_a_random_program_means_what_python_means(source: Any, first: int) -> None:
    for seed in range(first, first + 20):
        check(source, seed)
