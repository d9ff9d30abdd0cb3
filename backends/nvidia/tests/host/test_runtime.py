"""Loading, memory, timing, devices and status, with a mock driver."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mock_bindings import FakeBindings

from tilewright.errors import BackendError, KernelError, LoweringError, OutOfResources
from tilewright.gpu_host.driver import Driver
from tilewright.gpu_host.kernels import LoadedKernel
from tilewright.gpu_host.memory import DeviceMemory
from tilewright.gpu_host.timer import DeviceTimer
from tilewright.plugins.manifest import CodeObject, Device
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler import worker_server
from tilewright.runtime.compiler.capability_check import check_declared
from tilewright_conformance.op_samples import samples
from tilewright_nvidia import architectures
from tilewright_nvidia.host import ahead_of_time, devices, driver
from tilewright_nvidia.host.driver_table import TABLE
from tilewright_nvidia.manifest import CAPABILITIES, manifest
from tilewright_nvidia.toolchain import installation, linking


@pytest.fixture
def bindings() -> FakeBindings:
    return FakeBindings()


@pytest.fixture
def cuda(bindings: FakeBindings) -> Driver:
    return Driver(TABLE, bindings)


@pytest.fixture(autouse=True)
def no_ptxas(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The driver compiles, whatever is installed."""
    monkeypatch.setattr(linking, "ptxas_programs", list)
    linking.ptxas_of_driver.cache_clear()
    yield
    linking.ptxas_of_driver.cache_clear()


def code(**facts: Any) -> CodeObject:
    metadata = {
        "kernel": "k",
        "num_warps": 4,
        "shared": 0,
        "format": "cubin",
        "configuration": "num_warps=4, num_stages=3",
        **facts,
    }
    return CodeObject("k", b"device code", {}, metadata)


def test_loading_tells_registers_and_asks_for_much_shared_memory(
    bindings: FakeBindings, cuda: Driver
) -> None:
    loaded = LoadedKernel(code(shared=100 << 10, n_spills=24), 1, cuda)
    assert (
        loaded.function,
        loaded.n_regs,
        loaded.n_spills,
        loaded.n_max_threads,
        loaded.context,
    ) == (77, 32, 6, 1024, 1001)
    assert bindings.named("cuFuncSetAttribute")[0][2] == 100 << 10
    assert loaded.occupancy == 8 * 128 / 2048
    assert bindings.contexts == []
    bindings.calls.clear()
    LoadedKernel(code(shared=48 << 10), 1, cuda)
    assert not bindings.named("cuFuncSetAttribute")


def test_what_does_not_fit_the_device_is_told(bindings: FakeBindings, cuda: Driver) -> None:
    with pytest.raises(
        OutOfResources,
        match=(
            r"shared memory, Required: 300000, Hardware limit: 232448, in kernel k "
            r"\(num_warps=4, num_stages=3\)"
        ),
    ):
        LoadedKernel(code(shared=300000), 0, cuda)
    bindings.settings.function_attributes.update(registers=255, max_threads=64)
    with pytest.raises(
        OutOfResources,
        match=(
            r"registers, Required: 32640, Hardware limit: 65536, in kernel k \(num_warps=4, "
            r"num_stages=3\)"
        ),
    ):
        LoadedKernel(code(), 0, cuda)


PTX = b".version 8.6\n.target sm_90a\n"
LINES = PTX + b"\t.loc\t1 7 3\n"


def ptx_code(text: bytes) -> CodeObject:
    return CodeObject("k", text, {}, {**code().metadata, "format": "ptx"})


def test_the_driver_compiles_whole_programs(
    bindings: FakeBindings, cuda: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it compiled it keeps: the PTX is loaded, once it is known to compile."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_REPRODUCER_DIR", str(tmp_path))
    linked = linking.link(cuda, 0, PTX, "k")
    assert (linked.binary, linked.spills, linked.by) == (
        PTX + b"\0",
        12,
        "the driver",
    ) and "spill" in linked.log
    for _ in range(2):
        LoadedKernel(ptx_code(PTX), 0, cuda)
    assert len(bindings.named("cuModuleLoadDataEx")) == 2  # the second time for the disk cache
    assert bindings.named("cuModuleLoadData") == [(PTX + b"\0",)] * 2
    assert bindings.contexts == []
    bindings.settings.failures["cuModuleLoadDataEx"] = 218
    with pytest.raises(
        LoweringError, match="the driver could not compile the PTX of k: cuModuleLoadDataEx failed"
    ):
        linking.link(cuda, 0, PTX, "k")


