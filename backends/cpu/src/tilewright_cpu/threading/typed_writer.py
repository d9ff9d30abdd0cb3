"""LLVM IR of native functions, written by typed values.

    JOB = Struct("Job", function="ptr", taken="i64")
    TAKE = Signature("take", "i64", job="ptr", count="i64")

    module = NativeModule()
    f = module.define(TAKE)
    job, count = f.parameters
    some, out = f.label("some"), f.label("out", "i64")
    f.branch(count > 0, some, out(0))
    f.place(some)
    f.jump(out(JOB.at(job)["taken"].fetch_add(count, Order.RELAXED)))
    f.place(out)
    f.ret(*out.values)

A :class:`Value` has Python's operators for unsigned integers; its Python number beside one is a
constant of its type. A :class:`Place` is memory that holds a type, with plain and atomic accesses.
A :class:`Label` is a basic block with parameters, for which jumps give arguments. What does not fit
raises :class:`TypeError`, and a memory order that an access cannot have :class:`ValueError`, before
LLVM sees the text.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.llvm.emission.writer import BasicBlock, FunctionWriter, ModuleWriter

#: LLVM type -> its size and natural alignment, in bytes.
SIZES: Final = {"i32": 4, "i64": 8, "ptr": 8}


class Order(enum.Enum):
    """Memory orders of atomic accesses, by LLVM's names."""

    RELAXED = "monotonic"
    ACQUIRE = "acquire"
    RELEASE = "release"
    ACQ_REL = "acq_rel"
    SEQ_CST = "seq_cst"


_OF_LOADS: Final = frozenset({Order.RELAXED, Order.ACQUIRE, Order.SEQ_CST})
_OF_STORES: Final = frozenset({Order.RELAXED, Order.RELEASE, Order.SEQ_CST})


class Value:
    """An SSA value or constant, of an LLVM type.

    Operators treat integers as unsigned. Comparisons return an ``i1``; ``==`` is :meth:`equals`.
    """

    __slots__ = ("code", "text", "type")

    def __init__(self, code: Code, type_: str, text: str) -> None:
        self.code, self.type, self.text = code, type_, text

    def __str__(self) -> str:
        return f"{self.type} {self.text}"

    def _apply(self, instruction: str, other: Value | int, result: str = "") -> Value:
        operand = self.code.operand(self.type, other)
        text = f"{instruction} {self.type} {self.text}, {operand.text}"
        return self.code.emit(result or self.type, text)

    def __add__(self, other: Value | int) -> Value:
        return self._apply("add", other)

    def __sub__(self, other: Value | int) -> Value:
        return self._apply("sub", other)

    def __mul__(self, other: Value | int) -> Value:
        return self._apply("mul", other)

    def __floordiv__(self, other: Value | int) -> Value:
        return self._apply("udiv", other)

    def __mod__(self, other: Value | int) -> Value:
        return self._apply("urem", other)

    def __lshift__(self, other: Value | int) -> Value:
        return self._apply("shl", other)

    def __rshift__(self, other: Value | int) -> Value:
        return self._apply("lshr", other)

    def __and__(self, other: Value | int) -> Value:
        return self._apply("and", other)

    def __or__(self, other: Value | int) -> Value:
        return self._apply("or", other)

    def __lt__(self, other: Value | int) -> Value:
        return self._apply("icmp ult", other, "i1")

    def __le__(self, other: Value | int) -> Value:
        return self._apply("icmp ule", other, "i1")

    def __gt__(self, other: Value | int) -> Value:
        return self._apply("icmp ugt", other, "i1")

    def __ge__(self, other: Value | int) -> Value:
        return self._apply("icmp uge", other, "i1")

    def equals(self, other: Value | int | None) -> Value:
        """Return whether the values are equal; ``None`` is the null pointer."""
        return self._apply("icmp eq", self.code.null if other is None else other, "i1")

    def differs(self, other: Value | int | None) -> Value:
        """Invert :meth:`equals`."""
        return self._apply("icmp ne", self.code.null if other is None else other, "i1")

    def less_signed(self, other: Value | int) -> Value:
        """Compare signed integers."""
        return self._apply("icmp slt", other, "i1")

    def widened(self, type_: str) -> Value:
        """Extend to a wider integer by zeros."""
        return self.code.emit(type_, f"zext {self} to {type_}")

    def narrowed(self, type_: str) -> Value:
        """Return the low bits, as a narrower integer."""
        return self.code.emit(type_, f"trunc {self} to {type_}")

    def as_integer(self) -> Value:
        """Return a pointer's address."""
        return self.code.emit("i64", f"ptrtoint {self} to i64")

    def as_pointer(self) -> Value:
        """Invert :meth:`as_integer`."""
        return self.code.emit("ptr", f"inttoptr {self} to ptr")


