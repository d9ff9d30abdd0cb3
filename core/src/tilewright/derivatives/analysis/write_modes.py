"""Modes of writing the cotangent of an input: by stores, or by atomic additions.

Each load of an input adds to the input's cotangent at the same address. Where each element is
loaded once in all, the cotangent is stored; where one program alone loads it, maybe several times,
the program adds to it without atomics. Else programs add atomically.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tilewright.derivatives.analysis.address_digits import (
    AddressDigits,
    DigitAddress,
    NotDigitsError,
    ScalarCondition,
    loops_around,
)
from tilewright.derivatives.analysis.addresses import Addresses, is_address
from tilewright.derivatives.analysis.block_coordinates import alternatives as block_alternatives
from tilewright.derivatives.analysis.block_coordinates import block_coordinates
from tilewright.derivatives.kernel_arguments import named_arguments, normalized
from tilewright.ir.core import Function, Module, Operation, Value
from tilewright.ir.ops.arithmetic import ProgramId
from tilewright.ir.ops.control import LOOPS, While
from tilewright.ir.ops.memory import AtomicRmw, DescriptorBlocks, DescriptorLoad, Load
from tilewright.ir.table import Effect, Trait
from tilewright.passes.analysis.affine_forms import ONE

#: Alternatives of conditions that a launch checks, at most.
_MOST_ALTERNATIVES = 4


@dataclass(frozen=True)
class WriteMode:
    """A mode of writing a cotangent, and why.

    Attributes:
        mode: ``store``, ``add`` or ``atomic``, as requests have it.
        why: the reason, in a few words.
        alternatives: sets of conditions, one of which a launch has to satisfy; else it is atomic.
    """

    mode: str
    why: str
    alternatives: tuple[tuple[ScalarCondition, ...], ...] = ((),)

    def at(self, numbers: Mapping[str, int]) -> WriteMode:
        """Return the mode of a launch with these arguments and sizes of the grid."""
        if self.mode == "atomic" or any(
            all(condition.holds(numbers) for condition in conditions)
            for conditions in self.alternatives
        ):
            return self
        missing = " and ".join(condition.text for condition in self.alternatives[0])
        return WriteMode("atomic", f"the arguments do not satisfy {missing}")


def write_modes(
    module: Module, wrt: Iterable[str], disjoint: Collection[str] = ()
) -> dict[str, WriteMode]:
    """Return how the cotangents of arguments may be written, by name.

    Those of floats are added to atomically.

    Args:
        disjoint: arguments of which no two programs, and no two lanes of one load, load one
            element, as the caller promises.

    Raises:
        DerivativeError: the kernel has no such argument.
    """
    kernel = normalized(module).kernel
    arguments = named_arguments(kernel, wrt, "wrt", scalars=True)
    addresses, digits = Addresses(), AddressDigits(kernel)
    found = {value.name: _mode(kernel, value, addresses, digits) for value in arguments}
    for value in arguments:
        if value.name in disjoint and not _is_unconditional(found[value.name]):
            found[value.name] = _assumed(kernel, value, addresses)
    return found


def _is_unconditional(mode: WriteMode) -> bool:
    return mode.mode != "atomic" and () in mode.alternatives


def _assumed(kernel: Function, argument: Value, addresses: Addresses) -> WriteMode:
    """Return the mode of an argument whose elements programs share with nobody."""
    loads = [
        operation
        for operation in kernel.walk()
        if _reads(operation) and argument in addresses.arguments(operation.operands[0])
    ]
    is_once = len(loads) == 1 and not any(isinstance(op, LOOPS) for op in loads[0].ancestors())
    why = "assumed because of disjoint: one program alone loads each element"
    return WriteMode("store" if is_once else "add", why + (", once" if is_once else ""))


def _mode(
    kernel: Function, argument: Value, addresses: Addresses, digits: AddressDigits
) -> WriteMode:
    if not is_address(argument):
        return WriteMode("atomic", "all programs add to the gradient of a float")
    loads: list[Load] = []
    blocks: list[DescriptorLoad] = []
    for operation in kernel.walk():
        if not _reads(operation) or argument not in addresses.arguments(operation.operands[0]):
            continue
        match operation:
            case Load():
                loads.append(operation)
            case DescriptorLoad():
                blocks.append(operation)
            case _:
                return WriteMode(
                    "atomic", f"{operation.name} reads it, whose address is not followed"
                )
    if not loads and not blocks:
        return WriteMode("atomic", "no load reads it")
    if loads and blocks:
        return WriteMode("atomic", "both loads and blocks of descriptors read it")
    try:
        if blocks:
            return block_mode(kernel, digits, blocks, "load")
        return access_mode(kernel, digits, loads, "load")
    except NotDigitsError as error:
        return WriteMode("atomic", str(error))


def access_mode(
    kernel: Function, digits: AddressDigits, accesses: Sequence[Load | AtomicRmw], verb: str
) -> WriteMode:
    """Return how what programs add where they access an argument may be written.

    Args:
        accesses: all accesses of the kernel to the argument.
        verb: their name, in the plural, for reasons.

    Raises:
        NotDigitsError: an address is no sum of variables.
    """
    found = [digits.of(access) for access in accesses]
    programs = [{axis for axis, _ in address.programs} for address in found]
    repeated = not _are_apart(found) or any(
        _repeats(access, address.variables) for access, address in zip(accesses, found, strict=True)
    )
    return _proven(kernel, programs, digits.alternatives(found), verb, repeated=repeated)


def block_mode(
    kernel: Function, digits: AddressDigits, accesses: Sequence[DescriptorBlocks], verb: str
) -> WriteMode:
    """Return how what programs add where they access blocks of a tensor may be written.

    Args:
        accesses, verb: as of :func:`access_mode`.

    Raises:
        NotDigitsError: an offset is no sum of variables.
    """
    found = [block_coordinates(digits, access) for access in accesses]
    programs = [block.programs for block in found]
    repeated = len(accesses) > 1 or _repeats(accesses[0], found[0].variables)
    return _proven(kernel, programs, block_alternatives(digits, found), verb, repeated=repeated)


def _proven(
    kernel: Function,
    programs: Sequence[set[int]],
    alternatives: Sequence[tuple[ScalarCondition, ...]],
    verb: str,
    *,
    repeated: bool,
) -> WriteMode:
    """Return the mode that follows from what accesses depend on.

    Args:
        programs: the axes of the grid on which each access depends.
        alternatives: conditions under which programs access different elements.
        repeated: whether a program may access an element more than once.
    """
    axes = {operation.axis for operation in kernel.walk() if isinstance(operation, ProgramId)}
    for known in programs:
        if axes - known:
            axis = min(axes - known)
            return WriteMode("atomic", f"all programs along axis {axis} of the grid {verb} it")
    if not alternatives:
        return WriteMode("atomic", f"programs may {verb} one element")
    alone = tuple(_one_program(axis) for axis in range(3) if axis not in axes)
    alternatives = [(*alone, *conditions) for conditions in alternatives]
    first, *rest = verb.split()
    verb = " ".join([f"{first}s", *rest])
    return WriteMode(
        "add" if repeated else "store",
        f"one program alone {verb} each element" + ("" if repeated else ", once"),
        tuple(alternatives[:_MOST_ALTERNATIVES]),
    )


def _reads(operation: Operation) -> bool:
    spec = operation.spec
    return Trait.ACCESS in spec.traits and Effect.READ in spec.effects


def _are_apart(found: Sequence[DigitAddress]) -> bool:
    """Return whether accesses with the same digits never meet at one element of a program."""
    offsets = sorted(address.rest.minus(found[0].rest).constant or 0 for address in found)
    reaches = [digit.reach for digit in found[0].digits if digit.step == ONE]
    if len(offsets) == 1:
        return True
    if len(reaches) != 1 or reaches[0] is None or reaches[0].constant is None:
        return False
    return all(low + reaches[0].constant <= high for low, high in pairwise(offsets))


def _repeats(access: Operation, variables: Collection[object]) -> bool:
    """Return whether a program may access one element in several iterations.

    Args:
        variables: those on which its address depends.
    """
    if any(isinstance(around, While) for around in access.ancestors()):
        return True
    return any(("iteration", loop) not in variables for loop in loops_around(access))


def _one_program(axis: int) -> ScalarCondition:
    """The condition that the grid has one program along an axis that the kernel does not read."""
    name = f"num_programs({axis})"
    return ScalarCondition(((1, ()), (-1, (name,))), f"1 >= {name}")
