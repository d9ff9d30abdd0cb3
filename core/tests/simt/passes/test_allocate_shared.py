"""Shared memory allocation: live buffers are disjoint, and no memory is wasted."""

from __future__ import annotations

import random

import pytest

from tilewright.errors import OutOfResources
from tilewright.ir.core import Operation
from tilewright.simt.dialect.attributes import SHARED_BYTES, offset_of
from tilewright.simt.dialect.types import BufferType
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.passes.allocate_shared import allocate, scratch_of
from tilewright.testing.stage_text import read

HEAD = """
#L0 = layout<512, registers [(128) (256)], lanes [(1) (2) (4) (8) (16)], warps [(32) (64)]>
#S0 = shared<4x4>
kernel @k(%p: ptr<f32>, %n: i32, %d: desc<4x4xf32>) attributes {warps = 4} {
%zero = constant 0 : i32
%one = constant 1 : i32
"""


class Placed:
    """Shared memory of a function whose buffers are named, after allocation.

    ``buffer b BYTES[ ALIGNMENT]`` stands for the allocation of a buffer named b, ``use b`` for a
    read of it; other lines are text.
    """

    def __init__(
        self, *lines: str, shared_memory: int = 1 << 20, target: EmulatedTarget | None = None
    ) -> None:
        self.target = target or EmulatedTarget(32, shared_memory)
        uses = 0
        body = []
        for line in lines:
            words = line.split()
            if words[0] == "use":
                uses += 1
                body += [
                    f"%s{uses} = simt.slot %{words[1]}, %zero : slot<4x4xf32, #S0>",
                    f"%v{uses} = simt.load %s{uses} : tile<4x4xf32>",
                ]
            elif words[0] == "buffer":
                count = int(words[2]) // 64
                alignment = f" {{alignment = {words[3]}}}" if len(words) > 3 else ""
                body.append(
                    f"%{words[1]} = simt.buffer{alignment} : buffer<{count} x 4x4xf32, #S0>"
                )
            else:
                body.append(line)
        self.module = read(HEAD + "\n".join(body) + "\nreturn\n}", self.target)
        allocate(self.module.kernel, self.target)
        self.bytes: int = self.module.kernel.attributes[SHARED_BYTES]

    def named(self, name: str) -> Operation:
        return next(
            operation
            for operation in self.module.kernel.walk()
            if operation.name == "simt.buffer" and operation.results[0].name == name
        )

    def all(self, name: str) -> list[Operation]:
        return [operation for operation in self.module.kernel.walk() if operation.name == name]

    def range(self, name: str) -> tuple[int, int]:
        operation = self.named(name)
        type_ = operation.results[0].type
        assert isinstance(type_, BufferType)
        return offset_of(operation), offset_of(operation) + type_.bytes

    def overlap(self, a: str, b: str) -> bool:
        return overlap(self.range(a), self.range(b))


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def test_buffers_that_live_together_are_apart_and_others_share() -> None:
    placed = Placed("buffer a 1024", "buffer b 2048", "use a", "buffer c 512", "use b", "use c")
    assert placed.bytes == 2048 + 1024
    assert not placed.overlap("a", "b") and not placed.overlap("b", "c")
    assert placed.overlap("a", "c")


def test_offsets_are_aligned_as_asked() -> None:
    placed = Placed(
        "buffer a 64", "buffer b 192 1024", "buffer c 64 128", "use a", "use b", "use c"
    )
    assert offset_of(placed.named("b")) % 1024 == 0 and offset_of(placed.named("c")) % 128 == 0
    assert not any(placed.overlap(*pair) for pair in ("ab", "bc", "ac"))


LOOP = "for %zero, %n, %one body(%i: i32) {"


def test_a_buffer_used_in_a_loop_lives_for_all_of_it() -> None:
    # b comes after the last use of a in the body, but the next iteration reads a again
    placed = Placed(
        "buffer a 256",
        LOOP,
        "use a",
        "buffer b 256",
        "use b",
        "yield",
        "}",
        "buffer c 256",
        "use c",
    )
    assert not placed.overlap("a", "b")
    assert offset_of(placed.named("c")) == 0


def test_a_carried_slot_keeps_its_buffer() -> None:
    placed = Placed(
        "buffer a 256",
        "%first = simt.slot %a, %zero : slot<4x4xf32, #S0>",
        (
            "%last = for %zero, %n, %one, inits=[%first] : slot<4x4xf32, #S0> body(%i: i32, %s: "
            "slot<4x4xf32, #S0>) {\nyield %s\n}"
        ),
        "buffer b 256",
        "%after = simt.load %last : tile<4x4xf32>",
        "use b",
    )
    assert not placed.overlap("a", "b")


