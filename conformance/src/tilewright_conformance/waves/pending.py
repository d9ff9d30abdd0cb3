"""What memory instructions have under way: each completes as late as a wait allows.

An instruction leaves an :class:`Effect`: what it reads of registers is taken at once, what it does to memory and to its destination happens when a wait of
its wave says that it must have happened. Until then its destination is poison: reading it is an error. Effects of one counter happen in the order of issue.
Across counters, an effect that touches bytes which an older one of the same waves touches happens after it, as the machines have it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright_conformance.waves.errors import WaveError
from tilewright_conformance.waves.machine import register_name

if TYPE_CHECKING:
    from tilewright_conformance.waves.assembly import Instruction
    from tilewright_conformance.waves.machine import Machine

Array = np.ndarray[Any, np.dtype[Any]]

#: the counters, and how many effects the machine keeps under way at most before it waits by itself
COUNTERS = {"load": 63, "store": 63, "ds": 63, "km": 63}


@dataclass
class Effect:
    """``waves`` (numbers) have issued something; ``perform(rows)`` does it for some of them (an index of ``waves``)."""

    counter: str
    waves: Array
    #: sequence numbers of the counter, per wave
    tickets: Array
    instruction: Instruction
    perform: Callable[[Array | slice], None]
    registers: tuple[int, ...] = ()
    #: first and last address it touches, for effects of global memory; the whole range where unknown
    span: tuple[int, int] | None = None
    writes: bool = False


class Pending:
    """Effects under way for the waves of a machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
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
        """An effect of the selected waves is under way."""
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
            self._complete(counter, np.maximum(self.completed[counter][m.selected], tickets - COUNTERS[counter]))

    def wait(self, counter: str, outstanding: int) -> None:
        """The selected waves go on when at most ``outstanding`` of their effects of the counter are under way."""
        m = self.machine
        target = self.issued[counter][m.selected] - outstanding
        done = self.completed[counter][m.selected]
        if outstanding:  # a scalar load under way may come back after all others
            target = np.where((self.unordered[counter][m.selected] > done), done, target)
        self._complete(counter, np.maximum(done, target))

    def finish(self) -> None:
        """Everything of the selected waves happens."""
        for counter in COUNTERS:
            self.wait(counter, 0)

    def arrive(self, counter: str) -> None:
        """What the selected waves have stored arrives at the memory, although nothing has waited for it."""
        for effect in [e for e in self.effects if e.counter == counter]:
            if effect.writes and not effect.registers and any(e is effect for e in self.effects):
                self._in_order(effect)

    def _in_order(self, effect: Effect) -> None:
        """An effect happens, after all older ones of its counter and its waves."""
        for older in list(self.effects):
            if older is effect:
                break
            if older.counter == effect.counter and older.writes and not older.registers:
                self._in_order(older)
        if any(e is effect for e in self.effects):
            self._perform(effect, np.ones(len(effect.waves), np.bool_))

    def _complete(self, counter: str, target: Array) -> None:
        m = self.machine
        self.completed[counter][m.selected] = target
        completed = self.completed[counter]
        for effect in [e for e in self.effects if e.counter == counter]:
            due = effect.tickets <= completed[effect.waves]
            if due.any():
                self._perform(effect, due)

    def _perform(self, effect: Effect, due: Array) -> None:
        """Do it for the rows ``due`` of an effect, after older effects of the same waves on the same bytes."""
        if effect.span is not None:
            for older in self.effects:
                if older is effect:
                    break
                if older.counter == effect.counter or older.span is None or not (older.writes or effect.writes):
                    continue
                if older.span[0] <= effect.span[1] and effect.span[0] <= older.span[1]:
                    same = np.isin(older.waves, effect.waves[due])
                    if same.any():
                        self._perform(older, same)
        try:
            effect.perform(slice(None) if due.all() else np.flatnonzero(due))
        except WaveError as error:
            raise error.at(effect.instruction.line, effect.instruction.text) from None
        rest = ~due
        if rest.any():
            self._split(effect, rest)
            return
        self._drop(effect)

    def _split(self, effect: Effect, rest: Array) -> None:
        """Keep an effect for the rows ``rest`` only."""
        kept = np.flatnonzero(rest)
        whole = effect.perform

        def perform(rows: Array | slice) -> None:
            whole(kept[rows])

        later = Effect(effect.counter, effect.waves[kept], effect.tickets[kept], effect.instruction, perform, effect.registers, effect.span, effect.writes)
        self.effects[next(i for i, e in enumerate(self.effects) if e is effect)] = later
        for register in effect.registers:
            among = self.poisoned[register]
            among[next(i for i, e in enumerate(among) if e is effect)] = later

    def _drop(self, effect: Effect) -> None:
        self.effects = [e for e in self.effects if e is not effect]
        for register in effect.registers:
            among = [e for e in self.poisoned[register] if e is not effect]
            if among:
                self.poisoned[register] = among
            else:
                del self.poisoned[register]

    def check(self, instruction: Instruction, reads: frozenset[int], writes: frozenset[int], counter: str | None) -> None:
        """An error where the selected waves touch a register that something under way will write.

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
                        f"{verb} {register_name(register)}, which line {effect.instruction.line} ({effect.instruction.text}) has not loaded yet: "
                        f"a wait for its counter is missing in between"
                    )
