"""Launches that native code starts: the same kernels, grids and values as the binder's Python
function finds, and nothing lost or kept."""

import gc
import sys
import weakref

import llvmlite.binding  # noqa: F401  (the native dispatcher is used where LLVM is loaded)
import numpy as np
import pytest
from dispatch_kernels import ignores, is_native, loose, many, two
from optional_torch import torch

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LaunchError
from tilewright.llvm.native import native_functions
from tilewright.runtime.arguments.array_protocols import ArgumentError
from tilewright.runtime.hooks import hooks
from tilewright.runtime.launch import native_calls
from tilewright.testing.threads import side_by_side

pytestmark = pytest.mark.skipif(
    native_functions.layout() is None, reason="native code cannot read this interpreter's objects"
)


def test_launches_seen_once_run_no_python(recorder, fresh, count_python):
    kernel, x = fresh(two), np.zeros(4, np.float32)
    calls = count_python(kernel)
    found = [kernel[(3,)](x, 7) for _ in range(6)]
    assert len(calls) == 1
    assert is_native(kernel)
    assert all(compiled is found[0] for compiled in found)
    assert [(grid, stream) for grid, stream, _ in recorder.launches] == [((3, 1, 1), None)] * 6
    assert all(values[0] is x and values[1] == 7 for _, _, values in recorder.launches)


def test_what_was_bound_before_the_first_launch_runs_no_python_either(
    recorder, fresh, count_python
):
    kernel, x = fresh(two), np.zeros(4, np.float32)
    calls, bound = count_python(kernel), kernel[(3,)]
    for _ in range(6):
        bound(x, 7)
    assert len(calls) == 1
    assert [grid for grid, _, _ in recorder.launches] == [(3, 1, 1)] * 6
    bound(x, 7.5)  # of another kind: it is the Python function's
    assert len(calls) == 2


def test_launchers_bound_early_enter_no_python_frame(recorder, fresh):
    """Whenever they were bound: before the first launch, during it, or by a thread that saw no
    native function yet."""
    kernel, x = fresh(two), np.zeros(4, np.float32)
    bound = [kernel[(3,)] for _ in range(2)]
    recorder.on_launch = lambda *args: len(bound) < 3 and bound.append(kernel[(3,)])
    bound[0](x, 7)
    recorder.on_launch = lambda *args: None
    assert len(bound) == 3 and all(
        launch.func is kernel._dispatcher.native and launch.args == ((3,),) for launch in bound
    )
    compiled = bound[0](x, 7)
    late = compiled[(3,)]
    late(x, 7)
    assert late.func is compiled._here.positional.native


def test_launchers_that_are_dropped_early_are_not_kept(recorder, fresh):
    kernel = fresh(two)
    for _ in range(10 * native_calls.ENTRIES):
        kernel[(3,)]
    assert len(kernel._dispatcher._bound_early) <= native_calls.ENTRIES


def array(rng):
    base = np.zeros(64, [np.float32, np.float16, np.int64][rng.integers(3)])
    offset = int(rng.integers(0, 5))
    tensor = torch.from_numpy(base)[offset:]
    return [
        base[offset:],
        base[offset:],
        tensor,
        tensor,
        torch.nn.Parameter(tensor.float()),
        tensor.to(torch.bfloat16),
        base.reshape(8, 8).T,
    ][rng.integers(7)]


INTEGERS = (
    *(0, 1, 1, 2, 3, 16, 32, -1, -16, True, 2**31 - 1, 2**31, 2**31 + 16),
    *(-(2**31), -(2**31) - 1, 2**63 - 1, -(2**63), 2**63, np.int32(5)),
)
#: For each parameter: near values, some of one kind and some not. A string that is equal to another
#: and not the same object is among them.
VALUES = {
    "x": array,
    "y": array,
    "n": INTEGERS,
    "m": INTEGERS,
    "flag": (True, False, 1, None),
    "scale": (0.5, -0.0, float("nan"), 2, np.float32(1)),
    "maybe": (None, None, 1, 3, (1, 2)),
    "BLOCK": (64, 128, 1, True, None, 2**70),
    "MODE": ("plain", "other", "".join(["pl", "ain"]), None, ("a", 1), [1], tl.float32),
    "LAST": (0.5, 0.0, -0.0, float("nan"), 1, True, "x"),
    "num_warps": (2, 4, 1),
}
REQUIRED = ("x", "y", "n", "m", "flag", "scale", "maybe", "BLOCK")


