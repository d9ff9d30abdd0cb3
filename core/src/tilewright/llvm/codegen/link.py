"""Linking of object code into this process, with LLVM's LLJIT.

Objects see the symbols of the process (the C library, whatever extension modules export) and the
addresses given as imports.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping

import llvmlite.binding as llvm

from tilewright.errors import LoweringError
from tilewright.llvm.codegen.compile import host_target
from tilewright.llvm.codegen.interrupts import let_abandoned_end, uninterrupted

_names = itertools.count()


@functools.cache
def _jit() -> llvm.orcjit.LLJIT:
    triple, cpu, features = host_target()
    # The engine takes ownership of its target machine, so it cannot share the cached one.
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=2, codemodel="small", reloc="pic", jit=True
    )
    # JITLink keeps the sections of an object together, whose distances are numbers of 32 bits;
    # LLVM's older linker takes memory for each, and ends the process where it was given some that
    # is too far away. For Windows' objects it is the one that LLVM has ready.
    return llvm.create_lljit_compiler(machine, use_jit_link="windows" not in triple)


class _Mapped(llvm.orcjit.ResourceTracker):  # type: ignore[misc]  # llvmlite has no types
    """Code in the process, whose removal, by whatever destructor, no interrupt cuts."""

    close = uninterrupted(llvm.orcjit.ResourceTracker.close)


class LoadedObject:
    """Object code mapped into the process.

    The code is unmapped when this is collected: keep it as long as any address taken from it.
    """

    __slots__ = ("_addresses", "_tracker")

    def __init__(self, tracker: llvm.orcjit.ResourceTracker, symbols: Iterable[str]) -> None:
        tracker.__class__ = _Mapped
        self._tracker = tracker
        self._addresses: dict[str, int] = {symbol: tracker[symbol] for symbol in symbols}

    def address(self, symbol: str) -> int:
        """The address of one of the symbols asked for when the object was loaded."""
        return self._addresses[symbol]


def load_object(
    binary: bytes, symbols: Iterable[str], imports: Mapping[str, int] | None = None
) -> LoadedObject:
    """Link an object into the process.

    Args:
        binary: an object file for this machine, position independent.
        symbols: the symbols whose addresses are wanted.
        imports: addresses of symbols the object refers to and the process does not export.

    Raises:
        LoweringError: the object is damaged, or a symbol is missing.
    """
    let_abandoned_end()
    return _load(binary, tuple(symbols), imports)


@uninterrupted
def _load(
    binary: bytes, symbols: tuple[str, ...], imports: Mapping[str, int] | None
) -> LoadedObject:
    builder = llvm.JITLibraryBuilder().add_object_img(binary).add_current_process()
    for symbol in symbols:
        builder.export_symbol(symbol)
    for symbol, address in (imports or {}).items():
        builder.import_symbol(symbol, address)
    try:
        tracker = builder.link(_jit(), f"tilewright{next(_names)}")
    except RuntimeError as error:
        raise LoweringError(
            f"cannot link object code with symbols {', '.join(symbols)}: {str(error).strip()}"
        ) from None
    return LoadedObject(tracker, symbols)
