"""Operations of the SIMT IR in the emulator.

TMA copies, named barriers, matmuls, mbarriers, partitions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.errors import KernelError
from tilewright.simt.analysis.async_hazards import FlightError
from tilewright.simt.emulator import EmulatedDescriptor, EmulatedTarget
from tilewright.simt.emulator.layout import ARRIVE, AT_WARP_BARRIER, MODES
from tilewright.simt.emulator.multiply import operand_layout
from tilewright.simt.target.fma_plan import result_layout
from tilewright.testing.toy_targets import BulkTarget

SWIZZLED = "shared<4x8, 1 2 4 9 18>"


def blocks(load: str, store: str, padding: str = "zero") -> str:
    """A kernel that copies a block at (i, j) of one tensor to shared memory, adds nothing, and
    copies it to (p, q) of another."""
    facts = f' {{padding = "{padding}"}}' if padding != "zero" else ""
    return f"""
#S0 = {SWIZZLED}
kernel @copy(%x: desc<4x8xf32>{facts}, %y: desc<4x8xf32>, %i: i32, %j: i64, %p: i32, %q: i32) attributes {{warps = 2}} {{
  %zero = constant 0 : i32
  %first = constant false : i1
  %A = simt.buffer : buffer<1 x 4x8xf32, #S0>
  %full = simt.barriers 1 : barriers<1>
  %a = simt.slot %A, %zero : slot<4x8xf32, #S0>
  simt.expect %full, %zero {{bytes = 128}}
  simt.block_load_start %a, %x, offsets=[%i, %j], %full, %zero {{by = "bulk"}}
  {load}
  simt.block_store_start %a, %y, offsets=[%p, %q] {{by = "bulk"}}
  %t = simt.commit : token<stores>
  {store}
  return
}}"""


LOADED, STORED = "simt.await %full, %zero, %first", "simt.wait tokens=[%t]"


@pytest.mark.parametrize("padding", ["zero", "nan"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("at", [(0, 0), (-2, 5), (6, -3), (100, 0), (3, -8)])
def test_blocks_are_padded_and_cut_at_the_edges_of_tensors(
    machine: Any, padding: str, mode: str, at: tuple[int, int]
) -> None:
    x = np.arange(70, dtype=np.float32).reshape(7, 10)
    y = np.full((9, 5), -1, np.float32).T
    machine.run(
        blocks(LOADED, STORED, padding),
        [EmulatedDescriptor(x, (4, 8)), EmulatedDescriptor(y), *at, 2, 3],
        BulkTarget(4),
        (mode,),
    )
    block = np.full((4, 8), np.nan if padding == "nan" else 0, np.float32)
    for row in range(4):
        for column in range(8):
            if 0 <= at[0] + row < 7 and 0 <= at[1] + column < 10:
                block[row, column] = x[at[0] + row, at[1] + column]
    expected = np.full((5, 9), -1, np.float32)
    expected[2:, 3:] = block[:3, :6]
    np.testing.assert_array_equal(y, expected)


def test_a_program_does_not_end_while_its_memory_is_copied(machine: Any) -> None:
    arguments = [EmulatedDescriptor(np.zeros((4, 8), np.float32)) for _ in range(2)]
    for load, store, message in (
        ("", STORED, "copies to its shared memory"),
        (LOADED, "", "copies from its shared memory"),
    ):
        with pytest.raises(KernelError, match=message):
            machine.run(blocks(load, store), [*arguments, 0, 0, 0, 0], BulkTarget(4))


def test_what_is_loaded_before_the_wait_is_the_pattern(machine: Any) -> None:
    y = np.zeros((4, 8), np.float32)
    arguments = [EmulatedDescriptor(np.ones((4, 8), np.float32)), EmulatedDescriptor(y), 0, 0, 0, 0]
    machine.run(blocks("", f"{STORED}\n{LOADED}"), arguments, BulkTarget(4), ("late",))
    np.testing.assert_array_equal(y.view(np.uint32), np.full((4, 8), 0xA5A5A5A5, np.uint32))


@pytest.mark.parametrize("written", ["", " {written = true}"])
def test_what_is_written_twice_is_what_the_last_store_says_only_if_the_first_was_waited_for(
    machine: Any, written: str
) -> None:
    """Reading a slot and writing the tensor are two things."""
    y = np.zeros((4, 8), np.float32)
    again = f"""{STORED}{written}
  barrier
  %two = splat %2 : tile<4x8xf32, #L0>
  simt.store %a, %two
  barrier
  simt.block_store_start %a, %y, offsets=[%p, %q] {{by = "bulk"}}
  %s = simt.commit : token<stores>
  simt.wait tokens=[%s]"""
    text = blocks(LOADED, again).replace("  %zero =", "  %2 = constant 2.0 : f32\n  %zero =")
    text = text.replace(
        "\nkernel",
        "\n#L0 = layout<4x8, registers [(0,1) (0,2)], lanes [(0,4) (1,0)], warps [(2,0)]>\nkernel",
    )
    machine.run(
        text,
        [EmulatedDescriptor(np.ones((4, 8), np.float32)), EmulatedDescriptor(y), 0, 0, 0, 0],
        BulkTarget(4),
        ("late",),
    )
    np.testing.assert_array_equal(y, np.full((4, 8), 2 if written else 1, np.float32))


# ---- mbarriers, named barriers, partitions


def parts(*bodies: str, warps: tuple[int, ...] = (1, 3, 2)) -> str:
    """A kernel of parts that count in ``%out``."""
    texts = "".join(
        f'simt.part {{name = "p{number}", warps = {count}}} body {{\n{body}\nyield\n}}\n'
        for number, (body, count) in enumerate(zip(bodies, warps, strict=False))
    )
    return f"""
