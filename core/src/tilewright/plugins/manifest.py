"""The manifest that a backend registers, and the data that passes between it and the runtime.

All of it is frozen data that checks itself: a malformed manifest raises :class:`ManifestError` and
disables its plugin alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from tilewright.errors import similar
from tilewright.ir import IR_VERSION, TABLE, Module, OpSpec
from tilewright.ir.table import OpTable
from tilewright.ir.types import FLOATS

# vendors: the documentation has kinds of devices and architectures for examples


class ManifestError(ValueError):
    """A manifest breaks a rule; the message names the field and the rule."""


def is_backend_name(name: object) -> bool:
    """Return whether a backend can have this name."""
    return isinstance(name, str) and re.fullmatch(r"[a-z][a-z0-9_-]*", name) is not None


def _frozen(label: str, mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(mapping, Mapping) or not all(isinstance(name, str) for name in mapping):
        raise ManifestError(f"{label} must be a mapping from strings, not {mapping!r}")
    return MappingProxyType(dict(mapping))


def _is_version(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and all(isinstance(item, int) for item in value)
    )


@dataclass(frozen=True)
class Capabilities:
    """Capabilities of a backend's targets.

    The runtime refuses a kernel that needs anything else
    (:mod:`tilewright.runtime.compiler.capability_check`), with an error that says what is missing;
    the conformance suite demands what is declared, and that refusal.

    Attributes:
        dtypes: element types of the IR by text (``"f32"``, ``"f8e4m3fn"``) that the backend loads,
            stores and computes with.
        dot: operand element type -> accumulator element types of ``dot``.
        dot_precisions: values of ``dot``'s ``precision`` that are honoured.
        min_dot: smallest (M, N, K) of a dot.
        orders: operation (``reduce``, ``scan``, ``dot``) -> values of its attribute ``order``
            that are honoured, beside ``any``.
        atomics: element type -> kinds of ``atomic_rmw`` (``cas`` stands for ``atomic_cas``).
        power_of_two: tile extents must be powers of two.
        max_tile_elements: the largest tile.
        features: further names: ``descriptors``, ``print``, ``assert``, ``inline_asm``, ``extern``
            (functions of the C library), ``extern_libraries`` (those of bitcode files that the
            launch option ``extern_libs`` names), ``dot_scaled``, ``noinline``, ``clock``,
            ``breakpoint``, ``implied_asserts`` (what the language implies, as that the step of a
            loop is positive, is asserted without debug mode too), ``cooperative`` (the launch
            option of this name: all programs of the grid run at once, or the launch is refused).
        remedies: feature that is not declared, but would be if something were installed -> what to
            do; the refusal says it.
    """

    dtypes: frozenset[str]
    dot: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dot_precisions: tuple[str, ...] = ("ieee",)
    min_dot: tuple[int, int, int] = (1, 1, 1)
    orders: Mapping[str, frozenset[str]] = field(default_factory=dict)
    atomics: Mapping[str, frozenset[str]] = field(default_factory=dict)
    power_of_two: bool = True
    max_tile_elements: int = 1 << 20
    features: frozenset[str] = frozenset()
    remedies: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from tilewright.ir.order import ORDERS
        from tilewright.ir.type_text import parse_type

        for label in ("dtypes", "features"):
            if not isinstance(getattr(self, label), frozenset):
                raise ManifestError(
                    f"capabilities: {label} must be a frozenset of strings, not "
                    f"{getattr(self, label)!r}"
                )
        object.__setattr__(self, "dot", _frozen("capabilities: dot", self.dot))
        object.__setattr__(self, "atomics", _frozen("capabilities: atomics", self.atomics))
        object.__setattr__(self, "orders", _frozen("capabilities: orders", self.orders))
        object.__setattr__(self, "remedies", _frozen("capabilities: remedies", self.remedies))
        for operation, orders in self.orders.items():
            if unknown := sorted(set(orders) - set(ORDERS)):
                raise ManifestError(
                    f"capabilities: orders of {operation} has {', '.join(map(repr, unknown))}; "
                    f"there are {', '.join(map(repr, ORDERS))}"
                )
        for name in (*self.dtypes, *self.dot, *self.atomics):
            try:
                parse_type(name)
            except ValueError as error:
                raise ManifestError(f"capabilities: {error}") from None
            except (TypeError, AttributeError):
                raise ManifestError(
                    f"capabilities: {name!r} is not the text of an element type"
                ) from None

    def __reduce__(self) -> tuple[Any, ...]:
        # a frozen mapping cannot be pickled; the new object freezes its own
        values = (getattr(self, item.name) for item in fields(self))
        return type(self), tuple(
            dict(value) if isinstance(value, Mapping) else value for value in values
        )

    @cached_property
    def key(self) -> str:
        """Return the text for cache keys: a digest, equal for equal capabilities everywhere."""
        parts: list[Any] = []
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, Mapping):
                value = sorted((name, sorted(inner)) for name, inner in value.items())
            parts.append(sorted(value) if isinstance(value, frozenset) else value)
        return hashlib.sha256(repr(parts).encode()).hexdigest()


#: Options every backend takes as launch keywords, with their defaults. A backend may ignore a hint
#: that means nothing to it. ``cooperative`` is no hint: it takes the feature of the same name,
#: without which the launch is refused. ``invariant``: a row's bits depend neither on the number of
#: rows nor on the other rows. Reductions and scans of any order take the order ``tree`` where the
#: backend has it, the backend chooses no code by extents that are known at run time alone, and
#: functions of Tile IR have the attribute ``contract = false``: no backend fuses their
#: multiplications with additions, whatever ``enable_fp_fusion`` is.
PORTABLE_OPTIONS: Mapping[str, Any] = MappingProxyType(
    {
        "num_warps": 4,
        "num_stages": 3,
        "num_ctas": 1,
        "maxnreg": None,
        "enable_fp_fusion": True,
        "debug": False,
        "sanitize_overflow": True,
        "cooperative": False,
        "invariant": False,
    }
)


#: Names below ``tl.extra`` that are the same for every backend.
SHARED_LANGUAGE = ("libdevice",)


@dataclass(frozen=True)
class Manifest:
    """A backend's self-description, returned by the hook ``tilewright_backend``.

    Attributes:
        name: how users ask for it: lower-case letters, digits, ``-`` and ``_``.
        version: the backend's own version.
        summary: one line for ``tilewright backends``.
        ir_versions: lowest and highest Tile IR version (major, minor) it accepts.
        device_kinds: kinds of devices it serves, in the terms of argument protocols (``"cpu"``,
            ``"cuda"``, ``"hip"``).
        targets: architectures it generates code for.
        capabilities: see :class:`Capabilities`; None where no target is available yet.
        options: launch options beyond :data:`PORTABLE_OPTIONS`, or other defaults for those, by
            name.
        ignored: launch options that change nothing in what ``tilewright_lower`` makes of a module:
            configurations of a tuning that differ in them alone are lowered once.
        language: modules of functions that kernels for its targets call: name below ``tl.extra`` ->
            the module's full name. A module is imported when a program first asks for it, on any
            machine: it must need neither driver nor compiler. Where several backends bring one
            name, the one of the highest priority is taken.
        host: the full name of a module of functions for programs that use its devices, which is
            then ``tilewright.NAME``, after the backend; imported when a program first asks for it.
            Empty where it brings none.
        ops: operations it adds to the table (dotted names).
        lowers: the operations that ``tilewright_lower`` takes. Others are decomposed before it,
            where the catalogue of decompositions has a way (``tilewright ops NAME``). Empty where
            nothing is to be decomposed.
        computes: the float types that it converts and computes in, f32 among them, by text.
            Arithmetic on the narrower ones that are not here is done in f32, and they are converted
            by operations on integers, so that it only moves them. Empty for all.
        priority: among backends that serve one device kind the highest is the default; equal ones
            go by name.
        status: why it cannot run anything now; empty where it can.
        emulator: the distribution that emulates its devices, for users to install; empty if there
            is none.
    """

    name: str
    version: str
    summary: str
    device_kinds: tuple[str, ...]
    targets: tuple[str, ...]
    capabilities: Capabilities | None = None
    ir_versions: tuple[tuple[int, int], tuple[int, int]] = ((IR_VERSION[0], 0), IR_VERSION)
    options: Mapping[str, Any] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    language: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    ops: tuple[OpSpec, ...] = ()
    lowers: frozenset[str] = frozenset()
    computes: frozenset[str] = frozenset()
    priority: int = 0
    status: str = ""
    emulator: str = ""

    def __post_init__(self) -> None:
        if not is_backend_name(self.name):
            raise ManifestError(
                f"name must be lower-case letters, digits, '-' and '_', not {self.name!r}"
            )
        for label in ("version", "summary"):
            if not isinstance(getattr(self, label), str) or not getattr(self, label):
                raise ManifestError(
                    f"{label} must be a non-empty string, not {getattr(self, label)!r}"
                )
        for label in ("device_kinds", "targets"):
            value = getattr(self, label)
            if not isinstance(value, tuple) or not all(isinstance(item, str) for item in value):
                raise ManifestError(f"{label} must be a tuple of strings, not {value!r}")
        if (
            not isinstance(self.ir_versions, tuple)
            or len(self.ir_versions) != 2
            or not all(map(_is_version, self.ir_versions))
        ):
            raise ManifestError(
                f"ir_versions must be two versions, each (major, minor), not {self.ir_versions!r}"
            )
        low, high = self.ir_versions
        if low > high:
            raise ManifestError(f"ir_versions must be (lowest, highest), not {self.ir_versions}")
        if not isinstance(self.priority, int) or not isinstance(self.status, str):
            raise ManifestError(
                f"priority must be an integer and status a string, not {self.priority!r} and "
                f"{self.status!r}"
            )
        if not isinstance(self.emulator, str):
            raise ManifestError(
                f"emulator must be the name of a distribution, not {self.emulator!r}"
            )
        if self.capabilities is not None and not isinstance(self.capabilities, Capabilities):
            raise ManifestError(f"capabilities must be a Capabilities, not {self.capabilities!r}")
        if self.capabilities is None and not self.status:
            raise ManifestError(
                "capabilities may be absent only where status says why nothing runs"
            )
        if not isinstance(self.ops, tuple) or not all(isinstance(op, OpSpec) for op in self.ops):
            raise ManifestError(f"ops must be a tuple of OpSpec, not {self.ops!r}")
        OpTable(()).extended(self.ops)
        self._check_decompositions()
        object.__setattr__(self, "language", _frozen("language", self.language))
        for name, module in self.language.items():
            if not name.isidentifier() or name.startswith("_") or name in SHARED_LANGUAGE:
                raise ManifestError(
                    f"language: {name!r} cannot be a name below tl.extra: it must be a public "
                    f"identifier other than {', '.join(SHARED_LANGUAGE)}"
                )
            if not isinstance(module, str) or not all(
                part.isidentifier() for part in module.split(".")
            ):
                raise ManifestError(
                    f"language: {name!r} must be the full name of a module, package.module, "
                    f"not {module!r}"
                )
        if not isinstance(self.host, str) or (
            self.host and not all(part.isidentifier() for part in self.host.split("."))
        ):
            raise ManifestError(
                "host must be the full name of a module, package.module, or empty, not "
                f"{self.host!r}"
            )
        object.__setattr__(
            self,
            "options",
            MappingProxyType({**PORTABLE_OPTIONS, **_frozen("options", self.options)}),
        )
        if not isinstance(self.ignored, frozenset) or not self.ignored <= self.options.keys():
            raise ManifestError(
                "ignored must be a frozenset of launch options, which are "
                f"{', '.join(self.options)}, not {self.ignored!r}"
            )

    def _check_decompositions(self) -> None:
        for label in ("lowers", "computes"):
            value = getattr(self, label)
            if not isinstance(value, frozenset) or not all(isinstance(item, str) for item in value):
                raise ManifestError(f"{label} must be a frozenset of strings, not {value!r}")
        unknown = self.lowers - {spec.name for spec in (*TABLE, *self.ops)}
        if unknown:
            near = similar(min(unknown), [spec.name for spec in TABLE])
            raise ManifestError(
                f"lowers: there is no operation {min(unknown)!r}; "
                f"{near or '`tilewright ops` lists them'}"
            )
        floats = {str(type_) for type_ in FLOATS}
        if self.computes and not {"f32"} <= self.computes <= floats:
            raise ManifestError(
                f"computes: it must have f32, and be of {', '.join(sorted(floats))}; it is "
                f"{', '.join(sorted(self.computes))}"
            )


@dataclass(frozen=True)
class Device:
    """A device that a backend found.

    ``properties`` holds what ``tilewright backends`` prints (cores, memory bytes, vector bits …).
    """

    backend: str
    kind: str
    index: int
    name: str
    properties: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (
            isinstance(self.kind, str)
            and isinstance(self.index, int)
            and isinstance(self.name, str)
        ):
            raise ManifestError(
                "a device has a kind, an index and a name: two strings around an integer, not "
                f"{self.kind!r}, {self.index!r}, {self.name!r}"
            )
        if not isinstance(self.properties, Mapping):
            raise ManifestError(
                f"properties of a device must be a mapping from strings, not {self.properties!r}"
            )


@dataclass(frozen=True)
class Target:
    """A target of code generation.

    Everything that changes the code is in here: the whole of it is part of cache keys.

    What kernels and options ask about their machine is answered from this, never from a backend's
    name.

    Attributes:
        backend: the name of the backend that generates the code.
        arch: one of the manifest's targets, for instance ``x86-64``. Kernels for devices of kind
            ``"cuda"`` read the compute capability from its first number (``sm_90a``, 9.0), those of
            kind ``"hip"`` compare it with names of LLVM (``gfx942``).
        kind: the kind of device, one of the manifest's ``device_kinds``.
        cpu: the exact model where code generation takes one.
        features: ISA features.
        warp_size: lanes that run in lockstep; 1 on a CPU.
        limits: resource limits by name (``shared_memory`` bytes, ``registers`` …).
        capabilities: what this target can do, where it differs from the manifest's; the runtime
            puts those in the place of None.
    """

    backend: str
    arch: str
    cpu: str = ""
    features: tuple[str, ...] = ()
    warp_size: int = 1
    limits: Mapping[str, int] = field(default_factory=dict)
    kind: str = field(kw_only=True)
    capabilities: Capabilities | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str) or not self.kind:
            raise ManifestError(
                f"kind of a target must be a kind of device, a non-empty string, not {self.kind!r}"
            )
        if self.capabilities is not None and not isinstance(self.capabilities, Capabilities):
            raise ManifestError(
                "capabilities of a target must be a Capabilities or None, not "
                f"{self.capabilities!r}"
            )
        if type(self.warp_size) is not int or self.warp_size < 1:
            raise ManifestError(
                f"warp_size of a target must be a positive integer, not {self.warp_size!r}"
            )
        if (
            not isinstance(self.arch, str)
            or not isinstance(self.cpu, str)
            or not isinstance(self.features, tuple)
        ):
            raise ManifestError(
                "a target has an arch and a cpu, strings, and a tuple of features, not "
                f"{self.arch!r}, {self.cpu!r}, {self.features!r}"
            )
        if not isinstance(self.limits, Mapping):
            raise ManifestError(
                f"limits of a target must be a mapping from strings, not {self.limits!r}"
            )

    @cached_property
    def key(self) -> str:
        """The text that goes into cache keys."""
        capabilities = "" if self.capabilities is None else self.capabilities.key
        limits = repr(sorted(self.limits.items()))
        return "|".join(
            (
                self.backend,
                self.kind,
                self.arch,
                self.cpu,
                ",".join(self.features),
                str(self.warp_size),
                limits,
                capabilities,
            )
        )


@dataclass
class CodeObject:
    """A lowered kernel: what the disk cache keeps.

    Attributes:
        name: the kernel's symbol.
        binary: what :func:`tilewright_load` loads (an object file, a cubin, source text in UTF-8
            …).
        stages: each stage's text or bytes by name, in order, for inspection (``tileir``, ``llir``,
            ``asm`` …).
        metadata: JSON-able facts the launcher needs (shared memory bytes, scratch bytes, num_warps
            …).
        timings: stage -> milliseconds.
    """

    name: str
    binary: bytes
    stages: dict[str, str | bytes] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.binary, bytes):
            raise ManifestError(
                "a code object has a name, a string, and a binary, bytes, not "
                f"{type(self.name).__name__} and {type(self.binary).__name__}"
            )
        for label, values, kinds in (
            ("stages", self.stages, (str, bytes)),
            ("timings", self.timings, (int, float)),
            ("metadata", self.metadata, object),
        ):
            if not isinstance(values, dict) or not all(
                isinstance(name, str) and isinstance(value, kinds) for name, value in values.items()
            ):
                allowed = {
                    "stages": "text or bytes",
                    "timings": "milliseconds",
                    "metadata": "JSON-able facts",
                }[label]
                raise ManifestError(
                    f"{label} of a code object must be a dict from names to {allowed}, not "
                    f"{values!r:.200}"
                )


@dataclass(frozen=True)
class Parameter:
    """A runtime parameter of a compiled kernel, as the launcher receives it.

    ``type`` is the IR type of the function's argument in text: ``ptr<f32>``, ``i32``, ``f32``,
    ``desc<64x64xf16>``. ``divisibility`` is what the code relies on: a launch with a less aligned
    argument is another specialisation. ``stored`` tells whether the kernel may write through a
    pointer or descriptor: the launcher must refuse a read-only array for it
    (:func:`tilewright.runtime.arguments.writability.write_guard`).
    """

    name: str
    type: str
    divisibility: int = 1
    stored: bool = True


@dataclass(frozen=True)
class CProgram:
    """Files with which C programs launch a kernel.

    Attributes:
        files: name -> content.
        link: the arguments of a C compiler, in the files' directory, that make a shared library of
            them; empty where that takes more than a C compiler.
    """

    files: Mapping[str, bytes]
    link: tuple[str, ...] = ()


#: Start a kernel: (grid of three, stream or None, argument values in parameter order). Values are
#: what the caller passed: tensors, ints, floats.
Launcher = Callable[[tuple[int, int, int], Any, tuple[Any, ...]], None]

#: Rewrites a module in place.
Pass = Callable[[Module], Any]


class Memory(Protocol):
    """A backend's memory of one device.

    Buffers to copy from and to are those of ``allocate``, and others' with ``data_ptr()`` and
    ``nbytes``.
    """

    def allocate(self, size: int, alignment: int) -> Any:
        """``size`` bytes; an object with ``data_ptr()`` that frees itself."""
        ...

    def copy_to_device(self, buffer: Any, data: memoryview) -> None: ...

    def copy_to_host(self, buffer: Any, data: memoryview) -> None: ...

    def synchronize(self) -> None:
        """Wait for all work of the device."""
        ...


class Timer(Protocol):
    """Times what runs on a device."""

    def measure(self, call: Callable[[], None], repetitions: int) -> list[float]:
        """Milliseconds of each repetition."""
        ...

    def flush_cache(self) -> None:
        """Drop the device's caches between repetitions."""
        ...


@runtime_checkable
class MomentTimer(Timer, Protocol):
    """A timer that also times what is not its own to call, such as launches that are profiled."""

    def mark(self, stream: int | None = None) -> object:
        """A moment in the work of a stream, the current one for None, without waiting for it."""
        ...

    def milliseconds_between(self, start: object, end: object) -> float:
        """The time from one moment to another, waiting for it."""
        ...

    def forget(self, *moments: object) -> None:
        """Let go of moments."""
        ...


class EmulatedDevice(Protocol):
    """A device that an emulator put in the place of hardware, in this process."""

    @property
    def error(self) -> Exception | None:
        """The fault that the emulator found in a kernel since the last :meth:`recover`."""
        ...

    def recover(self) -> None:
        """Clear the fault, so that kernels can be launched again."""
        ...
