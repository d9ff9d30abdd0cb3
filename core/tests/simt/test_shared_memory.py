"""Where shared memory is allocated: nothing that lives at one time overlaps, and no more is asked for than needed."""

from __future__ import annotations

import random

import pytest

from tilewright.errors import OutOfResources
from tilewright.ir import Module
from tilewright.ir.core import Operation
from tilewright.ir.parser import parse_module
from tilewright.ir.types import F32, U8, TileType
from tilewright.simt.assign import assign
from tilewright.simt.assignment import Assignment
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.linear_layout import blocked
from tilewright.simt.ops import SIMT_TABLE, shared_pointer
from tilewright.simt.shared_memory import allocate, scratch_sizes


def module_of(body: str) -> Module:
    return parse_module(f"tilewright.ir 1.0\nkernel @k(%p: ptr<f32>, %n: i32) {{\n%zero = constant 0 : i32\n%one = constant 1 : i32\n{body}\nreturn\n}}")


class Buffers:
    """Puts allocations and their uses into a function that has none."""

    def __init__(self, body: str = "") -> None:
        self.module = module_of(body)
        self.assignment = Assignment(2)
        self.target = EmulatedTarget(32)

    @property
    def end(self) -> Operation:
        last = self.module.kernel.body.last
        assert last is not None
        return last

    def loop(self) -> Operation:
        (found,) = (operation for operation in self.module.kernel.walk() if operation.name == "for")
        return found

    def allocation(self, size: int, before: Operation | None = None, alignment: int = 16) -> Operation:
        place = before or self.end
        made = Operation(SIMT_TABLE["simt.shared_alloc"], (), (), {"bytes": size, "alignment": alignment}, [shared_pointer(U8)])
        assert place.parent is not None
        place.parent.insert_before(made, place)
        return made

    def use(self, allocation: Operation, before: Operation | None = None) -> Operation:
        place = before or self.end
        made = Operation(SIMT_TABLE["simt.shared_load"], [allocation.results[0]], (1,), {}, [TileType((64,), F32)])
        self.assignment.layouts[made.results[0]] = blocked((64,), (0,), 1, 32, 2)
        assert place.parent is not None
        place.parent.insert_before(made, place)
        return made

    def copy(self, allocation: Operation) -> Operation:
        pointers = Operation(SIMT_TABLE["splat"], [self.module.kernel.arguments[0]], (1,), {}, [TileType((64,), self.module.kernel.arguments[0].type)])
        made = Operation(SIMT_TABLE["simt.async_load"], [allocation.results[0], pointers.results[0]], (1, 1, 0), {}, ())
        for operation in (pointers, made):
            self.module.kernel.body.insert_before(operation, self.end)
        return made

    def wait(self, pending: int) -> None:
        self.module.kernel.body.insert_before(Operation(SIMT_TABLE["simt.async_wait"], (), (), {"pending": pending}, ()), self.end)

    def allocate(self) -> int:
        allocate(self.module.kernel, self.assignment, self.target)
        return self.assignment.shared_bytes

    def range(self, allocation: Operation) -> tuple[int, int]:
        offset = self.assignment.offsets[allocation]
        return offset, offset + allocation.attribute("bytes")


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def test_buffers_that_live_together_are_apart_and_others_share() -> None:
    buffers = Buffers()
    a = buffers.allocation(1024)
    b = buffers.allocation(2048)
    buffers.use(a)
    c = buffers.allocation(512)
    buffers.use(b)
    buffers.use(c)
    assert buffers.allocate() == 2048 + 1024
    assert not overlap(buffers.range(a), buffers.range(b)) and not overlap(buffers.range(b), buffers.range(c))
    assert overlap(buffers.range(a), buffers.range(c))


def test_offsets_are_aligned_as_asked() -> None:
    buffers = Buffers()
    a, b, c = buffers.allocation(48), buffers.allocation(100, alignment=1024), buffers.allocation(16, alignment=128)
    for one in (a, b, c):
        buffers.use(one)
    buffers.allocate()
    assert buffers.assignment.offsets[b] % 1024 == 0 and buffers.assignment.offsets[c] % 128 == 0
    assert not any(overlap(buffers.range(x), buffers.range(y)) for x, y in ((a, b), (b, c), (a, c)))


LOOP = "for %zero, %n, %one body(%i: i32) {\n%x = add %i, %one : i32\nyield\n}"


def test_a_buffer_used_in_a_loop_lives_for_all_of_it() -> None:
    buffers = Buffers(LOOP)
    loop = buffers.loop()
    inside = loop.regions[0].last
    assert inside is not None
    a = buffers.allocation(256, loop)
    buffers.use(a, inside)
    b = buffers.allocation(256, inside)  # after the last use of a in the body, but the next iteration reads a again
    buffers.use(b, inside)
    c = buffers.allocation(256)
    buffers.use(c)
    buffers.allocate()
    assert not overlap(buffers.range(a), buffers.range(b))
    assert buffers.assignment.offsets[c] == 0


