"""An instruction of one vendor, from a kernel to its result.

The operation, its layout rule, lowering and effects, and the pass that creates it are defined
outside of the core, and all stages of the toolkit handle it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.errors import LoweringError
from tilewright.ir import Module
from tilewright.ir.builder import Builder
from tilewright.ir.core import Operation, Value
from tilewright.ir.declare import Declarations, SingleOperand, TypedAttribute
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.ir.table import Effect, RuleError, Shape
from tilewright.ir.types import FloatType, TileType, Type, element_type
from tilewright.ir.verifier import VerificationError, verify
from tilewright.llvm.emission.registers import constant, storage_size
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import (
    Capabilities,
    CodeObject,
    Device,
    Manifest,
    Parameter,
    Target,
)
from tilewright.plugins.registry import registry
from tilewright.simt import emulator
from tilewright.simt.assign_layouts.shape_rules import per_register
from tilewright.simt.assign_layouts.solver import Origin
from tilewright.simt.assign_layouts.verify import check
from tilewright.simt.compile import STAGES, compile_kernel, kernel_of, run_stages
from tilewright.simt.dialect.attributes import layout_of
from tilewright.simt.dialect.layout_rules import LayoutError, packed
from tilewright.simt.dialect.op_interface import Interface, SharedEffects, Statement
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.dialect.types import SlotType, slot_type
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout, blocked, log2
from tilewright.simt.lowering.emission.context import SimtContext
from tilewright.simt.lowering.emission.shared_access import read_tile, write_tile
from tilewright.simt.lowering.shared_memory import slot_address
from tilewright.simt.target.simt_target import SimtTarget, Stage, VendorDialect

WARPS, LANES = 2, 8
OPTIONS = {"num_warps": WARPS, "num_stages": 2, "enable_fp_fusion": False}


# ---- acme.fused: a transposed, times a number, plus b; a goes through scratch space


def _fused_type(shape: Shape) -> list[Type]:
    a, b = shape.type("a"), shape.type("b")
    if (
        not isinstance(a, TileType)
        or not isinstance(b, TileType)
        or a.shape != b.shape[::-1]
        or a.element is not b.element
    ):
        raise RuleError(f"a must be a tile of b's extents the other way round, not {a} beside {b}")
    if not isinstance(a.element, FloatType):
        raise RuleError(f"a must be of floats, not {a}")
    return [b]


OPS = Declarations()


@OPS.operation("acme.fused", "scale times a, transposed, plus b", _fused_type)
class Fused(Operation):
    __slots__ = ()

    a = SingleOperand()
    b = SingleOperand()
    scale = TypedAttribute[float]("what a is multiplied by", 1.0)


def rows_of(tile: Value, warp_size: int, warps: int) -> LinearLayout:
    """Return the layout in which the instruction reads a: four neighbours of a row per thread."""
    assert isinstance(tile.type, TileType)
    return blocked(tile.type.shape, (1, 0), 4, warp_size, warps)


def _fused_layouts(statement: Statement, operation: Fused) -> None:
    """a in the instruction's layout; b and the result in one, whichever is cheapest of those with
    eight neighbours of a row in a thread."""
    a, b = operation.a, operation.b
    eights = statement.variable(b, statement.weight(operation))
    eights.admit = lambda layout: packed(layout, 8)
    eights.prices.append(per_register(3.0))
    statement.reads[operation] = [
        rows_of(a, statement.target.resources.warp_size, statement.num_warps),
        eights,
    ]
    statement.origins[operation.results[0]] = Origin(eights)


def _fused_check(operation: Fused, target: SimtTarget) -> str:
    a, b = operation.a, operation.b
    if layout_of(a) != rows_of(a, target.resources.warp_size, WARPS):
        return "a must be in rows of four"
    if layout_of(b) != layout_of(operation.results[0]) or packed(layout_of(b), 8) != layout_of(b):
        return "b and the result must have one layout, of eights"
    return ""


def _fused_scratch(operation: Fused, target: SimtTarget) -> int:
    type_ = operation.a.type
    assert isinstance(type_, TileType)
    return type_.numel * storage_size(type_.element)


def _fused_lowering(context: SimtContext, operation: Fused) -> None:
    w, a, b, result = context.writer, operation.a, operation.b, operation.result
    element = element_type(a.type)
    assert isinstance(a.type, TileType)
    rows, columns = a.type.shape
    base = context.scratch(operation)
    write_tile(
        context,
        base,
        context.layout(a),
        SharedLayout.row_major((rows, columns)),
        element,
        context.registers[a],
    )
    context.barrier()
    # element (column, row) of the transposed tile is where (row, column) was written
    turned = SharedLayout(
        (columns, rows),
        tuple(columns << bit for bit in range(log2(rows)))
        + tuple(1 << bit for bit in range(log2(columns))),
    )
    moved = read_tile(context, base, context.layout(result), turned, element)
    type_, scale = context.llvm_type(result.type), constant(element, operation.scale)
    sums = [
        w.emit(f"fadd {type_} {w.emit(f'fmul {type_} {x}, {scale}')}, {y}")
        for x, y in zip(moved, context.registers[b], strict=True)
    ]
    context.bind(result, sums)


FUSED_INTERFACE = Interface(_fused_lowering, _fused_layouts, _fused_check, _fused_scratch)


# ---- acme.flip: a tile from shared memory, with its elements in reverse order


def _flip_type(shape: Shape) -> list[Type]:
    slot = shape.type("slot")
    if not isinstance(slot, SlotType):
        raise RuleError(f"slot must be a slot, not {slot}")
    return [slot.tile]


@OPS.operation(
    "acme.flip", "a tile from shared memory, last element first", _flip_type, effects=Effect.READ
)
class Flip(Operation):
    __slots__ = ()

    slot = SingleOperand()


def _flip_lowering(context: SimtContext, operation: Flip) -> None:
    slot, result = operation.slot, operation.result
    w, type_, layout = context.writer, slot_type(slot), context.layout(result)
    size, last = storage_size(type_.element), 2 ** len(layout.images) - 1
    assert type_.layout == SharedLayout.row_major(type_.shape)
    thread, names = context.thread_part(layout.lanes, layout.warps), []
    for element in layout.register_elements():
        place = w.emit(f"mul i32 {w.emit(f'xor i32 {thread}, {element ^ last}')}, {size}")
        address = w.emit(
            f"getelementptr i8, {context.target.shared.pointer} "
            f"{slot_address(context, slot)}, i32 {place}"
        )
        names += context.shared_load(address, context.llvm_type(result.type), align=size)
    context.bind(result, names)


def _flip_effects(operation: Flip) -> SharedEffects:
    return SharedEffects(reads=(operation.slot,))


FLIP_INTERFACE = Interface(_flip_lowering, effects=_flip_effects)


# ---- the machine


class AcmeTarget(EmulatedTarget):
    """An emulated machine with both instructions."""

    name = "acme"

    def __init__(self, interfaces: Mapping[str, Interface] | None = None) -> None:
        super().__init__(LANES)
        known = (
            {"acme.fused": FUSED_INTERFACE, "acme.flip": FLIP_INTERFACE}
            if interfaces is None
            else interfaces
        )
        self.dialect = VendorDialect(tuple(OPS), known)


KERNEL = """
tilewright.ir 1.0
kernel @k(%x: ptr<f32> {divisibility = 16}, %y: ptr<f32> {divisibility = 16}, %out: ptr<f32> {divisibility = 16}) {
  %wide = arange {start = 0, end = 256} : tile<256xi32>
  %x_offsets = reshape %wide : tile<8x32xi32>
  %y_offsets = reshape %wide : tile<32x8xi32>
  %xs = splat %x : tile<8x32xptr<f32>>
  %ys = splat %y : tile<32x8xptr<f32>>
  %outs = splat %out : tile<32x8xptr<f32>>
  %from_x = addptr %xs, %x_offsets : tile<8x32xptr<f32>>
  %from_y = addptr %ys, %y_offsets : tile<32x8xptr<f32>>
  %to = addptr %outs, %y_offsets : tile<32x8xptr<f32>>
  %a = load %from_x : tile<8x32xf32>
  %b = load %from_y : tile<32x8xf32>
  %first = acme.fused %a, %b {scale = 3.0} : tile<32x8xf32>
  %second = acme.fused %a, %first : tile<32x8xf32>
  store %to, %second
  return
}
"""


def small(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 10, shape).astype(np.float32)


def run_text(module: Module, target: EmulatedTarget, arguments: list[Any]) -> str:
    """Compile, run on the emulated machine; the LLVM IR."""
    text = compile_kernel(module, target, OPTIONS)
    emulator.run_text(
        text,
        target,
        [argument.type for argument in kernel_of(module).arguments],
        arguments,
        (1, 1, 1),
        WARPS,
    )
    return text


def inside(module: Module, name: str) -> list[Operation]:
    return [operation for operation in kernel_of(module).walk() if operation.name == name]


# ---- in the text of a kernel


def test_a_kernel_with_a_vendors_operation_runs() -> None:
    target = AcmeTarget()
    module = parse_module(KERNEL, target.dialect.table)
    verify(module)
    x, y, out = small(8, 32), small(32, 8), np.zeros((32, 8), np.float32)
    run_text(module, target, [x, y, out])
    np.testing.assert_array_equal(out, 4 * x.T + y)


def test_each_stage_of_such_a_kernel_reads_back() -> None:
    target = AcmeTarget()
    module = parse_module(KERNEL, target.dialect.table)
    for stage in target.stages(STAGES):
        run_stages(module, target, OPTIONS, [stage.name])
        text = print_module(module)
        assert print_module(parse_module(text, target.dialect.table)) == text


def test_its_operands_are_in_the_layouts_it_asks_for() -> None:
    target = AcmeTarget()
    module = parse_module(KERNEL, target.dialect.table)
    run_stages(module, target, OPTIONS, ["prepare", "layouts"])
    check(kernel_of(module), target)
    for operation in inside(module, "acme.fused"):
        assert layout_of(operation.operands[0]) == rows_of(operation.operands[0], LANES, WARPS)
        assert layout_of(operation.results[0]).registers[:3] == (1, 2, 4)
    # a layout that it does not take is found
    operation = inside(module, "acme.fused")[0]
    (other,) = (
        Builder.at(operation)
        .create(SIMT_TABLE["simt.convert"], [[operation.operands[0]]], {})
        .results
    )
    other.layout = replace(
        layout_of(operation.operands[0]), registers=layout_of(operation.operands[0]).registers[::-1]
    )
    operation.set_operand(0, other)
    with pytest.raises(LayoutError, match=r"acme\.fused .*a must be in rows of four"):
        check(kernel_of(module), target)


def test_its_scratch_space_is_placed_and_guarded() -> None:
    """Without a barrier or separate scratch space, uses would overwrite each other's data."""
    target = AcmeTarget()
    module = parse_module(KERNEL, target.dialect.table)
    run_stages(module, target, OPTIONS, [stage.name for stage in STAGES])
    first, second = inside(module, "acme.fused")
    size = 8 * 32 * 4
    offsets = [operation.attributes["simt.offset"] for operation in (first, second)]
    assert kernel_of(module).attributes["shared_bytes"] >= max(offsets) + size
    assert abs(offsets[0] - offsets[1]) >= size or any(
        operation.name == "barrier" for operation in _between(first, second)
    )


