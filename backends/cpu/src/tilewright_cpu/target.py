"""The host: its instruction set, caches and cores, and the target code is generated for."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
from pathlib import Path

from tilewright.errors import BackendError
from tilewright.plugins.manifest import Device, Target

#: (architecture, what a feature means for vectors): the first that the host has gives the width in bits.
_VECTOR_BITS: dict[str, tuple[tuple[str, int], ...]] = {
    "x86-64": (("avx512f", 512), ("avx", 256), ("sse2", 128)),
    "aarch64": (("neon", 128),),
}

_X86_64_V2 = ("cmov", "cx8", "cx16", "fxsr", "mmx", "popcnt", "sahf", "sse", "sse2", "sse3", "ssse3", "sse4.1", "sse4.2")
_X86_64_V3 = (*_X86_64_V2, "avx", "avx2", "bmi", "bmi2", "crc32", "f16c", "fma", "lzcnt", "movbe", "xsave")
_X86_64_V4 = (*_X86_64_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
#: Levels of the x86-64 psABI that code may be limited to, for machines of a fleet that share one cache or to try a narrower instruction set.
LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64": ("cmov", "cx8", "fxsr", "mmx", "sse", "sse2"),
    "x86-64-v2": _X86_64_V2,
    "x86-64-v3": _X86_64_V3,
    "x86-64-v4": _X86_64_V4,
}

_DEFAULT_CACHES = {"l1d_bytes": 32 << 10, "l2_bytes": 1 << 20, "l3_bytes": 8 << 20}


def architecture(triple: str) -> str:
    """The target's name for an LLVM triple: ``x86-64``, ``aarch64``, else the triple's own first word."""
    word = triple.split("-", 1)[0]
    return {"x86_64": "x86-64", "amd64": "x86-64", "arm64": "aarch64"}.get(word, word)


def vector_bits(arch: str, features: tuple[str, ...]) -> int:
    """The width of the widest vector registers, from features spelled ``+avx2`` or ``-avx2``."""
    return next((bits for name, bits in _VECTOR_BITS.get(arch, ()) if f"+{name}" in features), 128)


@functools.cache
def caches() -> dict[str, int]:
    """Sizes in bytes of the first core's data caches, with usual ones where the system does not tell."""
    found = dict(_DEFAULT_CACHES)
    if sys.platform == "darwin":
        for name, key in (("l1d_bytes", "hw.l1dcachesize"), ("l2_bytes", "hw.l2cachesize"), ("l3_bytes", "hw.l3cachesize")):
            value = _sysctl(key)
            if value.isdigit() and int(value):
                found[name] = int(value)
        return found
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction" and size[:-1].isdigit():
            found["l1d_bytes" if level == "1" else f"l{level}_bytes"] = int(size[:-1]) * {"K": 1 << 10, "M": 1 << 20}.get(size[-1], 1)
    return found


def _sysctl(key: str) -> str:
    try:
        return subprocess.run(["sysctl", "-n", key], capture_output=True, text=True, timeout=5, check=False).stdout.strip()
    except OSError:
        return ""


@functools.cache
def model_name() -> str:
    """What the processor calls itself."""
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
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def devices() -> list[Device]:
    """The host, as the one device of this backend. Properties: cores, vector_bits, l1d_bytes, l2_bytes, l3_bytes, llvm_cpu."""
    target = host()
    properties = {"cores": available_cores(), **target.limits, "llvm_cpu": target.cpu, "arch": target.arch}
    return [Device("cpu", "cpu", 0, model_name(), properties)]


def host() -> Target:
    """The target of this machine, or of the level named by ``TILEWRIGHT_CPU_LEVEL`` (``x86-64`` to ``x86-64-v4``), which the machine must have.

    ``limits`` has what code generation depends on: ``vector_bits`` and the cache sizes.

    Raises:
        BackendError: the machine lacks the level.
    """
    return _host(os.environ.get("TILEWRIGHT_CPU_LEVEL", ""))


@functools.cache
def _host(level: str) -> Target:
    from tilewright.llvm.compile import host_target

    triple, cpu, text = host_target()
    arch, features = architecture(triple), tuple(text.split(",")) if text else ()
    if level:
        if level not in LEVELS or arch != "x86-64":
            raise BackendError(f"TILEWRIGHT_CPU_LEVEL must be one of {', '.join(LEVELS)} on an x86-64 host, not {level!r} on {arch}")
        missing = [name for name in LEVELS[level] if f"-{name}" in features]
        if missing:
            raise BackendError(f"TILEWRIGHT_CPU_LEVEL={level}: this machine lacks {', '.join(missing)}")
        cpu, features = level, tuple(f"+{name}" for name in LEVELS[level])
    return Target("cpu", arch, cpu, features, 1, {"vector_bits": vector_bits(arch, features), **caches()}, kind="cpu")


def llvm_target(target: Target) -> tuple[str, str, str]:
    """(triple, cpu, features) for :mod:`tilewright.llvm.compile`."""
    from tilewright.llvm.compile import host_target

    return host_target()[0], target.cpu, ",".join(target.features)
