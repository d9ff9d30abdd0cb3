"""Launches with tensor descriptors that native code starts."""

import gc
import sys

import llvmlite.binding  # noqa: F401  (the native dispatcher is used where LLVM is loaded)
import numpy as np
import pytest
from dispatch_kernels import is_native
from optional_torch import torch

import tilewright as tw
import tilewright.language as tl
from tilewright.llvm.native import native_functions
from tilewright.runtime.arguments.descriptor import TensorDescriptor

pytestmark = pytest.mark.skipif(
    native_functions.layout() is None, reason="native code cannot read this interpreter's objects"
)


@tw.jit
def describes(d, n):
    tl.store(n, d.load([0, 0]).shape[0])


def described(tensor, block=(4, 4), **facts):
    return TensorDescriptor.from_tensor(tensor, list(block), **facts)


def test_launches_with_descriptors_run_no_python(recorder, fresh, count_python):
    kernel, x = fresh(describes), np.zeros(1, np.int32)
    tensors = [torch.zeros(8, 16), torch.zeros(4, 32)]
    calls = count_python(kernel)
    first = kernel[(1,)](described(tensors[0]), x)
    kernel[(1,)](described(tensors[0]), x)
    assert len(calls) == 1
    for tensor in tensors * 3:
        given = described(tensor)
        assert kernel[(1,)](given, x) is first
        assert recorder.launches[-1][2] == (given, x)
    assert len(calls) == 1 and is_native(kernel)


def test_descriptors_of_another_kind_are_another_kernels(recorder, fresh, count_python):
    """Whatever a descriptor's kind is made of is looked at in each launch."""
    kernel, x = fresh(describes), np.zeros(1, np.int32)
    given = described(torch.zeros(8, 16))
    known = [kernel[(1,)](given, x) for _ in range(3)][-1]
    others = {
        "element": described(torch.zeros(8, 16, dtype=torch.float16)),
        "block": described(torch.zeros(8, 16), (4, 8)),
        "padding": described(torch.zeros(8, 16), padding="nan"),
        "rows": described(torch.zeros(8, 16)[:, :15]),
        "array": described(np.zeros((8, 16), np.float64)),
    }
    found = {}
    for name, other in others.items():
        found[name] = {id(kernel[(1,)](other, x)) for _ in range(4)}
        assert kernel[(1,)](given, x) is known
    assert (
        all(len(each) == 1 for each in found.values())
        and len({id(known), *(next(iter(each)) for each in found.values())}) == len(others) + 1
    )


def test_descriptors_may_be_changed_between_launches(recorder, fresh):
    kernel, x = fresh(describes), np.zeros(1, np.int32)
    given = described(torch.zeros(8, 16))
    first = [kernel[(1,)](given, x) for _ in range(3)][-1]
    given.block_shape[1] = 8
    second = kernel[(1,)](given, x)
    given.block_shape = [4, 4]
    given.base = torch.zeros(8, 16, dtype=torch.float16)
    third = kernel[(1,)](given, x)
    given.base, given.shape = torch.zeros(8, 16), [8, 13]
    fourth = kernel[(1,)](given, x)
    given.shape = [8, 16]
    assert (
        kernel[(1,)](given, x) is first
        and len({id(each) for each in (first, second, third, fourth)}) == 4
    )


def test_odd_descriptors_are_pythons(recorder, fresh, count_python):
    kernel, x = fresh(describes), np.zeros(1, np.int32)
    given = described(torch.zeros(8, 16))
    calls = count_python(kernel)
    first = [kernel[(1,)](given, x) for _ in range(3)][-1]
    assert len(calls) == 1
    for name, value in (
        ("shape", (8, 16)),
        ("block_shape", (4, 4)),
        ("base", type("Mine", (torch.Tensor,), {})(torch.zeros(8, 16))),
    ):
        before = getattr(given, name)
        setattr(given, name, value)
        assert kernel[(1,)](given, x) is first
        setattr(given, name, before)
    assert len(calls) == 4
    assert kernel[(1,)](given, x) is first and len(calls) == 4


def test_native_launches_with_descriptors_keep_no_reference(recorder, fresh):
    kernel, x = fresh(describes), np.zeros(1, np.int32)
    given = described(torch.zeros(8, 16))
    other = described(torch.zeros(8, 16, dtype=torch.int8), (4, 16))
    for each in (given, other) * 3:
        kernel[(1,)](each, x)
    recorder.launches.clear()
    kept = (given.base, given.shape, given.block_shape, given.strides, given.padding)
    gc.collect()
    before = [sys.getrefcount(each) for each in kept]
    for _ in range(200):
        kernel[(1,)](given, x)
        kernel[(1,)](other, x)
        recorder.launches.clear()
    assert [
        abs(sys.getrefcount(each) - count) < 5 for each, count in zip(kept, before, strict=True)
    ] == [True] * len(kept)