def test_a_view_keeps_its_buffer() -> None:
    placed = Placed(
        "buffer a 256",
        "%s = simt.slot %a, %zero : slot<4x4xf32, #S0>",
        "%flat = simt.view %s : slot<16xf32, shared<16>>",
        "buffer b 256",
        "%after = simt.load %flat : tile<16xf32>",
        "use b",
    )
    assert not placed.overlap("a", "b")


COPY = (
    "%s = simt.slot %a, %zero : slot<4x4xf32, #S0>",
    "%pointers = splat %p : tile<4x4xptr<f32>>",
    'simt.copy_start %s, %pointers {by = "queue"}',
    "%t = simt.commit : token<copies>",
)


@pytest.mark.parametrize(
    ("waits", "shared"),
    [
        (["simt.wait tokens=[%t]"], True),
        (
            ["%u = simt.commit : token<copies>", "simt.wait tokens=[%t]"],
            False,
        ),  # one group may be in flight still
        (["%u = simt.commit : token<copies>", "simt.wait tokens=[%u]"], True),
        ([], False),
    ],
)
def test_memory_that_copies_are_in_flight_to_is_not_used_again(
    waits: list[str], shared: bool
) -> None:
    placed = Placed("buffer a 256", *COPY, *waits, "buffer b 256", "use b")
    assert placed.overlap("a", "b") is shared


PRODUCT = (
    "buffer x 256",
    "buffer y 256",
    "%sx = simt.slot %x, %zero : slot<4x4xf32, #S0>",
    "%sy = simt.slot %y, %zero : slot<4x4xf32, #S0>",
    "%f = constant 0.0 : f32",
    "%c = splat %f : tile<4x4xf32>",
    '%r, %t = simt.dot_start %sx, %sy, %c {plan = "p"} : tile<4x4xf32>, token<matmuls>',
)


@pytest.mark.parametrize(
    ("waits", "shared"),
    [(["%e = simt.wait tokens=[%t], tiles=[%r] : tile<4x4xf32>"], True), ([], False)],
)
def test_memory_that_matmuls_in_flight_read_is_not_used_again(
    waits: list[str], shared: bool
) -> None:
    placed = Placed(*PRODUCT, *waits, "buffer b 256", "use b")
    assert placed.overlap("x", "b") is shared


LOOP = "for %zero, %n, %one body(%i: i32) {"
WAIT = "%e = simt.wait tokens=[%t], tiles=[%r] : tile<4x4xf32>"


@pytest.mark.parametrize(
    ("lines", "shared"),
    [
        ([*PRODUCT[:2], LOOP, *PRODUCT[2:], WAIT, "yield", "}"], True),
        ([*PRODUCT[:2], LOOP, *PRODUCT[2:], "yield", "}"], False),
        # on some ways alone
        (
            [
                *PRODUCT,
                "%q = cmp %n, %one {predicate = lt} : i1",
                "if %q then {",
                WAIT,
                "yield",
                "} else {",
                "yield",
                "}",
            ],
            False,
        ),
        ([*PRODUCT, LOOP, WAIT, "yield", "}"], False),
    ],
    ids=["in the loop", "never", "in a branch", "in a loop that may not run"],
)
def test_memory_is_used_again_where_every_way_has_waited_for_what_read_it(
    lines: list[str], shared: bool
) -> None:
    placed = Placed(*lines, "buffer b 256", "use b")
    assert placed.overlap("x", "b") is shared


@pytest.mark.parametrize(
    ("waits", "shared"),
    [
        (["simt.wait tokens=[%t]"], True),
        (["%u = simt.commit : token<stores>", "simt.wait tokens=[%t]"], False),
        ([], False),
    ],
)
def test_memory_that_is_being_copied_to_a_tensor_is_not_used_again(
    waits: list[str], shared: bool
) -> None:
    start = (
        "%s = simt.slot %a, %zero : slot<4x4xf32, #S0>",
        'simt.block_store_start %s, %d, offsets=[%n, %n] {by = "bulk"}',
        "%t = simt.commit : token<stores>",
    )
    placed = Placed("buffer a 256", *start, *waits, "buffer b 256", "use b")
    assert placed.overlap("a", "b") is shared


