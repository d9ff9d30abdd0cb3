"""Making small kernels by hand, and applying single operations to arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.ir import Builder, Function, Location, Module, Value, verify
from tilewright.ir.types import PointerType, TileType, Type, element_type, shape_of
from tilewright.reference.interpreter import run
from tilewright.reference.numerics import numpy_dtype


class LineBuilder(Builder):
    """A builder whose operations are on numbered lines: ``b.line(7)`` sets the line of what follows."""

    __slots__ = ()

    def line(self, number: int, function: str = "kernel", caller: Location | None = None) -> None:
        self.location = Location("kernel.py", number, 4, function, caller)


def make_kernel(types: Sequence[Type], body: Callable[..., None], names: Sequence[str] = ()) -> Module:
    """A verified module whose kernel has arguments of ``types`` and the body ``body(builder, *arguments)``."""
    module = Module()
    names = list(names) or [f"arg{index}" for index in range(len(types))]
    function = module.add(Function("kernel", types, argument_names=names))
    builder = LineBuilder.at_end(function.body, Location("kernel.py", 1, 4, "kernel"))
    body(builder, *function.arguments)
    builder.return_()
    verify(module)
    return module


def addresses(b: Builder, base: Value, shape: tuple[int, ...]) -> Value:
    """Pointers to the first elements after ``base``, row-major, as a tile of ``shape`` (or ``base`` itself for ``()``)."""
    if not shape:
        return base
    count = math.prod(shape)
    flat = b.addptr(b.splat(base, result=TileType((count,), base.type)), b.arange(start=0, end=count))
    return b.reshape(flat, result=TileType(shape, base.type)) if len(shape) > 1 else flat


def apply_operation(build: Callable[..., Any], operands: Sequence[tuple[Any, Type]], **options: Any) -> Any:
    """Apply ``build(builder, *values)`` to arrays (kept as the interpreter keeps them) of the given types; the results come back as arrays."""
    holders: list[Any] = []
    kinds: list[Type] = []

    def body(b: LineBuilder, *arguments: Value) -> None:
        values = [b.load(addresses(b, argument, shape_of(type_))) for argument, (_, type_) in zip(arguments, operands, strict=False)]
        b.line(2)
        results = build(b, *values)
        for pointer, result in zip(arguments[len(operands) :], results if isinstance(results, tuple) else (results,), strict=True):
            b.store(addresses(b, pointer, shape_of(result.type)), result)

    # Built once to learn the results' types, and again with pointers for them.
    def probe(b: LineBuilder, *arguments: Value) -> None:
        values = [b.load(addresses(b, argument, shape_of(type_))) for argument, (_, type_) in zip(arguments, operands, strict=True)]
        results = build(b, *values)
        kinds.extend(result.type for result in (results if isinstance(results, tuple) else (results,)))

    inputs = [PointerType(element_type(type_)) for _, type_ in operands]
    make_kernel(inputs, probe)
    module = make_kernel([*inputs, *(PointerType(element_type(kind)) for kind in kinds)], body)
    for array, type_ in operands:
        holders.append(np.ascontiguousarray(np.asarray(array, dtype=numpy_dtype(type_)).reshape(shape_of(type_))))
    outputs = [np.zeros(shape_of(kind), dtype=numpy_dtype(kind)) for kind in kinds]
    run(module, [*holders, *outputs], (1, 1, 1), **options)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


@pytest.fixture
def kernels() -> SimpleNamespace:
    """``make(types, body, names)``, ``addresses(b, base, shape)``, ``apply(build, operands)``, ``run``."""
    return SimpleNamespace(make=make_kernel, addresses=addresses, apply=apply_operation, run=run)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240817)


@pytest.fixture(autouse=True)
def _quiet():
    """What tests compute for comparison overflows on purpose."""
    with np.errstate(all="ignore"):
        yield
