"""Floats that depend on the inputs that a derivative is taken by.

A float *varies* where it is computed from a float that does, or is loaded from an input's memory.
Integers have no derivative, and so the bits of a float that varies must not come back as a float:
neither by a bitcast, nor as a number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from tilewright.derivatives.analysis.addresses import Addresses
from tilewright.derivatives.cotangent_types import is_float
from tilewright.derivatives.refusals import REWRITE, refusal
from tilewright.derivatives.rule_calls import varying_operands
from tilewright.derivatives.scaled_operands import scale_refusal
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Bitcast, Cast, Cmp
from tilewright.ir.ops.control import Call, For, If, Map, Reduce, Scan, While
from tilewright.ir.ops.debug import Extern, InlineAsm
from tilewright.ir.ops.linear import DotScaled
from tilewright.ir.table import Effect, Trait


class Activity:
    """Values of a function that vary with some inputs.

    Attributes:
        varied: the floats that do.

    Raises:
        DerivativeError: a float is made of the bits of one that varies, or a while loop computes
            one.
    """

    def __init__(
        self,
        function: Function,
        inputs: Iterable[Value],
        scalars: Iterable[Value] = (),
        constants: Collection[Value] = (),
        functions: Mapping[str, Function] | None = None,
    ) -> None:
        """Analyze.

        Args:
            inputs: arguments to whose memory the derivative is taken.
            scalars: float arguments that it is taken by.
            constants: values whose derivative is zero, whatever they are computed from.
            functions: those that have a derivative of their own, whose calls the function has.
        """
        self._constants, self._functions = constants, functions or {}
        self._inputs, self._addresses = set(inputs), Addresses()
        self.varied: set[Value] = set(scalars)
        #: integers that hold the bits of floats that vary
        self._bits: set[Value] = set()
        self._visit(function.body)

    def _vary(self, values: Iterable[Value]) -> None:
        self.varied.update(value for value in values if value not in self._constants)

    def reads_input(self, operation: Operation) -> bool:
        """Return whether an operation reads the memory of an input."""
        if Trait.ACCESS not in operation.spec.traits or Effect.READ not in operation.spec.effects:
            return False
        arguments = self._addresses.arguments(operation.operands[0])
        return bool(arguments & self._inputs)

    def _visit(self, region: Region) -> None:
        for operation in region:
            match operation:
                case For():
                    self._for(operation)
                case If():
                    self._if(operation)
                case While():
                    self._while(operation)
                case Reduce() | Scan() | Map():
                    self._elements(operation)
                case Call():
                    self._call(operation)
                case _:
                    self._operation(operation)

    def _operation(self, operation: Operation) -> None:
        if operation.spec.terminator:
            return
        if isinstance(operation, DotScaled):
            self._require_constant_scales(operation)
        varies = any(operand in self.varied for operand in operation.operands)
        if self.reads_input(operation):
            self._read(operation)
        elif any(operand in self._bits for operand in operation.operands):
            self._from_bits(operation)
        elif varies:
            if isinstance(operation, Bitcast):
                self._bits.update(r for r in operation.results if not is_float(r))
                if is_float(operation.result):
                    raise self._refused_bits(operation)
            elif isinstance(operation, InlineAsm | Extern):
                self._bits.update(r for r in operation.results if not is_float(r))
            self._vary(filter(is_float, operation.results))

    def _call(self, call: Call) -> None:
        """Follow what a function's own derivative says that it depends on."""
        if any(value in self.varied for value in varying_operands(call, self._functions)):
            self._vary(filter(is_float, call.results))

    def _read(self, operation: Operation) -> None:
        address = operation.operands[0]
        if len(self._addresses.arguments(address)) != 1:
            raise refusal(
                operation,
                "reads through an address that is made of several arguments",
                "load from one argument, or load from each and select",
            )
        if self._addresses.is_reinterpreted(address):
            raise refusal(
                operation,
                "reads what varies through a pointer to another type",
                "pass the argument as an array of the type that the kernel reads",
            )
        self._vary(filter(is_float, operation.results))

    def _from_bits(self, operation: Operation) -> None:
        """Follow the bits of floats that vary through integers; comparisons end them."""
        if isinstance(operation, Cmp):
            return
        makes_floats = isinstance(operation, Bitcast | Cast | DotScaled)
        if any(map(is_float, operation.results)) and makes_floats:
            raise self._refused_bits(operation)
        self._bits.update(
            result
            for result in operation.results
            if not is_float(result) and operation.spec.effects is Effect.NONE
        )
        if any(operand in self.varied for operand in operation.operands):
            self._vary(filter(is_float, operation.results))

    def _require_constant_scales(self, operation: DotScaled) -> None:
        for scale in (operation.a_scale, operation.b_scale):
            if scale is not None and (scale in self.varied or scale in self._bits):
                raise scale_refusal(operation)

    def _refused_bits(self, operation: Operation) -> Exception:
        return refusal(operation, "makes a float of the bits of one that has a derivative", REWRITE)

    def holds_bits(self, value: Value) -> bool:
        """Return whether an integer holds the bits of a float that varies."""
        return value in self._bits

    # ---- regions

    def _move(self, sources: Iterable[Value], targets: Iterable[Value]) -> None:
        for source, target in zip(sources, targets, strict=True):
            if source in self.varied:
                self._vary((target,))
            if source in self._bits:
                self._bits.add(target)

    def _for(self, loop: For) -> None:
        carried, last = loop.body.arguments[1:], loop.body.last
        assert last is not None
        self._move(loop.inits, carried)
        while True:
            before = len(self.varied) + len(self._bits)
            self._visit(loop.body)
            self._move(last.operands, carried)
            if len(self.varied) + len(self._bits) == before:
                break
        self._move(carried, loop.results)

    def _if(self, operation: If) -> None:
        for region in operation.regions:
            self._visit(region)
            assert region.last is not None
            self._move(region.last.operands, operation.results)

    def _while(self, loop: While) -> None:
        for operation in loop.walk():
            if any(value in self.varied for value in operation.operands) or self.reads_input(
                operation
            ):
                raise refusal(
                    loop,
                    "computes what has a derivative, and how often it runs is not known before",
                    "write it as a for loop with a bound, and skip the iterations that are too "
                    "many by a condition",
                )

    def _elements(self, operation: Reduce | Scan | Map) -> None:
        """Visit a region that computes on the elements of the operands."""
        (region,) = operation.regions
        count = len(operation.inputs)
        copies = len(region.arguments) // count
        for i, value in enumerate(operation.inputs):
            own = (
                region.arguments[i * copies : (i + 1) * copies]
                if isinstance(operation, Map)
                else region.arguments[i::count]
            )
            for argument in own:
                self._move((value,), (argument,))
        self._visit(region)
        assert region.last is not None
        if isinstance(operation, Reduce | Scan):
            values = (*operation.inputs, *region.last.operands)
            targets = (*region.arguments, *operation.results)
            if any(value in self._bits for value in values):
                self._bits.update(value for value in targets if not is_float(value))
            if any(value in self.varied for value in values):
                # what one input yields, the next combination reads
                self._vary(filter(is_float, targets))
                self._visit(region)
            return
        for i, result in enumerate(operation.results):
            self._move(region.last.operands[i * copies : (i + 1) * copies], [result] * copies)
