"""Compiling in worker processes: kernels of any module, workers that die, hang or are interrupted,
and what is left of them."""

import os
import re
import signal
import sys
import textwrap
import threading
import time
from pathlib import Path

import fork_server
import numpy as np
import pytest
from tuning_support import add_one

import tilewright as tw
from tilewright.errors import AutotunerError, LoweringError
from tilewright.plugins.manifest import Device
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler import parallel_compile, workers
from tilewright.runtime.compiler.config import config_text
from tilewright.runtime.compiler.worker_server import LoweringJob
from tilewright.runtime.devices import device_registry
from tilewright.runtime.storage.disk_cache import disk_cache
from tilewright.runtime.tuning import tuning_keys

pytestmark = pytest.mark.skipif(
    not hasattr(os, "fork") or sys.platform == "darwin", reason="needs processes that fork"
)

#: A backend of a distribution of its own, so that workers find it. What it does to a kernel goes by
#: its BLOCK: the environment has a table of deeds.
PLUGIN = """
import os, signal, threading, time
from tilewright.errors import LoweringError, OutOfResources
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import Capabilities, CodeObject, Device, Manifest, Target

TYPES = frozenset(["i1", "i32", "i64", "f32"])

@hookimpl
def tilewright_backend():
    return Manifest("crooked", "1", "lowers to nothing", ("cpu",), ("paper",), Capabilities(TYPES), ignored=frozenset({"num_warps"}), priority=2000)

@hookimpl
def tilewright_devices():
    return [Device("crooked", "cpu", 0, "sheet")]

@hookimpl
def tilewright_target(device):
    return Target("crooked", "paper", kind="cpu")

def priority():
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

def hang():
    open(os.environ["CROOKED_HANGS"], "a").write(f"{os.getpid()} ")
    time.sleep(3600)

def wait():
    while not os.path.exists(os.environ["CROOKED_HANGS"]):
        time.sleep(0.005)

class Odd(LoweringError):
    def __init__(self):
        super().__init__("odd")
    def __reduce__(self):
        raise TypeError("no pickles")

def refuse(error):
    raise error

DEEDS = {
    "die": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "leave": lambda: os._exit(3),
    "hang": hang,
    "wait": wait,
    "full": lambda: refuse(OutOfResources(300, 200, "shared memory")),
    "odd": lambda: refuse(Odd()),
    "bug": lambda: {}["defect"],
}

@hookimpl
def tilewright_lower(module, target, options):
    text = str(module)
    deeds = dict(pair.split("=") for pair in os.environ.get("CROOKED", "").split())
    for block, deed in deeds.items():
        if f"end = {block}" in text:
            DEEDS[deed]()
    facts = {"process": os.getpid(), "at": time.monotonic_ns(), "directory": os.environ.get("HERE", ""), "niceness": priority()}
    return CodeObject(module.kernel.name, b"code", {"tileir": text}, facts)

@hookimpl
def tilewright_link(code, target):
    code.metadata.update(linked=os.getpid(), patience=priority())
    return code

@hookimpl
def tilewright_load(code, device):
    return code

@hookimpl
def tilewright_launcher(loaded, parameters, options):
    return lambda grid, stream, values: None
"""
#: Seconds after which a test that waits for what does not come fails.
GUARD = 900
BLOCKS = (8, 16, 32, 64)
CONFIGS = [tw.Config({"BLOCK": block}) for block in BLOCKS]


@pytest.fixture
def crooked(tmp_path, monkeypatch):
    """The backend above as the default one, and two workers."""
    (tmp_path / "crooked_backend.py").write_text(PLUGIN)
    info = tmp_path / "crooked-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: crooked\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[tilewright]\ncrooked = crooked_backend\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_WORKERS", "2")
    monkeypatch.setenv("CROOKED_HANGS", str(tmp_path / "hangs"))
    _look_again()
    yield tmp_path
    monkeypatch.undo()
    sys.modules.pop("crooked_backend", None)
    _look_again()
    workers.close_pool()


def _look_again():
    found = registry()
    found._sources = None
    found._loaded.pop("crooked", None)
    found._changed()
    device_registry.forget()


