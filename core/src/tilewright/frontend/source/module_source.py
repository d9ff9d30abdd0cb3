"""The source of whole modules: imports, the functions of regions and calls, and kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

# each registers its rows
from tilewright.frontend.source import (
    control_source,
    debug_source,
    elementwise_source,
    matmul_source,
    memory_source,
    region_source,
    shape_source,
    while_source,
)
from tilewright.frontend.source.expression_text import parameter_type_text, tuple_text
from tilewright.frontend.source.function_writer import SourceWriter
from tilewright.frontend.source.line_breaks import broken
from tilewright.frontend.source.operand_forms import exact
from tilewright.frontend.source.source_rows import SourceError
from tilewright.frontend.source.value_names import VariableNames, identifier
from tilewright.ir.core import Function, Module, Region, Value
from tilewright.ir.ops.control import Call
from tilewright.ir.types import TileType
from tilewright.recursion import deep_recursion

__all__ = ["source_of_kernels", "source_of_module"]

_ROWS = (
    control_source,
    debug_source,
    elementwise_source,
    matmul_source,
    memory_source,
    region_source,
    shape_source,
    while_source,
)
_IMPORTS = "import tilewright as tw\nimport tilewright.language as tl\n"


def source_of_module(module: Module, notes: Sequence[str] = ()) -> str:
    """Return a module as source of the language that compiles to the same code.

    The kernel has the parameters of the module's, by name. Facts of arguments, such as
    divisibility, are no part of the source: launches find them anew.

    Args:
        notes: lines for the docstring of the kernel.

    Raises:
        SourceError: an operation has no source.
    """
    return source_of_kernels([(module, notes)])


def source_of_kernels(
    kernels: Sequence[tuple[Module, Sequence[str]]],
    head: str = "",
    comment: Callable[[Sequence[str]], Sequence[str]] = lambda names: (),
) -> str:
    """Return the source of several modules, in order, as one text.

    Args:
        kernels: the modules, each with lines for the docstring of its kernel.
        head: the docstring of the text.
        comment: lines of a comment at its end, given the names of the kernels.

    Raises:
        SourceError: an operation has no source.
    """
    writer = SourceModule()
    names = [name for module, notes in kernels for name in writer.module(module, notes)]
    begin = f'"""{head}"""\n\n' if head else ""
    lines = comment(names)
    end = "\n\n" + "".join(f"# {line}".rstrip() + "\n" for line in lines) if lines else ""
    return f"{begin}{_IMPORTS}\n\n" + "\n\n\n".join(writer.functions) + f"\n{end}"


class SourceModule:
    """Writes functions, each before those that call it.

    Attributes:
        functions: their texts.
        parameters: names of the parameters of the function that is written.
    """

    def __init__(self) -> None:
        self.functions: list[str] = []
        self.parameters: frozenset[str] = frozenset()
        self._names = VariableNames(("tl", "tw"))
        self._regions: dict[str, str] = {}
        self._callees: dict[str, str] = {}
        self._constants: dict[str, str] = {}
        self._module = Module()

    @deep_recursion()
    def module(self, module: Module, notes: Sequence[str]) -> list[str]:
        """Write the kernels of a module, and what they call; return the kernels' names."""
        self._module, self._callees = module, {}
        kernels = [function for function in module.functions.values() if function.kernel]
        return [self._function(function, notes) for function in kernels]

    def captured(self, value: Value) -> SourceError:
        """Return the error for a value that the region of a reduction reads from outside."""
        return SourceError(
            f"%{value.name or '?'} of type {value.type} is read inside of a function that the "
            "source calls, which captures nothing"
        )

    # -- functions ---------------------------------------------------------------------------------

    def _function(self, function: Function, notes: Sequence[str] = ()) -> str:
        name = self._names.new(function.name)
        # a function that takes or returns tiles is compiled into its callers
        tiles = any(
            isinstance(type_, TileType)
            for type_ in (*(x.type for x in function.arguments), *function.result_types)
        )
        decorator = "@tw.jit" if function.kernel or tiles else "@tw.jit(noinline=True)"
        parameters = VariableNames((name,))
        names = [parameters.new(value.name or "x") for value in function.arguments]
        outer, self.parameters = self.parameters, frozenset(names)
        writer = SourceWriter(self, function.body, (*names, name))
        for value, parameter in zip(function.arguments, names, strict=True):
            writer.bind(value, parameter)
        if function.kernel:
            _docstring(writer, function, names, notes)
        writer.body(function.body)
        last = function.body.last
        if last is not None and last.operands:
            writer.settle(last)
            writer.line(f"return {tuple_text([exact(writer, x).text for x in last.operands])}")
        self.parameters = outer
        self._add(decorator, name, names, writer)
        return name

    def _add(
        self, decorator: str, name: str, parameters: Sequence[str], writer: SourceWriter
    ) -> None:
        head = broken(f"def {name}({', '.join(parameters)}):", 0)
        lines = writer.lines or ["    pass"]
        self.functions.append("\n".join([decorator, *head, *lines]))

    def callee(self, call: Call) -> str:
        """Return the name of the function that a call runs."""
        name = self._callees.get(call.callee)
        if name is None:
            name = self._callees[call.callee] = self._function(self._module.functions[call.callee])
        return name

    def constant(self, wanted: str, text: str) -> str:
        """Return the name of a constant of the file."""
        known = self._constants.get(text)
        if known is None:
            known = self._constants[text] = self._names.new(f"_{wanted}")
            self.functions.append(f"{known} = {text}")
        return known

    def function_of(self, region: Region, kind: str) -> str:
        """Return the name of a function that does what a region does; equal ones share it."""
        text = _text_of(region)
        known = self._regions.get(text)
        if known is not None:
            return known
        name = self._names.new(_region_name(region, kind))
        parameters = VariableNames((name,))
        names = [parameters.new(f"x{i}") for i in range(len(region.arguments))]
        if len(names) == 2:
            names = ["a", "b"]
        writer = SourceWriter(self, region, (*names, name))
        for value, parameter in zip(region.arguments, names, strict=True):
            writer.bind(value, parameter)
        writer.body(region)
        assert region.last is not None
        writer.settle(region.last)
        values = [exact(writer, x).text for x in region.last.operands]
        writer.line(f"return {tuple_text(values)}")
        self._regions[text] = name
        self._add("@tw.jit", name, names, writer)
        return name


