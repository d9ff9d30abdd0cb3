"""Kernels under Triton's launch contract, on the CPU."""

import json
import os
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import numpy as np
import pytest

from tilewright.errors import UnknownOptionError
from tilewright.testing.threads import side_by_side

torch = pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")

import tilewright.language as tl  # noqa: E402
from tilewright.compat import triton  # noqa: E402


@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) * factor, i < n)


@triton.jit
def fill(out, value):
    tl.store(out, value)


@triton.jit(do_not_specialize=["value"])
def fill_unspecialized(out, value):
    tl.store(out, value)


@triton.jit(do_not_specialize_on_alignment=["value"])
def fill_unaligned(out, value):
    tl.store(out, value)


@pytest.fixture
def compilations():
    """The keywords of every compilation."""
    found = []

    def hook(**kwargs):
        found.append(kwargs)

    triton.knobs.runtime.jit_cache_hook = hook
    return found


def run_scale(n=1000, kernel=scale, **options):
    x = torch.from_numpy(np.random.default_rng(n).standard_normal(n).astype(np.float32))
    out = torch.empty_like(x)
    compiled = kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](
        x, out, n, 2.5, BLOCK=128, **options
    )
    assert torch.equal(out, x * 2.5)
    return compiled


def test_launches_give_compiled_kernels_with_tritons_attributes():
    scale.clear_cache()
    compiled = run_scale()
    assert compiled.metadata.target == triton.runtime.driver.active.get_current_target()
    assert (
        compiled.metadata.num_warps,
        compiled.metadata.num_stages,
        compiled.metadata.num_ctas,
        compiled.metadata.shared,
    ) == (4, 3, 1, 0)
    assert (
        compiled.metadata.hash == compiled.hash
        and compiled.metadata.name == compiled.name == "scale"
    )
    assert compiled.packed_metadata == (4, 1, 0)
    assert "llir" in compiled.asm and "ttir" in compiled.asm
    assert compiled.src.fn is scale and compiled.src.signature == {
        "x": "*fp32",
        "out": "*fp32",
        "n": "i32",
        "factor": "fp32",
        "BLOCK": "constexpr",
    }
    assert compiled.src.constants == {(4,): 128}
    assert compiled.src.attrs[(0,)] == [["tt.divisibility", 16]]


def test_compiled_kernels_can_be_launched_in_both_of_tritons_ways():
    scale.clear_cache()
    compiled = run_scale(64)
    x, out = torch.randn(64), torch.empty(64)
    compiled[(1, 1, 1)](x, out, 64, 2.5, 128)
    assert torch.equal(out, x * 2.5)
    out.zero_()
    told = []
    compiled.run(
        1,
        1,
        1,
        0,
        compiled.function,
        compiled.packed_metadata,
        {"m": 1},
        told.append,
        told.append,
        x,
        out,
        64,
        2.5,
        128,
    )
    assert torch.equal(out, x * 2.5) and told == [{"m": 1}, {"m": 1}]


def test_stages_that_do_not_exist_say_so():
    compiled = run_scale()
    with pytest.raises(KeyError, match="MLIR of Triton's GPU dialect"):
        compiled.asm["ttgir"]
    with pytest.raises(KeyError, match="Unknown key: 'nonsense'"):
        compiled.asm["nonsense"]
    text = compiled.asm["ttir"]
    assert "kernel @scale" in text
    for ask in (
        lambda: "tt.load" in text,
        lambda: "arith.mulf" not in text,
        lambda: text.count("tt.store"),
        lambda: text.find("#ttg.blocked"),
    ):
        with pytest.raises(KeyError, match="Tile IR, not MLIR"):
            ask()


@pytest.mark.parametrize(
    ("kernel", "count"), [(fill, 3), (fill_unspecialized, 1), (fill_unaligned, 2)]
)
def test_integers_specialize_as_in_triton(compilations, kernel, count):
    kernel.clear_cache()
    out = torch.empty(1, dtype=torch.int32)
    for value in (1, 2, 4, 8, 16, 32):
        kernel[(1,)](out, value)
        assert out.item() == value
    assert (
        len(compilations)
        == count
        == len(kernel.device_caches["cpu"][0])
        == len(kernel.device_caches[0][0])
    )