class Place:
    """Memory that holds a value of an LLVM type.

    Attributes:
        pointer: its address.
        type: of the value.
        align: of the address, in bytes.
    """

    __slots__ = ("align", "code", "pointer", "type")

    def __init__(self, code: Code, pointer: str, type_: str, align: int = 0) -> None:
        self.code, self.pointer, self.type, self.align = code, pointer, type_, align or SIZES[type_]

    @property
    def address(self) -> Value:
        return Value(self.code, "ptr", self.pointer)

    def load(self) -> Value:
        """Load without synchronization: no other thread may write meanwhile."""
        text = f"load {self.type}, ptr {self.pointer}, align {self.align}"
        return self.code.emit(self.type, text)

    def store(self, value: Value | int | None) -> None:
        """Store without synchronization: no other thread may access it meanwhile."""
        operand = self.code.operand(self.type, value)
        self.code.do(f"store {operand}, ptr {self.pointer}, align {self.align}")

    def atomic_load(self, order: Order) -> Value:
        _check(order, _OF_LOADS, "load")
        text = f"load atomic {self.type}, ptr {self.pointer} {order.value}, align {self.align}"
        return self.code.emit(self.type, text)

    def atomic_store(self, value: Value | int, order: Order) -> None:
        _check(order, _OF_STORES, "store")
        operand = self.code.operand(self.type, value)
        text = f"store atomic {operand}, ptr {self.pointer} {order.value}, align {self.align}"
        self.code.do(text)

    def _update(self, kind: str, value: Value | int, order: Order) -> Value:
        operand = self.code.operand(self.type, value)
        text = f"atomicrmw {kind} ptr {self.pointer}, {operand} {order.value}"
        return self.code.emit(self.type, text)

    def fetch_add(self, value: Value | int, order: Order) -> Value:
        """Add in one step; return the old value."""
        return self._update("add", value, order)

    def fetch_sub(self, value: Value | int, order: Order) -> Value:
        """Subtract in one step; return the old value."""
        return self._update("sub", value, order)

    def exchange(self, value: Value | int, order: Order) -> Value:
        """Store in one step; return the old value."""
        return self._update("xchg", value, order)

    def compare_exchange(
        self,
        expected: Value | int,
        value: Value | int,
        success: Order,
        failure: Order,
    ) -> Value:
        """Store in one step if ``expected`` is the old value; return whether it was."""
        _check(failure, _OF_LOADS, "failing compare-exchange")
        old, new = self.code.operand(self.type, expected), self.code.operand(self.type, value)
        orders = f"{success.value} {failure.value}, align {self.align}"
        pair = self.code.emit("", f"cmpxchg ptr {self.pointer}, {old}, {new} {orders}")
        return self.code.emit("i1", f"extractvalue {{ {self.type}, i1 }} {pair.text}, 1")


def _check(order: Order, allowed: frozenset[Order], what: str) -> None:
    if order not in allowed:
        raise ValueError(f"a {what} has no order {order.value}")


class Struct:
    """A structure type; its fields have names, and types or arrays such as ``[7 x i64]``."""

    def __init__(self, name: str, **fields: str) -> None:
        self.name, self.fields = f"%{name}", fields
        self._index = {field: index for index, field in enumerate(fields)}

    @property
    def definition(self) -> str:
        return f"{self.name} = type {{ {', '.join(self.fields.values())} }}"

    def at(self, pointer: Value) -> Record:
        """The structure at an address."""
        return Record(self, pointer)

    def index_of(self, field: str) -> int:
        if field not in self._index:
            raise TypeError(f"{self.name} has no field {field!r}; it has {', '.join(self.fields)}")
        return self._index[field]


class Record:
    """A structure in memory; ``record["field"]`` is the place of a field."""

    def __init__(self, struct: Struct, pointer: Value) -> None:
        self.struct, self.pointer = struct, pointer

    def __getitem__(self, field: str) -> Place:
        struct, pointer, index = self.struct, self.pointer, self.struct.index_of(field)
        code, address = pointer.code, pointer.text
        step = f"{struct.name}, ptr {address}, i64 0, i32 {index}"
        if index and address.startswith("@"):
            address = f"getelementptr ({step})"
        elif index:
            address = code.emit("ptr", f"getelementptr {step}").text
        return Place(code, address, struct.fields[field])


