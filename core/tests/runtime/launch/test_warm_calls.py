"""Warm-ups and launches of compiled kernels that were made before: found by native code, with the
checks of the first time."""

import gc
import sys

import llvmlite.binding  # noqa: F401  (the native dispatcher is used where LLVM is loaded)
import numpy as np
import pytest
from optional_torch import torch

import tilewright.language as tl
from tilewright.errors import LaunchError
from tilewright.llvm.native import native_functions
from tilewright.runtime.arguments.array_protocols import ArgumentError
from tilewright.runtime.arguments.mock_tensors import MockTensor
from tilewright.runtime.devices.backend_choice import backend
from tilewright.runtime.hooks import hooks

pytestmark = pytest.mark.skipif(
    native_functions.layout() is None, reason="native code cannot read this interpreter's objects"
)


def python_calls(dispatcher):
    return dispatcher._launches


def test_warm_ups_seen_once_run_no_python(recorder, scale):
    x = np.zeros(32, np.float32)
    known = [scale.warmup(x, 32, BLOCK=16, grid=(1,)) for _ in range(8)]
    assert len(set(map(id, known))) == 1 and python_calls(scale._warmer) == 1
    assert len(recorder.lowered) == 1 and not recorder.launches
    assert scale[(1,)](x, 32, BLOCK=16) is known[0]
    assert (
        scale.run(x, 32, BLOCK=16, grid=(2,), warmup=True) is known[0]
        and python_calls(scale._warmer) == 1
    )


def test_each_kind_of_arguments_has_its_warm_up(recorder, scale):
    x = np.zeros(33, np.float32)
    calls = {
        "first": lambda: scale.warmup(x[:32], 32, BLOCK=16, grid=(1,)),
        "odd": lambda: scale.warmup(x[:32], 33, BLOCK=16, grid=(1,)),
        "unaligned": lambda: scale.warmup(x[1:], 32, BLOCK=16, grid=(1,)),
        "constant": lambda: scale.warmup(x[:32], 32, BLOCK=32, grid=(1,)),
        "element": lambda: scale.warmup(x[:32].astype(np.float64), 32, BLOCK=16, grid=(1,)),
        "one": lambda: scale.warmup(x[:32], 1, BLOCK=16, grid=(1,)),
        "tensor": lambda: scale.warmup(
            torch.zeros(32, dtype=torch.float16), 32, BLOCK=16, grid=(1,)
        ),
    }
    found = {name: call() for name, call in calls.items()}
    assert len(set(map(id, found.values()))) == len(calls) == len(recorder.lowered)
    for _ in range(3):
        for name, call in calls.items():
            assert call() is found[name]


def test_warm_ups_of_element_types_run_no_python(recorder, scale):
    for element in (tl.float32, torch.float32, np.float32, np.dtype("float32")):
        before = python_calls(scale._warmer)
        known = [scale.warmup(element, 32, BLOCK=16, grid=(1,)) for _ in range(8)]
        assert len(set(map(id, known))) == 1 and python_calls(scale._warmer) <= before + 1
    other = [
        scale.warmup(element, 32, BLOCK=16, grid=(1,))
        for element in (torch.float16, tl.float16, torch.float16)
    ]
    assert len(set(map(id, other))) == 1 and other[0] is not known[0] and len(recorder.lowered) == 2


def test_warm_ups_of_stand_ins_select_once(recorder, scale, monkeypatch):
    stand_in = MockTensor(tl.float32)
    known = [scale.warmup(stand_in, 32, BLOCK=16, grid=(1,))]
    selected = []
    monkeypatch.setattr(type(scale.policy), "select", lambda *args: selected.append(args))
    known += [
        scale.warmup(each, 32, BLOCK=16, grid=(1,))
        for each in (stand_in, MockTensor(torch.float32), tl.float32) * 3
    ]
    assert len(set(map(id, known))) == 1 and not selected
    monkeypatch.undo()
    stand_in.dtype = tl.float16
    assert scale.warmup(stand_in, 32, BLOCK=16, grid=(1,)) is not known[0]
    with pytest.raises(LaunchError, match="only stands for a tensor"):
        scale[(1,)](stand_in, 32, BLOCK=16)


def test_warm_ups_of_element_types_belong_to_a_choice_of_backend(recorder, scale):
    first = [scale.warmup(tl.float32, 32, BLOCK=16, grid=(1,)) for _ in range(4)][-1]
    with backend("reference"):
        found = [scale.warmup(tl.float32, 32, BLOCK=16, grid=(1,)) for _ in range(4)]
        assert len(set(map(id, found))) == 1 and found[0] is not first
    assert scale.warmup(tl.float32, 32, BLOCK=16, grid=(1,)) is first