def bench(call, quantiles):
    call()
    return [1.0, 1.0, 1.0]


def tuned(configs=CONFIGS, **options):
    return tw.autotune(configs, ["n"], **{"do_bench": bench, "cache_results": False, **options})(
        tw.jit(add_one)
    )


def launch(kernel):
    return kernel[(1,)](np.zeros(64, np.float32), 5)


def compiled(kernel):
    """BLOCK -> the metadata of what was compiled."""
    return {
        one.src.constants["BLOCK"]: one.metadata
        for one in kernel.base_kernel.device_caches["crooked:0"][0].values()
    }


def is_gone(process):
    """Return whether a process ends."""
    until = time.monotonic() + GUARD
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state in "ZX":
            return True
        time.sleep(0.01)
    return False


def test_kernels_are_lowered_by_workers_and_linked_here(crooked):
    kernel = tuned()
    launch(kernel)
    found = compiled(kernel)
    assert set(found) == set(BLOCKS)
    assert all(
        facts.process != os.getpid() and facts.linked == os.getpid() for facts in found.values()
    )
    assert 1 <= workers.worker_pool().started <= 2
    if sys.platform == "linux":  # who measures comes first
        own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        assert all(min(facts.niceness, facts.patience) > min(own, 18) for facts in found.values())
    kept = [
        disk_cache().get(one.hash)
        for one in kernel.base_kernel.device_caches["crooked:0"][0].values()
    ]
    assert all(
        artifact is not None and artifact.code.metadata["linked"] == os.getpid()
        for artifact in kept
    )


def test_configurations_of_the_same_code_are_lowered_once(crooked, monkeypatch):
    """They differ in options that the backend ignores; each has its own cache key."""
    monkeypatch.setenv("CROOKED", "16=full")
    configs = [
        tw.Config({"BLOCK": block}, num_warps=warps, num_stages=stages)
        for block in (8, 16)
        for warps in (1, 2, 4)
        for stages in (1, 2)
    ]
    kernel = tuned(configs)
    launch(kernel)
    found = list(kernel.base_kernel.device_caches["crooked:0"][0].values())
    lowered = {}
    for one in found:
        lowered.setdefault(one.metadata.num_stages, set()).add(
            (one.metadata.process, one.metadata.at)
        )
    assert sorted((one.metadata.num_warps, one.metadata.num_stages) for one in found) == [
        (warps, stages) for warps in (1, 2, 4) for stages in (1, 2)
    ]
    assert [len(jobs) for jobs in lowered.values()] == [1, 1] and lowered[1] != lowered[2]
    kept = [disk_cache().get(one.hash) for one in found]
    assert len({one.hash for one in found}) == 6 and all(
        artifact.key == one.hash for artifact, one in zip(kept, found, strict=True)
    )
    assert sorted(
        config_text(config) for config, error in kernel.failures if "shared memory" in str(error)
    ) == sorted(map(config_text, configs[6:]))


def test_workers_are_kept_and_follow_the_environment(crooked, monkeypatch):
    launch(tuned())
    pool, before = workers.worker_pool(), workers.worker_pool().started
    monkeypatch.setenv("HERE", "there")
    kernel = tuned([tw.Config({"BLOCK": block}, num_warps=2) for block in BLOCKS])
    launch(kernel)
    assert workers.worker_pool() is pool and pool.started <= max(before, 2)
    assert {facts.directory for facts in compiled(kernel).values()} == {"there"}


def test_what_the_disk_cache_has_needs_no_worker(crooked):
    launch(tuned())
    workers.close_pool()
    kernel = tuned()
    launch(kernel)
    assert workers.worker_pool().started == 0 and set(compiled(kernel)) == set(BLOCKS)


