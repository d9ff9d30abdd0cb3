"""``triton.compile``: sources, targets, options, errors; the backends and drivers it knows them
by."""

import dataclasses
import os
import pickle
import re
import warnings

import numpy as np
import pytest

pytest.importorskip("tilewright_cpu")

import tilewright.language as tl
from tilewright.compat import triton
from tilewright.compat.triton.backends.compiler import GPUTarget
from tilewright.compat.triton.backends.driver import active_backend_name
from tilewright.compat.triton.backends.options import FP8_BY_KIND
from tilewright.compat.triton.backends.targets import place_of
from tilewright.compat.triton.compiler import ASTSource, make_backend
from tilewright.compat.triton.compiler.choice import backend_of
from tilewright.compat.triton.compiler.options import language_options
from tilewright.compat.triton.outside import OutsideError
from tilewright.compat.triton.runtime.driver import driver
from tilewright.errors import BackendError, RefusedError
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import Capabilities, CodeObject, Manifest, Target
from tilewright.plugins.registry import registry
from tilewright.runtime.devices import device_registry
from tilewright.runtime.launch.launch_policy import LaunchPolicy


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) + tl.load(y + i, i < n), i < n)


@triton.jit
def product(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(out + i, tl.dot(tl.load(x + i), tl.load(x + i)))


SIGNATURE = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
HOPPER = GPUTarget("cuda", 90, 32)


def test_constants_may_be_named_or_placed_and_defaults_hold():
    by_name = triton.compile(ASTSource(add, SIGNATURE, constexprs={"BLOCK": 64}))
    by_path = triton.compile(ASTSource(add, SIGNATURE, constexprs={(4,): 64}))
    assert by_name.hash == by_path.hash
    other = triton.compile(
        ASTSource(
            add,
            SIGNATURE,
            constexprs={"BLOCK": 64},
            attrs={(0,): [["tt.divisibility", 16], ["tt.pointer_range", 32]]},
        )
    )
    assert other.hash != by_name.hash and other.src.attrs == {(0,): [["tt.divisibility", 16]]}
    with pytest.raises(TypeError, match="Signature keys must be string"):
        ASTSource(add, {0: "*fp32"})


def test_what_has_a_value_is_a_constant_whatever_its_type_in_the_signature():
    given = {"BLOCK": 64, "n": 50}
    facts = {(0,): [["tt.divisibility", 16]], (3,): [["tt.divisibility", 2]]}
    source = ASTSource(add, {**SIGNATURE, "BLOCK": "i32"}, given, facts)
    assert source.signature == {**SIGNATURE, "n": "constexpr"}
    kernel = triton.compile(source)
    x, y, out = np.arange(64, dtype=np.float32), np.ones(64, np.float32), np.zeros(64, np.float32)
    kernel[(1, 1, 1)](x, y, out, 50, 64)
    assert np.array_equal(out, np.where(np.arange(64) < 50, x + y, 0))
    plain = ASTSource(add, {**SIGNATURE, "n": "constexpr"}, given, {(0,): facts[(0,)]})
    assert triton.compile(plain).asm["ttir"] == kernel.asm["ttir"]


def test_a_kernel_compiled_from_a_source_runs():
    torch = pytest.importorskip("torch")
    kernel = triton.compile(ASTSource(add, SIGNATURE, constexprs={"BLOCK": 64}))
    x, y, out = torch.randn(64), torch.randn(64), torch.zeros(64)
    kernel[(1, 1, 1)](x, y, out, 50, 64)
    assert torch.equal(out[:50], (x + y)[:50]) and not out[50:].any()


class Somebody:
    """Somebody's backend for CUDA devices, of which none is here."""

    __name__ = "somebody"

    def __init__(self, priority):
        self.priority = priority

    @hookimpl
    def tilewright_backend(self):
        capabilities = Capabilities(
            frozenset({"i1", "i32", "i64", "f32", "f16"}),
            dot={"f16": ("f32",)},
            dot_precisions=("ieee", "tf32"),
        )
        return Manifest(
            "somebody",
            "1",
            "somebody's",
            ("cuda",),
            ("sm_90", "sm_33"),
            capabilities,
            priority=self.priority,
        )

    @hookimpl
    def tilewright_devices(self):
        return []

    @hookimpl
    def tilewright_target(self, device):
        return Target("somebody", device.properties["arch"], warp_size=32, kind="cuda")

    @hookimpl
    def tilewright_lower(self, module, target):
        return CodeObject(
            module.kernel.name,
            target.arch.encode(),
            {"tileir": str(module), "ptx": f".target {target.arch} of somebody"},
            {"shared": 0},
        )


@pytest.fixture
def somebody():
    """``somebody(priority)`` registers somebody's CUDA backend."""
    yield lambda priority: registry().register(Somebody(priority), "somebody")
    registry().unregister("somebody")
    driver.reset_active()


@triton.jit
def asks(out):
    tl.static_assert(tl.target_info.is_cuda() and tl.target_info.current_target().warp_size == 32)
    tl.store(out, tl.target_info.cuda_capability_geq(9))


@pytest.mark.parametrize(
    ("priority", "arch", "name"),
    [(900, 90, "somebody"), (1, 90, "nvidia"), (1, 33, "somebody"), (900, 80, "nvidia")],
)
def test_of_two_backends_for_a_kind_the_one_with_code_for_the_architecture_compiles(
    somebody, priority, arch, name
):
    pytest.importorskip("tilewright_nvidia")
    somebody(priority)
    target = GPUTarget("cuda", arch, 32)
    assert make_backend(target).backend_name == name
    kernel = triton.compile(ASTSource(asks, {"out": "*i32"}), target=target)
    assert kernel.metadata.target == target
    assert kernel.asm["ptx"].endswith("of somebody") == (name == "somebody")
    assert (
        "constant 1 " in str(kernel.asm["ttir"]) or "constant true" in str(kernel.asm["ttir"])
    ) == (arch >= 90)


def test_options_follow_the_kind_of_device(somebody):
    somebody(900)
    options = make_backend(GPUTarget("cuda", 90, 32)).parse_options({})
    assert (
        options.backend_name,
        options.arch,
        options.warp_size,
        options.default_dot_input_precision,
    ) == ("cuda", "sm_90", 32, "tf32")
    assert (
        options.supported_fp8_dtypes == FP8_BY_KIND["cuda"] and options.enable_reflect_ftz is True
    )
    assert (
        make_backend(GPUTarget("cuda", 33, 32)).parse_options({}).default_dot_input_precision
        == "ieee"
    )
    own = device_registry.named_target(registry().get("somebody"), "sm_90")
    chosen = language_options(own, {"default_dot_input_precision": "tf32"})
    assert chosen["default_dot_precision"] == "tf32" and dict(chosen["min_dot_size"])[16] == (
        1,
        1,
        16,
    )


def test_the_environment_names_a_backend_or_a_kind(somebody, monkeypatch):
    somebody(900)
    for text, name in (
        ("somebody", "somebody"),
        ("cuda", "somebody"),
        ("cpu", "cpu"),
        ("no such", "no such"),
    ):
        monkeypatch.setenv("TRITON_DEFAULT_BACKEND", text)
        assert active_backend_name() == name


def test_no_backend_for_a_kind(somebody):
    with pytest.raises(RuntimeError, match=r"0 compatible backends for target \(tricorder\)"):
        make_backend(GPUTarget("tricorder", 1, 1))
    with pytest.raises(
        BackendError,
        match=r"no installed backend compiles for devices of kind 'tricorder'; there are .*cpu",
    ):
        backend_of(GPUTarget("tricorder", 1, 1))


def test_targets_need_no_device():
    pytest.importorskip("tilewright_nvidia")
    kernel = triton.compile(
        ASTSource(add, SIGNATURE, constexprs={"BLOCK": 64}), target=HOPPER, options={"num_warps": 8}
    )
    assert kernel.metadata.target == HOPPER and kernel.metadata.num_warps == 8
    assert (
        ".target sm_90" in kernel.asm["ptx"] and "define ptx_kernel void @add" in kernel.asm["llir"]
    )
    assert list(kernel.asm)[:2] == ["source", "ttir"]


def test_products_are_tf32_where_the_target_has_it():
    pytest.importorskip("tilewright_nvidia")
    source = ASTSource(
        product, {"x": "*fp32", "out": "*fp32", "BLOCK": "constexpr"}, constexprs={"BLOCK": 32}
    )
    assert ".tf32" in triton.compile(source, target=HOPPER).asm["ptx"]
    assert (
        ".tf32"
        not in triton.compile(
            source, target=HOPPER, options={"default_dot_input_precision": "ieee"}
        ).asm["ptx"]
    )
    triton.knobs.language.fp32_default = "ieee"
    assert ".tf32" not in triton.compile(source, target=HOPPER).asm["ptx"]
    triton.knobs.language.fp32_default = "fp3"
    with pytest.raises(ValueError, match="TRITON_F32_DEFAULT"):
        triton.compile(source, target=HOPPER)


@triton.jit
def filled(KIND: tl.constexpr, SIZE: tl.constexpr, PRODUCT: tl.constexpr):
    block = tl.full((SIZE, SIZE), 0.0, KIND)
    if PRODUCT:
        tl.dot(block, block)


def filled_source(kind, size=64, product=False):
    constants = {"KIND": kind, "SIZE": size, "PRODUCT": product}
    return ASTSource(filled, dict.fromkeys(constants, "constexpr"), constexprs=constants)


@pytest.mark.parametrize("kind", [tl.float8e4b8, tl.float8e5b16])
def test_a_cuda_target_refuses_the_fp8_kinds_that_triton_lacks_there(kind):
    pytest.importorskip("tilewright_nvidia")
    triton.compile(filled_source(kind))
    with pytest.raises(
        triton.CompilationError, match="not supported in this architecture"
    ) as found:
        triton.compile(filled_source(kind), target=HOPPER)
    assert isinstance(found.value.__cause__, ValueError)
    triton.compile(
        filled_source(kind), target=HOPPER, options={"supported_fp8_dtypes": ("fp8e5", kind.name)}
    )


@triton.jit
def filled_with_bits(KIND: tl.constexpr, SIZE: tl.constexpr, PRODUCT: tl.constexpr):
    tl.full((SIZE,), 0, tl.uint8).to(KIND, bitcast=True)


@pytest.mark.parametrize("kernel", [filled, filled_with_bits])
@pytest.mark.parametrize("kind", [tl.float8e4b8, tl.float8e5b16])
def test_a_launch_on_a_cuda_target_refuses_them_too(kind, kernel, monkeypatch):
    pytest.importorskip("tilewright_nvidia")
    kernel.warmup(kind, 64, False, grid=(1,))
    nvidia = registry().get("nvidia")
    target, select = place_of(HOPPER, nvidia)[0], LaunchPolicy.select
    monkeypatch.setattr(
        LaunchPolicy, "select", lambda *args: select(*args)._replace(backend=nvidia, target=target)
    )
    with pytest.raises(triton.CompilationError, match="not supported in this architecture"):
        kernel.warmup(kind, 32, False, grid=(1,))


@pytest.mark.parametrize(
    ("kind", "arch"),
    [(tl.float8e4b15, 90), (tl.float8e4b15, 80), (tl.float8e4nv, 90), (tl.float8e5, 90)],
)
def test_cuda_targets_warn_of_slow_operands(kind, arch):
    pytest.importorskip("tilewright_nvidia")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        triton.compile(filled_source(kind, product=True), target=GPUTarget("cuda", arch, 32))
    slow = [str(one.message) for one in seen if "deprecated on Hopper" in str(one.message)]
    assert bool(slow) == (kind is tl.float8e4b15 and arch == 90)


@pytest.mark.parametrize(
    ("kind", "least"),
    [(tl.int8, 32), (tl.float8e5, 32), (tl.float16, 16), (tl.float32, 8), (tl.float64, 4)],
)
def test_products_on_a_cuda_target_have_tritons_least_depth(kind, least):
    pytest.importorskip("tilewright_nvidia")
    triton.compile(filled_source(kind, least // 2, product=True))
    with pytest.raises(triton.CompilationError) as found:
        triton.compile(filled_source(kind, least // 2, product=True), target=HOPPER)
    assert f"Input shapes should have M >= 1, N >= 1 and K >= {least}" in str(found.value.__cause__)
    triton.compile(filled_source(kind, least, product=True), target=HOPPER)
    size = make_backend(HOPPER).get_codegen_implementation(None)["min_dot_size"]
    assert size(tl.block_type(kind, [16, 16]), tl.block_type(kind, [16, 16])) == (1, 1, least)


def test_products_on_the_cpu_are_exact():
    source = ASTSource(
        product, {"x": "*fp32", "out": "*fp32", "BLOCK": "constexpr"}, constexprs={"BLOCK": 16}
    )
    assert triton.compile(source).metadata.default_dot_input_precision == "ieee"


def test_tile_ir_files_are_compiled_and_mlir_is_refused(tmp_path):
    torch = pytest.importorskip("torch")
    kernel = triton.compile(ASTSource(add, SIGNATURE, constexprs={"BLOCK": 64}))
    path = tmp_path / "add.ttir"
    path.write_text(kernel.asm["ttir"])
    again = triton.compile(str(path))
    x, y, out = torch.randn(64), torch.randn(64), torch.zeros(64)
    again[(1, 1, 1)](x, y, out, 64)
    assert torch.equal(out, x + y)
    path.write_text("module {\n  tt.func public @add() {\n    tt.return\n  }\n}\n")
    with pytest.raises(OutsideError, match="no Tile IR"):
        triton.compile(str(path))


def test_dumped_kernels_can_override_others(tmp_path):
    torch = pytest.importorskip("torch")
    triton.knobs.cache.dump_dir = str(tmp_path / "dump")
    triton.knobs.cache.override_dir = str(tmp_path / "dump")
    triton.knobs.compilation.dump_ir = True
    source = ASTSource(add, SIGNATURE, constexprs={"BLOCK": 64})
    triton.compile(source)
    (dumped,) = (tmp_path / "dump").rglob("add.ttir")
    assert (dumped.parent / "add.llir").exists()
    dumped.write_text(dumped.read_text().replace("addf", "subf").replace(" add ", " sub "))
    triton.knobs.compilation.override = True
    x, y, out = torch.randn(64), torch.randn(64), torch.zeros(64)
    triton.compile(source)[(1, 1, 1)](x, y, out, 64, 64)
    assert torch.equal(out, x - y)


def test_unknown_targets_are_refused():
    with pytest.raises(RuntimeError, match=r"0 compatible backends for target \(abacus\)"):
        make_backend(GPUTarget("abacus", 1, 1))
    with pytest.raises(AssertionError, match="GPUTarget"):
        triton.compile(ASTSource(add, SIGNATURE, constexprs={"BLOCK": 64}), target="cuda")


def test_options_are_parsed_with_tritons_defaults():
    pytest.importorskip("tilewright_nvidia")
    options = make_backend(HOPPER).parse_options({"num_warps": 2, "extern_libs": {"a": "b"}})
    assert (options.num_warps, options.num_stages, options.num_ctas) == (2, 3, 1)
    assert options.default_dot_input_precision == "tf32" and options.extern_libs == (("a", "b"),)
    assert options.hash() != make_backend(HOPPER).parse_options({}).hash()
    assert (
        make_backend(GPUTarget("cuda", 75, 32)).parse_options({}).default_dot_input_precision
        == "ieee"
    )


@triton.jit
def calls_undefined():
    # one line further down
    missing()  # noqa: F821


@triton.jit
def calls_inner():
    calls_undefined()


@triton.jit
def bad_range():
    tl.arange(2, 7)


@triton.jit
def bad_assertion(N: tl.constexpr):
    tl.static_assert(N == 3, "N is three")


def failure(kernel, **constants):
    with pytest.raises(triton.CompilationError) as caught:
        triton.compile(
            ASTSource(kernel, dict.fromkeys(constants, "constexpr"), constexprs=constants)
        )
    return caught.value


def test_errors_show_the_line_of_the_function_and_chain_the_callees():
    error = failure(calls_inner)
    assert "at 2:4:" in str(error) and "calls_undefined()" in error.src and error.node.lineno == 2
    assert (
        "at 3:4:" in str(error.__cause__)
        and "missing is not defined" in error.__cause__.error_message
    )


def test_errors_of_builtins_are_their_cause():
    error = failure(bad_range)
    assert "at 2:4:" in str(error)
    assert (
        isinstance(error.__cause__, ValueError)
        and str(error.__cause__) == "arange's range must be a power of 2"
    )


def test_failed_static_assertions_have_no_cause_and_can_be_pickled():
    error = failure(bad_assertion, N=4)
    assert (
        isinstance(error, triton.compiler.errors.CompileTimeAssertionFailure)
        and error.__cause__ is None
    )
    assert "N is three" in str(pickle.loads(pickle.dumps(error)))
    assert isinstance(error, triton.TritonError)


def test_drivers_describe_the_machine():
    driver = triton.runtime.driver
    target = driver.active.get_current_target()
    facts = driver.active.utils.get_device_properties(driver.active.get_current_device())
    assert facts.keys() == {
        "max_shared_mem",
        "multiprocessor_count",
        "warpSize",
        "max_num_regs",
        "sm_clock_rate",
        "mem_clock_rate",
        "mem_bus_width",
    }
    assert facts["warpSize"] == target.warp_size and facts["multiprocessor_count"] > 0
    driver.set_active_to_cpu()
    assert (
        driver.active.get_current_target().backend == "cpu"
        and driver.active.get_current_stream(0) == 0
    )
    assert driver.active.map_python_to_cpp_type("i32") == "int32_t"
    kernel = triton.compile(ASTSource(add, SIGNATURE, constexprs={"BLOCK": 64}))
    module, function, *facts = driver.active.utils.load_binary(kernel.name, kernel.kernel, 0, 0)
    assert module is not None and function is not None and len(facts) == 3
    driver.reset_active()


def test_drivers_name_the_device_as_pytorch_does():
    torch = pytest.importorskip("torch")
    driver = triton.runtime.driver
    driver.set_active_to_cpu()
    assert driver.active.get_active_torch_device() == torch.device("cpu")
    driver.reset_active()


@pytest.mark.parametrize(
    ("variable", "value", "backend"),
    [
        ("TRITON_CPU_BACKEND", "1", "cpu"),
        ("TRITON_DEFAULT_BACKEND", "cpu", "cpu"),
        ("TRITON_DEFAULT_BACKEND", "cuda", None),
    ],
)
def test_the_environment_names_the_default_driver(monkeypatch, variable, value, backend):
    from tilewright.compat.triton.backends.driver import active_backend_name

    monkeypatch.setenv(variable, value)
    assert active_backend_name() == (backend or "nvidia")


def test_a_kernel_compiled_where_there_was_no_device_is_launched_where_there_is_one():
    kernel = triton.compile(ASTSource(add, SIGNATURE, constexprs={"BLOCK": 64}))
    kernel.device = None
    kernel = pickle.loads(pickle.dumps(kernel))
    x, y = np.arange(64, dtype=np.float32), np.full(64, np.nan, np.float32)
    kernel[1, 1, 1](x, x, y, 64, 64)
    assert np.array_equal(y, 2 * x)


def test_no_active_driver_is_an_error(monkeypatch):
    monkeypatch.setenv("TRITON_DEFAULT_BACKEND", "abacus")
    config = type(triton.runtime.driver)()
    with pytest.raises(
        RuntimeError, match=re.escape("0 active drivers ([]). There should only be one.")
    ):
        config.active


def test_backends_are_found_by_name():
    backends = triton.backends.backends
    assert "cpu" in backends and "reference" not in backends
    assert backends["cpu"].driver.has_devices() and issubclass(
        backends["cpu"].compiler, triton.backends.compiler.BaseBackend
    )
    with pytest.raises(KeyError):
        backends["abacus"]


@pytest.mark.parametrize(("hip", "active"), [(None, {"nvidia"}), ("7.0", {"amd"})])
def test_a_process_whose_driver_does_not_start_compiles_for_the_devices_that_pytorch_has(
    monkeypatch, hip, active
):
    """Workers are forked from a process that uses the devices: their drivers do not start anew."""
    torch = pytest.importorskip("torch")
    from tilewright.compat.triton.backends import driver
    from tilewright.plugins.registry import registry

    gpus = [registry().get(name) for name in ("nvidia", "amd")]
    for gpu in gpus:
        monkeypatch.setattr(gpu, "manifest", dataclasses.replace(gpu.manifest, status=""))
    cpu = registry().get("cpu")
    monkeypatch.setattr(
        driver.device_registry, "devices", lambda backend: [] if backend in gpus else [cpu]
    )
    assert driver.active_backend_name() == "cpu"
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert {driver.active_backend_name()} == active
    found = {
        name
        for name, backend in triton.backends.backends.items()
        if name != "cpu" and backend.driver.has_devices()
    }
    assert found == active


def test_keys_change_with_everything():
    from tilewright.compat.triton.runtime.cache import get_cache_key, triton_key

    compiler = make_backend(triton.runtime.driver.active.get_current_target())
    source = ASTSource(add, SIGNATURE, constexprs={"BLOCK": 64})
    keys = {
        get_cache_key(source, compiler, compiler.parse_options({}), {}),
        get_cache_key(source, compiler, compiler.parse_options({"num_warps": 8}), {}),
        get_cache_key(source, compiler, compiler.parse_options({}), {"A": "1"}),
        get_cache_key(
            ASTSource(add, SIGNATURE, constexprs={"BLOCK": 32}),
            compiler,
            compiler.parse_options({}),
            {},
        ),
    }
    assert len(keys) == 4 and all(key.startswith(triton_key()) for key in keys)


def test_overriding_the_environment_is_undone_after_a_compilation():
    triton.knobs.compilation.allow_non_constexpr_globals = True
    triton.compile(ASTSource(add, SIGNATURE, constexprs={"BLOCK": 128}))
    assert "TILEWRIGHT_ALLOW_NON_CONSTEXPR_GLOBALS" not in os.environ


STEP = 3


@triton.jit
def steps(out):
    tl.store(out, STEP)


def test_the_kernel_of_refused_launches_is_compiled_as_the_first_one():
    """With the knobs of compilation, which the frontend of Tilewright alone does not know of."""
    torch = pytest.importorskip("torch")
    triton.knobs.compilation.allow_non_constexpr_globals = True
    out = torch.zeros(1, dtype=torch.int32)
    kernel = steps[(1,)](out)
    kernel.artifact.code.metadata["otherwise"] = {"num_warps": 2}
    launcher = kernel._load()[1]
    other = kernel.otherwise._kernel_for(RefusedError("no"))
    assert (
        other.specialization.options["num_warps"] == 2 and other.specialization.fn is kernel.src.fn
    )
    out.zero_()
    other.run((1, 1, 1), None, (out,))
    assert out[0] == 3
    out.zero_()
    launcher((1, 1, 1), None, (out,))
    assert out[0] == 3 and kernel.otherwise.reasons == ["no"]


def test_who_launches_the_code_alone_gets_code_that_takes_its_arguments_alone():
    kernel = triton.compile(ASTSource(add, SIGNATURE, constexprs={"BLOCK": 64}))
    assert kernel.launch_metadata_schema["num_warps"] == 4
    kernel = triton.compile(ASTSource(add, SIGNATURE, constexprs={"BLOCK": 32}))
    kernel.artifact.code.metadata["otherwise"] = {"num_warps": 2}
    schema = kernel.launch_metadata_schema
    assert schema["num_warps"] == 2 and schema["entry_name"] and kernel.metadata.num_warps == 4
    assert kernel.launch_metadata_schema == schema


@pytest.mark.parametrize(
    ("value", "plain", "unspecialized", "unaligned"),
    [
        (None, ("constexpr", None), ("constexpr", None), ("constexpr", None)),
        (True, ("u1", None), ("u1", None), ("u1", None)),
        (1, ("constexpr", 1), ("i32", None), ("constexpr", 1)),
        (48, ("i32", "D"), ("i32", None), ("i32", "")),
        (-17, ("i32", ""), ("i32", None), ("i32", "")),
        (2**31, ("i64", "D"), ("i64", None), ("i64", "")),
        (2**63 + 1, ("u64", ""), ("u64", None), ("u64", "")),
        (2.0, ("fp32", None), ("fp32", None), ("fp32", None)),
        (
            (1, 32, (False,)),
            (("constexpr", "i32", ("u1",)), (1, "D", (None,))),
            (("constexpr", "i32", ("u1",)), (1, "D", (None,))),
            (("constexpr", "i32", ("u1",)), (1, "D", (None,))),
        ),
    ],
)
def test_arguments_are_described_for_other_compilers(value, plain, unspecialized, unaligned):
    from tilewright.compat.triton.runtime.jit import native_specialize_impl

    base = triton.backends.compiler.BaseBackend
    assert native_specialize_impl(base, value, False, True, True) == plain
    assert native_specialize_impl(base, value, False, False, True) == unspecialized
    assert native_specialize_impl(base, value, False, True, False) == unaligned


def test_tensors_and_functions_are_described_for_other_compilers():
    torch = pytest.importorskip("torch")
    from tilewright.compat.triton.runtime.jit import mangle_type, native_specialize_impl

    base = triton.backends.compiler.BaseBackend
    tensor = torch.empty(64, dtype=torch.bfloat16)
    assert native_specialize_impl(base, tensor, True, True, True) == ("*kbf16", "D")
    assert native_specialize_impl(base, tensor[1:], False, True, True) == ("*bf16", "")
    assert native_specialize_impl(base, add, False, True, True) == ("constexpr", add.cache_key)
    descriptor = triton.tools.tensor_descriptor.TensorDescriptor.from_tensor(
        torch.empty(32, 32), [16, 16]
    )
    assert native_specialize_impl(base, descriptor, False, True, True) == (
        "tensordesc<fp32[16, 16]>",
        None,
    )
    assert (
        mangle_type(tensor) == "*bf16"
        and mangle_type(1) == "i32"
        and mangle_type(1, specialize=True) == "constexpr"
    )
    with pytest.raises(TypeError, match="Unsupported type"):
        native_specialize_impl(base, "text", False, True, True)
    with pytest.raises(OverflowError):
        native_specialize_impl(base, 2**64, False, True, True)
