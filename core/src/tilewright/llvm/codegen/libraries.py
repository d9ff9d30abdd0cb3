"""Bitcode libraries, whose called functions are linked into a program's LLVM IR.

The functions of a library that are called, and what they call in turn, are linked in and are no
symbols of their own any more; the rest of the library is dropped. Variables that are used keep
their names, so that a host finds them in the loaded code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import llvmlite.binding as llvm

from tilewright.errors import LoweringError
from tilewright.llvm.codegen.compile import parse, run_passes, target_machine

#: After these nothing is left of a library but what is called. Before its functions are put into
#: their callers, calls and callees have to agree.
_PASSES: Final = ("always_inliner", "global_dead_code_eliminate")


#: Linkages of what no other module sees, or what LLVM puts together by itself.
_NOT_EXPORTED: Final = (
    llvm.Linkage.internal,
    llvm.Linkage.private,
    llvm.Linkage.appending,
    llvm.Linkage.available_externally,
)


def paths_of(given: Any) -> dict[str, Path]:
    """Return the files of the launch option ``extern_libs``.

    The option is a mapping of names to paths, or pairs of them; None stands for none.

    Raises:
        LoweringError: it is neither.
    """
    pairs = given.items() if isinstance(given, Mapping) else given or ()
    try:
        return {str(name): Path(path) for name, path in pairs}
    except (TypeError, ValueError):
        raise LoweringError(
            f"extern_libs must map names to paths of bitcode files, not be {given!r}"
        ) from None


class Libraries:
    """The bitcode libraries that are given to a compilation.

    Args:
        paths: name -> file.
        triple: what code is generated for.

    Raises:
        LoweringError: a file cannot be read, is no bitcode, or is for another machine.
    """

    def __init__(self, paths: Mapping[str, Path], triple: str) -> None:
        self._triple = triple
        self._modules = {name: self._read(name, path) for name, path in paths.items()}
        self._functions = {
            function.name: function
            for module in self._modules.values()
            for function in module.functions
            if not function.is_declaration
        }

    def _read(self, name: str, path: Path) -> llvm.ModuleRef:
        what = f"library {name!r} of extern_libs ({path})"
        try:
            module = llvm.parse_bitcode(path.read_bytes())
            module.verify()
        except OSError as error:
            raise LoweringError(f"{what} cannot be read: {error.strerror}") from None
        except RuntimeError as error:
            raise LoweringError(
                f"{what} is no bitcode that LLVM {'.'.join(map(str, llvm.llvm_version_info))} "
                f"reads: {str(error).strip()}"
            ) from None
        machine = module.triple.partition("-")[0]
        if machine and machine != self._triple.partition("-")[0]:
            raise LoweringError(
                f"{what} is for {module.triple}, and the kernel is compiled for {self._triple}"
            )
        return module

    def __contains__(self, symbol: str) -> bool:
        return symbol in self._functions

    def __str__(self) -> str:
        return ", ".join(self._modules)

    def signature(self, symbol: str) -> tuple[str, tuple[str, ...]]:
        """The LLVM types of a function's result and of its parameters.

        Raises:
            KeyError: no library has it.
        """
        result, *parameters = map(str, self._functions[symbol].global_value_type.elements)
        return result, tuple(parameters)

    def linked(self, ir_text: str, cpu: str = "", features: str = "") -> str:
        """LLVM IR text with what it calls of the libraries.

        Raises:
            LoweringError: a library defines a symbol of the kernel's or of another library's, or
                does not go with it otherwise.
        """
        machine = target_machine(self._triple, cpu, features)
        module = parse(ir_text)
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        own = {value.name for value in _definitions(module)}
        for name, library in self._modules.items():
            part = library.clone()
            part.triple, part.data_layout = module.triple, module.data_layout
            try:
                module.link_in(part)
            except RuntimeError as error:
                raise LoweringError(
                    f"library {name!r} of extern_libs cannot be linked to the kernel: "
                    f"{str(error).strip()}"
                ) from None
        variables = {variable.name: variable.linkage for variable in module.global_variables}
        for value in _definitions(module):
            if value.name not in own and value.linkage not in _NOT_EXPORTED:
                value.linkage = llvm.Linkage.internal
        run_passes(module, machine, _PASSES)
        for variable in module.global_variables:
            if variable.name in variables:
                variable.linkage = variables[variable.name]
        module.verify()
        return str(module)


def _definitions(module: llvm.ModuleRef) -> Iterator[llvm.ValueRef]:
    """The functions and variables that a module has itself."""
    for values in (module.functions, module.global_variables):
        yield from (value for value in values if not value.is_declaration)
