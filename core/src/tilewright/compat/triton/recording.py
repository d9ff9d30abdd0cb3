"""Recording launches: ``TILEWRIGHT_CORPUS=FOLDER`` has each launch leave a line of facts in FOLDER.

A line is a JSON object: the kernel's module and qualified name, its arguments (types, values of
constants and numbers, shapes and strides of tensors), launch options, grid, and how many
configurations an autotuner chose from. No source text is written, and of what tensors hold only
what :data:`contents_of` tells.

Launches whose tensors are PyTorch's fake ones, which have no memory, are recorded and not run; an
autotuner then takes the first configuration that its pruning leaves. So the launches of a program
for a GPU can be recorded on a machine without one.
"""

from __future__ import annotations

import enum
import json
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from tilewright.compat.triton.runtime.autotuner import Autotuner
from tilewright.compat.triton.runtime.jit import JITFunction
from tilewright.language.definitions.callable import JitCallable
from tilewright.language.value_types.dtypes import dtype
from tilewright.runtime.arguments import array_protocols
from tilewright.runtime.arguments.array_protocols import ALIGNMENT, ArrayKind
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.arguments.dtypes import dtype_text
from tilewright.runtime.compiler import specialize
from tilewright.runtime.compiler.config import Config
from tilewright.runtime.compiler.specialize import Signature, of_one_float, unwrap

#: What the program is doing, as whoever drives it says: a part of each line.
case: str = ""

#: Gives what is noted of the contents of a tensor of whole numbers, as JSON has it, or None.
contents_of: Callable[[Any], Any] | None = None

#: Whether launches of tensors that do have memory are run, too.
runs_launches: bool = True

_folder: Path | None = None
_written = threading.Lock()
#: configurations that the autotuner around the launch chose from; None while it measures them
_configurations: ContextVar[int | None] = ContextVar("configurations", default=0)

_RUN, _TUNED_RUN, _BEST = JITFunction.run, Autotuner.run, Autotuner._best
_SPECIALIZERS = (
    array_protocols.describers,
    specialize.SPECIALIZE,
    specialize.SPECIALIZE_UNALIGNED,
    specialize.DO_NOT_SPECIALIZE,
)


def start(folder: str | Path) -> None:
    """Record all launches of this process, in ``folder``."""
    global _folder
    _folder = Path(folder)
    _folder.mkdir(parents=True, exist_ok=True)
    if _find_fake not in array_protocols.finders:
        array_protocols.finders.append(_find_fake)
    _forget_fake_types()
    for owner, name, recording, _ in _METHODS:
        setattr(owner, name, recording)


def stop() -> None:
    """Launch as usual again."""
    global _folder
    _folder = None
    if _find_fake in array_protocols.finders:
        array_protocols.finders.remove(_find_fake)
    _forget_fake_types()
    for owner, name, _, usual in _METHODS:
        setattr(owner, name, usual)


