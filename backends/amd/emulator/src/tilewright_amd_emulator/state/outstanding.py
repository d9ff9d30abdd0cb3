"""Memory operations in flight, each of which completes as late as a wait allows.

An instruction leaves an :class:`Effect`: what it reads of registers is taken at once, what it does
to memory and to its destination happens when a wait of its wave says that it must have happened.
Until then its destination is poison: reading it is an error. Effects of one counter happen in the
order of issue. An effect that touches bytes which an older one of the same wave touches happens
after it, as the machines have it; on compute units that hold whole workgroups (gfx9, and gfx11 and
gfx12 where the kernel asks for it), an older one of the same workgroup.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright_amd_emulator.errors import WaveError
from tilewright_amd_emulator.state.machine import register_name

if TYPE_CHECKING:
    from tilewright_amd_emulator.code.program import Instruction
    from tilewright_amd_emulator.state.machine import Machine

Array = np.ndarray[Any, np.dtype[Any]]

#: the counters, and how many effects the machine keeps in flight at most before it waits by itself
COUNTERS = {"load": 63, "store": 63, "ds": 63, "km": 63}


@dataclass
class Effect:
    """Record an effect that ``waves`` (numbers) have issued.

    ``perform(rows)`` performs it for some of them (an index of ``waves``).
    """

    counter: str
    waves: Array
    #: sequence numbers of the counter, per wave
    tickets: Array
    instruction: Instruction
    perform: Callable[[Array | slice], None]
    registers: tuple[int, ...] = ()
    #: first and last address it touches, for effects of global memory; the whole range where
    #: unknown
    span: tuple[int, int] | None = None
    writes: bool = False
    #: for which of the waves it has happened, although they have not waited for it
    done: Array = field(init=False)

    def __post_init__(self) -> None:
        self.done = np.zeros(len(self.waves), np.bool_)

    def rows(self, kept: Array) -> Effect:
        """The same effect for some of the waves."""
        whole = self.perform

        def perform(rows: Array | slice) -> None:
            whole(kept[rows])

        part = Effect(
            self.counter,
            self.waves[kept],
            self.tickets[kept],
            self.instruction,
            perform,
            self.registers,
            self.span,
            self.writes,
        )
        part.done = self.done[kept]
        return part


class Pending:
    """Effects in flight for the waves of a machine."""

    def __init__(self, machine: Machine, in_order: bool) -> None:
        """Create the counters of some waves.

        With ``in_order``, a workgroup runs on one compute unit, whose accesses of global memory are
        in order: its fences do not wait for them.
        """
        self.machine, self.in_order = machine, in_order
        self.effects: list[Effect] = []
        self.issued = {c: np.zeros(machine.waves, np.int64) for c in COUNTERS}
        self.completed = {c: np.zeros(machine.waves, np.int64) for c in COUNTERS}
        #: tickets of the last scalar load, which completes out of order with others of its counter
        self.unordered = {c: np.zeros(machine.waves, np.int64) for c in COUNTERS}
        #: register -> effects that will write it
        self.poisoned: dict[int, list[Effect]] = {}

    def start(
        self,
        counter: str,
        instruction: Instruction,
        perform: Callable[[Array | slice], None],
        registers: tuple[int, ...] = (),
        span: tuple[int, int] | None = None,
        writes: bool = False,
        unordered: bool = False,
    ) -> None:
        """An effect of the selected waves is in flight."""
        m = self.machine
        numbers = m.numbers
        issued = self.issued[counter]
        issued[m.selected] += 1
        tickets = issued[m.selected].copy()
        if unordered:
            self.unordered[counter][m.selected] = tickets
        effect = Effect(counter, numbers, tickets, instruction, perform, registers, span, writes)
        self.effects.append(effect)
        for register in registers:
            self.poisoned.setdefault(register, []).append(effect)
        if len(self.effects) > COUNTERS[counter]:
            self._complete(
                counter,
                np.maximum(self.completed[counter][m.selected], tickets - COUNTERS[counter]),
            )

    def wait(self, counter: str, outstanding: int) -> None:
        """Let the selected waves go on when at most ``outstanding`` effects are in flight.

        Only effects of the given counter count.
        """
        m = self.machine
        target = self.issued[counter][m.selected] - outstanding
        done = self.completed[counter][m.selected]
        if outstanding:  # a scalar load in flight may come back after all others
            target = np.where((self.unordered[counter][m.selected] > done), done, target)
        self._complete(counter, np.maximum(done, target))

    def finish(self) -> None:
        """Everything of the selected waves happens."""
        for counter in COUNTERS:
            self.wait(counter, 0)

    def arrive(self, counter: str) -> None:
        """Complete the stores of the selected waves without a wait."""
        numbers = self.machine.numbers
        for effect in self.effects:
            if effect.counter == counter and effect.writes and not effect.registers:
                self._perform(effect, np.isin(effect.waves, numbers))

    def _complete(self, counter: str, target: Array) -> None:
        """Perform and forget the effects of the selected waves up to the tickets ``target``."""
        self.completed[counter][self.machine.selected] = target
        completed = self.completed[counter]
        late = [
            (effect, due)
            for effect in self.effects
            if effect.counter == counter
            and (due := effect.tickets <= completed[effect.waves]).any()
        ]
        for effect, due in late:
            self._perform(effect, due)
        # performing one effect performs older ones for other waves: divide them afterwards
        rests = {
            id(effect): None if due.all() else effect.rows(np.flatnonzero(~due))
            for effect, due in late
        }
        self.effects = [
            kept for effect in self.effects if (kept := rests.get(id(effect), effect)) is not None
        ]
        for effect, _ in late:
            for register in effect.registers:
                among = [rests.get(id(e), e) for e in self.poisoned.get(register, ())]
                self.poisoned[register] = [e for e in among if e is not None]
                if not self.poisoned[register]:
                    del self.poisoned[register]

    def _perform(self, effect: Effect, rows: Array) -> None:
        """Perform an effect for ``rows``, after older effects on the same bytes.

        Older effects are those of the same waves, or of the same workgroup if it is in order.
        """
        todo = rows & ~effect.done
        if not todo.any():
            return
        if effect.span is not None:
            unit = self.machine.group if self.in_order else np.arange(self.machine.waves)
            for older in self.effects:
                if older is effect:
                    break
                if (
                    older.span is None
                    or not (older.writes or effect.writes)
                    or older.span[0] > effect.span[1]
                    or effect.span[0] > older.span[1]
                ):
                    continue
                self._perform(older, np.isin(unit[older.waves], unit[effect.waves[todo]]))
        effect.done = effect.done | todo
        try:
            effect.perform(slice(None) if todo.all() else np.flatnonzero(todo))
        except WaveError as error:
            raise error.at(effect.instruction.line, effect.instruction.text) from None

    def check(
        self,
        instruction: Instruction,
        reads: frozenset[int],
        writes: frozenset[int],
        counter: str | None,
    ) -> None:
        """An error where the selected waves touch a register that something in flight will write.

        Loads of one counter may follow each other into one register: they come back in order.
        """
        numbers = self.machine.numbers
        for register, effects in self.poisoned.items():
            if register not in reads and register not in writes:
                continue
            for effect in effects:
                if register not in reads and effect.counter == counter and counter != "km":
                    continue
                if np.isin(effect.waves, numbers).any():
                    verb = "reads" if register in reads else "writes"
                    raise instruction.error(
                        f"{verb} {register_name(register)}, which line {effect.instruction.line} "
                        f"({effect.instruction.text}) has not loaded yet: a wait for its counter "
                        "is missing in between"
                    )
