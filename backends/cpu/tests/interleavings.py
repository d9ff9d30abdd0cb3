"""Execution of LLVM IR in all interleavings of a few threads, under a weak memory model.

A :class:`~llvm_program.Program` is read from the text of a module. :func:`explore` runs threads of
its functions, and takes every order of their atomic accesses, system calls and thread starts. What
atomic loads may read follows the release/acquire model with *views*: a memory location is a list of
messages, a thread's view says the oldest message that it may still read there, and what acquires
joins the view that what released had. A sequentially consistent load reads nothing older than the
last such write of its location; such fences share a view. Accesses that are not atomic must see the
latest message, and a write must come after all reads that it is not synchronized with: else there
is a data race.

Futexes compare with the latest value, and time out never: a thread that only a timeout wakes sleeps
for ever here. Time stands still, so the cycle counter is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from llvm_program import Program

#: An integer, or the name of an object and an offset into it.
Word = Any
Location = tuple[str, int]
View = dict[Any, int]

_ACQUIRES = {"acquire", "acq_rel", "seq_cst"}
#: Calls at which threads may change.
_POINTS = {"syscall", "pthread_create", "pthread_join"}
_RELEASES = {"release", "acq_rel", "seq_cst"}


class WrongError(Exception):
    """Fault in an execution: a data race, a deadlock, or a failed claim of the test."""


# ---- states


@dataclass(slots=True)
class Frame:
    name: str
    label: str
    index: int
    registers: dict[str, Word]


@dataclass(slots=True)
class Thread:
    """A thread: its frames, its view, and the futex that it sleeps on."""

    frames: list[Frame]
    view: View
    asleep: Location | None = None
    woken: bool = False

    def copy(self) -> Thread:
        frames = [
            *self.frames[:-1],
            *(replace(frame, registers=dict(frame.registers)) for frame in self.frames[-1:]),
        ]
        return Thread(frames, dict(self.view), self.asleep, self.woken)


class Messages(tuple[tuple[Word, View], ...]):
    """The messages of a location: (value, the view that is acquired with it)."""

    hashed: int | None = None

    def key(self) -> int:
        if self.hashed is None:
            self.hashed = hash(tuple([(value, _view_key(view)) for value, view in self]))
        return self.hashed


#: Memory that nobody wrote.
_UNWRITTEN = Messages([(0, {})])


@dataclass(slots=True)
class State:
    threads: list[Thread]
    memory: dict[Location, Messages]
    #: location -> thread -> number of its reads since the last write that is not atomic
    reads: dict[Location, dict[int, int]]
    #: view of sequentially consistent accesses
    common: View
    #: what the test counts
    counted: dict[Any, int]

    def copy(self, number: int) -> State:
        threads = list(self.threads)
        threads[number] = threads[number].copy()
        memory = dict(self.memory)
        reads = {where: dict(by) for where, by in self.reads.items()}
        return State(threads, memory, reads, dict(self.common), dict(self.counted))

    def normalize(self) -> None:
        """Forget messages that nobody may read any more."""
        drop: View = {}
        for where, messages in self.memory.items():
            if len(messages) > 1:
                views = (thread.view.get(where, 0) for thread in self.threads if thread.frames)
                drop[where] = min(views, default=len(messages) - 1)
        drop = {where: count for where, count in drop.items() if count}
        if not drop:
            return
        for number, thread in enumerate(self.threads):
            if not drop.keys().isdisjoint(thread.view):
                self.threads[number] = replace(thread, view=_dropped(thread.view, drop))
        self.common = _dropped(self.common, drop)
        for where, messages in self.memory.items():
            if where in drop or any(not drop.keys().isdisjoint(view) for _, view in messages):
                left = messages[drop.get(where, 0) :]
                self.memory[where] = Messages([(v, _dropped(view, drop)) for v, view in left])

    def key(self, program: Program) -> object:
        return hash(
            (
                tuple([_thread_key(thread, program) for thread in self.threads]),
                frozenset([(where, messages.key()) for where, messages in self.memory.items()]),
                frozenset([(at, frozenset(by.items())) for at, by in self.reads.items() if by]),
                _view_key(self.common),
                frozenset(self.counted.items()),
            )
        )


def _dropped(view: View, drop: View) -> View:
    return {where: max(0, at - drop.get(where, 0)) for where, at in view.items()}


def _view_key(view: View) -> object:
    return frozenset([one for one in view.items() if one[1]]) if view else None


def _thread_key(thread: Thread, program: Program) -> object:
    frames = []
    for frame in thread.frames:
        function = program.functions[frame.name]
        live = function.live[frame.label, frame.index]
        registers = tuple(frame.registers.get(name) for name in live)
        frames.append((frame.name, frame.label, frame.index, registers))
    return tuple(frames), _view_key(thread.view), thread.asleep, thread.woken


def _join(view: View, other: Mapping[Any, int]) -> None:
    for where, at in other.items():
        if at > view.get(where, 0):
            view[where] = at


# ---- execution

Native = Callable[["Machine", State, int, list[Word]], Word]


class Machine:
    """Executes threads of a program.

    Args:
        natives: functions that the program calls, by name; and ``%`` for calls of an address.
        private: objects, and locations, whose atomic accesses are no points where threads change:
            one thread alone uses them.
    """

    def __init__(self, program: Program, natives: Mapping[str, Native], private: set[Any]) -> None:
        self.program, self.natives, self.private = program, natives, private

    def start(self, name: str, arguments: Sequence[Word], view: View) -> Thread:
        function = self.program.functions[name]
        registers = dict(zip(function.parameters, arguments, strict=True))
        return Thread([Frame(name, "entry", 0, registers)], dict(view))

    def settle(self, state: State, number: int) -> None:
        """Run a thread up to its next point where threads may change."""
        thread = state.threads[number]
        while thread.frames and not self._is_point(thread):
            self.step(state, number, 0)

    def _instruction(self, thread: Thread) -> tuple[Any, ...]:
        frame = thread.frames[-1]
        return self.program.functions[frame.name].blocks[frame.label][frame.index]

    def _is_point(self, thread: Thread) -> bool:
        kind, *rest = self._instruction(thread)
        if kind in ("load", "update", "exchange", "store"):
            pointer = rest[0] if kind == "store" else rest[1]
            where = self._value(thread, pointer)
            return where[0] not in self.private and where not in self.private
        return kind == "fence" or (kind == "call" and rest[1] in _POINTS)

    def _value(self, thread: Thread, operand: Any) -> Word:
        return thread.frames[-1].registers[operand] if type(operand) is str else operand

    def choices(self, state: State, number: int) -> int:
        """In how many ways a thread can take its next step; 0 where it waits."""
        thread = state.threads[number]
        if not thread.frames or thread.asleep is not None:
            return 0
        kind, *rest = self._instruction(thread)
        if kind == "load":
            where, order = self._value(thread, rest[1]), rest[2]
            messages = state.memory.setdefault(where, _UNWRITTEN)
            return len(messages) - self._oldest(state, thread, where, order)
        if kind == "call" and rest[1] == "pthread_join":
            handle = self._value(thread, rest[2][0])
            return int(not state.threads[handle].frames)
        return 1

    def _oldest(self, state: State, thread: Thread, where: Location, order: str) -> int:
        """The oldest message that an atomic load may read."""
        common = state.common.get(where, 0) if order == "seq_cst" else 0
        return max(thread.view.get(where, 0), common)

    def step(self, state: State, number: int, choice: int) -> None:
        """Execute an instruction of a thread whose top frame may be changed in place."""
        thread = state.threads[number]
        frame = thread.frames[-1]
        registers, value = frame.registers, self._value
        instruction = self._instruction(thread)
        kind = instruction[0]
        frame.index += 1
        if kind == "pair":
            _, result, operation, bits, a, b = instruction
            registers[result] = _computed(operation, bits, value(thread, a), value(thread, b))
        elif kind == "convert":
            _, result, bits, operand = instruction
            found = value(thread, operand)
            registers[result] = found & ((1 << bits) - 1) if isinstance(found, int) else found
        elif kind == "select":
            _, result, condition, a, b = instruction
            registers[result] = value(thread, a if value(thread, condition) else b)
        elif kind == "step":
            _, result, base, offset, steps = instruction
            name, start = value(thread, base)
            offset += sum(size * _signed(value(thread, index)) for size, index in steps)
            registers[result] = (name, start + offset)
        elif kind == "alloca":
            registers[instruction[1]] = (f"stack{number}{frame.name}{instruction[1]}", 0)
        elif kind == "read":
            where = value(thread, instruction[2])
            registers[instruction[1]] = self.plain_read(state, number, where)
        elif kind == "write":
            where, written = value(thread, instruction[1]), value(thread, instruction[2])
            self.plain_write(state, number, where, written)
        elif kind in ("load", "store", "update", "exchange", "fence"):
            self._atomic(state, number, instruction, choice)
        elif kind == "jump":
            self._enter(thread, instruction[1])
        elif kind == "branch":
            self._enter(thread, instruction[2 if value(thread, instruction[1]) else 3])
        elif kind == "ret":
            self._return(thread, value(thread, instruction[1]))
        elif kind == "call":
            self._call(state, number, instruction)

    def _enter(self, thread: Thread, label: str) -> None:
        frame = thread.frames[-1]
        edges = self.program.functions[frame.name].phis[label]
        given = {name: self._value(thread, edge[frame.label]) for name, edge in edges.items()}
        frame.registers.update(given)
        frame.label, frame.index = label, 0

    def _return(self, thread: Thread, value: Word) -> None:
        thread.frames.pop()
        if thread.frames:
            caller = thread.frames[-1]
            caller = thread.frames[-1] = replace(caller, registers=dict(caller.registers))
            block = self.program.functions[caller.name].blocks[caller.label]
            result = block[caller.index - 1][1]
            if result:
                caller.registers[result] = value

    def _call(self, state: State, number: int, instruction: tuple[Any, ...]) -> None:
        _, result, callee, operands = instruction
        thread = state.threads[number]
        arguments = [self._value(thread, operand) for operand in operands]
        if callee in self.program.functions:
            thread.frames.append(self.start(callee, arguments, {}).frames[0])
            return
        address = self._value(thread, callee) if callee.startswith("%") else None
        if address is not None and address[0] in self.program.functions:
            thread.frames.append(self.start(address[0], arguments, {}).frames[0])
            return
        native = self.natives[callee if address is None else "%"]
        frame = thread.frames[-1]
        if address is not None:
            arguments.insert(0, address)
        found = native(self, state, number, arguments)
        if result:
            frame.registers[result] = found

    # ---- memory

    def plain_read(self, state: State, number: int, where: Location) -> Word:
        """Read memory without synchronization."""
        messages = state.memory.setdefault(where, _UNWRITTEN)
        latest = len(messages) - 1
        if state.threads[number].view.get(where, 0) < latest:
            raise WrongError(f"data race: thread {number} reads {where}, which another one writes")
        self._note_read(state, number, where)
        return messages[-1][0]

    def plain_write(self, state: State, number: int, where: Location, value: Word) -> None:
        """Write memory without synchronization."""
        view, messages = state.threads[number].view, state.memory.setdefault(where, _UNWRITTEN)
        if view.get(where, 0) < len(messages) - 1:
            raise WrongError(f"data race: thread {number} writes {where}, which another one writes")
        for reader, count in state.reads.get(where, {}).items():
            if reader != number and view.get((where, reader), 0) < count:
                raise WrongError(f"data race: thread {number} writes {where}, which {reader} reads")
        state.reads.setdefault(where, {})
        state.memory[where] = Messages([*messages, (value, {})])
        view[where] = len(messages)

    def _note_read(self, state: State, number: int, where: Location) -> None:
        by = state.reads.get(where)
        if by is not None:
            by[number] = by.get(number, 0) + 1
            state.threads[number].view[where, number] = by[number]

    def _atomic(self, state: State, number: int, instruction: tuple[Any, ...], choice: int) -> None:
        kind, thread = instruction[0], state.threads[number]
        view, value = thread.view, self._value
        registers = thread.frames[-1].registers
        if kind == "fence":
            _join(view, state.common)
            _join(state.common, view)
            return
        order = instruction[5 if kind in ("update", "exchange") else 3]
        where = value(thread, instruction[1 if kind == "store" else 2])
        messages = state.memory.setdefault(where, _UNWRITTEN)
        if kind == "load":
            at = self._oldest(state, thread, where, order) + choice
            found, carried = messages[at]
            view[where] = at
            if order in _ACQUIRES:
                _join(view, carried)
            registers[instruction[1]] = found
            self._note_read(state, number, where)
        elif kind == "store":
            self._append(state, number, where, value(thread, instruction[2]), order, {})
        elif kind in ("update", "exchange"):
            found, carried = messages[-1]
            view[where] = len(messages) - 1
            if order in _ACQUIRES:
                _join(view, carried)
            self._note_read(state, number, where)
            if kind == "update":
                _, result, _, operation, operand, _, bits = instruction
                registers[result] = found
                new = value(thread, operand)
                if operation != "xchg":
                    new = _computed(operation, bits, found, new)
                self._append(state, number, where, new, order, carried)
            else:
                _, result, _, old, new, _ = instruction
                registers[result] = int(found == value(thread, old))
                if registers[result]:
                    self._append(state, number, where, value(thread, new), order, carried)
        if order == "seq_cst" and kind != "load":
            state.common[where] = view[where]

    def _append(
        self,
        state: State,
        number: int,
        where: Location,
        value: Word,
        order: str,
        carried: View,
    ) -> None:
        """Append a message; one of an update goes on with the release sequence of the last."""
        view, messages = state.threads[number].view, state.memory[where]
        view[where] = len(messages)
        message = dict(carried)
        if order in _RELEASES:
            _join(message, view)
        state.memory[where] = Messages([*messages, (value, message)])


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _computed(operation: str, bits: int, a: Word, b: Word) -> int:
    mask = (1 << bits) - 1
    if operation.startswith("icmp"):
        sign = operation.split(" ")[1]
        if sign == "slt":
            half = 1 << (bits - 1)
            return int((a ^ half) < (b ^ half))
        compare: dict[str, Callable[[], bool]] = {
            "eq": lambda: a == b,
            "ne": lambda: a != b,
            "ult": lambda: a < b,
            "ule": lambda: a <= b,
            "ugt": lambda: a > b,
            "uge": lambda: a >= b,
        }
        return int(compare[sign]())
    arithmetic: dict[str, Callable[[], int]] = {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: a * b,
        "udiv": lambda: a // b,
        "urem": lambda: a % b,
        "shl": lambda: a << b,
        "lshr": lambda: a >> b,
        "and": lambda: a & b,
        "or": lambda: a | b,
    }
    return arithmetic[operation]() & mask


def _futex(machine: Machine, state: State, number: int, arguments: list[Word]) -> Word:
    """The system call: wait where a word has a value still, or wake some that wait."""
    _, word, operation, value, *_ = arguments
    if operation == 128:
        name, offset = word
        whole = state.memory.get((name, offset))
        found = whole[-1][0] if whole else state.memory[name, offset - 4][-1][0] >> 32
        if (found ^ value) & 0xFFFFFFFF:
            return (1 << 64) - 1
        state.threads[number].asleep = word
        return 0
    waiting = [other for other, thread in enumerate(state.threads) if thread.asleep == word]
    for other in waiting[:value]:
        state.threads[other] = state.threads[other].copy()
        state.threads[other].asleep = None
    return min(len(waiting), value)


def _create(machine: Machine, state: State, number: int, arguments: list[Word]) -> Word:
    slot, _, start, argument = arguments
    state.threads.append(machine.start(start[0], [argument], state.threads[number].view))
    machine.plain_write(state, number, slot, len(state.threads) - 1)
    machine.settle(state, len(state.threads) - 1)
    return 0


def _wait_for(machine: Machine, state: State, number: int, arguments: list[Word]) -> Word:
    _join(state.threads[number].view, state.threads[arguments[0]].view)
    return 0


#: Functions of the system and of LLVM.
SYSTEM: dict[str, Native] = {
    "syscall": _futex,
    "pthread_create": _create,
    "pthread_join": _wait_for,
    "pthread_self": lambda machine, state, number, arguments: number + 1,
    "llvm.umin.i64": lambda machine, state, number, arguments: min(arguments),
    "llvm.umax.i64": lambda machine, state, number, arguments: max(arguments),
    **dict.fromkeys(
        (
            "llvm.x86.sse2.pause",
            "llvm.readcyclecounter",
            "pthread_attr_init",
            "pthread_attr_setstacksize",
            "pthread_attr_destroy",
            "pthread_sigmask",
            "sigfillset",
            "sigdelset",
            "PyGILState_Ensure",
            "PyGILState_Release",
            "PyErr_CheckSignals",
        ),
        lambda machine, state, number, arguments: 0,
    ),
}


def explore(
    machine: Machine,
    state: State,
    finished: Callable[[State], None],
    *,
    preemptions: int | None = None,
    limit: int = 1_000_000,
) -> int:
    """Run all interleavings of the threads of a state; return how many states there are.

    Args:
        finished: checks a state in which all threads have ended.
        preemptions: how often a thread that could go on is stopped for another one; None: however
            often.
        limit: of states.

    Raises:
        WrongError: in one of them there is a data race, a deadlock, or what ``finished`` finds.
    """
    for number in range(len(state.threads)):
        machine.settle(state, number)
    seen: dict[object, int] = {}
    work = [(state, -1, 1 << 30 if preemptions is None else preemptions)]
    while work:
        here, last, budget = work.pop()
        key = (here.key(machine.program), last if preemptions is not None else -1)
        if seen.get(key, -1) >= budget:
            continue
        seen[key] = budget
        if len(seen) > limit:
            raise AssertionError(f"more than {limit} states")
        able = {number: machine.choices(here, number) for number in range(len(here.threads))}
        if not any(able.values()):
            waiting = [number for number, thread in enumerate(here.threads) if thread.frames]
            if waiting:
                raise WrongError(f"deadlock: threads {waiting} wait for ever")
            finished(here)
            continue
        for number, count in able.items():
            left = budget - (last >= 0 and number != last and able.get(last, 0) > 0)
            if left < 0:
                continue
            for choice in range(count):
                after = here.copy(number)
                machine.step(after, number, choice)
                machine.settle(after, number)
                after.normalize()
                work.append((after, number, left))
    return len(seen)
