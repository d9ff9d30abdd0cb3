"""Kernels from source text, compiled to IR and run by the reference interpreter."""

from __future__ import annotations

import importlib.util
import itertools
import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tilewright.errors import CompilationError
from tilewright.frontend import compile_function
from tilewright.ir import Module, Operation, verify
from tilewright.language.semantic import Options
from tilewright.reference.interpreter import run as interpret

_HEADER = """\
import math
from collections import namedtuple
import tilewright.language as tl
from tilewright.language.definitions.callable import constexpr_function, device_function as jit
"""
_numbers = itertools.count()


class Source:
    """A module made of source text, whose functions can be compiled."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    def compile(
        self,
        name: str = "kernel",
        options: Options | None = None,
        attributes: Any = None,
        **arguments: Any,
    ) -> Module:
        """Compile a function: ``x="*fp32"`` states a type; a value that is no text, or a pair
        ``("constexpr", value)``, a constant."""
        signature: dict[str, Any] = {}
        constants: dict[str, Any] = {}
        for key, value in arguments.items():
            if isinstance(value, str):
                signature[key] = value
            elif isinstance(value, tuple) and len(value) == 2 and value[0] == "constexpr":
                signature[key], constants[key] = value
            elif isinstance(value, tuple):
                signature[key] = value
            else:
                signature[key], constants[key] = "constexpr", value
        module = compile_function(
            getattr(self.module, name), signature, constants, attributes, options
        )
        verify(module)
        return module

    def run(
        self,
        arguments: Sequence[Any],
        name: str = "kernel",
        grid: tuple[int, int, int] = (1, 1, 1),
        **types: Any,
    ) -> Module:
        """Compile a function and run it on ``arguments`` (those that are no constants)."""
        module = self.compile(name, **types)
        interpret(module, list(arguments), grid)
        return module

    @staticmethod
    def interpret(
        module: Module, arguments: Sequence[Any], grid: tuple[int, int, int] = (1, 1, 1)
    ) -> None:
        """Run a compiled module."""
        interpret(module, list(arguments), grid)

    def result(self, *arguments: Any, **types: Any) -> int:
        """Return the value that the kernel stores at its first parameter ``out``, an i32."""
        out = np.full(1, -1, np.int32)
        self.run([out, *arguments], out="*i32", **types)
        return int(out[0])

    @staticmethod
    def operations(module: Module, name: str) -> list[Operation]:
        """The operations of that name, anywhere in the module."""
        return [operation for operation in module.walk() if operation.name == name]

    def error(self, name: str = "kernel", **arguments: Any) -> CompilationError:
        """The error that compiling gives."""
        with pytest.raises(CompilationError) as caught:
            self.compile(name, **arguments)
        return caught.value


@pytest.fixture
def source(tmp_path: Path) -> Callable[[str], Source]:
    """``source(text)``: a module of that text, after imports of ``tl``, ``jit``,
    ``constexpr_function``, ``namedtuple`` and ``math``."""

    def make(text: str) -> Source:
        name = f"kernels_{next(_numbers)}"
        path = tmp_path / f"{name}.py"
        path.write_text(_HEADER + textwrap.dedent(text))
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return Source(module)

    return make


@pytest.fixture
def ir_text() -> Callable[[Module], str]:
    """The text of a module without locations and header."""

    def text(module: Module) -> str:
        lines = [re.sub(r" loc\(.*", "", line) for line in str(module).splitlines()]
        return "\n".join(line for line in lines if line and not line.startswith("tilewright.ir"))

    return text
