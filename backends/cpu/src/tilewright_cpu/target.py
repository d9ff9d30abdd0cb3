"""The host: its instruction set, caches and cores, and the target code is generated for."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tilewright.errors import VariableError
from tilewright.plugins.manifest import Device, Target
from tilewright_cpu.hardware import (
    LEVELS,
    NAMED,
    USUAL_CACHES,
    Hardware,
    hardware_of,
    named_target,
    vector_unit,
)
from tilewright_cpu.torch_openmp import team_processors


def architecture(triple: str) -> str:
    """Return the target's name for an LLVM triple: ``x86-64``, ``aarch64``, or its first word."""
    word = triple.split("-", 1)[0]
    return {"x86_64": "x86-64", "amd64": "x86-64", "arm64": "aarch64"}.get(word, word)


@dataclass(frozen=True, slots=True)
class Cache:
    """A data cache: its level, bytes, ways, bytes of a line, and how many processors share it.

    Ways are 0 where the system does not report them.
    """

    level: int
    bytes: int
    ways: int
    line: int
    sharing: int


@functools.cache
def caches(root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> tuple[Cache, ...]:
    """The first processor's data caches, nearest first; empty where the system does not tell."""
    found = (
        _caches_of_macos()
        if sys.platform == "darwin"
        else [cache for index in root.glob("index*") if (cache := _cache(index)) is not None]
    )
    return tuple(sorted(found, key=lambda cache: cache.level))


def _cache(index: Path) -> Cache | None:
    def read(name: str) -> str:
        try:
            return (index / name).read_text().strip()
        except OSError:
            return ""

    size, level = re.fullmatch(r"(\d+)([KM]?)", read("size")), read("level")
    if read("type") not in ("Data", "Unified") or size is None or not level.isdigit():
        return None
    ways, line = (_number(read(name)) for name in ("ways_of_associativity", "coherency_line_size"))
    return Cache(
        int(level),
        int(size[1]) << {"": 0, "K": 10, "M": 20}[size[2]],
        ways,
        line,
        processors(read("shared_cpu_list")),
    )


def processors(text: str) -> int:
    """Number of processors that a list of them names, ``0-3,8``; 1 where it names none."""
    count = 0
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            count += int(last or first) - int(first) + 1
    return max(1, count)


def _caches_of_macos() -> list[Cache]:
    line = _number(_sysctl("hw.cachelinesize"))
    sizes = (
        (1, _number(_sysctl("hw.l1dcachesize"))),
        (2, _number(_sysctl("hw.l2cachesize"))),
        (3, _number(_sysctl("hw.l3cachesize"))),
    )
    return [Cache(level, size, 0, line, 1) for level, size in sizes if size]


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def cache_limits(found: tuple[Cache, ...]) -> dict[str, int]:
    """Limits of a target that describe the caches, by the names of :data:`.hardware.USUAL_CACHES`.

    Quantities that are not known are usual ones.
    """
    limits = dict(USUAL_CACHES)
    for cache in found:
        level = {1: "l1d", 2: "l2", 3: "l3"}.get(cache.level)
        if level is None:
            continue
        limits[f"{level}_bytes"] = cache.bytes
        if cache.ways and f"{level}_ways" in limits:
            limits[f"{level}_ways"] = cache.ways
        if cache.level == 1 and cache.line:
            limits["line_bytes"] = cache.line
    return limits


def _sysctl(key: str) -> str:
    try:
        return subprocess.run(
            ["sysctl", "-n", key], capture_output=True, text=True, timeout=5, check=False
        ).stdout.strip()
    except OSError:
        return ""


@functools.cache
def model_name() -> str:
    """The processor's model name."""
    if sys.platform == "darwin":
        return _sysctl("machdep.cpu.brand_string") or platform.processor() or "CPU"
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("model name", "Model")):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine() or "CPU"


def available_cores() -> int:
    """Return the number of cores that this process may run on.

    The affinity of a thread that an OpenMP runtime has bound to one of them does not count.
    """
    if hasattr(os, "sched_getaffinity"):
        return max(len(os.sched_getaffinity(0)), team_processors())
    return os.cpu_count() or 1


