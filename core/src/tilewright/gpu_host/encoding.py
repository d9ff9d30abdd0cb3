"""Generated machine code that encodes a kernel's opaque structures at launch.

Each kernel with opaque structures has one function, which its native launcher calls.

    i1 @encode(ptr words, ptr structures, ptr addresses, ptr functions)

``words`` are those of all arguments, one behind the other. The structures are written to
``structures``, in the places of :func:`places_of`, and their addresses to ``addresses``.
``functions`` has the addresses of the driver's functions, one for each structure. It returns false
where a condition does not hold, an expression has no value or the driver reports an error; the
Python launcher then raises the precise error.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from tilewright.gpu_host.arguments import places_of
from tilewright.gpu_host.expressions import Emitter
from tilewright.gpu_host.table import (
    STRUCTURE,
    IntegerArrayOperand,
    IntegerOperand,
    NativeCall,
    OpaqueArgument,
    Precondition,
)
from tilewright.llvm.codegen.link import LoadedObject
from tilewright.llvm.emission.writer import FunctionWriter, ModuleWriter
from tilewright.runtime.storage.host_code import load_host_code


def encoder_code(
    kernel: str, opaque: Sequence[OpaqueArgument], first_words: Sequence[int]
) -> LoadedObject | None:
    """Compile the encoder of a kernel; None where a structure has no native call.

    Args:
        first_words: for each argument, the index of its first word among all words.
    """
    calls = [each.native for each in opaque]
    return (
        None
        if None in calls
        else load_host_code(f"encoder of {kernel}", encoder_ir(opaque, first_words), ("encode",))
    )


def functions_of(library: Any, opaque: Sequence[OpaqueArgument]) -> Any:
    """Return the array of the driver's function addresses; None where the driver lacks one."""
    names = [each.native.function for each in opaque if each.native is not None]
    found = [getattr(library, name) for name in names if hasattr(library, name)]
    if len(found) < len(opaque):
        return None
    return (ctypes.c_void_p * len(found))(
        *(ctypes.cast(function, ctypes.c_void_p).value for function in found)
    )


def encoder_ir(opaque: Sequence[OpaqueArgument], first_words: Sequence[int]) -> str:
    """Return the LLVM IR of the encoder."""
    module = ModuleWriter("nounwind")
    w = module.function(
        "encode",
        [("ptr", name) for name in ("words", "structures", "addresses", "functions")],
        "i1",
    )
    emitter = Emitter(
        w,
        lambda argument, index: w.load(
            "i64", w.gep("i64", "%words", first_words[argument] + index), 8
        ),
    )
    conditions = [condition for each in opaque for condition in each.conditions]
    held = [
        _holds(w, condition, emitter.emit(condition.value))
        for condition in dict.fromkeys(conditions)
    ]
    operands = [_operands(w, emitter, each.native) for each in opaque if each.native is not None]
    # one value reports any error, and then nothing is called
    refused = emitter.fault()
    for condition in held:
        refused = w.emit(f"or i1 {refused}, {w.emit(f'xor i1 {condition}, true')}")
    failed = w.new_block("failed")
    _need(w, w.emit(f"xor i1 {refused}, true"), failed)
    for number, (given, place) in enumerate(zip(operands, places_of(opaque), strict=False)):
        structure = w.gep("i8", "%structures", place)
        w.store("ptr", structure, w.gep("ptr", "%addresses", number), 8)
        function = w.load("ptr", w.gep("ptr", "%functions", number), 8)
        listed = ", ".join(f"ptr {structure}" if text == STRUCTURE else text for text in given)
        status = w.emit(f"call i32 {function}({listed})")
        _need(w, w.emit(f"icmp eq i32 {status}, 0"), failed)
    w.ret("i1 true")
    w.place(failed)
    w.ret("i1 false")
    return module.text()


def _need(w: FunctionWriter, condition: str, failed: Any) -> None:
    fine = w.new_block("fine")
    w.branch_if(condition, fine, failed, likely=True)
    w.place(fine)


def _holds(w: FunctionWriter, condition: Precondition, value: str) -> str:
    low, high = (
        w.emit(f"icmp sge i64 {value}, {condition.minimum}"),
        w.emit(f"icmp sle i64 {value}, {condition.maximum}"),
    )
    rest = w.emit(f"srem i64 {value}, {condition.divisor}")
    return w.emit(f"and i1 {w.emit(f'and i1 {low}, {high}')}, {w.emit(f'icmp eq i64 {rest}, 0')}")


def _operands(w: FunctionWriter, emitter: Emitter, call: NativeCall) -> list[str]:
    """Emit the operands of a call and format them with their types.

    The structure keeps its placeholder, which the caller replaces.
    """
    listed = []
    for operand in call.operands:
        if isinstance(operand, IntegerOperand):
            listed.append(f"{operand.type} {_narrow(w, operand.type, emitter.emit(operand.value))}")
        elif isinstance(operand, IntegerArrayOperand):
            memory = w.alloca(operand.type, len(operand.values), 8)
            for position, value in enumerate(operand.values):
                w.store(
                    operand.type,
                    _narrow(w, operand.type, emitter.emit(value)),
                    w.gep(operand.type, memory, position),
                    4,
                )
            listed.append(f"ptr {memory}")
        else:
            listed.append(operand)
    return listed


def _narrow(w: FunctionWriter, type_: str, value: str) -> str:
    return (
        value
        if type_ == "i64" or not value.startswith("%")
        else w.emit(f"trunc i64 {value} to {type_}")
    )
