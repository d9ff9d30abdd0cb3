"""Bounds checks of memory accesses, in kernels that are compiled with ``debug``.

Behind the arguments the launcher puts, for each pointer and descriptor, the address where its
memory begins and its size in bytes; 0 and 2**63 - 1 where they are not known. An access is checked
against the arguments that its address may come from
(:func:`tilewright.passes.analysis.argument_access.accesses_of`). Strips are evaluated without
control flow, and so are their checks: an access that is outside goes to memory of the function's
own instead, and writes the number of its message to a word, which is tested behind each statement.
There the kernel stops.

Adjacent lanes in memory are checked once a row, as a span, where it is known which of them are
accessed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final, TypeVar

from tilewright.ir.core import Module, Operation
from tilewright.ir.ops.memory import ATOMICS, Load, Store
from tilewright.ir.table import Effect
from tilewright.ir.types import DescriptorType, PointerType, TileType
from tilewright.llvm.emission.registers import storage_size
from tilewright.passes.analysis.argument_access import accesses_of
from tilewright_cpu.codegen.analysis.mask_bounds import bound_of, placed_conjuncts
from tilewright_cpu.codegen.analysis.strides import stride_along
from tilewright_cpu.codegen.context import Context, Index, KernelState, Scope, lane_axis, scope_of
from tilewright_cpu.status import OUT_OF_BOUNDS

_Written = TypeVar("_Written")

#: Bytes of the longest span that is checked as a whole: as many of our own stand by for it.
_LANDING_LIMIT: Final = 32 << 10


def bounded_arguments(module: Module) -> list[int]:
    """The positions of the kernel's arguments that have bounds, in the order of their slots."""
    return [
        position
        for position, argument in enumerate(module.kernel.arguments)
        if isinstance(argument.type, PointerType | DescriptorType)
    ]


def record_accesses(state: KernelState, module: Module, first_slot: int) -> None:
    """Have a module's accesses checked. ``first_slot`` is that of the first argument."""
    arguments = module.kernel.arguments
    state.checks.slot = first_slot + sum(
        1 + 2 * argument.type.rank if isinstance(argument.type, DescriptorType) else 1
        for argument in arguments
    )
    state.checks.bounded = bounded_arguments(module)
    state.checks.accesses = {
        access.operation: tuple(sorted(access.arguments)) for access in accesses_of(module)
    }
    state.checks.names = [argument.name for argument in arguments]


def is_checked(context: Context, operation: Operation) -> bool:
    """Return whether an operation's accesses are checked where code is being written."""
    checks = context.checks
    return (
        operation in context.state.checks.accesses
        and operation not in checks.trusted
        and operation not in checks.passed
    )


def checked_address(
    context: Context, operation: Operation, address: str, size: int, guard: str | None = None
) -> str:
    """Address of ``size`` bytes, or of as many of the function's own where they are outside.

    Where the i1 ``guard`` does not hold nothing is reported.
    """
    if not is_checked(context, operation):
        return address
    w = context.writer
    number = w.emit(f"ptrtoint ptr {address} to i64")
    inside = _inside(context, operation, number, size)
    _report_unless(
        context,
        operation,
        inside if guard is None else w.emit(f"or i1 {inside}, {w.emit(f'xor i1 {guard}, true')}"),
    )
    return w.emit(f"select i1 {inside}, ptr {address}, ptr {_landing(context, size)}")


def checked_strip(
    context: Context,
    operation: Load | Store,
    index: Index,
    size: int,
    address: str,
    consecutive: bool,
    guard: str | None,
) -> tuple[str, str | None]:
    """Address and guard of a checked vector strip of a load or store.

    ``address`` is what :func:`~tilewright_cpu.codegen.loops.evaluate.pointer_chunk` returned.
    """
    if not is_checked(context, operation):
        return address, guard
    lane = lane_axis(index)
    width = index[lane].width if lane >= 0 else 0
    if not width:
        return checked_address(context, operation, address, size, guard), guard
    pointer = operation.pointer
    assert isinstance(pointer.type, TileType)
    extent = pointer.type.shape[lane]
    if (
        not consecutive
        or len(context.state.checks.accesses[operation]) > 1
        or (guard is None and extent * size > _LANDING_LIMIT)
    ):
        if consecutive and guard is None:
            return checked_address(context, operation, address, size * width), None
        return address, checked_lanes(context, operation, address, consecutive, width, size, guard)
    # all that its mask admits of a row is accessed, if not in this strip: neighbours from the first
    # one on where bounds and conditions of rows make the mask
    count = (
        str(extent)
        if operation.mask is None
        else _admitted(context, operation, lane, extent)
        if extent * size <= _LANDING_LIMIT
        else None
    )
    if count is None:
        if guard is None:
            return checked_address(context, operation, address, size * width), None
        return address, _Row(context, operation, index, lane, size, extent).lanes(guard)
    with context.ahead_of_row():
        base = _Row(context, operation, index, lane, size, extent).span(count)
    return context.writer.gep("i8", base, _scaled(context, index[lane].base, size)), guard