@pytest.mark.parametrize(("line", "shared"), [("simt.release %ring", True), ("", False)])
def test_what_parts_share_is_used_again_in_the_part_where_it_was_released(
    line: str, shared: bool
) -> None:
    part = 'simt.part {name = "PART", warps = 4} body {'
    other = [part.replace("PART", "other"), "buffer c 64", "use c", "use ring", "yield", "}"]
    own = [
        part.replace("PART", "own"),
        "use ring",
        *([line] if line else []),
        "buffer b 64",
        "use b",
        "yield",
        "}",
    ]
    placed = Placed("buffer ring 256", "simt.partition parts {", *own, *other, "yield", "}")
    assert placed.overlap("ring", "b") is shared
    assert not placed.overlap("ring", "c")


REDUCE = """
%r{0} = reduce %a {{axis = 0}} : i32 combine(%l{0}: i32, %m{0}: i32) {{
  %c{0} = add %l{0}, %m{0} : i32
  yield %c{0}
}}
print %r{0} {{prefix = ""}}
"""
TILE = "%a = arange {start = 0, end = 512} : tile<512xi32, #L0>"


def test_scratch_space_is_beside_the_buffers_alive() -> None:
    placed = Placed(TILE, "buffer b 4096", REDUCE.format(0), "use b")
    (reduce,) = placed.all("reduce")
    size = scratch_of(reduce, placed.target)
    assert size > 0
    assert placed.bytes == 4096 + size
    assert not overlap(placed.range("b"), (offset_of(reduce), offset_of(reduce) + size))


def test_small_scratch_spaces_take_turns() -> None:
    placed = Placed(TILE, *(REDUCE.format(i) for i in range(4)))
    offsets = [offset_of(operation) for operation in placed.all("reduce")]
    assert offsets[0] == offsets[2] != offsets[1] == offsets[3]
    assert placed.bytes <= 64


def test_scratch_space_in_a_loop_is_apart_from_what_the_loop_stages() -> None:
    """Where a program has the shared memory for itself: no barrier is needed between the two."""
    lines = (
        TILE,
        "for %zero, %n, %one body(%i: i32) {",
        REDUCE.format(0),
        "buffer b 4096",
        "use b",
        "yield",
        "}",
    )
    for available, is_apart in ((8192, True), (1 << 20, False), (4096, False)):
        placed = Placed(*lines, shared_memory=available)
        (reduce,) = placed.all("reduce")
        first = offset_of(reduce)
        last = first + scratch_of(reduce, placed.target)
        assert overlap(placed.range("b"), (first, last)) is not is_apart, available


def test_barrier_objects_have_a_place_of_their_own_from_begin_to_end() -> None:
    """A copy may arrive, and a part wait, whenever: nothing else is ever there."""
    lines = (
        "buffer a 256",
        "use a",
        "%m = simt.barriers {count = 1} : barriers<4>",
        "simt.arrive %m, %zero",
        "buffer b 256",
        "use b",
    )
    target = EmulatedTarget(32)
    target.mbarriers.bytes = 8
    placed = Placed(*lines, target=target)
    (barriers,) = placed.all("simt.barriers")
    there = offset_of(barriers), offset_of(barriers) + 4 * 8
    assert placed.overlap("a", "b") and placed.bytes == 256 + 4 * 8
    assert not overlap(there, placed.range("a")) and not overlap(there, placed.range("b"))


def test_too_much_is_an_error_that_tells_how_much() -> None:
    with pytest.raises(OutOfResources, match="shared memory") as raised:
        Placed("buffer a 40000", "buffer b 30016", "use a", "use b", shared_memory=64 * 1024)
    assert (raised.value.required, raised.value.limit, raised.value.name) == (
        40000 + 30016,
        64 * 1024,
        "shared memory",
    )


def test_random_lifetimes_never_overlap() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        spans: dict[str, tuple[int, int]] = {}
        alignments: dict[str, int] = {}
        lines = []
        for step in range(40):
            if spans and rng.random() < 0.6:
                one = rng.choice(list(spans))
                lines.append(f"use {one}")
                spans[one] = (spans[one][0], step)
            else:
                name = f"b{step}"
                alignments[name] = rng.choice([16, 128, 1024])
                lines.append(
                    f"buffer {name} {rng.choice([64, 128, 1024, 4992])} {alignments[name]}"
                )
                spans[name] = (step, step)
        placed = Placed(*lines, shared_memory=1 << 30)
        names = list(spans)
        for i, a in enumerate(names):
            assert offset_of(placed.named(a)) % alignments[a] == 0
            for b in names[:i]:
                together = spans[a][0] <= spans[b][1] and spans[b][0] <= spans[a][1]
                assert not (together and placed.overlap(a, b))
