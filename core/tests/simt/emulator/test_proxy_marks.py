"""The emulated machine refuses what the async proxy may do before the generic proxy is done."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.errors import KernelError
from tilewright.frontend.compile import compile_function
from tilewright.ir import Module
from tilewright.language.definitions.callable import device_function
from tilewright.passes.pipeline import run as run_passes
from tilewright.simt import emulator
from tilewright.simt.compile import STAGES, kernel_of
from tilewright.simt.dialect.attributes import WARPS
from tilewright.simt.emulator.layout import MODES
from tilewright.simt.lowering.lower_function import lower_function
from tilewright.testing.toy_targets import BulkTarget

ARRAYS = 3


@device_function
def one_after_another(a, b, c):
    x = a.load([0, 0])
    c.store([0, 0], x * b.load([0, 0]))


@device_function
def in_a_loop(a, b, c):
    total = tl.zeros((8, 8), dtype=tl.float32)
    for i in range(3):
        total += a.load([i, 0])
    c.store([0, 0], total + b.load([0, 0]))


@device_function
def in_a_branch(a, b, c):
    x = tl.zeros((8, 8), dtype=tl.float32)
    if tl.program_id(0) == 0:
        x = a.load([0, 0])
    c.store([0, 0], x + b.load([0, 0]))


@device_function
def around_a_reduction(a, b, c):
    x = a.load([0, 0])
    m = tl.max(x, axis=0)
    c.store([0, 0], x + b.load([0, 0]) * m[None, :])


@device_function
def behind_a_store(a, b, c):
    c.store([0, 0], a.load([0, 0]))
    c.store([0, 8], b.load([0, 0]))


KERNELS = (one_after_another, in_a_loop, in_a_branch, around_a_reduction, behind_a_store)


@device_function
def copied(a, b, c):
    c.store([0, 0], a.load([0, 0]))


@device_function
def multiplied(a, b, c):
    i = tl.arange(0, 8)
    c.store([0, 0], tl.dot((i[:, None] - i[None, :]).to(tl.float32), b.load([0, 0])))


def run(
    fn: Any, completion: str, *, fences: bool, stores: bool = True, programs: int = 1
) -> list[np.ndarray]:
    """Run a kernel on the emulated machine, with its proxy fences or without them.

    Args:
        stores: whether stores through descriptors are bulk stores; else threads store.
    """
    signature = dict.fromkeys(fn.arg_names, "tensordesc<fp32[8,8]>")
    module: Module = compile_function(fn, signature, {})
    run_passes(module)
    kept = [argument.type for argument in kernel_of(module).arguments]
    target = BulkTarget(8, completion=completion, stores=stores)
    options = {"num_warps": 2, "num_stages": 2}
    for stage in target.stages(STAGES):
        stage.run(module, target, options)
    function = kernel_of(module)
    for operation in list(function.walk()) if not fences else ():
        if operation.name == "simt.publish":
            operation.erase()
    text = lower_function(function, target, options)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-4, 5, (16, 16)).astype(np.float32) for _ in range(ARRAYS)]
    given = [emulator.EmulatedDescriptor(array) for array in arrays]
    types = [argument.type for argument in function.arguments]
    arguments = emulator.expanded_arguments(kept, types, given)
    emulator.run_text(text, target, types, arguments, (programs, 1, 1), function.attributes[WARPS])
    return arrays


@pytest.mark.each_value
@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("fn", KERNELS, ids=lambda fn: fn.__name__)
def test_kernels_that_load_into_the_same_memory_run(fn: Any, completion: str) -> None:
    a, b, c = run(fn, completion, fences=True)
    x, y = a[:8, :8], b[:8, :8]
    expected = {
        "one_after_another": x * y,
        "in_a_loop": a[0:8, :8] + a[1:9, :8] + a[2:10, :8] + y,
        "in_a_branch": x + y,
        "around_a_reduction": x + y * x.max(0)[None, :],
        "behind_a_store": x,
    }[fn.__name__]
    np.testing.assert_array_equal(c[:8, :8], expected)


@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize("fn", KERNELS, ids=lambda fn: fn.__name__)
def test_without_proxy_fences_they_are_refused(fn: Any, completion: str) -> None:
    message = (
        r"(a bulk copy writes|a bulk store reads) bytes \d+ to \d+ of shared memory through the"
        r" async proxy, where lane \d of warp \d (read|wrote) through the generic proxy and has"
        r" executed no proxy fence since"
    )
    with pytest.raises(KernelError, match=re.compile(message)):
        run(fn, completion, fences=False)


@pytest.mark.parametrize("completion", MODES)
@pytest.mark.parametrize(
    ("fn", "stores", "refused"),
    [
        (one_after_another, False, "a bulk copy writes .* read through"),
        (copied, True, "a bulk store reads .* wrote through"),
        (multiplied, False, "a matrix instruction reads .* wrote through"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_each_access_through_the_async_proxy_is_checked(
    fn: Any, stores: bool, refused: str, completion: str
) -> None:
    run(fn, completion, fences=True, stores=stores)
    with pytest.raises(KernelError, match=refused):
        run(fn, completion, fences=False, stores=stores)


@pytest.mark.parametrize("completion", MODES)
def test_what_the_program_before_read_needs_no_fence(completion: str) -> None:
    a, b, c = run(one_after_another, completion, fences=True, stores=False, programs=2)
    np.testing.assert_array_equal(c[:8, :8], a[:8, :8] * b[:8, :8])