def any_value(rng, name):
    found = VALUES[name]
    return found(rng) if callable(found) else found[rng.integers(len(found))]


def any_call(rng):
    """(how many of the required arguments go by position, what by name) of a launch of ``many``."""
    names = [*REQUIRED, *(name for name in ("MODE", "LAST", "num_warps") if rng.integers(2))]
    count = len(REQUIRED) - int(rng.integers(4)) * int(rng.integers(2))
    by_name = names[count:]
    rng.shuffle(by_name)
    return count, {name: any_value(rng, name) for name in (*names[:count], *by_name)}


def neighbour(rng, call):
    """A call with one or two other values."""
    count, values = call
    changed = dict(values)
    for name in rng.choice(list(values), int(rng.integers(1, 3))):
        changed[str(name)] = any_value(rng, str(name))
    if rng.integers(3) == 0:  # the same by name in another order
        by_name = list(changed)[count:]
        rng.shuffle(by_name)
        changed = {name: changed[name] for name in (*list(changed)[:count], *by_name)}
    return count, changed


def outcome(launch, recorder):
    """The kernel, values and types of values of a launch, or its error."""
    recorder.launches.clear()
    try:
        kernel = launch()
    except Exception as error:  # compared
        return type(error), str(error)
    ((grid, stream, values),) = recorder.launches
    return (
        id(kernel),
        grid,
        stream,
        [id(value) if hasattr(value, "dtype") else (type(value), repr(value)) for value in values],
    )


def test_random_launches_find_what_python_finds(recorder, fresh):
    rng = np.random.default_rng(0)
    kernel, native_launches = fresh(many), 0
    for _ in range(30):
        call = any_call(rng)
        for _ in range(60):
            count, values = neighbour(rng, call) if rng.integers(3) else call
            items = list(values.items())
            args, keywords = [value for _, value in items[:count]], dict(items[count:])
            launches = kernel._dispatcher._launches if kernel._dispatcher else 0
            found = outcome(
                lambda args=args, keywords=keywords: kernel[(2, 3)](*args, **keywords), recorder
            )
            native_launches += kernel._dispatcher._launches == launches and not isinstance(
                found[0], type
            )
            expected = outcome(
                lambda args=args, keywords=keywords: kernel._make_binder().launch(
                    (2, 3), *args, **keywords
                ),
                recorder,
            )
            assert found == expected, (args, keywords)
        kernel._dispatcher._launches = 0  # let it learn again at each launch
    assert native_launches > 500


@pytest.mark.parametrize(
    ("grid", "sizes"),
    [
        (5, (5, 1, 1)),
        ((5,), (5, 1, 1)),
        ((5, 2), (5, 2, 1)),
        ((5, 2, 4), (5, 2, 4)),
        ([5, 2], (5, 2, 1)),
        ((np.int64(5),), (5, 1, 1)),
        ((True, 2), (1, 2, 1)),
        ((2**31 - 1, 65535, 65535), (2**31 - 1, 65535, 65535)),
        ((1, 2**31 - 1), (1, 2**31 - 1, 1)),
        (lambda meta: (meta["n"], meta["BLOCK"]), (7, 64, 1)),
        (lambda meta: meta["n"], (7, 1, 1)),
        (lambda meta: [meta["n"] + 1], (8, 1, 1)),
        (lambda meta: (np.int32(meta["n"]), 2), (7, 2, 1)),
    ],
)
def test_grids(recorder, fresh, grid, sizes):
    kernel, x = fresh(many), np.zeros(4, np.float32)
    for _ in range(5):
        kernel[grid](x, x, 7, 8, True, 0.5, None, BLOCK=64)
    assert is_native(kernel)
    found = [launched for launched, _, _ in recorder.launches]
    assert found == [sizes] * 5
    assert all(type(extent) is int or extent is True for launched in found for extent in launched)


