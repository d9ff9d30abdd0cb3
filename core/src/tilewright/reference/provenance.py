"""The arguments that pointers come from, and whether programs must run one after the other.

Running all programs in step is one of the orders the language allows, whatever they read and write,
as long as no program waits for another: then only one that runs to its end first can be waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tilewright.ir.core import Function, Module, Operation, Region, Value
from tilewright.ir.ops.arithmetic import Addptr, Bitcast, Constant, Select
from tilewright.ir.ops.control import Call, Condition, For, If, Map, Reduce, Scan, While
from tilewright.ir.ops.debug import Print
from tilewright.ir.ops.memory import ATOMICS, Load, MakeDescriptor
from tilewright.ir.ops.shape import Gather
from tilewright.ir.table import Effect, Trait
from tilewright.ir.types import DescriptorType, PointerType, element_type

#: Positions of kernel arguments; None is "any memory".
Roots = frozenset[int] | None

_NONE: frozenset[int] = frozenset()
#: Operations whose results come from where their operands do, beside those that move or forward
#: elements.
_FOLLOWS = (Addptr, Gather, MakeDescriptor, Select)


def _is_address(value: Value) -> bool:
    return isinstance(value.type, DescriptorType) or isinstance(
        element_type(value.type), PointerType
    )


def _union(a: Roots, b: Roots) -> Roots:
    return None if a is None or b is None else a | b


class Provenance:
    """The arguments that each pointer and descriptor of a module's kernel may come from.

    It is a forward analysis to a fixed point.
    """

    def __init__(self, module: Module) -> None:
        self.module = module
        self._roots: dict[Value, Roots] = {}
        self._changed = True
        kernel = module.kernel
        for function in module.functions.values():
            for index, argument in enumerate(function.arguments):
                if _is_address(argument):
                    self._roots[argument] = frozenset((index,)) if function is kernel else None
        while self._changed:
            self._changed = False
            for function in module.functions.values():
                for operation in function.walk():
                    self._visit(operation)

    def of(self, value: Value) -> Roots:
        """The arguments a pointer or descriptor may come from. The null pointer comes from none."""
        return self._roots.get(value, _NONE)

    def only(self, value: Value) -> int | None:
        """The one argument a pointer or descriptor comes from, where it is one."""
        roots = self.of(value)
        return next(iter(roots)) if roots is not None and len(roots) == 1 else None

    def _join(self, value: Value, roots: Roots) -> None:
        if not _is_address(value):
            return
        old = self._roots.get(value, _NONE)
        new = _union(old, roots)
        if new != old or value not in self._roots:
            self._roots[value] = new
            self._changed = True

    def _flow(self, sources: Iterable[Value], targets: Iterable[Value]) -> None:
        for source, target in zip(sources, targets, strict=True):
            if _is_address(target):
                self._join(target, self.of(source))

    def _visit(self, operation: Operation) -> None:
        if isinstance(operation, For):
            body = operation.body
            for values in (operation.inits, _handed_on(body)):
                self._flow(values, body.arguments[1:])
                self._flow(values, operation.results)
        elif isinstance(operation, While):
            before, after = operation.before, operation.after
            forwarded = _handed_on(before)
            self._flow(operation.inits, before.arguments)
            self._flow(_handed_on(after), before.arguments)
            self._flow(forwarded, after.arguments)
            self._flow(forwarded, operation.results)
        elif isinstance(operation, If):
            for region in operation.regions:
                self._flow(_handed_on(region), operation.results)
        elif any(_is_address(result) for result in operation.results):
            self._follow(operation)
        if isinstance(operation, Map | Reduce | Scan):
            for argument in operation.regions[0].arguments:
                self._join(argument, None)

    def _follow(self, operation: Operation) -> None:
        roots: Roots = _NONE
        copies = isinstance(operation, Bitcast) and _is_address(operation.x)
        if (
            operation.spec.forwards
            or Trait.SHAPE in operation.spec.traits
            or isinstance(operation, _FOLLOWS)
            or copies
        ):
            for operand in operation.operands:
                if _is_address(operand):
                    roots = _union(roots, self.of(operand))
        elif not isinstance(operation, Constant):
            roots = None
        for result in operation.results:
            self._join(result, roots)


def _handed_on(region: Region) -> list[Value]:
    """The values that a region ends with."""
    last = region.terminator
    assert last is not None
    return last.values if isinstance(last, Condition) else last.operands


@dataclass(frozen=True, slots=True)
class Order:
    """Conditions on the order of programs.

    ``sequential`` asks for one after the other in any case; otherwise they must run so if a loop
    may wait for a write: if ``awaited`` and ``written`` (arguments) share memory.
    """

    sequential: bool
    awaited: Roots
    written: Roots


def order_of(module: Module) -> Order:
    """Return the constraints on the order of programs, statically and conservatively.

    A ``while`` loop with an atomic or a volatile load may wait for another program, and so may one
    that loads memory that the module writes. Prints come out in the order of programs only if these
    run in it.
    """
    loops = [operation for operation in module.walk() if isinstance(operation, While)]
    reached = [inner for loop in loops for inner in _reached(module, loop)]
    waits = any(
        isinstance(inner, ATOMICS) or (isinstance(inner, Load) and inner.volatile)
        for inner in reached
    )
    if waits or any(isinstance(operation, Print) for operation in module.walk()):
        return Order(True, _NONE, _NONE)
    reads = [
        inner
        for inner in reached
        if inner.spec.effects & Effect.READ and not isinstance(inner, Call)
    ]
    if not reads:
        return Order(False, _NONE, _NONE)
    provenance = Provenance(module)
    writes = [
        operation
        for operation in module.walk()
        if operation.spec.effects & Effect.WRITE and not isinstance(operation, Call)
    ]
    return Order(False, _all_roots(provenance, reads), _all_roots(provenance, writes))


def _all_roots(provenance: Provenance, accesses: Iterable[Operation]) -> Roots:
    """All arguments that some accesses may touch."""
    roots: Roots = _NONE
    for operation in accesses:
        address, *_ = operation.operands
        roots = _union(roots, provenance.of(address))
    return roots


def _reached(module: Module, operation: Operation) -> Iterator[Operation]:
    """An operation, what its regions hold, and the bodies of the functions called there."""
    seen: set[Function] = set()
    pending = [operation]
    while pending:
        for inner in pending.pop().walk():
            yield inner
            if isinstance(inner, Call):
                callee = module.functions[inner.callee]
                if callee not in seen:
                    seen.add(callee)
                    pending.extend(callee.body)


def loads_pointers(module: Module) -> bool:
    """Return whether the kernel may use addresses from memory or made of integers."""
    return any(
        any(isinstance(element_type(result.type), PointerType) for result in operation.results)
        and (
            operation.spec.effects & Effect.READ
            or (isinstance(operation, Bitcast) and not _is_address(operation.x))
        )
        for operation in module.walk()
        if not isinstance(operation, Call)
    )


def synchronizes(module: Module) -> bool:
    """Return whether programs may order their accesses among one another.

    They do by atomics that are not relaxed or by volatile loads.
    """
    return any(
        (isinstance(operation, ATOMICS) and operation.order != "relaxed")
        or (isinstance(operation, Load) and operation.volatile)
        for operation in module.walk()
    )
