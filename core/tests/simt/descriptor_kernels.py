"""Kernels of descriptors on two machines."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.compile import compile_function
from tilewright.ir import Module
from tilewright.passes.pipeline import run as run_passes
from tilewright.reference.interpreter import DescriptorValue
from tilewright.reference.interpreter import run as run_reference
from tilewright.simt import emulator
from tilewright.simt.compile import kernel_of
from tilewright.testing.toy_targets import BulkTarget


def differ(
    fn: Any,
    blocks: dict[str, tuple[int, int]],
    arrays: list[np.ndarray],
    numbers: list[int],
    target: BulkTarget,
    compiled: list[Module] | None = None,
    constants: dict[str, int] | None = None,
    **options: Any,
) -> list[str]:
    """Run a kernel of descriptors of f32, numbers and ``constants`` on the reference interpreter
    and on the emulated machine, which must leave the same arrays; the operations of what was
    compiled, which is put into ``compiled``."""

    def module() -> Module:
        names = [name for name in fn.arg_names[len(blocks) :] if name not in (constants or {})]
        signature = {
            name: f"tensordesc<fp32[{shape[0]},{shape[1]}]>" for name, shape in blocks.items()
        } | dict.fromkeys(names, "i32")
        made = compile_function(fn, signature, constants or {})
        run_passes(made)
        return made

    expected, found = ([array.copy() for array in arrays] for _ in range(2))
    descriptors = [DescriptorValue(array, array.shape, (array.shape[1], 1)) for array in expected]
    run_reference(module(), [*descriptors, *numbers], (1, 1, 1))
    made = module()
    emulator.run(
        made, [*map(emulator.EmulatedDescriptor, found), *numbers], target=target, **options
    )
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(other, one)
    if compiled is not None:
        compiled.append(made)
    return [operation.name for operation in kernel_of(made).walk()]
