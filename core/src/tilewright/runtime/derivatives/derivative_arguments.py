"""Arguments that a derivative takes beside its kernel's: arrays of tangents and cotangents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.derivatives.analysis.block_coordinates import EXTENT, STRIDE
from tilewright.errors import LaunchError, similar, with_help
from tilewright.ir.type_text import parse_type
from tilewright.ir.types import FloatType, Type
from tilewright.runtime.arguments.array_checks import layout_of
from tilewright.runtime.arguments.array_copies import clone
from tilewright.runtime.arguments.array_protocols import (
    ALIGNMENT,
    ArrayKind,
    address_of,
    is_array,
    is_numpy_array,
)
from tilewright.runtime.arguments.descriptor import TensorDescriptor
from tilewright.runtime.arguments.device_bytes import SavedBytes
from tilewright.runtime.arguments.dtypes import IR_TEXT, ITEM_SIZE
from tilewright.runtime.compiler.specialize import SPECIALIZE, DescriptorKind


def taken(
    keywords: dict[str, Any], prefix: str, wanted: Mapping[str, str], kernel: str
) -> dict[str, Any]:
    """Remove the derivative's own arguments from a launch's keywords, and return them by name.

    Args:
        wanted: the arguments -> those of the kernel that they are about.

    Raises:
        LaunchError: one is missing.
    """
    try:
        found = {own: keywords[own] for own in wanted}
    except KeyError:
        missing = [own for own in wanted if own not in keywords]
        given = [name for name in keywords if name.startswith(prefix)]
        remedy = (
            similar(missing[0], given) or f"pass {missing[0]}=, an array like {wanted[missing[0]]}"
        )
        raise LaunchError(
            with_help(f"{kernel} takes {', '.join(map(repr, missing))} by keyword", remedy)
        ) from None
    for own in found:
        del keywords[own]
    return found


def kinds_of_own(own: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the kinds of a derivative's own arguments; see ``specialize``."""
    return tuple([SPECIALIZE[type(value)](value) for value in own.values()])


def _array_of(kind: Any) -> ArrayKind | None:
    """Return the kind of an argument's array; None where the argument is a number."""
    if isinstance(kind, DescriptorKind):
        return kind.base
    return kind if isinstance(kind, ArrayKind) else None


class OwnParameters:
    """Types and attributes of a derivative's own parameters.

    Attributes:
        elements: parameter -> the elements of its array.
        facts: parameter -> attributes.

    Raises:
        LaunchError: an argument is no array of floats, or is not one like the kernel's.
    """

    def __init__(
        self,
        own: Mapping[str, Any],
        kinds: Iterable[Any],
        originals: Mapping[str, tuple[Any, Any]],
        devices: Iterable[tuple[str, int]],
    ) -> None:
        """Check the arguments.

        Args:
            own: the arguments, by name.
            kinds: their kinds.
            originals: argument -> the kernel's argument of which it holds the tangent or cotangent,
                and its kind.
            devices: those on which the kernel's arrays lie.
        """
        self.elements: dict[str, Type] = {}
        self.facts: dict[str, Mapping[str, Any]] = {}
        devices = set(devices)
        for (name, _), kind in zip(own.items(), kinds, strict=True):
            array = _array_of(kind)
            _, original = originals[name]
            if array is None:
                if _array_of(original) is not None:
                    raise LaunchError(f"{name} must be an array: the argument is one")
                continue
            is_descriptor = isinstance(kind, DescriptorKind)
            if isinstance(original, DescriptorKind) != is_descriptor:
                wanted = "an array" if is_descriptor else "a TensorDescriptor"
                raise LaunchError(f"{name} must be {wanted}: the argument is one")
            if isinstance(kind, DescriptorKind):
                self._check_blocks(name, kind, original)
            if devices and array.device is not None and array.device not in devices:
                raise LaunchError(
                    f"{name} lies on {array.device[0]}:{array.device[1]}, where the kernel's "
                    "arrays do not"
                )
            element = parse_type(IR_TEXT[array.dtype])
            if not isinstance(element, FloatType):
                raise LaunchError(f"{name} must be an array of floats, not of {array.dtype}")
            self.elements[name] = element
            facts = {"divisibility": ALIGNMENT} if array.divisible or is_descriptor else {}
            if isinstance(kind, DescriptorKind) and kind.whole_rows:
                facts["extent_divisibility"] = ALIGNMENT // ITEM_SIZE[array.dtype]
            if facts:
                self.facts[name] = facts

    @staticmethod
    def _check_blocks(name: str, kind: DescriptorKind, original: DescriptorKind) -> None:
        blocks, wanted = (text.type.partition("[")[2] for text in (kind, original))
        if blocks != wanted:
            raise LaunchError(
                f"{name} must be a descriptor of blocks [{wanted[:-2]}], not [{blocks[:-2]}]"
            )
        if kind.padding != "zero":
            raise LaunchError(f"{name} must be padded with zero: there is no cotangent outside")


