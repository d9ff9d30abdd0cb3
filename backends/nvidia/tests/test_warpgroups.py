"""Products by warpgroups: registers and matrix descriptors against the PTX ISA, instructions run in NumPy on a memory of bytes, what ptxas says."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from conftest import compile_kernel
from hopper_support import ASYNCHRONOUS, TARGET, Operand, compiled, plan_of, product_kernel
from test_slabs import exchanged

import tilewright.language as tl
from tilewright.frontend.compile import compile_function
from tilewright.ir.types import BF16, F8E4M3FN, F8E5M2, F16, F32, I8, I32, U8
from tilewright.language.callable import device_function
from tilewright.llvm.writer import ModuleWriter
from tilewright.passes import pipeline
from tilewright.simt.linear_layout import SharedLayout, combine, coordinates
from tilewright.simt.products import Product, ProductPlan, SharedOperand
from tilewright_nvidia import warpgroups
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.linking import assemble
from tilewright_nvidia.lower import lower
from tilewright_nvidia.slabs import SPANS, Slabs, slab_layout
from tilewright_nvidia.target import PtxTarget
from tilewright_nvidia.warpgroups import matrix_descriptor
from tilewright_nvidia.words import Words

# ---- registers


def figure_c(thread: int, register: int) -> tuple[int, int]:
    """(row, column) of a register of the accumulator, as "Register fragments for wgmma" has it: thread of the group, d0 to dN/2-1."""
    warp, lane = divmod(thread, 32)
    row = 16 * warp + lane // 4 + 8 * (register // 2 % 2)
    return row, 8 * (register // 4) + lane % 4 * 2 + register % 2


#: For each thread and register, where it is.
FIGURE = np.array([[figure_c(thread, register) for register in range(128)] for thread in range(128)])


@pytest.mark.parametrize("columns", [8, 16, 64, 128, 256])
def test_accumulators_are_those_of_the_instruction_set(columns: int) -> None:
    c = plan_of((64, columns), 64, "f16", "f16").c
    assert c.register_count == columns // 2
    for thread in range(128):
        for register in range(c.register_count):
            assert coordinates(c.element(register, thread % 32, thread // 32), c.shape) == figure_c(thread, register)


@pytest.mark.parametrize("shape", [(128, 128), (256, 64), (64, 256), (128, 256), (64, 512)])
@pytest.mark.parametrize("warps", [4, 8, 16])
def test_groups_share_the_result(shape: tuple[int, int], warps: int) -> None:
    product = Product(shape, 64, F16, F16, F32, "ieee", 0, warps)
    found = warpgroups.plans(Words(), product)
    words = shape[0] * shape[1] // (32 * warps)
    assert (len(found) > 0) == (words <= min(255, 65536 // (32 * warps)) - warpgroups.OTHER_REGISTERS)
    for plan in found:
        places = [coordinates(plan.c.element(r, t % 32, t // 32), shape) for t in range(32 * warps) for r in range(plan.c.register_count)]
        assert len(places) == len(set(places)) == shape[0] * shape[1]


# ---- descriptors


@pytest.mark.parametrize(
    ("shape", "slabs", "k_axis", "expected"),
    [
        # K inside: offset of the next slab unused (1), eight rows further, swizzle
        ((128, 64), Slabs(1, 128), 1, 1 << 16 | 1024 // 16 << 32 | 1 << 62),
        ((128, 32), Slabs(1, 64), 1, 1 << 16 | 512 // 16 << 32 | 2 << 62),
        ((128, 16), Slabs(1, 32), 1, 1 << 16 | 256 // 16 << 32 | 3 << 62),
        # the other axis inside, slabs of 64 elements by 64 rows of 128 bytes: 8,192 bytes to the next
        ((64, 256), Slabs(1, 128), 0, 8192 // 16 << 16 | 1024 // 16 << 32 | 1 << 62),
        ((128, 32), Slabs(0, 128), 1, 4096 // 16 << 16 | 1024 // 16 << 32 | 1 << 62),
        ((64, 256), Slabs(1, 64), 0, 4096 // 16 << 16 | 512 // 16 << 32 | 2 << 62),
    ],
)
def test_descriptors_of_layouts(shape: tuple[int, int], slabs: Slabs, k_axis: int, expected: int) -> None:
    shared = slab_layout(shape, 2, slabs)
    assert shared is not None
    found = matrix_descriptor(shared, 2, k_axis)
    assert found is not None and found.bits == expected and found.transposed == (slabs.inner != k_axis)


def test_layouts_without_a_descriptor() -> None:
    plan = plan_of((64, 64), 64, "f16", "f16")
    assert plan.accepts is not None
    assert not plan.accepts(0, SharedLayout.row_major((64, 64)))
    for inner in (0, 1):
        shared = slab_layout((64, 64), 2, Slabs(inner, 128))
        assert shared is not None and plan.accepts(0, shared) and plan.accepts(1, shared)
    # elements of other sizes have K inside
    bytes_ = plan_of((64, 128), 128, "f8e4m3fn", "f8e4m3fn")
    assert bytes_.accepts is not None
    for position, shape in enumerate(((64, 128), (128, 128))):
        accepted = [bytes_.accepts(position, layout) for inner in (0, 1) if (layout := slab_layout(shape, 1, Slabs(inner, 64)))]
        assert accepted == [position == 1, position == 0]
    # an instruction of 32 columns does not begin within a slab of 64
    halves = plan_of((64, 64), 64, "f16", "f16", warps=8)
    wide, narrow = (slab_layout((64, 64), 2, Slabs(1, span)) for span in (128, 64))
    assert halves.accepts is not None and wide is not None and narrow is not None
    assert not halves.accepts(1, wide) and halves.accepts(1, narrow)


# ---- instructions, in NumPy


@dataclass
class Recorder:
    """What an emitter needs of a context; keeps how parts of operands are found by the number of a warp."""

    writer: Any
    parts: list[tuple[int, ...]] = field(default_factory=list)

    def thread_part(self, lanes: tuple[int, ...], warps: list[int]) -> str:
        assert not any(lanes)
        self.parts.append(tuple(warps))
        return f"%part{len(self.parts) - 1}"


@dataclass
class Memory:
    """A tile in shared memory, as matrix instructions read it through a descriptor."""

    values: np.ndarray[Any, Any]
    size: int

    def read(self, descriptor: int, transposed: bool, extent: int, steps: int) -> np.ndarray[Any, Any]:
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


def emitted(plan: ProductPlan, a: SharedOperand | list[str], b: SharedOperand, first: str = "0.0") -> tuple[str, Recorder]:
    """The text of a product whose sums begin at ``first``."""
    module = ModuleWriter()
    w = module.function("f", [("ptr addrspace(3)", "a"), ("ptr addrspace(3)", "b"), ("float", "sum")])
    context = Recorder(w)
    results = plan.emit(context, a, b, [first] * plan.c.register_count)  # type: ignore[arg-type]
    assert len(results) == plan.c.register_count
    w.ret()
    return module.text(), context


class Group:
    """The registers of a group's threads, by name, of so many elements each, all of a value at first, and the products that are under way on them."""

    def __init__(self, together: int, first: int) -> None:
        self.together, self.first = together, first
        self.values: dict[str, np.ndarray[Any, Any]] = {}
        #: what was started since the last commit, then what was committed, the oldest first
        self.started: set[str] = set()
        self.pending: list[set[str]] = []

    def read(self, name: str) -> np.ndarray[Any, Any]:
        """A register: nothing may be under way on it."""
        assert not any(name in names for names in (self.started, *self.pending)), f"{name} is touched while a product is under way"
        return self.values.setdefault(name, np.full((128, self.together), self.first))

    def multiply(self, names: list[str], tile: np.ndarray[Any, Any], goes_on: bool) -> None:
        """An instruction. Others may be under way on its registers."""
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


