"""Engine of the emulator: mbarriers, TMA copies, tensor maps, named barriers, asynchronous matmuls.

It also reports deadlocks. Threads call in from machine code, one call at a time. An asynchronous
operation may be performed at three times (:data:`~.layout.MODES`): when a wait needs it, at once,
or at any time in between, in any order that is allowed.
"""

from __future__ import annotations

import ctypes
import random
import threading
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.errors import KernelError
from tilewright.simt.emulator import layout
from tilewright.simt.emulator.async_state import BarrierObject, OperationQueue, word_at
from tilewright.simt.emulator.blocks import BlockSite
from tilewright.simt.emulator.deadlock import stuck_threads
from tilewright.simt.emulator.descriptor_memory import DescriptorMemory
from tilewright.simt.emulator.multiply import AccumulatorSite, MatmulSite
from tilewright.simt.emulator.proxy_marks import ProxyMarks

#: The type of the engine's entry: (code, thread, address of i64 arguments, how many) -> negative
#: where the thread must end.
ENTRY = ctypes.CFUNCTYPE(
    ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64
)


class Engine:
    """Engine of one launch.

    Attributes:
        error: the first error, if there was one.
    """

    def __init__(
        self,
        block: Any,
        words: Any,
        areas: Any,
        sites: Sequence[BlockSite | MatmulSite | AccumulatorSite],
        places: Sequence[str],
        mode: int,
        seed: int,
        marks: Any = None,
    ) -> None:
        self.block, self.words, self.areas, self.sites, self.places, self.mode = (
            block,
            words,
            areas,
            sites,
            places,
            mode,
        )
        self.proxies = None if marks is None else ProxyMarks(block, words, marks)
        self.descriptors = DescriptorMemory()
        self.error: KernelError | None = None
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._calls: dict[int, Callable[[int, list[int]], None]] = {
            layout.NEXT_PROGRAM: self._next_program,
            layout.IS_STUCK: self._look,
            layout.INIT: self._init,
            layout.EXPECT: self._expect,
            layout.ARRIVE: self._arrive,
            layout.NO_OBJECT: self._no_object,
            layout.FORCE: self._force,
            layout.LOAD_BLOCK: self._load_block,
            layout.STORE_BLOCK: self._store_block,
            layout.START_MATMUL: self._start_matmul,
            layout.BUSY: self._busy,
            layout.COMMIT: self._commit,
            layout.ASK: self._ask,
            layout.SETTLE: self._settle,
            layout.PASS_TURN: self._pass_turn,
            layout.TAKE_MEMORY: self.descriptors.take_memory,
            layout.MAKE_DESCRIPTOR: self.descriptors.make,
            layout.SHOW_DESCRIPTOR: self.descriptors.show,
            layout.FREE_MEMORY: self.descriptors.free_memory,
            layout.LEAVE: self._leave,
            layout.TAKE_ACCUMULATORS: self._take_accumulators,
            layout.START_INTO: self._start_into,
            layout.ARRIVE_AFTER: self._arrive_after,
            layout.LOAD_ACCUMULATORS: self._load_accumulator,
            layout.STORE_ACCUMULATORS: self._store_accumulator,
            layout.FREE_ACCUMULATORS: self._free_accumulators,
        }
        self._reset()
        self.entry = ENTRY(self._call)

    def _reset(self) -> None:
        self.objects: dict[int, BarrierObject] = {}
        self.queues: dict[tuple[int, int], OperationQueue] = {}
        #: threads of each block that are through with the program
        self.left = [0] * len(self.block)
        self.descriptors.clear()
        #: units of memory for accumulators that the program has, the accumulator at each place,
        #: matmuls in flight with their places, and how many were started
        self.units: int | None = None
        self.accumulators: dict[int, Any] = {}
        self.into: deque[tuple[int, Callable[[], None]]] = deque()
        self.started = 0

    def _leave(self, thread: int, arguments: list[int]) -> None:
        self.left[self._rank(thread)] += 1

    def _rank(self, thread: int) -> int:
        return int(self.words[thread, layout.RANK])

    def _reach(self, rank: int, thread: int) -> int:
        """Return the distance from the shared memory of a thread's CTA to that of another CTA.

        That CTA of the cluster must still be running.
        """
        if self.left[rank] * len(self.block) == len(self.words):
            raise KernelError(
                f"block {self._rank(thread)} reaches into block {rank} of its cluster, which "
                "has ended"
            )
        return int(
            self.block[rank, layout.SHARED_BASE]
            - self.block[self._rank(thread), layout.SHARED_BASE]
        )

    def _call(self, code: int, thread: int, address: int, count: int) -> int:
        with self._lock:
            if self.error is not None:
                return -1
            try:
                self._calls[code](
                    thread, list((ctypes.c_int64 * count).from_address(address)) if count else []
                )
                if (
                    self.mode == layout.RANDOM
                    and code != layout.IS_STUCK
                    and self._random.random() < 0.25
                ):
                    self._finish_some()
            except KernelError as error:
                self.error = error
            except Exception:
                self.error = KernelError(f"the emulated machine failed:\n{traceback.format_exc()}")
            if self.error is None:
                return 0
            if not self.block[0, layout.FAULT]:
                self.block[0, layout.FAULT] = layout.ENGINE_FAULT
            self.block[0, layout.STOP] = 1
            return -1

    def _next_program(self, thread: int, arguments: list[int]) -> None:
        """A program has ended, and another begins: nothing that uses the shared memory may be in
        flight."""
        for one in self.objects.values():
            if one.copies:
                raise KernelError(
                    f"a program ends while {len(one.copies)} copies to its shared memory are in "
                    f"flight on {one}"
                )
        if any(
            queue.open or any(queue.groups)
            for (number, _), queue in self.queues.items()
            if number == layout.STORE_QUEUE
        ):
            raise KernelError("a program ends while copies from its shared memory are in flight")
        for queue in self.queues.values():
            queue.write_until(0, self._mix)
        if self.into:
            raise KernelError(
                f"a program ends while {len(self.into)} matmuls that read its shared memory are "
                "in flight"
            )
        if self.units is not None:
            raise KernelError("a program ends that has not given back its memory for accumulators")
        if self.descriptors.memory:
            raise KernelError("a program ends that has not given back its memory for descriptors")
        self._reset()
        self.areas[:] = 0
        if self.proxies is not None:
            self.words[:, layout.FENCES] += 1
        self.block[:, layout.TURNS : layout.TURNS + layout.MAX_ORDERS] = 0

    def _now(self, *always: int) -> bool:
        """Return whether what is started happens at once: in some modes always."""
        return self.mode in always or (self.mode == layout.RANDOM and self._random.random() < 0.5)

    # ---- mbarriers

    def _init(self, thread: int, arguments: list[int]) -> None:
        address, count = arguments
        self.objects[address] = BarrierObject(len(self.objects), address, count, count)
        for place, value in ((0, 0), (layout.OBJECT_COPIES, 0), (layout.OBJECT_MARK, layout.MARK)):
            word_at(address + place).value = value

    def _object(self, address: int) -> BarrierObject:
        found = self.objects.get(address)
        if found is None or word_at(address + layout.OBJECT_MARK).value != layout.MARK:
            self._no_object(0, [address])
        assert found is not None
        return found

    def _no_object(self, thread: int, arguments: list[int]) -> None:
        known = self.objects.get(arguments[0])
        what = f"{known} was overwritten" if known is not None else "there is no mbarrier"
        raise KernelError(
            f"{what} at byte "
            f"{arguments[0] - int(self.block[self._rank(thread), layout.SHARED_BASE])} of "
            "shared memory"
        )

    def _expect(self, thread: int, arguments: list[int]) -> None:
        self._object(arguments[0]).bytes += arguments[1]
        self._arrive(thread, [arguments[0], 0])

    def _arrive(self, thread: int, arguments: list[int]) -> None:
        """At an object of the thread's block, or at those of all blocks of its cluster."""
        address, at_all = arguments
        for reach in (
            [self._reach(rank, thread) for rank in range(len(self.block))] if at_all else [0]
        ):
            self._arrive_at(address + reach)

    def _arrive_at(self, address: int) -> None:
        one = self._object(address)
        if not one.arrivals:
            raise KernelError(
                f"more arrivals at {one} than its phase {one.phase} has, while {one.bytes} bytes "
                "are still to come"
            )
        one.arrivals -= 1
        one.end_phase()

    def _force(self, thread: int, arguments: list[int]) -> None:
        """A thread waits for an object: one of the copies to it happens."""
        one = self._object(arguments[0])
        if one.copies:
            self._finish(one, self._random.randrange(len(one.copies)))

    def _finish(self, one: BarrierObject, index: int) -> None:
        """Have a copy happen, and count its bytes."""
        size, copy = one.copies.pop(index)
        copy()
        one.bytes -= size
        self._publish(one)
        one.end_phase()

    def _publish(self, one: BarrierObject) -> None:
        """Tell threads how many copies they may force; none where copies wait until nothing else
        can go on."""
        if self.mode == layout.RANDOM:
            word_at(one.address + layout.OBJECT_COPIES).value = len(one.copies)

    def _finish_some(self) -> None:
        """Have a copy, or the oldest group of a queue, happen without anybody's need."""
        objects, queues = (
            [one for one in self.objects.values() if one.copies],
            [queue for queue in self.queues.values() if queue.groups],
        )
        if objects and (not queues or self._random.random() < 0.5):
            self._force(0, [self._random.choice(objects).address])
        elif queues:
            queue = self._random.choice(queues)
            queue.run_until(len(queue.groups) - 1)
            if self._random.random() < 0.5:
                queue.write_until(len(queue.groups), self._mix)

    # ---- blocks

    def _site(self, number: int, kind: type[Any]) -> Any:
        site = self.sites[number]
        assert isinstance(site, kind)
        return site

    def _load_block(self, thread: int, arguments: list[int]) -> None:
        number, shared, descriptor, barrier, *offsets = arguments
        site = self._site(number, BlockSite)
        reaches = (
            [self._reach(rank, thread) for rank in range(site.parts)] if site.parts > 1 else [0]
        )
        for reach in reaches:
            self._start_load(
                site,
                self._object(barrier + reach),
                shared + reach,
                descriptor,
                offsets,
                self._rank(thread) if site.parts > 1 else 0,
            )

    def _start_load(
        self,
        site: BlockSite,
        one: BarrierObject,
        shared: int,
        descriptor: int,
        offsets: list[int],
        part: int,
    ) -> None:
        over = self.descriptors.reading(site, descriptor)
        if self.proxies is not None:
            self.proxies.check(shared, site.bytes, "a bulk copy", writes=True)

        def copy() -> None:
            site.load(shared, descriptor, offsets, part)
            over()

        one.copies.append((site.bytes // site.parts, copy))
        if self._now(layout.EARLY, layout.CROSSED):
            self._finish(one, -1)
        self._publish(one)

    def _store_block(self, thread: int, arguments: list[int]) -> None:
        number, shared, descriptor, *offsets = arguments
        site = self._site(number, BlockSite)
        over = self.descriptors.reading(site, descriptor)
        if self.proxies is not None:
            self.proxies.check(shared, site.bytes, "a bulk store")

        def read() -> Callable[[], None]:
            write: Callable[[], None] = site.writer(site.read(shared), descriptor, offsets)
            over()
            return write

        if self._now(layout.EARLY):
            read()()
        else:
            self._queue(layout.STORE_QUEUE, thread).open.append(read)

    def _mix(self, writes: list[Callable[[], None]]) -> None:
        """Put what is written into an order that is allowed: any is.

        The youngest first shows who relies on another one.
        """
        if self.mode == layout.RANDOM:
            self._random.shuffle(writes)
        else:
            writes.reverse()

    # ---- matmuls

    def _start_matmul(self, thread: int, arguments: list[int]) -> None:
        number, area, a, b, lane, warp = arguments
        site, queue = self._site(number, MatmulSite), self._queue(layout.MATMUL_QUEUE, thread)
        self._check_operands(site.shared_operands((a, b)))
        # operands that come in registers are read now: they are this thread's own
        left, right = site.taken(0, a, lane, warp), site.taken(1, b, lane, warp)
        queue.open.append(lambda: site.multiply(area, left, right, lane, warp))
        queue.end_group()
        if self._now(layout.EARLY):
            queue.run_until(0)

    def _check_operands(self, operands: list[tuple[int, int]]) -> None:
        """Check that a matmul may read its operands, which are given by address and bytes."""
        if self.proxies is not None:
            for address, size in operands:
                self.proxies.check(address, size, "a matrix instruction")

    def _busy(self, thread: int, arguments: list[int]) -> None:
        raise KernelError(
            "a matmul is started in registers in which another one is in flight: that one must be "
            "waited for, or be the accumulator"
        )

    # ---- matmuls whose accumulator is in tensor memory

    def _take_accumulators(self, thread: int, arguments: list[int]) -> None:
        """Allocate tensor memory that does not begin at 0, so that a wrong base is found."""
        units, scratch = arguments
        self.units = units
        word_at(scratch).value = _FIRST_UNIT

    def _free_accumulators(self, thread: int, arguments: list[int]) -> None:
        if self.into:
            raise KernelError(
                f"memory for accumulators is given back while {len(self.into)} matmuls add to "
                "accumulators there"
            )
        self.units = None
        self.accumulators.clear()

    def _place(self, place: int, site: AccumulatorSite) -> Any:
        """Return the accumulator at a place, a fresh one if none of its size was there."""
        if self.units is None or not _FIRST_UNIT <= place < _FIRST_UNIT + self.units:
            raise KernelError(
                f"unit {place} is none of the memory for accumulators that the program has"
            )
        accumulator, fresh = self.accumulators.get(place), site.nothing()
        if accumulator is None or accumulator.shape != fresh.shape:
            accumulator = self.accumulators[place] = fresh
        return accumulator

    def _start_into(self, thread: int, arguments: list[int]) -> None:
        number, place, adds, a, b = arguments
        site = self._site(number, AccumulatorSite)
        self._check_operands(site.shared_operands((a, b)))
        self.into.append((place, lambda: site.multiply(self._place(place, site), a, b, adds)))
        self.started += 1
        if self._now(layout.EARLY):
            self._run_into(self.started)

    def _run_into(self, count: int) -> None:
        """Have the matmuls happen, in order, of which so many were started."""
        while self.into and self.started - len(self.into) < count:
            self.into.popleft()[1]()

    def _arrive_after(self, thread: int, arguments: list[int]) -> None:
        one, count = self._object(arguments[0]), self.started

        def arrive() -> None:
            self._run_into(count)
            if not one.arrivals:
                raise KernelError(f"more arrivals at {one} than its phase {one.phase} has")
            one.arrivals -= 1

        one.copies.append((0, arrive))
        if self._now(layout.EARLY):
            self._finish(one, -1)
        self._publish(one)

    def _moved_accumulator(self, arguments: list[int]) -> tuple[Any, Any, Any]:
        """Return an accumulator, the numbers of a thread's elements, and its copies of them."""
        number, area, place, lane, warp = arguments
        if any(other == place for other, _ in self.into):
            raise KernelError(
                "an accumulator is read or written by a thread while a matmul into it is in flight"
            )
        site = self._site(number, AccumulatorSite)
        return self._place(place, site), *site.registers(area, lane, warp)

    def _load_accumulator(self, thread: int, arguments: list[int]) -> None:
        accumulator, numbers, registers = self._moved_accumulator(arguments)
        registers[:] = accumulator[numbers]

    def _store_accumulator(self, thread: int, arguments: list[int]) -> None:
        accumulator, numbers, registers = self._moved_accumulator(arguments)
        accumulator[numbers] = registers

    # ---- queues of one thread

    def _queue(self, number: int, thread: int) -> OperationQueue:
        return self.queues.setdefault((number, thread), OperationQueue())

    def _commit(self, thread: int, arguments: list[int]) -> None:
        self._queue(arguments[0], thread).end_group()

    def _ask(self, thread: int, arguments: list[int]) -> None:
        """Before a wait for all but so many groups: what is late is as late as it may, when no
        other thread can go on without."""
        queue = self._queue(arguments[0], thread)
        due = list(queue.groups)[: max(0, len(queue.groups) - arguments[1])]
        if self.mode in (layout.LATE, layout.CROSSED) and any(due):
            self.words[thread, layout.RELEASED] = 0

    def _settle(self, thread: int, arguments: list[int]) -> None:
        number, left, written = arguments
        queue = self._queue(number, thread)
        queue.run_until(left)
        if written:
            queue.write_until(left, self._mix)
        if self.mode == layout.RANDOM and left and self._random.random() < 0.5:
            queue.run_until(self._random.randrange(left))

    # ---- turns

    def _pass_turn(self, thread: int, arguments: list[int]) -> None:
        order, place, of = arguments
        turn = word_at(self.turn_address(order, self._rank(thread)))
        if turn.value != place:
            raise KernelError(
                f"place {place} of order {order} passes on a turn that is that of place "
                f"{turn.value}"
            )
        turn.value = (place + 1) % of

    def turn_address(self, order: int, rank: int = 0) -> int:
        """Return the address of the turn of an order, in the memory of a CTA."""
        return int(self.block.ctypes.data) + 8 * (rank * layout.BLOCK_WORDS + layout.TURNS + order)

    # ---- deadlocks

    def _look(self, thread: int, arguments: list[int]) -> None:
        """Return whether no thread can go on as things are.

        Then what is late happens: what reads shared memory, or else one copy to it, the last that
        was started; if there is no such thing, the program is stuck. What is seen counts if no wait
        has ended meanwhile.
        """
        before = int(self.block[0, layout.PROGRESS])
        if self.block[0, layout.WAITING] != self.block[0, layout.LIVE]:
            return
        records = self.words[self.words[:, layout.KIND] != layout.NOTHING].copy()
        if len(records) != self.block[0, layout.LIVE] or any(
            self._can_go_on(record) for record in records
        ):
            return
        if int(self.block[0, layout.PROGRESS]) != before:
            return
        waited = {
            int(record[layout.OBJECT])
            for record in records
            if record[layout.KIND] == layout.AT_OBJECT
        }
        pending = next(
            (
                one
                for address, one in reversed(self.objects.items())
                if address in waited and one.copies
            ),
            None,
        )
        held = [
            int(record[layout.NUMBER])
            for record in records
            if record[layout.KIND] == layout.AT_QUEUE
        ]
        if held:
            self.words[held, layout.RELEASED] = 1
        elif pending is not None:
            self._finish(pending, -1)
        else:
            raise KernelError(stuck_threads(self, records))

    def _can_go_on(self, record: Any) -> bool:
        found = ctypes.c_uint32.from_address(int(record[layout.WORD])).value & int(
            record[layout.MASK]
        )
        one = self.objects.get(int(record[layout.OBJECT]))
        can_force = self.mode == layout.RANDOM and one is not None and bool(one.copies)
        return (found == int(record[layout.VALUE])) == bool(record[layout.EQUAL]) or can_force


#: The first unit of memory for accumulators that a program gets.
_FIRST_UNIT = 32
