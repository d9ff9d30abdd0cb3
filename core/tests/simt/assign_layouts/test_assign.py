"""Layout assignment: rules are kept, and conversions are only where they must be."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from assigned_layouts import assigned, module_of, named

from tilewright.ir import Module
from tilewright.ir.ops.memory import Load, Store
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.passes.analysis.axis import axis_info
from tilewright.reference.interpreter import run as run_reference
from tilewright.simt import emulator
from tilewright.simt.assign_layouts.coalesce import tile_access, widened
from tilewright.simt.dialect.attributes import layout_of, notes_of
from tilewright.simt.dialect.layout_rules import from_operands, packed, result_layout
from tilewright.simt.dialect.ops import SIMT_TABLE
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.layouts.linear_layout import LinearLayout, blocked
from tilewright.simt.target.conversion_plan import within_warp
from tilewright.simt.target.fma_plan import fma_plan
from tilewright.simt.target.matmul_plan import Matmul, MatmulPlan
from tilewright.simt.target.plan_selection import plan_of
from tilewright_conformance.random_programs import PORTABLE

Kernel = Callable[..., Module]

#: Features that programs need if no pass has expanded descriptors, scaled matmuls and calls.
EXPANDED = dataclasses.replace(PORTABLE, features=frozenset())


@pytest.mark.parametrize(("divisor", "vector"), [(None, 4), (16, 4), (4, 4), (2, 2), (1, 1)])
def test_an_access_moves_no_more_elements_at_once_than_its_mask_treats_alike(
    divisor: int | None, vector: int
) -> None:
    """``divisor`` is what is known of the number of elements; None: there is no mask."""
    module = parse_module(f"""tilewright.ir 1.0
    kernel @k(%p: ptr<f32> {{divisibility = 16}}, %n: i32 {{divisibility = {divisor or 1}}}) {{
      %i = arange {{start = 0, end = 64}} : tile<64xi32>
      %ns = splat %n : tile<64xi32>
      %m = cmp %i, %ns {{predicate = lt}} : tile<64xi1>
      %ps = splat %p : tile<64xptr<f32>>
      %at = addptr %ps, %i : tile<64xptr<f32>>
      %x = load %at{", mask=%m" if divisor else ""} : tile<64xf32>
      store %at, %x{", mask=%m" if divisor else ""}
      return
    }}""")
    axes = axis_info(module.kernel)
    for name in ("load", "store"):
        (access,) = named(module, name)
        assert isinstance(access, Load | Store)
        found = tile_access(access, axes, EmulatedTarget())
        assert found is not None and found.vector == vector


def conversions(module: Module) -> list[str]:
    return sorted(str(operation.operands[0].type) for operation in named(module, "simt.convert"))


# ---- how many conversions


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("add", []),
        ("add_mixed", []),
        ("softmax", []),
        ("layer_norm", []),
        ("matmul", ["tile<128x128xf16>", "tile<128x64xf16>", "tile<64x128xf16>"]),
        ("attention", ["tile<64x64xf16>"] * 4),
        ("transpose", ["tile<64x64xf32>"]),
        ("gather_rows", []),
    ],
)
@pytest.mark.parametrize("num_warps", [1, 4, 8])
def test_conversions_of_classic_kernels(
    kernel: Kernel, matrix_target: EmulatedTarget, name: str, expected: list[str], num_warps: int
) -> None:
    module = kernel(name)
    assigned(module, matrix_target, num_warps)
    large = [
        operation
        for operation in named(module, "simt.convert")
        if operation.operands[0].type.numel > 128
    ]
    assert sorted(str(operation.operands[0].type) for operation in large) == expected
    # At most a row of numbers besides: a bias, the pointers to rows, what is stored of each row.
    assert len(named(module, "simt.convert")) - len(large) <= (
        1 if name in ("matmul", "gather_rows", "attention") else 0
    )


def test_accumulators_stay_where_the_dot_has_them(
    kernel: Kernel, matrix_target: EmulatedTarget
) -> None:
    module = kernel("matmul")
    assigned(module, matrix_target)
    (dot,) = named(module, "simt.dot")
    (loop,) = named(module, "for")
    plan = plan_of(dot, matrix_target)
    (accumulator,) = [result for result in loop.results if str(result.type) == "tile<128x128xf32>"]
    assert layout_of(accumulator) == plan.c
    assert not [
        operation
        for operation in named(module, "simt.convert")
        if str(operation.operands[0].type) == "tile<128x128xf32>"
    ]


def test_pointers_that_a_loop_carries_are_where_the_loads_want_them(
    kernel: Kernel, matrix_target: EmulatedTarget
) -> None:
    module = kernel("matmul")
    assigned(module, matrix_target)
    (loop,) = named(module, "for")
    loads = [operation for operation in loop.walk() if operation.name == "load"]
    carried = {
        layout_of(argument) for argument in loop.regions[0].arguments if "ptr" in str(argument.type)
    }
    assert carried == {layout_of(load.results[0]) for load in loads}
    assert len(loop.results) == 3


def test_loads_and_stores_are_as_wide_as_they_can_be(
    kernel: Kernel, matrix_target: EmulatedTarget
) -> None:
    module = kernel("add")
    assigned(module, matrix_target)
    for operation in (*named(module, "load"), *named(module, "store")):
        assert layout_of(operation.operands[0]) == blocked((1024,), (0,), 4, 32, 4)


def test_a_transposed_copy_reads_and_writes_along_memory(
    kernel: Kernel, matrix_target: EmulatedTarget
) -> None:
    module = kernel("transpose")
    assigned(module, matrix_target)
    (load,), (store,) = named(module, "load"), named(module, "store")
    assert layout_of(load.results[0]).vector_width(1, 4) == 4
    assert layout_of(store.operands[0]).vector_width(0, 4) == 4


def test_accumulators_are_brought_together_before_they_are_stored(
    kernel: Kernel, matrix_target: EmulatedTarget
) -> None:
    """Where the dot has them, a thread has 8 bytes of a row: as many lines of memory are touched
    for half as many bytes."""
    module = kernel("matmul_f32_out", {"BM": 64, "BN": 64, "BK": 32})
    assigned(module, matrix_target)
    assert conversions(module).count("tile<64x64xf32>") == 1
    (store,), (dot,) = named(module, "store"), named(module, "simt.dot")
    before, after = plan_of(dot, matrix_target).c, layout_of(store.operands[0])
    assert (before.vector_width(1, 4), after.vector_width(1, 4)) == (2, 4)


@pytest.mark.parametrize(("axis", "width"), [(1, 2), (1, 4), (1, 8), (0, 2)])
def test_threads_of_a_warp_exchange_elements_for_wider_accesses(axis: int, width: int) -> None:
    accumulators = LinearLayout((16, 32), (1, 8 * 32, 8, 16), (2, 4, 1 * 32, 2 * 32, 4 * 32), ())
    after = widened(accumulators, axis, width)
    assert (
        after is not None
        and after.vector_width(axis, 8) == width
        and after.warps == accumulators.warps
    )
    assert within_warp(accumulators, after) is not None
    spread = [set(layout.lanes) | set(layout.registers) for layout in (accumulators, after)]
    assert spread[0] == spread[1] and len(spread[1]) == 9


def test_what_other_warps_have_cannot_be_exchanged() -> None:
    layout = LinearLayout((4, 8), (1 * 8, 2 * 8), (1,), (2, 4))
    assert widened(layout, 1, 4) is None


def test_wide_elements_are_stored_in_a_layout_of_their_own(
    kernel: Kernel, matrix_target: EmulatedTarget
) -> None:
    """A layout for loads of 8 narrow elements would leave each thread every other 16 bytes of what
    it stores."""
    module = kernel("matmul_f32_out", {"BM": 64, "BN": 64, "BK": 64})
    assigned(module, matrix_target)
    (loop,), (store,) = named(module, "for"), named(module, "store")
    loads = [
        layout_of(operation.results[0]) for operation in loop.walk() if operation.name == "load"
    ]
    assert [layout.vector_width(1, 8) for layout in loads] == [8, 8]
    assert layout_of(store.operands[0]).vector_width(1, 8) == 4


def test_conversions_come_before_widening_casts(matrix_target: EmulatedTarget) -> None:
    module = module_of(
        "%p: ptr<f16>, %q: ptr<f32>",
        """
        %a = arange {start = 0, end = 4096} : tile<4096xi32>
        %i = reshape %a : tile<64x64xi32>
        %s = splat %p : tile<64x64xptr<f16>>
        %t = addptr %s, %i : tile<64x64xptr<f16>>
        %h = load %t : tile<64x64xf16>
        %w = cast %h : tile<64x64xf32>
        %j = permute %i {order = [1, 0]} : tile<64x64xi32>
        %d = splat %q : tile<64x64xptr<f32>>
        %e = addptr %d, %j : tile<64x64xptr<f32>>
        store %e, %w
        """,
    )
    for argument in module.kernel.argument_attributes:
        argument["divisibility"] = 16
    assigned(module, matrix_target)
    assert conversions(module) == ["tile<64x64xf16>"]


def test_invariant_operands_are_converted_before_the_loop(
    kernel: Kernel, matrix_target: EmulatedTarget
) -> None:
    module = kernel("attention")
    assigned(module, matrix_target)
    (loop,) = named(module, "for")
    inside = [operation for operation in loop.walk() if operation.name == "simt.convert"]
    assert len(inside) == 2  # keys and values; the queries before, the result after


def test_loads_are_in_flight_before_the_first_is_converted(
    kernel: Kernel, matrix_target: EmulatedTarget
) -> None:
    module = kernel("matmul")
    assigned(module, matrix_target)
    (loop,) = named(module, "for")
    order = [
        operation.name
        for operation in loop.regions[0]
        if operation.name in ("load", "simt.convert")
    ]
    assert order == ["load", "load", "simt.convert", "simt.convert"]


# ---- carried values


def carried_pair(use_after: str) -> Module:
    """A loop that advances a tile of pointers and reads through it; the pointers are used after
    it."""
    return module_of(
        "%p: ptr<f32>, %q: ptr<f32>, %n: i32",
        f"""
        %zero = constant 0 : i32
        %one = constant 1 : i32
        %step = constant 256 : i32
        %steps = splat %step : tile<256xi32>
        %a = arange {{start = 0, end = 256}} : tile<256xi32>
        %s = splat %p : tile<256xptr<f32>>
        %first = addptr %s, %a : tile<256xptr<f32>>
        %f = constant 0.0 : f32
        %z = splat %f : tile<256xf32>
        %sum, %last = for %zero, %n, %one, inits=[%z, %first] : tile<256xf32>, tile<256xptr<f32>> body(%i: i32, %acc: tile<256xf32>, %t: tile<256xptr<f32>>) {{
          %x = load %t : tile<256xf32>
          %next = add %acc, %x : tile<256xf32>
          %u = addptr %t, %steps : tile<256xptr<f32>>
          yield %next, %u
        }}
        {use_after}
        %d = splat %q : tile<256xptr<f32>>
        %e = addptr %d, %a : tile<256xptr<f32>>
        store %e, %sum
        """,
    )


@pytest.mark.parametrize("after", ["", "%y = load %last : tile<256xf32>\nstore %last, %y"])
def test_carried_pointers_are_used_after_the_loop(after: str) -> None:
    rng = np.random.default_rng(1)
    start = rng.standard_normal(256 * 5).astype(np.float32)
    results = []
    for run in (run_reference, lambda m, a, g: emulator.run(m, a, g, warp_size=8, num_warps=2)):
        x, out = start.copy(), np.full(256, np.nan, np.float32)
        run(carried_pair(after), [x, out, 4], (1, 1, 1))
        results.append((x, out))
    np.testing.assert_array_equal(results[0][1], results[1][1])
    np.testing.assert_array_equal(results[0][0], results[1][0])
    np.testing.assert_allclose(results[0][1], start.reshape(5, 256)[:4].sum(0), rtol=1e-5)


def test_what_nobody_reads_is_not_carried() -> None:
    module = carried_pair("")
    assigned(module, EmulatedTarget(32))
    (loop,) = named(module, "for")
    assert [str(result.type) for result in loop.results] == ["tile<256xf32>", "tile<256xptr<f32>>"]
    text = print_module(module, locations=False).replace("%x = load %t", "%x = splat %f")
    module = parse_module(text, SIMT_TABLE)
    assigned(module, EmulatedTarget(32))
    (loop,) = named(module, "for")
    assert [str(result.type) for result in loop.results] == ["tile<256xf32>"]


# ---- layouts of shape operations


LAYOUTS = [
    blocked((8, 4, 2), (2, 1, 0), 2, 8, 2),
    blocked((8, 4, 2), (0, 1, 2), 1, 8, 4),
    blocked((8, 4, 2), (1, 2, 0), 4, 32, 4),
    LinearLayout((8, 4, 2), (8, 3, 16), (1, 4, 32), (0,)),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("operation", "operand", "result"),
    [
        ("join", "8x4", "8x4x2"),
        ("cat {axis = 0}", "4x4x2", "8x4x2"),
        ("cat {axis = 1}", "8x2x2", "8x4x2"),
        ("broadcast", "8x1x2", "8x4x2"),
        ("permute {order = [2, 0, 1]}", "4x2x8", "8x4x2"),
        ("reshape", "64", "8x4x2"),
    ],
)
def test_operand_layouts_follow_from_the_result(
    layout: LinearLayout, operation: str, operand: str, result: str
) -> None:
    name, _, attributes = operation.partition(" ")
    operands = "%a, %a" if name in ("join", "cat") else "%a"
    module = module_of(
        f"%a: tile<{operand}xf32>",
        f'%r = {name} {operands} {attributes} : tile<{result}xf32>\nprint %r {{prefix = ""}}',
    )
    (found,) = named(module, name)
    given, wanted = from_operands(found, layout)
    assert given.shape == layout.shape
    assert given.covers and wanted.covers
    if name in ("join", "cat"):
        assert result_layout(found, wanted) == given
        again, _ = from_operands(found, given)
        assert again == given
    else:
        assert given == layout


def test_packed_layouts_keep_elements_together() -> None:
    layout = blocked((64,), (0,), 1, 8, 2)
    found = packed(layout, 4)
    assert found.registers[:2] == (1, 2) and found.covers
    assert packed(found, 4) is found


def test_atomics_are_assigned_with_their_results(matrix_target: EmulatedTarget) -> None:
    module = module_of(
        "%p: ptr<i32>",
        """
        %a = arange {start = 0, end = 64} : tile<64xi32>
        %s = splat %p : tile<64xptr<i32>>
        %t = addptr %s, %a : tile<64xptr<i32>>
        %old = atomic_rmw %t, %a {kind = add} : tile<64xi32>
        %b = add %old, %a : tile<64xi32>
        store %t, %b
        """,
    )
    assigned(module, matrix_target)
    assert conversions(module) == []


def test_notes_tell_which_products_have_no_instruction(matrix_target: EmulatedTarget) -> None:
    module = module_of(
        "%p: ptr<f32>",
        """
        %a = arange {start = 0, end = 256} : tile<256xi32>
        %i = reshape %a : tile<16x16xi32>
        %s = splat %p : tile<16x16xptr<f32>>
        %t = addptr %s, %i : tile<16x16xptr<f32>>
        %x = load %t : tile<16x16xf32>
        %y = dot %x, %x, %x : tile<16x16xf32>
        store %t, %y
        """,
    )
    assigned(module, matrix_target)
    ((operation, text),) = notes_of(module.kernel)
    assert operation.name == "simt.dot" and "no matrix instruction" in text


class RowsTarget(emulator.EmulatedTarget):
    """Matmuls have a second plan, which keeps rows in their warps."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.matrix = emulator.EmulatedMatrix(self._plans)

    def _plans(self, product: Matmul) -> list[MatmulPlan]:
        plan = fma_plan(self, product)
        return [plan, dataclasses.replace(plan, name=BY_ROWS, whole_rows=True)]


