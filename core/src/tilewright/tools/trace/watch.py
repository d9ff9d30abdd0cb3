"""Launch of a kernel that records the float values it computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.errors import BackendError
from tilewright.passes.watch import record
from tilewright.passes.watch.instrument import WatchedValue, instrument
from tilewright.plugins.manifest import Memory
from tilewright.runtime.arguments.array_protocols import ArrayView
from tilewright.runtime.arguments.dlpack import contiguous_strides
from tilewright.runtime.compiler.compile import build_module, lower_module
from tilewright.runtime.compiler.selection import Selected
from tilewright.runtime.launch.compiled_kernel import CompiledKernel
from tilewright.runtime.launch.grid import Grid, grid_of
from tilewright.runtime.launch.jit import JITFunction
from tilewright.tools.trace.report import WatchReport

#: Bytes that the records are aligned to.
_ALIGNMENT = 256
#: NumPy's types of the records and sums -> their names as types of arguments.
_TYPES = {np.dtype(np.int64): "i64", np.dtype(np.float32): "fp32"}


class Watched:
    """A kernel whose launches record its values: ``watched[grid](*args, **keywords)``."""

    def __init__(self, kernel: JITFunction) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: Any) -> Any:
        """Return the function that launches over a grid, waits, and returns the report."""

        def launch(*args: Any, **keywords: Any) -> WatchReport:
            return self._run(grid, args, keywords)

        return launch

    def _run(self, grid: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> WatchReport:
        bound, _, _ = self.kernel.bind(*args, **keywords)
        selected = self.kernel.selected(args, keywords)
        sizes = grid_of(grid, dict(zip(self.kernel.arg_names, bound, strict=True)))
        memory = selected.backend.call("tilewright_memory", device=selected.device)
        if memory is None:
            raise BackendError(
                f"backend {selected.backend.name!r} does not copy from its devices, so the records "
                "of a watched launch cannot be read; watch the kernel on another backend"
            )
        watched, compiled = _compiled(selected)
        records = record.empty(max(len(watched), 1))
        sums = np.zeros(len(records), np.float32)
        if 0 not in sizes:
            values = compiled.pick(bound)
            _launch(compiled, sizes, values, memory, (records, sums))
        return WatchReport.of(self.kernel.__name__, watched, records, sums, sizes)


def watch(kernel: Any) -> Watched:
    """Return an instrumented kernel whose launches record the float values of the kernel.

    Launch the instrumented kernel as ``watch(kernel)[grid](*args, **keywords)``, with the arguments
    of a launch of the original kernel. The launch writes the same arrays as a launch of the
    original kernel, waits until the kernel has finished, and returns a :class:`WatchReport`. Each
    launch compiles the instrumented kernel, which is many times slower than the original kernel.
    The last bits of results can differ from those of the original kernel, because the compiler may
    fuse fewer multiplications with additions in the instrumented kernel.

    Args:
        kernel: a kernel of ``tilewright.jit``, or of Triton through the shim. If it has a decorator
            (``autotune``, ``heuristics``), the decorator is ignored: pass the values of a
            configuration as keywords.

    Raises:
        TypeError: ``kernel`` is not a kernel.
        BackendError: at a launch, if the backend cannot copy from its device's memory.
    """
    found = getattr(kernel, "base_kernel", kernel)
    if not isinstance(found, JITFunction):
        raise TypeError(f"watch takes a kernel (a function with @jit), not {found!r:.100}")
    return Watched(found)


def _compiled(selected: Selected) -> tuple[list[WatchedValue], CompiledKernel]:
    """Compile the instrumented kernel; the second parameter list ends with the records."""
    specialization, backend, target = selected.specialization, selected.backend, selected.target
    module = build_module(specialization, backend, target)
    watched = instrument(module)
    artifact = lower_module(module, specialization.options, backend, target)
    return watched, CompiledKernel(
        artifact, specialization, backend, target, selected.device, selected.signature.converters
    )


def _launch(
    compiled: CompiledKernel,
    sizes: Grid,
    values: tuple[Any, ...],
    memory: Memory,
    arrays: Sequence[np.ndarray[Any, Any]],
) -> None:
    """Launch with copies of arrays behind the other values, and copy them back."""
    device = compiled.device
    assert device is not None
    buffers = [memory.allocate(array.nbytes, _ALIGNMENT) for array in arrays]
    views = []
    for buffer, array in zip(buffers, arrays, strict=True):
        memory.copy_to_device(buffer, array.data.cast("B"))
        address, shape = int(buffer.data_ptr()), array.shape
        place, strides = (device.kind, device.index), contiguous_strides(shape)
        views.append(ArrayView(buffer, address, _TYPES[array.dtype], shape, strides, place))
    compiled.run(sizes, None, (*values, *views))
    memory.synchronize()
    for buffer, array in zip(buffers, arrays, strict=True):
        memory.copy_to_host(buffer, array.data.cast("B"))