def _between(first: Operation, last: Operation) -> Iterator[Operation]:
    operation = first.next
    while operation is not None and operation is not last:
        yield operation
        operation = operation.next


def test_its_rule_is_verified() -> None:
    wrong = KERNEL.replace(
        "acme.fused %a, %b {scale = 3.0} : tile<32x8xf32>",
        "acme.fused %b, %b {scale = 3.0} : tile<32x8xf32>",
    )
    with pytest.raises(
        VerificationError,
        match=r"acme\.fused .*a must be a tile of b's extents the other way round",
    ):
        verify(parse_module(wrong, AcmeTarget().dialect.table))


# ---- effects on shared memory

SLOTS = """
tilewright.ir 1.0
#L0 = layout<64, registers [(1) (2)], lanes [(4) (8) (16)], warps [(32)]>
#S0 = shared<64>
kernel @k(%x: ptr<f32> {divisibility = 16}, %out: ptr<f32> {divisibility = 16}) attributes {warps = 2} {
  %zero = constant 0 : i32
  %offsets = arange {start = 0, end = 64} : tile<64xi32, #L0>
  %xs = splat %x : tile<64xptr<f32>, #L0>
  %outs = splat %out : tile<64xptr<f32>, #L0>
  %from = addptr %xs, %offsets : tile<64xptr<f32>, #L0>
  %to = addptr %outs, %offsets : tile<64xptr<f32>, #L0>
  %a = load %from : tile<64xf32, #L0>
  %buffer = simt.buffer : buffer<1 x 64xf32, #S0>
  %slot = simt.slot %buffer, %zero : slot<64xf32, #S0>
  simt.store %slot, %a
  %b = acme.flip %slot : tile<64xf32, #L0>
  simt.store %slot, %b
  %c = simt.load %slot : tile<64xf32, #L0>
  store %to, %c
  return
}
"""