@pytest.mark.parametrize(
    ("deed", "told"),
    [
        ("die", r"LoweringError: the process that compiled it was ended by signal 11"),
        ("leave", r"LoweringError: the process that compiled it ended with status 3"),
        ("full", r"OutOfResources: out of resource: shared memory, Required: 300"),
    ],
)
def test_a_configuration_that_fails_in_a_worker_is_left_out_with_its_reason(
    crooked, monkeypatch, deed, told
):
    monkeypatch.setenv("CROOKED", f"16={deed}")
    kernel = tuned()
    launch(kernel)
    assert kernel.best_config.kwargs["BLOCK"] != 16 and set(compiled(kernel)) == {8, 32, 64}
    ((config, error),) = kernel.failures
    assert config == CONFIGS[1] and re.match(told, f"{type(error).__name__}: {error}")
    monkeypatch.setenv("CROOKED", " ".join(f"{block}={deed}" for block in BLOCKS))
    with pytest.raises(AutotunerError, match=rf"(?s)\[BLOCK: 8.*{told}.*\[BLOCK: 64.*{told}"):
        launch(tuned([tw.Config({"BLOCK": block}, num_warps=8) for block in BLOCKS]))
    monkeypatch.delenv("CROOKED")
    launch(
        tuned([tw.Config({"BLOCK": block}, num_warps=1) for block in BLOCKS])
    )  # there are workers again


def test_errors_that_cannot_be_sent_arrive_as_text(crooked, monkeypatch):
    monkeypatch.setenv("CROOKED", "16=odd")
    with pytest.raises(tw.errors.BackendError, match="Odd: odd"):
        launch(tuned())


def test_a_defect_of_the_backend_is_no_failed_configuration(crooked, monkeypatch):
    monkeypatch.setenv("CROOKED", "16=bug")
    with pytest.raises(tw.errors.BackendError, match="defect of the backend") as raised:
        launch(tuned())
    assert any("in the configuration [BLOCK: 16" in note for note in raised.value.__notes__)


def test_a_worker_that_takes_too_long_is_ended(crooked, monkeypatch):
    monkeypatch.setenv("CROOKED", "16=hang")
    # The others take some milliseconds, but for the start of the server, which does not count.
    kernel = tuned(time_limit=5.0)
    launch(kernel)
    error = dict(kernel.failures)[CONFIGS[1]]
    assert isinstance(error, TimeoutError) and "longer than 5.0 s" in str(error)
    assert all(is_gone(int(process)) for process in (crooked / "hangs").read_text().split())


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_workers_and_tells_the_best_so_far(crooked, monkeypatch):
    monkeypatch.setenv("CROOKED", "16=hang 64=hang")
    hangs = crooked / "hangs"

    def interrupt():
        until = time.monotonic() + GUARD
        while (
            time.monotonic() < until
            and len(hangs.read_text().split() if hangs.exists() else ()) < 2
        ):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt) as raised:
        launch(tuned())
    thread.join()
    assert any(
        "while add_one was tuned, after 0 of 4 configurations" in note
        for note in raised.value.__notes__
    )
    assert all(is_gone(int(process)) for process in hangs.read_text().split())
    monkeypatch.delenv("CROOKED")
    launch(tuned())


def test_another_device_measures_while_workers_compile(crooked, monkeypatch):
    """The last configuration is compiled only when the first was measured."""
    monkeypatch.setenv("CROOKED", "64=wait")
    hangs = crooked / "hangs"

    def bench(call, quantiles):
        call()
        hangs.touch()
        return [1.0, 1.0, 1.0]

    kernel = tuned(do_bench=bench, time_limit=GUARD)
    place, other = tuning_keys.place_of, Device("crooked", "paper", 0, "sheet")
    monkeypatch.setattr(
        tuning_keys, "place_of", lambda *given: place(*given)._replace(device=other)
    )
    launch(kernel)
    assert len(kernel.configs_timings) == 4 and not kernel.failures


def test_no_job_of_a_tuning_that_was_given_up_is_started(crooked):
    pool, owner = workers.worker_pool(), threading.Event()
    pool.end_busy(owner)
    with pytest.raises(LoweringError, match="its tuning was given up"):
        pool.lower(LoweringJob("", {}, "crooked", None, "", {}), owner=owner)
    assert pool.started == 0


def test_a_server_that_was_killed_is_started_again(crooked):
    launch(tuned())
    pool = workers.worker_pool()
    first = pool._server
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    kernel = tuned([tw.Config({"BLOCK": block}, num_warps=2) for block in BLOCKS])
    launch(kernel)
    assert set(compiled(kernel)) == set(BLOCKS) and pool._server is not first


