"""Evaluation of functions of ``tilewright.jit`` on whole arrays, by their source.

A reference twin gets the activation or the epilogue that a kernel applies to its tiles. Here the
Python of such a function runs with one tile, the whole array, and with functions of the array
library in place of the language's, so that PyTorch and JAX differentiate it.
"""

from __future__ import annotations

import builtins
import functools
import math
import operator
import types
from collections.abc import Callable, Sequence
from typing import Any

import array_api_compat
import numpy as np

import tilewright.language as tl
from tilewright import JITFunction

_LANGUAGE = tl.__name__
#: Name of an element type in the language -> in array libraries, where they differ.
_TYPES = {
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    "int1": "bool",
}
_MODULES = ("math", "extra", "cuda", "libdevice")


def evaluated(function: Any, *arguments: Any, pointers: Sequence[Any] = ()) -> Any:
    """Return the value of a function on arrays.

    Args:
        function: of ``tilewright.jit``; any other is called with the arrays.
        arguments: an array, which tells the array library, and more arrays and numbers.
        pointers: arrays in C order, to whose elements the function gets pointers as its last
            arguments.

    Raises:
        TypeError: the function calls one of the language that array libraries do not have.
    """
    if not isinstance(function, JITFunction):
        return function(*arguments, *pointers)
    library = _Library(arguments[0])
    found = library.translated(function)(
        *(_Tile(library, each) if hasattr(each, "shape") else each for each in arguments),
        *(_Pointer(library, each.reshape(-1), 0) for each in pointers),
    )
    return found.array


class _Tile:
    """An array with the operators and methods of a tile."""

    def __init__(self, library: _Library, array: Any) -> None:
        self.library, self.array = library, array
        self.shape, self.dtype = tuple(array.shape), array.dtype

    def __getitem__(self, places: Any) -> _Tile:
        return _Tile(self.library, self.array[places])

    def __neg__(self) -> _Tile:
        return _Tile(self.library, -self.array)

    def __invert__(self) -> _Tile:
        return _Tile(self.library, ~self.array)

    def __getattr__(self, name: str) -> Any:
        if name == "T":
            return self.library.trans(self)
        return functools.partial(getattr(self.library, name), self)