def is_span(context: Context, operation: Load | Store) -> bool:
    """Return whether an access of a single row is checked at once, as a span of adjacent lanes."""
    pointer, mask = operation.pointer, operation.mask
    assert isinstance(pointer.type, TileType) and isinstance(pointer.type.element, PointerType)
    shape, size = pointer.type.shape, storage_size(pointer.type.element.pointee)
    lane = max(range(len(shape)), key=shape.__getitem__)
    if (
        len(context.state.checks.accesses[operation]) > 1
        or shape[lane] * size > _LANDING_LIMIT
        or stride_along(context, pointer, lane) != size
    ):
        return False
    leaves = placed_conjuncts(context, mask, tuple(range(len(shape)))) if mask is not None else []
    along = [
        (leaf, axes)
        for leaf, axes in leaves
        if lane in axes and stride_along(context, leaf, axes.index(lane)) != 0
    ]
    return all(bound_of(context, leaf, axes, lane) is not None for leaf, axes in along)


def _admitted(context: Context, operation: Load | Store, lane: int, extent: int) -> str | None:
    """Number of lanes of the row at hand that an access's mask admits, from the first on, an i64.

    It is None where the mask has a condition that is no bound.
    """
    mask = operation.mask
    assert mask is not None and isinstance(mask.type, TileType)
    limits: dict[str, None] = {}
    for leaf, axes in placed_conjuncts(context, mask, tuple(range(mask.type.rank))):
        limit = context.limits.get((leaf, axes.index(lane))) if lane in axes else None
        if limit is not None:
            limits[limit] = None
        elif leaf not in context.assumed:
            return None
    found, *others = limits or (str(extent),)
    with context.ahead_of_row():
        for limit in others:
            found = _once(
                context,
                context.scopes[-1],
                ("minimum", found, limit),
                functools.partial(_minimum, context, found, limit),
            )
    return found


def _minimum(context: Context, a: str, b: str) -> str:
    return context.writer.intrinsic("llvm.umin", "i64", [("i64", a), ("i64", b)])


def _once(context: Context, scope: Scope, key: object, write: Callable[[], _Written]) -> _Written:
    """Result of ``write``, which is called once in a scope."""
    found = scope.checks.get(key)
    if found is None:
        writer = context.writer
        saved = writer.current
        if scope is not context.scopes[-1]:
            writer.current = scope.block
        found = scope.checks[key] = write()
        writer.current = saved
    return found


