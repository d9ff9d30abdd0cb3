"""The record of the kernels that were emitted for an emulated machine."""

from __future__ import annotations

from tilewright.ir.core import Function
from tilewright.ir.ops.control import While
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.dialect.attributes import CLUSTER
from tilewright.simt.dialect.ops.dot import Multiplication
from tilewright.simt.dialect.ops.tma import RowCopy, TmaCopy
from tilewright.simt.dialect.ops.warp_specialize import Part, Partition
from tilewright.simt.emulator.async_matmul import Matmuls
from tilewright.simt.emulator.blocks import BlockSite
from tilewright.simt.emulator.multiply import AccumulatorSite, MatmulSite
from tilewright.simt.target.capabilities.thread_hierarchy import Threads


class EmissionRecord:
    """State of the emission of kernels, which launches read.

    Attributes:
        name, warp_size: of the machine.
        completion, seed: when asynchronous operations complete, one of
            :data:`~tilewright.simt.emulator.layout.MODES`, and the seed where it is ``random``.
        messages: of assertions, by fault number less that of the first.
        sites: the TMA copies and matmuls emitted so far, by which kernels call them.
        places: names of partitions, by which kernels call them; the first is all of the program.
        matmuls_in_flight: analysis of asynchronous matmuls.
        everyone: the threads of the kernel being emitted.
        cluster: its CTAs of a cluster.
        polls: whether its threads may read memory until others have written it.
        marks: whether its threads mark their accesses of shared memory for the async proxy.
        memories: number of allocations of memory for descriptors emitted so far.
    """

    def __init__(self, name: str, warp_size: int, completion: str, seed: int) -> None:
        self.name, self.warp_size, self.completion, self.seed = name, warp_size, completion, seed
        self.messages: list[str] = []
        self.sites: list[BlockSite | MatmulSite | AccumulatorSite] = []
        self.places = ["program"]
        self.matmuls_in_flight = Matmuls(self.add_site)
        self.everyone = Threads(0, 0, 1)
        self.cluster, self.memories = 1, 0
        self.polls = self.marks = False
        self._part_places: dict[int, int] = {}

    def prepare(self, function: Function, *, async_proxy: bool) -> None:
        """Begin another kernel; ``async_proxy``: whether the machine has one."""
        self.matmuls_in_flight.begin(function)
        self.cluster = function.attributes.get(CLUSTER, 1)
        self.polls = any(isinstance(operation, While) for operation in function.walk())
        through_proxy = TmaCopy | RowCopy | Multiplication
        self.marks = async_proxy and any(isinstance(one, through_proxy) for one in function.walk())
        names: dict[int, list[str]] = {}
        for partition in function.walk():
            if isinstance(partition, Partition):
                for number, part in enumerate(
                    part for part in partition.parts if isinstance(part, Part)
                ):
                    names.setdefault(number, []).append(part.name_)
        self._part_places = {number: len(self.places) + i for i, number in enumerate(names)}
        self.places += [f"part {' or '.join(dict.fromkeys(found))}" for found in names.values()]

    def add_site(self, site: BlockSite | MatmulSite | AccumulatorSite) -> int:
        """Return the number by which kernels call a TMA copy or a matmul."""
        self.sites.append(site)
        return len(self.sites) - 1

    def is_everyone(self, threads: Threads) -> bool:
        """Return whether threads are all of the program."""
        return threads.parts == 1 and threads.count == self.everyone.count

    def place(self, threads: Threads) -> int:
        """Return the number of the partition, or of the program, in :attr:`places`."""
        return 0 if self.is_everyone(threads) else self._part_places[threads.number]


def record_of(w: FunctionWriter) -> EmissionRecord:
    """Return the record of the kernel being emitted."""
    record = w.module.state
    assert isinstance(record, EmissionRecord), "a kernel is prepared before it is emitted"
    return record