kernel @parts(%out: ptr<i32>) attributes {{warps = {sum(warps[: len(bodies)])}}} {{
  %zero = constant 0 : i32
  %one = constant 1 : i32
  %n = constant 4 : i32
  %even = constant false : i1
  %objects = simt.barriers 1 : barriers<2>
  simt.partition parts {{
    {texts}
    yield
  }}
  return
}}"""


def counting(place: int, of: int, body: str) -> str:
    turn = f'{{order = "line", place = {place}, of = {of}}}'
    return (
        f"for %zero, %n, %one body(%i: i32) {{\nsimt.turn_wait {turn}\n{body}\n"
        f"simt.turn_pass {turn}\nyield\n}}"
    )


@pytest.mark.parametrize("mode", MODES)
def test_parts_take_turns_in_order(machine: Any, mode: str) -> None:
    """Each part, of one, three and two warps, appends its digit to a number when its turn comes."""

    def append(digit: int) -> str:
        return (
            f"%d = constant {digit} : i32\n%b = constant 10 : i32\n%x = load %out : i32\n"
            "%y = mul %x, %b : i32\n%z = add %y, %d : i32\nstore %out, %z"
        )

    out = np.zeros(1, np.int32)
    machine.run(
        parts(*(counting(place, 3, append(place + 1)) for place in (1, 0, 2))).replace(
            "constant 4", "constant 3"
        ),
        [out],
        EmulatedTarget(4),
        (mode,),
    )
    assert out[0] == 123123123


def test_a_turn_that_nobody_passes_on_is_a_deadlock(machine: Any) -> None:
    waits = 'simt.turn_wait {order = "line", place = 1, of = 2}'
    with pytest.raises(
        KernelError,
        match=(
            "part p1: 12 threads of warps 1, 2, 3 wait for their turn, which is place 1 of order "
            "0; it is that of place 0"
        ),
    ):
        machine.run(parts("", waits), [np.zeros(1, np.int32)], EmulatedTarget(4))


def test_a_turn_is_passed_on_by_who_has_it(machine: Any) -> None:
    with pytest.raises(
        KernelError, match="place 1 of order 0 passes on a turn that is that of place 0"
    ):
        machine.run(
            parts('simt.turn_pass {order = "line", place = 1, of = 2}'),
            [np.zeros(1, np.int32)],
            EmulatedTarget(4),
        )


def test_a_fresh_object_has_ended_the_phase_before_its_first(machine: Any) -> None:
    machine.run(
        parts("%odd = constant true : i1\nsimt.await %objects, %one, %odd"),
        [np.zeros(1, np.int32)],
        EmulatedTarget(4),
        MODES,
    )
    with pytest.raises(
        KernelError,
        match=(
            "part p0: 4 threads of warps 0 wait for the end of a phase of parity 0 of mbarrier "
            "1, which is in phase 0"
        ),
    ):
        machine.run(
            parts("simt.await %objects, %one, %even", ""),
            [np.zeros(1, np.int32)],
            EmulatedTarget(4),
        )


def test_an_object_is_one_of_those_that_were_made(machine: Any) -> None:
    with pytest.raises(KernelError, match="there is no mbarrier at byte 64 of shared memory"):
        machine.run(parts("simt.arrive %objects, %n"), [np.zeros(1, np.int32)], EmulatedTarget(4))
    with pytest.raises(KernelError, match="there is no mbarrier at byte 64"):
        machine.run(
            parts("simt.await %objects, %n, %even"), [np.zeros(1, np.int32)], EmulatedTarget(4)
        )


def test_a_barrier_in_a_part_is_the_parts_own(machine: Any) -> None:
    """Another part waits for an object meanwhile; each part has barriers as often as it likes."""
    release = "barrier\nbarrier\nbarrier\nsimt.arrive %objects, %zero\nbarrier"
    out = np.zeros(1, np.int32)
    machine.run(
        parts(release, "simt.await %objects, %zero, %even\nstore %out, %n", "barrier"),
        [out],
        EmulatedTarget(4),
        MODES,
    )
    assert out[0] == 4


def test_the_lanes_of_a_warp_meet_before_it_arrives(machine: Any) -> None:
    lines = machine.lowered(parts("", "simt.arrive %objects, %zero"), EmulatedTarget(4))[
        1
    ].splitlines()
    (arrival,) = (
        number
        for number, line in enumerate(lines)
        if f"@emulated_call(ptr %block, ptr %own, i64 {ARRIVE}," in line
    )
    before = [line for line in lines[:arrival] if "call void @emulated_" in line]
    assert f"@emulated_barrier(ptr %block, ptr %own, i64 {AT_WARP_BARRIER}, i64 0," in before[
        -1
    ] and before[-1].endswith("i32 4)")


def test_each_warp_arrives(machine: Any) -> None:
    """Three warps at an object of three arrivals: its first phase ends, and no more."""
    three = parts("", "simt.arrive %objects, %zero\nsimt.await %objects, %zero, %even")
    three = three.replace("simt.barriers 1", "simt.barriers 3")
    assert "simt.barriers 3" in three
    machine.run(
        three.replace("constant 4", "constant 3"), [np.zeros(1, np.int32)], EmulatedTarget(4), MODES
    )


# ---- matmuls


def product(start: str, between: str = "", a: str = "slot", element: str = "f16") -> str:
    """out = a @ b + c, 8 x 8, of tiles that all threads bring to shared memory."""
    c = result_layout((8, 8), 3, 1)
    left = operand_layout(c, 8, 0)
    pointers = "".join(
        (
            f"%{name}s = splat %{name} : tile<8x8xptr<{type_}>, #L0>\n"
            f"%{name}p = addptr %{name}s, %places : tile<8x8xptr<{type_}>, #L0>\n"
        )
        for name, type_ in (("a", element), ("b", element), ("c", "f32"), ("out", "f32"))
    )
    operand = "%x" if a == "slot" else "%f"
    return f"""