def _region_name(region: Region, kind: str) -> str:
    """Return a name for the function of a region: the operation's, where it is one."""
    found = region_source.combination(region)
    return kind if found is None else f"_{identifier(found.name).strip('_')}"


def _text_of(region: Region) -> str:
    """Return a text that two regions share only if they compute the same."""
    numbers: dict[Value, int] = {}
    parts: list[str] = []

    def add(current: Region) -> None:
        for value in current.arguments:
            numbers[value] = len(numbers)
        parts.append(", ".join(str(value.type) for value in current.arguments))
        for operation in current:
            read = [str(numbers.get(x, id(x))) for x in operation.operands]
            types = [str(value.type) for value in operation.results]
            attributes = sorted((name, str(x)) for name, x in operation.attributes.items())
            parts.append(f"{operation.name} {read} {operation.segments} {types} {attributes}")
            for inner in operation.regions:
                add(inner)
            for value in operation.results:
                numbers[value] = len(numbers)

    add(region)
    return "\n".join(parts)


def _docstring(
    writer: SourceWriter, function: Function, names: Sequence[str], notes: Sequence[str]
) -> None:
    types = [
        f"{name}: {parameter_type_text(value.type)}"
        for name, value in zip(names, function.arguments, strict=True)
    ]
    lines = [*notes, *(["", "Parameters:", *(f"    {text}" for text in types)] if types else [])]
    if not lines:
        return
    first, *rest = lines if notes else lines[1:]
    writer.lines.append(f'    """{first}')
    writer.lines += [f"    {line}".rstrip() for line in rest]
    writer.lines.append('    """')