class Global:
    """A variable of the module.

    Attributes:
        type: of its value; or the name of a :class:`Struct` or an array.
        initial: the constant that it begins with.
        internal: not visible to other modules.
        constant: never written.
    """

    def __init__(
        self,
        name: str,
        type_: str,
        initial: str | int = "zeroinitializer",
        *,
        internal: bool = False,
        constant: bool = False,
        align: int = 0,
    ) -> None:
        self.name, self.type, self.align = f"@{name}", type_, align
        linkage = ("internal " if internal else "") + ("constant" if constant else "global")
        aligned = f", align {align}" if align else ""
        self.definition = f"{self.name} = {linkage} {type_} {initial}{aligned}"

    def address(self, code: Code) -> Value:
        return Value(code, "ptr", self.name)

    def place(self, code: Code) -> Place:
        return Place(code, self.name, self.type, self.align)


@dataclass(frozen=True, init=False)
class Signature:
    """A function's name and types.

    Attributes:
        parameters: (name, type) of each.
        internal: not visible to other modules.
        inlined: LLVM may inline it.
        variadic: it takes more arguments than these, as C's ``...``.
    """

    name: str
    result: str
    parameters: tuple[tuple[str, str], ...]
    internal: bool
    inlined: bool
    variadic: bool

    def __init__(
        self,
        name: str,
        result: str = "void",
        /,
        *,
        internal: bool = False,
        inlined: bool = True,
        variadic: bool = False,
        **parameters: str,
    ) -> None:
        given = (name, result, tuple(parameters.items()), internal, inlined, variadic)
        for field, value in zip(self.__dataclass_fields__, given, strict=True):
            object.__setattr__(self, field, value)

    @property
    def types(self) -> list[str]:
        return [type_ for _, type_ in self.parameters]


class Jump:
    """A label with arguments for its parameters."""

    __slots__ = ("arguments", "label")

    def __init__(self, label: Label, arguments: Sequence[Value]) -> None:
        self.label, self.arguments = label, arguments


class Label:
    """A basic block; each of its parameters is a phi of what the jumps to it give.

    Attributes:
        values: the parameters.
    """

    __slots__ = ("block", "code", "incoming", "values")

    def __init__(self, code: Code, hint: str, types: Sequence[str]) -> None:
        self.code, self.block = code, code.writer.new_block(hint)
        self.values = [Value(code, type_, code.writer.fresh(hint)) for type_ in types]
        #: (arguments, the block that jumps)
        self.incoming: list[tuple[Sequence[Value], BasicBlock]] = []

    def __call__(self, *arguments: Value | int | bool | None) -> Jump:
        if len(arguments) != len(self.values):
            wanted, given = len(self.values), len(arguments)
            raise TypeError(f"block {self.block.label} has {wanted} parameters, not {given}")
        pairs = zip(self.values, arguments, strict=True)
        return Jump(self, [self.code.operand(value.type, given) for value, given in pairs])


