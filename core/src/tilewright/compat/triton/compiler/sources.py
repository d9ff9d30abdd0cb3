"""Inputs of ``triton.compile``: a kernel with its arguments' types, or a file of Tile IR."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilewright.compat.triton.backends.compiler import Language
from tilewright.compat.triton.outside import OutsideStageError
from tilewright.language.definitions.callable import JitCallable
from tilewright.runtime.compiler.compile import Specialization
from tilewright.runtime.compiler.specialize import unwrap
from tilewright.runtime.launch.positional_launch import Converter
from tilewright.runtime.storage.cache_keys import UnstableError, stable_text

#: Position of a parameter, and of an item within it where it is a tuple.
Path_ = tuple[int, ...]

#: Triton's names of facts about arguments -> Tilewright's; others are hints of one vendor's
#: compiler, which may be left out.
_FACTS = {"tt.divisibility": "divisibility"}

_MLIR = re.compile(
    r"\b(?:tt|ttg|scf|arith|gluon)\.\w+|^\s*module\s*(?:attributes|\{)", re.MULTILINE
)


class ASTSource:
    """A kernel to compile for arguments of given types.

    Args:
        fn: the kernel.
        signature: parameter -> type text (``"*fp32"``, ``"i32"``, ``"constexpr"``, tuples of
            these). What ``constexprs`` gives a value is ``"constexpr"``.
        constexprs: values of the constants, by name or path (``(2,)``; ``(3, 0)`` within a tuple).
        attrs: facts by path, ``{(0,): [["tt.divisibility", 16]]}``.

    Raises:
        TypeError: a key of the signature is not a name.
    """

    ext = "ttir"
    language = Language.TRITON

    def __init__(
        self,
        fn: JitCallable,
        signature: Mapping[str, Any],
        constexprs: Mapping[Any, Any] | None = None,
        attrs: Mapping[Path_, Any] | None = None,
    ) -> None:
        self.fn = fn
        self.name = fn.__name__
        self.signature = dict(signature)
        for name in self.signature:
            if not isinstance(name, str):
                raise TypeError("Signature keys must be string")
        self.constants: dict[Path_, Any] = {}
        for key, value in (constexprs or {}).items():
            path = (fn.arg_names.index(key),) if isinstance(key, str) else key
            assert isinstance(path, tuple), (
                f"a constant is named by its parameter or by a path, not by {key!r}"
            )
            self.constants[path] = value
        for position, name in enumerate(fn.arg_names):
            if name in self.signature:
                self.signature[name] = _with_constants(
                    self.signature[name], (position,), self.constants
                )
        self.attrs = dict(attrs or {})
        #: what the kernel is called in its code, where that is not the function's name
        self.symbol: str | None = None
        #: the options it was compiled with, once it was
        self.options: Mapping[str, Any] = {}

    def hash(self) -> str:
        """A text (hex SHA-256) that differs for another source, types, constants or facts."""
        parts = [
            self.fn.cache_key,
            repr(sorted(self.signature.items())),
            repr(sorted(self.attrs.items())),
        ]
        for path, value in sorted(self.constants.items()):
            try:
                parts.append(f"{path}={stable_text(unwrap(value))}")
            except UnstableError:
                parts.append(f"{path}={getattr(value, 'cache_key', value)}")
        return hashlib.sha256("-".join(parts).encode()).hexdigest()

    def parse_options(self) -> dict[str, Any]:
        """Options that the source itself fixes: none."""
        return {}

    def make_ir(
        self,
        target: Any,
        options: Any,
        codegen_fns: Any = None,
        module_map: Any = None,
        context: Any = None,
    ) -> Any:
        """Return the kernel's accesses, whose ``tile_ir`` is the kernel as Tile IR.

        See :mod:`tilewright.compat.triton._C.libtriton.ir`.
        """
        from tilewright.compat.triton._C.libtriton import ir
        from tilewright.compat.triton.backends.targets import place_of
        from tilewright.compat.triton.compiler.choice import backend_of
        from tilewright.compat.triton.compiler.options import tilewright_options
        from tilewright.runtime.compiler.compile import build_module

        backend = backend_of(target)
        own, _ = place_of(target, backend)
        specialization = self.specialize(tilewright_options(backend, own, options.__dict__))
        shown = [
            parameter.name
            for parameter in self.fn.params
            if specialization.signature[parameter.name] != "constexpr"
        ]
        return ir.module(build_module(specialization, backend, own), self.name, shown)

    def specialize(self, options: Mapping[str, Any]) -> Specialization:
        """The same in Tilewright's terms.

        Raises:
            ValueError: a parameter has neither a type nor a value.
        """
        types: dict[str, Any] = {}
        constants: dict[str, Any] = {}
        for parameter in self.fn.params:
            path: Path_ = (parameter.num,)
            type_ = self.signature.get(
                parameter.name,
                "constexpr" if path in self.constants or parameter.has_default else None,
            )
            if type_ is None:
                raise ValueError(
                    f"the signature of {self.name} has no type of parameter {parameter.name!r}"
                )
            types[parameter.name] = type_
            for item_path, name in _constant_paths(type_, path, parameter.name):
                value = self.constants.get(
                    item_path,
                    parameter.default if item_path == path and parameter.has_default else None,
                )
                constants[name] = unwrap(value)
        attributes: dict[str, dict[str, Any]] = {}
        names = self.fn.arg_names
        for item, facts in self.attrs.items():
            name = ".".join((names[item[0]], *map(str, item[1:])))
            known = {_FACTS[fact]: value for fact, value in facts if fact in _FACTS}
            if known and item not in self.constants:
                attributes[name] = known
        return Specialization(
            self.fn, types, constants, attributes, dict(options), name=self.symbol
        )

    @classmethod
    def of(cls, specialization: Specialization) -> ASTSource:
        """A specialisation of Tilewright in Triton's terms."""
        fn: Any = specialization.fn
        positions = {name: number for number, name in enumerate(fn.arg_names)}
        found = cls(
            fn,
            specialization.signature,
            {path_of(name, positions): value for name, value in specialization.constants.items()},
            {
                path_of(name, positions): [["tt.divisibility", facts["divisibility"]]]
                for name, facts in specialization.attributes.items()
                if "divisibility" in facts
            },
        )
        found.options = specialization.options
        found.name = specialization.name or fn.__name__
        return found