#: Sizes that program ids can count, of more programs than a number of 63 bits can.
_TOO_MANY = (2**31 - 1,) * 3


@pytest.mark.parametrize(
    "grid",
    [
        *(
            (),
            (1, 2, 3, 4),
            (2.5,),
            "ab",
            None,
            (-1,),
            (2**31,),
            (1, 1, -3),
            object(),
            {3},
            0.5,
            lambda meta: None,
            lambda meta: (1.5,),
        ),
        *(_TOO_MANY, lambda meta: _TOO_MANY),
    ],
)
def test_grids_that_are_none(recorder, fresh, grid):
    kernel, x = fresh(two), np.zeros(4, np.float32)
    for _ in range(3):
        kernel[(1,)](x, 7)
    assert is_native(kernel)
    with pytest.raises(LaunchError):
        kernel[grid](x, 7)
    assert len(recorder.launches) == 3


def test_an_empty_grid_launches_nothing(recorder, fresh):
    kernel, x = fresh(two), np.zeros(4, np.float32)
    for grid in [(1,)] * 3 + [(0,), (4, 0), 0, lambda meta: (0, 1)]:
        assert kernel[grid](x, 7) is not None
    assert len(recorder.launches) == 3


def test_a_grid_function_is_asked_once_with_all_arguments(recorder, fresh):
    kernel, x = fresh(many), np.zeros(4, np.float32)
    asked = []
    for answer in [(1,)] * 4 + [[2], 3, (np.int64(4),)]:

        def grid(meta, answer=answer):
            asked.append(dict(meta))
            return answer

        kernel[grid](x, x, 7, 8, True, 0.5, None, num_warps=2, BLOCK=64)
    names = {
        "x": x,
        "y": x,
        "n": 7,
        "m": 8,
        "flag": True,
        "scale": 0.5,
        "maybe": None,
        "BLOCK": 64,
        "MODE": "plain",
        "LAST": 0.5,
        "num_warps": 2,
    }
    assert len(asked) == 7
    assert all(
        found.keys() == names.keys() and all(found[name] is names[name] for name in ("x", "y"))
        for found in asked
    )
    assert all(
        found["num_warps"] == 2 and found["LAST"] == 0.5 and found["MODE"] == "plain"
        for found in asked
    )
    assert [launched[0][0] for launched in recorder.launches] == [1] * 4 + [2, 3, 4]


def test_what_a_grid_function_raises_is_raised(recorder, fresh):
    kernel, x = fresh(two), np.zeros(4, np.float32)
    for _ in range(3):
        kernel[(1,)](x, 7)

    def grid(meta):
        raise ZeroDivisionError("no grid")

    with pytest.raises(ZeroDivisionError, match="no grid"):
        kernel[grid](x, 7)
    with pytest.raises(KeyError, match="nothing"):
        kernel[lambda meta: (meta["nothing"],)](x, 7)


def test_what_a_launcher_raises_is_raised(recorder, fresh):
    kernel, x = fresh(two), np.zeros(4, np.float32)
    for _ in range(4):
        kernel[(1,)](x, 7)

    def fail(grid, values):
        raise OSError("the device is gone")

    recorder.on_launch = fail
    with pytest.raises(OSError, match="the device is gone"):
        kernel[(1,)](x, 7)
    recorder.on_launch = lambda *args: None
    kernel[(1,)](x, 7)


def test_wrong_numbers_of_arguments(recorder, fresh):
    kernel, x = fresh(two), np.zeros(4, np.float32)
    for _ in range(4):
        kernel[(1,)](x, 7)
    for args, keywords in (
        ((x,), {}),
        ((x, 7, 8), {}),
        ((x, 7), {"n": 7}),
        ((x,), {"m": 7}),
        ((), {}),
    ):
        with pytest.raises(TypeError):
            kernel[(1,)](*args, **keywords)