def test_warm_ups_of_options_and_refusals(install_recorder, scale):
    recorder = install_recorder(options={"shape": None})
    x = np.zeros(32, np.float32)
    first = [scale.warmup(x, 32, shape=[1, 2], grid=(1,)) for _ in range(3)]
    assert (
        len(set(map(id, first))) == 1
        and scale.warmup(x, 32, shape=[1, 3], grid=(1,)) is not first[0]
    )
    assert [options["shape"] for options in recorder.lowered] == [[1, 2], [1, 3]]
    for _ in range(3):
        with pytest.raises(KeyError, match="width was specified but unrecognised"):
            scale.warmup(x, 32, width=1, grid=(1,))
        with pytest.raises(ArgumentError, match="_scale: argument 'x'"):
            scale.warmup(object(), 32, grid=(1,))


def test_warm_ups_end_with_the_cache(recorder, scale):
    x = np.zeros(32, np.float32)
    known = [scale.warmup(x, 32, grid=(1,)) for _ in range(4)][-1]
    scale.clear_cache()
    again = [scale.warmup(x, 32, grid=(1,)) for _ in range(4)]
    assert again[0] is not known and len(set(map(id, again))) == 1
    scale.device_caches[next(iter(scale.device_caches))][0].clear()
    assert scale.warmup(x, 32, grid=(1,)) is not again[0]


def test_vetoed_warm_ups_are_asked_again(recorder, scale):
    x, asked = np.zeros(32, np.float32), []

    def veto(**facts):
        asked.append(facts["is_manual_warmup"])
        return True

    hooks.jit_cache = veto
    try:
        assert [scale.warmup(x, 32, grid=(1,)) for _ in range(4)] == [None] * 4
    finally:
        hooks.jit_cache = None
    assert asked == [True] * 4 and scale.warmup(x, 32, grid=(1,)) is not None


def test_compiled_kernels_are_launched_without_python(recorder, scale):
    x, y = np.zeros(32, np.float32), torch.zeros(32)
    compiled = scale.warmup(x, 32, grid=(1,))
    for number, array in enumerate((x, x, y, y, x, y)):
        assert compiled[(number + 1, 2)](array, 32 * (number + 1), 2.0, 16) is compiled
        grid, stream, values = recorder.launches[-1]
        assert (
            grid == (number + 1, 2, 1)
            and stream is None
            and values[0] is array
            and values[1:] == (32 * (number + 1), 2.0)
        )
    assert python_calls(compiled._here.positional) == 2
    compiled[(1,)](x, 32, 2.0, 16, stream=7)
    assert recorder.launches[-1][1] == 7


def test_compiled_kernels_check_their_arguments_each_time(recorder, scale):
    x = np.zeros(40, np.float32)
    compiled = scale.warmup(x[:32], 32, grid=(1,))
    for _ in range(4):
        compiled[(1,)](x[:32], 32, 2.0, 16)
        launched = len(recorder.launches)
        for values, told in (
            ((x[:32], 33, 2.0, 16), "the value of argument 'n' is not divisible by 16"),
            ((x[1:], 32, 2.0, 16), "the address of argument 'x' is not divisible by 16"),
            ((x[:32], 32, 2.0, 32), "compiled for the constant 16"),
            ((x.astype(np.int8), 32, 2.0, 16), r"compiled for \*fp32"),
        ):
            with pytest.raises(ArgumentError, match=told):
                compiled[(1,)](*values)
        with pytest.raises(LaunchError, match="takes 4 arguments"):
            compiled[(1,)](x[:32], 32)
        assert len(recorder.launches) == launched
    assert compiled[(0,)](x[:32], 32, 2.0, 16) is compiled and len(recorder.launches) == launched


def test_hooks_see_launches_of_compiled_kernels(recorder, scale):
    x, seen = np.zeros(32, np.float32), []
    compiled = scale.warmup(x, 32, grid=(1,))
    for _ in range(3):
        compiled[(1,)](x, 32, 2.0, 16)
    hooks.launch_enter.add(seen.append)
    try:
        compiled[(1,)](x, 32, 2.0, 16)
    finally:
        hooks.launch_enter.remove(seen.append)
    assert len(seen) == 1 and len(recorder.launches) == 4


def test_warm_calls_keep_no_reference(recorder, scale):
    x = np.zeros(32, np.float32)
    compiled = [scale.warmup(x, 32, grid=(1,)) for _ in range(3)][-1]
    for _ in range(3):
        compiled[(1,)](x, 32, 2.0, 16)
    recorder.launches.clear()
    gc.collect()
    before = [sys.getrefcount(each) for each in (x, compiled)]
    for _ in range(200):
        scale.warmup(x, 32, grid=(1,))
        compiled[(1,)](x, 32, 2.0, 16)
        recorder.launches.clear()
    assert [
        abs(sys.getrefcount(each) - count) < 5
        for each, count in zip((x, compiled), before, strict=True)
    ] == [True, True]


def test_kernels_that_are_let_go_of_are_unloaded(recorder, scale):
    x, unloaded = np.zeros(32, np.float32), []
    compiled = scale.warmup(x, 32, grid=(1,))
    for _ in range(3):
        compiled[(1,)](x, 32, 2.0, 16)
    gc.collect()
    hooks.kernel_unload.add(lambda *facts: unloaded.append(facts[2]))
    try:
        scale.clear_cache()
        del compiled
        gc.collect()
        assert len(unloaded) == 1
    finally:
        hooks.kernel_unload.calls.clear()
