"""Mutants that no single launch of a module reveals.

Plans, caches, grids, capabilities, memory, timing and tuning.

A case of the suite fails for each, or a *scene*: a function of a backend's name that returns
whether all is correct.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import TilewrightError
from tilewright.ir.types import F64, I32, U16, Type
from tilewright.plugins.registry import registry
from tilewright_conformance import mutation
from tilewright_conformance.mutation.killing_tests import witness
from tilewright_conformance.mutation.mutants import SWITCHES
from tilewright_conformance.op_samples.kernel import SampleKernel
from tilewright_conformance.suite.case import Status
from tilewright_conformance.suite.catalogue import catalogue
from tilewright_conformance.suite.engine.judge import execute
from tilewright_conformance.suite.requirements import needs_of
from tilewright_conformance.suite.session import Session, Subject


@tw.jit
def add_number(x_ptr, n, number, SIZE: tl.constexpr):
    offsets = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(x_ptr + offsets, x + number, mask=offsets < n)


def _added(backend: str, grid: int, n: int, number: int) -> np.ndarray[Any, Any]:
    x = np.zeros(64, np.int32)
    with tw.backend(backend):
        add_number[(grid,)](x, n, number, SIZE=8)
    return x


def _accepts(backend: str, make: Callable[[SampleKernel], object]) -> bool:
    """A kernel that needs no more than what is declared is lowered."""
    kernel, found = SampleKernel("declared"), registry().get(backend)
    make(kernel)
    module = kernel.finish().module
    assert not needs_of(module).missing(found.manifest.capabilities)
    try:
        target = found.call("tilewright_target", device=found.call("tilewright_devices")[0])
        found.call("tilewright_lower", module=module, target=target, options=found.manifest.options)
    except TilewrightError:
        return False
    return True


def _accepts_dtypes(backend: str) -> bool:
    def make(type_: Type) -> Callable[[SampleKernel], object]:
        return lambda kernel: kernel.store(kernel.load(type_, (8,)))

    return all(_accepts(backend, make(type_)) for type_ in (F64, U16, I32))


def _accepts_features(backend: str) -> bool:
    return all(
        (
            _accepts(backend, lambda kernel: kernel.b.print([kernel.load(I32)], prefix="x")),
            _accepts(
                backend,
                lambda kernel: kernel.store(
                    kernel.b.descriptor_load(
                        kernel.descriptor(I32, (8,), (8,)), [kernel.constant(I32, 0)]
                    )
                ),
            ),
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
    return all(
        memory.allocate(10, alignment).data_ptr() % alignment == 0 for alignment in (16, 64, 256)
    ) and _copies_are_whole(backend)


#: switch -> the case of the suite whose demands it breaks
CASES: dict[str, str] = {
    "zero-grid-launches": "launch/grid/empty",
    "stale-scalars": "launch/repeat/values",
    "stale-grid": "launch/repeat/grids",
    "repeated-launch-skipped": "launch/repeat/same",
    "launch-deferred": "launch/order",
    "read-only-stored": "launch/read_only",
    "stale-code": "launch/cache/constants",
    "timer-stopped": "autotune/timer",
    "prune-drops-all": "autotune/backend/prune",
    "prune-invents": "autotune/backend/prune",
    "cost-not-a-number": "autotune/backend/cost",
}

SCENES: dict[str, Callable[[str], bool]] = {
    "declared-dtype-refused": _accepts_dtypes,
    "declared-feature-refused": _accepts_features,
    "memory-copy-short": _copies_are_whole,
    "memory-unaligned": _memory_is_aligned,
}


@pytest.fixture(autouse=True)
def healthy(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    mutation.register("broken")
    yield
    mutation.unregister("broken")


def test_every_switch_has_a_witness_or_a_scene() -> None:
    assert set(SWITCHES) == {name for name in SWITCHES if witness(name) is not None} | set(
        SCENES
    ) | set(CASES)


@pytest.mark.parametrize("name", list(SCENES))
def test_a_switch_breaks_its_scene_and_nothing_else_does(name: str) -> None:
    scene = SCENES[name]
    assert scene("broken")
    broken = mutation.backend_name(name)
    mutation.register(broken)
    try:
        assert not scene(broken)
    finally:
        mutation.unregister(broken)


@pytest.mark.parametrize("name", list(CASES))
def test_a_switch_breaks_its_case_and_a_backend_without_it_passes(name: str) -> None:
    case = catalogue()[CASES[name]]

    def status(backend: str) -> Status:
        return execute(case, Session(Subject(backend), case.id)).status

    assert status("broken") is Status.PASSED
    broken = mutation.backend_name(name)
    mutation.register(broken)
    try:
        assert status(broken) in (Status.FAILED, Status.ERROR)
    finally:
        mutation.unregister(broken)


def test_a_random_number_lacks_a_round_through_the_language() -> None:
    @tw.jit
    def draw(x_ptr, seed):
        offsets = tl.arange(0, 64)
        tl.store(x_ptr + offsets, tl.rand(seed, offsets))

    found = []
    names = ("reference", "broken", "broken-philox-round-missing")
    mutation.register(names[2])
    try:
        for name in names:
            x = np.zeros(64, np.float32)
            with tw.backend(name):
                draw[(1,)](x, 7)
            found.append(x)
    finally:
        mutation.unregister(names[2])
    assert (found[0] == found[1]).all()
    assert (found[0] != found[2]).mean() > 0.9


def test_argmax_ties_through_the_language() -> None:
    @tw.jit
    def argmax(x_ptr, out_ptr):
        tl.store(out_ptr, tl.argmax(tl.load(x_ptr + tl.arange(0, 64)), axis=0))

    x = np.zeros(64, np.float32)
    x[[9, 40, 57]] = 3.0
    places = []
    mutation.register("broken-argmax-last")
    try:
        for name in ("broken", "broken-argmax-last"):
            out = np.zeros(1, np.int32)
            with tw.backend(name):
                argmax[(1,)](x, out)
            places.append(int(out[0]))
    finally:
        mutation.unregister("broken-argmax-last")
    assert places == [9, 57]


# ---- the null backend


def test_the_null_backend_accepts_everything_and_writes_nothing() -> None:
    from tilewright_conformance.op_samples import samples

    mutation.register("null")
    try:
        session = Session(Subject("null"), "null")
        x = _added("null", 8, 64, 5)
        assert not x.any()
        count = 0
        for operation in ("add", "dot", "atomic_rmw", "descriptor_store", "print"):
            for sample in samples(operation):
                before, after = (sample.make_arguments(np.random.default_rng(1)) for _ in range(2))
                session.run_module(sample.module, after, sample.grid)
                for one, other in zip(before, after, strict=True):
                    if isinstance(one, np.ndarray):
                        assert one.tobytes() == other.tobytes()
                        count += 1
                assert not needs_of(sample.module).missing(
                    registry().get("null").manifest.capabilities
                )
        assert count > 50
    finally:
        mutation.unregister("null")


def test_memory_of_the_null_backend_holds_what_is_copied_there() -> None:
    mutation.register("null")
    try:
        assert _copies_are_whole("null")
        assert _memory_is_aligned("null")
    finally:
        mutation.unregister("null")
