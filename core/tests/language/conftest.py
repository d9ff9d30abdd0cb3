"""Driving the language's semantics directly: values of any type, the IR they become, and kernels
run by the reference interpreter."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright import ir
from tilewright.frontend import compile_function
from tilewright.language.semantic import Options, Semantic
from tilewright.plugins.manifest import Target
from tilewright.reference.interpreter import run as interpret


class Bench:
    """A function under construction.

    ``bench(tl.load, x)`` calls a builtin; ``bench.semantic`` evaluates operators; ``bench.text`` is
    the body so far.
    """

    def __init__(self, options: Options | None = None) -> None:
        self.module = ir.Module()
        self.function = self.module.add(ir.Function("f", ()))
        self.builder = ir.Builder.at_end(self.function.body)
        self.semantic = Semantic(self.builder, options)

    def value(self, type_: Any, shape: Sequence[int] = (), name: str = "") -> Any:
        """An argument of the function, as a tensor: of a dtype, a text such as ``"*fp32"``, in a
        shape."""
        if isinstance(type_, str):
            type_ = tl.str_to_ty(type_)
        full = tl.block_type(type_, shape) if shape else type_
        arguments = [self.function.body.add_argument(flat, name) for flat in full.flatten()]
        self.function.argument_attributes.extend({} for _ in arguments)
        return full.unflatten(iter(arguments))

    def __call__(self, builtin: Any, *args: Any, **kwargs: Any) -> Any:
        return builtin(*args, _semantic=self.semantic, **kwargs)

    def verify(self) -> None:
        """Close the function and check every operation."""
        self.builder.return_([])
        ir.verify(self.module)

    @property
    def text(self) -> str:
        """The operations, one a line, without locations."""
        lines = str(self.module).splitlines()
        start = next(i for i, line in enumerate(lines) if "@f" in line)
        body = [re.sub(r" loc\(.*", "", line).strip() for line in lines[start + 1 :]]
        return "\n".join(line for line in body if line and line != "}")

    @property
    def names(self) -> list[str]:
        """The names of the operations, in order."""
        return [operation.name for operation in self.function.body]

    @property
    def last(self) -> ir.Operation:
        operation = self.function.body.last
        assert operation is not None
        return operation


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def make_bench() -> Callable[..., Bench]:
    """``make_bench(**options)``: a bench with options; ``capabilities`` are those of a target of
    the backend ``small``."""

    def make(capabilities: Any = None, **options: Any) -> Bench:
        if capabilities is not None:
            options["target"] = Target("small", "one", kind="cpu", capabilities=capabilities)
        return Bench(Options(**options))

    return make


@pytest.fixture
def run() -> Callable[..., None]:
    """``run(kernel, *arrays_and_scalars, **constants)``: compile for the arguments' types, verify,
    and interpret as one program (or ``grid``)."""

    def launch(
        kernel: Any,
        *arguments: Any,
        grid: tuple[int, int, int] = (1, 1, 1),
        options: Options | None = None,
        **constants: Any,
    ) -> None:
        signature: dict[str, Any] = {}
        for name, argument in zip(kernel.arg_names, arguments, strict=False):
            signature[name] = _signature_of(argument)
        signature.update(dict.fromkeys(constants, "constexpr"))
        module = compile_function(kernel, signature, constants, None, options)
        ir.verify(module)
        interpret(module, list(arguments), grid)

    return launch


def _signature_of(argument: Any) -> str:
    if isinstance(argument, np.ndarray):
        kind, bits = argument.dtype.kind, argument.dtype.itemsize * 8
        return "*" + ("u1" if kind == "b" else {"i": "i", "u": "u", "f": "fp"}[kind] + str(bits))
    if isinstance(argument, bool):
        return "u1"
    if isinstance(argument, int):
        return "i32" if -(2**31) <= argument < 2**31 else "i64"
    return "fp32"