def test_a_carried_address_keeps_its_buffers() -> None:
    buffers = Buffers("%q = for %zero, %n, %one, inits=[%p] : ptr<f32> body(%i: i32, %r: ptr<f32>) {\nyield %r\n}")
    loop = buffers.loop()
    a = buffers.allocation(256, loop)
    loop.set_operand(3, a.results[0])
    address = shared_pointer(U8)
    loop.regions[0].arguments[1].type = loop.results[0].type = address
    b = buffers.allocation(256)
    after = Operation(SIMT_TABLE["simt.shared_load"], [loop.results[0]], (1,), {}, [TileType((64,), F32)])
    buffers.module.kernel.body.insert_before(after, buffers.end)
    buffers.use(b)
    buffers.allocate()
    assert not overlap(buffers.range(a), buffers.range(b))


def test_memory_that_copies_are_under_way_to_is_not_used_again() -> None:
    for waits, shared in (((0,), True), ((1,), False), ((), False)):
        buffers = Buffers()
        a = buffers.allocation(256)
        buffers.copy(a)
        for pending in waits:
            buffers.wait(pending)
        b = buffers.allocation(256)
        buffers.use(b)
        buffers.allocate()
        assert overlap(buffers.range(a), buffers.range(b)) is shared


def test_scratch_space_is_beside_the_buffers_alive() -> None:
    body = """
    %a = arange {start = 0, end = 512} : tile<512xi32>
    %sum = reduce %a {axis = 0} : i32 combine(%l: i32, %m: i32) {
      %s = add %l, %m : i32
      yield %s
    }
    print %sum {prefix = ""}
    """
    buffers = Buffers(body)
    assignment = buffers.assignment = assign(buffers.module.kernel, buffers.target, 4, {})
    (reduce,) = (operation for operation in buffers.module.kernel.walk() if operation.name == "reduce")
    a = buffers.allocation(4096, reduce)
    buffers.use(a)
    size = scratch_sizes()["reduce"](reduce, assignment, buffers.target)
    assert size > 0
    assert buffers.allocate() == 4096 + size
    assert not overlap(buffers.range(a), (assignment.offsets[reduce], assignment.offsets[reduce] + size))


def test_small_scratch_spaces_take_turns() -> None:
    reduce = """
    %r{0} = reduce %a {{axis = 0}} : i32 combine(%l{0}: i32, %m{0}: i32) {{
      %s{0} = add %l{0}, %m{0} : i32
      yield %s{0}
    }}
    print %r{0} {{prefix = ""}}
    """
    module = module_of("%a = arange {start = 0, end = 512} : tile<512xi32>\n" + "".join(reduce.format(i) for i in range(4)))
    target = EmulatedTarget(32)
    assignment = assign(module.kernel, target, 4, {})
    allocate(module.kernel, assignment, target)
    offsets = [assignment.offsets[operation] for operation in module.kernel.walk() if operation.name == "reduce"]
    assert offsets[0] == offsets[2] != offsets[1] == offsets[3]
    assert assignment.shared_bytes <= 64


def test_too_much_is_an_error_that_tells_how_much() -> None:
    buffers = Buffers()
    a, b = buffers.allocation(40000), buffers.allocation(30000)
    buffers.use(a)
    buffers.use(b)
    with pytest.raises(OutOfResources, match="shared memory") as raised:
        buffers.allocate()
    assert (raised.value.required, raised.value.limit, raised.value.name) == (70000, buffers.target.shared_memory, "shared memory")


def test_random_lifetimes_never_overlap() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        buffers = Buffers()
        buffers.target.shared_memory = 1 << 30
        alive: list[tuple[Operation, int]] = []
        spans: dict[Operation, tuple[int, int]] = {}
        for step in range(40):
            if alive and rng.random() < 0.6:
                one, _ = rng.choice(alive)
                buffers.use(one)
                spans[one] = (spans[one][0], step)
            else:
                made = buffers.allocation(rng.choice([16, 100, 1024, 5000]), alignment=rng.choice([16, 128, 1024]))
                alive.append((made, step))
                spans[made] = (step, step)
        buffers.allocate()
        operations = list(spans)
        for i, a in enumerate(operations):
            assert buffers.assignment.offsets[a] % a.attribute("alignment") == 0
            for b in operations[:i]:
                together = spans[a][0] <= spans[b][1] and spans[b][0] <= spans[a][1]
                assert not (together and overlap(buffers.range(a), buffers.range(b)))
