"""The switches that no single launch of a module shows: plans, caches, grids, capabilities, memory, timing and tuning.

Each has a scene: a function of a backend's name that tells whether all is as it should be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LaunchError, TilewrightError
from tilewright.ir.types import F64, I32, U16, Type
from tilewright.plugins.registry import registry
from tilewright.testing.op_sample_kernel import SampleKernel
from tilewright_conformance import faulty
from tilewright_conformance.faulty.table import SWITCHES
from tilewright_conformance.faulty.witnesses import witness
from tilewright_conformance.needs import needs_of


@tw.jit
def add_number(x_ptr, n, number, SIZE: tl.constexpr):
    offsets = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(x_ptr + offsets, x + number, mask=offsets < n)


@tw.jit
def fill_constant(x_ptr, NUMBER: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, 8), NUMBER)


def _added(backend: str, grid: int, n: int, number: int) -> np.ndarray[Any, Any]:
    x = np.zeros(64, np.int32)
    with tw.backend(backend):
        add_number[(grid,)](x, n, number, SIZE=8)
    return x


def _scalars_of_each_launch(backend: str) -> bool:
    return [_added(backend, 8, n, number)[:n].tolist() for n, number in ((20, 5), (41, 7))] == [[5] * 20, [7] * 41]


def _grids_of_each_launch(backend: str) -> bool:
    return [_added(backend, grid, 64, 5).sum() for grid in (2, 8)] == [5 * 16, 5 * 64]


def _repeats_count(backend: str) -> bool:
    x = np.zeros(64, np.int32)
    with tw.backend(backend):
        for _ in range(3):
            add_number[(8,)](x, 64, 5, SIZE=8)
    return bool((x == 15).all())


def _done_on_return(backend: str) -> bool:
    x = _added(backend, 8, 64, 5)
    return bool((x == 5).all())


def _constants_make_kernels(backend: str) -> bool:
    found = []
    for number in (3, 4):
        x = np.zeros(8, np.int32)
        with tw.backend(backend):
            fill_constant[(1,)](x, NUMBER=number)
        found.append(x.tolist())
    return found == [[3] * 8, [4] * 8]


def _hooked(backend: str, kernel: SampleKernel, arguments: list[Any], grid: tuple[int, int, int]) -> None:
    """Launch through the hooks alone: what the runtime would have caught before does not matter."""
    from tilewright_conformance.running import run_on_backend

    run_on_backend(backend, kernel.finish().module, arguments, grid)


def _empty_grids_do_nothing(backend: str) -> bool:
    found = []
    for grid in ((0, 1, 1), (1, 0, 3), (2, 2, 0)):
        kernel, x = SampleKernel("empty"), np.zeros(1, np.int32)
        kernel.b.store(kernel.pointer(I32, (1,), output=True), kernel.constant(I32, 7))
        _hooked(backend, kernel, [x], grid)
        found.append(int(x[0]))
    return found == [0, 0, 0]


def _read_only_is_refused(backend: str) -> bool:
    x = np.zeros(64, np.int32)
    x.flags.writeable = False
    try:
        with tw.backend(backend):
            add_number[(8,)](x, 64, 5, SIZE=8)
    except LaunchError:
        return not x.any()
    return False


def _refuses_undeclared(backend: str, make: Callable[[SampleKernel], object]) -> bool:
    """A kernel that needs what is not declared is refused."""
    kernel, found = SampleKernel("undeclared"), registry().get(backend)
    make(kernel)
    module = kernel.finish().module
    if not needs_of(module).missing(found.manifest.capabilities):
        return True
    try:
        target = found.call("tilewright_target", device=found.call("tilewright_devices")[0])
        found.call("tilewright_lower", module=module, target=target, options=found.manifest.options)
    except TilewrightError:
        return True
    return False


def _refuses_dtypes(backend: str) -> bool:
    def make(type_: Type) -> Callable[[SampleKernel], object]:
        return lambda kernel: kernel.store(kernel.load(type_, (8,)))

    return all(_refuses_undeclared(backend, make(type_)) for type_ in (F64, U16, I32))


def _refuses_features(backend: str) -> bool:
    return all(
        (
            _refuses_undeclared(backend, lambda kernel: kernel.b.print([kernel.load(I32)], prefix="x")),
            _refuses_undeclared(backend, lambda kernel: kernel.store(kernel.b.descriptor_load(kernel.descriptor(I32, (8,), (8,)), [kernel.constant(I32, 0)]))),
        )
    )


def _memory(backend: str) -> Any:
    found = registry().get(backend)
    return found.call("tilewright_memory", device=found.call("tilewright_devices")[0])


def _copies_are_whole(backend: str) -> bool:
    memory, data = _memory(backend), np.arange(1, 101, dtype=np.uint8)
    buffer, back = memory.allocate(100, 64), np.zeros(100, np.uint8)
    memory.copy_to_device(buffer, memoryview(data))
    memory.copy_to_host(buffer, memoryview(back))
    return bool((back == data).all())


def _memory_is_aligned(backend: str) -> bool:
    memory = _memory(backend)
    return all(memory.allocate(10, alignment).data_ptr() % alignment == 0 for alignment in (16, 64, 256)) and _copies_are_whole(backend)


def _timer_counts(backend: str) -> bool:
    found, calls = registry().get(backend), []
    timer = found.call("tilewright_timer", device=found.call("tilewright_devices")[0])
    times = timer.measure(lambda: calls.append(sum(range(20000 * len(calls)))), 5)
    return len(calls) == len(times) == 5 and len(set(times)) > 1


OFFERED = [{"SIZE": size, "num_warps": 4} for size in (64, 256, 1024)]


def _tuning(backend: str) -> tuple[Any, Any]:
    found = registry().get(backend)
    return found, found.call("tilewright_target", device=found.call("tilewright_devices")[0])


def _prunes_among_the_offered(backend: str) -> bool:
    found, target = _tuning(backend)
    kept = found.call("tilewright_prune", configurations=OFFERED, target=target, arguments={})
    return bool(kept) and all(dict(one) in OFFERED for one in kept)


def _costs_order(backend: str) -> bool:
    found, target = _tuning(backend)
    return all(np.isfinite(found.call("tilewright_cost", configuration=one, target=target, arguments={})) for one in OFFERED)


SCENES: dict[str, Callable[[str], bool]] = {
    "zero-grid-launches": _empty_grids_do_nothing,
    "stale-scalars": _scalars_of_each_launch,
    "stale-grid": _grids_of_each_launch,
    "repeated-launch-skipped": _repeats_count,
    "launch-deferred": _done_on_return,
    "read-only-stored": _read_only_is_refused,
    "stale-code": _constants_make_kernels,
    "undeclared-dtype-accepted": _refuses_dtypes,
    "undeclared-feature-accepted": _refuses_features,
    "memory-copy-short": _copies_are_whole,
    "memory-unaligned": _memory_is_aligned,
    "timer-stopped": _timer_counts,
    "prune-drops-all": _prunes_among_the_offered,
    "prune-invents": _prunes_among_the_offered,
    "cost-not-a-number": _costs_order,
}


@pytest.fixture(autouse=True)
def healthy(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    faulty.register("broken")
    yield
    faulty.unregister("broken")


def test_every_switch_has_a_witness_or_a_scene() -> None:
    assert set(SWITCHES) == {name for name in SWITCHES if witness(name) is not None} | set(SCENES)


@pytest.mark.parametrize("name", list(SCENES))
def test_a_switch_breaks_its_scene_and_nothing_else_does(name: str) -> None:
    scene = SCENES[name]
    assert scene("broken")
    broken = faulty.backend_name(name)
    faulty.register(broken)
    try:
        assert not scene(broken)
    finally:
        faulty.unregister(broken)


def test_a_random_number_lacks_a_round_through_the_language() -> None:
    @tw.jit
    def draw(x_ptr, seed):
        offsets = tl.arange(0, 64)
        tl.store(x_ptr + offsets, tl.rand(seed, offsets))

    found = []
    names = ("reference", "broken", "broken-philox-round-missing")
    faulty.register(names[2])
    try:
        for name in names:
            x = np.zeros(64, np.float32)
            with tw.backend(name):
                draw[(1,)](x, 7)
            found.append(x)
    finally:
        faulty.unregister(names[2])
    assert (found[0] == found[1]).all()
    assert (found[0] != found[2]).mean() > 0.9


def test_argmax_ties_through_the_language() -> None:
    @tw.jit
    def argmax(x_ptr, out_ptr):
        tl.store(out_ptr, tl.argmax(tl.load(x_ptr + tl.arange(0, 64)), axis=0))

    x = np.zeros(64, np.float32)
    x[[9, 40, 57]] = 3.0
    places = []
    faulty.register("broken-argmax-last")
    try:
        for name in ("broken", "broken-argmax-last"):
            out = np.zeros(1, np.int32)
            with tw.backend(name):
                argmax[(1,)](x, out)
            places.append(int(out[0]))
    finally:
        faulty.unregister("broken-argmax-last")
    assert places == [9, 57]


# ---- the null backend


def test_the_null_backend_accepts_everything_and_writes_nothing() -> None:
    from tilewright.testing.op_samples import samples
    from tilewright_conformance.running import run_on_backend

    faulty.register("null")
    try:
        x = _added("null", 8, 64, 5)
        assert not x.any()
        count = 0
        for operation in ("add", "dot", "atomic_rmw", "descriptor_store", "print"):
            for sample in samples(operation):
                before, after = (sample.make_arguments(np.random.default_rng(1)) for _ in range(2))
                run_on_backend("null", sample.module, after, sample.grid)
                for one, other in zip(before, after, strict=True):
                    if isinstance(one, np.ndarray):
                        assert one.tobytes() == other.tobytes()
                        count += 1
                assert not needs_of(sample.module).missing(registry().get("null").manifest.capabilities)
        assert count > 50
    finally:
        faulty.unregister("null")


def test_memory_of_the_null_backend_holds_what_is_copied_there() -> None:
    faulty.register("null")
    try:
        assert _copies_are_whole("null")
        assert _memory_is_aligned("null")
    finally:
        faulty.unregister("null")
