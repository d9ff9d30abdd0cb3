"""A function of the language: its source, syntax tree, parameters and cache key.

The key covers everything that its meaning depends on.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar, overload

from tilewright.errors import (
    CompilationError,
    DefinitionError,
    ForeignKernelError,
    HostCallError,
    with_help,
)
from tilewright.ir.order import ANY
from tilewright.language.definitions.source import FunctionSource, parse_definition
from tilewright.language.value_types import dtypes
from tilewright.language.value_types.tuples import tuple as tl_tuple
from tilewright.language.value_types.values import constexpr

_EMPTY = inspect.Parameter.empty
_DOTTED = re.compile(r"[A-Za-z_][\w.]*$")


class FunctionParameter:
    """A parameter of a function of the language.

    Attributes:
        num: its position; name.
        annotation: as written: an object, or text under ``from __future__ import annotations``.
        has_default, default: ``inspect.Parameter.empty`` where there is none.
        is_constexpr: annotated ``tl.constexpr``.
        is_const: annotated ``tl.const``: a pointer that is only read.
        annotation_type: the type text (``"i64"``, ``"*fp32"``) that the annotation fixes; empty
            where it fixes none.
        keyword_only, variadic: written after ``*``; written ``*name``.
        do_not_specialize, do_not_specialize_on_alignment: what the runtime must not assume about
            its value.
    """

    __slots__ = (
        "annotation",
        "annotation_type",
        "default",
        "do_not_specialize",
        "do_not_specialize_on_alignment",
        "has_default",
        "is_const",
        "is_constexpr",
        "keyword_only",
        "name",
        "num",
        "variadic",
    )

    def __init__(
        self, num: int, name: str, annotation: Any, default: Any, namespace: dict[str, Any]
    ) -> None:
        self.num, self.name, self.annotation, self.default = num, name, annotation, default
        self.has_default = default is not _EMPTY
        self.keyword_only = self.variadic = False
        self.do_not_specialize = self.do_not_specialize_on_alignment = False
        self.is_constexpr, self.is_const, self.annotation_type = _read_annotation(
            annotation, namespace
        )

    def __repr__(self) -> str:
        return f"<FunctionParameter {self.num} {self.name}>"

    def __getstate__(self) -> dict[str, Any]:
        state = {name: getattr(self, name) for name in self.__slots__}
        state["annotation"] = self.annotation if isinstance(self.annotation, str) else None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if not state.keys() <= {*self.__slots__}:
            raise ForeignKernelError
        for name, value in state.items():
            setattr(self, name, value)


def _annotations_of(fn: Any) -> dict[str, Any]:
    """The annotations, of which some may name what does not exist at run time."""
    if sys.version_info >= (3, 14):
        import annotationlib

        found = annotationlib.get_annotations(fn, format=annotationlib.Format.FORWARDREF)
        return {
            name: value.__forward_arg__ if isinstance(value, annotationlib.ForwardRef) else value
            for name, value in found.items()
        }
    return dict(fn.__annotations__)


def _declared(fn: Any) -> list[inspect.Parameter]:
    """Return a function's parameters: those of ``__signature__`` where it has one, else its code's.

    Programs that generate functions declare them by ``__signature__``.
    """
    if "__signature__" in vars(fn):
        return list(fn.__signature__.parameters.values())
    code, kind = fn.__code__, inspect.Parameter
    positional, keyword_only = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    kinds: list[tuple[str, Any]] = [
        (name, kind.POSITIONAL_OR_KEYWORD) for name in names[:positional]
    ]
    if code.co_flags & inspect.CO_VARARGS:
        kinds.append((names[positional + keyword_only], kind.VAR_POSITIONAL))
    kinds += [(name, kind.KEYWORD_ONLY) for name in names[positional : positional + keyword_only]]
    defaults = dict(
        zip(reversed(names[:positional]), reversed(fn.__defaults__ or ()), strict=False)
    ) | (fn.__kwdefaults__ or {})
    annotations = _annotations_of(fn)
    return [
        kind(
            name,
            which,
            default=defaults.get(name, _EMPTY),
            annotation=annotations.get(name, _EMPTY),
        )
        for name, which in kinds
    ]


#: Names of types that annotations use and the language does not have -> the name it has.
_SPELLINGS = {"uint1": "int1"}


def _read_annotation(annotation: Any, namespace: dict[str, Any]) -> tuple[bool, bool, str]:
    """(is constexpr, is const, type text) of an annotation."""
    if annotation is _EMPTY or annotation is None:
        return False, False, ""
    if isinstance(annotation, str):
        text = annotation.strip().strip("'\"").strip()
        if "constexpr" in text:
            return True, False, ""
        found = dtypes.signature_dtype(text)
        if found is None and _DOTTED.match(text):
            found = _resolve_dotted(text, namespace)
            if found is None:
                # A type's plain name counts also where the kernel's module does not have it.
                found = getattr(
                    dtypes, _SPELLINGS.get(name := text.removeprefix("tl."), name), None
                )
        annotation = found
    if annotation is constexpr or isinstance(annotation, constexpr):
        return True, False, ""
    if annotation is dtypes.const:
        return False, True, ""
    if (
        isinstance(annotation, dtypes.dtype)
        and not annotation.is_block()
        and not annotation.is_void()
    ):
        return False, annotation.is_const(), annotation.cache_key_part
    return False, False, ""


def _resolve_dotted(text: str, namespace: dict[str, Any]) -> Any:
    head, *rest = text.split(".")
    found = namespace.get(head)
    for name in rest:
        found = getattr(found, name, None)
    return found


class JitCallable:
    """A function of the language, which the compiler alone calls.

    See :func:`device_function` and ``tilewright.jit``.

    Attributes:
        fn: the Python function.
        noinline: compiled as a function of its own, not into each caller.
        order: the order of reductions and scans that state none, in a kernel that is launched.
        hash: the cache key once it is known; set to None to have it worked out again.
    """

    fn: Any
    noinline: bool
    order: str = ANY
    hash: str | None
    #: it runs as Python, while compiling
    _host = False

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        noinline: bool | None = None,
        do_not_specialize: list[int | str] | tuple[int | str, ...] | None = None,
        do_not_specialize_on_alignment: list[int | str] | tuple[int | str, ...] | None = None,
    ) -> None:
        """Wrap ``fn``.

        Raises:
            DefinitionError: ``fn`` is not a Python function, takes ``**kwargs``, or was not written
                in a file, so that its source cannot be read.
        """
        if not inspect.isfunction(fn):
            raise DefinitionError(
                "a function of the language is made from a Python function, not from "
                f"{type(fn).__name__}"
            )
        if fn.__code__.co_flags & inspect.CO_VARKEYWORDS and not self._host:
            raise DefinitionError(
                "JIT functions do not support **kwargs: name each keyword parameter of "
                f"{fn.__name__}"
            )
        self.fn = fn
        self._source = FunctionSource(fn)
        self.noinline = bool(noinline)
        self.do_not_specialize = tuple(do_not_specialize or ())
        self.do_not_specialize_on_alignment = tuple(do_not_specialize_on_alignment or ())
        self.hash = None
        self.used_global_vals: Any = {}
        self._hash_lock: Any = threading.RLock()
        self._params: list[FunctionParameter] | None = None
        self._text: str | None = None
        self._tree: ast.FunctionDef | None = None
        self._dependencies: Any = None
        #: what the frontend keeps about the syntax tree
        self.analysis: Any = None
        self.__name__: str = fn.__name__
        self.__qualname__: str = fn.__qualname__
        # the globals that a program gave it may have no `__name__`
        self.__module__: str = fn.__module__ or ""
        self.__doc__: str | None = fn.__doc__
        self.__globals__: Any = fn.__globals__
        self._callers: Any = None
        former = fn.__globals__.get(fn.__name__) if fn.__qualname__ == fn.__name__ else None
        if isinstance(former, JitCallable):
            former._replaced()

    # -- source ------------------------------------------------------------------------------------

    @property
    def module(self) -> str:
        """The name of the module the function is defined in."""
        return self.__module__

    @property
    def file(self) -> str:
        """The path of the file the function is written in."""
        return self._source.file

    @property
    def raw_src(self) -> list[str]:
        """The lines in the file, decorators included."""
        return self._source.raw_lines

    @property
    def src(self) -> str:
        """The dedented source from ``def`` on."""
        return self._source.text if self._text is None else self._text

    @src.setter
    def src(self, text: str) -> None:
        raise AttributeError(
            "src cannot be set: use _unsafe_update_src(), and clear `hash` of every caller"
        )

    def _unsafe_update_src(self, text: str) -> None:
        """Replace the source. The keys of callers that are known already keep what they were."""
        self._text = text
        self.hash = self._tree = self._dependencies = self.analysis = None

    @property
    def starting_line_number(self) -> int:
        """The line of the file at which :attr:`raw_src` starts."""
        return self._source.first_line

    @property
    def definition_line(self) -> int:
        """The line of the file that holds ``def``: line 1 of :attr:`src`."""
        return self._source.definition_line

    @property
    def indent(self) -> int:
        """Return the number of columns that :attr:`src` stands left of the file's text."""
        return self._source.indent

    def parse(self) -> ast.FunctionDef:
        """The syntax tree of :attr:`src`: the same one every time; do not change it."""
        if self._tree is None:
            self._tree = (
                self._source.parse() if self._text is None else parse_definition(self._text)
            )
        return self._tree

    # -- parameters --------------------------------------------------------------------------------

    @property
    def params(self) -> list[FunctionParameter]:
        """Return the parameters in order.

        A ``*name`` parameter comes after the positional ones, keyword-only ones last.

        Raises:
            CompilationError: a constexpr parameter is not to be specialised.
        """
        if self._params is None:
            self._params = self._read_params()
        return self._params

    @property
    def arg_names(self) -> list[str]:
        return [parameter.name for parameter in self.params]

    def _read_params(self) -> list[FunctionParameter]:
        params = []
        for num, declared in enumerate(_declared(self.fn)):
            name = declared.name
            parameter = FunctionParameter(
                num, name, declared.annotation, declared.default, self.fn.__globals__
            )
            parameter.keyword_only = declared.kind is declared.KEYWORD_ONLY
            parameter.variadic = declared.kind is declared.VAR_POSITIONAL
            parameter.do_not_specialize = (
                num in self.do_not_specialize or name in self.do_not_specialize
            )
            parameter.do_not_specialize_on_alignment = (
                num in self.do_not_specialize_on_alignment
                or name in self.do_not_specialize_on_alignment
            )
            if parameter.is_constexpr and (
                parameter.do_not_specialize or parameter.do_not_specialize_on_alignment
            ):
                raise self.definition_error(
                    f"{name} marked as constexpr and listed in "
                    "do_not_specialize/do_not_specialize_on_alignment. Remove constexpr "
                    "designation to skip specialization."
                )
            params.append(parameter)
        return params

    def definition_error(self, message: str, remedy: str = "") -> CompilationError:
        """An error of the function as a whole, at its ``def``."""
        text = with_help(
            f"{message}\n  --> {self.file}:{self.definition_line} in {self.__name__}", remedy
        )
        return CompilationError(
            with_help(message, remedy), text, self.file, self.definition_line, self.indent, self.src
        )

    # -- what the meaning depends on ---------------------------------------------------------------

    @property
    def nonlocals(self) -> dict[str, Any]:
        """The variables of enclosing functions that the function reads, with their values now."""
        closure = self.fn.__closure__
        if not closure:
            return {}
        found = {}
        for name, cell in zip(self.fn.__code__.co_freevars, closure, strict=True):
            try:
                found[name] = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
        return found

    @property
    def cache_key(self) -> str:
        """Return the SHA-256 (hex) of the source, its line, and the same of each function it calls.

        The values of the globals that they read are in it, too.

        Computing it fills :attr:`used_global_vals`:
        ``(name, id of its namespace) -> (value, namespace)``.
        """
        if self.hash is None:
            from tilewright.language.definitions.dependencies import cache_key

            with self._hash_lock:
                if self.hash is None:
                    self.hash, self.used_global_vals = cache_key(self)
        return self.hash

    def note_caller(self, caller: JitCallable) -> None:
        """Remember a function whose key has this one's in it."""
        if self._callers is None:
            self._callers = weakref.WeakSet()
        self._callers.add(caller)

    def _replaced(self) -> None:
        """Make callers forget what they know of this function; another one is taking its name.

        This happens where a notebook's cell is run again.
        """
        for caller in list(self._callers or ()):
            caller.forget_meaning()

    def forget_meaning(self) -> None:
        """Find out anew what the function calls and which globals it reads."""
        with self._hash_lock:
            self.hash = None
            self.used_global_vals = {}

    def __hash__(self) -> int:
        return id(self) >> 4

    def __eq__(self, other: object) -> bool:
        return self is other

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise HostCallError(
            f"Cannot call @jit function {self.__name__!r} outside of the scope of a kernel"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.__module__}:{self.__qualname__})"

    # -- copying -----------------------------------------------------------------------------------

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle by name where the module holds this object under it; else by value.

        The value is without the Python function.
        """
        found: Any = sys.modules.get(self.__module__)
        for name in self.__qualname__.split("."):
            found = getattr(found, name, None)
        if found is self:
            return self.__qualname__
        return object.__reduce_ex__(self, protocol)

    def __getstate__(self) -> dict[str, Any]:
        key = self.cache_key if self.fn is not None else self.hash
        self.params  # noqa: B018  # read from the function now: the copy has none
        unpicklable = {
            "fn",
            "__globals__",
            "_hash_lock",
            "used_global_vals",
            "_tree",
            "_dependencies",
            "_callers",
            "analysis",
        }
        state = {name: value for name, value in self.__dict__.items() if name not in unpicklable}
        return {**state, "hash": key, "_text": self.src}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.fn = self.__globals__ = self._tree = self._dependencies = self._callers = (
            self.analysis
        ) = None
        self.used_global_vals = {}
        self._hash_lock = threading.RLock()


class ConstexprFunction(JitCallable):
    """A Python function that runs at compile time on the values of its arguments.

    Its result is a constexpr.

    Called from the host it is the plain function. As a method it is bound to its instance.
    """

    _host = True

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else BoundConstexprFunction(instance, self)

    def __call__(self, *args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        result = self.fn(
            *map(_plain, args), **{name: _plain(value) for name, value in kwargs.items()}
        )
        if _semantic is None:
            return result
        return result if isinstance(result, constexpr) else constexpr(result)


class BoundConstexprFunction:
    """A :class:`ConstexprFunction` bound to an instance."""

    def __init__(self, instance: Any, function: ConstexprFunction) -> None:
        self.__self__, self.__func__ = instance, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__func__(self.__self__, *args, **kwargs)


def _plain(value: Any) -> Any:
    """A constexpr's value; tuples element by element, fields kept."""
    if isinstance(value, constexpr):
        return _plain(value.value) if isinstance(value.value, constexpr) else value.value
    if isinstance(value, tuple):
        items = [_plain(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, tl_tuple):
        return tuple(_plain(item) for item in value)
    return value


F = TypeVar("F", bound=Callable[..., Any])


@overload
def device_function(fn: Callable[..., Any], *, noinline: bool = False) -> JitCallable: ...
@overload
def device_function(
    fn: None = None, *, noinline: bool = False
) -> Callable[[Callable[..., Any]], JitCallable]: ...
def device_function(
    fn: Callable[..., Any] | None = None, *, noinline: bool = False
) -> JitCallable | Callable[[Callable[..., Any]], JitCallable]:
    """Make a function of the language that kernels call and that is no kernel itself.

    With ``noinline`` it is compiled once and called.

    Raises:
        ValueError: the function was not written in a file.
    """
    if fn is None:
        return lambda function: JitCallable(function, noinline=noinline)
    return JitCallable(fn, noinline=noinline)


def constexpr_function(fn: Callable[..., Any] | ConstexprFunction) -> ConstexprFunction:
    """Decorate a Python function that the compiler runs when a kernel calls it.

    If a kernel calls the function, the function runs during compilation: it receives the values of
    constexpr arguments, and its result is a constexpr in the kernel. On the host, you can call the
    function like any Python function. If you change the function, the kernels that call the
    function are compiled again.

    Args:
        fn: the function.

    Returns:
        A function that the host and kernels can call. You can also decorate the methods of a class.

    Example:
        @tw.constexpr_function
        def digits(n):
            return len(str(n))
    """
    return fn if isinstance(fn, ConstexprFunction) else ConstexprFunction(fn)