def check_apart(
    originals: Mapping[str, Any], outputs: Iterable[str], cotangents: Mapping[str, Any]
) -> None:
    """Check that no input is the array to which the kernel wrote an output, nor two gradients one.

    Args:
        originals: the kernel's arguments, by name.
        cotangents: the arrays to which gradients are written, by the name of the input.

    Raises:
        LaunchError: two are one array.
    """
    written = {_address(originals[name]): name for name in outputs}
    addresses: dict[int, str] = {}
    for name, cotangent in cotangents.items():
        other = addresses.setdefault(_address(cotangent), name)
        if other != name:
            raise LaunchError(f"the gradients of {other} and {name} are one array")
        output = written.get(_address(originals[name]))
        if output is not None and output != name:
            raise LaunchError(
                f"{name} and {output} are one array, so that the adjoint does not find in {name} "
                "what the kernel read there: write the output to another array"
            )


def are_apart(arrays: Iterable[Any]) -> bool:
    """Return whether all arrays have different addresses."""
    addresses = [_address(array) for array in arrays]
    return len(set(addresses)) == len(addresses)


def _address(value: Any) -> int:
    """Return the address of an array, or of a descriptor's tensor; a number of its own for others.

    Those have no memory.
    """
    array = value.base if type(value) is TensorDescriptor else value
    data_ptr = getattr(array, "data_ptr", None)
    if data_ptr is not None:
        # an empty tensor's address is zero
        return int(data_ptr()) or -id(value)
    # whether another object is an array takes longer to find out
    if is_numpy_array(array) or is_array(array):
        return address_of(array) or -id(value)
    return -id(value)


def scalars_of(named: Mapping[str, Any], prefix: str = "") -> dict[str, int | float]:
    """Return the numbers among a launch's arguments, those in tuples as ``t.0``.

    Those of a descriptor's tensor are ``x.shape(0)`` and ``x.stride(0)``.
    """
    found: dict[str, int | float] = {}
    for name, value in named.items():
        if type(value) is int:
            found[f"{prefix}{name}" if prefix else name] = value
        elif isinstance(value, tuple):
            items = {str(number): item for number, item in enumerate(value)}
            found.update(scalars_of(items, f"{prefix}{name}."))
        elif isinstance(value, int | float):
            found[f"{prefix}{name}"] = value
        elif isinstance(value, TensorDescriptor):
            path = f"{prefix}{name}"
            for axis, (extent, stride) in enumerate(zip(value.shape, value.strides, strict=True)):
                found[EXTENT.format(path, axis)] = int(extent)
                found[STRIDE.format(path, axis)] = int(stride)
    return found


def check_layouts(own: Mapping[str, Any], originals: Mapping[str, tuple[Any, Any]]) -> None:
    """Check that arrays have the shape and strides of those whose offsets the kernel applies.

    Raises:
        LaunchError: one has not.
    """
    for name, value in own.items():
        like, _ = originals[name]
        if _is_laid_out_like(value, like):
            continue
        if isinstance(value, TensorDescriptor) and isinstance(like, TensorDescriptor):
            found: Any = (tuple(value.shape), tuple(value.strides))
            wanted: Any = (tuple(like.shape), tuple(like.strides))
        else:
            found, wanted = layout_of(value), layout_of(like)
        if found is None or wanted is None:
            continue
        if found[0] != wanted[0] or _strides(*found) != _strides(*wanted):
            raise LaunchError(
                f"{name} has shape {found[0]} and strides {found[1]}, and the array that it is "
                f"about has shape {wanted[0]} and strides {wanted[1]}: the kernel applies the same "
                "offsets to both"
            )


def _is_laid_out_like(value: Any, like: Any) -> bool:
    """Return whether two arrays of one library have the same layout; False where that is slow."""
    if type(value) is not type(like):
        return False
    if is_numpy_array(value):
        same = value.strides == like.strides and value.itemsize == like.itemsize
        return bool(same and value.shape == like.shape)
    stride = getattr(value, "stride", None)
    return callable(stride) and value.shape == like.shape and stride() == like.stride()


def _strides(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    return [stride for extent, stride in zip(shape, strides, strict=True) if extent > 1]


def copied_like(name: str, value: Any) -> Any:
    """Return a copy of an array, or of the tensor of a descriptor, with the same strides.

    Raises:
        LaunchError: a copy would have other strides.
    """
    if isinstance(value, TensorDescriptor):
        base = copied_like(name, value.base)
        return TensorDescriptor(base, value.shape, value.strides, value.block_shape)
    copy = clone(value)
    if isinstance(copy, SavedBytes):
        copy = copy.new_array()
    before, after = layout_of(value), layout_of(copy)
    if before is not None and after is not None and _strides(*before) != _strides(*after):
        raise LaunchError(
            f"{name} has strides {before[1]}, which a copy has not: pass a contiguous array, with "
            "which the kernel was launched too"
        )
    return copy
