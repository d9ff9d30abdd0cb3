"""Functions as text, and where barriers are put in them: what tests of barriers are written
with."""

from __future__ import annotations

from tilewright.ir import Module, verify
from tilewright.ir.core import Region
from tilewright.ir.parser import parse_module
from tilewright.simt.assign_layouts.assign import assign
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.passes.allocate_shared import allocate
from tilewright.simt.passes.insert_membar import insert_barriers

TILE = """
%zero = constant 0 : i32
%one = constant 1 : i32
%a = arange {start = 0, end = 64} : tile<64xi32>
%ones = splat %one : tile<64xi32>
%shifted = add %a, %ones : tile<64xi32>
%sp = splat %p : tile<64xptr<f32>>
%sq = splat %q : tile<64xptr<f32>>
%here = addptr %sp, %a : tile<64xptr<f32>>
%there = addptr %sp, %shifted : tile<64xptr<f32>>
%other = addptr %sq, %a : tile<64xptr<f32>>
%f = constant 2.0 : f32
%x = splat %f : tile<64xf32>
"""
ARGUMENTS = "%p: ptr<f32>, %q: ptr<f32>, %n: i32, %c: i1, %lock: ptr<i32>"


def module_of(body: str) -> Module:
    return parse_module(f"tilewright.ir 1.0\nkernel @k({ARGUMENTS}) {{\n{TILE}\n{body}\nreturn\n}}")


def shape_of_barriers(region: Region) -> str:
    """Operations as letters: Load, Store, Atomic, Reduce, Convert, | a barrier, {} around what a
    loop or branch does; copy, wait, load of shared memory."""
    letters = {
        "load": "L",
        "store": "S",
        "atomic_rmw": "A",
        "reduce": "R",
        "simt.convert": "C",
        "barrier": "|",
        "gather": "G",
    }
    letters |= {"simt.copy_start": "c", "simt.wait": "w", "simt.load": "l", "simt.store": "s"}
    letters |= {
        "simt.publish": "p",
        "simt.block_store_start": "b",
        "simt.block_load_start": "b",
        "simt.arrive": "a",
    }
    text = ""
    for operation in region:
        if operation.name in ("for", "while", "if"):
            text += "".join("{" + shape_of_barriers(inner) + "}" for inner in operation.regions)
        elif operation.name == "simt.copy_start" and operation.attribute("ordered"):
            text += "o"
        else:
            text += letters.get(operation.name, "")
    return text


def placed(module: Module, warp_size: int = 32, num_warps: int = 2) -> str:
    target = EmulatedTarget(warp_size)
    assign(module.kernel, target, num_warps)
    allocate(module.kernel, target)
    insert_barriers(module.kernel, target)
    verify(module)
    return shape_of_barriers(module.kernel.body)
