"""Checking that a module keeps every rule of the op table.

Each finding names the operation, its location and the rule.
"""

from __future__ import annotations

from typing import NoReturn

from tilewright.ir.builder import infer_types
from tilewright.ir.core import Function, Module, Operation, Region, Value
from tilewright.ir.ops.control import Call, Return
from tilewright.ir.table import RuleError
from tilewright.recursion import deep_recursion


class VerificationError(Exception):
    """A module breaks a rule. ``operation`` is the culprit where one is known."""

    def __init__(self, message: str, operation: Operation | None = None) -> None:
        super().__init__(message)
        self.operation = operation


@deep_recursion()
def verify(module: Module) -> None:
    """Check a module.

    Raises:
        VerificationError: the first rule that is broken, with operation and location.
    """
    for name, function in module.functions.items():
        if name != function.name:
            raise VerificationError(f"function @{function.name} is filed under the name @{name}")
        _Verifier(module, function).run()


def verify_uses(module: Module) -> None:
    """Check only that values are defined before they are read, in the same region or one around it,
    and that regions end with a terminator: what rewrites break most. After every stage of a GPU it
    takes two percent of the time of lowering, where :func:`verify` takes a third.

    Raises:
        VerificationError: the first rule that is broken, with operation and location.
    """
    for function in module.functions.values():
        _Verifier(module, function).uses(function.body)


class _Verifier:
    """Verifies one function: values must be defined before they are read, in the same region or one
    around it."""

    def __init__(self, module: Module, function: Function) -> None:
        self.module, self.function = module, function
        self.visible: set[Value] = set()

    def run(self) -> None:
        function = self.function
        if function.kernel and function.result_types:
            raise VerificationError(f"kernel @{function.name} has results")
        if len(function.argument_attributes) != len(function.arguments):
            raise VerificationError(
                f"@{function.name} has {len(function.arguments)} arguments and attributes for "
                f"{len(function.argument_attributes)}"
            )
        for argument in function.arguments:
            misfit = _misfit(argument)
            if misfit:
                raise VerificationError(f"@{function.name}: {misfit}")
        self._region(function.body)
        last = function.body.terminator
        if last is None or not isinstance(last, Return):
            raise VerificationError(f"@{function.name} does not end with return")
        found = tuple(value.type for value in last.operands)
        if found != function.result_types:
            self._fail(
                last,
                f"returns ({', '.join(map(str, found))}) from a function of results "
                f"({', '.join(map(str, function.result_types))})",
            )

    def uses(self, region: Region) -> None:
        """Check what the operations of a region read."""
        visible, added = self.visible, list(region.arguments)
        visible.update(added)
        operation, last = region.first, None
        while operation is not None:
            if not visible.issuperset(operation.operands):
                self._check_uses(operation)
            for inner in operation.regions:
                self.uses(inner)
            if results := operation.results:
                added += results
                visible.update(results)
            last, operation = operation, operation.next
        if last is None or not last.spec.terminator:
            self._fail_end(region, last)
        visible.difference_update(added)

    def _region(self, region: Region) -> None:
        added: list[Value] = list(region.arguments)
        self.visible.update(added)
        previous: Operation | None = None
        for operation in region:
            if operation.parent is not region or operation.previous is not previous:
                self._fail(operation, "is linked wrongly into its region")
            if operation.spec.terminator and operation.next is not None:
                self._fail(operation, "is a terminator and must come last")
            self._operation(operation)
            added.extend(operation.results)
            self.visible.update(operation.results)
            previous = operation
        if region.terminator is None:
            self._fail_end(region, previous)
        self.visible.difference_update(added)

    def _operation(self, operation: Operation) -> None:
        spec = operation.spec
        self._check_uses(operation)
        for operand in operation.operands:
            if operation not in operand.uses:
                self._fail(operation, "is missing from the uses of a value it reads")
        if sum(operation.segments) != len(operation.operands) or len(operation.segments) != len(
            spec.operands
        ):
            self._fail(
                operation,
                f"has segments {operation.segments} for {len(operation.operands)} operands",
            )
        if len(operation.regions) != len(spec.regions):
            self._fail(operation, f"has {len(spec.regions)} regions, not {len(operation.regions)}")
        groups, start = [], 0
        for size in operation.segments:
            groups.append([value.type for value in operation.operands[start : start + size]])
            start += size
        found = [value.type for value in operation.results]
        try:
            expected = infer_types(spec, groups, operation.attributes, found)
        except RuleError as error:
            self._fail(operation, str(error).removeprefix(f"{spec.name}: "))
        if list(expected) != found:
            self._fail(
                operation,
                f"has results ({', '.join(map(str, found))}), by its rule "
                f"({', '.join(map(str, expected))})",
            )
        for value in (
            *operation.results,
            *(argument for region in operation.regions for argument in region.arguments),
        ):
            misfit = _misfit(value)
            if misfit:
                self._fail(operation, misfit)
        for region in operation.regions:
            if region.owner is not operation:
                self._fail(operation, "does not own its region")
            self._region(region)
        if spec.check is not None:
            try:
                spec.check(operation)
            except RuleError as error:
                self._fail(operation, str(error))
        if isinstance(operation, Call):
            self._call(operation)

    def _call(self, operation: Operation) -> None:
        name = operation.attribute("callee")
        callee = self.module.functions.get(name)
        if callee is None:
            self._fail(operation, f"calls @{name}, which the module does not have")
        if callee.kernel:
            self._fail(operation, f"calls the kernel @{name}")
        if [value.type for value in operation.operands] != [
            value.type for value in callee.arguments
        ]:
            self._fail(operation, f"calls @{name} with other argument types than it takes")
        if tuple(value.type for value in operation.results) != callee.result_types:
            self._fail(operation, f"calls @{name} for other results than it returns")

    def _check_uses(self, operation: Operation) -> None:
        """Fail if an operation reads what is not defined before it."""
        for operand in operation.operands:
            if operand not in self.visible:
                self._fail(
                    operation, f"reads a value of type {operand.type} that is not defined before it"
                )

    def _fail_end(self, region: Region, last: Operation | None) -> NoReturn:
        where = region.owner.name if region.owner is not None else "?"
        raise VerificationError(f"a region of {where} has no terminator", last)

    def _fail(self, operation: Operation, rule: str) -> NoReturn:
        where = f" at {operation.location}" if operation.location else ""
        raise VerificationError(
            f"{operation.name} in @{self.function.name}{where}: {rule}", operation
        )


def _misfit(value: Value) -> str:
    return value.layout.misfit(value.type) if value.layout is not None else ""
