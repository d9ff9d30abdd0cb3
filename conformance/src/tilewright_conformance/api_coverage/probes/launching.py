"""Launching kernels, and the functions of the program that launches them."""

# Kernels are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors
# ruff: noqa: N803

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tilewright_conformance.api_coverage.machines import Machine
from tilewright_conformance.api_coverage.probe import probe


@tw.jit
def plain_kernel(x, out, n, BLOCK: tl.constexpr = 32):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n, other=0), mask=at < n)


def compiled_kernel() -> Any:
    """The kernel above, launched on the reference, and compiled where its caches were cleared."""
    x, out = np.zeros(32, np.float32), np.zeros(32, np.float32)
    with tw.backend("reference"):
        return plain_kernel[(1,)](x, out, 32)


@probe(
    "tilewright.jit",
    "tilewright.JITFunction",
    "tilewright.KernelInterface",
    "JITFunction.__getitem__",
    "JITFunction.run",
)
def launches(on: Machine, rng: Any) -> None:
    x, out = rng.standard_normal(100, dtype=np.float32), np.zeros(100, np.float32)
    on(plain_kernel)[(4,)](x, out, 100)
    np.testing.assert_array_equal(out, 2 * x)
    out[:] = 0
    on(plain_kernel)[lambda meta: (-(-meta["n"] // meta["BLOCK"]),)](x, n=100, out=out, BLOCK=16)
    np.testing.assert_array_equal(out, 2 * x)
    on(plain_kernel)[(0,)](x, np.zeros(1, np.float32), 100)  # launches nothing
    assert isinstance(plain_kernel, tw.JITFunction) and isinstance(plain_kernel, tw.KernelInterface)
    with tw.backend("reference"):
        plain_kernel.run(x, out, 100, grid=(4,))
    try:
        plain_kernel(x, out, 100)
    except RuntimeError as error:
        assert "outside of the scope of a kernel" in str(error) or "Cannot call" in str(error)
    else:
        raise AssertionError("a kernel was called without a grid")


@probe(
    "tilewright.backend",
    "tilewright.CompiledKernel",
    *(
        f"CompiledKernel.{name}"
        for name in ["asm", "metadata", "name", "src", "kernel", "metadata_group"]
    ),
    host=True,
)
def compiled(on: Machine, rng: Any) -> None:
    kernel = compiled_kernel()
    assert isinstance(kernel, tw.CompiledKernel)
    assert kernel.name == kernel.metadata.name == "plain_kernel"
    assert (
        "def plain_kernel" in kernel.asm["source"]
        and kernel.src is not None
        and isinstance(kernel.kernel, bytes)
    )
    assert all(key.startswith("plain_kernel.") for key in kernel.metadata_group)
    try:
        kernel.asm["no such stage"]
    except KeyError as error:
        assert "Unknown key" in str(error)
    else:
        raise AssertionError("a stage that does not exist was given")


_RUNTIME = (
    "packed_metadata hash function module n_regs n_spills n_max_threads run launch_metadata "
    "_init_handles __getitem__"
)


@probe(*(f"CompiledKernel.{name}" for name in _RUNTIME.split()), host=True)
def compiled_at_run_time(on: Machine, rng: Any) -> None:
    kernel = compiled_kernel()
    x, out = rng.standard_normal(32, dtype=np.float32), np.zeros(32, np.float32)
    kernel[(1,)](x, out, 32, 32)
    np.testing.assert_array_equal(out, 2 * x)
    kernel._init_handles()
    assert (
        kernel.module is not None
        and kernel.function is not None
        and callable(kernel.run)
        and kernel.hash
    )
    assert len(kernel.packed_metadata) >= 3
    assert kernel.n_regs >= 0 and kernel.n_spills >= 0 and kernel.n_max_threads >= 0
    entered: list[Any] = []
    tw.hooks.launch_enter.add(entered.append)
    try:
        kernel[(1,)](x, out, 32, 32)
        assert entered[0].get()["name"] == "plain_kernel"
        assert kernel.launch_metadata((1, 1, 1), None, x, out, 32, 32) is not None
    finally:
        tw.hooks.launch_enter.remove(entered.append)


_ATTRIBUTES = """device_caches cache_key hash src raw_src fn params arg_names constexprs signature
module used_global_vals _fn_name starting_line_number repr do_not_specialize
do_not_specialize_on_alignment"""


@probe(*(f"JITFunction.{name}" for name in _ATTRIBUTES.split()), host=True)
def attributes_of_kernels(on: Machine, rng: Any) -> None:
    compiled_kernel()
    kernel = plain_kernel
    assert kernel.arg_names == ["x", "out", "n", "BLOCK"] and kernel.constexprs == [3]
    block = kernel.params[3]
    assert (block.name, block.num, block.is_constexpr, block.has_default, block.default) == (
        "BLOCK",
        3,
        True,
        True,
        32,
    )
    assert (
        kernel.src.startswith("def plain_kernel")
        and kernel.raw_src[0].startswith("@tw.jit")
        and kernel.fn.__name__ == "plain_kernel"
    )
    assert (
        kernel.starting_line_number == kernel.fn.__code__.co_firstlineno
        and kernel.module == __name__
    )
    assert (
        list(kernel.signature.parameters) == kernel.arg_names and "plain_kernel" in kernel._fn_name
    )
    assert (
        len(kernel.cache_key) == 64
        and kernel.hash == kernel.cache_key
        and kernel.used_global_vals is not None
    )
    assert len(kernel.device_caches) >= 1 and callable(kernel.repr)
    careful = tw.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=["x"])(kernel.fn)
    assert [p.name for p in careful.params if p.do_not_specialize] == ["n"]
    assert [p.name for p in careful.params if p.do_not_specialize_on_alignment] == ["x"]
    assert tuple(careful.do_not_specialize) == ("n",) and tuple(
        careful.do_not_specialize_on_alignment
    ) == ("x",)


@tw.jit
def counted_kernel(x, n):
    tl.store(x, n)


@probe(
    "JITFunction.warmup",
    "JITFunction.add_pre_run_hook",
    "JITFunction._unsafe_update_src",
    "tilewright.MockTensor",
    host=True,
)
def preparing_kernels(on: Machine, rng: Any) -> None:
    kernel = tw.jit(counted_kernel.fn)
    with tw.backend("reference"):
        first = kernel.warmup(tw.MockTensor(tl.int32), 7, grid=(1,))
        assert first.metadata.name == "counted_kernel"
        assert tw.MockTensor(tl.int32).data_ptr() == 0 and tw.MockTensor(
            tl.int32, (3, 4)
        ).shape == (3, 4)
        seen: list[Any] = []
        kernel.add_pre_run_hook(lambda *args, **keywords: seen.append(args))
        x = np.zeros(1, np.int32)
        for n in (1, 2, 4, 8, 16, 32):
            kernel[(1,)](x, n)
        assert x[0] == 32 and [args[1] for args in seen] == [1, 2, 4, 8, 16, 32]
        kernels = next(iter(kernel.device_caches.values()))[0]
        assert len(kernels) == 3  # 1; a multiple of 16; neither
        before = kernel.cache_key
        kernel._unsafe_update_src(
            kernel.src.replace("n)", "n + 1)").replace("x, n + 1):", "x, n):")
        )
        assert kernel.cache_key != before
        kernel[(1,)](x, 7)
    assert x[0] == 8


@probe("tilewright.cdiv", "tilewright.next_power_of_2", host=True)
def integers(on: Machine, rng: Any) -> None:
    for n in rng.integers(1, 10000, 50).tolist():
        assert tw.cdiv(n, 7) == -(-n // 7)
        assert tw.next_power_of_2(n) == 1 << (n - 1).bit_length()
    assert tw.next_power_of_2(0) == 0


@tw.jit
def adds_one(x, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) + 1)


@probe("tilewright.explain", host=True)
def explanations(on: Machine, rng: Any) -> None:
    found = tw.explain(adds_one, "*fp32", BLOCK=64, backend="cpu")
    assert found.kernel == "adds_one" and "Tile IR" in found.panes


@probe(
    "tilewright.autotune",
    "tilewright.Config",
    "tilewright.Autotuner",
    "tilewright.AutotunerError",
    host=True,
)
def autotune(on: Machine, rng: Any) -> None:
    measured: list[int] = []

    def second_is_faster(call: Any, quantiles: Any) -> list[float]:
        call()
        measured.append(1)
        return [3.0 - len(measured)] * 3

    configs = [tw.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((16, 2), (64, 4))]
    assert (
        configs[0] != configs[1]
        and configs[0].all_kwargs()["BLOCK"] == 16
        and "BLOCK: 16" in str(configs[0])
    )
    tuner = tw.autotune(
        configs, key=[], restore_value=["x"], do_bench=second_is_faster, cache_results=False
    )(adds_one)
    assert isinstance(tuner, tw.Autotuner)
    x = rng.integers(0, 99, 64)
    expected = x + 1
    with tw.backend("reference"):
        tuner[lambda meta: (64 // meta["BLOCK"],)](x)
    np.testing.assert_array_equal(x, expected)
    assert tuner.best_config == configs[1] and len(measured) == 2
    with tw.backend("reference"):
        tuner[lambda meta: (64 // meta["BLOCK"],)](x)
    assert len(measured) == 2  # the answer is kept
    try:
        tw.autotune(
            configs, key=[], prune_configs_by={"early_config_prune": lambda configs, args, **_: []}
        )(adds_one)[(1,)](x)
    except tw.AutotunerError:
        return
    raise AssertionError("no configuration is left, and no error was raised")


@probe("tilewright.heuristics")
def heuristics(on: Machine, rng: Any) -> None:
    x = rng.integers(0, 99, 64)
    expected = x + 1
    kernel = tw.heuristics(
        {
            "BLOCK": lambda args: tw.next_power_of_2(
                args["x"].size if hasattr(args["x"], "size") else 64
            )
        }
    )(adds_one)
    with tw.backend("reference"):
        kernel[(1,)](x)
    np.testing.assert_array_equal(x, expected)


@probe("tilewright.set_allocator", host=True)
def set_allocator(on: Machine, rng: Any) -> None:
    from tilewright.runtime.devices.allocator import allocate

    asked: list[Any] = []
    tw.set_allocator(lambda size, alignment, stream: asked.append((size, alignment, stream)))
    try:
        # a backend of another package calls this at a launch that needs scratch memory
        allocate(64, 16, None)
        assert asked == [(64, 16, None)]
        tw.set_allocator(None)
        try:
            allocate(64, 16)
        except RuntimeError as error:
            assert "no allocator was set" in str(error)
        else:
            raise AssertionError("memory came from nowhere")
    finally:
        tw.set_allocator(None)


@probe("tilewright.reinterpret", "tilewright.TensorWrapper")
def reinterpret(on: Machine, rng: Any) -> None:
    x = rng.standard_normal(32, dtype=np.float32)
    bits, out = tw.reinterpret(x, tl.int32), np.zeros(32, np.int32)
    assert (
        isinstance(bits, tw.TensorWrapper)
        and bits.base is x
        and bits.dtype == tl.int32
        and bits.shape == (32,)
    )
    assert (
        tw.reinterpret(bits, tl.float32) is x
        and bits.element_size() == 4
        and bits.data_ptr() == x.ctypes.data
    )
    on(plain_kernel)[(1,)](bits, out, 32)
    np.testing.assert_array_equal(out, 2 * x.view(np.int32))


_ERRORS = (
    "TilewrightError CompilationError LoweringError LaunchError KernelError OutOfResources "
    "BackendError"
)


@probe(*(f"tilewright.{name}" for name in _ERRORS.split()), host=True)
def errors(on: Machine, rng: Any) -> None:
    for name in _ERRORS.split():
        assert issubclass(getattr(tw, name), tw.TilewrightError)
    for launch, kind in (
        (lambda: plain_kernel[(1,)]({}, np.zeros(1), 1), tw.LaunchError),
        (lambda: plain_kernel[(1,)](np.zeros(1), np.zeros(1), 1, BLOCK=3), tw.CompilationError),
        (lambda: tw.backend("no such backend"), tw.BackendError),
    ):
        with tw.backend("reference"):
            try:
                launch()
            except kind as error:
                assert str(error)
            else:
                raise AssertionError(f"no {kind.__name__} was raised")
    assert "shared memory" in str(tw.OutOfResources(300, 200, "shared memory"))


@probe("tilewright.hooks", host=True)
def hooks(on: Machine, rng: Any) -> None:
    seen: list[str] = []
    enter, leave = (lambda metadata: seen.append("enter")), (lambda metadata: seen.append("exit"))
    tw.hooks.launch_enter.add(enter)
    tw.hooks.launch_exit.add(leave)
    try:
        with tw.backend("reference"):
            adds_one[(1,)](np.zeros(16), BLOCK=16)
    finally:
        tw.hooks.launch_enter.remove(enter)
        tw.hooks.launch_exit.remove(leave)
    assert seen == ["enter", "exit"]


@probe("tilewright.testing.do_bench", "tilewright.testing.assert_close", host=True)
def measuring(on: Machine, rng: Any) -> None:
    import time

    from tilewright.testing import assert_close, do_bench

    assert do_bench(lambda: time.sleep(2e-3), warmup=1, rep=10) >= 1.9  # milliseconds
    assert len(do_bench(lambda: None, warmup=1, rep=2, quantiles=[0.2, 0.5, 0.8])) == 3
    x = rng.standard_normal(9)
    assert_close(x, x + 1e-4)
    try:
        assert_close(x, x + 1)
    except AssertionError:
        return
    raise AssertionError("numbers that are far apart were called close")


@probe(
    "tilewright.testing.Benchmark",
    "tilewright.testing.Mark",
    "tilewright.testing.perf_report",
    host=True,
)
def reports(on: Machine, rng: Any) -> None:
    from tilewright.testing import Benchmark, Mark, perf_report

    benchmark = Benchmark(
        x_names=["n"],
        x_vals=[1, 2],
        line_arg="way",
        line_vals=["a", "b"],
        line_names=["A", "B"],
        plot_name="probe",
        args={},
    )
    mark = perf_report(benchmark)(lambda n, way: float(n) * (1 if way == "a" else 2))
    assert isinstance(mark, Mark) and mark.fn(3, "b") == 6.0 and benchmark.x_vals == [1, 2]


_MODULES = "math core standard random target_info extra semantic"


@probe(*(f"tl.{name}" for name in _MODULES.split()), host=True)
def modules(on: Machine, rng: Any) -> None:
    assert (
        tl.math.exp is tl.exp
        and tl.core.load is tl.load
        and tl.standard.sum is tl.sum
        and tl.random.rand is tl.rand
    )
    assert "libdevice" in dir(tl.extra)
    assert type(tl.target_info.is_cuda()) is bool and tl.semantic.Semantic


@probe("tl.extra.cuda.libdevice", host=True, languages=("cuda",))
def library_of_cuda(on: Machine, rng: Any) -> None:
    assert tl.extra.cuda.libdevice is tl.extra.libdevice


@probe("tl.extra.hip.libdevice", host=True, languages=("hip",))
def library_of_hip(on: Machine, rng: Any) -> None:
    assert tl.extra.hip.libdevice is tl.extra.libdevice


_CORE = (
    "_unwrap_if_constexpr check_bit_width is_negative_zero base_type base_value "
    "tensor_descriptor_base tensor_descriptor_base_type slice_type"
)


@probe(
    *(f"tl.core.{name}" for name in _CORE.split()),
    "tl.slice",
    "tl.core.binary_op_type_legalization",
    host=True,
)
def insides(on: Machine, rng: Any) -> None:
    assert tl.core._unwrap_if_constexpr(tl.constexpr(3)) == 3 and tl.core._unwrap_if_constexpr(
        [tl.constexpr(1), 2]
    ) == [1, 2]
    assert tl.core.is_negative_zero(-0.0) and not tl.core.is_negative_zero(0.0)
    assert issubclass(tl.dtype, tl.core.base_type) and issubclass(tl.tensor, tl.core.base_value)
    assert issubclass(tl.tensor_descriptor, tl.core.tensor_descriptor_base)
    assert issubclass(tl.tensor_descriptor_type, tl.core.tensor_descriptor_base_type)
    piece = tl.slice(1, 5, 2)
    assert (piece.start, piece.stop, piece.step) == (1, 5, 2) and isinstance(
        piece.type, tl.core.slice_type
    )
    assert callable(tl.core.binary_op_type_legalization) and callable(tl.core.check_bit_width)


@tw.jit
def library_insides(x, out, N: tl.constexpr):
    value = tl.load(x + tl.arange(0, N))
    bits: tl.constexpr = tl.standard._log2(N)
    tl.store(out, bits)
    _high, where_high = tl.reduce((value, tl.arange(0, N)), 0, greater)
    tl.store(out + 1, where_high)
    _low, where_low = tl.reduce((value, tl.arange(0, N)), 0, smaller)
    tl.store(out + 2, where_low)
    tl.store(out + 4 + tl.arange(0, N), tl.standard.sort_impl(value))


@tw.jit
def greater(a, i, b, j):
    return tl.standard._argmax_combine(a, i, b, j, True)


@tw.jit
def smaller(a, i, b, j):
    return tl.standard._argmin_combine(a, i, b, j, True)


@probe(
    "tl.standard._log2",
    "tl.standard._argmax_combine",
    "tl.standard._argmin_combine",
    "tl.standard.sort_impl",
)
def insides_of_the_library(on: Machine, rng: Any) -> None:
    x, out = rng.integers(0, 9, 16).astype(np.int32), np.zeros(20, np.int32)
    on(library_insides)[(1,)](x, out, N=16)
    np.testing.assert_array_equal(out[:3], [4, x.argmax(), x.argmin()])
    np.testing.assert_array_equal(out[4:], np.sort(x))
