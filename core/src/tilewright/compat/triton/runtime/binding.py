"""The binder of a kernel as Triton has it, and the keys of compiled kernels from its results.

They are for programs that ask which kernel a launch would run without launching it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.compat.triton.runtime.specialize import native_specialize_impl
from tilewright.language.core import constexpr
from tilewright.language.definitions.callable import FunctionParameter, JitCallable
from tilewright.language.value_types.dtypes import dtype

#: Gives (values in parameter order, their kinds, the other keywords) of a launch.
Bind = Callable[..., tuple[tuple[Any, ...], tuple[Any, ...], dict[str, Any]]]
#: Gives the key of the kernel that a launch of positional and keyword arguments runs.
KeyOfLaunch = Callable[[tuple[Any, ...], dict[str, Any]], str]


class BoundSpecialization(list[tuple[Any, Any]]):
    """(signature text, assumption) of each parameter that :class:`TritonBinder` bound."""

    def __init__(
        self,
        key_of_launch: KeyOfLaunch,
        args: tuple[Any, ...],
        named: dict[str, Any],
        pairs: list[tuple[Any, Any]],
    ) -> None:
        super().__init__(pairs)
        self._launch = (key_of_launch, args, named)

    def key(self, options: Mapping[str, Any]) -> str:
        """The key of the launch's kernel in ``device_caches``, with these options."""
        key_of_launch, args, named = self._launch
        return key_of_launch(args, {**named, **options})


class TritonBinder:
    """Binder of a kernel's arguments.

    ``binder(*args, **keywords)`` -> ({parameter: argument}, [(signature text, assumption)], the
    other keywords).

    What is assumed of a constant is the constant itself; of others it is letters of the active
    driver's compiler, or None.
    """

    def __init__(
        self, params: Sequence[FunctionParameter], bind: Bind, key_of_launch: KeyOfLaunch
    ) -> None:
        self._params, self._bind, self._key_of_launch = params, bind, key_of_launch

    def __call__(
        self, *args: Any, **keywords: Any
    ) -> tuple[dict[str, Any], BoundSpecialization, dict[str, Any]]:
        from tilewright.compat.triton.compiler.choice import make_backend
        from tilewright.compat.triton.runtime.driver import driver

        values, _, options = self._bind(*args, **keywords)
        compiler = make_backend(driver.active.get_current_target())
        pairs: list[tuple[Any, Any]] = []
        for parameter, value in zip(self._params, values, strict=True):
            if parameter.is_constexpr:
                pairs.append(("constexpr", value))
                continue
            specialize = not parameter.do_not_specialize
            align = specialize and not parameter.do_not_specialize_on_alignment
            text, assumed = native_specialize_impl(
                compiler, value, parameter.is_const, specialize, align
            )
            pairs.append(
                (parameter.annotation_type or text, assumed)
                if text != "constexpr"
                else (text, assumed)
            )
        named = {name: value for name, value in keywords.items() if name not in options}
        bound = dict(zip((parameter.name for parameter in self._params), values, strict=True))
        return bound, BoundSpecialization(self._key_of_launch, args, named, pairs), options


def compute_cache_key(
    kernel_key_cache: dict[Any, str],
    specialization: list[tuple[Any, Any]],
    options: Mapping[str, Any],
) -> str:
    """The key of a compiled kernel among ``device_caches[device][0]``.

    Args:
        kernel_key_cache: keys that were computed before, by ``specialization`` and ``options``:
            ``device_caches[device][1]``.
        specialization: what a kernel's binder gave. For any other list the key is a text of it that
            no kernel of a cache has.
        options: the launch's other keywords.
    """
    if isinstance(specialization, BoundSpecialization):
        return specialization.key(options)
    key = (tuple(specialization), str(options))
    found = kernel_key_cache.get(key)
    if found is None:
        found = kernel_key_cache[key] = f"{_without_callables(specialization)}{options}"
    return found


def _without_callables(value: Any) -> Any:
    """Kernels and device functions by their keys, within lists and tuples."""
    if isinstance(value, list | tuple):
        items = [_without_callables(item) for item in value]
        return (
            type(value)(*items)
            if hasattr(value, "_fields")
            else tuple(items)
            if isinstance(value, tuple)
            else items
        )
    return value.cache_key if isinstance(value, JitCallable) else value


def serialize_specialization_data(
    name: str,
    signature: Mapping[str, Any],
    constants: Mapping[Any, Any],
    attrs: Mapping[Any, Any],
    options: Any,
    key: Any,
    target: Any = None,
) -> str:
    """Return a specialisation as text (JSON), to record compilations.

    ``preload`` takes the text that hooks of a compilation get.
    """
    return json.dumps(
        {
            "name": name,
            "signature": dict(signature),
            "constant_keys": [
                list(path) if isinstance(path, tuple) else path for path in constants
            ],
            "constant_vals": [_as_json(value) for value in constants.values()],
            "attrs_keys": [list(path) if isinstance(path, tuple) else path for path in attrs],
            "attrs_vals": list(attrs.values()),
            "options": {option: _as_json(value) for option, value in vars(options).items()},
            "key": key,
            "target": None if target is None else dict(vars(target)),
        }
    )


def _as_json(value: Any) -> Any:
    if isinstance(value, constexpr):
        return {"constexpr": _as_json(value.value)}
    if isinstance(value, JitCallable):
        return {"jit_function": f"{value.__module__}:{value.__qualname__}"}
    if isinstance(value, dtype):
        return str(value)
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _as_json(item) for name, item in value.items()}
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)