def test_hooks_see_every_launch(recorder, fresh):
    kernel, x = fresh(two), np.zeros(4, np.float32)
    for _ in range(4):
        kernel[(1,)](x, 7)
    seen = []
    for chain in (hooks.launch_enter, hooks.launch_exit):
        chain.add(seen.append)
        try:
            kernel[(1,)](x, 7)
        finally:
            chain.remove(seen.append)
        kernel[(1,)](x, 7)
    assert len(seen) == 2
    kernel.add_pre_run_hook(lambda *args, **keywords: seen.append(args))
    kernel[(1,)](x, 7)
    assert len(seen) == 3


def test_the_chosen_backend_is_looked_at_in_every_launch(install_recorder, fresh):
    first, second = install_recorder(), install_recorder(name="second", priority=10)
    kernel, x = fresh(two), np.zeros(4, np.float32)

    def launches():
        return len(first.launches), len(second.launches)

    for _ in range(4):
        kernel[(1,)](x, 7)
    assert launches() == (4, 0)
    for round_ in range(1, 4):
        with tw.backend("second"):
            kernel[(1,)](x, 7)
        kernel[(1,)](x, 7)
        kernel[(1,)](x, 7, backend="second")
        assert launches() == (4 + round_, 2 * round_)
    assert is_native(kernel)


SIZE = tl.constexpr(4)


@tw.jit
def reads_global(x):
    tl.store(x + tl.arange(0, SIZE), 1)


def test_a_global_is_looked_at_in_every_launch(recorder, fresh, count_python, monkeypatch):
    kernel, x = fresh(reads_global), np.zeros(8, np.int32)
    calls = count_python(kernel)
    for _ in range(5):
        kernel[(1,)](x)
    assert len(calls) == 1
    monkeypatch.setitem(globals(), "SIZE", tl.constexpr(8))
    with pytest.raises(RuntimeError, match="Global variable SIZE has changed"):
        kernel[(1,)](x)
    monkeypatch.delitem(globals(), "SIZE")
    with pytest.raises(RuntimeError, match="Global variable SIZE has changed"):
        kernel[(1,)](x)


def test_changed_source_and_cleared_caches_are_seen(recorder, fresh):
    kernel, x = fresh(two), np.zeros(4, np.float32)
    first = [kernel[(1,)](x, 7) for _ in range(4)][-1]
    kernel._unsafe_update_src(kernel.src.replace("tl.store(x, n)", "tl.store(x, n + 1)"))
    second = [kernel[(1,)](x, 7) for _ in range(4)][-1]
    assert first.hash != second.hash
    kernel.clear_cache()
    assert kernel[(1,)](x, 7) is not second


def test_parameters_that_are_not_specialised(recorder):
    x = np.zeros(64, np.float32)
    kernel = tw.jit(loose.fn, do_not_specialize=["n"], do_not_specialize_on_alignment=["m", "x"])
    compiled = set()
    for _ in range(3):
        for n in (1, 2, 16, 2**40):
            for m in (1, 2, 16):
                for offset in (0, 1):
                    compiled.add((n > 2**31, m == 1, id(kernel[(1,)](x[offset:], n, m))))
    assert len(compiled) == 4
    assert is_native(kernel)


def test_what_cannot_be_told_keeps_to_python(recorder, fresh, count_python):
    kernel = fresh(ignores)
    calls = count_python(kernel)
    for _ in range(20):
        kernel[(1,)](np.zeros(4, np.float32), (1, 2))
    assert len(calls) == 20
    for _ in range(5):
        kernel[(1,)](np.zeros(4, np.float32), 7)
    assert len(calls) == 21


def test_tensors_without_elements_run_no_python(recorder, fresh, count_python):
    """They lie nowhere, and programs pass them where they have nothing to pass."""
    kernel, empty = fresh(two), torch.empty((4, 0))
    assert empty.data_ptr() == 0
    calls = count_python(kernel)
    for _ in range(6):
        kernel[(1,)](empty, 7)
    assert len(calls) == 1
    assert len(recorder.launches) == 6