def _operator(compute: Callable[[Any, Any], Any], is_reflected: bool) -> Callable[..., Any]:
    def applied(self: _Tile, other: Any) -> Any:
        if isinstance(other, _Pointer):
            return NotImplemented
        pair = (other, self) if is_reflected else (self, other)
        return _Tile(self.library, compute(*self.library.operands(*pair)))

    return applied


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "and", "or", "xor"):
    _compute = getattr(operator, f"{_name}_" if _name in ("and", "or") else _name)
    setattr(_Tile, f"__{_name}__", _operator(_compute, False))
    setattr(_Tile, f"__r{_name}__", _operator(_compute, True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(_Tile, f"__{_name}__", _operator(getattr(operator, _name), False))


class _Pointer:
    """Pointers to elements of an array in C order."""

    def __init__(self, library: _Library, elements: Any, offset: Any) -> None:
        self.library, self.elements, self.offset = library, elements, offset

    def __add__(self, offset: Any) -> _Pointer:
        return _Pointer(self.library, self.elements, offset + self.offset)

    __radd__ = __add__


class _Library:
    """The language's functions, on arrays of one library."""

    def __init__(self, first: Any) -> None:
        self._xp = array_api_compat.array_namespace(first)
        self._first = first

    def translated(self, function: JITFunction) -> Callable[..., Any]:
        """Return the Python function of one of ``tilewright.jit``, which takes tiles."""
        source: Any = function.fn
        names = {name: self._value(each) for name, each in source.__globals__.items()}
        return types.FunctionType(
            source.__code__,
            {**names, "__builtins__": builtins},
            source.__name__,
            tuple(map(self._value, source.__defaults__ or ())),
            tuple(
                types.CellType(self._value(each.cell_contents)) for each in source.__closure__ or ()
            ),
        )

    def _value(self, value: Any) -> Any:
        """Return what stands for a value of a kernel."""
        if isinstance(value, tl.constexpr):
            return value.value
        if isinstance(value, JITFunction):
            return lambda *given, **named: self.translated(value)(*given, **named)
        name = getattr(value, "__name__", "")
        if isinstance(value, types.ModuleType):
            return self if name.startswith(_LANGUAGE) else value
        is_of_language = getattr(value, "__module__", "").startswith(_LANGUAGE)
        if is_of_language and callable(value) and not isinstance(value, tl.dtype):
            return lambda *given, **named: getattr(self, name)(*given, **named)
        return value

    def __getattr__(self, name: str) -> Any:
        if name in _MODULES:
            return self
        value = getattr(tl, name, None)
        if isinstance(value, tl.dtype | tl.constexpr) or name == "constexpr":
            return self._value(value)
        if hasattr(self._xp, name) and (hasattr(tl.math, name) or hasattr(tl.libdevice, name)):
            return lambda x: _Tile(self, getattr(self._xp, name)(x.array))
        raise TypeError(f"tl.{name} has no equivalent in array libraries, for a reference twin")

    def operands(self, *values: Any) -> list[Any]:
        """Return arrays of tiles and numbers: numbers in the type of the tile."""
        like = next((each for each in values if isinstance(each, _Tile)), None)
        return [self._operand(each, like) for each in values]

    def _operand(self, value: Any, like: _Tile | None) -> Any:
        if isinstance(value, _Tile):
            return value.array
        if isinstance(value, float) and like is not None:
            if not self._xp.isdtype(like.dtype, "real floating"):
                return self._made(self._xp.asarray, value, None)
            return self._made(self._xp.asarray, value, like.dtype)
        return value

    def _made(self, make: Callable[..., Any], value: Any, dtype: Any) -> Any:
        return make(value, dtype=dtype, device=array_api_compat.device(self._first))

    # -- elements

    def to(self, x: _Tile, dtype: Any) -> _Tile:
        if isinstance(dtype, tl.dtype):
            name = _TYPES.get(str(dtype), str(dtype))
            dtype = getattr(self._xp, name, None) or np.dtype(name)
        return _Tile(self, self._xp.astype(x.array, dtype))

    cast = to

    def abs(self, x: _Tile) -> _Tile:
        return _Tile(self, self._xp.abs(x.array))

    def exp2(self, x: _Tile) -> _Tile:
        return self.exp(x * math.log(2.0))

    def rsqrt(self, x: _Tile) -> _Tile:
        return 1.0 / self.sqrt(x)

    def sigmoid(self, x: _Tile) -> _Tile:
        return 1.0 / (1.0 + self.exp(-x))

    def erf(self, x: _Tile) -> _Tile:
        if array_api_compat.is_torch_array(x.array):
            return _Tile(self, x.array.erf())
        if array_api_compat.is_jax_array(x.array):
            import jax

            return _Tile(self, jax.scipy.special.erf(x.array))
        return _Tile(self, np.vectorize(math.erf, [float])(x.array).astype(x.dtype))

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        return x * y + z

    def maximum(self, x: Any, y: Any) -> _Tile:
        return self.where(x >= y, x, y)

    def minimum(self, x: Any, y: Any) -> _Tile:
        return self.where(x <= y, x, y)

    def clamp(self, x: _Tile, minimum: Any, maximum: Any) -> _Tile:
        return self.minimum(self.maximum(x, minimum), maximum)

    def where(self, condition: Any, x: Any, y: Any) -> _Tile:
        chosen = [
            each if hasattr(each, "shape") else self._made(self._xp.asarray, each, None)
            for each in self.operands(x, y)
        ]
        return _Tile(self, self._xp.where(condition.array, *chosen))

    # -- shapes

    def arange(self, start: int, end: int) -> _Tile:
        device = array_api_compat.device(self._first)
        return _Tile(self, self._xp.arange(start, end, device=device))

    def full(self, shape: Sequence[int], value: Any, dtype: Any) -> _Tile:
        array = self._made(functools.partial(self._xp.full, tuple(shape)), value, None)
        return self.to(_Tile(self, array), dtype)

    def zeros(self, shape: Sequence[int], dtype: Any) -> _Tile:
        return self.full(shape, 0.0, dtype)

    def cdiv(self, x: int, y: int) -> int:
        return -(-x // y)

    def reshape(self, x: _Tile, *shape: Any) -> _Tile:
        extents = shape if len(shape) != 1 or isinstance(shape[0], int) else tuple(shape[0])
        return _Tile(self, self._xp.reshape(x.array, extents))

    def permute(self, x: _Tile, *axes: Any) -> _Tile:
        order = axes if len(axes) != 1 else tuple(axes[0])
        return _Tile(self, self._xp.permute_dims(x.array, order))

    def trans(self, x: _Tile, *axes: Any) -> _Tile:
        return self.permute(x, *(axes or range(len(x.shape))[::-1]))

    def expand_dims(self, x: _Tile, axis: int) -> _Tile:
        return _Tile(self, self._xp.expand_dims(x.array, axis=axis))

    def broadcast_to(self, x: _Tile, *shape: Any) -> _Tile:
        extents = shape if len(shape) != 1 or isinstance(shape[0], int) else tuple(shape[0])
        return _Tile(self, self._xp.broadcast_to(x.array, extents))

    def split(self, x: _Tile) -> tuple[_Tile, _Tile]:
        return x[..., 0], x[..., 1]

    def join(self, x: _Tile, y: _Tile) -> _Tile:
        arrays = self._xp.broadcast_arrays(x.array, y.array)
        return _Tile(self, self._xp.stack(arrays, axis=-1))

    # -- reductions

    def sum(self, x: _Tile, axis: int | None = None, keep_dims: bool = False) -> _Tile:
        return _Tile(self, self._xp.sum(x.array, axis=axis, keepdims=keep_dims))

    def max(self, x: _Tile, axis: int | None = None, keep_dims: bool = False) -> _Tile:
        return _Tile(self, self._xp.max(x.array, axis=axis, keepdims=keep_dims))

    def min(self, x: _Tile, axis: int | None = None, keep_dims: bool = False) -> _Tile:
        return _Tile(self, self._xp.min(x.array, axis=axis, keepdims=keep_dims))

    # -- memory

    def load(self, pointer: _Pointer, mask: Any = None, other: Any = 0, **hints: Any) -> _Tile:
        place = pointer.offset
        if not isinstance(place, _Tile):
            return _Tile(self, pointer.elements[place])
        if mask is None:
            return _Tile(self, pointer.elements[place.array])
        inside, places = self._xp.broadcast_arrays(mask.array, place.array)
        inside, places = _Tile(self, inside), _Tile(self, places)
        found = _Tile(self, pointer.elements[self.where(inside, places, 0).array])
        return self.where(inside, found, other)
