"""The checked mode's observer: it sees every operation and access and records findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import LaunchError
from tilewright.ir.core import Module, Operation, Value
from tilewright.ir.ops.control import Condition, For, If, While, Yield
from tilewright.ir.ops.debug import Assume
from tilewright.ir.ops.memory import (
    ATOMICS,
    AtomicLoad,
    AtomicRmw,
    AtomicStore,
    DescriptorBlocks,
    DescriptorReduce,
    DescriptorRows,
    DescriptorScatter,
    DescriptorStore,
    Load,
)
from tilewright.ir.ops.shape import Gather
from tilewright.ir.types import element_type, shape_of
from tilewright.reference.checks import undefined_lanes, value_checks
from tilewright.reference.checks.argument_overlaps import Overlaps
from tilewright.reference.checks.checked_mode import CheckedOptions, CheckError, Finding
from tilewright.reference.checks.shadow_memory import Shadow
from tilewright.reference.checks.vector_clocks import Clocks
from tilewright.reference.failures import program_coordinates, where
from tilewright.reference.memory.buffers import ArgumentBuffer
from tilewright.reference.memory.memory import ArgumentMemory
from tilewright.reference.numerics import Array
from tilewright.reference.operations import access
from tilewright.reference.operations.arithmetic import Meaning
from tilewright.reference.provenance import Provenance, synchronizes
from tilewright.reference.values import Tracked, expanded

if TYPE_CHECKING:
    from tilewright.reference.frame import Frame

#: Operands that must be defined: operation -> ((group, what it is, the group whose mask says where
#: it counts), ...).
_SINKS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "load": (("pointer", "the address of a load", "mask"), ("mask", "the mask of a load", "")),
    "store": (
        ("pointer", "the address of a store", "mask"),
        ("mask", "the mask of a store", ""),
        ("value", "a store", "mask"),
    ),
    "atomic_rmw": (
        ("pointer", "the address of an atomic", "mask"),
        ("mask", "the mask of an atomic", ""),
        ("value", "an atomic", "mask"),
    ),
    "atomic_load": (
        ("pointer", "the address of an atomic", "mask"),
        ("mask", "the mask of an atomic", ""),
    ),
    "atomic_store": (
        ("pointer", "the address of an atomic", "mask"),
        ("mask", "the mask of an atomic", ""),
        ("value", "an atomic", "mask"),
    ),
    "atomic_cas": (
        ("pointer", "the address of an atomic", ""),
        ("compare", "an atomic", ""),
        ("value", "an atomic", ""),
    ),
    "make_descriptor": (
        ("base", "the address of a descriptor", ""),
        ("shape", "the shape of a descriptor", ""),
        ("strides", "the strides of a descriptor", ""),
    ),
    "descriptor_load": (("offsets", "the address of a load", ""),),
    "descriptor_store": (("offsets", "the address of a store", ""), ("value", "a store", "block")),
    "descriptor_reduce": (
        ("offsets", "the address of an atomic", ""),
        ("value", "an atomic", "block"),
    ),
    "descriptor_gather": (
        ("rows", "the address of a load", ""),
        ("column", "the address of a load", ""),
    ),
    "descriptor_scatter": (
        ("rows", "the address of a store", ""),
        ("column", "the address of a store", ""),
        ("value", "a store", "rows"),
    ),
    "assert": (
        ("condition", "the condition of an assert", "mask"),
        ("mask", "the mask of an assert", ""),
    ),
    "assume": (("condition", "the condition of an assume", ""),),
}

#: Why an operation left a value undefined, where that is not its mask.
_CAUSES = {
    "gather": "it is out of range in",
    **dict.fromkeys(("div", "rem"), "it is divided by zero, for a lane that was masked off, in"),
    **dict.fromkeys(
        ("shl", "shr"), "it is shifted out of range, by a lane that was masked off, in"
    ),
    "cast": "it is out of the integer's range in",
}


class Checker:
    """Checker of one run.

    ``buffers`` has the memory of the arguments by position, ``names`` the name of every argument.
    ``in_turns`` says that programs take turns.
    """

    def __init__(
        self,
        options: CheckedOptions,
        module: Module,
        grid: tuple[int, int, int],
        memory: ArgumentMemory,
        buffers: dict[int, ArgumentBuffer],
        names: Sequence[str],
        in_turns: bool = False,
    ) -> None:
        self.options, self.grid, self.memory, self.buffers, self.names = (
            options,
            grid,
            memory,
            buffers,
            names,
        )
        self.provenance = Provenance(module)
        self.synchronizes = options.races and synchronizes(module)
        self.findings: dict[tuple[str, Operation, str | None], Finding] = {}
        self.clocks = Clocks(grid[0] * grid[1] * grid[2], in_turns) if self.synchronizes else None
        self.overlaps = Overlaps(buffers) if options.overlaps else None
        empty = [buffers[index].own for index in _positions(options.uninitialized, names, buffers)]
        self.shadows = [
            Shadow(
                block.start,
                block.end,
                [(low, high) for low, high in empty if block.start <= low < high <= block.end],
                self.clocks,
            )
            for block in memory.blocks
        ]
        #: operations that left lanes undefined, or accessed memory, by their number less one
        self._sites: list[tuple[Operation, list[Any]]] = []
        self._numbers: dict[Operation, int] = {}

    def finish(self) -> None:
        """Raise what was found, if anything was."""
        if self.findings:
            raise CheckError(list(self.findings.values()))

    def report(
        self,
        frame: Frame,
        operation: Operation,
        kind: str,
        message: str,
        bad: NDArray[np.bool_],
        argument: str | None = None,
    ) -> None:
        """Keep a finding for the lanes in ``bad``, one per operation and kind.

        ``bad`` is an array of the operation's tile, or of that for each row.
        """
        key = (kind, operation, argument)
        if key in self.findings:
            return
        shaped = _shaped(operation)
        rank = len(shape_of(shaped.type)) if shaped is not None else 0
        where_bad = np.argwhere(bad if bad.ndim > rank else bad[np.newaxis])
        row, *lane = (int(i) for i in where_bad[0])
        self.findings[key] = Finding(
            kind,
            message,
            operation.location,
            tuple(frame.calls()),
            frame.coordinates(row),
            tuple(lane),
            argument,
            len(where_bad),
        )
        if len(self.findings) >= self.options.limit:
            raise CheckError(list(self.findings.values()), complete=False)

    def _number(self, frame: Frame, operation: Operation) -> int:
        """Return an operation's number, from 1, for origins of undefined lanes and access sites."""
        found = self._numbers.get(operation)
        if found is None:
            self._sites.append((operation, frame.calls()))
            found = self._numbers[operation] = len(self._sites)
        return found

    def _site(self, number: int) -> str:
        operation, calls = self._sites[number - 1]
        return f"the {operation.name} at {where(operation.location, calls)}"

    # -- operations --------------------------------------------------------------------------------

    def run(self, frame: Frame, operation: Operation, meaning: Meaning, operands: list[Any]) -> Any:
        """Check an operation's operands, compute it, and mark the undefined lanes of its result."""
        arrays = [
            [_array(x) for x in operand] if isinstance(operand, list) else _array(operand)
            for operand in operands
        ]
        origins = [
            [_origins(x) for x in operand] if isinstance(operand, list) else _origins(operand)
            for operand in operands
        ]
        tracked = any(
            any(x is not None for x in origin) if isinstance(origin, list) else origin is not None
            for origin in origins
        )
        if tracked and operation.name in _SINKS:
            self._sink(frame, operation, arrays, origins)
        spoilt = None
        for option, kind, message, check in value_checks.CHECKS.get(operation.name, ()):
            if getattr(self.options, option):
                bad = check(operation, *arrays)
                if bad is not None and bad.any():
                    origin = undefined_lanes.union(*origins)
                    if origin is not None:
                        # a masked-off lane does no harm unless it matters what comes of it:
                        # then it is undefined
                        excused = (origin > 0) | (
                            (origin < 0) & (not isinstance(operation, Assume))
                        )
                        spoilt = bad & (origin < 0) if option == "arithmetic" else spoilt
                        bad = bad & ~excused
                    if bad.any():
                        self.report(frame, operation, kind, message, bad)
        result = meaning(frame, operation, *arrays)
        if not (self.options.undefined or self.options.masked_off):
            return result
        left = (
            undefined_lanes.rule_of(operation)(frame, operation, meaning, arrays, origins)
            if tracked
            else None
        )
        fresh = self._left_undefined(frame, operation, arrays)
        if spoilt is not None:
            fresh = undefined_lanes.union(
                fresh, np.where(spoilt, np.int32(self._number(frame, operation)), np.int32(0))
            )
        if isinstance(left, tuple):
            return tuple(_tracked(part, origin) for part, origin in zip(result, left, strict=True))
        return _tracked(result, undefined_lanes.union(left, fresh))

    def _left_undefined(self, frame: Frame, operation: Operation, arrays: list[Any]) -> Any:
        """Return the lanes that an operation itself leaves undefined or masked off."""
        if isinstance(operation, Load):
            missing = None if arrays[1] is None or arrays[2] is not None else ~arrays[1]
            return (
                None
                if missing is None or not missing.any()
                else np.where(missing, np.int32(-self._number(frame, operation)), np.int32(0))
            )
        if isinstance(operation, AtomicRmw):
            missing = None if arrays[2] is None else ~arrays[2]
        elif isinstance(operation, AtomicLoad):
            missing = None if arrays[1] is None else ~arrays[1]
        elif isinstance(operation, Gather):
            missing = value_checks.index_out_of_range(operation, *arrays)
        else:
            missing = None
        if missing is None or not missing.any():
            return None
        return np.where(missing, np.int32(self._number(frame, operation)), np.int32(0))

    def _sink(
        self, frame: Frame, operation: Operation, arrays: list[Any], origins: list[Any]
    ) -> None:
        groups = {
            declared.name: position for position, declared in enumerate(operation.spec.operands)
        }
        for name, what, mask_name in _SINKS[operation.name]:
            found = origins[groups[name]]
            for origin in found if isinstance(found, list) else [found]:
                if origin is None:
                    continue
                if mask_name == "block":
                    assert isinstance(operation, DescriptorBlocks)
                    mask = access.block_elements(operation, arrays[0], arrays[groups["offsets"]])[1]
                elif mask_name == "rows":
                    assert isinstance(operation, DescriptorRows)
                    mask = access.row_elements(
                        operation, arrays[0], arrays[groups["rows"]], arrays[groups["column"]]
                    )[1]
                else:
                    mask = arrays[groups[mask_name]] if mask_name else None
                self._undefined(
                    frame,
                    operation,
                    origin if mask is None else np.where(mask, origin, np.int32(0)),
                    what,
                )

    def decided(self, frame: Frame, operation: Operation, value: Tracked, what: str) -> Array:
        """The array of a value that control flow hangs on; a finding where it is undefined."""
        self._undefined(frame, operation, value.origins, what)
        return value.array

    def _undefined(self, frame: Frame, operation: Operation, origins: Array, what: str) -> None:
        bad = origins > 0
        if self.options.undefined and bad.any():
            number = int(origins[bad].flat[0] if origins.ndim else origins)
            cause = _CAUSES.get(self._sites[number - 1][0].name, "its lane is masked off in")
            source = f"{cause} {self._site(number)}"
            self.report(
                frame,
                operation,
                "undefined-value",
                f"an undefined value reaches {what}: {source}",
                bad,
            )
        masked_off = origins < 0
        if self.options.masked_off and masked_off.any():
            number = -int(origins[masked_off].flat[0] if origins.ndim else origins)
            message = (
                f"a zero that nobody wrote reaches {what}: its lane is masked off in "
                f"{self._site(number)}, which has no other"
            )
            self.report(frame, operation, "masked-off-lane", message, masked_off)

    # -- accesses ----------------------------------------------------------------------------------

    def access(
        self,
        frame: Frame,
        operation: Operation,
        kind: str,
        addresses: Array,
        mask: Array | None,
        size: int,
        rank: int,
        argument: int | None,
    ) -> Array | None:
        """Check the accesses of an operation; return the mask without the invalid ones."""
        shape = np.broadcast_shapes(addresses.shape, () if mask is None else mask.shape)
        uniform = len(shape) == rank
        full = (frame.rows, *shape) if uniform else shape
        chosen = np.ones(full, dtype=np.bool_) if mask is None else np.broadcast_to(mask, full)
        lanes = np.flatnonzero(chosen)
        flat = np.broadcast_to(addresses, full)[chosen]
        if not lanes.size:
            return mask
        if argument is None:
            address, *_ = operation.operands
            argument = self.provenance.only(address)
        inside, name = self._inside(flat, size, argument)
        if not inside.all():
            bad = np.zeros(full, dtype=np.bool_)
            bad.flat[lanes[~inside]] = True
            owner = f" argument {name}" if name else " every argument"
            message = (
                f"{operation.name} outside{owner}: "
                f"{self._distance(int(flat[~inside][0]), size, argument)}"
            )
            self.report(frame, operation, "out-of-bounds", message, bad, name)
            chosen = chosen & ~bad
            mask = chosen[0] if uniform and frame.rows == 1 else chosen
            lanes, flat = lanes[inside], flat[inside]
        if lanes.size:
            if self.overlaps is not None and argument is not None:
                self._overlap(frame, operation, kind, flat, lanes, size, full, argument)
            rows = lanes // max(1, int(np.prod(full[1:])))
            self._watch(frame, operation, kind, flat, lanes, frame.pids[rows], size, full, name)
        return mask

    def _overlap(
        self,
        frame: Frame,
        operation: Operation,
        kind: str,
        addresses: NDArray[np.int64],
        lanes: NDArray[np.intp],
        size: int,
        full: tuple[int, ...],
        argument: int,
    ) -> None:
        """Report accesses to what another argument, which overlaps this one, was accessed for."""
        assert self.overlaps is not None
        found = self.overlaps.meets(argument, kind, addresses, size)
        if found is None:
            return
        met, other = found
        bad = np.zeros(full, dtype=np.bool_)
        bad.flat[lanes[met]] = True
        done = "read" if kind in ("read", "peek") else "written"
        message = (
            f"{operation.name} through {self.names[argument]}: what is {done} is accessed through "
            f"{self.names[other]} too, which is another part of the same array; in which order "
            "is not defined"
        )
        self.report(frame, operation, "overlapping-arguments", message, bad, self.names[argument])

    def _inside(
        self, addresses: NDArray[np.int64], size: int, argument: int | None
    ) -> tuple[NDArray[np.bool_], str | None]:
        """Return a mask of the accesses within the argument that the address came from.

        Where that is not known, any argument counts.
        """
        inside = self.memory.inside(addresses, size)
        if argument is None or self.buffers[argument].own == (0, 0):
            return inside, None
        low, high = self.buffers[argument].own
        return inside & (addresses >= low) & (addresses <= high - size), self.names[argument]

    def _distance(self, address: int, size: int, argument: int | None) -> str:
        """Say where an access of ``size`` bytes lies with respect to its argument."""
        if argument is None or self.buffers[argument].own == (0, 0):
            return self.memory.nearest(address)
        low, high = self.buffers[argument].own
        if address < low:
            return f"{low - address} bytes before its first of {high - low} bytes"
        first = address - low
        touched = f"bytes {first} to {first + size - 1}" if size > 1 else f"byte {first}"
        return f"{touched}, but its last is {high - low - 1}" if low < high else "it is empty"

    def _watch(
        self,
        frame: Frame,
        operation: Operation,
        kind: str,
        addresses: NDArray[np.int64],
        lanes: NDArray[np.intp],
        programs: NDArray[np.int64],
        size: int,
        full: tuple[int, ...],
        name: str | None,
    ) -> None:
        """Follow accesses, all of them inside, in the shadow of their blocks."""
        order = (
            operation.order
            if isinstance(operation, ATOMICS)
            else "acq_rel"
            if kind == "atomic"
            else ""
        )
        if isinstance(operation, Load) and operation.volatile:
            kind, order = "peek", "acquire"
        if self.clocks is not None:
            self.clocks.enter(int(programs[0]))
        place = np.searchsorted(self.memory.starts, addresses, side="right") - 1
        for index in np.unique(place):
            chosen = place == index
            shadow = self.shadows[index]
            granules, each = shadow.granules(addresses[chosen], size)
            self._check_written(
                frame, operation, kind, shadow, granules, each, lanes[chosen], full, name
            )
            if not self.options.races:
                continue
            if (
                self.clocks is not None
                and order in ("acquire", "acq_rel")
                and shadow.released is not None
            ):
                self.clocks.acquire(shadow.released[granules])
            found = shadow.races(
                kind, granules, np.repeat(programs[chosen], each), self._number(frame, operation)
            )
            if found is not None:
                self._race(
                    frame, operation, kind, found, np.repeat(lanes[chosen], each), full, name
                )
            if self.clocks is not None and order in ("release", "acq_rel"):
                shadow.synchronize(granules, order)
        if self.clocks is not None:
            self.clocks.tick(order)

    def _check_written(
        self,
        frame: Frame,
        operation: Operation,
        kind: str,
        shadow: Shadow,
        granules: NDArray[np.int64],
        each: int,
        lanes: NDArray[np.intp],
        full: tuple[int, ...],
        name: str | None,
    ) -> None:
        if kind != "write" and not isinstance(operation, AtomicStore):
            unwritten = shadow.unwritten(granules)
            if unwritten is not None and unwritten.any():
                bad = np.zeros(full, dtype=np.bool_)
                bad.flat[np.repeat(lanes, each)[unwritten]] = True
                self.report(
                    frame,
                    operation,
                    "uninitialized-read",
                    f"{operation.name} of memory that nothing wrote",
                    bad,
                    name,
                )
        if kind in ("write", "atomic"):
            shadow.mark_written(granules)

    def _race(
        self,
        frame: Frame,
        operation: Operation,
        kind: str,
        found: Any,
        lanes: NDArray[np.intp],
        full: tuple[int, ...],
        name: str | None,
    ) -> None:
        racing, sites, others = found
        bad = np.zeros(full, dtype=np.bool_)
        bad.flat[lanes[racing]] = True
        # The first racing lane in lane order is the one that is reported.
        first = int(np.flatnonzero(racing)[0])
        other = program_coordinates(int(others[first]), self.grid)
        message = (
            f"{operation.name} races with {self._site(int(sites[first]))} of program {other}: "
            "nothing orders the two"
        )
        self.report(frame, operation, "race", message, bad, name)


