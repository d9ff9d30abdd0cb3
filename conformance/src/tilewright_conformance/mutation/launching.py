"""Bugs around the kernel: grids, arguments, errors, caches, capabilities, timing, tuning."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.errors import LoweringError, TilewrightError
from tilewright.ir import Module
from tilewright.ir.type_text import parse_type
from tilewright.ir.types import FloatType, IntType
from tilewright.plugins.manifest import CodeObject, Launcher, Memory, Parameter, Timer
from tilewright_conformance.mutation.mutant import Grid, Healthy, Switch, Wrapper, disturbing
from tilewright_conformance.mutation.rewriting import copy_of
from tilewright_conformance.suite.requirements import needs_of

Values = tuple[Any, ...]
Parameters = tuple[Parameter, ...]


# ---- grids and arguments


def _without_z(grid: Grid, values: Values, parameters: Parameters) -> tuple[Grid, Values]:
    return (grid[0], grid[1], min(grid[2], 1)), values


def _without_y(grid: Grid, values: Values, parameters: Parameters) -> tuple[Grid, Values]:
    return (grid[0], min(grid[1], 1), grid[2]), values


def _at_least_one(grid: Grid, values: Values, parameters: Parameters) -> tuple[Grid, Values]:
    return (max(grid[0], 1), max(grid[1], 1), max(grid[2], 1)), values


def _each_scalar(
    change: Callable[[Any, IntType | FloatType, int], Any],
) -> Callable[[Grid, Values, Parameters], tuple[Grid, Values]]:
    """``change(value, type, position)`` for every argument that is a number."""

    def disturb(grid: Grid, values: Values, parameters: Parameters) -> tuple[Grid, Values]:
        changed = list(values)
        for position, parameter in enumerate(parameters):
            type_ = parse_type(parameter.type)
            if isinstance(type_, IntType | FloatType) and position < len(changed):
                changed[position] = change(changed[position], type_, position)
        return grid, tuple(changed)

    return disturb


def _32_bits(value: Any, type_: IntType | FloatType, position: int) -> Any:
    return (
        IntType(32, type_.signed).wrap(int(value))
        if isinstance(type_, IntType) and type_.bits == 64
        else value
    )


def _half(value: Any, type_: IntType | FloatType, position: int) -> Any:
    if not isinstance(type_, FloatType) or type_.bits < 32:
        return value
    with np.errstate(over="ignore"):
        return float(np.float16(value))


def _true(value: Any, type_: IntType | FloatType, position: int) -> Any:
    return True if type_.bits == 1 else value


def _zero_from_17th(value: Any, type_: IntType | FloatType, position: int) -> Any:
    return value if position < 16 else type(value)(0)


def _zero_extended(value: Any, type_: IntType | FloatType, position: int) -> Any:
    """A small negative integer as the positive one of its bits."""
    if isinstance(type_, IntType) and type_.signed and type_.bits == 64:
        return int(value) & 0xFFFFFFFF if -(1 << 31) <= int(value) < 0 else value
    return value


def _first_values(
    healthy: Healthy, *, loaded: Any, parameters: Sequence[Parameter], options: Mapping[str, Any]
) -> Launcher:
    """Numbers of the first launch in all later ones."""
    start = healthy("tilewright_launcher", loaded=loaded, parameters=parameters, options=options)
    numbers = [
        position
        for position, parameter in enumerate(parameters)
        if not parameter.type.startswith(("ptr", "desc"))
    ]
    first: dict[int, Any] = {}

    def launch(grid: Grid, stream: Any, values: Values) -> None:
        changed = list(values)
        for position in numbers:
            changed[position] = first.setdefault(position, changed[position])
        start(grid, stream, tuple(changed))

    return launch


def _first_grid(
    healthy: Healthy, *, loaded: Any, parameters: Sequence[Parameter], options: Mapping[str, Any]
) -> Launcher:
    start = healthy("tilewright_launcher", loaded=loaded, parameters=parameters, options=options)
    known: list[Grid] = []

    def launch(grid: Grid, stream: Any, values: Values) -> None:
        known.append(grid)
        start(
            (min(grid[0], known[0][0]), min(grid[1], known[0][1]), min(grid[2], known[0][2])),
            stream,
            values,
        )

    return launch


def _deferred(
    healthy: Healthy, *, loaded: Any, parameters: Sequence[Parameter], options: Mapping[str, Any]
) -> Launcher:
    """A launch starts when the next one is asked for, of any kernel."""
    start = healthy("tilewright_launcher", loaded=loaded, parameters=parameters, options=options)
    waiting: list[Callable[[], None]] = healthy.kept.setdefault("waiting", [])

    def launch(grid: Grid, stream: Any, values: Values) -> None:
        while waiting:
            waiting.pop(0)()
        waiting.append(lambda: start(grid, stream, values))

    return launch


def _not_again(
    healthy: Healthy, *, loaded: Any, parameters: Sequence[Parameter], options: Mapping[str, Any]
) -> Launcher:
    """Nothing runs where the values of the launch before are given again."""
    start = healthy("tilewright_launcher", loaded=loaded, parameters=parameters, options=options)
    last: list[Any] = []

    def launch(grid: Grid, stream: Any, values: Values) -> None:
        same = (grid, [id(value) for value in values])
        if last == [same]:
            return
        last[:] = [same]
        start(grid, stream, values)

    return launch


def _silent(
    healthy: Healthy, *, loaded: Any, parameters: Sequence[Parameter], options: Mapping[str, Any]
) -> Launcher:
    start = healthy("tilewright_launcher", loaded=loaded, parameters=parameters, options=options)

    def launch(grid: Grid, stream: Any, values: Values) -> None:
        with contextlib.suppress(TilewrightError):
            start(grid, stream, values)

    return launch


def _unguarded(
    healthy: Healthy, *, loaded: Any, parameters: Sequence[Parameter], options: Mapping[str, Any]
) -> Launcher:
    unguarded = tuple(dataclasses.replace(parameter, stored=False) for parameter in parameters)
    launcher: Launcher = healthy(
        "tilewright_launcher", loaded=loaded, parameters=unguarded, options=options
    )
    return launcher


# ---- code and its caches


def _without_numbers(module: Module) -> str:
    """The module's text, as if all its constants were zero."""
    copy = copy_of(module)
    for operation in copy.walk():
        if operation.name == "constant":
            operation.attributes["value"] = type(operation.attributes["value"])(0)
        operation.location = None
    return str(copy)