def threads_a_core() -> int:
    """Processors of the system that are one core's."""
    try:
        return processors(
            Path("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list").read_text().strip()
        )
    except OSError:
        return 1


def devices() -> list[Device]:
    """The host, as the one device of this backend.

    Properties: cores, threads_a_core, the target's limits, l2_sharing and l3_sharing (processors
    that share one), llvm_cpu.
    """
    target = host()
    sharing = {f"l{cache.level}_sharing": cache.sharing for cache in caches() if cache.level > 1}
    properties = {
        "cores": available_cores(),
        "threads_a_core": threads_a_core(),
        **target.limits,
        **sharing,
        "llvm_cpu": target.cpu,
        "arch": target.arch,
    }
    return [Device("cpu", "cpu", 0, model_name(), properties)]


def host() -> Target:
    """The target of this machine, or of the level named by ``TILEWRIGHT_CPU_LEVEL``.

    Levels are ``x86-64`` to ``x86-64-v4``. ``limits`` has the quantities that code generation
    depends on: ``vector_bits``, and bytes and ways of the caches.

    Raises:
        VariableError: the machine lacks the level.
    """
    return _host(os.environ.get("TILEWRIGHT_CPU_LEVEL", ""))


@functools.cache
def processor() -> Hardware:
    """This machine itself, whatever level is named."""
    return hardware_of(_host(""))


#: On Linux for x86-64: the system call ``arch_prctl``, its request for a component of the
#: processor's state, and the component: the data of tiles.
ARCH_PRCTL, REQUEST_STATE, TILE_DATA = 158, 0x1023, 18


def ask_for_tiles() -> bool:
    """Request the processor's tile registers from the system, for this process and its forks.

    Without it their first instruction ends the process. False where the system refuses, or knows no
    such request.
    """
    if sys.platform != "linux":
        return False
    library = ctypes.CDLL(None, use_errno=True)
    return (
        int(
            library.syscall(
                ctypes.c_long(ARCH_PRCTL), ctypes.c_long(REQUEST_STATE), ctypes.c_long(TILE_DATA)
            )
        )
        == 0
    )


@functools.cache
def _host(level: str) -> Target:
    from tilewright.llvm.codegen.compile import host_target

    triple, cpu, text = host_target()
    arch, features = architecture(triple), tuple(text.split(",")) if text else ()
    if level:
        if level not in LEVELS or arch != "x86-64":
            raise VariableError(
                f"TILEWRIGHT_CPU_LEVEL must be one of {', '.join(LEVELS)} on an x86-64 host, not "
                f"{level!r} on {arch}"
            )
        missing = [name for name in LEVELS[level] if f"-{name}" in features]
        if missing:
            raise VariableError(
                f"TILEWRIGHT_CPU_LEVEL={level}: this machine lacks {', '.join(missing)}"
            )
        cpu, features = level, tuple(f"+{name}" for name in LEVELS[level])
    elif "+amx-tile" in features and not ask_for_tiles():
        features = tuple(f"-{name[1:]}" if name.startswith("+amx-") else name for name in features)
    present = frozenset(name[1:] for name in features if name.startswith("+"))
    return Target(
        "cpu",
        arch,
        cpu,
        features,
        1,
        {"vector_bits": vector_unit(arch, present).bits, **cache_limits(caches())},
        kind="cpu",
    )


def target_of(device: Device) -> Target:
    """The target of the host, or of the processor of :data:`.hardware.NAMED` behind the device."""
    return named_target(device.name) if device.name in NAMED else host()


def llvm_target(target: Target) -> tuple[str, str, str]:
    """(triple, cpu, features) for :mod:`tilewright.llvm.codegen.compile`.

    The system is this one where the architecture is the host's, else Linux.
    """
    from tilewright.llvm.codegen.compile import host_target

    triple = host_target()[0]
    if architecture(triple) != target.arch:
        triple = f"{target.arch.replace('-', '_')}-unknown-linux-gnu"
    return triple, target.cpu, ",".join(target.features)
