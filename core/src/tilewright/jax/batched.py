"""Batches: the elements of ``jax.vmap`` as another axis of the grid, or as launches one after another where the grid has no axis left."""

from __future__ import annotations

import ctypes
import functools
import itertools
import linecache
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.parser import parse_module
from tilewright.runtime.arguments import ArrayView
from tilewright.runtime.dlpack import contiguous_strides
from tilewright.runtime.dtypes import ITEM_SIZE
from tilewright.runtime.jit import JITFunction, jit
from tilewright.runtime.kernel import CompiledKernel

if TYPE_CHECKING:
    from tilewright.jax.call import Call


def axes_read(compiled: CompiledKernel) -> set[int]:
    """The axes of the grid that a kernel reads its place or the extent of."""
    module = parse_module(str(compiled.asm["tileir"]), compiled.backend.table)
    return {operation.attribute("axis") for operation in module.walk() if operation.name in ("program_id", "num_programs")}


class Batch:
    """A call with the arrays of all elements of a batch.

    An array's leading axes, those beyond its rank, are as long as the batch's or 1, where all elements have the array in common.
    """

    def __init__(self, call: Call, arrays: Sequence[ArrayView], outputs: Sequence[ArrayView]) -> None:
        self.call = call
        self.ranks = {**call.operands, **call.results}
        self.arrays = {**dict(zip(call.operands, arrays, strict=True)), **dict(zip(call.results, outputs, strict=True))}
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
        elif self.call.axis is not None and all(self._step(name) is not None for name in self.arrays):
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
        """How many elements of an array are from one of the batch's to the next; None where that is no number."""
        leading = self._leading(name)
        if leading == self.shape:
            return self._size(name)
        return 0 if all(extent == 1 for extent in leading) else None

    def _offset(self, name: str, element: tuple[int, ...]) -> int:
        leading = self._leading(name)
        steps = contiguous_strides(leading)
        return self._size(name) * sum(step * (at if extent > 1 else 0) for step, at, extent in zip(steps, element, leading, strict=True))

    def _copy(self, array: ArrayView, name: str) -> None:
        """Let a result begin as what comes in."""
        result = self.arrays[name]
        if array.shape == result.shape:
            ctypes.memmove(result.pointer, array.pointer, result.nbytes)
            return
        came, self.arrays[name] = result, array
        bytes_ = self._size(name) * ITEM_SIZE[array.dtype]
        sources = [self._offset(name, element) for element in itertools.product(*map(range, self.shape))]
        self.arrays[name] = came
        for number, source in enumerate(sources):
            ctypes.memmove(came.pointer + number * bytes_, array.pointer + source * ITEM_SIZE[array.dtype], bytes_)

    def _launch(self, offsets: dict[str, int]) -> None:
        call = self.call
        views = {name: _moved(self.arrays[name], offset) for name, offset in offsets.items()}
        call.kernel[call.grid](*({**call.others, **views}[name] for name in call.kernel.arg_names), **call.options)

    def _launch_at_once(self, count: int) -> None:
        call = self.call
        assert call.axis is not None
        steps = {name: step for name in self.arrays if (step := self._step(name))}
        kernel = batched(call.kernel, call.axis, tuple(steps))
        grid = [*call.grid]
        grid[call.axis] = count
        kernel[tuple(grid)](*({**call.others, **self.arrays}[name] for name in call.kernel.arg_names), *steps.values(), **call.options)


def _moved(array: ArrayView, offset: int) -> ArrayView:
    pointer = array.pointer + offset * ITEM_SIZE[array.dtype]
    return ArrayView(array.owner, pointer, array.dtype, array.shape, array.strides, array.device)


@functools.cache
def batched(kernel: JITFunction, axis: int, names: tuple[str, ...]) -> JITFunction:
    """A kernel that calls ``kernel`` with the arrays ``names`` moved by the program's position along an axis, times the steps that are its last arguments."""
    import tilewright.language as tl

    steps = {name: f"step_of_{name}_in_the_batch" for name in names}
    parameters = [f"{parameter.name}: tl.constexpr" if parameter.is_constexpr else parameter.name for parameter in kernel.params]
    moved = [f"{name} + element * {steps[name]}" if name in steps else name for name in kernel.arg_names]
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
    return jit(scope[name])