def _key_without_numbers(
    healthy: Healthy, *, module: Module, target: Any, options: Mapping[str, Any]
) -> CodeObject:
    key = _without_numbers(module)
    if key not in healthy.kept:
        healthy.kept[key] = healthy(
            "tilewright_lower", module=module, target=target, options=options
        )
    found: CodeObject = healthy.kept[key]
    return found


def _always_fused(
    healthy: Healthy, *, module: Module, target: Any, options: Mapping[str, Any]
) -> CodeObject:
    code: CodeObject = healthy(
        "tilewright_lower",
        module=module,
        target=target,
        options={**options, "enable_fp_fusion": True},
    )
    return code


def _refusing(name: str, is_meant: Callable[[Module], bool]) -> Wrapper:
    """Lowering that refuses what ``is_meant`` though the manifest declares it."""

    def lower(
        healthy: Healthy, *, module: Module, target: Any, options: Mapping[str, Any]
    ) -> CodeObject:
        if is_meant(module):
            raise LoweringError(f"{name} are not supported")
        code: CodeObject = healthy(
            "tilewright_lower", module=module, target=target, options=options
        )
        return code

    return lower


def _has_f64(module: Module) -> bool:
    return not needs_of(module).dtypes.isdisjoint({"f64", "u16"})


def _has_features(module: Module) -> bool:
    return not needs_of(module).features.isdisjoint({"descriptors", "print"})


# ---- memory, time, tuning


class _ShortCopies:
    """Memory whose copies to the host leave out the last byte."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def copy_to_host(self, buffer: Any, data: memoryview) -> None:
        if data.nbytes:
            self._memory.copy_to_host(buffer, data.cast("B")[:-1])


class _Unaligned:
    """Memory that starts a byte behind the alignment asked for."""

    class Buffer:
        def __init__(self, buffer: Any) -> None:
            self.whole = buffer

        def data_ptr(self) -> int:
            return int(self.whole.data_ptr()) + 1

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def allocate(self, size: int, alignment: int) -> Any:
        return self.Buffer(self._memory.allocate(size + 1, alignment))

    def copy_to_device(self, buffer: Any, data: memoryview) -> None:
        self._memory.copy_to_device(buffer.whole, memoryview(b"\0" + bytes(data)))

    def copy_to_host(self, buffer: Any, data: memoryview) -> None:
        found = bytearray(data.nbytes + 1)
        self._memory.copy_to_host(buffer.whole, memoryview(found))
        data.cast("B")[:] = found[1:]


class _Stopped:
    """A timer that runs everything once and measures nothing."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer

    def measure(self, call: Callable[[], None], repetitions: int) -> list[float]:
        self._timer.measure(call, 1)
        return [1.0] * repetitions

    def flush_cache(self) -> None:
        self._timer.flush_cache()


def _made_of(hook: str, make: Callable[[Any], Any]) -> Wrapper:
    return lambda healthy, *, device: make(healthy(hook, device=device))


def _nothing_left(
    healthy: Healthy, *, configurations: Sequence[Mapping[str, Any]], **others: Any
) -> Sequence[Mapping[str, Any]]:
    return []


