"""Loads and stores of global memory: one predicated instruction for up to 16 bytes.

They carry cache operators and eviction hints.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.types import Type
from tilewright.llvm.assembly.inline_assembly import BITS
from tilewright.llvm.emission.registers import register_type, storage_size, storage_type
from tilewright.llvm.emission.writer import FunctionWriter
from tilewright.simt.target.capabilities.global_memory import Access
from tilewright_nvidia.codegen.atomics import Atomics
from tilewright_nvidia.codegen.inline_ptx import call_asm, listed
from tilewright_nvidia.codegen.kernel_state import kernel_state, words_in

_PRIORITIES = {"first": "evict_first", "last": "evict_last"}


def machine_words(element: Type, count: int) -> tuple[str, str, int]:
    """Return (LLVM register type, PTX memory type, registers) to access ``count`` elements."""
    size = storage_size(element) * count
    if storage_size(element) == 8:
        return "i64", "b64", count
    if size >= 4:
        return "i32", "b32", size // 4
    return "i16", f"b{8 * size}", 1


class PtxGlobalMemory(Atomics):
    """Accesses of global memory."""

    def load(
        self,
        w: FunctionWriter,
        pointer: str,
        element: Type,
        count: int,
        predicate: str | None,
        other: Sequence[str] | None,
        access: Access,
    ) -> list[str]:
        register, memory, number = machine_words(element, count)
        mnemonic, extra = self._mnemonic(w, "ld", access, memory, number)
        operands = [("ptr", pointer), *extra]
        guard = ""
        if predicate is not None:
            guard = f"@${number + len(operands)} "
            operands.append(("i1", predicate))
        policy = f", ${number + 1}" if extra else ""
        text = f"{guard}{mnemonic} {listed(0, number)}, [${number}]{policy};"
        initial: list[str] = []
        if predicate is not None:
            unset = ["0" if kernel_state(w).frugal else "undef"] * number
            initial = unset if other is None else self._pack(w, other, element, register, number)
        found = call_asm(w, text, [register] * number, operands, initial=initial)
        return self._unpack(w, found, element, register, count)

    def store(
        self,
        w: FunctionWriter,
        pointer: str,
        element: Type,
        values: Sequence[str],
        predicate: str | None,
        access: Access,
    ) -> None:
        register, memory, number = machine_words(element, len(values))
        mnemonic, extra = self._mnemonic(w, "st", access, memory, number)
        operands = [
            ("ptr", pointer),
            *((register, name) for name in self._pack(w, values, element, register, number)),
            *extra,
        ]
        policy = f", ${number + 1}" if extra else ""
        guard = ""
        if predicate is not None:
            guard = f"@${len(operands)} "
            operands.append(("i1", predicate))
        call_asm(w, f"{guard}{mnemonic} [$0], {listed(1, number)}{policy};", (), operands)

    def _mnemonic(
        self, w: FunctionWriter, name: str, access: Access, memory: str, number: int
    ) -> tuple[str, list[tuple[str, str]]]:
        """Return the mnemonic and the cache policy operand, if there is one."""
        vector = f".v{number}" if number > 1 else ""
        if access.volatile:
            return f"{name}.volatile.global{vector}.{memory}", []
        parts, extra = f"{name}.global", []
        priority = _PRIORITIES.get(access.eviction, "")
        if access.cache:
            parts += f".{access.cache}"
        elif priority:
            parts += f".L1::{priority}"
        if priority and self._row.capability >= 80:
            parts += ".L2::cache_hint"
            extra.append(("i64", self._policy(w, priority)))
        return f"{parts}{vector}.{memory}", extra

    def _policy(self, w: FunctionWriter, priority: str) -> str:
        """Return the L2 cache policy, created once at the kernel's entry."""
        key, policies = (w, priority), kernel_state(w).policies
        if key not in policies:
            with w.inserting(w.entry):
                (policies[key],) = call_asm(
                    w,
                    f"createpolicy.fractional.L2::{priority}.b64 $0, 1.0;",
                    ["i64"],
                    [],
                    effects=False,
                )
        return policies[key]

    def _unpack(
        self, w: FunctionWriter, found: list[str], element: Type, register: str, count: int
    ) -> list[str]:
        type_ = storage_type(element)
        if BITS[type_] == 8 and count == 1:
            names = [w.emit(f"trunc i16 {found[0]} to i8")]
        else:
            names = [
                name for word in found for name in words_in(w).unpack(w, word, register, type_)
            ]
        if register_type(element) == "i1":
            return [w.emit(f"icmp ne i8 {name}, 0") for name in names]
        return names

    def _pack(
        self, w: FunctionWriter, values: Sequence[str], element: Type, register: str, number: int
    ) -> list[str]:
        type_ = storage_type(element)
        if register_type(element) == "i1":
            values = [_byte(w, value) for value in values]
        if BITS[type_] == 8 and len(values) == 1:
            return [w.emit(f"zext i8 {values[0]} to i16")]
        each = len(values) // number
        return [
            words_in(w).pack(w, values[i * each : (i + 1) * each], type_, register)
            for i in range(number)
        ]


def _byte(w: FunctionWriter, value: str) -> str:
    if value[0] != "%":
        return "1" if value in ("true", "1") else "0"
    return w.emit(f"zext i1 {value} to i8")