def test_device_caches_are_found_by_what_torch_calls_the_device():
    fill.clear_cache()
    assert len(fill.device_caches[0][0]) == len(fill.device_caches["cpu"][0]) == 0
    fill.warmup(torch.float32, 3, grid=(1,))
    assert len(fill.device_caches[torch.cpu.current_device()][0]) == 1
    assert len(fill.device_caches[torch.device("cpu")][0]) == 1
    fill.warmup(torch.empty(1), 3, grid=(1,))
    assert len(fill.device_caches[0][0]) == 1


def test_clearing_a_device_cache_compiles_anew(compilations):
    fill.clear_cache()
    out = torch.empty(1)
    for _ in range(3):
        fill[(1,)](out, 5)
    assert len(compilations) == 1
    fill.device_caches[0][0].clear()
    fill[(1,)](out, 5)
    assert len(compilations) == 2 and out.item() == 5


def test_hooks_are_told_of_compilations(compilations):
    scale.clear_cache()
    done = []
    triton.knobs.runtime.jit_post_compile_hook = lambda **kwargs: done.append(kwargs)
    run_scale()
    (before,), (after,) = compilations, done
    assert (
        before["fn"].name == "scale"
        and before["fn"].jit_function is scale
        and before["fn"].module == __name__
    )
    assert not before["is_manual_warmup"] and not before["already_compiled"]
    told = before["compile"]
    assert told["key"] == before["key"] and told["key"] in scale.device_caches[0][0]
    assert (
        told["constants"] == {(4,): 128} and told["num_warps"] == 4 and told["is_warmup"] is False
    )
    assert told["configs"][0][(1,)] == [["tt.divisibility", 16]]
    assert after["compile"]["specialization_data"] == told["specialization_data"] and json.loads(
        told["specialization_data"]
    )
    assert "scale[num_warps=4" in before["repr"]


def test_a_hook_may_veto():
    fill.clear_cache()
    triton.knobs.runtime.jit_cache_hook = lambda **kwargs: True
    out = torch.zeros(1)
    assert fill[(1,)](out, 9) is None
    assert out.item() == 0


@pytest.mark.parametrize(
    "options",
    [
        {"num_warps": 1},
        {"enable_fp_fusion": False},
        {"extern_libs": {"libm": "/lib/m.bc"}},
        {"launch_cooperative_grid": True},
    ],
)
def test_options_compile_anew_and_are_told(options, compilations):
    scale.clear_cache()
    run_scale()
    run_scale(**options)
    run_scale(**options)
    assert len(compilations) == 2
    (name, value), *_ = options.items()
    assert compilations[1]["compile"][name] == (
        tuple(value.items()) if isinstance(value, dict) else value
    )


@triton.jit
def all_at_once(count, out):
    tl.atomic_add(count, 1, sem="acq_rel")
    while tl.atomic_add(count, 0, sem="acquire") < tl.num_programs(0):
        pass
    tl.store(out + tl.program_id(0), tl.num_programs(0))


def test_cooperative_grids_are_cooperative_launches():
    count, out = torch.zeros(1, dtype=torch.int32), torch.zeros(30, dtype=torch.int32)
    compiled = all_at_once[(30,)](count, out, launch_cooperative_grid=True)
    assert out.tolist() == [30] * 30
    assert (
        compiled.metadata.launch_cooperative_grid is True and compiled.metadata.cooperative is True
    )
    count.zero_()
    assert all_at_once[(30,)](count, out).metadata.launch_cooperative_grid is False


def test_unknown_options_and_those_of_other_hardware_are_refused():
    with pytest.raises(KeyError, match="Keyword argument nonsense was specified but unrecognised"):
        run_scale(nonsense=1)
    with pytest.raises(
        UnknownOptionError,
        match=r"^Keyword argument waves_per_eu was specified but unrecognised: .* \(options: "
        r"allowed_dot_input_precisions, .*num_threads",
    ):
        run_scale(waves_per_eu=2)
    with pytest.raises(AssertionError):
        run_scale(device="cpu")