def _invented(
    healthy: Healthy, *, configurations: Sequence[Mapping[str, Any]], **others: Any
) -> Sequence[Mapping[str, Any]]:
    """Configurations that nobody offered in place of those that were."""
    return [
        {
            name: value * 2 if isinstance(value, int) and not isinstance(value, bool) else value
            for name, value in one.items()
        }
        for one in healthy("tilewright_prune", configurations=configurations, **others)
    ]


def _no_number(healthy: Healthy, *, configuration: Mapping[str, Any], **others: Any) -> float:
    return float("nan")


def _one(
    name: str, bug_class: str, hook: str, wrapper: Wrapper, description: str, operations: str = ""
) -> Switch:
    return Switch(name, bug_class, description, {hook: wrapper}, tuple(operations.split()))


SWITCHES: tuple[Switch, ...] = (
    disturbing(
        "grid-y-ignored",
        "grid",
        _without_y,
        "the second extent of a grid counts as one",
        "program_id",
    ),
    disturbing(
        "grid-z-ignored",
        "grid",
        _without_z,
        "the third extent of a grid counts as one",
        "program_id",
    ),
    disturbing("zero-grid-launches", "grid", _at_least_one, "a grid with a zero runs one program"),
    disturbing(
        "scalar-32-bits",
        "arguments",
        _each_scalar(_32_bits),
        "64-bit integer arguments are cut down to 32 bits",
    ),
    disturbing(
        "scalar-not-sign-extended",
        "arguments",
        _each_scalar(_zero_extended),
        "negative 64-bit arguments are passed as 32 bits widened with zeros",
    ),
    disturbing(
        "float-argument-half",
        "arguments",
        _each_scalar(_half),
        "f32 and f64 arguments are rounded to f16",
    ),
    disturbing(
        "boolean-argument-true",
        "arguments",
        _each_scalar(_true),
        "boolean arguments are true, as an integer whose padding is read with it",
    ),
    disturbing(
        "late-scalar-zero",
        "arguments",
        _each_scalar(_zero_from_17th),
        "numbers from the 17th argument on are zero",
    ),
    _one(
        "stale-scalars",
        "stale plan",
        "tilewright_launcher",
        _first_values,
        "later launches of a kernel get the numbers of the first one",
    ),
    _one(
        "stale-grid",
        "stale plan",
        "tilewright_launcher",
        _first_grid,
        "later launches of a kernel run on no larger grid than the first one",
    ),
    _one(
        "repeated-launch-skipped",
        "stale plan",
        "tilewright_launcher",
        _not_again,
        "a launch with the arguments of the one before does nothing",
    ),
    _one(
        "launch-deferred",
        "missing synchronisation",
        "tilewright_launcher",
        _deferred,
        "a launch starts only when the next one is asked for",
    ),
    _one(
        "error-swallowed",
        "error swallowed",
        "tilewright_launcher",
        _silent,
        "a launch that fails says nothing",
        "assert",
    ),
    _one(
        "read-only-stored",
        "error swallowed",
        "tilewright_launcher",
        _unguarded,
        "a kernel may store to a read-only array",
    ),
    _one(
        "stale-code",
        "stale cache key",
        "tilewright_lower",
        _key_without_numbers,
        "kernels that differ only in constants share the code of the first one",
    ),
    _one(
        "fusion-not-disabled",
        "option ignored",
        "tilewright_lower",
        _always_fused,
        "multiplications and additions are fused though enable_fp_fusion is False",
    ),
    _one(
        "declared-dtype-refused",
        "capabilities",
        "tilewright_lower",
        _refusing("f64 and u16", _has_f64),
        "f64 and u16 are declared, and refused",
    ),
    _one(
        "declared-feature-refused",
        "capabilities",
        "tilewright_lower",
        _refusing("descriptors and prints", _has_features),
        "descriptors and print are declared, and refused",
    ),
    _one(
        "memory-copy-short",
        "memory",
        "tilewright_memory",
        _made_of("tilewright_memory", _ShortCopies),
        "copies to the host leave out the last byte",
    ),
    _one(
        "memory-unaligned",
        "memory",
        "tilewright_memory",
        _made_of("tilewright_memory", _Unaligned),
        "memory is not aligned as asked",
    ),
    _one(
        "timer-stopped",
        "autotuning",
        "tilewright_timer",
        _made_of("tilewright_timer", _Stopped),
        "the timer calls once, and measures a millisecond whatever runs",
    ),
    _one(
        "prune-drops-all",
        "autotuning",
        "tilewright_prune",
        _nothing_left,
        "pruning leaves no configuration",
    ),
    _one(
        "prune-invents",
        "autotuning",
        "tilewright_prune",
        _invented,
        "pruning returns configurations that nobody offered",
    ),
    _one(
        "cost-not-a-number",
        "autotuning",
        "tilewright_cost",
        _no_number,
        "the cost of every configuration is NaN",
    ),
)
