"""Small kernels in the toolkit's own operations, as text, that use one mechanism of Hopper each:
what is written for them, and how they are run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from tilewright.frontend.compile import compile_function
from tilewright.ir import Module
from tilewright.ir.parser import parse_module
from tilewright.ir.type_text import parse_type
from tilewright.ir.types import DescriptorType, Type
from tilewright.language.definitions.callable import device_function
from tilewright.passes import pipeline
from tilewright.plugins.manifest import CodeObject, Parameter
from tilewright.simt.compile import kernel_of, run_stages
from tilewright.simt.dialect.attributes import SHARED_BYTES, WARPS
from tilewright.simt.layouts.linear_layout import LinearLayout, SharedLayout, blocked
from tilewright.simt.lowering.lower_function import write_function
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan
from tilewright_nvidia.architectures import ARCHITECTURES, target_of
from tilewright_nvidia.async_copy.swizzle_atoms import SwizzleAtoms, swizzled_layout
from tilewright_nvidia.codegen.kernel_state import KernelState
from tilewright_nvidia.lower import tensor_maps, to_ptx
from tilewright_nvidia.manifest import OPTIONS
from tilewright_nvidia.mma import wgmma
from tilewright_nvidia.target import PtxTarget

TARGET = target_of(ARCHITECTURES["sm_90a"])
ASYNCHRONOUS = {**OPTIONS, "asynchronous": True}


@dataclass(frozen=True)
class Text:
    """A kernel as text, and the parameters of the source that it could be of."""

    text: str
    parameters: tuple[Parameter, ...]


def kernel(
    arguments: Sequence[tuple[str, str, dict[str, Any]]],
    body: str,
    warps: int = 4,
    **layouts: LinearLayout | SharedLayout,
) -> Text:
    """A kernel of arguments (name, type, facts), the parts of descriptors behind them; layouts are
    named by their letters: ``#L0``, ``#S1``."""
    listed = []
    for name, type_text, facts in arguments:
        known = (
            " {"
            + ", ".join(
                f"{key} = {f'{value!r}'.replace(chr(39), chr(34))}" for key, value in facts.items()
            )
            + "}"
            if facts
            else ""
        )
        listed.append(f"%{name}: {type_text}{known}")
        type_ = parse_type(type_text)
        if isinstance(type_, DescriptorType):
            listed.append(f"%{name}.base: ptr<{type_.element}>")
            listed += [
                f"%{name}.{part}{axis}: i64"
                for part in ("extent", "stride")
                for axis in range(type_.rank)
            ]
    named = "\n".join(
        f"#{name} = {layout.keyword}<{layout.text()}>" for name, layout in layouts.items()
    )
    text = (
        f"tilewright.ir 1.0\n{named}\n\n"
        f"kernel @k({', '.join(listed)}) attributes {{warps = {warps}}} {{\n{body}\n  return\n"
        f"}}\n"
    )
    return Text(text, tuple(Parameter(name, type_) for name, type_, _ in arguments))


def compiled(kernel_text: Text) -> CodeObject:
    """Return the PTX of a kernel."""
    machine = PtxTarget(TARGET, ASYNCHRONOUS)
    module = parse_module(kernel_text.text, machine.dialect.table)
    run_stages(module, machine, ASYNCHRONOUS, ["allocate", "barriers"])
    function = kernel_of(module)
    written = write_function(function, machine, ASYNCHRONOUS)
    llir, state = written.text(), written.state
    assert isinstance(state, KernelState)
    ptx = to_ptx(llir, TARGET)
    source: Any = SimpleNamespace(
        arguments=[
            SimpleNamespace(type=parse_type(parameter.type)) for parameter in kernel_text.parameters
        ]
    )
    metadata = {
        "kernel": function.name,
        "num_warps": function.attributes[WARPS],
        "shared": function.attributes[SHARED_BYTES],
        "tensor_maps": tensor_maps(source, function, state.maps),
        "format": "ptx",
        "configuration": "",
    }
    return CodeObject(
        function.name, ptx.encode(), {"simt": str(module), "llir": llir, "ptx": ptx}, metadata, {}
    )


# ---- pieces of bodies


def flat_layout(elements: int, warps: int) -> LinearLayout:
    return blocked((elements,), (0,), 1, 32, warps)


def flat_shared(shared: SharedLayout) -> SharedLayout:
    """The same places for the same elements, as a tile of rank 1."""
    return SharedLayout((1 << len(shared.images),), shared.images)


def stored(pointer: str, tile: str, elements: int, element: str, layout: str) -> str:
    """A tile of rank 1 to consecutive memory."""
    return f"""
  %at = arange {{start = 0, end = {elements}}} : tile<{elements}xi32, #{layout}>
  %to = splat %{pointer} : tile<{elements}xptr<{element}>, #{layout}>
  %places = addptr %to, %at : tile<{elements}xptr<{element}>, #{layout}>
  store %places, %{tile}"""


