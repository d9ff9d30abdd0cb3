"""Matmuls by wgmma: plans, registers and matrix descriptors against the PTX ISA.

Instructions are executed in NumPy on a memory of bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hopper_support import ASYNCHRONOUS, TARGET, plan_of
from kernel_states import state_of
from swizzled_addresses import exchanged

from tilewright.ir.types import BF16, F8E4M3FN, F8E5M2, F16, F32, I8, I32, U8
from tilewright.llvm.emission.writer import ModuleWriter
from tilewright.simt.layouts.linear_layout import SharedLayout, combine, coordinates
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan, SharedOperand
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.async_copy.swizzle_atoms import SPANS, SwizzleAtoms, swizzled_layout
from tilewright_nvidia.codegen.packed_registers import PackedRegisters
from tilewright_nvidia.mma import wgmma
from tilewright_nvidia.mma.wgmma import descriptor_bits, readable
from tilewright_nvidia.target import PtxTarget

# ---- registers


def figure_c(thread: int, register: int) -> tuple[int, int]:
    """(row, column) of a register of the accumulator, as "Register fragments for wgmma" has it:
    thread of the group, d0 to dN/2-1."""
    warp, lane = divmod(thread, 32)
    row = 16 * warp + lane // 4 + 8 * (register // 2 % 2)
    return row, 8 * (register // 4) + lane % 4 * 2 + register % 2


#: For each thread and register, where it is.
FIGURE = np.array(
    [[figure_c(thread, register) for register in range(128)] for thread in range(128)]
)


@pytest.mark.parametrize("columns", [8, 16, 64, 128, 256])
def test_accumulators_are_those_of_the_instruction_set(columns: int) -> None:
    c = plan_of((64, columns), 64, "f16", "f16").c
    assert c.register_count == columns // 2
    for thread in range(128):
        for register in range(c.register_count):
            assert coordinates(c.element(register, thread % 32, thread // 32), c.shape) == figure_c(
                thread, register
            )


@pytest.mark.each_value
@pytest.mark.parametrize("shape", [(128, 128), (256, 64), (64, 256), (128, 256), (64, 512)])
@pytest.mark.parametrize("warps", [4, 8, 16])
def test_groups_share_the_result(shape: tuple[int, int], warps: int) -> None:
    matmul = Matmul(shape, 64, F16, F16, F32, "ieee", 0, warps)
    found = wgmma.plans(matmul)
    words = shape[0] * shape[1] // (32 * warps)
    assert (len(found) > 0) == (words <= min(255, 65536 // (32 * warps)) - wgmma.OTHER_REGISTERS)
    for plan in found:
        places = [
            coordinates(plan.c.element(r, t % 32, t // 32), shape)
            for t in range(32 * warps)
            for r in range(plan.c.register_count)
        ]
        assert len(places) == len(set(places)) == shape[0] * shape[1]


# ---- descriptors


@pytest.mark.parametrize(
    ("shape", "slabs", "k_axis", "expected"),
    [
        # K contiguous: offset of the next atom unused (1), eight rows further, swizzle
        ((128, 64), SwizzleAtoms(1, 128), 1, 1 << 16 | 1024 // 16 << 32 | 1 << 62),
        ((128, 32), SwizzleAtoms(1, 64), 1, 1 << 16 | 512 // 16 << 32 | 2 << 62),
        ((128, 16), SwizzleAtoms(1, 32), 1, 1 << 16 | 256 // 16 << 32 | 3 << 62),
        # other axis contiguous, atoms of 64 elements by 64 rows of 128 bytes: 8,192 bytes to the
        # next
        ((64, 256), SwizzleAtoms(1, 128), 0, 8192 // 16 << 16 | 1024 // 16 << 32 | 1 << 62),
        ((128, 32), SwizzleAtoms(0, 128), 1, 4096 // 16 << 16 | 1024 // 16 << 32 | 1 << 62),
        ((64, 256), SwizzleAtoms(1, 64), 0, 4096 // 16 << 16 | 512 // 16 << 32 | 2 << 62),
    ],
)
def test_descriptors_of_layouts(
    shape: tuple[int, int], slabs: SwizzleAtoms, k_axis: int, expected: int
) -> None:
    shared = swizzled_layout(shape, 2, slabs)
    assert shared is not None
    found = readable(shared, 2, k_axis)
    assert (
        found is not None
        and descriptor_bits(found) == expected
        and found.transposed == (slabs.inner != k_axis)
    )


def test_layouts_without_a_descriptor() -> None:
    plan = plan_of((64, 64), 64, "f16", "f16")
    assert plan.accepts is not None
    assert not plan.accepts(0, SharedLayout.row_major((64, 64)))
    for inner in (0, 1):
        shared = swizzled_layout((64, 64), 2, SwizzleAtoms(inner, 128))
        assert shared is not None and plan.accepts(0, shared) and plan.accepts(1, shared)
    # elements of other sizes have K inside
    bytes_ = plan_of((64, 128), 128, "f8e4m3fn", "f8e4m3fn")
    assert bytes_.accepts is not None
    for position, shape in enumerate(((64, 128), (128, 128))):
        accepted = [
            bytes_.accepts(position, layout)
            for inner in (0, 1)
            if (layout := swizzled_layout(shape, 1, SwizzleAtoms(inner, 64)))
        ]
        assert accepted == [position == 1, position == 0]
    # an instruction of 32 columns does not begin within an atom of 64
    halves = plan_of((64, 64), 64, "f16", "f16", warps=8)
    wide, narrow = (swizzled_layout((64, 64), 2, SwizzleAtoms(1, span)) for span in (128, 64))
    assert halves.accepts is not None and wide is not None and narrow is not None
    assert not halves.accepts(1, wide) and halves.accepts(1, narrow)


# ---- instructions, in NumPy


@dataclass
class Recorder:
    """What an emitter needs of a context; keeps how parts of operands are found by the number of a
    warp."""

    writer: Any
    parts: list[tuple[int, ...]] = field(default_factory=list)
    #: the operation that is emitted, none that has attributes
    operation: None = None

    def thread_part(self, lanes: tuple[int, ...], warps: list[int]) -> str:
        assert not any(lanes)
        self.parts.append(tuple(warps))
        return f"%part{len(self.parts) - 1}"


@dataclass
class Memory:
    """A tile in shared memory, as matrix instructions read it through a descriptor."""

    values: np.ndarray[Any, Any]
    size: int

    def read(
        self, descriptor: int, transposed: bool, extent: int, steps: int
    ) -> np.ndarray[Any, Any]:
        """The elements of some rows of A or columns of B, and along K, by the PTX ISA's strides."""
        along, k = np.arange(extent)[:, None], np.arange(steps)[None, :]
        start, leading, stride = ((descriptor >> bit & 0x3FFF) * 16 for bit in (0, 16, 32))
        span = {1: 128, 2: 64, 3: 32}[descriptor >> 62 & 3]
        if transposed:
            slab, column = divmod(along, span // self.size)
            address = start + slab * leading + k // 8 * stride + k % 8 * span + column * self.size
        else:
            address = start + along // 8 * stride + along % 8 * span + k * self.size
        return self.values[exchanged(address, span) // self.size]


#: The words of A that a thread has, as lists of elements.
Fragments = Callable[[int], list[list[int]]]


def emitted(
    plan: MatmulPlan,
    a: SharedOperand | list[str],
    b: SharedOperand,
    first: str = "0.0",
    words: PackedRegisters | None = None,
) -> tuple[str, Recorder]:
    """The text of a matmul whose accumulator begin at ``first``."""
    module = ModuleWriter()
    module.state = state_of(words or PackedRegisters())
    w = module.function(
        "f", [("ptr addrspace(3)", "a"), ("ptr addrspace(3)", "b"), ("float", "sum")]
    )
    context = Recorder(w)
    results = plan.emit(context, a, b, [first] * plan.c.register_count)  # type: ignore[arg-type]
    assert len(results) == plan.c.register_count
    w.ret()
    return module.text(), context


class Group:
    """Registers of a warpgroup's threads by name, and the matmuls in flight on them.

    All elements have the same initial value.
    """

    def __init__(self, together: int, first: int) -> None:
        self.together, self.first = together, first
        self.values: dict[str, np.ndarray[Any, Any]] = {}
        #: what was started since the last commit, then what was committed, the oldest first
        self.started: set[str] = set()
        self.pending: list[set[str]] = []

    def read(self, name: str) -> np.ndarray[Any, Any]:
        """Return a register, on which no matmul may be in flight."""
        assert not any(name in names for names in (self.started, *self.pending)), (
            f"{name} is accessed while a matmul is in flight"
        )
        return self.values.setdefault(name, np.full((128, self.together), self.first))

    def multiply(self, names: list[str], tile: np.ndarray[Any, Any], goes_on: bool) -> None:
        """Execute an instruction. Other matmuls may be in flight on its registers."""
        self.started.update(names)
        for number, name in enumerate(names):
            places = FIGURE[:, number * self.together : (number + 1) * self.together]
            value = self.values.get(name, self.first) if goes_on else 0
            self.values[name] = value + tile[places[..., 0], places[..., 1]]

    def commit(self) -> None:
        self.pending.append(self.started)
        self.started = set()

    def wait(self, count: int) -> None:
        del self.pending[: max(0, len(self.pending) - count)]


def run(
    text: str,
    context: Recorder,
    plan: MatmulPlan,
    memories: Sequence[Memory],
    warps: int,
    fragments: Fragments | None = None,
) -> np.ndarray[Any, Any]:
    """The result of the instructions in LLVM IR, on all groups of warps. Where A is in registers,
    ``fragments(thread)`` gives the words of a thread of all groups, and ``memories`` has B
    alone."""
    (assembly,) = re.findall(r'asm sideeffect "([^"]*)"', text)
    lines = assembly.split("\\0A")
    together = 2 if ".f16." in plan.name.partition("k")[2][:8] else 1
    (m, n), count = plan.c.shape, plan.c.register_count // together
    # accumulator that begin at zero are no operands, unless they are added to others: what their
    # registers hold is not read
    fresh = re.search(r"mma_async\S+ \{\$0[,}][^;]*, %b, %no", assembly) is not None
    assert fresh == (
        "add.rn" not in assembly and "%sum" not in re.sub(r"%sum\d", "", text.partition("{")[2])
    )
    # operands, as the call lists them
    named = ["%b", "%a"][: len(memories)]
    constants = [int(bits) % (1 << 64) for bits in re.findall(r"or i64 %t\d+, (-?\d+)", text)]
    pieces = re.split(r"ptrtoint ptr addrspace\(3\) (%\w) to i32", text)
    assert pieces[1::2] == named and len(constants) == len(named)
    uses = [re.findall(r"add i32 %t\d+, %part(\d+)", piece) for piece in pieces[2::2]]
    assert sum(map(len, uses)) == len(context.parts)
    result, written = np.zeros((m, n), np.int64), np.zeros((m, n), int)
    for group in range(warps // 4):
        bases = {}
        for name, constant, parts in zip(named, constants, uses, strict=True):
            bases[name] = constant | (
                combine(context.parts[int(parts[0])], 4 * group) // 16 if parts else 0
            )
        held, fenced, now = Group(together, 10**6 if fresh else 0), False, dict(bases)
        for line in lines:
            if step := re.fullmatch(r"add\.s64 (%[ab]), \$(\d+), (\d+);", line):
                assert int(step[2]) == count + named.index(step[1])
                now[step[1]] = bases[step[1]] + int(step[3])
            elif call := re.fullmatch(
                (
                    r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(\d+)\.\S+ \{([^}]+)\}, "
                    r"(%a|\{[$\d, ]+\}), %b, (%yes|%no)(.*);"
                ),
                line,
            ):
                assert fenced
                columns, ks = int(call[1]), int(call[2])
                registers = call[3].split(", ")
                assert len(registers) == columns // 2 // together
                flags = [part == "1" for part in call[6].split(", ")[3:]] or [False, False]
                b = memories[-1].read(now["%b"], flags[-1], columns, ks)
                if fragments is None:
                    a = memories[0].read(now["%a"], flags[0], 64, ks)
                else:
                    words = [
                        int(name) - count - 1
                        for name in call[4].strip("{}").replace("$", "").split(", ")
                    ]
                    a = gathered(fragments, group, words, ks)
                held.multiply(registers, a @ b.T, call[5] == "%yes")
            elif add := re.fullmatch(r"add\.rn\.f32 (\$\d+), \1, (%sum\w+);", line):
                held.values[add[1]] = held.read(add[1]) + held.read(add[2])
                fenced = False
            elif line == "wgmma.fence.sync.aligned;":
                fenced = True
            elif line == "wgmma.commit_group.sync.aligned;":
                held.commit()
            elif wait := re.fullmatch(r"wgmma\.wait_group\.sync\.aligned (\d);", line):
                held.wait(int(wait[1]))
            else:
                assert re.match(r"[{}]$|\.reg |setp\.|mov\.f32 %sum", line), line
        assert not held.started and len(held.pending) == plan.asynchronous
        held.wait(0)
        accumulator = np.stack(
            [held.read(f"${register}") for register in range(count)], axis=1
        ).reshape(128, -1)
        for thread in range(128):
            for register in range(plan.c.register_count):
                place = coordinates(
                    plan.c.element(register, thread % 32, 4 * group + thread // 32), (m, n)
                )
                result[place], written[place] = accumulator[thread, register], written[place] + 1
    assert (written == 1).all()
    return result


def gathered(fragments: Fragments, group: int, words: list[int], ks: int) -> np.ndarray[Any, Any]:
    """The 64 rows of A that the threads of a group have in four words each, by the figure of the
    PTX ISA: elements of a word are neighbours along K, the second word is eight rows further, the
    third half of the instruction's K."""
    packed = ks // 8
    a = np.full((64, ks), 10**6)
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        held = fragments(128 * group + thread)
        for number, word in enumerate(words):
            row, first = (
                16 * warp + lane // 4 + 8 * (number % 2),
                lane % 4 * packed + 4 * packed * (number // 2),
            )
            a[row, first : first + packed] = held[word]
    return a


CASES = [
    ((64, 64), 64, "f16", 4),
    ((64, 16), 32, "bf16", 4),
    ((128, 64), 128, "f16", 4),
    ((128, 64), 32, "f16", 8),
    ((64, 128), 32, "f16", 8),
    ((128, 128), 16, "f16", 16),
    ((64, 512), 16, "f16", 8),
    ((64, 32), 32, "f32", 4),
    ((64, 64), 64, "i8", 8),
    ((128, 32), 128, "f8e5m2", 4),
]


@pytest.mark.parametrize(("shape", "k", "element", "warps"), CASES)
def test_instructions_compute_the_product(
    shape: tuple[int, int], k: int, element: str, warps: int
) -> None:
    computes_the_product(
        plan_of(shape, k, element, element, "i32" if element == "i8" else "f32", warps),
        k,
        element,
        warps,
    )


@pytest.mark.parametrize(
    ("shape", "k", "element", "warps"), [case for case in CASES if case[2] in ("f16", "f8e5m2")]
)
def test_sums_of_16_bits_lie_in_registers_by_twos(
    shape: tuple[int, int], k: int, element: str, warps: int
) -> None:
    computes_the_product(plan_of(shape, k, element, element, "f16", warps), k, element, warps)


@pytest.mark.parametrize(("shape", "k", "imprecise", "warps"), [
    ((64, 64), 32, 32, 4),
    ((64, 64), 128, 128, 4),
    ((64, 64), 128, 64, 4),
    ((128, 64), 256, 96, 4),
    ((128, 128), 128, 32, 8),
    ((64, 512), 64, 32, 8),
    ((128, 128), 64, 33, 4),
    ((128, 256), 128, 64, 8),
])  # fmt: skip
def test_promoted_sums_compute_the_product(
    shape: tuple[int, int], k: int, imprecise: int, warps: int
) -> None:
    matmul = Matmul(shape, k, F8E4M3FN, F8E5M2, F32, "ieee", imprecise, warps)
    plan = wgmma.plans(matmul)[0]
    assert not plan.asynchronous
    text = computes_the_product(plan, k, "f8e5m2", warps)
    lines = text.split("\\0A")
    # as many instructions between additions as were asked for, and no more
    tiling = wgmma.tile(matmul)
    assert tiling is not None and tiling.registers(matmul) <= wgmma.registers_left(warps)
    runs = re.findall(
        r"(?:m|y+)",
        "".join("m" if "commit" in line else "y" if "mma_async" in line else "" for line in lines),
    )
    assert max(len(one) for one in runs) * 32 <= imprecise
    assert (
        lines.count("wgmma.commit_group.sync.aligned;")
        == -(-k // (imprecise // 32 * 32)) * tiling.repeats_m * tiling.repeats_n
    )
    assert (
        sum("add.rn.f32" in line for line in lines)
        == -(-k // (imprecise // 32 * 32)) * plan.c.register_count
    )


def computes_the_product(plan: MatmulPlan, k: int, element: str, warps: int) -> str:
    """Check what a plan writes, for all layouts in which it takes operands; the last text."""
    m, n = plan.c.shape
    type_ = {"f16": F16, "bf16": BF16, "f32": F32, "i8": I8, "f8e5m2": F8E5M2}[element]
    size = type_.bits // 8
    rng = np.random.default_rng(0)
    values = rng.integers(-50, 50, (m, k)), rng.integers(-50, 50, (k, n))
    assert plan.accepts is not None
    candidates: list[list[SharedLayout]] = []
    for position, tile in enumerate(values):
        every = [
            swizzled_layout(tile.shape, size, SwizzleAtoms(inner, span))
            for inner in (0, 1)
            for span in SPANS
        ]
        candidates.append(
            [layout for layout in every if layout is not None and plan.accepts(position, layout)]
        )
        assert set(plan.wishes(position)) <= set(candidates[-1])
    assert all(candidates)
    for number in range(max(map(len, candidates))):
        layouts = (
            candidates[0][number % len(candidates[0])],
            candidates[1][number % len(candidates[1])],
        )
        memories = []
        for tile, layout in zip(values, layouts, strict=True):
            memory = np.zeros(tile.size, np.int64)
            memory[[layout.offset(i) for i in range(tile.size)]] = tile.reshape(-1)
            memories.append(Memory(memory, size))
        text, context = emitted(
            plan,
            SharedOperand("%a", layouts[0], type_),
            SharedOperand("%b", layouts[1], type_),
            ("0.0", "%sum")[number % 2],
        )
        found = run(text, context, plan, memories, warps)
        assert (found == values[0] @ values[1]).all(), layouts
    return text


class Packer(PackedRegisters):
    """Words that are known by their number."""

    def __init__(self) -> None:
        super().__init__()
        self.packed: list[list[int]] = []

    def pack(self, w: Any, names: Sequence[str], type_: str, word_type: str) -> str:
        assert names[0] != "0.0"
        self.packed.append([int(name.removeprefix("%r")) for name in names])
        return f"%w{len(self.packed) - 1}"


@pytest.mark.each_value
@pytest.mark.parametrize("order", ["", ".pairs"])
@pytest.mark.parametrize(
    ("shape", "k", "element", "warps"), [case for case in CASES if case[2] != "f32"]
)
def test_instructions_with_a_in_registers_compute_the_product(
    shape: tuple[int, int], k: int, element: str, warps: int, order: str
) -> None:
    (m, n), type_ = shape, {"f16": F16, "bf16": BF16, "i8": I8, "f8e5m2": F8E5M2}[element]
    packer = Packer()
    matmul = Matmul(shape, k, type_, type_, I32 if element == "i8" else F32, "ieee", 0, warps)
    (plan,) = (plan for plan in wgmma.plans(matmul) if plan.name.endswith(f".rs{order}"))
    assert (k in plan.a.registers) == (order == ".pairs"), "a thread has neighbouring rows"
    rng = np.random.default_rng(1)
    left, right = rng.integers(-50, 50, (m, k)), rng.integers(-50, 50, (k, n))
    layout = plan.wishes(1)[0]
    memory = np.zeros(right.size, np.int64)
    memory[[layout.offset(i) for i in range(right.size)]] = right.reshape(-1)
    names = [f"%r{register}" for register in range(plan.a.register_count)]
    text, context = emitted(plan, names, SharedOperand("%b", layout, type_), words=packer)

    def fragments(thread: int) -> list[list[int]]:
        return [
            [
                int(left.reshape(-1)[plan.a.element(register, thread % 32, thread // 32)])
                for register in word
            ]
            for word in packer.packed
        ]

    found = run(text, context, plan, [Memory(memory, type_.bits // 8)], warps, fragments)
    assert (found == left @ right).all()


@pytest.mark.parametrize(
    ("shape", "k", "element", "warps"),
    [
        ((64, 64), 64, "f16", 4),
        ((128, 64), 32, "bf16", 4),
        ((64, 256), 64, "f16", 8),
        ((128, 128), 64, "i8", 8),
    ],
    ids=str,
)
@pytest.mark.parametrize("wish", [0, 1])
@pytest.mark.parametrize("order", ["", ".pairs"])
def test_instructions_with_b_in_registers_compute_the_transposed_product(
    shape: tuple[int, int], k: int, element: str, warps: int, wish: int, order: str
) -> None:
    (m, n), type_ = shape, {"f16": F16, "bf16": BF16, "i8": I8}[element]
    packer = Packer()
    matmul = Matmul(shape, k, type_, type_, I32 if element == "i8" else F32, "ieee", 0, warps)
    (plan,) = (plan for plan in wgmma.plans(matmul) if plan.name.endswith(f".sr{order}"))
    assert (
        plan.reads == ("shared", "registers") and plan.c.shape == shape and plan.b.shape == (k, n)
    )
    rng = np.random.default_rng(1)
    left, right = rng.integers(-50, 50, (m, k)), rng.integers(-50, 50, (k, n))
    if wish >= len(plan.wishes(0)):
        pytest.skip("bytes are read along K alone")
    layout = plan.wishes(0)[wish]
    assert plan.can_read(0, layout)
    memory = np.zeros(left.size, np.int64)
    memory[[layout.offset(i) for i in range(left.size)]] = left.reshape(-1)
    names = [f"%r{register}" for register in range(plan.b.register_count)]
    text, context = emitted(plan, SharedOperand("%b", layout, type_), names, words=packer)

    def fragments(thread: int) -> list[list[int]]:
        return [
            [
                int(right.reshape(-1)[plan.b.element(register, thread % 32, thread // 32)])
                for register in word
            ]
            for word in packer.packed
        ]

    found = run(text, context, plan, [Memory(memory, type_.bits // 8)], warps, fragments)
    assert (found == left @ right).all()


# ---- supported matmuls


@pytest.mark.parametrize(
    ("a", "b", "accumulator", "precision", "imprecise", "name"),
    [
        (F16, F16, F32, "ieee", 0, "wgmma.m64n64k16.f32.f16.f16.ss"),
        (BF16, BF16, F32, "ieee", 0, "wgmma.m64n64k16.f32.bf16.bf16.ss"),
        (F32, F32, F32, "tf32", 0, "wgmma.m64n64k8.f32.tf32.tf32.ss"),
        (F8E4M3FN, F8E5M2, F32, "ieee", 0, "wgmma.m64n64k32.f32.e4m3.e5m2.ss"),
        (I8, U8, I32, "ieee", 0, "wgmma.m64n64k32.s32.s8.u8.ss"),
        (F32, F32, F32, "ieee", 0, ""),
        (F16, F16, F16, "ieee", 0, "wgmma.m64n64k16.f16.f16.f16.ss"),
        (F8E5M2, F8E4M3FN, F16, "ieee", 0, "wgmma.m64n64k32.f16.e5m2.e4m3.ss"),
        (BF16, BF16, BF16, "ieee", 0, ""),
        (F16, BF16, F32, "ieee", 0, ""),
        (F8E4M3FN, F8E4M3FN, F32, "ieee", 31, ""),  # one instruction adds up 32 products
        (F8E4M3FN, F8E4M3FN, F32, "ieee", 32, "wgmma.m64n64k32.f32.e4m3.e4m3.ss"),
    ],
)
def test_kinds_of_products(
    a: Any, b: Any, accumulator: Any, precision: str, imprecise: int, name: str
) -> None:
    found = wgmma.plans(Matmul((64, 64), 128, a, b, accumulator, precision, imprecise, 4))
    # of the transpose the first operand is the second
    *head, left, right, _ = name.split(".") if name else ("", "", "")
    transposed = [] if imprecise else [".".join((*head, right, left, "sr"))]
    in_registers = [name.replace(".ss", ".rs"), *transposed]
    assert [plan.name for plan in found] == (
        [name, *(each + order for each in in_registers for order in ("", ".pairs"))] if name else []
    )


@pytest.mark.parametrize(
    ("shape", "k", "warps"),
    [
        ((32, 64), 64, 4),
        ((64, 64), 64, 2),
        ((64, 4), 64, 4),
        ((64, 64), 8, 4),
        ((128, 256), 64, 4),
        ((2, 64, 64), 64, 4),
    ],
)
def test_products_that_are_too_small_or_too_large(
    shape: tuple[int, ...], k: int, warps: int
) -> None:
    assert not wgmma.plans(Matmul(shape, k, F16, F16, F32, "ieee", 0, warps))


def test_not_where_refused_nor_on_other_machines() -> None:
    matmul = Matmul((64, 64), 64, F16, F16, F32, "ieee", 0, 4)
    assert PtxTarget(TARGET, ASYNCHRONOUS).matrix.plans(matmul)[0].name.startswith("wgmma")
    assert PtxTarget(TARGET).clusters is not None
    for arch, options in (
        ("sm_90a", {"asynchronous": False}),
        ("sm_80", ASYNCHRONOUS),
        ("sm_120a", ASYNCHRONOUS),
    ):
        target = PtxTarget(target_of(ARCHITECTURES[arch]), options)
        assert [plan.name.partition(".")[0] for plan in target.matrix.plans(matmul)] == ["mma"]
        # of the TMA unit, sm_120a is offered rows that numbers name
        rows = target.tma is not None
        assert (
            rows is (arch == "sm_120a")
            and target.warp_specialization is None
            and (target.mbarriers is not None) is rows
        )
        assert [one.name for one in target.async_copy.mechanisms] == [*["tma"] * rows, "cp.async"]
        assert [one.fills_rows is not None for one in target.async_copy.mechanisms] == [
            *[True] * rows,
            False,
        ]
