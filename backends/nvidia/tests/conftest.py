"""Compilation helpers of the tests: Tile IR, PTX, and the messages of ptxas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from nvidia_support import compile_kernel, module_of

from tilewright.ir import Module
from tilewright.plugins.manifest import CodeObject
from tilewright_nvidia.toolchain.linking import Linked, assemble


@pytest.fixture
def tile_ir() -> Callable[..., Module]:
    """:func:`module_of`."""
    return module_of


@pytest.fixture
def ptx() -> Callable[..., str]:
    """``ptx(kernel, signature, arch, constants={...}, **options)``: PTX text that ptxas takes."""

    def build(*arguments: Any, **keywords: Any) -> str:
        code = compile_kernel(*arguments, **keywords)
        text = code.stages["ptx"]
        assert isinstance(text, str)
        arch = arguments[2] if len(arguments) > 2 else keywords.get("arch", "sm_90a")
        assemble(text, arch)
        return text

    return build


@pytest.fixture
def assembled() -> Callable[..., tuple[CodeObject, Linked]]:
    """As :func:`ptx`, with what ptxas says."""

    def build(*arguments: Any, **keywords: Any) -> tuple[CodeObject, Linked]:
        code = compile_kernel(*arguments, **keywords)
        arch = arguments[2] if len(arguments) > 2 else keywords.get("arch", "sm_90a")
        return code, assemble(code.stages["ptx"], arch)

    return build