def _positions(chosen: Any, names: Sequence[str], buffers: dict[int, ArgumentBuffer]) -> list[int]:
    """Positions of the arguments that an option names.

    Raises:
        LaunchError: there is no such argument, or it has no memory.
    """
    positions = []
    for item in chosen:
        index = item if isinstance(item, int) else names.index(item) if item in names else -1
        if index not in buffers:
            raise LaunchError(
                f"uninitialized names argument {item!r}; arguments with memory are "
                f"{', '.join(f'{names[i]} ({i})' for i in buffers)}"
            )
        positions.append(index)
    return positions


def _shaped(operation: Operation) -> Value | None:
    """The value whose type has the shape of the lanes that a finding on this operation is about."""
    if isinstance(operation, If | For | While | Condition | Yield):
        return None
    if isinstance(operation, DescriptorStore | DescriptorReduce | DescriptorScatter):
        return operation.value
    if operation.name.startswith("descriptor") or isinstance(operation, Gather):
        return operation.results[0]
    first = next(iter(operation.operands), None)
    return first if first is not None and element_type(first.type).is_scalar else None


def _array(value: Any) -> Any:
    return value.array if isinstance(value, Tracked) else value


def _origins(value: Any) -> Any:
    return value.origins if isinstance(value, Tracked) else None


def _tracked(result: Any, origins: Any) -> Any:
    """A result with its undefined lanes, if it has any. The two come in one shape."""
    if origins is None or not origins.any():
        return result
    if origins.ndim > result.ndim:
        return Tracked(expanded(result, origins.shape[1:], origins.shape[0]), np.asarray(origins))
    return Tracked(result, np.broadcast_to(origins, result.shape))