def run(text: str, context: Recorder, plan: ProductPlan, memories: Sequence[Memory], warps: int, fragments: Fragments | None = None) -> np.ndarray[Any, Any]:
    """The result of the instructions in LLVM IR, on all groups of warps. Where A is in registers, ``fragments(thread)`` gives the words of a thread of all
    groups, and ``memories`` has B alone."""
    (assembly,) = re.findall(r'asm sideeffect "([^"]*)"', text)
    lines = assembly.split("\\0A")
    together = 2 if ".f16." in plan.name.partition("k")[2][:8] else 1
    (m, n), count = plan.c.shape, plan.c.register_count // together
    # sums that begin at zero are no operands, unless they are added to others: what their registers hold is not read
    fresh = re.search(r"mma_async\S+ \{\$0[,}][^;]*, %b, %no", assembly) is not None
    assert fresh == ("add.rn" not in assembly and "%sum" not in re.sub(r"%sum\d", "", text.partition("{")[2]))
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
            bases[name] = constant | (combine(context.parts[int(parts[0])], 4 * group) // 16 if parts else 0)
        held, fenced, now = Group(together, 10**6 if fresh else 0), False, dict(bases)
        for line in lines:
            if step := re.fullmatch(r"add\.s64 (%[ab]), \$(\d+), (\d+);", line):
                assert int(step[2]) == count + named.index(step[1])
                now[step[1]] = bases[step[1]] + int(step[3])
            elif call := re.fullmatch(r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k(\d+)\.\S+ \{([^}]+)\}, (%a|\{[$\d, ]+\}), %b, (%yes|%no)(.*);", line):
                assert fenced
                columns, ks = int(call[1]), int(call[2])
                registers = call[3].split(", ")
                assert len(registers) == columns // 2 // together
                flags = [part == "1" for part in call[6].split(", ")[3:]] or [False, False]
                b = memories[-1].read(now["%b"], flags[-1], columns, ks)
                if fragments is None:
                    a = memories[0].read(now["%a"], flags[0], 64, ks)
                else:
                    words = [int(name) - count - 1 for name in call[4].strip("{}").replace("$", "").split(", ")]
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
        sums = np.stack([held.read(f"${register}") for register in range(count)], axis=1).reshape(128, -1)
        for thread in range(128):
            for register in range(plan.c.register_count):
                place = coordinates(plan.c.element(register, thread % 32, 4 * group + thread // 32), (m, n))
                result[place], written[place] = sums[thread, register], written[place] + 1
    assert (written == 1).all()
    return result


def gathered(fragments: Fragments, group: int, words: list[int], ks: int) -> np.ndarray[Any, Any]:
    """The 64 rows of A that the threads of a group have in four words each, by the figure of the PTX ISA: elements of a word are neighbours along K, the
    second word is eight rows further, the third half of the instruction's K."""
    packed = ks // 8
    a = np.full((64, ks), 10**6)
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        held = fragments(128 * group + thread)
        for number, word in enumerate(words):
            row, first = 16 * warp + lane // 4 + 8 * (number % 2), lane % 4 * packed + 4 * packed * (number // 2)
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
def test_instructions_compute_the_product(shape: tuple[int, int], k: int, element: str, warps: int) -> None:
    computes_the_product(plan_of(shape, k, element, element, "i32" if element == "i8" else "f32", warps), k, element, warps)


@pytest.mark.parametrize(("shape", "k", "element", "warps"), [case for case in CASES if case[2] in ("f16", "f8e5m2")])
def test_sums_of_16_bits_lie_in_registers_by_twos(shape: tuple[int, int], k: int, element: str, warps: int) -> None:
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
def test_promoted_sums_compute_the_product(shape: tuple[int, int], k: int, imprecise: int, warps: int) -> None:
    product = Product(shape, k, F8E4M3FN, F8E5M2, F32, "ieee", imprecise, warps)
    plan = warpgroups.plans(Words(), product)[0]
    assert not plan.asynchronous
    text = computes_the_product(plan, k, "f8e5m2", warps)
    lines = text.split("\\0A")
    # as many instructions between additions as were asked for, and no more
    tiling = warpgroups.tile(product)
    assert tiling is not None and tiling.registers(product) <= warpgroups.registers_left(warps)
    runs = re.findall(r"(?:m|y+)", "".join("m" if "commit" in line else "y" if "mma_async" in line else "" for line in lines))
    assert max(len(one) for one in runs) * 32 <= imprecise
    assert lines.count("wgmma.commit_group.sync.aligned;") == -(-k // (imprecise // 32 * 32)) * tiling.repeats_m * tiling.repeats_n
    assert sum("add.rn.f32" in line for line in lines) == -(-k // (imprecise // 32 * 32)) * plan.c.register_count


def computes_the_product(plan: ProductPlan, k: int, element: str, warps: int) -> str:
    """Check what a plan writes, for all layouts in which it takes operands; the last text."""
    m, n = plan.c.shape
    type_ = {"f16": F16, "bf16": BF16, "f32": F32, "i8": I8, "f8e5m2": F8E5M2}[element]
    size = type_.bits // 8
    rng = np.random.default_rng(0)
    values = rng.integers(-50, 50, (m, k)), rng.integers(-50, 50, (k, n))
    assert plan.accepts is not None
    candidates: list[list[SharedLayout]] = []
    for position, tile in enumerate(values):
        every = [slab_layout(tile.shape, size, Slabs(inner, span)) for inner in (0, 1) for span in SPANS]
        candidates.append([layout for layout in every if layout is not None and plan.accepts(position, layout)])
        assert set(plan.wishes(position)) <= set(candidates[-1])
    assert all(candidates)
    for number in range(max(map(len, candidates))):
        layouts = candidates[0][number % len(candidates[0])], candidates[1][number % len(candidates[1])]
        memories = []
        for tile, layout in zip(values, layouts, strict=True):
            memory = np.zeros(tile.size, np.int64)
            memory[[layout.offset(i) for i in range(tile.size)]] = tile.reshape(-1)
            memories.append(Memory(memory, size))
        text, context = emitted(plan, SharedOperand("%a", layouts[0], type_), SharedOperand("%b", layouts[1], type_), ("0.0", "%sum")[number % 2])
        found = run(text, context, plan, memories, warps)
        assert (found == values[0] @ values[1]).all(), layouts
    return text


class Packer(Words):
    """Words that are known by their number."""

    def __init__(self) -> None:
        super().__init__()
        self.packed: list[list[int]] = []

    def pack(self, w: Any, names: Sequence[str], type_: str, word_type: str) -> str:
        assert names[0] != "0.0"
        self.packed.append([int(name.removeprefix("%r")) for name in names])
        return f"%w{len(self.packed) - 1}"


@pytest.mark.parametrize(("shape", "k", "element", "warps"), [case for case in CASES if case[2] != "f32"])
def test_instructions_with_a_in_registers_compute_the_product(shape: tuple[int, int], k: int, element: str, warps: int) -> None:
    (m, n), type_ = shape, {"f16": F16, "bf16": BF16, "i8": I8, "f8e5m2": F8E5M2}[element]
    packer = Packer()
    product = Product(shape, k, type_, type_, I32 if element == "i8" else F32, "ieee", 0, warps)
    (plan,) = (plan for plan in warpgroups.plans(packer, product) if plan.name.endswith(".rs"))
    rng = np.random.default_rng(1)
    left, right = rng.integers(-50, 50, (m, k)), rng.integers(-50, 50, (k, n))
    layout = plan.wishes(1)[0]
    memory = np.zeros(right.size, np.int64)
    memory[[layout.offset(i) for i in range(right.size)]] = right.reshape(-1)
    names = [f"%r{register}" for register in range(plan.a.register_count)]
    text, context = emitted(plan, names, SharedOperand("%b", layout, type_))

    def fragments(thread: int) -> list[list[int]]:
        return [[int(left.reshape(-1)[plan.a.element(register, thread % 32, thread // 32)]) for register in word] for word in packer.packed]

    found = run(text, context, plan, [Memory(memory, type_.bits // 8)], warps, fragments)
    assert (found == left @ right).all()


# ---- which products


@pytest.mark.parametrize(
    ("a", "b", "sums", "precision", "imprecise", "name"),
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
def test_kinds_of_products(a: Any, b: Any, sums: Any, precision: str, imprecise: int, name: str) -> None:
    found = warpgroups.plans(Words(), Product((64, 64), 128, a, b, sums, precision, imprecise, 4))
    assert [plan.name for plan in found] == ([name, name.replace(".ss", ".rs")] if name else [])


@pytest.mark.parametrize(
    ("shape", "k", "warps"), [((32, 64), 64, 4), ((64, 64), 64, 2), ((64, 4), 64, 4), ((64, 64), 8, 4), ((128, 256), 64, 4), ((2, 64, 64), 64, 4)]
)
def test_products_that_are_too_small_or_too_large(shape: tuple[int, ...], k: int, warps: int) -> None:
    assert not warpgroups.plans(Words(), Product(shape, k, F16, F16, F32, "ieee", 0, warps))


def test_not_where_refused_nor_on_other_machines() -> None:
    product = Product((64, 64), 64, F16, F16, F32, "ieee", 0, 4)
    assert PtxTarget(TARGET, ASYNCHRONOUS).products(product)[0].name.startswith("wgmma")
    assert PtxTarget(TARGET).hopper
    for arch, options in (("sm_90a", {"asynchronous": False}), ("sm_80", ASYNCHRONOUS), ("sm_100a", ASYNCHRONOUS)):
        target = PtxTarget(target_of(ARCHITECTURES[arch]), options)
        assert [plan.name.partition(".")[0] for plan in target.products(product)] == ["mma"]
        assert (target.barrier_bytes, target.part_warps, [one.name for one in target.mechanisms]) == (0, 0, ["cp.async"])


# ---- what is assembled


@pytest.mark.parametrize("x", [Operand(turned, span) for turned in (False, True) for span in SPANS], ids=str)
def test_one_product_assembles(x: Operand) -> None:
    code = compiled(product_kernel((64, 64), 64, "f16", "f16", "f32", x, Operand(not x.transposed, x.span)))
    ptx = str(code.stages["ptx"])
    steps = re.findall(r"wgmma\.mma_async\.sync\.aligned\.m64n64k16\.f32\.f16\.f16 .*, 1, 1, (\d), (\d);", ptx)
    assert steps == [(str(int(x.transposed)), str(int(x.transposed)))] * 4
    assert ptx.index("wgmma.fence") < ptx.index("wgmma.mma_async") < ptx.index("wgmma.commit_group") < ptx.index("wgmma.wait_group.sync.aligned 0;")
    assert "C75" not in assemble(ptx, "sm_90a").log


@pytest.mark.parametrize(("a", "b", "sums"), [("bf16", "bf16", "f32"), ("f32", "f32", "f32"), ("f8e4m3fn", "f8e5m2", "f32"), ("i8", "u8", "i32")])
def test_other_kinds_assemble(a: str, b: str, sums: str) -> None:
    code = compiled(product_kernel((64, 64), 32 if a == "f32" else 64, a, b, sums, Operand(span=64), Operand(True, 64)))
    assert "C75" not in assemble(code.stages["ptx"], "sm_90a").log


def multiply(
    a: Any,
    b: Any,
    out: Any,
    K: Any,
    N: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    TURNED: tl.constexpr,
    PARTS: tl.constexpr,
    SUMS: tl.constexpr,
    IMPRECISE: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=SUMS)
    for k in tl.range(0, K, BK, warp_specialize=PARTS):
        x = a.load([m, k])
        if TURNED:
            y = b.load([n, k]).T
        else:
            y = b.load([k, n])
        acc = tl.dot(x, y, acc, max_num_imprecise_acc=IMPRECISE, out_dtype=SUMS, input_precision=PRECISION)
    tl.store(out + (m + tl.arange(0, BM))[:, None] * N + (n + tl.arange(0, BN))[None, :], acc)


def matmul_module(
    turned: bool,
    parts: bool,
    block: tuple[int, int, int],
    columns: int = 1024,
    dtype: str = "fp16",
    other: str = "",
    sums: str = "fp32",
    imprecise: int | None = None,
    precision: str = "tf32",
) -> Any:
    """:func:`multiply` of operands of the types ``dtype`` and ``other`` (by default the same)."""
    bm, bn, bk = block
    type_of_sums = {"fp32": tl.float32, "fp16": tl.float16, "i32": tl.int32}[sums]
    constants = {"N": columns, "BM": bm, "BN": bn, "BK": bk, "TURNED": turned, "PARTS": parts}
    constants |= {"SUMS": type_of_sums, "IMPRECISE": imprecise, "PRECISION": precision}
    second = f"{bn},{bk}" if turned else f"{bk},{bn}"
    types = {"a": f"tensordesc<{dtype}[{bm},{bk}]>", "b": f"tensordesc<{other or dtype}[{second}]>"}
    facts = {"divisibility": 16}
    signature = {**types, "out": f"*{sums}", "K": "i32", **dict.fromkeys(constants, "constexpr")}
    module = compile_function(device_function(multiply), signature, constants, {"a": facts, "b": facts, "out": {"divisibility": 16}})
    pipeline.run(module)
    return module


#: Element types of A and B, of the sums, and after how many elements along K these are promoted.
KINDS = [
    ("fp16", "fp16", "fp16", None),
    ("bf16", "bf16", "fp32", None),
    ("fp32", "fp32", "fp32", None),
    ("i8", "i8", "i32", None),
    ("u8", "u8", "i32", None),
    ("fp8e4nv", "fp8e4nv", "fp32", None),
    ("fp8e4nv", "fp8e5", "fp32", None),
    ("fp8e5", "fp8e5", "fp16", None),
    ("fp8e4nv", "fp8e4nv", "fp32", 128),
    ("fp8e5", "fp8e4nv", "fp32", 64),
    ("fp8e4nv", "fp8e5", "fp32", 32),
]
#: Bytes of an element.
SIZES = {"fp16": 2, "bf16": 2, "fp32": 4, "i8": 1, "u8": 1, "fp8e4nv": 1, "fp8e5": 1}


@pytest.mark.parametrize(("a", "b", "sums", "imprecise"), KINDS)
@pytest.mark.parametrize("turned", [False, True], ids=["b", "b transposed"])
@pytest.mark.parametrize("parts", [False, True], ids=["blocks", "parts"])
def test_pipelined_products_of_each_kind_are_not_serialised(a: str, b: str, sums: str, imprecise: int | None, turned: bool, parts: bool) -> None:
    module = matmul_module(turned, parts, (128, 128, 128 // SIZES[a]), 1024, a, b, sums, imprecise)
    ptx = str(lower(module, TARGET, {**ASYNCHRONOUS, "num_warps": 8, "num_stages": 3}).stages["ptx"])
    linked = assemble(ptx, "sm_90a")
    # C7508: a kernel of few registers gives none away
    assert not re.search("C75(?!08)", linked.log) and not linked.spills, linked.log
    assert "mma.sync" not in ptx and len(re.findall("wgmma.mma_async", ptx)) == 4
    # what must be turned on its way is turned in words
    assert not re.search(r"[ls][dt]\.shared\.[bu](8|16)\b", ptx)
    additions = len(re.findall(r"add\.rn\.f32", ptx))
    assert additions == (64 * 128 // imprecise if imprecise else 0)


@pytest.mark.parametrize("turned", [False, True], ids=["b", "b transposed"])
@pytest.mark.parametrize("parts", [False, True], ids=["blocks", "parts"])
@pytest.mark.parametrize(("block", "warps"), [((128, 128, 64), 4), ((128, 256, 64), 8)], ids=str)
def test_a_pipelined_product_is_not_serialised(turned: bool, parts: bool, block: tuple[int, int, int], warps: int) -> None:
    code = lower(matmul_module(turned, parts, block), TARGET, {**ASYNCHRONOUS, "num_warps": warps, "num_stages": 3})
    ptx = str(code.stages["ptx"])
    linked = assemble(ptx, "sm_90a")
    assert "C75" not in linked.log, linked.log
    assert linked.spills == 0, linked.log
    assert "cp.async.bulk.tensor.2d" in ptx and "mma.sync" not in ptx and "ldmatrix" not in ptx
    assert code.metadata["num_warps"] == warps + 4 * parts
    # one product stays under way
    assert "wgmma.wait_group.sync.aligned 1;" in ptx
    assert [facts["address"] for facts in code.metadata["tensor_maps"]] == [["word", 0, 0], ["word", 1, 0]]
    assert len(re.findall(r"\.param \.align 64 \.b8 \w+\[128\]", ptx)) == 2


def persistent(
    a: Any, b: Any, c: Any, M: Any, N: Any, K: Any, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, HALVES: tl.constexpr, FLATTEN: tl.constexpr
) -> None:
    """Each program walks the blocks of the result, which it stores by blocks, in two halves where they should be."""
    across = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * across, tl.num_programs(0), flatten=FLATTEN):
        m, n = tile // across * BM, tile % across * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
        if HALVES:
            left, right = acc.reshape(BM, 2, BN // 2).permute(0, 2, 1).split()
            c.store([m, n], left.to(c.dtype))
            c.store([m, n + BN // 2], right.to(c.dtype))
        else:
            c.store([m, n], acc.to(c.dtype))


def persistent_module(block: tuple[int, int, int], halves: bool, flatten: bool, dtype: str = "fp16") -> Any:
    bm, bn, bk = block
    constants = {"BM": bm, "BN": bn, "BK": bk, "HALVES": halves, "FLATTEN": flatten}
    shapes = {"a": [bm, bk], "b": [bk, bn], "c": [bm, bn // 2 if halves else bn]}
    types = {name: f"tensordesc<{dtype}{shape}>" for name, shape in shapes.items()}
    signature = {**types, **dict.fromkeys("MNK", "i32"), **dict.fromkeys(constants, "constexpr")}
    module = compile_function(device_function(persistent), signature, constants, {name: {"divisibility": 16} for name in types})
    pipeline.run(module)
    return module


@pytest.mark.parametrize("halves", [False, True], ids=["whole", "halves"])
@pytest.mark.parametrize("flatten", [False, True], ids=["nested", "flattened"])
@pytest.mark.parametrize(("block", "warps", "stages"), [((128, 128, 64), 4, 3), ((128, 256, 64), 8, 3), ((128, 256, 64), 8, 4)], ids=str)
def test_a_persistent_product_leaves_room_for_what_it_stores(block: tuple[int, int, int], warps: int, stages: int, flatten: bool, halves: bool) -> None:
    code = lower(persistent_module(block, halves, flatten), TARGET, {**ASYNCHRONOUS, "num_warps": warps, "num_stages": stages})
    ptx = str(code.stages["ptx"])
    linked = assemble(ptx, "sm_90a")
    assert "C75" not in linked.log and linked.spills == 0, linked.log
    assert code.metadata["num_warps"] == warps + 4 * flatten
    (bm, bn, bk) = block
    assert f"buffer<{stages} x {bk}x{bn}xf16" in str(code.stages["simt"]), "as deep as was asked for"
    # through slabs of 128 bytes, in which threads write without conflicts; and no store is waited for before its memory is needed
    maps = code.metadata["tensor_maps"]
    found = [(facts["address"][1], facts["box"], facts["span"]) for facts in maps]
    assert found == [(0, [bm, bk], 128), (1, [bk, 64], 128), (2, [bm, 64], 128)]
    loop, _, _ = ptx.rpartition("cp.async.bulk.wait_group")
    assert loop.count("cp.async.bulk.commit_group") == ptx.count("cp.async.bulk.commit_group")
    first = re.search(r"cp\.async\.bulk\.wait_group|cp\.async\.bulk\.tensor\.2d\.global", ptx)
    assert first is not None and "wait_group" in first[0]


@pytest.mark.parametrize("parts", [False, True], ids=["blocks", "parts"])
@pytest.mark.parametrize("element", ["fp16", "bf16"])
def test_sums_that_are_converted_for_stores_are_not_read_early(parts: bool, element: str) -> None:
    def kernel(a: Any, b: Any, out: Any, M: Any, N: Any, K: Any, TO: tl.constexpr, PARTS: tl.constexpr) -> None:
        m, n = tl.program_id(0) * 128, tl.program_id(1) * 256
        acc = tl.zeros((128, 256), dtype=tl.float32)
        for k in tl.range(0, K, 64, warp_specialize=PARTS):
            acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
        rows, columns = (m + tl.arange(0, 128))[:, None], (n + tl.arange(0, 256))[None, :]
        tl.store(out + rows * N + columns, acc.to(TO), mask=(rows < M) & (columns < N))

    constants = {"TO": tl.float16 if element == "fp16" else tl.bfloat16, "PARTS": parts}
    types = {"a": f"tensordesc<{element}[128,64]>", "b": f"tensordesc<{element}[64,256]>", "out": f"*{element}", **dict.fromkeys("MNK", "i32")}
    facts = {name: {"divisibility": 16} for name in types}
    module = compile_function(device_function(kernel), {**types, **dict.fromkeys(constants, "constexpr")}, constants, facts)
    pipeline.run(module)
    code = lower(module, TARGET, {**ASYNCHRONOUS, "num_warps": 8, "num_stages": 3})
    assert "C75" not in assemble(str(code.stages["ptx"]), "sm_90a").log


def test_operands_in_registers_are_put_in_shared_memory() -> None:
    def kernel(x: Any, y: Any, out: Any, S: tl.constexpr) -> None:
        at = tl.arange(0, S)[:, None] * S + tl.arange(0, S)[None, :]
        tl.store(out + at, tl.dot((tl.load(x + at) * 2).to(tl.float16), tl.load(y + at)))

    signature = {"x": "*fp16", "y": "*fp16", "out": "*fp32"}
    code = compile_kernel(device_function(kernel), signature, constants={"S": 64}, asynchronous=True)
    ptx = str(code.stages["ptx"])
    # what threads wrote is shown to the matrix instructions before all threads meet
    assert re.search(r"fence\.proxy\.async\.shared::cta;(?:(?!st\.shared)[\s\S])*?bar(rier)?[.\w]*sync[\s\S]*wgmma\.mma_async", ptx)
    assert "C75" not in assemble(ptx, "sm_90a").log
    assert "wgmma" not in str(compile_kernel(device_function(kernel), signature, constants={"S": 64}, asynchronous=False).stages["ptx"])


def scaled_product(a: Any, a_scales: Any, b: Any, b_scales: Any, out: Any, K: Any, BLOCK: tl.constexpr, FORMAT: tl.constexpr, PACKED: tl.constexpr) -> None:
    acc = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    rows, groups = tl.arange(0, BLOCK)[:, None] * (K // 32), tl.arange(0, BLOCK // 32)[None, :]
    for k in range(0, K, BLOCK):
        x, y = a.load([0, k // PACKED]), b.load([0, k // PACKED])
        at = rows + k // 32 + groups
        acc = tl.dot_scaled(x, tl.load(a_scales + at), FORMAT, y.T, tl.load(b_scales + at), FORMAT, acc)
    at = tl.arange(0, BLOCK)
    tl.store(out + at[:, None] * BLOCK + at[None, :], acc)


@pytest.mark.parametrize(("format_", "element", "packed", "products"), [("e4m3", "fp8e4nv", 1, 1), ("e2m1", "u8", 2, 2)])
def test_block_scaled_operands_are_unpacked_by_twos(format_: str, element: str, packed: int, products: int) -> None:
    constants = {"BLOCK": 128, "FORMAT": format_, "PACKED": packed}
    block, scales = f"tensordesc<{element}[128,{128 // packed}]>", "*u8"
    signature = {"a": block, "a_scales": scales, "b": block, "b_scales": scales, "out": "*fp32", "K": "i32", **dict.fromkeys(constants, "constexpr")}
    facts = {name: {"divisibility": 16} for name in ("a", "a_scales", "b", "b_scales", "out", "K")}
    module = compile_function(device_function(scaled_product), signature, constants, facts)
    pipeline.run(module)
    ptx = str(lower(module, TARGET, {**ASYNCHRONOUS, "num_warps": 8, "num_stages": 2}).stages["ptx"])
    linked = assemble(ptx, "sm_90a")
    assert "C75" not in linked.log and not linked.spills, linked.log
    assert "mma.sync" not in ptx and len(re.findall(r"wgmma\.mma_async\S+\.f32\.bf16\.bf16 ", ptx)) == 8
    # each thread has 128 elements of both operands, each of which is multiplied by its scale, those of e2m1 by a power of two before
    assert len(re.findall(r"mul\.rn\.bf16x2", ptx)) == 64 * products and not re.search(
        r"mul\.rn\.bf16 |mul\.rn\.f32|cvt\.rn\.bf16\.f32 %rs\d+, %r\d+;.*st\.shared", ptx
    )
    assert len(re.findall(r"cvt\.rn\.f16x2\.e4m3x2", ptx)) == (64 if packed == 1 else 0)