def _run(kernel: JITFunction, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
    """Record a launch, and run it if it can run."""
    if warmup:
        return _RUN(kernel, *args, grid=grid, warmup=True, **kwargs)
    if _configurations.get() is not None:
        write(launch(kernel, args, kwargs, grid))
    return None if _stands((args, kwargs)) else _RUN(kernel, *args, grid=grid, **kwargs)


def _tuned_run(
    tuner: Autotuner, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any
) -> Any:
    if warmup:
        return _TUNED_RUN(tuner, *args, grid=grid, warmup=True, **kwargs)
    token = _configurations.set(0)
    try:
        return tuner.launch_best(grid, *args, **kwargs)  # in Python, which asks ``_best``
    finally:
        _configurations.reset(token)


def _best(tuner: Autotuner, args: tuple[Any, ...], grid: Any, kwargs: dict[str, Any]) -> Config:
    left = tuner.prune_configs(kwargs)
    if _stands((args, kwargs)):
        found = left[0]
    else:
        token = _configurations.set(None)
        try:
            found = _BEST(tuner, args, grid, kwargs)
        finally:
            _configurations.reset(token)
    _configurations.set(len(left))
    return found


#: class, method, what stands in its place while launches are recorded, and the method itself
_METHODS: tuple[tuple[type, str, Any, Any], ...] = (
    (JITFunction, "run", _run, _RUN),
    (Autotuner, "run", _tuned_run, _TUNED_RUN),
    (Autotuner, "_best", _best, _BEST),
)


# ---- the facts of a launch


def launch(
    kernel: JITFunction, args: tuple[Any, ...], kwargs: dict[str, Any], grid: Any
) -> dict[str, Any]:
    """The facts of a launch, as JSON has them."""
    bound, kinds, options = kernel.bind(*args, **kwargs)
    signature = Signature.of(kernel.params, map(of_one_float, kinds), bound)
    values = dict(zip(signature.types, bound, strict=True))
    return {
        "case": case,
        "module": kernel.fn.__module__,
        "kernel": kernel.fn.__qualname__,
        "arguments": [
            _argument(name, signature.types[name], value, signature.attributes)
            for name, value in values.items()
        ],
        "options": {name: _constant(value) for name, value in options.items() if value is not None},
        "grid": _extents(grid, values),
        "configurations": _configurations.get() or 0,
    }


def _extents(grid: Any, values: Mapping[str, Any]) -> list[int]:
    """The programs along three axes of a grid, as launches take it."""
    found = grid(values) if callable(grid) else grid
    extents = [int(extent) for extent in (found if isinstance(found, Iterable) else (found,))]
    return [*extents, 1, 1, 1][:3]


def _argument(
    name: str, type_: Any, value: Any, attributes: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """One argument of a launch."""
    facts: dict[str, Any] = {"name": name, "type": type_}
    if isinstance(type_, tuple):
        facts["type"] = "tuple"
        facts["items"] = [
            _argument(f"{name}.{number}", item, value[number], attributes)
            for number, item in enumerate(type_)
        ]
    elif type_ == "constexpr":
        facts["value"] = _constant(unwrap(value))
    elif isinstance(value, TensorDescriptor):
        facts["shape"], facts["strides"], facts["block"] = (
            _integers(value.shape),
            _integers(value.strides),
            _integers(value.block_shape),
        )
        if value.padding != "zero":
            facts["padding"] = value.padding
    else:
        if type_.startswith("*"):
            facts.update(_layout(value))
            if (
                contents_of is not None
                and type_[1] in "iu"
                and (held := contents_of(value)) is not None
            ):
                facts["contents"] = held
        else:
            facts["value"] = _constant(_number(value))
        if "divisibility" in attributes.get(name, ()):
            facts["aligned"] = True
    return facts


def _layout(tensor: Any) -> dict[str, Any]:
    """Return shape and strides, in elements, of an object that a kernel takes as a pointer.

    Empty where it does not have them.
    """
    shape, stride = getattr(tensor, "shape", None), getattr(tensor, "stride", None)
    if shape is None:
        return {}
    if callable(stride):
        return {"shape": _integers(shape), "strides": _integers(stride())}
    return {
        "shape": _integers(shape),
        "strides": [step // tensor.itemsize for step in tensor.strides],
    }


def _integers(values: Iterable[Any]) -> list[int]:
    return [int(value) for value in values]


def _number(value: Any) -> Any:
    """A number of another library as Python's."""
    return value.item() if hasattr(value, "item") else value


def _constant(value: Any) -> Any:
    """A constant as JSON has it."""
    if isinstance(value, enum.Enum):  # before integers, which its members may be
        return {"enum": f"{type(value).__module__}:{type(value).__qualname__}", "name": value.name}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, dtype):
        return {"dtype": dtype_text(value)}
    if isinstance(value, JitCallable):
        return {"function": f"{value.__module__}:{value.__qualname__}"}
    if isinstance(value, tuple | list):
        return {"tuple": [_constant(unwrap(item)) for item in value]}
    return {"unknown": f"{type(value).__module__}:{type(value).__qualname__}"}


# ---- tensors without memory


def _is_fake(type_: type) -> bool:
    """Return whether a type's instances are PyTorch's fake tensors, without importing PyTorch."""
    return any(
        base.__name__ == "FakeTensor" and base.__module__ == "torch._subclasses.fake_tensor"
        for base in type_.__mro__
    )


def _stands(value: Any) -> bool:
    """Return whether a launch of these arguments is not to be run.

    One is a fake tensor, or none is run at all.
    """
    if not runs_launches:
        return True
    if isinstance(value, Mapping):
        return any(map(_stands, value.values()))
    if isinstance(value, tuple | list):
        return any(map(_stands, value))
    if isinstance(value, TensorDescriptor):
        return _stands(value.base)
    return _is_fake(type(value))


def _find_fake(type_: type) -> Callable[[Any], ArrayKind] | None:
    """Return the describer of fake tensors: their memory begins at a multiple of 16 bytes."""
    return _describe_fake if _is_fake(type_) else None


def _describe_fake(value: Any) -> ArrayKind:
    offset = int(value.storage_offset()) * int(value.element_size())
    device = value.device
    return ArrayKind(
        dtype_text(value.dtype), offset % ALIGNMENT == 0, (device.type, device.index or 0)
    )


def _forget_fake_types() -> None:
    """Describe fake tensors anew."""
    for known in _SPECIALIZERS:
        for type_ in [each for each in known if _is_fake(each)]:
            del known[type_]


# ---- files


def write(facts: dict[str, Any]) -> None:
    """Append a line to this process' file."""
    assert _folder is not None
    line = json.dumps(facts) + "\n"
    with _written, (_folder / f"launches-{os.getpid()}.jsonl").open("a") as file:
        file.write(line)


def read(folder: str | Path) -> list[dict[str, Any]]:
    """The lines of all files of a folder."""
    files: Sequence[Path] = sorted(Path(folder).glob("launches-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


if os.environ.get("TILEWRIGHT_CORPUS"):
    start(os.environ["TILEWRIGHT_CORPUS"])
