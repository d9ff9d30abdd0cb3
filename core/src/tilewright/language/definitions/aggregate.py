"""Aggregates: classes of kernel values with named fields and methods.

@aggregate
class Tile:
    pointer: tl.tensor
    rows: tl.constexpr

    @jit
    def load(self): ...

tile = Tile(x_ptr, BLOCK)        # inside a kernel
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any

from tilewright import ir
from tilewright.ir import types as ir_types
from tilewright.language.binding import Member, asked_for, mark_builtin, mark_host_function
from tilewright.language.definitions.callable import ConstexprFunction, JitCallable
from tilewright.language.value_types.base_classes import base_type, base_value
from tilewright.language.value_types.tensors import tensor
from tilewright.language.value_types.tuples import to_value
from tilewright.language.value_types.values import constexpr, unwrap_if_constexpr


class aggregate_type(base_type):  # noqa: N801
    """The type of an aggregate's instance: its class and the types of its fields."""

    __slots__ = ("base_cls", "fields")

    def __init__(self, base_cls: type[aggregate_value], fields: Mapping[str, base_type]) -> None:
        self.base_cls = base_cls
        self.fields: dict[str, base_type] = dict(fields)

    def flatten(self) -> list[ir_types.Type]:
        return [flat for type_ in self.fields.values() for flat in type_.flatten()]

    def unflatten(self, values: Iterator[ir.Value]) -> aggregate_value:
        return self.base_cls._from_fields(
            {name: type_.unflatten(values) for name, type_ in self.fields.items()}
        )

    def mangle(self) -> str:
        fields = "_".join(type_.mangle() for type_ in self.fields.values())
        return f"{self.base_cls.__name__}A{fields}A"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, aggregate_type)
            and self.base_cls is other.base_cls
            and self.fields == other.fields
        )

    def __hash__(self) -> int:
        return hash((self.base_cls, tuple(self.fields)))

    def __str__(self) -> str:
        fields = ", ".join(f"{name}: {type_}" for name, type_ in self.fields.items())
        return f"{self.base_cls.__name__}[{fields}]"

    __repr__ = __str__


