"""Batches of ``jax.vmap``: one more axis of the grid, or successive launches where none is free."""

from __future__ import annotations

import functools
import itertools
import linecache
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.ops.arithmetic import NumPrograms, ProgramId
from tilewright.ir.parser import parse_module
from tilewright.jax.work import copy, moved, start
from tilewright.runtime.arguments.array_protocols import ArrayView
from tilewright.runtime.arguments.dlpack import contiguous_strides
from tilewright.runtime.launch.compiled_kernel import CompiledKernel
from tilewright.runtime.launch.jit import JITFunction, jit

if TYPE_CHECKING:
    from tilewright.jax.call import KernelCall


def axes_read(compiled: CompiledKernel) -> set[int]:
    """The axes of the grid that a kernel reads its place or the extent of."""
    module = parse_module(str(compiled.asm["tileir"]), compiled.backend.table)
    return {
        operation.attribute("axis")
        for operation in module.walk()
        if isinstance(operation, ProgramId | NumPrograms)
    }


class Batch:
    """A call with the arrays of all elements of a batch.

    An array's leading axes, those beyond its rank, are as long as the batch's or 1, where all
    elements have the array in common. All work is put in a stream; without one it is done when the
    call returns.
    """

    def __init__(
        self,
        call: KernelCall,
        arrays: Sequence[ArrayView],
        outputs: Sequence[ArrayView],
        stream: int | None,
    ) -> None:
        self.call, self.stream = call, stream
        self.ranks = {**call.operands, **call.results}
        self.arrays = {
            **dict(zip(call.operands, arrays, strict=True)),
            **dict(zip(call.results, outputs, strict=True)),
        }
        some = next(iter(call.results))
        self.shape = self._leading(some)
        for name, array in zip(call.operands, arrays, strict=True):
            if name in call.results:
                self._copy(array, name)

    def run(self) -> None:
        count = math.prod(self.shape)
        if 0 in self.call.grid or count == 0:
            return
        if count == 1:
            self._launch(dict.fromkeys(self.arrays, 0))
        elif self.call.axis is not None and all(
            self._step(name) is not None for name in self.arrays
        ):
            self._launch_at_once(count)
        else:
            for element in itertools.product(*map(range, self.shape)):
                self._launch({name: self._offset(name, element) for name in self.arrays})

    def _leading(self, name: str) -> tuple[int, ...]:
        shape = self.arrays[name].shape
        return shape[: len(shape) - self.ranks[name]]

    def _size(self, name: str) -> int:
        """Elements of one element's array."""
        shape = self.arrays[name].shape
        return math.prod(shape[len(shape) - self.ranks[name] :])

    def _step(self, name: str) -> int | None:
        """Return an array's stride along the batch in elements; None without a single stride."""
        leading = self._leading(name)
        if leading == self.shape:
            return self._size(name)
        return 0 if all(extent == 1 for extent in leading) else None

    def _offset(self, name: str, element: tuple[int, ...]) -> int:
        leading = self._leading(name)
        steps = contiguous_strides(leading)
        return self._size(name) * sum(
            step * (at if extent > 1 else 0)
            for step, at, extent in zip(steps, element, leading, strict=True)
        )

    def _copy(self, array: ArrayView, name: str) -> None:
        """Let a result begin as what comes in."""
        result, size = self.arrays[name], self._size(name)
        if array.shape == result.shape:
            copy(array, result, math.prod(result.shape), self.stream)
            return
        self.arrays[name] = array
        sources = [
            self._offset(name, element) for element in itertools.product(*map(range, self.shape))
        ]
        self.arrays[name] = result
        for number, source in enumerate(sources):
            copy(moved(array, source), moved(result, number * size), size, self.stream)

    def _launch(self, offsets: dict[str, int]) -> None:
        call = self.call
        views = {name: self._element(name, offset) for name, offset in offsets.items()}
        start(
            call.kernel,
            call.grid,
            [{**call.others, **views}[name] for name in call.kernel.arg_names],
            call.options,
            self.stream,
        )

    def _element(self, name: str, offset: int) -> ArrayView:
        """Return the array of one element of the batch, without the batch's axes."""
        view = moved(self.arrays[name], offset)
        shape = view.shape[len(view.shape) - self.ranks[name] :]
        return ArrayView(
            view.owner, view.pointer, view.dtype, shape, contiguous_strides(shape), view.device
        )

    def _launch_at_once(self, count: int) -> None:
        call = self.call
        assert call.axis is not None
        steps = {name: step for name in self.arrays if (step := self._step(name))}
        kernel = batched(call.kernel, call.axis, tuple(steps))
        grid = [*call.grid]
        grid[call.axis] = count
        given = [{**call.others, **self.arrays}[name] for name in call.kernel.arg_names]
        start(
            kernel,
            (grid[0], grid[1], grid[2]),
            [*given, *steps.values()],
            call.options,
            self.stream,
        )


@functools.cache
def batched(kernel: JITFunction, axis: int, names: tuple[str, ...]) -> JITFunction:
    """Wrap ``kernel`` in a kernel that offsets the arrays ``names`` by the position in the batch.

    The position is the program's along an axis of the grid; the strides are the last arguments.
    """
    import tilewright.language as tl

    steps = {name: f"step_of_{name}_in_the_batch" for name in names}
    parameters = [
        f"{parameter.name}: tl.constexpr" if parameter.is_constexpr else parameter.name
        for parameter in kernel.params
    ]
    moved = [
        f"{name} + element * {steps[name]}" if name in steps else name for name in kernel.arg_names
    ]
    name = f"{kernel.__name__}_batched"
    source = (
        f"def {name}({', '.join([*parameters, *steps.values()])}):\n"
        f"    element = tl.program_id({axis}).to(tl.int64)\n"
        f"    function_of_an_element({', '.join(moved)})\n"
    )
    file = f"<{name} {id(kernel)} {axis} {' '.join(names)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"tl": tl, "function_of_an_element": kernel, "__name__": __name__}
    exec(compile(source, file, "exec"), scope)
    function: Callable[..., Any] = scope[name]
    return jit(function)
