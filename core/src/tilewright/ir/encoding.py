"""The representation of values on a target, as the text form and the op table see it.

Tile IR itself says nothing of threads and memory. A toolkit that lowers it to threads assigns each
tile a *layout*, and has types that speak of places in memory; both are encodings: values with a
text, equal where the text is. Within a module an encoding is written once, in the header, under a
name such as ``#L0``, and by that name everywhere else. What encodings there are, an
:class:`~tilewright.ir.table.OpTable` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    from tilewright.ir.types import Type


@runtime_checkable
class Encoding(Protocol):
    """Frozen, compared and hashed by value.

    Attributes:
        keyword: what its text begins with: ``keyword<...>``.
        prefix: what the names that modules give begin with.
    """

    keyword: ClassVar[str]
    prefix: ClassVar[str]

    def text(self) -> str:
        """Return the text between the brackets; the keyword's parser in the op table reads it."""
        ...

    def misfit(self, type_: Type) -> str:
        """Why a value of a type cannot have it as its layout; the empty string where it can."""
        ...


#: Formats an encoding: its name, or all of it.
EncodingText = Callable[[Encoding], str]


def full_text(encoding: Encoding) -> str:
    """``keyword<...>``."""
    return f"{encoding.keyword}<{encoding.text()}>"


class EncodingNames:
    """The names that the encodings of one module have, given out in order of appearance:
    ``names(encoding)`` is ``#L0``."""

    __slots__ = ("_counts", "_texts")

    def __init__(self) -> None:
        self._texts: dict[Encoding, str] = {}
        self._counts: dict[str, int] = {}

    def __call__(self, encoding: Encoding) -> str:
        text = self._texts.get(encoding)
        if text is None:
            count = self._counts.get(encoding.prefix, 0)
            self._counts[encoding.prefix] = count + 1
            text = self._texts[encoding] = f"#{encoding.prefix}{count}"
        return text

    def definitions(self) -> list[str]:
        """A line for each: ``#L0 = layout<...>``."""
        return [f"{name} = {full_text(encoding)}" for encoding, name in self._texts.items()]