class _Row:
    """The lanes of a row of an access, neighbours in memory: which of them are inside."""

    def __init__(
        self,
        context: Context,
        operation: Load | Store,
        index: Index,
        lane: int,
        size: int,
        extent: int,
    ) -> None:
        self.context, self.operation, self.size, self.extent = context, operation, size, extent
        self.coordinate = index[lane]
        self.first: Index = (
            *index[:lane],
            self.coordinate._replace(base="0", depth=0, width=0),
            *index[lane + 1 :],
        )
        self.home = scope_of(context, self.first)
        self.base = context.evaluate(operation.pointer, self.first)
        self.argument = context.state.checks.accesses[operation][0]

    def _before(self) -> str:
        """Bytes of the argument's memory before lane 0: an i64, negative where that is outside."""

        def write() -> str:
            w, (start, _) = self.context.writer, bounds_of(self.context, self.argument, 0)
            return w.emit(f"sub i64 {w.emit(f'ptrtoint ptr {self.base} to i64')}, {start}")

        return _once(self.context, self.home, ("before", self.operation, self.first), write)

    def _range(self) -> tuple[str, str]:
        """The first lane that is inside, and how many are from it on, i64 of at most the extent."""

        def write() -> tuple[str, str]:
            w, (_, bytes_) = self.context.writer, bounds_of(self.context, self.argument, 0)
            shift, extent = self.size.bit_length() - 1, ("i64", str(self.extent))

            def lanes(distance: str, minimum: str) -> str:
                count = w.emit(f"ashr i64 {distance}, {shift}")
                return w.intrinsic(
                    "llvm.smax",
                    "i64",
                    [
                        ("i64", w.intrinsic("llvm.smin", "i64", [("i64", count), extent])),
                        ("i64", minimum),
                    ],
                )

            first = lanes(w.emit(f"sub i64 {self.size - 1}, {before}"), "0")
            return first, w.emit(
                f"sub i64 {lanes(w.emit(f'sub i64 {bytes_}, {before}'), first)}, {first}"
            )

        before = self._before()
        return _once(self.context, self.home, ("range", self.operation, self.first), write)

    def span(self, count: str) -> str:
        """Address of lane 0, or one of our own where a lane of the first ``count`` is outside.

        All of these lanes are accessed.
        """
        before = self._before()

        def write() -> str:
            w, context = self.context.writer, self.context
            if count.isdigit():
                # places at which so many bytes may begin: none where there are fewer
                _, room = bounds_of(context, self.argument, int(count) * self.size)
                inside = w.emit(f"icmp ult i64 {before}, {room}")
            else:
                _, bytes_ = bounds_of(context, self.argument, 0)
                end = w.emit(f"add i64 {before}, {_scaled(context, count, self.size)}")
                held = w.emit(
                    f"and i1 {w.emit(f'icmp sge i64 {before}, 0')}, "
                    f"{w.emit(f'icmp sle i64 {end}, {bytes_}')}"
                )
                inside = w.emit(f"or i1 {held}, {w.emit(f'icmp eq i64 {count}, 0')}")
            _report_unless(context, self.operation, inside)
            return w.emit(
                f"select i1 {inside}, ptr {self.base}, ptr "
                f"{_landing(context, self.extent * self.size)}"
            )

        # a number of lanes that is computed is known where the row's loops begin, not further out
        scope = self.home if count.isdigit() else self.context.scopes[-1]
        return _once(self.context, scope, ("span", self.operation, self.first, count), write)

    def lanes(self, guard: str) -> str:
        """The lanes of a guard that are inside."""
        w, width, at = self.context.writer, self.coordinate.width, self.coordinate.base
        first, count = self._range()
        # lanes before the first are many when they are counted from it without a sign
        number = w.splat(
            "i32", w.emit(f"trunc i64 {w.emit(f'sub i64 {at}, {first}')} to i32"), width
        )
        number = w.emit(f"add <{width} x i32> {number}, {w.iota('i32', width)}")
        inside = w.emit(
            f"icmp ult <{width} x i32> {number}, "
            f"{w.splat('i32', w.emit(f'trunc i64 {count} to i32'), width)}"
        )
        return _mask_outside(self.context, self.operation, inside, guard, width)


def _scaled(context: Context, number: str, size: int) -> str:
    if number.isdigit():
        return str(int(number) * size)
    return number if size == 1 else context.writer.emit(f"mul nuw nsw i64 {number}, {size}")


def checked_lanes(
    context: Context,
    operation: Operation,
    address: str,
    consecutive: bool,
    width: int,
    size: int,
    guard: str | None,
) -> str | None:
    """The lanes of ``guard`` that may be accessed.

    ``address`` is that of the first of ``consecutive`` lanes, or a vector of addresses.
    """
    if not is_checked(context, operation):
        return guard
    w = context.writer
    if consecutive:
        number = w.splat("i64", w.emit(f"ptrtoint ptr {address} to i64"), width)
        number = w.emit(f"add <{width} x i64> {number}, {w.iota('i64', width, size)}")
    else:
        number = w.emit(f"ptrtoint <{width} x ptr> {address} to <{width} x i64>")
    inside = _inside(context, operation, number, size, width)
    return _mask_outside(context, operation, inside, guard, width)


def checked_span(
    context: Context, operation: Operation, first: str, last: str, size: int, wanted: str
) -> str:
    """An i1: ``wanted``, and a span of elements of ``size`` bytes is inside.

    It reaches from the address ``first`` to the address ``last``, which may be before it.
    """
    if not is_checked(context, operation):
        return wanted
    w = context.writer
    numbers = [w.emit(f"ptrtoint ptr {address} to i64") for address in (first, last)]
    inside = w.emit(
        f"and i1 {_inside(context, operation, numbers[0], size)}, "
        f"{_inside(context, operation, numbers[1], size)}"
    )
    _report_unless(
        context, operation, w.emit(f"or i1 {inside}, {w.emit(f'xor i1 {wanted}, true')}")
    )
    return w.emit(f"and i1 {wanted}, {inside}")


def stop_on_violation(context: Context) -> None:
    """Stop, behind a statement, where an access of it was outside."""
    if not context.checks.unreported:
        return
    w = context.writer
    for (operation, width), lost in context.checks.unreported_lanes.items():
        type_ = f"<{width} x i1>"
        some = w.intrinsic(
            "llvm.vector.reduce.or", "i1", [(type_, w.load(type_, lost, 64))], [type_]
        )
        _report_unless(context, operation, w.emit(f"xor i1 {some}, true"))
    context.checks.unreported_lanes.clear()
    context.checks.unreported = False
    reported = w.load("i32", context.checks.reported, 4)
    failed, passed = w.new_block("outside"), w.new_block("inside")
    w.branch_if(w.emit(f"icmp eq i32 {reported}, 0"), passed, failed, likely=True)
    w.place(failed)
    context.report(OUT_OF_BOUNDS, w.emit(f"sub i32 {reported}, 1"))
    w.place(passed)


