"""The plugin as the registry sees it: manifest, devices, target, tuning hooks."""

import os
import subprocess
import sys

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LoweringError, VariableError
from tilewright.ir import Module
from tilewright.ir.ops.linear import accumulator_types
from tilewright.ir.ops.memory import check_atomic_element
from tilewright.ir.parser import parse_module
from tilewright.ir.table import RuleError
from tilewright.ir.type_text import parse_type
from tilewright.ir.types import FLOATS, INTEGERS
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import Specialization, compile_kernel, lower_module
from tilewright.runtime.devices import device_registry
from tilewright_cpu import plugin, target, tuning
from tilewright_cpu.manifest import IGNORED, manifest


def test_the_registry_finds_the_backend():
    backend = registry().get("cpu")
    assert backend.manifest == manifest()
    assert backend.manifest.device_kinds == ("cpu",) and not backend.manifest.status
    (device,) = backend.call("tilewright_devices")
    assert backend.call("tilewright_target", device=device).backend == "cpu"
    for hook in (
        "tilewright_lower",
        "tilewright_load",
        "tilewright_launcher",
        "tilewright_memory",
        "tilewright_timer",
        "tilewright_prune",
        "tilewright_cost",
    ):
        assert backend.implements(hook), hook


def test_the_manifest_is_cheap_and_touches_no_compiler():
    script = (
        "import sys; from tilewright_cpu.plugin import tilewright_backend as b; b(); "
        "print('llvmlite' in sys.modules, 'torch' in sys.modules)"
    )
    out = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=900
    ).stdout
    assert out.split() == ["False", "False"]


def test_capabilities_are_those_of_the_op_table():
    capabilities = manifest().capabilities
    assert capabilities.dtypes == {str(type_) for type_ in (*INTEGERS, *FLOATS)}
    for type_ in (*INTEGERS, *FLOATS):
        assert capabilities.dot.get(str(type_), ()) == tuple(map(str, accumulator_types(type_)))
    for kind in ("add", "min", "max", "and", "or", "xor", "xchg"):
        for type_ in (*INTEGERS, *FLOATS):
            try:
                check_atomic_element(kind, type_)
                allowed = True
            except RuleError:
                allowed = False
            if kind in ("min", "max") and type_.bits == 16:
                allowed = False  # what only the bulk copies of some machines do
            assert (kind in capabilities.atomics.get(str(type_), ())) == allowed, (kind, type_)
    for name, kinds in capabilities.atomics.items():
        assert ("cas" in kinds) == (parse_type(name).bits >= 16)