BY_ROWS = "by rows"


@pytest.mark.parametrize(
    ("products", "by_rows"),
    [
        (["dot %x, %x, %x"], [False]),
        (["dot %x, %x, %x", "dot %y, %x, %x"], [True, True]),
        (["dot %x, %x, %x", "exp %y", "dot %y, %x, %x"], [True, True]),
        (["dot %x, %x, %x", "exp %y", "dot %x, %y, %x"], [False, False]),
        (["dot %x, %x, %x", "dot %x, %x, %y"], [False, False]),
        (["dot %x, %x, %x", "exp %y", "dot %y, %x, %x", "dot %x, %y, %x"], [True, True, False]),
    ],
)
def test_rows_stay_in_their_warps_where_a_product_is_computed_of_anothers_rows(
    products: list[str], by_rows: list[bool]
) -> None:
    lines, last = [], "%x"
    for number, text in enumerate(products):
        lines.append(f"%y{number} = {text.replace('%y', last)} : tile<16x16xf32>")
        last = f"%y{number}"
    module = module_of(
        "%p: ptr<f32>",
        f"""
        %a = arange {{start = 0, end = 256}} : tile<256xi32>
        %i = reshape %a : tile<16x16xi32>
        %s = splat %p : tile<16x16xptr<f32>>
        %t = addptr %s, %i : tile<16x16xptr<f32>>
        %x = load %t : tile<16x16xf32>
        {chr(10).join(lines)}
        store %t, {last}
        """,
    )
    assigned(module, RowsTarget(8))
    assert [
        operation.attribute("plan") == BY_ROWS for operation in named(module, "simt.dot")
    ] == by_rows


