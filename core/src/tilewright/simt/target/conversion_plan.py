"""Plans of layout conversions (``simt.convert``), within warps or through shared memory.

This is linear algebra alone; :mod:`tilewright.simt.lowering.convert_layout` emits the instructions.
An element that register r', lane l', warp w' of the destination holds is in some register r and
lane l of the source's same warp where the images allow it: solving the destination's images in the
source's yields a linear map T, (r', l', w') -> (r, l). Three steps carry it out, each with the same
register numbers in every lane:

    rotate    variable p of lane l    = its register  G p ^ X l ^ W w
    shuffle   variable q of lane l'   = variable q of lane  L q ^ M l' ^ N w'
    rotate    register r' of lane l'  = its variable  r' ^ Y l'

Rotations select between two registers for each bit of the lane that has a part in them; a shuffle
takes one variable from one lane. With T = [R_r R_l R_w; L_r L_l L_w] this asks for M = L_l - L_r Y,
X M = R_l - R_r Y, G = R_r - X L_r, W = R_w - X L_w, and L = L_r, N = L_w. Y is chosen so that M is
as injective as T lets it be: bit by bit, a sum of variables that leads to lanes not reached yet,
which exists wherever T is one to one. Where several lanes want different registers of one lane,
variables are added. Everything else goes through shared memory.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from tilewright.ir.types import PointerType, Type, byte_size
from tilewright.simt.layouts.linear_layout import (
    Basis,
    LinearLayout,
    SharedLayout,
    combine,
    log2,
    span,
)
from tilewright.simt.layouts.swizzle import shared_between, transactions
from tilewright.simt.target.cost_model import CostModel
from tilewright.simt.target.simt_target import SimtTarget


def stored_size(element: Type) -> int:
    """Bytes of an element in shared memory."""
    return 8 if isinstance(element, PointerType) else byte_size(element)


@dataclass(frozen=True, slots=True)
class WarpMove:
    """A layout conversion within each warp: the three steps above.

    Images are those of the bits of a number, lowest bit first.

    Attributes:
        lanes_before, warps_before: X and W: images in the source's registers.
        variables: G: images of the bits of a variable's number in the source's registers.
        source_of_variable, source_of_lane, source_of_warp: L, M, N: images in the lanes.
        lanes_after: Y: images in the variables.
        results: number of registers of the destination; they are the first variables.
        packed: a basis of the variable numbers that leave the source lane unchanged: as many
            variables share a shuffle as fit in 32 bits.
    """

    lanes_before: tuple[int, ...]
    warps_before: tuple[int, ...]
    variables: tuple[int, ...]
    source_of_variable: tuple[int, ...]
    source_of_lane: tuple[int, ...]
    source_of_warp: tuple[int, ...]
    lanes_after: tuple[int, ...]
    results: int
    packed: tuple[int, ...]

    @property
    def shuffles(self) -> bool:
        """Return whether any element changes lanes."""
        identity = tuple(1 << bit for bit in range(len(self.source_of_lane)))
        return (
            self.source_of_lane != identity
            or any(self.source_of_variable)
            or any(self.source_of_warp)
        )

    @property
    def selects(self) -> int:
        """Selects of a thread, for elements of 32 bits."""
        variables = 1 << len(self.variables)
        before = sum(1 for image in (*self.lanes_before, *self.warps_before) if image)
        return before * variables + sum(1 for image in self.lanes_after if image) * variables

    def shuffle_count(self, size: int) -> int:
        """Shuffles of 32 bits for elements of ``size`` bytes."""
        if not self.shuffles:
            return 0
        variables = 1 << len(self.variables)
        return variables * (size // 4) if size > 4 else variables >> len(self.packed_bits(size))

    def select_count(self, size: int) -> int:
        """Selects of 32 bits for elements of ``size`` bytes."""
        return self.selects * (size // 4) if size > 4 else self.selects >> len(self.words(size))

    def words(self, size: int) -> tuple[PackedBit, ...]:
        """Return how registers are packed into 32-bit words through all three steps.

        Rotations then select between words. Empty if some rotation would change an element's place
        in its word, or if nothing is shuffled.
        """
        bits = self.packed_bits(size) if self.shuffles and self.selects else ()
        return _packed_bits(self, bits) if bits else ()

    def packed_bits(self, size: int) -> tuple[int, ...]:
        """Basis of the variables that share a shuffle, for elements of ``size`` bytes."""
        return self.packed[: max(0, 2 - log2(size))]


@dataclass(frozen=True, slots=True)
class PackedBit:
    """A bit of an element's place in a packed word.

    Attributes:
        variable, register: the difference of the variable's number, and of the source register's,
            between the two places.
        mask: of the source register's bits, whose parity is the place's bit.
    """

    variable: int
    register: int
    mask: int

    def of(self, register: int) -> int:
        """Return this bit of the place of a source register."""
        return (register & self.mask).bit_count() & 1


@functools.lru_cache(maxsize=4096)
def _packed_bits(move: WarpMove, variables: tuple[int, ...]) -> tuple[PackedBit, ...]:
    """Return a packed bit for each of the variables, or nothing if one of them has none.

    The parity of the bit's mask is odd for the variable's own register, and even for the registers
    of the others and for all rotations.
    """
    registers = [combine(move.variables, variable) for variable in variables]
    rotations = [
        *move.lanes_before,
        *move.warps_before,
        *(combine(move.variables, image) for image in move.lanes_after),
    ]
    width = max([*registers, *rotations, *move.variables]).bit_length()
    found = []
    for place, variable in enumerate(variables):
        others = [*registers[:place], *registers[place + 1 :], *rotations]
        candidates = (PackedBit(variable, registers[place], mask) for mask in range(1, 1 << width))
        one = next(
            (bit for bit in candidates if bit.of(bit.register) and not any(map(bit.of, others))),
            None,
        )
        if one is None:
            return ()
        found.append(one)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class SharedMove:
    """A layout conversion through shared memory, in one or more rounds.

    The highest ``round_bits`` bits of an element's offset are the number of its round.
    ``within_warps``: each warp reads what it has written itself.
    """

    shared: SharedLayout
    round_bits: int
    within_warps: bool

    @property
    def round_elements(self) -> int:
        """Number of elements in shared memory at a time."""
        return 1 << (len(self.shared.images) - self.round_bits)


Conversion = WarpMove | SharedMove


def plan_conversion(
    a: LinearLayout, b: LinearLayout, element: Type, target: SimtTarget
) -> Conversion:
    """Return the cheapest conversion of a tile of ``element`` from layout ``a`` to layout ``b``."""
    return _planned(a, b, element, target)[0]


def conversion_cost(a: LinearLayout, b: LinearLayout, element: Type, target: SimtTarget) -> int:
    """Return the cost of the conversion to a warp; 0 if it needs no instruction.

    The unit is one shuffle, or one transaction of shared memory.
    """
    return _planned(a, b, element, target)[1]


def _planned(
    a: LinearLayout, b: LinearLayout, element: Type, target: SimtTarget
) -> tuple[Conversion, int]:
    sizes, costs = target.resources, target.costs
    return _plan(
        a,
        b,
        stored_size(element),
        min(costs.scratch, sizes.shared_memory),
        sizes.max_access,
        sizes.banks,
        costs,
    )


def scratch_bytes(plan: Conversion, element: Type) -> int:
    """Bytes of shared memory that a conversion needs."""
    return plan.round_elements * stored_size(element) if isinstance(plan, SharedMove) else 0


@functools.lru_cache(maxsize=4096)
def _plan(
    a: LinearLayout,
    b: LinearLayout,
    size: int,
    scratch: int,
    max_access: int,
    banks: int,
    costs: CostModel,
) -> tuple[Conversion, int]:
    move = within_warp(a, b)
    move_cost = None
    if move is not None:
        move_cost = move.shuffle_count(size) + -(
            -move.select_count(size) // costs.selects_per_shuffle
        )
        if move_cost <= 2 * costs.barrier:
            return move, move_cost
    shared = through_shared(a, b, size, scratch, max_access, banks)
    turns = sum(sum(transactions(side, shared.shared, size, max_access, banks)) for side in (a, b))
    cost = turns + (2 << shared.round_bits) * costs.barrier
    return (
        (move, move_cost)
        if move is not None and move_cost is not None and move_cost <= cost
        else (shared, cost)
    )


def through_shared(
    a: LinearLayout, b: LinearLayout, size: int, scratch: int, max_access: int, banks: int
) -> SharedMove:
    """Plan a conversion through at most ``scratch`` bytes of shared memory at a time."""
    dimension = log2(math.prod(a.shape))
    round_bits = max(0, dimension + log2(size) - (scratch.bit_length() - 1))
    shared = shared_between(a, b, size, max_access, banks, round_bits)
    own = Basis((*a.registers, *a.lanes))
    # in a later round a warp writes where another one wrote
    is_apart = not round_bits and all(own.add(image) for image in a.warps)
    return SharedMove(shared, round_bits, is_apart and within_warp(a, b) is not None)


@functools.lru_cache(maxsize=4096)
def within_warp(a: LinearLayout, b: LinearLayout) -> WarpMove | None:
    """Plan a conversion by registers and shuffles; None if an element has to change warps."""
    lane_count = len(a.lanes)
    width = len(a.registers)
    own, warp = Basis(a.registers), Basis((*a.registers, *a.lanes))

    def source(image: int, here: int, same: int) -> tuple[int, int] | None:
        """Return the source's (register, lane) that yields ``image``, or None.

        If the place with image ``here``, whose lane is ``same``, holds the element, the lane is
        ``same``.
        """
        near = own.solve(image ^ here)
        if near is not None:
            return near, same
        found = warp.solve(image)
        return None if found is None else (found & ((1 << width) - 1), found >> width)

    of_registers = [source(image, 0, 0) for image in b.registers]
    of_lanes = [
        source(image, here, 1 << bit)
        for bit, (image, here) in enumerate(zip(b.lanes, a.lanes, strict=True))
    ]
    of_warps: list[tuple[int, int] | None] = []
    for image, here in zip(b.warps, a.warps, strict=True):
        found = warp.solve(image ^ here)
        of_warps.append(None if found is None else (found & ((1 << width) - 1), found >> width))
    if None in of_registers or None in of_lanes or None in of_warps:
        return None
    variables = [pair for pair in of_registers if pair is not None]
    lanes = [pair for pair in of_lanes if pair is not None]
    warps = [pair for pair in of_warps if pair is not None]

    lanes_after: list[int] = []
    reached = Basis()  # by the lanes' columns of M; with the columns of X M
    rotations: list[int] = []
    sources_of_lanes: list[int] = []
    for register, lane in lanes:
        choice = _choose_variable(register, lane, variables, reached, rotations)
        if choice is None:  # a new variable for the registers of these lanes
            variables.append((register, lane))
            choice = 1 << (len(variables) - 1)
        lanes_after.append(choice)
        for number in range(len(variables)):
            if choice >> number & 1:
                register, lane = register ^ variables[number][0], lane ^ variables[number][1]
        sources_of_lanes.append(lane)
        if reached.solve(lane) is None:
            reached.add(lane)
            rotations.append(register)

    # X, on the lanes that are read; arbitrary on the others
    known = len(rotations)
    for bit in range(lane_count):
        if reached.solve(1 << bit) is None:
            reached.add(1 << bit)
    before = []
    for bit in range(lane_count):
        used = reached.solve(1 << bit)
        assert used is not None
        before.append(combine(rotations, used & ((1 << known) - 1)))

    sources = [lane for _, lane in variables]
    return WarpMove(
        tuple(before),
        tuple(register ^ combine(before, lane) for register, lane in warps),
        tuple(register ^ combine(before, lane) for register, lane in variables),
        tuple(sources),
        tuple(sources_of_lanes),
        tuple(lane for _, lane in warps),
        tuple(lanes_after),
        b.register_count,
        tuple(_kernel(sources)),
    )


def _choose_variable(
    register: int, lane: int, variables: list[tuple[int, int]], reached: Basis, rotations: list[int]
) -> int | None:
    """Return a combination of variables (a column of Y) for a lane bit sourced at (register, lane).

    It sends the lane bit to lanes not reached yet, or reached with the same rotation. None if there
    is no such combination.
    """
    numbers: list[int] = [
        0,
        *(1 << bit for bit in range(len(variables))),
        *range(1 << min(len(variables), 10)),
    ]
    for number in numbers:
        to = lane ^ combine([there for _, there in variables], number)
        used = reached.solve(to)
        if used is None or combine(rotations, used) == register ^ combine(
            [here for here, _ in variables], number
        ):
            return number
    return None


def _kernel(images: list[int]) -> list[int]:
    """Return a basis of the kernel of the linear map with the given images."""
    basis, bits, kernel = Basis(), [], []
    for bit, image in enumerate(images):
        used = basis.solve(image)
        if used is None:
            basis.add(image)
            bits.append(1 << bit)
        else:
            kernel.append(1 << bit ^ combine(bits, used))
    return kernel


def variables_in_groups(count: int, packed: tuple[int, ...]) -> list[list[int]]:
    """Partition variables 0 to ``count`` - 1 into the groups that share a shuffle."""
    together = span(packed)
    basis = Basis(packed)
    rest = [1 << bit for bit in range(log2(count)) if basis.add(1 << bit)]
    return [[first ^ other for other in together] for first in span(rest)]