class LayoutsGiven(AcmeTarget):
    """Kernels come with layouts."""

    def stages(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        return tuple(stage for stage in stages if stage.name in ("allocate", "barriers"))


def _shared_accesses(module: Module) -> list[str]:
    return [
        operation.name
        for operation in kernel_of(module).walk()
        if operation.name in ("simt.store", "barrier", "acme.flip", "simt.load")
    ]


def test_threads_wait_for_what_it_reads_from_shared_memory() -> None:
    target = LayoutsGiven()
    module = parse_module(SLOTS, target.dialect.table)
    verify(module)
    x, out = small(64), np.zeros(64, np.float32)
    run_text(module, target, [x, out])
    np.testing.assert_array_equal(out, x[::-1])
    assert _shared_accesses(module)[:5] == [
        "simt.store",
        "barrier",
        "acme.flip",
        "barrier",
        "simt.store",
    ]
    # it is the effects that say so
    silent = LayoutsGiven({"acme.flip": replace(FLIP_INTERFACE, effects=None)})
    module = parse_module(SLOTS, silent.dialect.table)
    run_stages(module, silent, OPTIONS, ["allocate", "barriers"])
    assert _shared_accesses(module)[:2] == ["simt.store", "acme.flip"]


# ---- found by a pass that a plugin adds


def fuse(module: Module) -> bool:
    """``acme.fused`` in place of a sum with a transposed tile."""
    changed = False
    for operation in list(module.kernel.walk()):
        if operation.name != "add" or not isinstance(
            element_type(operation.results[0].type), FloatType
        ):
            continue
        for turned, other in itertools.permutations(operation.operands):
            source = turned.definition
            if source is None or source.name != "permute" or source.attribute("order") != (1, 0):
                continue
            (result,) = (
                Builder.at(operation).create(Fused.row, [[source.operands[0]], [other]], {}).results
            )
            operation.results[0].replace_all_uses(result)
            operation.erase()
            if not source.results[0].uses:
                source.erase()
            changed = True
            break
    return changed


class AcmePlugin:
    """A backend for machines of the target's kind."""

    __name__ = "acme"

    def __init__(self) -> None:
        self.lowered: list[str] = []

    @hookimpl
    def tilewright_backend(self) -> Manifest:
        return Manifest(
            "acme",
            "1",
            "fuses",
            ("cpu",),
            ("emulated",),
            Capabilities(frozenset({"i1", "i32", "i64", "f32"})),
            ops=tuple(OPS),
            priority=-10,
        )

    @hookimpl
    def tilewright_devices(self) -> Sequence[Device]:
        return [Device("acme", "cpu", 0, "emulated")]

    @hookimpl
    def tilewright_target(self, device: Device) -> Target:
        return Target("acme", "emulated", warp_size=LANES, kind="cpu")

    @hookimpl
    def tilewright_passes(self, target: Target, passes: Sequence[Any]) -> Sequence[Any]:
        return (*passes, fuse) if target.arch == "emulated" else passes

    @hookimpl
    def tilewright_lower(self, module: Module) -> CodeObject:
        self.lowered.append(str(module))
        text = compile_kernel(module, AcmeTarget(), OPTIONS)
        return CodeObject(module.kernel.name, text.encode(), {"llir": text})

    @hookimpl
    def tilewright_load(self, code: CodeObject) -> str:
        return code.binary.decode()

    @hookimpl
    def tilewright_launcher(self, loaded: str, parameters: Sequence[Parameter]) -> Any:
        types = [
            parse_module(f"tilewright.ir 1.0\nkernel @k(%a: {one.type}) {{\nreturn\n}}")
            .kernel.arguments[0]
            .type
            for one in parameters
        ]

        def launch(grid: tuple[int, int, int], stream: Any, values: tuple[Any, ...]) -> None:
            emulator.run_text(loaded, AcmeTarget(), types, values, grid, WARPS)

        return launch


@pytest.fixture
def plugin(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[AcmePlugin]:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    found = AcmePlugin()
    registry().register(found, "acme")
    yield found
    registry().unregister("acme")


@tw.jit
def add_transposed(x, y, out, M: tl.constexpr, N: tl.constexpr):
    rows, columns = tl.arange(0, M), tl.arange(0, N)
    a = tl.load(x + rows[:, None] * N + columns[None, :])
    b = tl.load(y + columns[:, None] * M + rows[None, :])
    tl.store(out + columns[:, None] * M + rows[None, :], tl.trans(a) + b)


def test_a_plugins_pass_puts_it_into_kernels(plugin: AcmePlugin) -> None:
    x, y, out = small(16, 8), small(8, 16), np.zeros((8, 16), np.float32)
    add_transposed[(1,)](x, y, out, M=16, N=8, backend="acme")
    np.testing.assert_array_equal(out, x.T + y)
    (text,) = plugin.lowered
    assert "acme.fused" in text and "permute" not in text


# ---- an added stage


class WithStage(AcmeTarget):
    """Finds its instruction in the toolkit's way instead of before it."""

    def stages(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        first, *rest = stages
        return (
            first,
            Stage("fuse", self._fuse, "sums with transposed tiles become one instruction"),
            *rest,
        )

    @staticmethod
    def _fuse(module: Module, target: SimtTarget, options: Mapping[str, Any]) -> None:
        fuse(module)


PLAIN = KERNEL.replace(
    (
        "%first = acme.fused %a, %b {scale = 3.0} : tile<32x8xf32>\n"
        "  %second = acme.fused %a, %first : tile<32x8xf32>"
    ),
    (
        "%turned = permute %a {order = [1, 0]} : tile<32x8xf32>\n"
        "  %second = add %turned, %b : tile<32x8xf32>"
    ),
)


def test_a_target_adds_a_stage() -> None:
    target = WithStage()
    module = parse_module(PLAIN, target.dialect.table)
    timings: dict[str, float] = {}
    x, y, out = small(8, 32), small(32, 8), np.zeros((32, 8), np.float32)
    text = compile_kernel(module, target, OPTIONS, timings)
    stages = [name for name in timings if name != "verify"]
    assert stages[:4] == ["prepare", "fuse", "cluster", "warps"] and inside(module, "acme.fused")
    emulator.run_text(
        text,
        target,
        [argument.type for argument in kernel_of(module).arguments],
        [x, y, out],
        (1, 1, 1),
        WARPS,
    )
    np.testing.assert_array_equal(out, x.T + y)


def test_stages_are_run_by_name() -> None:
    target = WithStage()
    module = parse_module(PLAIN, target.dialect.table)
    run_stages(module, target, OPTIONS, ["fuse"])
    assert inside(module, "acme.fused")
    with pytest.raises(
        KeyError,
        match="no stage 'melt'; there are prepare, fuse, cluster, warps, narrow, raise, unobserved",
    ):
        run_stages(module, target, OPTIONS, ["melt"])
    with pytest.raises(KeyError, match="no stage 'fuse'"):
        run_stages(module, AcmeTarget(), OPTIONS, ["fuse"])


# ---- what is not there


def test_an_operation_without_an_interface_is_refused() -> None:
    target = AcmeTarget({})
    module = parse_module(KERNEL, target.dialect.table)
    with pytest.raises(
        LoweringError, match=r"acme\.fused at .*: acme has no rule for where its tiles are"
    ):
        compile_kernel(module, target, OPTIONS)


def test_an_operation_without_a_lowering_is_refused() -> None:
    """After layouts are given, nothing asks for the rule."""
    target = LayoutsGiven({})
    with pytest.raises(LoweringError, match=r"operation acme\.flip at .* has no lowering for acme"):
        compile_kernel(parse_module(SLOTS, target.dialect.table), target, OPTIONS)


def test_a_defect_of_a_lowering_names_the_operation() -> None:
    def broken(context: SimtContext, operation: Operation) -> None:
        raise IndexError("no such register")

    target = LayoutsGiven({"acme.flip": replace(FLIP_INTERFACE, lower=broken)})
    with pytest.raises(
        LoweringError,
        match=(
            r"could not lower acme\.flip at .* for acme, a defect of the backend: IndexError: no "
            r"such register"
        ),
    ):
        compile_kernel(parse_module(SLOTS, target.dialect.table), target, OPTIONS)


def test_other_targets_do_not_know_it() -> None:
    with pytest.raises(ValueError, match=r"acme\.fused"):
        parse_module(KERNEL, EmulatedTarget(LANES).dialect.table)