def described_block(
    block: tuple[int, ...], element: str, slabs: SwizzleAtoms
) -> tuple[str, SharedLayout]:
    """The text of a descriptor's type, and where its block's elements lie."""
    shared = swizzled_layout(block, size_of(parse_type(element)), slabs)
    assert shared is not None
    return f"desc<{'x'.join(map(str, block))}x{element}>", shared


def block_bytes(type_text: str) -> int:
    type_ = parse_type(type_text)
    assert isinstance(type_, DescriptorType)
    return type_.block_type.numel * size_of(type_.element)


def size_of(element: Type) -> int:
    return element.bits // 8  # type: ignore[attr-defined,no-any-return]


# ---- kernels


def barrier_kernel(arrivals: int) -> Text:
    """Arrivals of four warps at two barrier objects, and a wait for the phase that each ends; then
    numbers are stored."""
    lines = [
        "  %zero = constant 0 : i32",
        "  %one = constant 1 : i32",
        "  %no = constant false : i1",
        "  %yes = constant true : i1",
        "  %b = simt.barriers {count = 4} : barriers<2>",
        "  simt.await %b, %one, %yes",
    ]
    done = [0, 0]
    for arrival in range(arrivals):
        which = int(arrival % 3 == 2)
        name = ("zero", "one")[which]
        lines += [
            f"  simt.arrive %b, %{name}",
            f"  simt.await %b, %{name}, %{('no', 'yes')[done[which] % 2]}",
        ]
        done[which] += 1
    layout = flat_layout(256, 4)
    lines.append(
        "  %numbers = arange {start = 7, end = 263} : tile<256xi32, #L0>"
        + stored("out", "numbers", 256, "i32", "L0")
    )
    return kernel([("out", "ptr<i32>", {})], "\n".join(lines), L0=layout)


def load_kernel(
    block: tuple[int, ...], element: str, slabs: SwizzleAtoms, padding: str = "zero"
) -> Text:
    """A block of a descriptor by one copy, read out again in row-major order."""
    text, shared = described_block(block, element, slabs)
    elements, axes = math.prod(block), range(len(block))
    shape = "x".join(map(str, block))
    body = f"""
  %zero = constant 0 : i32
  %no = constant false : i1
  %buffer = simt.buffer {{alignment = 1024}} : buffer<1 x {shape}x{element}, #S0>
  %slot = simt.slot %buffer, %zero : slot<{shape}x{element}, #S0>
  %full = simt.barriers {{count = 1}} : barriers<1>
  simt.expect %full, %zero {{bytes = {block_bytes(text)}}}
  simt.block_load_start %slot, %x, offsets=[{", ".join(f"%i{axis}" for axis in axes)}], %full, %zero {{by = "tma"}}
  simt.await %full, %zero, %no
  %flat = simt.view %slot : slot<{elements}x{element}, #S1>
  %tile = simt.load %flat : tile<{elements}x{element}, #L0>{stored("out", "tile", elements, element, "L0")}"""
    arguments: list[tuple[str, str, dict[str, Any]]] = [
        ("x", text, {"padding": padding} if padding != "zero" else {}),
        ("out", f"ptr<{element}>", {}),
    ]
    arguments += [(f"i{axis}", "i32", {}) for axis in axes]
    return kernel(arguments, body, L0=flat_layout(elements, 4), S0=shared, S1=flat_shared(shared))


def store_kernel(block: tuple[int, ...], element: str, slabs: SwizzleAtoms) -> Text:
    """A row-major block to a descriptor's tensor by one copy."""
    text, shared = described_block(block, element, slabs)
    elements, axes = math.prod(block), range(len(block))
    shape = "x".join(map(str, block))
    body = f"""
  %zero = constant 0 : i32
  %buffer = simt.buffer {{alignment = 1024}} : buffer<1 x {shape}x{element}, #S0>
  %slot = simt.slot %buffer, %zero : slot<{shape}x{element}, #S0>
  %flat = simt.view %slot : slot<{elements}x{element}, #S1>
  %at = arange {{start = 0, end = {elements}}} : tile<{elements}xi32, #L0>
  %from = splat %x : tile<{elements}xptr<{element}>, #L0>
  %places = addptr %from, %at : tile<{elements}xptr<{element}>, #L0>
  %tile = load %places : tile<{elements}x{element}, #L0>
  simt.store %flat, %tile
  simt.block_store_start %slot, %out, offsets=[{", ".join(f"%i{axis}" for axis in axes)}] {{by = "tma"}}
  %token = simt.commit : token<stores>
  simt.wait tokens=[%token]"""
    arguments: list[tuple[str, str, dict[str, Any]]] = [
        ("out", text, {}),
        ("x", f"ptr<{element}>", {}),
    ]
    arguments += [(f"i{axis}", "i32", {}) for axis in axes]
    return kernel(arguments, body, L0=flat_layout(elements, 4), S0=shared, S1=flat_shared(shared))


