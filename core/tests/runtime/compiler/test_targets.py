"""Target information in kernels and options, which does not depend on the backend's name."""

import copy
import dataclasses
import os
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import BackendError
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import (
    Capabilities,
    CodeObject,
    Device,
    Manifest,
    ManifestError,
    Target,
)
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import (
    Specialization,
    build_module,
    cache_key,
    compile_job,
    compile_kernel,
)
from tilewright.runtime.devices import device_registry
from tilewright.runtime.devices.backend_choice import default_target

ALL = frozenset({"i1", "i8", "i16", "i32", "i64", "u32", "f16", "f32", "f64", "f8e5m2"})
NEWEST = Capabilities(
    ALL,
    dot={"f16": ("f32",)},
    dot_precisions=("ieee", "tf32"),
    atomics={"f16": frozenset({"add"})},
    min_dot=(1, 1, 1),
)
OLD = dataclasses.replace(NEWEST, dtypes=ALL - {"f8e5m2"}, atomics={}, min_dot=(16, 16, 16))


class Acme:
    """Somebody's backend for GPUs of a kind: its device is the newest architecture, and an older
    one can less."""

    __name__ = "acme"

    def __init__(
        self,
        name="acme",
        kind="cuda",
        archs=("sm_90a", "sm_75"),
        warp_size=32,
        says=None,
        priority=500,
        present=True,
    ):
        self.name, self.kind, self.archs, self.warp_size, self.priority, self.present = (
            name,
            kind,
            archs,
            warp_size,
            priority,
            present,
        )
        self.says = says or kind

    @hookimpl
    def tilewright_backend(self):
        return Manifest(
            self.name, "1", "somebody's", (self.kind,), self.archs, NEWEST, priority=self.priority
        )

    @hookimpl
    def tilewright_devices(self):
        return [Device(self.name, self.kind, 0, "a GPU")] if self.present else []

    @hookimpl
    def tilewright_target(self, device):
        arch = device.properties.get("arch", self.archs[0])
        return Target(
            self.name,
            arch,
            warp_size=self.warp_size,
            kind=self.says,
            capabilities=None if arch == self.archs[0] else OLD,
        )

    @hookimpl
    def tilewright_lower(self, module, target):
        return CodeObject(
            module.kernel.name, target.arch.encode(), {"tileir": str(module)}, {"shared": 0}
        )


@pytest.fixture
def install():
    """Registers backends: ``install(**arguments of Acme)`` gives the registered backend."""
    names = []

    def register(**arguments):
        plugin = Acme(**arguments)
        names.append(plugin.name)
        return registry().register(plugin, plugin.name)

    yield register
    for name in names:
        registry().unregister(name)
    device_registry.forget()


@tw.jit
def asks(out):
    target: tl.constexpr = tl.target_info.current_target()
    tl.store(out, target.warp_size)
    tl.store(out + 1, tl.target_info.is_cuda())
    tl.store(out + 2, tl.target_info.is_hip())
    tl.store(out + 3, tl.target_info.cuda_capability_geq(9))
    tl.store(out + 4, tl.target_info.cuda_capability_geq(7, 5))
    tl.store(out + 5, tl.target_info.is_hip_cdna3())
    tl.static_assert(target.backend == "cuda" or target.backend == "hip" or target.backend == "xpu")


def answers(backend, target, kernel=asks):
    """Return the value that the kernel stores when it is compiled for a target."""
    module = build_module(
        Specialization(kernel, {"out": "*i32"}, options=backend.manifest.options), backend, target
    )
    constants = dict(re.findall(r"(%\w+) = constant (\w+) : i(?:1|32)", str(module)))
    constants.update(
        {
            result: constants[operand]
            for result, operand in re.findall(r"(%\w+) = cast (%\w+) ", str(module))
            if operand in constants
        }
    )
    number = {"true": 1, "false": 0}
    stored = [constants[name] for name in re.findall(r"  store %\w+, (%\w+)", str(module))]
    return [number[text] if text in number else int(text) for text in stored]


def test_somebodys_cuda_backend_is_cuda(install):
    acme = install()
    target = device_registry.target_of(acme, device_registry.find(acme, None))
    assert (target.kind, target.warp_size, target.capabilities) == ("cuda", 32, NEWEST)
    assert answers(acme, target) == [32, 1, 0, 1, 1, 0]


def test_compiling_ahead_for_another_target_answers_for_that_one(install):
    acme = install()
    assert answers(acme, device_registry.named_target(acme, "sm_75")) == [32, 1, 0, 0, 1, 0]
    with pytest.raises(
        BackendError, match="backend 'acme' has no target 'sm_80'; it has sm_90a, sm_75"
    ):
        device_registry.named_target(acme, "sm_80")
    with pytest.raises(BackendError, match=r"sm_75\n  help: did you mean sm_90a\?"):
        device_registry.named_target(acme, "sm_90")


def test_somebodys_hip_backend_is_hip(install):
    backend = install(
        name="nvidia-like", kind="hip", archs=("gfx942",), warp_size=64, present=False
    )
    assert answers(backend, device_registry.named_target(backend, "gfx942")) == [64, 0, 1, 0, 0, 1]


