"""The layouts that the compiler chooses for a kernel."""

from __future__ import annotations

import re
from typing import Any

from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import Specialization, build_module, lower_module
from tilewright.runtime.devices.device_registry import named_target
from tilewright.runtime.options import resolve
from tilewright.tools.inspect import bind_types


def simt_text(kernel: Any, signature: str, constants: dict[str, Any], architecture: str) -> str:
    """Return the SIMT IR of a kernel for an architecture of NVIDIA, without a device."""
    backend = registry().get("nvidia")
    target = named_target(backend, architecture)
    types, facts, values = bind_types(kernel, signature, constants)
    options = resolve(backend, kernel.__name__, {}, {})
    module = build_module(Specialization(kernel, types, values, facts, options), backend, target)
    return lower_module(module, options, backend, target).code.stages["simt"]


def layout_of(text: str, operation: str) -> str:
    """Return the layout of the result of the first operation of a name.

    Raises:
        LookupError: there is none.
    """
    for line in text.splitlines():
        if f" {operation} " in line and (found := re.search(r"(#[LS]\d+)", line)):
            return definition(text, found[1])
    raise LookupError(f"no {operation} in the text")


def definition(text: str, name: str) -> str:
    """Return the layout that a name of the text, such as ``#L0``, stands for."""
    found = re.search(rf"^{name} = (.*)$", text, re.M)
    if found is None:
        raise LookupError(f"{name} is not defined in the text")
    return found[1]
