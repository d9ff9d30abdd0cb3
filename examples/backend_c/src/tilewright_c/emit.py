"""Tile IR to C, one function a program of the grid. A scalar is a C variable, a tile a C array in row-major order, an operation on tiles a loop."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.errors import LoweringError
from tilewright.ir import Function, Operation, Region, Value
from tilewright.ir.types import FloatType, IntType, PointerType, TileType, Type, element_type, shape_of

CTYPES = {
    "i1": "_Bool", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t", "f32": "float", "f64": "double",
}  # fmt: skip
INFIX = {"add": "+", "sub": "-", "mul": "*", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>"}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
MATH = {
    "round_even": "rint",
    **{name: name for name in ["exp", "exp2", "log", "log2", "sin", "cos", "tanh", "erf", "sqrt", "floor", "ceil", "trunc", "copysign"]},
}


def emit_kernel(function: Function) -> str:
    """C source of a function ``NAME(x, y, z, grid_x, grid_y, grid_z, arguments...)`` that runs one program."""
    return "#include <math.h>\n#include <stdint.h>\n#include <string.h>\n" + _Emitter(function).run()


def c_type(type_: Type) -> str:
    element = element_type(type_)
    if not isinstance(element, PointerType) and str(element) not in CTYPES:
        raise LoweringError(f"the C backend does not have the type {element}; it has {', '.join(CTYPES)}")
    return CTYPES.get(str(element), "char *")


def literal(value: float, type_: Type) -> str:
    if isinstance(type_, FloatType):
        return "NAN" if math.isnan(value) else f"{'-' if value < 0 else ''}INFINITY" if math.isinf(value) else float(value).hex()
    unsigned = isinstance(type_, IntType) and not type_.signed
    return f"({c_type(type_)})({int(value) + (value < 0)}{'ULL' if unsigned else 'LL'} - {int(value < 0)})"


def strides_of(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


class _Emitter:
    def __init__(self, function: Function) -> None:
        self.function, self.lines, self.names = function, list[str](), dict[Value, str]()

    def run(self) -> str:
        parameters = [f"int {name}" for name in ("pid0", "pid1", "pid2", "grid0", "grid1", "grid2")]
        parameters += [f"{c_type(argument.type)} {self.name(argument)}" for argument in self.function.arguments]
        self.region(self.function.body)
        body = "\n".join("  " + line for line in self.lines)
        return f"void {self.function.name}({', '.join(parameters)}) {{\n{body}\n}}\n"

    def name(self, value: Value) -> str:
        return self.names.setdefault(value, f"v{len(self.names)}")

    def at(self, value: Value, index: str = "i") -> str:
        """The element of a value; a scalar is its own."""
        return f"{self.name(value)}[{index}]" if isinstance(value.type, TileType) else self.name(value)

    def declare(self, value: Value, name: str = "") -> None:
        size = f"[{value.type.numel}]" if isinstance(value.type, TileType) else ""
        self.lines.append(f"{c_type(value.type)} {name or self.name(value)}{size};")

    def each(self, like: Value, body: str) -> None:
        """Run ``body`` for every element ``i`` of a value."""
        tile = like.type
        self.lines.append(f"for (int i = 0; i < {tile.numel}; ++i) {{ {body} }}" if isinstance(tile, TileType) else body)

    def region(self, region: Region) -> None:
        for operation in region:
            method = getattr(self, f"op_{operation.name}", None)
            if method is not None:
                method(operation)
            elif not operation.spec.terminator:
                expression = self.expression(operation)
                self.declare(operation.result)
                self.each(operation.result, f"{self.at(operation.result)} = {expression};")

    def expression(self, operation: Operation) -> str:
        """Element ``i`` of the result of an operation without effects."""
        name, read = operation.name, [self.at(operand) for operand in operation.operands]
        element = element_type(operation.operands[0].type if operation.operands else operation.result.type)
        real = isinstance(element, FloatType)
        match name:
            case "constant":
                return literal(operation.attribute("value"), operation.result.type)
            case "program_id" | "num_programs":
                return f"{'pid' if name == 'program_id' else 'grid'}{operation.attribute('axis')}"
            case "arange":
                return f"{operation.attribute('start')} + i"
            case "splat" | "reshape" | "expand_dims" | "hint":
                return read[0]
            case "unsplat":
                return self.at(operation.operands[0], "0")
            case "broadcast":
                shape = shape_of(operation.operands[0].type)
                return self.strided(operation, [0 if extent == 1 else stride for extent, stride in zip(shape, strides_of(shape), strict=True)])
            case "permute":
                strides = strides_of(shape_of(operation.operands[0].type))
                return self.strided(operation, [strides[axis] for axis in operation.attribute("order")])
            case "div" | "rem":
                return f"fmod({read[0]}, {read[1]})" if real and name == "rem" else f"{read[0]} {'/' if name == 'div' else '%'} {read[1]}"
            case "cmp":
                return f"{read[0]} {COMPARE[operation.attribute('predicate')]} {read[1]}"
            case "min" | "max":
                nan = read[0] if operation.attribute("nan") == "propagate" else read[1]
                return f"({nan} != {nan} || {read[0]} {'<' if name == 'min' else '>'} {read[1]}) ? {read[0]} : {read[1]}"
            case "select":
                return f"{read[0]} ? {read[1]} : {read[2]}"
            case "neg":
                return f"-{read[0]}"
            case "abs":
                return f"fabs({read[0]})" if real else f"{read[0]} < 0 ? -{read[0]} : {read[0]}"
            case "fma":
                return f"fma{'f' if str(element) == 'f32' else ''}({', '.join(read)})"
            case "rsqrt":
                return f"1 / sqrt({read[0]})"
            case "cast" if operation.attribute("rounding") == "rtne":
                return f"({c_type(operation.result.type)}){read[0]}"
            case "addptr" if isinstance(element, PointerType):
                return f"{read[0]} + (int64_t){read[1]} * (int64_t)sizeof({c_type(element.pointee)})"
        if name in INFIX:
            return f"({c_type(element)})({read[0]} {INFIX[name]} {read[1]})"
        if name in MATH:
            return f"{MATH[name]}({', '.join(read)})"
        raise LoweringError(f"the C backend does not lower the operation {name} (at {operation.location})")

    def strided(self, operation: Operation, strides: Sequence[int]) -> str:
        shape = shape_of(operation.result.type)
        terms = [f"i / {step} % {extent} * {stride}" for step, extent, stride in zip(strides_of(shape), shape, strides, strict=True) if stride]
        return self.at(operation.operands[0], " + ".join(terms) or "0")

    def op_load(self, operation: Operation) -> None:
        result, mask, other = operation.result, operation.operand("mask"), operation.operand("other")
        read = f"memcpy(&{self.at(result)}, {self.at(operation.operands[0])}, sizeof({c_type(result.type)}));"
        if mask is not None:
            read = f"if ({self.at(mask)}) {read} else {self.at(result)} = {self.at(other) if other is not None else 0};"
        self.declare(result)
        self.each(result, read)

    def op_store(self, operation: Operation) -> None:
        pointer, value, mask = *operation.operands[:2], operation.operand("mask")
        write = f"memcpy({self.at(pointer)}, &{self.at(value)}, sizeof({c_type(value.type)}));"
        self.each(pointer, f"if ({self.at(mask)}) {write}" if mask is not None else write)

    def op_dot(self, operation: Operation) -> None:
        a, b, c = operation.operands
        (*batch, m, k), n, result = shape_of(a.type), shape_of(b.type)[-1], self.name(operation.result)
        self.declare(operation.result)
        self.each(c, f"{result}[i] = {self.at(c)};")
        loops = (("o", math.prod(batch)), ("i", m), ("l", k), ("j", n))
        self.lines.append(" ".join(f"for (int {name} = 0; {name} < {extent}; ++{name})" for name, extent in loops))
        product = f"{self.name(a)}[(o * {m} + i) * {k} + l] * {self.name(b)}[(o * {k} + l) * {n} + j]"
        self.lines.append(f"  {result}[(o * {m} + i) * {n} + j] += {product};")

    def op_reduce(self, operation: Operation) -> None:
        axis, shape, combine, count = operation.attribute("axis"), shape_of(operation.operands[0].type), operation.regions[0], len(operation.operands)
        inner, lefts, rights = math.prod(shape[axis + 1 :]), combine.arguments[:count], combine.arguments[count:]
        for result in operation.results:
            self.declare(result)
        self.lines.append(f"for (int o = 0; o < {math.prod(shape[:axis])}; ++o) for (int n = 0; n < {inner}; ++n) {{")
        for left, source in zip(lefts, operation.operands, strict=True):
            self.lines.append(f"{c_type(left.type)} {self.name(left)} = {self.name(source)}[o * {shape[axis] * inner} + n];")
        self.lines.append(f"for (int k = 1; k < {shape[axis]}; ++k) {{")
        for right, source in zip(rights, operation.operands, strict=True):
            self.lines.append(f"{c_type(right.type)} {self.name(right)} = {self.name(source)}[(o * {shape[axis]} + k) * {inner} + n];")
        self.region(combine)
        self.assign(lefts, combine)
        self.lines.append("}")
        for result, left in zip(operation.results, lefts, strict=True):
            self.lines.append(f"{self.at(result, f'o * {inner} + n')} = {self.name(left)};")
        self.lines.append("}")

    def op_if(self, operation: Operation) -> None:
        for result in operation.results:
            self.declare(result)
        for region, opening in zip(operation.regions, (f"if ({self.name(operation.operands[0])}) {{", "} else {"), strict=True):
            self.lines.append(opening)
            self.region(region)
            self.assign(operation.results, region)
        self.lines.append("}")

    def op_for(self, operation: Operation) -> None:
        body, (lower, upper, step) = operation.regions[0], (self.name(value) for value in operation.operands[:3])
        for result, init in zip(operation.results, operation.group("inits"), strict=True):
            self.declare(result)
            self.each(result, f"{self.at(result)} = {self.at(init)};")
        counter, *carried = body.arguments
        self.names.update({argument: self.name(result) for argument, result in zip(carried, operation.results, strict=True)})
        i = self.name(counter)
        self.lines.append(f"for ({c_type(counter.type)} {i} = {lower}; {i} < {upper}; {i} += {step}) {{")
        self.region(body)
        self.assign(operation.results, body)
        self.lines.append("}")

    def assign(self, targets: Sequence[Value], region: Region) -> None:
        """Give the values a region yields to ``targets``, all read before any is written."""
        values = region.terminator.group("values") if region.terminator is not None else []
        for index, value in enumerate(values):
            self.declare(value, f"y{index}")
            self.each(value, f"y{index}{'[i]' if isinstance(value.type, TileType) else ''} = {self.at(value)};")
        for index, target in enumerate(targets):
            self.each(target, f"{self.at(target)} = y{index}{'[i]' if isinstance(target.type, TileType) else ''};")
