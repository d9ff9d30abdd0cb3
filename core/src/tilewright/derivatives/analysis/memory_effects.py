"""Memory that a kernel reads and writes, as far as its derivative depends on it.

A derivative is that of each program alone: nobody reads what a kernel writes while it runs. What it
cannot follow through memory is refused.
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.derivatives.analysis.activity import Activity
from tilewright.derivatives.analysis.addresses import Addresses, is_address
from tilewright.derivatives.cotangent_types import is_float
from tilewright.derivatives.refusals import REWRITE, refusal
from tilewright.ir.core import Function, Operation, Value
from tilewright.ir.ops.debug import Extern, InlineAsm
from tilewright.ir.ops.memory import (
    AtomicRmw,
    DescriptorReduce,
    DescriptorScatter,
    DescriptorStore,
    Store,
)
from tilewright.ir.table import Effect, Trait

#: Operations that write an element of an output, as far as there is a rule for them.
Writes = Store | AtomicRmw | DescriptorStore | DescriptorReduce | DescriptorScatter


def adds(operation: Operation) -> bool:
    """Return whether an operation adds atomically to what it writes to."""
    return isinstance(operation, AtomicRmw | DescriptorReduce) and operation.kind == "add"


class MemoryEffects:
    """Accesses of a kernel's arguments.

    Attributes:
        written: arguments that the kernel writes to -> the operations that do.
        storing: operations that write to an output, and those around them.

    Raises:
        DerivativeError: what varies goes through memory in a way that no rule follows.
    """

    def __init__(
        self,
        function: Function,
        activity: Activity,
        inputs: Collection[Value],
        outputs: Collection[Value],
        *,
        mirrored: bool = False,
    ) -> None:
        """Analyze.

        Args:
            inputs: arguments by whose memory the derivative is taken.
            outputs: arguments whose writes have cotangents, or tangents.
            mirrored: whether tangents lie beside the memory of inputs and outputs while the kernel
                runs, so that it may read what it wrote there.
        """
        self._activity, self._inputs, self._outputs = activity, set(inputs), set(outputs)
        self.addresses = Addresses()
        self.written: dict[Value, list[Operation]] = {}
        self.storing: set[Operation] = set()
        self._varied: dict[Value, Operation] = {}
        mirrors = self._inputs | self._outputs if mirrored else set[Value]()
        operations = list(function.walk())
        for operation in operations:
            self._write(operation)
        for operation in operations:
            self._read(operation, mirrors)
        if not mirrored:
            self._check_inputs()

    def _write(self, operation: Operation) -> None:
        if isinstance(operation, InlineAsm | Extern):
            if not operation.pure and any(map(is_address, operation.operands)):
                raise refusal(operation, "may access memory, which no analysis follows", REWRITE)
            return
        if Trait.ACCESS not in operation.spec.traits or Effect.WRITE not in operation.spec.effects:
            return
        address, *values = operation.operands
        arguments = self.addresses.arguments(address)
        varies = any(value in self._activity.varied for value in values)
        varies |= any(map(self._activity.holds_bits, values))
        if varies and len(arguments) != 1:
            raise refusal(
                operation,
                "writes what has a derivative through an address that is not one argument's",
                "write through a pointer that is made of one argument",
            )
        for argument in arguments - {None}:
            assert argument is not None
            self.written.setdefault(argument, []).append(operation)
            if argument in self._outputs:
                self._check_output(operation, varies)
            if varies:
                self._varied.setdefault(argument, operation)
        if varies and any(result.uses for result in operation.results):
            raise refusal(
                operation,
                "the old value of what has a derivative is read, which other programs wrote",
                "compute the sum of the programs in a kernel of its own",
            )

    def _check_output(self, operation: Operation, varies: bool) -> None:
        self.storing.add(operation)
        self.storing.update(operation.ancestors())
        if not varies:
            return
        if self.addresses.is_reinterpreted(operation.operands[0]) or not any(
            value in self._activity.varied for value in operation.operands[1:]
        ):
            raise refusal(
                operation,
                "writes what has a derivative to an output as another type",
                "pass the output as an array of the type that the kernel writes",
            )
        kind = getattr(operation, "kind", "add")
        if kind != "add":
            raise refusal(
                operation,
                f"atomic {kind} has no derivative, only add has",
                "reduce within the program, and let one more kernel reduce what programs stored",
            )
        if not isinstance(operation, Writes):
            raise refusal(operation, "other programs may read it at once: no derivative", REWRITE)

    def _read(self, operation: Operation, mirrors: Collection[Value]) -> None:
        spec = operation.spec
        if Trait.ACCESS not in spec.traits or not any(r.uses for r in operation.results):
            return
        arguments = self.addresses.arguments(operation.operands[0])
        if None in arguments and any(map(is_float, operation.results)):
            raise refusal(
                operation,
                "reads floats through an address that is not made of an argument",
                "pass the array that it leads to as an argument",
            )
        for argument in arguments - {None}:
            assert argument is not None
            write = self._varied.get(argument)
            if write is not None and argument not in mirrors:
                raise refusal(
                    operation,
                    f"reads {argument.name}, to which the kernel writes at {write.location} what "
                    "has a derivative",
                    "write the result to another array, and read what was computed instead of "
                    "loading it",
                )

    def _check_inputs(self) -> None:
        for argument in self._inputs & self.written.keys():
            operation = self.written[argument][0]
            raise refusal(
                operation,
                f"writes to {argument.name}, by which the derivative is taken",
                "write the result to another array, so that the adjoint finds the input as it was",
            )