def test_a_disabled_backend_says_why(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CPU_DISABLE", "1")
    assert "TILEWRIGHT_CPU_DISABLE" in manifest().status


def test_the_device_describes_the_host():
    (device,) = plugin.tilewright_devices()
    properties = device.properties
    assert device.kind == "cpu" and device.name
    assert properties["cores"] == target.available_cores() >= 1
    assert properties["vector_bits"] in (128, 256, 512)
    assert 4096 <= properties["l1d_bytes"] <= properties["l2_bytes"]


def test_a_thread_that_openmp_binds_takes_no_cores_away():
    pytest.importorskip("torch")
    cores = target.available_cores()
    if cores < 2 or not hasattr(os, "sched_getaffinity"):
        pytest.skip("a system without affinities, or one core, has none to lose")
    program = (
        "import os, torch; from tilewright_cpu.plugin import tilewright_devices; "
        "torch.ones(1 << 20).exp(); "
        "print(len(os.sched_getaffinity(0)), tilewright_devices()[0].properties['cores'])"
    )
    bound = {"OMP_PROC_BIND": "true", "OMP_NUM_THREADS": str(cores)}
    output = subprocess.check_output(
        [sys.executable, "-c", program], env={**os.environ, **bound}, text=True
    )
    assert output.split() == ["1", str(cores)]


def test_the_target_is_the_hosts_unless_a_level_is_named(monkeypatch):
    monkeypatch.delenv("TILEWRIGHT_CPU_LEVEL", raising=False)
    native = target.host()
    assert native.warp_size == 1 and native is target.host()
    if native.arch != "x86-64":
        pytest.skip("levels are of x86-64")
    monkeypatch.setenv("TILEWRIGHT_CPU_LEVEL", "x86-64-v2")
    narrow = target.host()
    assert (
        narrow.limits["vector_bits"] == 128
        and narrow.key != native.key
        and "+avx" not in narrow.features
    )
    monkeypatch.setenv("TILEWRIGHT_CPU_LEVEL", "pentium")
    with pytest.raises(
        VariableError, match="TILEWRIGHT_CPU_LEVEL must be one of x86-64, x86-64-v2"
    ):
        target.host()


def test_a_level_the_machine_lacks_is_refused(monkeypatch):
    features = ",".join(
        f"-{name}" if name.startswith("avx512") else f"+{name}"
        for name in target.LEVELS["x86-64-v4"]
    )
    monkeypatch.setattr(
        "tilewright.llvm.codegen.compile.host_target",
        lambda: ("x86_64-unknown-linux-gnu", "haswell", features),
    )
    target._host.cache_clear()
    try:
        assert target._host("x86-64-v3").limits["vector_bits"] == 256
        with pytest.raises(VariableError, match="this machine lacks avx512f"):
            target._host("x86-64-v4")
    finally:
        target._host.cache_clear()


def test_architectures_are_named_alike():
    assert [
        target.architecture(t)
        for t in (
            "x86_64-unknown-linux-gnu",
            "arm64-apple-darwin",
            "aarch64-linux-gnu",
            "riscv64-linux",
        )
    ] == [
        "x86-64",
        "aarch64",
        "aarch64",
        "riscv64",
    ]


# ---- tuning

MATMUL = {
    "BLOCK_M": 64,
    "BLOCK_N": 64,
    "BLOCK_K": 32,
    "GROUP_M": 8,
    "num_warps": 4,
    "num_stages": 3,
}


def here():
    return target.Target(
        "cpu", "x86-64", kind="cpu", limits={"l1d_bytes": 32 << 10, "l2_bytes": 1 << 20}
    )


def test_block_sizes_are_distinguished_from_other_constants():
    assert tuning.block_sizes(MATMUL) == [64, 64, 32]
    assert tuning.block_sizes(
        {"BLOCK_SIZE": 1000, "EVEN": True, "SCALE": 0.5, "num_warps": 16, "STAGES": 2}
    ) == [1000]
    assert tuning.block_sizes({"num_warps": 8}) == []


def test_prune_drops_equal_code_and_tiles_that_cannot_stay_in_cache():
    wide = {**MATMUL, "BLOCK_M": 1024, "BLOCK_N": 1024}
    same = {**MATMUL, "num_warps": 8}
    staged = {**MATMUL, "num_stages": 1}
    assert list(tuning.prune([MATMUL, same, wide, staged], here(), {})) == [MATMUL, staged]
    assert list(tuning.prune([wide, {**wide, "BLOCK_M": 2048}], here(), {})) == [wide]
    assert list(tuning.prune([], here(), {})) == []
    assert list(tuning.prune([{"BLOCK": 1 << 20}], here(), {})) == [{"BLOCK": 1 << 20}]


def test_cost_orders_trials():
    def order(configurations):
        return sorted(configurations, key=lambda c: tuning.cost(c, here(), {}))

    blocks = [{"BLOCK_M": m, "BLOCK_N": m, "BLOCK_K": 64} for m in (16, 512, 128)]
    assert order(blocks)[0]["BLOCK_M"] == 128
    assert order([{"BLOCK": b} for b in (16, 4096, 1 << 20)])[0]["BLOCK"] == 4096
    assert tuning.cost({"num_warps": 4}, here(), {}) == 0.0


def test_the_space_of_a_kernel_without_configurations():
    space = tuning.tuning_space(Module(), here())
    assert {"num_threads": 0} in space
    assert all(set(options) <= set(manifest().options) for options in space)


def test_atomics_that_are_not_declared_are_refused_where_they_are_given_as_tile_ir():
    text = """tilewright.ir 1.0

kernel @highest(%x: ptr<f16>, %value: f16) {
  %0 = atomic_rmw %x, %value {kind = "max"} : f16 loc("a.py":3:4 in "highest")
  return
}
"""
    backend = registry().get("cpu")
    target = backend.require("tilewright_target", device=backend.require("tilewright_devices")[0])
    wanted = (
        r"atomic_rmw at a.py:3:4 in highest: backend 'cpu' does not declare atomic max on f16; "
        r"on f16 it has add, cas, xchg, and atomic max on f32"
    )
    with pytest.raises(LoweringError, match=wanted):
        lower_module(parse_module(text), backend.manifest.options, backend, target)
    assert lower_module(
        parse_module(text.replace("f16", "f32")), backend.manifest.options, backend, target
    ).code.binary


@tw.jit
def looped_product(x, y, out, n, BLOCK: tl.constexpr):
    rows, total = tl.arange(0, BLOCK), tl.zeros([BLOCK, BLOCK], tl.float32)
    for start in tl.range(0, n, BLOCK, num_stages=2):
        columns = start + rows
        total = tl.dot(
            tl.load(x + rows[:, None] * n + columns[None, :]),
            tl.load(y + columns[:, None] * BLOCK + rows[None, :]),
            total,
        )
    tl.store(out + rows[:, None] * BLOCK + rows[None, :], total)


@pytest.mark.parametrize("option", sorted(IGNORED))
def test_ignored_options_change_nothing_in_the_code(option):
    backend = registry().get("cpu")
    here = device_registry.target_of(backend, device_registry.devices(backend)[0])
    types = {**dict.fromkeys(("x", "y", "out"), "*fp32"), "n": "i32", "BLOCK": "constexpr"}
    made = []
    for value in (1, 8):
        options = {**backend.manifest.options, option: value}
        artifact = compile_kernel(
            Specialization(looped_product, types, {"BLOCK": 32}, {}, options),
            backend,
            here,
            anew=True,
        )
        made.append((artifact.code.binary, artifact.code.stages["llir"], artifact.code.metadata))
    assert made[0] == made[1]