def test_another_kind_is_neither(install):
    backend = install(name="amd-like", kind="xpu", archs=("sm_90a",), warp_size=16)
    assert answers(backend, device_registry.named_target(backend, "sm_90a")) == [16, 0, 0, 0, 0, 0]


@tw.jit
def adds_halves(out):
    tl.atomic_add(out, 1.0)


def test_a_target_has_capabilities_of_its_own(install):
    acme = install()
    kernel = Specialization(adds_halves, {"out": "*fp16"}, options=acme.manifest.options)
    artifact = compile_kernel(kernel, acme, device_registry.named_target(acme, "sm_90a"))
    assert artifact.code.binary == b"sm_90a"
    with pytest.raises(
        tw.CompilationError, match="atomic_add does not support fp16 on backend acme"
    ):
        compile_kernel(kernel, acme, device_registry.named_target(acme, "sm_75"))


@tw.jit
def reads_narrow(x, out):
    tl.store(out, tl.load(x).to(tl.float32))


def test_tile_ir_is_held_to_the_target(install):
    acme = install()
    kernel = Specialization(
        reads_narrow, {"x": "*fp8e5", "out": "*fp32"}, options=acme.manifest.options
    )
    compile_kernel(kernel, acme, device_registry.named_target(acme, "sm_90a"))
    module = build_module(kernel, acme, device_registry.named_target(acme, "sm_90a"))
    from tilewright.runtime.compiler.compile import lower_module

    with pytest.raises(tw.LoweringError, match="does not declare element type f8e5m2"):
        lower_module(
            module, acme.manifest.options, acme, device_registry.named_target(acme, "sm_75")
        )


def test_kind_warp_size_and_capabilities_are_in_the_key(install):
    acme = install()
    kernel = Specialization(asks, {"out": "*i32"}, options=acme.manifest.options)
    plain = Target("acme", "sm_90a", warp_size=32, kind="cuda")
    targets = [
        plain,
        *(
            dataclasses.replace(plain, **change)
            for change in ({"kind": "hip"}, {"warp_size": 64}, {"capabilities": OLD})
        ),
    ]
    assert len({cache_key(kernel, acme, target) for target in targets}) == 4
    assert cache_key(kernel, acme, plain) == cache_key(kernel, acme, acme.completed(plain))
    other = Capabilities(
        frozenset(sorted(ALL)),
        dot={"f16": ("f32",)},
        dot_precisions=("ieee", "tf32"),
        atomics={"f16": frozenset(["add"])},
    )
    assert other.key == NEWEST.key != OLD.key


def test_targets_are_pickled_and_copied(install):
    acme = install()
    target = device_registry.named_target(acme, "sm_75")
    for made in (pickle.loads(pickle.dumps(target)), copy.deepcopy(target)):
        assert made == target and made.key == target.key and made.capabilities == OLD
        with pytest.raises(TypeError):
            made.capabilities.dot["f32"] = ("f32",)
    kernel, sent = pickle.loads(
        pickle.dumps(
            (Specialization(asks, {"out": "*i32"}, options=dict(acme.manifest.options)), target)
        )
    )
    assert compile_job(kernel, "acme", sent)


def test_a_target_of_another_kind_than_its_device_is_refused(install):
    acme = install(says="hip")
    with pytest.raises(
        BackendError, match=r"'acme'.*target of kind 'hip' for a device of kind 'cuda'"
    ):
        device_registry.target_of(acme, device_registry.find(acme, None))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"kind": ""}, "kind of a target"),
        ({"warp_size": 0}, "warp_size"),
        ({"capabilities": {}}, "capabilities of"),
    ],
)
def test_a_malformed_target_says_which_rule_it_breaks(change, rule):
    with pytest.raises(ManifestError, match=rule):
        Target("acme", "sm_90a", **{"kind": "cuda", **change})


def test_the_reference_and_a_launch_tell_the_kind_too(install):
    out = np.zeros(1, np.int32)

    @tw.jit
    def kernel(out):
        target: tl.constexpr = tl.target_info.current_target()
        tl.static_assert(target.backend == "cpu")
        tl.store(out, target.warp_size + 10 * tl.target_info.is_cuda())

    kernel[(1,)](out, backend="reference")
    assert out[0] == 1


def test_the_language_alone_finds_the_target_outside_of_kernels():
    code = (
        "import tilewright.language as tl; print(tl.target_info.current_target().backend, "
        "tl.target_info.is_cuda())"
    )
    environment = {**os.environ, "TILEWRIGHT_BACKEND": "reference"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert done.stdout.split() == ["cpu", "False"]


def test_outside_of_kernels_a_chosen_backend_answers(install, monkeypatch):
    monkeypatch.setattr(
        "tilewright.active_target.provider", default_target
    )  # the shim's, where other tests imported it
    install(name="mine", kind="hip", archs=("gfx950",), warp_size=64)
    with tw.backend("mine"):
        assert tl.target_info.is_hip_cdna4() and tl.target_info.current_target() == (
            "hip",
            "gfx950",
            64,
        )
