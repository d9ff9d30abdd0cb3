"""A specialization as text, for compile hooks and ``kernel.preload``."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.language.core import constexpr, dtype
from tilewright.language.core import tuple as language_tuple
from tilewright.language.definitions.callable import JitCallable
from tilewright.language.value_types.dtypes import signature_dtype
from tilewright.plugins.registry import registry
from tilewright.runtime.compiler.compile import Specialization
from tilewright.runtime.compiler.selection import Selected
from tilewright.runtime.compiler.specialize import ONE, Signature
from tilewright.runtime.devices import device_registry

#: Conversions of a launch's values by name. Others belong to the array libraries, and are found
#: anew at the launch.
_CONVERSIONS: Mapping[str, Any] = {"float": float, "int": int, "bool": bool}


def serialize(selected: Selected, name: str, **more: Any) -> str:
    """Serialize a specialization of the kernel ``name`` to JSON, together with ``more``.

    The text is empty if a constant cannot be serialized.
    """
    specialization, signature = selected.specialization, selected.signature
    try:
        return json.dumps(
            {
                "name": name,
                "signature": dict(specialization.signature),
                "constants": {
                    parameter: _encode(value)
                    for parameter, value in specialization.constants.items()
                },
                "attributes": {
                    parameter: dict(facts) for parameter, facts in specialization.attributes.items()
                },
                "options": {
                    option: _encode(value) for option, value in specialization.options.items()
                },
                "symbol": specialization.name,
                "ir_override": specialization.ir_override,
                "converters": [
                    [list(path), None if convert is None else convert.__qualname__]
                    for path, convert in signature.converters
                ],
                "ones": [kind is ONE for kind in selected.kinds],
                "backend": selected.backend.name,
                "device": [selected.device.kind, selected.device.index],
                **more,
            }
        )
    except TypeError:
        return ""


def hook_facts(selected: Selected, key: Any, name: str, is_warmup: bool) -> dict[str, Any]:
    """Return the keyword ``compile`` of the hooks that watch a compilation of ``name``."""
    specialization = selected.specialization
    return {
        "key": key,
        "signature": specialization.signature,
        "constants": specialization.constants,
        "attributes": specialization.attributes,
        "options": specialization.options,
        "device": selected.device,
        "target": selected.target,
        "specialization_data": serialize(selected, name),
        "is_warmup": is_warmup,
    }


def parse(text: str, name: str) -> dict[str, Any]:
    """Parse the text that :func:`serialize` wrote for the kernel ``name``.

    Raises:
        RuntimeError: it is of another kernel, or nothing of the kind.
    """
    try:
        data: dict[str, Any] = json.loads(text)
        found = data["name"]
    except (TypeError, ValueError, KeyError):
        raise RuntimeError(
            f"{text!r:.100} is no specialization data: it comes from the hooks of a compilation, "
            "as compile['specialization_data']"
        ) from None
    if found != name:
        raise RuntimeError(f"Specialization data is for {found} but trying to preload for {name}")
    return data


def restore(
    kernel: JitCallable, data: Mapping[str, Any], known: Iterable[JitCallable] = ()
) -> Selected:
    """Restore the specialization from the result of :func:`parse`.

    Args:
        known: functions of this process, among which those that are no attributes of modules are
            looked up.

    Raises:
        RuntimeError: a function that is a constant of it is not here.
        BackendError: its backend or device is not here.
    """
    signature = Signature(
        types={parameter: _tuples(type_) for parameter, type_ in data["signature"].items()},
        constants={
            parameter: _decode(value, known) for parameter, value in data["constants"].items()
        },
        attributes=data["attributes"],
        converters=[
            (tuple(path), _CONVERSIONS.get(convert)) for path, convert in data["converters"]
        ],
    )
    options = {option: _decode(value, known) for option, value in data["options"].items()}
    specialization = Specialization(
        kernel,
        signature.types,
        signature.constants,
        signature.attributes,
        options,
        data["symbol"],
        data["ir_override"],
    )
    backend = registry().get(data["backend"])
    device = device_registry.find(backend, tuple(data["device"]))
    kinds = tuple(ONE if one else None for one in data["ones"])
    return Selected(
        specialization,
        backend,
        device,
        device_registry.target_of(backend, device),
        signature,
        kinds,
    )


def _encode(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, constexpr):
        return {"constexpr": _encode(value.value)}
    if isinstance(value, dtype):
        return {"dtype": value.cache_key_part}
    if isinstance(value, tuple | list | language_tuple):
        return {"tuple": [_encode(item) for item in value]}
    if isinstance(value, Mapping):
        return {"dict": [[_encode(key), _encode(item)] for key, item in value.items()]}
    if isinstance(value, JitCallable):
        return {"function": [value.__module__, value.__qualname__, value.cache_key]}
    raise TypeError(f"a constant of type {type(value).__qualname__} has no text: {value!r:.100}")


def _decode(value: Any, known: Iterable[JitCallable]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    if kind == "constexpr":
        return constexpr(_decode(inner, known))
    if kind == "dtype":
        return signature_dtype(inner)
    if kind == "tuple":
        return tuple(_decode(item, known) for item in inner)
    if kind == "dict":
        return {_decode(key, known): _decode(item, known) for key, item in inner}
    module, qualname, key = inner
    return _function(module, qualname, key, known)


def _function(module: str, qualname: str, key: str, known: Iterable[JitCallable]) -> JitCallable:
    """Find a function of the language by name; of several, the one with the same source.

    Raises:
        RuntimeError: there is none.
    """
    found = [
        function
        for function in known
        if (function.__module__, function.__qualname__) == (module, qualname)
    ]
    try:
        # computed: the module of a function in a stored specialization
        holder: Any = importlib.import_module(module)
        for name in qualname.split("."):
            holder = getattr(holder, name)
        found.append(getattr(holder, "base_kernel", holder))
    except (ImportError, AttributeError):  # it was defined within a function
        pass
    found = [function for function in found if isinstance(function, JitCallable)]
    if not found:
        raise RuntimeError(
            f"Unable to resolve JITFunction {module}:{qualname} for preload: define it before"
        )
    return next((function for function in found if function.cache_key == key), found[-1])


def _tuples(type_: Any) -> Any:
    """Convert the lists in a type from JSON back to tuples."""
    return tuple(_tuples(item) for item in type_) if isinstance(type_, list) else type_