def test_the_driver_is_asked_for_lines_of_the_source(
    bindings: FakeBindings, cuda: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    LoadedKernel(ptx_code(LINES), 0, cuda)
    lines = bindings.CUjit_option.CU_JIT_GENERATE_LINE_INFO
    compiled, loaded = bindings.named("cuModuleLoadDataEx")
    assert compiled[2][-1] == lines and loaded == (LINES + b"\0", 1, [lines], [1])


def test_where_the_drivers_cache_has_the_code_the_spills_are_not_known(
    bindings: FakeBindings, cuda: Driver
) -> None:
    bindings.log = ""
    assert linking.link(cuda, 0, PTX, "k").spills is None


@pytest.fixture
def ptxas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts a program in the place of ptxas, of a version of CUDA. What it was called with is in the
    file ``calls``."""
    if os.name != "posix":
        pytest.skip("the program is a shell's")

    def make(
        version: str = "12.8",
        status: int = 0,
        says: str = "8 bytes spill stores, 4 bytes spill loads",
    ) -> Path:
        program = tmp_path / f"ptxas-{version}"
        program.write_text(
            f"""#!/bin/sh
if [ "$1" = --version ]; then echo "Cuda compilation tools, release {version}, V{version}.93"; exit 0; fi
echo "$@" >> {tmp_path}/calls
echo "{says}" >&2
for last; do :; done
printf 'code of ptxas' > "$last"
exit {status}
"""
        )
        program.chmod(0o755)
        monkeypatch.setattr(linking, "ptxas_programs", lambda: [program])
        linking.ptxas_of_driver.cache_clear()
        return program

    monkeypatch.setattr(linking, "driver_version", lambda: 12040)
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TILEWRIGHT_REPRODUCER_DIR", str(tmp_path))
    return make


_MOVING = b".version 8.6\n.target sm_90a\n setmaxnreg\0"


def test_code_that_moves_registers_between_threads_is_kept_as_ptxas_compiles_it(
    bindings: FakeBindings, cuda: Driver, ptxas: Callable[..., Path], tmp_path: Path
) -> None:
    """Another process reads it, and has nothing to compile."""
    program = ptxas()
    for _ in range(2):
        LoadedKernel(CodeObject("k", _MOVING, {}, {**code().metadata, "format": "ptx"}), 0, cuda)
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert (
        "-arch=sm_90a" in call
        and not bindings.named("cuModuleLoadDataEx")
        and not bindings.named("cuLinkCreate")
    )
    assert bindings.named("cuModuleLoadData") == [(b"code of ptxas",)] * 2
    assert linking.link(cuda, 0, _MOVING, "k").spills == 12
    program.write_text(program.read_text() + "\n")  # another ptxas is there
    LoadedKernel(CodeObject("k", _MOVING, {}, {**code().metadata, "format": "ptx"}), 0, cuda)
    assert len((tmp_path / "calls").read_text().splitlines()) == 3
    assert " -c" not in call  # whole programs, be there setmaxnreg or not
    linked = linking.link(cuda, 0, PTX, "k")
    assert (linked.binary, linked.by) == (b"code of ptxas", "ptxas")


@pytest.mark.parametrize(
    "facts",
    [
        {"version": "13.0"},
        {"status": 1, "says": "error: Unsupported .version 8.6"},
        {"version": "unknown"},
    ],
    ids=str,
)
def test_the_driver_compiles_what_no_ptxas_of_its_own_can(
    bindings: FakeBindings, cuda: Driver, ptxas: Callable[..., Path], facts: dict[str, Any]
) -> None:
    ptxas(**facts)
    linked = linking.link(cuda, 0, _MOVING, "k")
    assert linked.binary == _MOVING and len(bindings.named("cuModuleLoadDataEx")) == 1


def test_kernels_are_kept_as_ptxas_compiles_them(
    bindings: FakeBindings,
    cuda: Driver,
    ptxas: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ptxas()
    target = architectures.target_of(architectures.ARCHITECTURES["sm_90a"])
    monkeypatch.setattr(ahead_of_time, "why_not", lambda: "")
    monkeypatch.setattr(ahead_of_time, "driver", lambda: cuda)
    moving = CodeObject("k", _MOVING, {}, {**code().metadata, "format": "ptx"})
    linked = registry().get("nvidia").call("tilewright_link", code=moving, target=target)
    assert (linked.metadata["format"], linked.binary, linked.metadata["n_spills"]) == (
        "cubin",
        b"code of ptxas",
        12,
    )


def test_what_a_worker_lowered_is_linked_by_the_hook(
    bindings: FakeBindings, cuda: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlinked = ptx_code(PTX)
    target = architectures.target_of(architectures.ARCHITECTURES["sm_90a"])
    monkeypatch.setattr(ahead_of_time, "why_not", lambda: "")
    monkeypatch.setattr(ahead_of_time, "driver", lambda: cuda)
    monkeypatch.setattr(worker_server, "serving", True)
    hook = partial(registry().get("nvidia").call, "tilewright_link", code=unlinked, target=target)
    assert "link_log" not in hook().metadata and not bindings.named(
        "cuModuleLoadDataEx"
    )  # the worker itself leaves it
    monkeypatch.setattr(worker_server, "serving", False)
    linked = hook()
    assert (
        linked.metadata["format"],
        linked.metadata["linked_by"],
        linked.metadata["n_spills"],
    ) == ("ptx", "the driver", 12)


def test_rejected_ptx_comes_with_the_log_and_a_reproducer(
    bindings: FakeBindings, cuda: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_REPRODUCER_DIR", str(tmp_path))
    bindings.settings.failures["cuModuleLoadDataEx"] = 218
    with pytest.raises(
        LoweringError, match="the driver could not compile the PTX of k: cuModuleLoadDataEx failed"
    ):
        linking.link(cuda, 0, PTX, "k")
    assert [path.read_bytes() for path in tmp_path.glob("*.ptx")] == [PTX]
    assert bindings.contexts == []


def test_memory_and_time_are_the_drivers(bindings: FakeBindings, cuda: Driver) -> None:
    memory, timer = DeviceMemory(0, cuda), DeviceTimer(0, cuda)
    buffer = memory.allocate(40, 1 << 12)
    assert bindings.named("cuMemAlloc") == [(40 + 4096 - 256,)]
    data, back = np.arange(10, dtype=np.float32), np.full(10, np.nan, np.float32)
    memory.copy_to_device(buffer, memoryview(data))
    memory.copy_to_host(buffer, memoryview(back))
    np.testing.assert_array_equal(back, data)
    assert buffer.__cuda_array_interface__["data"] == (
        buffer.data_ptr(),
        False,
    ) and buffer.device == ("cuda", 0)
    del buffer
    assert not bindings.memory and bindings.contexts == []
    assert timer.measure(lambda: None, 3) == [0.25] * 3
    assert len(bindings.named("cuEventRecord")) == 6 and len(bindings.named("cuEventDestroy")) == 6
    timer.flush_cache()
    assert bindings.named("cuMemsetD8Async")[0][1:] == (0, 256 << 20, 0)
    bindings.settings.failures.update(cuMemAlloc=2, cuCtxSynchronize=700)
    with pytest.raises(BackendError, match="not enough free memory"):
        memory.allocate(1 << 40, 8)
    with pytest.raises(KernelError, match=r"illegal address.*restart the process"):
        memory.synchronize()
    bindings.settings.failures.update(cuCtxSynchronize=719)
    with pytest.raises(KernelError, match="by an assertion if the driver printed one"):
        memory.synchronize()


# ---- devices and status


def test_devices_are_described(
    bindings: FakeBindings, cuda: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "why_not", lambda: "")
    monkeypatch.setattr(devices, "driver", lambda: cuda)
    monkeypatch.setattr(devices, "driver_version", lambda: 13000)
    found = devices.devices()
    assert (
        [device.index for device in found] == [0, 1]
        and found[0].name == "Stand-in GPU"
        and found[0].kind == "cuda"
    )
    assert (
        found[0].properties["arch"] == "sm_90a"
        and found[0].properties["compute_capability"] == "9.0"
    )
    target = devices.target_of_device(found[0])
    assert (target.arch, target.features, target.warp_size, target.limits["shared_memory"]) == (
        "sm_90a",
        ("+ptx86",),
        32,
        227 << 10,
    )
    monkeypatch.setattr(devices, "driver_version", lambda: 12050)
    assert devices.target_of_device(found[0]).features == ("+ptx85",)
    monkeypatch.setattr(
        devices, "driver_version", lambda: 12020
    )  # too old for what is written for this GPU
    assert devices.devices() == []


def test_a_driver_that_fails_gives_no_devices(
    bindings: FakeBindings, cuda: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "why_not", lambda: "")
    monkeypatch.setattr(devices, "driver", lambda: cuda)
    bindings.settings.failures["cuDeviceGetCount"] = 100
    assert devices.devices() == []


@pytest.mark.parametrize(
    ("version", "missing", "words"),
    [
        (0, "", r"no NVIDIA driver was found"),
        (
            11040,
            "",
            r"the NVIDIA driver is too old: it supports CUDA 11.4, and CUDA 12.0 is needed",
        ),
        (
            12040,
            "cuda-bindings is not installed: pip install 'tilewright[nvidia]'",
            r"cuda-bindings is not installed",
        ),
    ],
)
def test_status_says_why_nothing_runs(
    monkeypatch: pytest.MonkeyPatch, version: int, missing: str, words: str
) -> None:
    monkeypatch.setattr(installation, "driver_version", lambda: version)
    monkeypatch.setattr(installation, "bindings_missing", lambda: missing)
    assert words in manifest().status
    assert devices.devices() == []
    driver.driver.cache_clear()
    with pytest.raises(BackendError, match="NVIDIA GPUs cannot be used"):
        driver.driver()


def test_status_is_clear_where_everything_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "driver_version", lambda: 13000)
    monkeypatch.setattr(installation, "bindings_missing", lambda: "")
    assert manifest().status == ""
    monkeypatch.setenv("TILEWRIGHT_NVIDIA_DISABLE", "1")
    assert manifest().status == "disabled by TILEWRIGHT_NVIDIA_DISABLE=1"


def test_the_plugin_is_registered_with_its_targets() -> None:
    found = registry().get("nvidia").manifest
    assert found.device_kinds == ("cuda",) and set(found.targets) == set(
        architectures.ARCHITECTURES
    )
    assert (
        found.capabilities is not None
        and found.capabilities.power_of_two
        and "extern" not in found.capabilities.features
    )


@pytest.mark.parametrize(
    ("capability", "name"),
    [
        (75, "sm_75"),
        (80, "sm_80"),
        (87, "sm_86"),
        (89, "sm_89"),
        (90, "sm_90a"),
        (100, "sm_100a"),
        (70, None),
        (101, None),
    ],
)
def test_devices_have_the_code_they_can_run(capability: int, name: str | None) -> None:
    found = architectures.architecture_of(capability)
    assert (found.name if found else None) == name


def test_device_is_loaded_by_the_hook_only_with_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "driver_version", lambda: 0)
    driver.driver.cache_clear()
    with pytest.raises(BackendError, match="no NVIDIA driver"):
        registry().get("nvidia").require(
            "tilewright_load", code=code(), device=Device("nvidia", "cuda", 0, "none")
        )


@pytest.mark.parametrize(
    ("operation", "text"),
    [("extern", ""), ("cat", "tile extents that are no powers of two"), ("add", "")],
)
def test_what_is_not_declared_is_refused_before_lowering(operation: str, text: str) -> None:
    """Functions may be those of libraries that the launch gives; layouts are for powers of two."""
    refused = []
    for sample in samples(operation):
        try:
            check_declared(sample.module, CAPABILITIES, "nvidia")
        except LoweringError as error:
            refused.append(str(error))
    assert any(text in one for one in refused) if text else not refused
