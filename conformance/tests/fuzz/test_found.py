"""Small programs that the fuzzer found: the CPU backend and the emulator against exact results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.ir.parser import parse_module
from tilewright.ir.types import BF16
from tilewright.reference.numerics import decode, encode
from tilewright.simt import emulator
from tilewright_conformance.suite.session import Session, Subject

_FMA = """tilewright.ir 1.0
kernel @k(%a: ptr<bf16>, %c: ptr<bf16>, %out: ptr<bf16>) {
  %at = arange {start = 0, end = 8} : tile<8xi32>
  %pa = splat %a : tile<8xptr<bf16>>
  %qa = addptr %pa, %at : tile<8xptr<bf16>>
  %x = load %qa : tile<8xbf16>
  %pc = splat %c : tile<8xptr<bf16>>
  %qc = addptr %pc, %at : tile<8xptr<bf16>>
  %y = load %qc : tile<8xbf16>
  %z = fma %x, %x, %y : tile<8xbf16>
  %po = splat %out : tile<8xptr<bf16>>
  %qo = addptr %po, %at : tile<8xptr<bf16>>
  store %qo, %z
  return
}
"""


def _on_cpu(module: Any, arguments: list[Any]) -> None:
    Session(Subject("cpu"), "found").run_module(module, arguments)


def _on_emulator(module: Any, arguments: list[Any]) -> None:
    emulator.run(module, arguments, (1, 1, 1), num_warps=2, warp_size=4)


@pytest.mark.parametrize("run", [_on_cpu, _on_emulator, Session.run_reference])
def test_a_tiny_addend_settles_a_tie_of_bf16(run: Callable[..., None]) -> None:
    # 8.5 squared is 72.25, half-way between 72 and 72.5: the addend decides, however small it is
    a = np.array([8.5, 8.5, 8.5, -8.5, 8.5, 0.0, np.inf, 8.5])
    c = np.array([2.0**-133, -(2.0**-133), 0.0, 2.0**-60, -(2.0**-100), -0.0, -1.0, np.nan])
    out = np.zeros(8, np.uint16)
    run(parse_module(_FMA), [np.asarray(encode(a, BF16)), np.asarray(encode(c, BF16)), out])
    np.testing.assert_array_equal(
        decode(out, BF16), np.array([72.5, 72.0, 72.0, 72.5, 72.0, 0.0, np.inf, np.nan], np.float32)
    )


_THREE = """tilewright.ir 1.0
kernel @k(%a: ptr<i32>, %b: ptr<i32>, %c: ptr<i32>) {
  %at = arange {start = 0, end = 8} : TILE
  %sa = splat %a : tile<8xptr<i32>>
  %pa = addptr %sa, %at : tile<8xptr<i32>>
  %sb = splat %b : tile<8xptr<i32>>
  %pb = addptr %sb, %at : tile<8xptr<i32>>
  %sc = splat %c : tile<8xptr<i32>>
  %pc = addptr %sc, %at : tile<8xptr<i32>>
  %x = load %pa : TILE
  %y = load %pb : TILE
  %z = load %pc : TILE
  %zero = constant 0 : i32
  %four = constant 4 : i32
  %one = constant 1 : i32
  %two = constant 2 : i32
  %twos = splat %two : TILE
  %r0, %r1, %r2 = for %zero, %four, %one, inits=[%x, %y, %z] : TILE, TILE, TILE body(%i: i32, %p: TILE, %q: TILE, %s: TILE) {
    %n0 = mul %p, %twos : TILE
    %n1 = add %s, %p : TILE
    yield %n0, %n1, %q
  }
  store %pa, %r0
  store %pb, %r1
  store %pc, %r2
  return
}
""".replace("TILE", "tile<8xi32>")


@pytest.mark.parametrize("run", [_on_cpu, _on_emulator, Session.run_reference])
def test_two_carried_tiles_change_places_while_one_reads_a_third(run: Callable[..., None]) -> None:
    arrays = [np.arange(8, dtype=np.int32) * factor for factor in (1, 100, 10000)]
    x, y, z = (array.copy() for array in arrays)
    run(parse_module(_THREE), arrays)
    for _ in range(4):
        x, y, z = x * 2, z + x, y
    for found, expected in zip(arrays, (x, y, z), strict=True):
        np.testing.assert_array_equal(found, expected)