def plan_of(
    shape: tuple[int, int],
    k: int,
    a: str,
    b: str,
    sums: str = "f32",
    warps: int = 4,
    kind: str = "ss",
) -> MatmulPlan:
    """Return the wgmma plan of a matmul.

    Both operands in shared memory (``ss``), or a in registers (``rs``).
    """
    types = [parse_type(name) for name in (a, b, sums)]
    precision = "tf32" if a == "f32" else "ieee"
    product = Matmul(shape, k, types[0], types[1], types[2], precision, 0, warps)
    return next(plan for plan in wgmma.plans(product) if plan.name.endswith(kind))


@dataclass(frozen=True)
class Operand:
    """An operand in memory.

    Attributes:
        transposed: whether its second axis is not the contiguous one.
        span: bytes of the rows of its swizzle atoms.
    """

    transposed: bool = False
    span: int = 128


def product_kernel(
    shape: tuple[int, int],
    k: int,
    a: str,
    b: str,
    sums: str = "f32",
    x: Operand = Operand(),
    y: Operand = Operand(),
    warps: int = 4,
    kind: str = "ss",
) -> Text:
    """Multiply two TMA-copied blocks once; the result is stored in row-major order."""
    (m, n), plan = shape, plan_of(shape, k, a, b, sums, warps, kind)
    arguments: list[tuple[str, str, dict[str, Any]]] = []
    layouts: dict[str, LinearLayout | SharedLayout] = {}
    head, copies, size = [], [], 0
    for number, (name, tile, element, operand) in enumerate(
        (("x", (m, k), a, x), ("y", (k, n), b, y))
    ):
        block = tile[::-1] if operand.transposed else tile
        text = f"desc<{block[0]}x{block[1]}x{element}>"
        bits = size_of(parse_type(element))
        in_memory = swizzled_layout(block, bits, SwizzleAtoms(1, operand.span))
        seen = swizzled_layout(
            tile, bits, SwizzleAtoms(0 if operand.transposed else 1, operand.span)
        )
        assert in_memory is not None and seen is not None
        layouts |= {f"S{2 * number}": in_memory, f"S{2 * number + 1}": seen}
        arguments.append((name, text, {}))
        size += block_bytes(text)
        head += [
            (
                f"  %b{name} = simt.buffer {{alignment = 1024}} : buffer<1 x "
                f"{block[0]}x{block[1]}x{element}, #S{2 * number}>"
            ),
            (
                f"  %s{name} = simt.slot %b{name}, %zero : slot<{block[0]}x{block[1]}x{element}, "
                f"#S{2 * number}>"
            ),
            (
                f"  %v{name} = simt.view %s{name} : slot<{tile[0]}x{tile[1]}x{element}, "
                f"#S{2 * number + 1}>"
            ),
        ]
        copies.append(
            f"  simt.block_load_start %s{name}, %{name}, offsets=[%zero, %zero], %full, "
            f'%zero {{by = "tma"}}'
        )
    attributes = f'plan = "{plan.name}"' + (', precision = "tf32"' if a == "f32" else "")
    tile_type = f"tile<{m}x{n}x{sums}, #L0>"
    if kind == "ss":
        product = [
            (
                f"  %d, %token = simt.dot_start %vx, %vy, %c {{{attributes}}} : {tile_type}, "
                "token<matmuls>"
            ),
            f"  %e = simt.wait tokens=[%token], tiles=[%d] : {tile_type}",
        ]
    else:
        product = [
            f"  %rx = simt.load %vx : tile<{m}x{k}x{a}, #L2>",
            f"  %e = simt.dot %rx, %vy, %c {{{attributes}}} : {tile_type}",
        ]
        layouts["L2"] = plan.a
    body = "\n".join(
        [
            "  %zero = constant 0 : i32",
            "  %no = constant false : i1",
            *head,
            "  %full = simt.barriers {count = 1} : barriers<1>",
            f"  %start = constant {'0.0' if sums[0] == 'f' else '0'} : {sums}",
            f"  %c = splat %start : {tile_type}",
            f"  simt.expect %full, %zero {{bytes = {size}}}",
            *copies,
            "  simt.await %full, %zero, %no",
            *product,
            (
                f"  %flat = reshape %e : tile<{m * n}x{sums}, "
                f"#L1>{stored('out', 'flat', m * n, sums, 'L1')}"
            ),
        ]
    )
    layouts |= {"L0": plan.c, "L1": plan.c.reshape((m * n,))}
    return kernel([*arguments, ("out", f"ptr<{sums}>", {})], body, warps, **layouts)


# ---- kernels in the language


def shifted(x: Any, y: Any, shift: Any) -> None:
    """A block from (shift, shift) on, to the beginning of a tensor."""
    y.store([0, 0], x.load([shift, shift]))


def shifted_module(divisor: int) -> Module:
    """:func:`shifted` for blocks of 64x64 f16, where the shift is known to be a multiple of a
    number."""
    type_, aligned = "tensordesc<fp16[64,64]>", {"divisibility": 16}
    facts = {"x": aligned, "y": {**aligned, "extent_divisibility": 8}} | (
        {"shift": {"divisibility": divisor}} if divisor > 1 else {}
    )
    module = compile_function(
        device_function(shifted), {"x": type_, "y": type_, "shift": "i32"}, {}, facts
    )
    pipeline.run(module)
    return module
