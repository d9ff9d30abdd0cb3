"""ShadowAddresses of addresses: where the tangent or cotangent of what lies at an address lies.

Addresses are integers and have no derivative. What is loaded from ``x + offsets`` has its cotangent
at ``d_x + offsets``, so each address that is made of ``x`` gets a shadow that is made of ``d_x`` in
the same way. The axis analysis sees the same divisibility of both, unlike of a difference of two
pointers in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.derivatives.analysis.addresses import Addresses, is_address
from tilewright.ir.core import Function, Operation, Region, Value
from tilewright.ir.ops.control import For, If, While
from tilewright.ir.ops.memory import MakeDescriptor
from tilewright.ir.types import DescriptorType, PointerType, Type, element_type, with_element


def add_argument(
    function: Function, type_: Type, name: str, facts: Mapping[str, object] | None = None
) -> Value:
    """Add a parameter to a kernel, after its others."""
    function.argument_attributes.append(dict(facts or {}))
    return function.body.add_argument(type_, name)


def shadow_type(type_: Type, element: Type | None = None) -> Type:
    """Return the type of an address's shadow, which leads to elements of its own type."""
    if isinstance(type_, DescriptorType):
        return DescriptorType(type_.block_shape, element or type_.element)
    pointer = element_type(type_)
    assert isinstance(pointer, PointerType)
    return with_element(type_, PointerType(element or pointer.pointee, pointer.space))


class ShadowAddresses:
    """ShadowAddresses of all addresses that are made of some arguments of a kernel.

    The kernel gets a parameter ``<prefix><name>`` for each, and the operations that make the
    shadows, beside those that make the originals.

    Attributes:
        of: the shadow of an address.
    """

    def __init__(
        self,
        function: Function,
        arguments: Mapping[Value, Type],
        prefix: str,
        facts: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        """Add the shadows.

        Args:
            arguments: pointers and descriptors, with the elements that their shadows lead to.
            prefix: begins the names of the parameters.
            facts: attributes of the parameters, by name.
        """
        self.of: dict[Value, Value] = {}
        self.elements = dict(arguments)
        self._addresses, self._prefix = Addresses(), prefix
        for value, element in arguments.items():
            name = prefix + value.name
            self.of[value] = add_argument(
                function, shadow_type(value.type, element), name, (facts or {}).get(name)
            )
        self._visit(function.body)

    def _has_shadow(self, address: Value) -> bool:
        return is_address(address) and self._addresses.root(address) in self.elements

    def _visit(self, region: Region) -> None:
        for operation in region:
            match operation:
                case For():
                    self._loop(operation)
                case If():
                    self._branch(operation)
                case While():
                    pass  # what it carries has no shadow: its users are refused
                case _ if not operation.regions and any(map(self._has_shadow, operation.results)):
                    self._twin(operation)

    def _twin(self, operation: Operation) -> None:
        """Make the shadow of what an operation makes."""
        if not any(operand in self.of for operand in operation.operands):
            return
        operands = [self.of.get(operand, operand) for operand in operation.operands]
        root = self._addresses.root(operation.result)
        assert root is not None
        attributes = dict(operation.attributes)
        if isinstance(operation, MakeDescriptor):
            attributes["padding"] = "zero"
        twin = Operation(
            operation.spec,
            operands,
            operation.segments,
            attributes,
            [shadow_type(operation.result.type, self.elements[root])],
            (),
            operation.location,
        )
        assert operation.parent is not None
        operation.parent.insert_before(twin, operation)
        self._name(twin.result, operation.result)
        self.of[operation.result] = twin.result

    def _name(self, twin: Value, value: Value) -> None:
        twin.name = f"{self._prefix}{value.name}" if value.name else ""

    def _loop(self, loop: For) -> None:
        positions = [i for i, init in enumerate(loop.inits) if self._has_shadow(init)]
        positions = [i for i in positions if loop.inits[i] in self.of]
        inits = [*loop.inits, *(self.of[loop.inits[i]] for i in positions)]
        loop.replace_operands([loop.lower, loop.upper, loop.step, *inits], (1, 1, 1, len(inits)))
        for i in positions:
            argument = loop.body.arguments[1 + i]
            twin = loop.body.add_argument(self.of[loop.inits[i]].type)
            self._name(twin, argument)
            self.of[argument] = twin
        self._visit(loop.body)
        self._yield(loop.body, positions)
        self._results(loop, positions)

    def _branch(self, operation: If) -> None:
        positions = [i for i, result in enumerate(operation.results) if self._has_shadow(result)]
        for region in operation.regions:
            self._visit(region)
        yields = [region.last for region in operation.regions]
        positions = [
            i for i in positions if all(last and last.operands[i] in self.of for last in yields)
        ]
        for region in operation.regions:
            self._yield(region, positions)
        self._results(operation, positions)

    def _yield(self, region: Region, positions: list[int]) -> None:
        last = region.last
        assert last is not None
        values = [*last.operands, *(self.of[last.operands[i]] for i in positions)]
        last.replace_operands(values, (len(values),))

    def _results(self, operation: Operation, positions: list[int]) -> None:
        for i in positions:
            result = operation.results[i]
            root = self._addresses.root(result)
            assert root is not None
            twin = Value(shadow_type(result.type, self.elements[root]), operation)
            self._name(twin, result)
            operation.results.append(twin)
            self.of[result] = twin
