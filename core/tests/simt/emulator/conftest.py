"""Shared helpers of the emulator's tests.

They allocate, lower and run SIMT IR texts, among them a warp-specialized matmul with a ring of
buffers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tilewright.ir.core import Function
from tilewright.ir.parser import parse_module
from tilewright.ir.verifier import verify
from tilewright.simt.dialect.attributes import WARPS
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.emulator import EmulatedDescriptor, EmulatedTarget, run_text
from tilewright.simt.lowering.lower_function import lower_function
from tilewright.simt.passes.allocate_shared import allocate
from tilewright.simt.passes.insert_membar import insert_barriers
from tilewright.simt.target.fma_plan import result_layout
from tilewright.testing.toy_targets import BulkTarget

LANES = 8


class Machine:
    """Compiles and runs texts."""

    def lowered(self, text: str, target: EmulatedTarget) -> tuple[Function, str]:
        """The kernel of a text, placed, and its LLVM IR."""
        module = parse_module(f"tilewright.ir 1.0\n{text}", SIMT_TABLE)
        verify(module)
        function = module.kernel
        allocate(function, target)
        insert_barriers(function, target)
        return function, lower_function(function, target, {})

    def run(
        self,
        text: str,
        arguments: Sequence[Any],
        target: EmulatedTarget,
        modes: Sequence[str] = ("late",),
        seed: int = 0,
    ) -> None:
        """Run a text in modes, one after the other."""
        function, code = self.lowered(text, target)
        types = [argument.type for argument in function.arguments]
        for mode in modes:
            run_text(
                code,
                target,
                types,
                arguments,
                (1, 1, 1),
                function.attributes[WARPS],
                completion=mode,
                seed=seed,
            )


class Ring:
    """Compute out = a @ b, 8 x 8 at a time along K.

    One partition copies blocks into a ring of two slots, and the other multiplies, with one matmul
    always in flight.
    """

    K = 40

    lines: Mapping[str, str] = {
        "empty": "simt.await %empty, %s, %ph {alone = true}",
        "expect": "simt.expect %full, %s {bytes = 512}",
        "full": "simt.await %full, %t, %qh",
        "first phase": "true",
        "wait": "simt.wait tokens=[%t0]",
        "arrive": "simt.arrive %empty, %previous, condition=%later",
        "last": "%r = simt.wait tokens=[%t9], tiles=[%acc] : tile<8x8xf32, #L0>",
        "init": "%empty = simt.barriers 2 : barriers<2>",
    }

    def __init__(self, **changed: str) -> None:
        assert set(changed) <= set(self.lines)
        line = {**self.lines, **changed}
        c = result_layout((8, 8), 3, 1)
        self.text = f"""
#L0 = layout<{c.text()}>
#L1 = layout<{c.reshape((64,)).text()}>
#S0 = shared<8x8, 1 2 4 9 18 36>
#S1 = shared<8x8>
kernel @ring(%da: desc<8x8xf32>, %db: desc<8x8xf32>, %out: ptr<f32>, %n: i32) attributes {{warps = 3}} {{
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %eight = constant 8 : i32
  %A = simt.buffer : buffer<2 x 8x8xf32, #S0>
  %B = simt.buffer : buffer<2 x 8x8xf32, #S1>
  %full = simt.barriers 1 : barriers<2>
  {line["init"]}
  simt.partition parts {{
    simt.part {{name = "load", warps = 1}} body {{
      %first = constant {line["first phase"]} : i1
      %s9, %ph9 = for %zero, %n, %one, inits=[%zero, %first] : i32, i1 body(%i: i32, %s: i32, %ph: i1) {{
        {line["empty"]}
        {line["expect"]}
        %k = mul %i, %eight : i32
        %a = simt.slot %A, %s : slot<8x8xf32, #S0>
        %b = simt.slot %B, %s : slot<8x8xf32, #S1>
        simt.block_load_start %a, %da, offsets=[%zero, %k], %full, %s {{by = "bulk"}}
        simt.block_load_start %b, %db, offsets=[%k, %zero], %full, %s {{by = "bulk"}}
        %wraps = cmp %s, %one {{predicate = eq}} : i1
        %next = sub %one, %s : i32
        %flipped = xor %ph, %wraps : i1
        yield %next, %flipped
      }}
      yield
    }}
    simt.part {{name = "math", warps = 2}} body {{
      %start = constant false : i1
      %none = constant 0.0 : f32
      %c = splat %none : tile<8x8xf32, #L0>
      %before = simt.commit : token<matmuls>
      %acc, %t9, %s9, %ph9 = for %zero, %n, %one, inits=[%c, %before, %zero, %start] : tile<8x8xf32, #L0>, token<matmuls>, i32, i1
          body(%i: i32, %x: tile<8x8xf32, #L0>, %t0: token<matmuls>, %t: i32, %qh: i1) {{
        {line["full"]}
        %a = simt.slot %A, %t : slot<8x8xf32, #S0>
        %b = simt.slot %B, %t : slot<8x8xf32, #S1>
        %y, %t1 = simt.dot_start %a, %b, %x {{plan = "toy.ss"}} : tile<8x8xf32, #L0>, token<matmuls>
        {line["wait"]}
        %wraps = cmp %t, %one {{predicate = eq}} : i1
        %previous = sub %one, %t : i32
        %later = cmp %i, %zero {{predicate = gt}} : i1
        {line["arrive"]}
        %flipped = xor %qh, %wraps : i1
        yield %y, %t1, %previous, %flipped
      }}
      {line["last"]}
      %numbers = arange {{start = 0, end = 64}} : tile<64xi32, #L1>
      %places = reshape %numbers : tile<8x8xi32, #L0>
      %bases = splat %out : tile<8x8xptr<f32>, #L0>
      %pointers = addptr %bases, %places : tile<8x8xptr<f32>, #L0>
      store %pointers, %r
      yield
    }}
    yield
  }}
  return
}}"""
        rng = np.random.default_rng(1)
        self.a, self.b = (
            rng.integers(-3, 4, shape).astype(np.float32) for shape in ((8, self.K), (self.K, 8))
        )

    def run(self, mode: str, seed: int = 0) -> bool:
        """Return whether the result is right."""
        out = np.full((8, 8), 77, np.float32)
        Machine().run(
            self.text,
            [EmulatedDescriptor(self.a), EmulatedDescriptor(self.b), out, self.K // 8],
            BulkTarget(LANES),
            (mode,),
            seed,
        )
        return bool(np.array_equal(out, self.a @ self.b))


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def ring() -> type[Ring]:
    return Ring