class aggregate_value(base_value):  # noqa: N801
    """Base of all aggregates."""

    _is_aggregate = True
    #: field name -> annotation as written, in order, inherited ones first
    _annotations: dict[str, Any] = {}  # noqa: RUF012
    _defaults: dict[str, Any] = {}  # noqa: RUF012
    _initializer: Any = None
    _source_class: type = object
    #: functions whose source the meaning of the class depends on
    hash_attrs: tuple[Any, ...] = ()

    _values: dict[str, Any]
    _frozen: bool
    _semantic: Any

    def __new__(cls, *args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        self = cls._blank(_semantic)
        _initialise(self, args, kwargs, _semantic)
        for name in cls._annotations:
            if name not in self._values:
                if name not in cls._defaults:
                    raise AttributeError(
                        f"constructor for {cls.__name__} did not initialize attribute {name!r}"
                    )
                setattr(self, name, cls._defaults[name])
        object.__setattr__(self, "_frozen", True)
        object.__setattr__(self, "_semantic", None)
        return self

    @classmethod
    def _blank(cls, semantic: Any) -> Any:
        self = object.__new__(cls)
        object.__setattr__(self, "_values", {})
        object.__setattr__(self, "_frozen", False)
        object.__setattr__(self, "_semantic", semantic)
        return self

    @classmethod
    def _from_fields(cls, values: Mapping[str, Any]) -> Any:
        self = cls._blank(None)
        self._values.update(values)
        object.__setattr__(self, "_frozen", True)
        return self

    @property
    def type(self) -> aggregate_type:
        return aggregate_type(
            type(self), {name: self._values[name].type for name in self._annotations}
        )

    def flatten(self) -> list[ir.Value]:
        return [flat for name in self._annotations for flat in self._values[name].flatten()]

    def __getattr__(self, name: str) -> Any:
        values = object.__getattribute__(self, "_values")
        if name in values:
            return values[name]
        raise AttributeError(
            f"{type(self).__name__} has no attribute {name!r}; its fields are "
            f"{', '.join(self._annotations)}"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._annotations:
            raise AttributeError(
                f"{type(self).__name__} has no field {name!r}; its fields are "
                f"{', '.join(self._annotations)}"
            )
        if self._frozen:
            message = (
                f"cannot assign to field {name!r} on immutable aggregate {type(self).__name__}"
            )
            raise AttributeError(
                f"{message}; use aggregate_replace() to make a copy with another value"
            )
        self._values[name] = _field_value(type(self), name, value, self._semantic)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self._values.items())
        return f"{type(self).__name__}({values})"


def _initialise(
    self: aggregate_value, args: tuple[Any, ...], kwargs: dict[str, Any], semantic: Any
) -> None:
    """Run ``__init__``, however it is written."""
    # Read from the class: from the instance a constexpr function would come bound.
    init = type(self)._initializer
    if init is None:
        _assign_fields(self, args, kwargs)
    elif isinstance(init, ConstexprFunction):
        init.fn(
            self,
            *map(unwrap_if_constexpr, args),
            **{name: unwrap_if_constexpr(value) for name, value in kwargs.items()},
        )
    elif isinstance(init, JitCallable):
        if semantic is None:
            raise ValueError(
                f"{type(self).__name__} can be made only inside a kernel: its __init__ is a "
                "function of the language"
            )
        semantic.generator.call(init, (self, *args), kwargs)
    else:
        init(self, *args, **kwargs, **asked_for(init, semantic))


def _assign_fields(self: aggregate_value, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Default constructor of an aggregate: fields by position or name, defaults for the rest."""
    cls = type(self)
    names = list(cls._annotations)
    if len(args) > len(names):
        raise TypeError(
            f"{cls.__name__} takes at most {len(names)} arguments ({', '.join(names)}), got "
            f"{len(args)}"
        )
    given = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name in given:
            raise TypeError(f"{cls.__name__} got several values for argument {name!r}")
        if name not in cls._annotations:
            raise TypeError(
                f"{cls.__name__} has no field {name!r}; its fields are {', '.join(names)}"
            )
        given[name] = value
    missing = [name for name in names if name not in given and name not in cls._defaults]
    if missing:
        raise TypeError(f"{cls.__name__} is missing arguments: {', '.join(missing)}")
    for name in names:
        setattr(self, name, given[name] if name in given else cls._defaults[name])


def _field_value(cls: type[aggregate_value], name: str, value: Any, semantic: Any) -> Any:
    """``value`` as the field's annotation wants it.

    Raises:
        TypeError: it is of another kind.
    """
    wanted = _annotation(cls, name)
    value = to_value(value)
    if (
        wanted is tensor
        and isinstance(value, constexpr)
        and semantic is not None
        and semantic.number(value) is not None
    ):
        return semantic.to_tensor(value)
    fits = (
        not isinstance(wanted, type)
        or not issubclass(wanted, base_value)
        or isinstance(value, wanted)
    )
    if not fits:
        raise TypeError(
            f"field {name!r} of {cls.__name__} must be {wanted.__name__}, got {value!r}"
        )
    return value


def _annotation(cls: type[aggregate_value], name: str) -> Any:
    """Return the class a field is annotated with; None where it cannot be found.

    Texts are read in the module of the class.
    """
    wanted = cls._annotations[name]
    if isinstance(wanted, str):
        namespace = (
            vars(sys.modules.get(cls.__module__, object())) if cls.__module__ in sys.modules else {}
        )
        try:
            wanted = eval(wanted, dict(namespace))
        except Exception:
            return None
    return type(wanted) if isinstance(wanted, constexpr) else wanted


def aggregate(cls: type) -> type[aggregate_value]:
    """Decorate a class with annotated fields, so that kernels can create and pass its instances.

    Annotate each field with ``tl.tensor``, ``tl.constexpr``, ``tl.tuple`` or another aggregate. If
    you assign a value to the field in the class body, this value is the default of the field. If
    the class defines ``__init__``, the method ``__init__`` must set every field that has no
    default. If the class defines no ``__init__``, callers pass the fields by position or by name.
    Methods, including ``__init__``, may be kernel-language functions, constexpr functions or plain
    Python functions. Constexpr functions and plain Python functions run during compilation. All
    base classes must be aggregates. The fields of the base classes come before the fields that the
    class itself defines.

    Instances are immutable values: after ``__init__``, the assignment ``instance.field = value`` is
    an error. The function :func:`aggregate_replace` returns a changed copy of an instance. Only a
    method that is a plain Python function may assign to ``self.field`` outside of ``__init__``.
    After a call of this method, all variables of the calling function that hold the instance have
    the new value. Variables of other functions keep the old value.

    Args:
        cls: the class.

    Returns:
        A class whose instances kernels can create, pass and return.

    Raises:
        TypeError: a base class is not an aggregate.

    Example:
        @tw.aggregate
        class Span:
            start: tl.tensor
            size: tl.constexpr
    """
    bases: list[type[aggregate_value]] = []
    for base in cls.__bases__:
        if issubclass(base, aggregate_value):
            bases.append(base)
        elif base is not object:
            raise TypeError(
                f"Aggregates can only inherit from other aggregates, but {base.__name__}, a base "
                f"of {cls.__name__}, is none"
            )
    annotations: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    dependencies: list[Any] = []
    for base in reversed(bases):
        annotations.update(base._annotations)
        defaults.update(base._defaults)
        dependencies.extend(base.hash_attrs)
    own = dict(vars(cls))
    declared = _own_annotations(cls)
    annotations.update(declared)
    namespace: dict[str, Any] = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "_source_class": cls,
    }
    for name, member in own.items():
        if name in (
            "__dict__",
            "__weakref__",
            "__annotations__",
            "__annotate_func__",
            "__annotate__",
            "__module__",
            "__qualname__",
            "__doc__",
            "__init__",
        ):
            continue
        if name in annotations:
            defaults[name] = member
        elif isinstance(member, JitCallable) and not isinstance(member, ConstexprFunction):
            namespace[name] = Member(member)
            dependencies.append(member)
        else:
            function = getattr(member, "__func__", member)
            if isinstance(function, JitCallable | FunctionType):
                dependencies.append(function)
            if isinstance(function, FunctionType):
                mark_host_function(function)
            namespace[name] = member
    init = own.get("__init__")
    if init is None and bases:
        init = next((base._initializer for base in bases if base._initializer is not None), None)
        if init is not None and declared:
            init = None
    if init is not None:
        dependencies.append(init)
    namespace.update(
        _annotations=annotations,
        _defaults=defaults,
        _initializer=init,
        hash_attrs=tuple(dependencies),
    )
    made: type[aggregate_value] = type(cls.__name__, tuple(bases) or (aggregate_value,), namespace)
    mark_builtin(made)
    return made


def _own_annotations(cls: type) -> dict[str, Any]:
    """The annotations written in the class itself."""
    if sys.version_info >= (3, 14):
        import annotationlib

        return dict(annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF))
    return dict(vars(cls).get("__annotations__", {}))


@mark_builtin
def aggregate_replace(instance: Any, _semantic: Any = None, **changes: Any) -> Any:
    """Copy an aggregate with new values for some fields, without running ``__init__``.

    This works on the host, too.

    Args:
        instance: an instance of an aggregate, which stays as it is.
        changes: fields by name, with their new values.

    Returns:
        An instance of the same class.

    Raises:
        TypeError: ``instance`` is no aggregate, or has no such field.

    Example:
        span = tl.core.aggregate_replace(span, start=span.start + distance)
    """
    if not isinstance(instance, aggregate_value):
        raise TypeError(f"aggregate_replace() expects an aggregate instance, got {instance!r}")
    cls = type(instance)
    values = dict(instance._values)
    for name, value in changes.items():
        if name not in cls._annotations:
            raise TypeError(
                f"{cls.__name__} has no field {name!r}; its fields are "
                f"{', '.join(cls._annotations)}"
            )
        values[name] = _field_value(cls, name, value, _semantic)
    return cls._from_fields(values)


__all__ = ["aggregate", "aggregate_replace", "aggregate_type", "aggregate_value"]
