"""Wave schedules: all waves in lockstep, or one of each workgroup at a time in random order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright_amd_emulator.errors import WaveError

if TYPE_CHECKING:
    from tilewright_amd_emulator.code.program import Decoded, Instruction
    from tilewright_amd_emulator.engine.coverage import Coverage
    from tilewright_amd_emulator.state.machine import Machine

Array = np.ndarray[Any, np.dtype[Any]]

RUNNING, WAITING, ENDED = 0, 1, 2
#: instructions that waves run on while others could: then it is the turn of those that have waited
#: longest, and stores that are in flight arrive
QUANTUM = 20_000
#: every so many choices, those that have waited longest run, so that waves that wait for others in
#: a loop end
FAIR = 64


class Schedule:
    """Runs the waves of a machine to their end."""

    def __init__(
        self, machine: Machine, code: list[Decoded], entry: int, how: str, limit: int
    ) -> None:
        m = self.machine = machine
        self.code, self.limit = code, limit
        self.random = how == "random"
        m.pc[:] = entry
        self.state = np.zeros(m.waves, np.int8)
        self.counts = [0] * len(code)
        self.steps = self.choices = 0
        self.last_run = np.zeros(m.waves, np.int64)
        #: barriers: which waves have come to the one that is open, how many each workgroup has
        #: behind it, which one each wave waits for, and has waited for
        self.arrived = np.zeros(m.waves, np.bool_)
        self.phase = np.zeros(m.groups, np.int64)
        self.awaited = np.zeros(m.waves, np.int64)
        self.waited = np.zeros(m.waves, np.int64)
        #: the wave of each workgroup that runs, in the random schedule
        self.current = np.full(m.groups, -1)

    def run(self, covered: Coverage) -> None:
        """To the end of all waves; what was executed is added to ``covered``."""
        while True:
            eligible = self._eligible()
            if (
                not eligible.size
            ):  # who waits has come to a barrier, and the last one to come opens it: all have ended
                break
            self.choices += 1
            places = self.machine.pc[eligible]
            if self.choices % FAIR == 0:
                place = int(places[np.argmin(self.last_run[eligible])])
            else:
                place = int(places.min())
            chosen = eligible[places == place]
            others = places[places > place]
            self.last_run[chosen] = self.choices
            self.machine.select(slice(None) if len(chosen) == self.machine.waves else chosen)
            self._execute(
                place, int(others.min()) if others.size else -1, len(chosen) < len(eligible)
            )
        for item, count in zip(self.code, self.counts, strict=True):
            if count:
                covered[item.instruction.name] += count
                if item.instruction.second is not None:
                    covered[item.instruction.second.name] += count

    def _eligible(self) -> Array:
        """Numbers of the waves that may run."""
        running = self.state == RUNNING
        if not self.random:
            return np.flatnonzero(running)
        m = self.machine
        for group in range(m.groups):
            wave = self.current[group]
            if wave < 0 or not running[wave]:
                candidates = np.flatnonzero(
                    running[group * m.per_group : (group + 1) * m.per_group]
                )
                self.current[group] = (
                    group * m.per_group + m.random.choice(candidates) if candidates.size else -1
                )
        return self.current[self.current >= 0]

    def _execute(self, place: int, meeting: int, others: bool) -> None:
        """Run the selected waves from ``place`` until they diverge, wait, end or meet."""
        m, code, counts = self.machine, self.code, self.counts
        number, budget = m.count, QUANTUM
        pending = m.pending
        while True:
            if place >= len(code):
                raise WaveError("the kernel ran past its last instruction; s_endpgm is missing")
            item = code[place]
            if pending.poisoned and not item.touches.isdisjoint(pending.poisoned):
                pending.check(item.instruction, item.reads, item.writes, item.counter)
            try:
                item.step(m)
            except WaveError as error:
                raise error.at(item.instruction.line, item.instruction.text) from None
            counts[place] += number
            budget -= 1
            place += 1
            if item.role:
                if item.role == "branch":
                    taken = m.taken
                    target = m.program.labels.get(item.instruction.operands[0].text, -1)
                    if target < 0:
                        raise item.instruction.error("there is no such label")
                    if taken.all():
                        place = target
                    elif taken.any():
                        m.pc[m.numbers] = np.where(taken, target, place)
                        break
                    if not others and budget > 0:
                        continue
                    m.pc[m.numbers] = place
                    break
                m.pc[m.numbers] = place
                self._synchronise(item.role, item.instruction)
                if item.role not in ("signal",):
                    break
            if place == meeting or budget <= 0:
                m.pc[m.numbers] = place
                break
        self.steps += (QUANTUM - budget) * number
        if self.steps > self.limit:
            item = code[min(place, len(code) - 1)]
            raise item.instruction.error(
                f"the waves have executed {self.steps} instructions; the kernel seems not to "
                "end (see limit)"
            )
        if budget <= 0:
            self._rotate()

    def _rotate(self) -> None:
        """Others have their turn, and what has been stored arrives."""
        m = self.machine
        m.select(slice(None))
        for counter in ("store", "load"):
            m.pending.arrive(counter)
        self.current[:] = -1

    def _synchronise(self, role: str, item: Instruction) -> None:
        """Update the states of the selected waves after an instruction of a role."""
        m = self.machine
        waves = m.numbers
        groups = m.group[waves]
        if role == "yield":
            self._rotate()
            return
        if role == "end":
            self.state[waves] = ENDED
        if role in ("barrier", "signal"):
            if self.arrived[waves].any():
                raise item.error("a wave signals a barrier twice before the others have come to it")
            self.awaited[waves] = self.phase[groups] + 1
            self.arrived[waves] = True
        if role in ("barrier", "wait"):
            if (self.awaited[waves] == self.waited[waves]).any():
                raise item.error("a wave waits for a barrier that it has not signalled")
            self.waited[waves] = self.awaited[waves]
            self.state[waves] = WAITING
        missing = np.bincount(m.group[(self.state != ENDED) & ~self.arrived], minlength=m.groups)
        come = np.bincount(m.group[self.arrived], minlength=m.groups)
        complete = (missing == 0) & (come > 0)
        self.phase[complete] += 1
        self.arrived &= ~complete[m.group]
        self.state[(self.state == WAITING) & (self.awaited <= self.phase[m.group])] = RUNNING
