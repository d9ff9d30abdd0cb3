"""A kernel's definition: its function and the keywords of ``jit``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from tilewright.errors import DefinitionError
from tilewright.ir.order import ANY, ORDERS, Order
from tilewright.language.definitions.callable import JitCallable


@dataclass(frozen=True)
class ReprContext:
    """Argument of a ``repr=`` callback: the types by parameter, and the values of the constants."""

    constants: Mapping[str, Any]
    signature: Mapping[str, Any]


class PortableJitOptions(TypedDict, total=False):
    """The keywords of :func:`~tilewright.jit` that ``triton.jit`` has, too."""

    version: Any
    repr: Callable[[ReprContext], str] | None
    launch_metadata: Callable[..., dict[str, Any]] | None
    do_not_specialize: Sequence[int | str] | None
    do_not_specialize_on_alignment: Sequence[int | str] | None
    debug: bool | None
    noinline: bool | None


class JitOptions(PortableJitOptions, total=False):
    """The keywords of :func:`~tilewright.jit`, which documents them."""

    order: Order


class KernelDefinition(JitCallable):
    """A function of the language that can be launched.

    Attributes:
        version: the caller's own mark, part of the cache key.
        debug: what ``jit(debug=)`` says.
        order: what ``jit(order=)`` says.
        symbol: what ``jit(repr=)`` says; see :meth:`repr`.
        launch_metadata: what ``jit(launch_metadata=)`` says.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        version: Any = None,
        repr: Callable[[ReprContext], str] | None = None,
        launch_metadata: Callable[..., dict[str, Any]] | None = None,
        do_not_specialize: Sequence[int | str] | None = None,
        do_not_specialize_on_alignment: Sequence[int | str] | None = None,
        debug: bool | None = None,
        noinline: bool | None = None,
        order: Order = ANY,
    ) -> None:
        if order not in ORDERS:
            raise DefinitionError(f"order of jit must be one of {ORDERS}, not {order!r}")
        super().__init__(
            fn,
            noinline=noinline,
            do_not_specialize=tuple(do_not_specialize or ()),
            do_not_specialize_on_alignment=tuple(do_not_specialize_on_alignment or ()),
        )
        functools.update_wrapper(self, fn, updated=())
        self.version = version
        self.debug = debug
        self.order = order
        self.symbol = repr
        self.launch_metadata = launch_metadata

    @property
    def full_name(self) -> str:
        """The name qualified by the module's."""
        return f"{self.__module__}.{self.__qualname__}"

    #: The name that programs written for Triton know.
    _fn_name = full_name

    @property
    def constexprs(self) -> list[int]:
        """Positions of the constexpr parameters."""
        return [parameter.num for parameter in self.params if parameter.is_constexpr]

    @property
    def signature(self) -> Any:
        return inspect.signature(self.fn)

    def repr(self, context: ReprContext) -> str:
        """Return the kernel's symbol for one specialization."""
        return self.symbol(context) if self.symbol is not None else self.__name__

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        for name in ("__wrapped__", "symbol", "launch_metadata"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.symbol = self.launch_metadata = None