def type_converters(signature: dict[str, Any]) -> list[Converter]:
    """Return the converters that select a launch's values from all arguments, by types alone."""
    found: list[Converter] = []

    def visit(type_: Any, path: tuple[int, ...]) -> None:
        if isinstance(type_, tuple | list):
            for number, item in enumerate(type_):
                visit(item, (*path, number))
        elif type_ != "constexpr":
            convert: Callable[[Any], Any] | None = (
                float
                if type_ in ("fp16", "bf16", "fp32", "fp64")
                else bool
                if type_ in ("u1", "i1")
                else None
            )
            found.append((path, convert))

    for position, type_ in enumerate(signature.values()):
        visit(type_, (position,))
    return found


class NamedFunction:
    """Stands for the function of a kernel that was made from files."""

    def __init__(self, name: str, arg_names: list[str]) -> None:
        self.__name__, self.arg_names, self.src = name, arg_names, ""


def path_of(name: str, positions: Mapping[str, int]) -> Path_:
    """``"t.0"`` as the path (position of ``t``, 0)."""
    head, *rest = name.split(".")
    return (positions[head], *map(int, rest))


def _with_constants(type_: Any, path: Path_, constants: Mapping[Path_, Any]) -> Any:
    """A type of the signature, with ``"constexpr"`` for what has a value among ``constants``."""
    if path in constants:
        return "constexpr"
    if isinstance(type_, tuple | list):
        items = [
            _with_constants(item, (*path, number), constants) for number, item in enumerate(type_)
        ]
        return type(type_)(*items) if hasattr(type_, "_fields") else type(type_)(items)
    return type_


def _constant_paths(type_: Any, path: Path_, name: str) -> Iterator[tuple[Path_, str]]:
    if isinstance(type_, tuple | list):
        for number, item in enumerate(type_):
            yield from _constant_paths(item, (*path, number), f"{name}.{number}")
    elif type_ == "constexpr":
        yield path, name


class IRSource:
    """A file of Tile IR text, as ``kernel.asm["ttir"]`` gives it.

    Raises:
        OutsideStageError: the file holds MLIR, PTX or the like, which Tilewright does not read.
    """

    language = Language.TRITON

    def __init__(self, path: Any, context: Any = None, backend: Any = None) -> None:
        from tilewright.ir.parser import parse_module

        self.path = str(path)
        self.ext = Path(path).suffix[1:]
        self.src = Path(path).read_text()
        if self.ext in ("ttgir", "llir", "ptx", "amdgcn") or _MLIR.search(self.src):
            raise OutsideStageError(
                f"{path} is no Tile IR: tilewright.compat.triton compiles kernels and files of "
                "Tile IR, not MLIR or a later stage of Triton's"
            )
        self.module = parse_module(self.src)
        self.name = self.module.kernel.name
        self.signature = {
            number: str(argument.type)
            for number, argument in enumerate(self.module.kernel.arguments)
        }

    def hash(self) -> str:
        return hashlib.sha256(self.src.encode()).hexdigest()

    def make_ir(
        self,
        target: Any = None,
        options: Any = None,
        codegen_fns: Any = None,
        module_map: Any = None,
        context: Any = None,
    ) -> Any:
        """As for a kernel."""
        from tilewright.compat.triton._C.libtriton import ir

        return ir.module(
            self.module, self.name, [argument.name for argument in self.module.kernel.arguments]
        )

    def parse_options(self) -> dict[str, Any]:
        return {}


def with_override(specialization: Specialization, path: str | None) -> Specialization:
    """Replace a specialisation's source by a file of Tile IR, where there is one."""
    return specialization if path is None else replace(specialization, ir_override=path)