#L0 = layout<{c.text()}>
#L1 = layout<{c.reshape((64,)).text()}>
#L2 = layout<{left.text()}>
#S0 = shared<8x8, 1 2 4 9 18 36>
#S1 = shared<8x8>
kernel @product(%a: ptr<{element}>, %b: ptr<{element}>, %c: ptr<f32>, %out: ptr<f32>) attributes {{warps = 2}} {{
  %zero = constant 0 : i32
  %numbers = arange {{start = 0, end = 64}} : tile<64xi32, #L1>
  %places = reshape %numbers : tile<8x8xi32, #L0>
  {pointers}
  %A = simt.buffer : buffer<1 x 8x8x{element}, #S0>
  %B = simt.buffer : buffer<1 x 8x8x{element}, #S1>
  %x = simt.slot %A, %zero : slot<8x8x{element}, #S0>
  %y = simt.slot %B, %zero : slot<8x8x{element}, #S1>
  %at = load %ap : tile<8x8x{element}, #L0>
  %bt = load %bp : tile<8x8x{element}, #L0>
  %ct = load %cp : tile<8x8xf32, #L0>
  simt.store %x, %at
  simt.store %y, %bt
  %f = simt.load %x : tile<8x8x{element}, #L2>
  {start.replace("A", operand)}
  {between}
  store %outp, %r
  return
}}"""


START = '%d, %t = simt.dot_start A, %y, %ct {plan = "PLAN"} : tile<8x8xf32, #L0>, token<matmuls>'
WAIT = "%r = simt.wait tokens=[%t], tiles=[%d] : tile<8x8xf32, #L0>"
NUMPY = {"f16": np.float16, "f32": np.float32, "i8": np.int8}


def run_product(
    machine: Any, text: str, mode: str, element: str = "f16"
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-3, 4, (8, 8)).astype(NUMPY[element]) for _ in range(2))
    c, out = rng.integers(-3, 4, (8, 8)).astype(np.float32), np.zeros((8, 8), np.float32)
    machine.run(text, [a, b, c, out], BulkTarget(8), (mode,))
    return out, c, a.astype(np.float32) @ b.astype(np.float32)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("a", "plan"), [("slot", "toy.ss"), ("registers", "toy.rs"), ("slot", "toy.rs")]
)
@pytest.mark.parametrize("element", ["f16", "f32"])
def test_an_asynchronous_product_gives_its_result_after_a_wait(
    machine: Any, mode: str, a: str, plan: str, element: str
) -> None:
    out, c, expected = run_product(
        machine, product(START.replace("PLAN", plan), WAIT, a, element), mode, element
    )
    np.testing.assert_array_equal(out, expected + c)


@pytest.mark.parametrize("mode", MODES)
def test_a_product_by_an_asynchronous_plan_may_be_waited_for_at_once(
    machine: Any, mode: str
) -> None:
    text = (
        '%s = simt.dot A, %y, %ct {plan = "toy.ss"} : tile<8x8xf32, #L0>\n'
        '%r = simt.dot A, %y, %s {plan = "toy.ss"} : tile<8x8xf32, #L0>'
    )
    out, c, expected = run_product(machine, product(text), mode)
    np.testing.assert_array_equal(out, 2 * expected + c)


def test_a_result_that_is_not_waited_for_is_what_its_registers_had(machine: Any) -> None:
    unfinished = product(
        START.replace("PLAN", "toy.ss"),
        "%r = add %d, %ct : tile<8x8xf32, #L0>\nsimt.wait tokens=[%t]",
    )
    out, c, _ = run_product(machine, unfinished, "late")
    np.testing.assert_array_equal(out, 2 * c)


@pytest.mark.parametrize("mode", MODES)
def test_a_slot_may_be_written_after_the_wait_for_its_product_only(machine: Any, mode: str) -> None:
    write = "simt.store %y, %at"
    right = product(START.replace("PLAN", "toy.ss"), f"{WAIT}\nbarrier\n{write}")
    out, c, expected = run_product(machine, right, mode)
    np.testing.assert_array_equal(out, expected + c)
    wrong = product(START.replace("PLAN", "toy.ss"), f"barrier\n{write}\nbarrier\n{WAIT}")
    with pytest.raises(
        FlightError, match=r"simt.store at .*: writes what a matmul in flight reads"
    ):
        run_product(machine, wrong, mode)


def test_matmuls_in_flight_have_registers_of_their_own(machine: Any) -> None:
    """Return a loop-carried result into which another matmul accumulates before any wait for it."""
    loop = """
  %n = constant 2 : i32
  %one = constant 1 : i32
  %t0 = simt.commit : token<matmuls>
  %d, %t = for %zero, %n, %one, inits=[%ct, %t0] : tile<8x8xf32, #L0>, token<matmuls> body(%i: i32, %x0: tile<8x8xf32, #L0>, %t1: token<matmuls>) {
    %d2, %t2 = simt.dot_start %x, %y, %ct {plan = "toy.ss"} : tile<8x8xf32, #L0>, token<matmuls>
    yield %d2, %t2
  }"""
    with pytest.raises(KernelError, match="registers in which another one is in flight"):
        run_product(machine, product(loop, WAIT), "late")