def _mask_outside(
    context: Context, operation: Operation, inside: str, guard: str | None, width: int
) -> str:
    """The lanes of a guard that are inside.

    Those that are not are recorded, and reported behind the statement: a row's loop only collects
    them.
    """
    w, type_ = context.writer, f"<{width} x i1>"
    lost = context.checks.unreported_lanes.get((operation, width))
    if lost is None:
        lost = context.checks.unreported_lanes[operation, width] = w.alloca(type_)
        w.entry.lines.append(f"  store {type_} zeroinitializer, ptr {lost}, align 64")
    context.checks.unreported = True
    outside = w.emit(f"xor {type_} {inside}, splat (i1 true)")
    if guard is not None:
        inside, outside = (w.emit(f"and {type_} {lanes}, {guard}") for lanes in (inside, outside))
    w.store(type_, w.emit(f"or {type_} {w.load(type_, lost, 64)}, {outside}"), lost, 64)
    return inside


def _inside(context: Context, operation: Operation, number: str, size: int, width: int = 0) -> str:
    """An i1 a lane: whether ``size`` bytes at an address (i64) are inside an argument's memory.

    The argument is one of those that the address may come from.
    """
    w, found = context.writer, ""
    type_ = f"<{width} x i64>" if width else "i64"
    for argument in context.state.checks.accesses[operation]:
        start, room = bounds_of(context, argument, size)
        if width:
            start, room = w.splat("i64", start, width), w.splat("i64", room, width)
        here = w.emit(f"icmp ult {type_} {w.emit(f'sub {type_} {number}, {start}')}, {room}")
        found = (
            here
            if not found
            else w.emit(f"or {f'<{width} x i1>' if width else 'i1'} {found}, {here}")
        )
    return found


def bounds_of(context: Context, argument: int, size: int) -> tuple[str, str]:
    """Start of an argument's memory, and the number of addresses where ``size`` bytes may begin.

    For ``size`` 0 the second is the memory's size. Both are read in the function's entry.
    """
    found = context.checks.bounds.get((argument, size))
    if found is None:
        w, state = context.writer, context.state
        start, bytes_ = (w.fresh(name) for name in ("start", "bytes"))
        slot = state.checks.slot + 2 * state.checks.bounded.index(argument)
        w.entry.lines += [
            f"  {start}.at = getelementptr i64, ptr %args, i64 {slot}",
            f"  {start} = load i64, ptr {start}.at, align 8",
            f"  {bytes_}.at = getelementptr i64, ptr %args, i64 {slot + 1}",
            f"  {bytes_} = load i64, ptr {bytes_}.at, align 8",
        ]
        room = bytes_
        if size:
            room = w.fresh("room")
            w.module.declare("llvm.usub.sat.i64", "i64", ["i64", "i64"])
            w.entry.lines.append(
                f"  {room} = call i64 @llvm.usub.sat.i64(i64 {bytes_}, i64 {size - 1})"
            )
        found = context.checks.bounds[argument, size] = start, room
    return found


def _report_unless(context: Context, operation: Operation, fine: str) -> None:
    """Write the message of an operation to the word that is looked at, unless ``fine`` holds."""
    w, state = context.writer, context.state
    index = state.checks.messages.get(operation)
    if index is None:
        names = " or ".join(
            repr(state.checks.names[argument]) for argument in state.checks.accesses[operation]
        )
        verb = (
            operation.name
            if isinstance(operation, ATOMICS)
            else "store"
            if operation.spec.effects & Effect.WRITE
            else "load"
        )
        index = state.checks.messages[operation] = context.message(
            f"{verb} outside the memory of argument {names}", operation.location
        )
    reported = context.checks.reported
    if not reported:
        reported = context.checks.reported = w.alloca("i32", 1, 4)
        w.entry.lines.append(f"  store i32 0, ptr {reported}, align 4")
    # read and written as a whole: where it is looked at, it is a register
    w.store(
        "i32",
        w.emit(f"select i1 {fine}, i32 {w.load('i32', reported, 4)}, i32 {index + 1}"),
        reported,
        4,
    )
    context.checks.unreported = True


def _landing(context: Context, size: int) -> str:
    """Zeros of our own, at least ``size`` bytes, in place of what is not inside."""
    found = context.checks.landings.get(size)
    if found is None:
        w = context.writer
        found = context.checks.landings[size] = w.alloca("i8", size, 64)
        w.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
        w.allocations.append(
            f"  call void @llvm.memset.p0.i64(ptr align 64 {found}, i8 0, i64 {size}, i1 false)"
        )
    return found