def test_launch_hooks_get_the_metadata():
    def describe(grid, metadata, args):
        return {"grid": grid, "value": args["value"], "warps": metadata.num_warps}

    kernel = triton.jit(launch_metadata=describe)(fill.fn)
    seen = []

    def enter(metadata):
        seen.append(metadata.get())

    triton.knobs.runtime.launch_enter_hook.add(enter)
    try:
        kernel[(1, 3, 2)](torch.empty(1), 6)
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(enter)
    kernel[(1,)](torch.empty(1), 6)
    assert len(seen) == 1
    assert (seen[0]["grid"], seen[0]["value"], seen[0]["warps"], seen[0]["name"]) == (
        (1, 3, 2),
        6,
        4,
        "fill",
    )


def test_load_hooks_run_once_for_each_kernel():
    fill.clear_cache()
    hashes = []
    start, end = (
        triton.knobs.runtime.kernel_load_start_hook,
        triton.knobs.runtime.kernel_load_end_hook,
    )

    def hook(module, function, name, metadata_group, hash):
        hashes.append((name, hash))

    start.add(hook)
    end.add(hook)
    try:
        fill[(1,)](torch.empty(1), 2)
        fill[(1,)](torch.empty(1), 2)
    finally:
        start.remove(hook)
        end.remove(hook)
    assert len(hashes) == 2 and hashes[0] == hashes[1] and hashes[0][0] == "fill"


def test_compilation_listeners_get_times_and_cache_hits():
    heard = []
    triton.knobs.compilation.listener = lambda **kwargs: heard.append(kwargs)
    for _ in range(2):
        fill.clear_cache()
        fill[(1,)](torch.empty(1), 7)
    first, second = heard
    assert not first["cache_hit"] and second["cache_hit"]
    assert (
        isinstance(first["metadata"]["target"], triton.backends.compiler.GPUTarget)
        and first["metadata"]["hash"]
    )
    assert (
        first["times"].total_lowering > 0
        and first["times"].store_results > 0
        and first["times"].total > 0
    )
    assert (
        second["times"].total_lowering == 0
        and second["times"].store_results == 0
        and second["times"].total > 0
    )
    assert first["src"].fn is fill


def test_always_compile_does_not_look_into_the_cache():
    heard = []
    triton.knobs.compilation.listener = lambda **kwargs: heard.append(kwargs["cache_hit"])
    triton.knobs.compilation.always_compile = True
    for _ in range(2):
        fill.clear_cache()
        fill[(1,)](torch.empty(1), 7)
    triton.knobs.compilation.always_compile = False
    fill.clear_cache()
    fill[(1,)](torch.empty(1), 7)
    assert heard == [False, False, True]


def test_kernels_are_kept_where_triton_would_keep_them(tmp_path):
    triton.knobs.cache.dir = str(tmp_path / "triton")
    fill.clear_cache()
    fill[(1,)](torch.empty(1), 7)
    assert list((tmp_path / "triton").rglob("*.kernel")) and not (tmp_path / "cache").exists()
    assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "triton")


def test_preload_compiles_what_a_hook_was_told_of(compilations):
    scale.clear_cache()
    compiled = run_scale()
    data = compilations[0]["compile"]["specialization_data"]
    scale.clear_cache()
    loaded = scale.preload(data)
    assert loaded.hash == compiled.hash and len(scale.device_caches[0][0]) == 1
    before = len(compilations)
    assert run_scale().hash == loaded.hash
    assert len(compilations) == before and len(scale.device_caches[0][0]) == 1
    with pytest.raises(
        RuntimeError, match=r"Specialization data is for .*scale but trying to preload for .*fill"
    ):
        fill.preload(data)


@triton.jit
def typed(out, TYPE: tl.constexpr, OTHER: tl.constexpr):
    tl.store(out, tl.full((), 3, TYPE).to(tl.float32) + OTHER[1])


