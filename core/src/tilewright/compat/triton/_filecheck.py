"""``triton._filecheck``: the frontend alone; its text cannot be compared with MLIR."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.compat.triton.backends.targets import GPUTarget, place_of
from tilewright.compat.triton.compiler.choice import backend_of
from tilewright.compat.triton.compiler.options import tilewright_options, triton_options
from tilewright.compat.triton.compiler.sources import ASTSource
from tilewright.compat.triton.outside import OutsideStageError
from tilewright.errors import BackendError
from tilewright.runtime.compiler.compile import build_module
from tilewright.runtime.compiler.specialize import Signature

#: What kernels are read for; no such device is needed.
stub_target = GPUTarget("cuda", 100, 32)


class MatchError(ValueError):
    """A text does not match its template."""

    def __init__(self, message: str, module_str: str) -> None:
        super().__init__(message)
        self.module_str = module_str

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.module_str}"


def run_parser(
    kernel_fn: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    target: GPUTarget = stub_target,
) -> Any:
    """Return a kernel as a module of Tile IR, for arguments (or types) and launch options.

    It is for the active target where none is made for ``target``.

    Raises:
        CompilationError: the kernel breaks a rule of the language.
    """
    from tilewright.compat.triton.runtime.driver import driver
    from tilewright.runtime.arguments.mock_tensors import MockTensor

    bound, kinds, options = kernel_fn.bind(
        *map(MockTensor.wrap_dtype, args), **{"sanitize_overflow": False, **(kwargs or {})}
    )
    signature = Signature.of(kernel_fn.params, kinds, bound)
    try:
        backend = backend_of(target)
        own, _ = place_of(target, backend)
    except BackendError:
        current = driver.active.get_current_target()
        backend = backend_of(current)
        own, _ = place_of(current, backend)
    chosen = tilewright_options(backend, own, triton_options(backend, own, options).__dict__)
    source = ASTSource(kernel_fn, signature.types)
    specialization = source.specialize(chosen)
    return build_module(_with(specialization, signature), backend, own)


def _with(specialization: Any, signature: Signature) -> Any:
    from dataclasses import replace

    return replace(specialization, constants=signature.constants, attributes=signature.attributes)


def run_filecheck(name: str, module_str: str, check_template: str) -> None:
    """Raises OutsideStageError: templates are MLIR."""
    raise OutsideStageError(
        f"{name}: the frontend writes Tile IR, which cannot be compared with a template of MLIR"
    )


def run_filecheck_test(
    kernel_fn: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> None:
    """Run the frontend over a kernel.

    Raises:
        CompilationError: the kernel breaks a rule of the language.
        OutsideStageError: it does not; its template is MLIR.
    """
    run_filecheck(kernel_fn.__name__, str(run_parser(kernel_fn, args, kwargs)), kernel_fn.src)


def filecheck_test(fn: Any) -> Callable[[], None]:
    """A test that runs :func:`run_filecheck_test` on a kernel."""

    @functools.wraps(fn)
    def test() -> None:
        run_filecheck_test(fn)

    return test


__all__ = [
    "MatchError",
    "filecheck_test",
    "run_filecheck",
    "run_filecheck_test",
    "run_parser",
    "stub_target",
]