@pytest.mark.parametrize("count", ["0", "1"])
def test_without_workers_threads_compile(crooked, monkeypatch, count):
    monkeypatch.setenv("TILEWRIGHT_WORKERS", count)
    kernel = tuned()
    launch(kernel)
    assert {facts.process for facts in compiled(kernel).values()} == {os.getpid()}


def test_a_count_that_is_none(crooked, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_WORKERS", "many")
    with pytest.raises(ValueError, match="TILEWRIGHT_WORKERS must be a number of processes"):
        launch(tuned())


def test_a_backend_that_only_this_process_has_is_lowered_here(recorder, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_WORKERS", "2")
    launch(tuned())
    assert len(recorder.lowered) == 4


def test_a_backend_that_came_after_the_workers_is_theirs_too(tmp_path, monkeypatch, request):
    pytest.importorskip("tilewright_cpu")
    monkeypatch.setenv("TILEWRIGHT_WORKERS", "2")
    with tw.backend("cpu"):
        launch(tuned())
    assert workers.worker_pool().started
    request.getfixturevalue("crooked")
    kernel = tuned()
    launch(kernel)
    assert os.getpid() not in {facts.process for facts in compiled(kernel).values()}


def test_options_that_cannot_be_sent_are_lowered_here(crooked, monkeypatch):
    real = parallel_compile._job_of

    def unsendable(selection, module, key):
        job = real(selection, module, key)
        if "end = 16" in module:
            job.options["math"] = threading.Lock()
        return job

    monkeypatch.setattr(parallel_compile, "_job_of", unsendable)
    kernel = tuned()
    launch(kernel)
    assert [block for block, facts in compiled(kernel).items() if facts.process == os.getpid()] == [
        16
    ]


#: A program without a guard, whose kernel is in a closure of ``__main__``, that ends by
#: ``os._exit`` or is killed.
PROGRAM = """
import os, sys
import numpy as np
import tilewright as tw, tilewright.language as tl

def make(more: int):
    @tw.autotune(configs=[tw.Config({"BLOCK": block}) for block in (16, 32, 64, 128)], key=["n"])
    @tw.jit
    def kernel(x, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + offsets, tl.load(x + offsets, mask=offsets < n) + more, mask=offsets < n)
    return kernel

with tw.backend("reference"):
    kernel = make(tl.constexpr(3))
    x = np.zeros(100, np.float32)
    kernel[lambda meta: (tw.cdiv(100, meta["BLOCK"]),)](x, 100)
from tilewright.runtime.compiler import workers
assert (x >= 3).all() and len(kernel.configs_timings) == 4
pool = workers.worker_pool()
print(pool.started > 0, len(os.listdir(f"/proc/{pool._server.pid}/task")), pool._server.pid, *(worker.process for worker in pool._idle), flush=True)
END
"""


#: A copy of the process goes on, with the sockets to its workers, until the server has ended.
COPIED = """
def is_there(process):
    try:
        return open(f"/proc/{process}/stat").read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

import time
if os.fork():
    os.kill(os.getpid(), 9)
os.closerange(0, 3)
while is_there(pool._server.pid):
    time.sleep(0.05)
os._exit(0)
"""


@pytest.mark.parametrize(
    "end", ["", "os._exit(0)", "os.kill(os.getpid(), 9)", "os.kill(os.getpid(), 15)", COPIED]
)
def test_a_program_without_a_guard_and_what_is_left_of_it(tmp_path, end):
    file = tmp_path / "program.py"
    file.write_text(textwrap.dedent(PROGRAM).replace("END", end))
    environment = {**os.environ, "TILEWRIGHT_WORKERS": "2"}
    done = fork_server.run(
        [str(file)],
        timeout=GUARD,
        env=environment,
    )
    used, threads, *processes = done.stdout.split()
    assert used == "True" and threads == "1", done.stderr
    assert len(processes) >= 2 and all(is_gone(int(process)) for process in processes)