def test_preload_restores_types_and_tuples(compilations):
    typed.clear_cache()
    out = torch.zeros(1)
    typed[(1,)](out, tl.int16, (1, 2.5))
    data = compilations[0]["compile"]["specialization_data"]
    typed.clear_cache()
    loaded = typed.preload(data)
    assert typed[(1,)](out, tl.int16, (1, 2.5)) is loaded and out.item() == 5.5


class Queue(Executor):
    """An executor that runs a job on request."""

    def __init__(self):
        self.jobs = []

    def submit(self, fn, *args, **kwargs):
        future = Future()

        def job():
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:
                future.set_exception(error)

        self.jobs.append(job)
        return future

    def run(self, count):
        for _ in range(count):
            self.jobs.pop(0)()


def test_warm_ups_are_compiled_by_the_executor():
    fill.clear_cache()
    queue = Queue()
    with triton.AsyncCompileMode(queue):
        a, b = torch.empty(1), torch.empty(1, dtype=torch.int32)
        for _ in range(2):
            assert isinstance(fill.warmup(a, 2, grid=(1,)), triton.FutureKernel)
            fill.warmup(b, 2, grid=(1,))
        submitted = len(queue.jobs)
        with pytest.raises(RuntimeError, match="already active"), triton.AsyncCompileMode(queue):
            pass
        queue.run(1)
        fill[(1,)](a, 2)
        launched = a.item()
        queue.run(len(queue.jobs))  # leaving the block waits for all
    assert (submitted, launched) == (2, 2) and len(fill.device_caches[0][0]) == 2
    with ThreadPoolExecutor(2) as pool, triton.AsyncCompileMode(pool):
        fill[(1,)](b, 16)
        assert b.item() == 16


@triton.jit
def broken(out):
    tl.store(out, no_such_name)  # noqa: F821


def test_failures_of_background_compilations_are_raised_or_ignored():
    with (
        pytest.raises(triton.CompilationError),
        ThreadPoolExecutor(1) as pool,
        triton.AsyncCompileMode(pool),
    ):
        broken.warmup(torch.float32, grid=(1,))
    with ThreadPoolExecutor(1) as pool, triton.AsyncCompileMode(pool, ignore_errors=True):
        broken.warmup(torch.float32, grid=(1,))


CONSTANT = tl.constexpr(1)


@triton.jit
def store_constant(out):
    tl.store(out, CONSTANT)


@triton.jit
def inner():
    return CONSTANT


@triton.jit
def outer_a(out):
    tl.store(out, inner())


@triton.jit
def outer_b(out):
    tl.store(out, inner())


def test_changed_globals_are_refused(monkeypatch):
    store_constant.clear_cache()
    out = torch.zeros(1)
    store_constant[(1,)](out)
    monkeypatch.setitem(globals(), "CONSTANT", tl.constexpr(2))
    with pytest.raises(
        RuntimeError, match="Global variable CONSTANT has changed since we compiled this kernel"
    ):
        store_constant[(1,)](out)


def test_constants_changed_in_place_are_noticed_in_globals_and_closures(monkeypatch):
    out = torch.zeros(1)
    monkeypatch.setitem(globals(), "CONSTANT", tl.constexpr(42))
    kernel = triton.jit(store_constant.fn)
    kernel[(1,)](out)
    CONSTANT.value = 43
    with pytest.raises(
        RuntimeError,
        match=(
            r"CONSTANT has changed since we compiled this kernel, from constexpr\[42\] to "
            r"constexpr\[43\]"
        ),
    ):
        kernel[(1,)](out)

    captured = tl.constexpr(5)

    @triton.jit
    def closure(out):
        tl.store(out, captured)

    for _ in range(3):
        closure[(1,)](out)
    assert out.item() == 5
    captured.value = 6
    with pytest.raises(
        RuntimeError,
        match=(
            r"captured has changed since we compiled this kernel, from constexpr\[5\] to "
            r"constexpr\[6\]"
        ),
    ):
        closure[(1,)](out)


def test_functions_keep_the_globals_they_were_first_compiled_with(monkeypatch):
    out = torch.zeros(1)
    outer_a[(1,)](out)
    monkeypatch.setitem(globals(), "CONSTANT", tl.constexpr(3))
    with pytest.raises(RuntimeError, match="Global variable CONSTANT has value"):
        outer_b[(1,)](out)