class Code:
    """Writes one function.

    Attributes:
        parameters: the function's.
        null: the null pointer.
    """

    def __init__(self, writer: FunctionWriter, signature: Signature) -> None:
        self.writer, self.signature = writer, signature
        self.parameters = [Value(self, type_, f"%{name}") for name, type_ in signature.parameters]
        self.null = Value(self, "ptr", "null")
        self._labels: list[Label] = []

    # ---- instructions

    def emit(self, type_: str, text: str) -> Value:
        """Append an instruction with a result of a type."""
        return Value(self, type_, self.writer.emit(text))

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self.writer.do(text)

    def operand(self, type_: str, value: Value | int | bool | None) -> Value:
        """A value, or a Python number as a constant, of the type that an operand must have."""
        if value is None:
            value = self.null
        if not isinstance(value, Value):
            text = str(value).lower() if type_ == "i1" else str(int(value))
            value = Value(self, "i1" if isinstance(value, bool) else type_, text)
        if value.type != type_:
            raise TypeError(f"{value} is no {type_}, in @{self.signature.name}")
        return value

    def choose(self, condition: Value, yes: Value | int, no: Value | int) -> Value:
        """``yes`` where an ``i1`` holds, else ``no``; one of them is a value."""
        type_ = next(value.type for value in (yes, no) if isinstance(value, Value))
        first, second = self.operand(type_, yes), self.operand(type_, no)
        return self.emit(type_, f"select {self.operand('i1', condition)}, {first}, {second}")

    def minimum(self, a: Value, b: Value | int) -> Value:
        return self.call(UMIN, a, b)

    def maximum(self, a: Value, b: Value | int) -> Value:
        return self.call(UMAX, a, b)

    def fence(self, order: Order) -> None:
        self.do(f"fence {order.value}")

    # ---- memory

    def element(self, type_: str, pointer: Value, index: Value | int) -> Value:
        """The address of an element of an array."""
        return self.emit("ptr", f"getelementptr {type_}, {pointer}, {self.operand('i64', index)}")

    def word(self, pointer: Value, index: int = 0, type_: str = "i64") -> Place:
        """The place of a word behind an address."""
        address = self.element(type_, pointer, index) if index else pointer
        return Place(self, address.text, type_)

    def stack(self, type_: str, align: int, count: Value | None = None) -> Value:
        """Stack space of a type; ``count`` times that, where it is given."""
        times = f", {count}" if count is not None else ""
        return self.emit("ptr", f"alloca {type_}{times}, align {align}")

    # ---- calls

    def call(self, callee: Signature, *arguments: Value | int | None) -> Value:
        """Call a function of the module, or declare it; the value means nothing for void."""
        types = callee.types
        if len(arguments) != len(types) and not (callee.variadic and len(arguments) > len(types)):
            raise TypeError(f"@{callee.name} takes {len(types)} arguments, not {len(arguments)}")
        more = arguments[len(types) :]
        given = [self.operand(type_, value) for type_, value in zip(types, arguments, strict=False)]
        given += [one if isinstance(one, Value) else self.operand("ptr", one) for one in more]
        shown = f"{callee.result} ({', '.join(types)}, ...)" if callee.variadic else callee.result
        if not callee.variadic:
            self.writer.module.declare(callee.name, callee.result, types)
        return self._call(callee.result, f"call {shown} @{callee.name}", given)

    def call_address(self, address: Value, result: str, *arguments: Value) -> Value:
        """Call the function at an address."""
        return self._call(result, f"call {result} {address.text}", arguments)

    def _call(self, result: str, head: str, arguments: Sequence[Value]) -> Value:
        text = f"{head}({', '.join(map(str, arguments))})"
        if result == "void":
            self.do(text)
            return Value(self, "void", "")
        return self.emit(result, text)

    # ---- blocks

    def label(self, hint: str, *types: str) -> Label:
        """A block that is not placed yet, with parameters of these types."""
        found = Label(self, hint, types)
        self._labels.append(found)
        return found

    def place(self, label: Label) -> Sequence[Value]:
        """Go on writing in a block; its parameters."""
        self.writer.place(label.block)
        return label.values

    def jump(self, target: Label | Jump) -> None:
        self.writer.branch(self._arrive(target))

    def branch(self, condition: Value, then: Label | Jump, otherwise: Label | Jump) -> None:
        holds = self.operand("i1", condition)
        self.writer.branch_if(holds.text, self._arrive(then), self._arrive(otherwise))

    def _arrive(self, target: Label | Jump) -> BasicBlock:
        jump = target() if isinstance(target, Label) else target
        jump.label.incoming.append((jump.arguments, self.writer.current))
        return jump.label.block

    def ret(self, value: Value | int | bool | None = None) -> None:
        """Return from the function; without a value from one that returns void."""
        result = self.signature.result
        if result == "void":
            if value is not None:
                raise TypeError(f"@{self.signature.name} returns nothing")
            self.writer.ret()
        else:
            self.writer.ret(str(self.operand(result, value)))

    def finish(self) -> None:
        """Write the phis of all blocks."""
        for label in self._labels:
            phis = []
            for position, value in enumerate(label.values):
                incoming = ((given[position], block) for given, block in label.incoming)
                each = (f"[ {given.text}, %{block.label} ]" for given, block in incoming)
                phis.append(f"  {value.text} = phi {value.type} {', '.join(each)}")
            label.block.lines[:0] = phis
        self._labels.clear()


UMIN: Final = Signature("llvm.umin.i64", "i64", a="i64", b="i64")
UMAX: Final = Signature("llvm.umax.i64", "i64", a="i64", b="i64")


class NativeModule:
    """A module of such functions."""

    def __init__(self) -> None:
        self._module = ModuleWriter()
        self._codes: list[Code] = []
        self._head: list[str] = []

    def add(self, *definitions: Struct | Global) -> None:
        """Define structures and variables."""
        self._head += [one.definition for one in definitions]

    def declare(self, *signatures: Signature) -> None:
        """Declare functions that take more arguments than they say."""
        for one in signatures:
            self._module.declare(one.name, one.result, [*one.types, *["..."] * one.variadic])

    def define(self, signature: Signature) -> Code:
        """Begin a function."""
        writer = self._module.function(
            signature.name,
            [(type_, name) for name, type_ in signature.parameters],
            signature.result,
            linkage="internal" if signature.internal else "",
            attributes="nounwind" if signature.inlined else "nounwind noinline",
        )
        code = Code(writer, signature)
        self._codes.append(code)
        return code

    def text(self) -> str:
        """The module."""
        for code in self._codes:
            code.finish()
        return "\n".join([*self._head, self._module.text()])
