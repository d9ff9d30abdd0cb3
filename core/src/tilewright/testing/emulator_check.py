"""Comparison of kernels on the emulated target with the reference interpreter.

The passes of the GPU toolkit must not change the results of a loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontend.compile import compile_function
from tilewright.ir import Module
from tilewright.ir.core import Function, Operation
from tilewright.ir.ops.control import For
from tilewright.passes.pipeline import run as run_passes
from tilewright.reference.interpreter import run as run_reference
from tilewright.simt import emulator
from tilewright.simt.compile import compile_kernel, kernel_of

#: The machine's size where a test does not ask for another: warps of a program, lanes of a warp.
WARPS, LANES = 2, 8


def build(fn: Any, signature: dict[str, str], divisibility: int = 16, **constants: Any) -> Module:
    """Build the Tile IR of a kernel after the standard passes.

    Pointers and strides are multiples of ``divisibility``.
    """
    module = compile_function(fn, {**signature, **dict.fromkeys(constants, "constexpr")}, constants)
    for argument, attributes in zip(
        module.kernel.arguments, module.kernel.argument_attributes, strict=True
    ):
        if "ptr" in str(argument.type) or argument.name.startswith("stride"):
            attributes["divisibility"] = divisibility
    run_passes(module)
    return module


def compare(
    fn: Any,
    signature: dict[str, str],
    arguments: list[Any],
    *,
    stages: int,
    target: emulator.EmulatedTarget | None = None,
    divisibility: int = 16,
    **constants: Any,
) -> tuple[Function, list[Operation], str]:
    """Run on the emulated target and on the reference, which must agree bit for bit.

    The result is (kernel, loops, LLVM IR) of the emulated target.
    """
    copies = [
        [
            argument.copy() if isinstance(argument, np.ndarray) else argument
            for argument in arguments
        ]
        for _ in range(2)
    ]
    run_reference(build(fn, signature, divisibility, **constants), copies[0], (1, 1, 1))
    module = build(fn, signature, divisibility, **constants)
    target = target or emulator.EmulatedTarget(LANES)
    text = compile_kernel(
        module, target, {"num_warps": WARPS, "num_stages": stages, "enable_fp_fusion": False}
    )
    function = kernel_of(module)
    emulator.run_text(
        text,
        target,
        [argument.type for argument in function.arguments],
        copies[1],
        (1, 1, 1),
        WARPS,
    )
    for expected, found in zip(*copies, strict=True):
        if isinstance(expected, np.ndarray):
            np.testing.assert_array_equal(found, expected)
    return (
        function,
        [operation for operation in function.walk() if isinstance(operation, For)],
        text,
    )


def small(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Small whole numbers, of which matmuls are exact in any order."""
    return rng.integers(-3, 4, shape).astype(np.float32)


def inside(loop: Operation, name: str) -> list[Operation]:
    """The operations of a name in a loop."""
    return [operation for operation in loop.regions[0].walk() if operation.name == name]