def test_kernels_without_tensors_run_on_the_active_driver(monkeypatch):
    @triton.jit
    def nothing(x):
        pass

    compiled = nothing[(1, 2)](6)
    assert compiled.backend.name == triton.runtime.driver.active.backend_name
    triton.runtime.driver.set_active_to_cpu()
    assert nothing[(1,)](6).backend.name == "cpu"
    triton.runtime.driver.reset_active()


def test_tensors_that_cannot_be_reached_are_refused():
    class Elsewhere:
        dtype, device = torch.float32, torch.device("cuda", 0)

        def data_ptr(self):
            return 4096

    with pytest.raises(
        ValueError, match=r"Pointer argument cannot be accessed from Triton \(cpu tensor\?\)"
    ):
        scale[(1,)](torch.empty(4), Elsewhere(), 4, 2.0, BLOCK=16)


def test_debug_follows_launch_decorator_and_knob():
    @triton.jit
    def check(out, OK: tl.constexpr):
        tl.device_assert(OK, "it broke")
        tl.store(out, 1.0)

    out = torch.zeros(1)
    check[(1,)](out, False)
    check[(1,)](out, False, debug=False)
    with pytest.raises(RuntimeError, match="device-side assert"):
        check[(1,)](out, False, debug=True)
    triton.knobs.runtime.debug = True
    try:
        with pytest.raises(RuntimeError, match="it broke"):
            check[(1,)](out, False)
    finally:
        triton.knobs.runtime.debug = False
    check[(1,)](out, False)
    with pytest.raises(RuntimeError):
        triton.jit(debug=True)(check.fn)[(1,)](out, False)
    triton.jit(debug=True)(check.fn)[(1,)](out, False, debug=False)


def test_interpreted_kernels_run_on_the_reference():
    triton.knobs.runtime.interpret = True
    kernel = triton.jit(scale.fn)
    assert type(kernel).__name__ == "InterpretedFunction"
    assert run_scale(77, kernel) is None
    assert kernel.warmup(torch.float32, torch.float32, 3, 1.0, BLOCK=16, grid=(1,)) is None
    assert {entry[3].backend_name for entry in kernel.device_caches.values()} == {"reference"}


def test_failures_of_interpreted_kernels_are_wrapped():
    triton.knobs.runtime.interpret = True
    with pytest.raises(triton.InterpreterError, match="no_such_name is not defined") as caught:
        triton.jit(broken.fn)[(1,)](torch.empty(1))
    assert isinstance(caught.value.__cause__, triton.CompilationError)


def test_pre_run_hooks_see_the_arguments():
    kernel = triton.jit(fill.fn)
    seen = []
    kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append((args, kwargs)))
    out = torch.zeros(1)
    kernel[(1,)](out, value=3)
    assert seen == [((out,), {"value": 3})] and out.item() == 3


def test_many_threads_compile_a_kernel_once(compilations):
    fill.clear_cache()
    outs = [torch.zeros(1) for _ in range(8)]
    side_by_side(8, lambda number: fill[(1,)](outs[number], 11))
    assert len(compilations) == 1 and all(out.item() == 11 for out in outs)


def test_kernels_can_be_pickled_and_copied():
    import copy
    import pickle

    assert pickle.loads(pickle.dumps(scale)) is scale
    local = triton.jit(fill.fn)
    local.__qualname__ = "elsewhere"
    restored = copy.deepcopy(local)
    assert (
        restored.src == local.src
        and restored.cache_key == local.cache_key
        and restored.arg_names == ["out", "value"]
    )


@pytest.mark.parametrize("warps", [3, 6, 12])
def test_the_number_of_warps_is_a_power_of_two(warps):
    out = torch.zeros(1)
    kernel = triton.jit(fill.fn)
    with pytest.raises(AssertionError, match=f"num_warps must be a power of 2, not {warps}"):
        kernel[(1,)](out, 11, num_warps=warps)
    kernel[(1,)](out, 11, num_warps=8)
    assert out.item() == 11