def test_tensors_that_lost_their_memory_are_refused_in_every_launch(recorder, fresh):
    kernel, freed = fresh(two), torch.zeros(4)
    for _ in range(3):
        kernel[(1,)](freed, 7)
    freed.untyped_storage().resize_(0)
    for _ in range(3):
        with pytest.raises(ArgumentError, match="it has no memory"):
            kernel[(1,)](freed, 7)
    assert len(recorder.launches) == 3


def test_many_kinds_of_launches_take_turns(recorder, fresh):
    kernel, x = fresh(many), np.zeros(4, np.float32)
    for _ in range(3):
        for block in range(2 * native_calls.ENTRIES):
            compiled = kernel[(1,)](x, x, 7, 8, True, 0.5, None, BLOCK=block)
            assert dict(compiled.src.constants)["BLOCK"] == block
    assert len(kernel._dispatcher._entries[0]) <= native_calls.ENTRIES


def test_nothing_is_lost_or_kept(recorder, fresh):
    kernel, x, tensor, big = fresh(two), np.zeros(4, np.float32), torch.zeros(4), 10**15 + 1
    recorder.on_launch = lambda *args: recorder.launches.clear()
    grid = (10**9, 1, 1)
    function = lambda meta: grid  # noqa: E731  (counted)
    for _ in range(5):
        kernel[grid](x, big)
        kernel[function](tensor, big)
    compiled = kernel[grid](x, big)
    watched = (
        x,
        tensor,
        big,
        grid,
        grid[0],
        function,
        compiled,
        kernel._dispatcher._entries[0][0],
        None,
        tl.float32,
        kernel,
    )
    while gc.collect():  # what has finalizers goes in several rounds
        pass
    before = [sys.getrefcount(value) for value in watched]
    for _ in range(1000):
        kernel[grid](x, big)
        kernel[function](tensor, big)
        with pytest.raises(TypeError):
            kernel[grid](x)
    recorder.launches.clear()
    gc.collect()
    after = [sys.getrefcount(value) for value in watched]
    assert [b - a for a, b in zip(before, after, strict=True) if abs(b - a) > 50] == []


def test_kernels_are_collected(recorder):
    kernel, x = tw.jit(two.fn), np.zeros(4, np.float32)
    for _ in range(4):
        kernel[(1,)](x, 7)
    assert is_native(kernel)
    watch = weakref.ref(kernel)
    recorder.launches.clear()
    del kernel
    gc.collect()
    assert watch() is None


def test_threads_launch_while_entries_come_and_go(recorder, fresh):
    kernel = fresh(many)
    x = np.zeros(4, np.float32)

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(1500):
            block = int(rng.integers(40))
            compiled = kernel[(1,)](x, x, 7, 8, True, 0.5, None, BLOCK=block)
            assert compiled.src.constants["BLOCK"] == block

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        side_by_side(4, work)
    finally:
        sys.setswitchinterval(switch)


def test_grid_functions_may_give_lists(recorder, fresh, count_python):
    kernel, x = fresh(two), np.zeros(4, np.float32)
    calls = count_python(kernel)
    for number in range(2, 8):
        kernel[lambda meta, number=number: [number, meta["n"]]](x, 7)
        assert recorder.launches[-1][0] == (number, 7, 1)
    assert len(calls) == 1 and is_native(kernel)
    for odd in ([], [1, 2, 3, 4], [1.5], ["x"]):
        with pytest.raises((TypeError, ValueError, LaunchError)):
            kernel[lambda meta, odd=odd: odd](x, 7)
    sizes = [3, 5]
    before = [sys.getrefcount(each) for each in (sizes, *sizes)]
    for _ in range(100):
        kernel[lambda meta: sizes](x, 7)
        recorder.launches.clear()
    assert [
        abs(sys.getrefcount(each) - count) < 5
        for each, count in zip((sizes, *sizes), before, strict=True)
    ] == [True] * 3