def test_a_carried_value_may_be_what_it_began_as() -> None:
    """``if`` and ``while`` carry tiles too, free ones in every layout that is asked of them."""
    module = module_of(
        "%p: ptr<i32>, %q: ptr<i32>, %n: i32, %c: i1",
        """
        %a = arange {start = 0, end = 64} : tile<64xi32>
        %two = constant 2 : i32
        %k = splat %two : tile<64xi32>
        %zero = constant 0 : i32
        %one = constant 1 : i32
        %chosen = if %c : tile<64xi32> then {
          yield %a
        } else {
          %b = mul %a, %k : tile<64xi32>
          yield %b
        }
        %i, %t = while %zero, %chosen : i32, tile<64xi32> before(%j: i32, %u: tile<64xi32>) {
          %go = cmp %j, %n {predicate = lt} : i1
          condition %go, values=[%j, %u]
        } after(%j2: i32, %u2: tile<64xi32>) {
          %j3 = add %j2, %one : i32
          %u3 = add %u2, %k : tile<64xi32>
          yield %j3, %u3
        }
        %s = splat %p : tile<64xptr<i32>>
        %d = addptr %s, %a : tile<64xptr<i32>>
        store %d, %t
        %m = reshape %t : tile<8x8xi32>
        %w = permute %m {order = [1, 0]} : tile<8x8xi32>
        %g = reshape %a : tile<8x8xi32>
        %v = splat %q : tile<8x8xptr<i32>>
        %e = addptr %v, %g : tile<8x8xptr<i32>>
        store %e, %w
        """,
    )
    text = print_module(module)
    assigned(module, EmulatedTarget(8), 2)
    for condition in (False, True):
        outs: list[Any] = []
        for run in (run_reference, lambda m, a, g: emulator.run(m, a, g, warp_size=8, num_warps=2)):
            p, q = np.full(64, -1, np.int32), np.full(64, -1, np.int32)
            run(parse_module(text), [p, q, 3, condition], (1, 1, 1))
            outs.append((p, q))
        np.testing.assert_array_equal(outs[0][0], outs[1][0])
        np.testing.assert_array_equal(outs[0][1], outs[1][1])
        np.testing.assert_array_equal(outs[1][0], np.arange(64) * (1 if condition else 2) + 6)
