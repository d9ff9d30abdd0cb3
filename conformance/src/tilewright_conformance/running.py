"""Running a module on a backend without the runtime around it: lower, load, launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import Module
from tilewright.plugins.manifest import Parameter
from tilewright.plugins.registry import registry

#: Options of a differential run: no multiply-add is fused, so that exact operations stay exact.
EXACT = {"enable_fp_fusion": False}


def run_on_backend(name: str, module: Module, arguments: Sequence[Any], grid: tuple[int, int, int]) -> None:
    """Run a module's kernel on a backend's first device; arrays among ``arguments`` are changed in place.

    Raises:
        BackendError: the backend has no device, or cannot lower the module.
    """
    backend = registry().get(name)
    device = backend.call("tilewright_devices")[0]
    options = {**backend.manifest.options, **EXACT}
    code = backend.call("tilewright_lower", module=module, target=backend.call("tilewright_target", device=device), options=options)
    parameters = [Parameter(argument.name, str(argument.type)) for argument in module.kernel.arguments]
    loaded = backend.call("tilewright_load", code=code, device=device)
    launch = backend.call("tilewright_launcher", loaded=loaded, parameters=parameters, options=options)
    launch(grid, None, tuple(arguments))
