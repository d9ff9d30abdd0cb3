"""Running what was compiled for the emulated machine."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.errors import KernelError
from tilewright.ir.core import Module
from tilewright.ir.types import DescriptorType, FloatType, IntType, PointerType, Type
from tilewright.llvm.codegen.compile import compile_to_object, host_target
from tilewright.llvm.codegen.link import LoadedObject, load_object
from tilewright.llvm.emission.registers import constant, register_type
from tilewright.llvm.emission.split_blocks import cut_blocks
from tilewright.simt.dialect.attributes import CLUSTER, WARPS
from tilewright.simt.emulator import layout
from tilewright.simt.emulator.blocks import EmulatedDescriptor
from tilewright.simt.emulator.code import called, helpers
from tilewright.simt.emulator.engine import Engine
from tilewright.simt.emulator.target import EmulatedTarget


def _compiled(text: str) -> bytes:
    triple, cpu, features = host_target()
    return compile_to_object(cut_blocks(text), triple=triple, cpu=cpu, features=features, opt=0)


@functools.cache
def _helpers() -> LoadedObject:
    """Load the functions that all kernels call, and the function that starts the threads."""
    return load_object(
        _compiled(helpers().text()), ["start", *(function.name for function in called())]
    )


@functools.lru_cache(maxsize=16)
def _loaded(text: str) -> LoadedObject:
    """Load the code of a text, which often runs in several modes in turn."""
    return load_object(
        _compiled(text),
        ("enter",),
        {function.name: _helpers().address(function.name) for function in called()},
    )


class _Stacks:
    """Contexts and stacks of threads, in memory that goes with this.

    Attributes:
        addresses: of the threads' contexts, and behind them that of the scheduler.
    """

    def __init__(self, threads: int) -> None:
        each = layout.CONTEXT_BYTES + layout.STACK_BYTES
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
        self._memory = mmap.mmap(-1, threads * each + layout.CONTEXT_BYTES, flags=flags)
        with contextlib.suppress(
            AttributeError, OSError
        ):  # a page of megabytes for each would be cleared
            self._memory.madvise(mmap.MADV_NOHUGEPAGE)
        self.addresses = np.frombuffer(self._memory, np.uint8).ctypes.data + each * np.arange(
            threads + 1
        )


def run_text(
    text: str,
    target: EmulatedTarget,
    types: Sequence[Type],
    arguments: Sequence[Any],
    grid: Sequence[int],
    num_warps: int,
    *,
    cluster: int = 1,
    completion: str | None = None,
    seed: int | None = None,
) -> None:
    """Run LLVM IR that :func:`~tilewright.simt.lowering.lower_function.lower_function` wrote for
    ``target``.

    Args:
        arguments: NumPy arrays, addresses, numbers, and :class:`EmulatedDescriptor` for
            descriptors.
        num_warps: warps of a program, those of all parts.
        cluster: blocks of so many warps that run a program together.
        completion, seed: in place of the target's.

    Raises:
        KernelError: an assertion of the kernel failed, an access is misaligned, an mbarrier or an
            asynchronous operation is used against its rules, or threads are stuck; the message says
            who waits for what.
    """
    loaded = _loaded(text)
    each, mode = (
        num_warps * target.resources.warp_size,
        layout.MODES.index(completion or target.record.completion),
    )
    threads = cluster * each
    seed = target.record.seed if seed is None else seed
    size = -(-target.resources.shared_memory // 1024) * 1024
    shared = np.zeros(cluster * size + 2048, np.uint8)
    exchange, queues = (
        np.zeros((cluster, each), np.int32),
        np.zeros((threads, layout.QUEUE_WORDS), np.int64),
    )
    areas = np.zeros((threads, target.record.matmuls_in_flight.words), np.int64)
    block, words = (
        np.zeros((cluster, layout.BLOCK_WORDS), np.int64),
        np.zeros((threads, layout.THREAD_WORDS), np.int64),
    )
    marks = None
    if "call void @emulated_touch" in text:
        marks = np.zeros((2, threads, size // layout.GRANULE), np.int32)
    engine = Engine(
        block, words, areas, target.record.sites, target.record.places, mode, seed, marks
    )
    block[:, layout.SHARED_BASE] = -(-shared.ctypes.data // 1024) * 1024 + size * np.arange(cluster)
    block[:, layout.EXCHANGE] = exchange.ctypes.data + exchange.strides[0] * np.arange(cluster)
    first = block[0]
    first[layout.GRID : layout.GRID + 3] = grid
    first[layout.ENGINE], first[layout.LIVE], first[layout.MODE] = (
        ctypes.cast(engine.entry, ctypes.c_void_p).value or 0,
        threads,
        mode,
    )
    first[layout.KERNEL], first[layout.THREADS], first[layout.BLOCKS] = (
        loaded.address("enter"),
        threads,
        cluster,
    )
    slots, kept = np.zeros(max(1, len(arguments)), np.int64), []
    for i, (argument, type_) in enumerate(zip(arguments, types, strict=True)):
        kept.append(_fill_slot(slots[i : i + 1], argument, type_))
    rng = np.random.default_rng(seed)
    queues[:, layout.QUEUE_COIN] = rng.integers(1, 2**62, threads)
    order, stacks = rng.permutation(threads).astype(np.int64), _Stacks(threads)
    words[:, layout.CONTEXT], words[:, layout.HOME], words[:, layout.CODE] = (
        stacks.addresses[:-1],
        stacks.addresses[-1],
        -1,
    )
    words[:, layout.BLOCK], words[:, layout.SLOTS] = block.ctypes.data, slots.ctypes.data
    words[:, layout.QUEUE] = queues.ctypes.data + np.arange(threads) * queues.strides[0]
    words[:, layout.AREA] = areas.ctypes.data + np.arange(threads) * areas.strides[0]
    words[:, layout.RANK], numbers = np.divmod(np.arange(threads), each)
    words[:, layout.WARP], words[:, layout.LANE] = np.divmod(numbers, target.resources.warp_size)
    words[:, layout.SHARED_BYTES], words[:, layout.NUMBER] = (
        target.resources.shared_memory,
        np.arange(threads),
    )
    words[:, layout.FENCES] = 1
    if marks is not None:
        passed = 4 * (block[words[:, layout.RANK], layout.SHARED_BASE] // layout.GRANULE)
        for kind, place in enumerate((layout.READ_MARKS, layout.WRITE_MARKS)):
            of_kind = marks[kind]
            words[:, place] = of_kind.ctypes.data + of_kind.strides[0] * np.arange(threads) - passed
    start = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        _helpers().address("start")
    )
    start(words.ctypes.data, order.ctypes.data, threads)
    del engine.entry  # which holds the engine, and with it all memory
    fault = int(first[layout.FAULT])
    if fault >= layout.ASSERTION:
        raise KernelError(target.record.messages[fault - layout.ASSERTION])
    if fault in layout.FAULTS:
        raise KernelError(layout.FAULTS[fault])
    if engine.error is not None:
        raise engine.error


def _fill_slot(slot: Any, argument: Any, type_: Type) -> Any:
    """Put an argument where threads read it; return what must live as long as they run."""
    if isinstance(type_, DescriptorType):
        assert isinstance(argument, EmulatedDescriptor) and argument.array.ndim == type_.rank
        assert argument.block_shape in ((), type_.block_shape), (
            f"a descriptor of {argument.block_shape} is no {type_}"
        )
        words = np.array(argument.words(), np.int64)
        slot[0] = words.ctypes.data
        return words
    if isinstance(type_, PointerType):
        slot[0] = argument.ctypes.data if isinstance(argument, np.ndarray) else int(argument)
    elif isinstance(type_, IntType):
        slot[0] = np.uint64(int(argument) & (2**64 - 1)).astype(np.int64)
    else:
        assert isinstance(type_, FloatType)
        text = constant(type_, float(argument))
        kind = {"half": np.uint16, "float": np.float32, "double": np.float64}
        storage = register_type(type_)
        if storage == "half":
            slot.view(np.float16)[0] = argument
        elif storage in kind:
            slot.view(kind[storage])[0] = argument
        else:
            slot[0] = int(text)
    return None


def run(
    module: Module,
    arguments: Sequence[Any],
    grid: Sequence[int] = (1, 1, 1),
    *,
    num_warps: int = 4,
    warp_size: int = 32,
    target: EmulatedTarget | None = None,
    completion: str | None = None,
    seed: int | None = None,
    **options: Any,
) -> None:
    """Compile a module of Tile IR for the emulated machine and run it; arrays are changed in place.

    The module is changed.

    Args:
        arguments: in the order of the kernel's parameters. An :class:`EmulatedDescriptor` stands
            for all that its parameter becomes; where there is none, arguments are those after
            descriptors were expanded.
        completion, seed: in place of the target's.
    """
    from tilewright.simt.compile import compile_kernel, kernel_of

    target = target or EmulatedTarget(warp_size)
    given = [argument.type for argument in kernel_of(module).arguments]
    text = compile_kernel(
        module,
        target,
        {"num_warps": num_warps, "num_stages": 2, "enable_fp_fusion": False, **options},
    )
    function = kernel_of(module)
    types = [argument.type for argument in function.arguments]
    passed = expanded_arguments(given, types, arguments)
    run_text(
        text,
        target,
        types,
        passed,
        grid,
        function.attributes[WARPS],
        cluster=function.attributes.get(CLUSTER, 1),
        completion=completion,
        seed=seed,
    )


def expanded_arguments(
    given: Sequence[Type], types: Sequence[Type], arguments: Sequence[Any]
) -> list[Any]:
    """Arguments for the parameters of a kernel whose descriptors were expanded: a descriptor may be
    kept, and its parts come behind it."""
    if not any(isinstance(argument, EmulatedDescriptor) for argument in arguments):
        return list(arguments)
    found: list[Any] = []
    for type_, argument in zip(given, arguments, strict=True):
        if not isinstance(type_, DescriptorType):
            found.append(argument)
            continue
        assert isinstance(argument, EmulatedDescriptor)
        if isinstance(types[len(found)], DescriptorType):
            found.append(argument)
        found += argument.parts()
    return found
