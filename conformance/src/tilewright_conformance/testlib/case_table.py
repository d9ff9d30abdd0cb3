"""Families as tables: a decorator that makes cases of the function that is a case's body."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from tilewright_conformance.suite.case import TIME_LIMIT, Case, Needs
from tilewright_conformance.suite.session import Session

#: The needs of a case that runs no kernel, or one whose types every backend has.
NOTHING = Needs()


def elements(*names: str, tile: int = 1, features: Collection[str] = (), **more: Any) -> Needs:
    """The needs of a kernel of some element types, by their names in Tile IR.

    Booleans lie in memory as i8.

    Args:
        tile: elements of the largest tile.
        more: other attributes of :class:`Needs`.
    """
    return Needs(frozenset(names) | ({"i8"} if "i1" in names else set()), tile_elements=tile, features=frozenset(features), **more)


class Table:
    """Cases made of the functions that are their bodies, iterated in the order of the text.

        case = Table("memory", "memory")

        @case("sizes", "tl.load", each={"i8": "i8", "f32": "f32"}, needs=elements, quick=("f32",))
        def sizes(session: Session, element: str) -> None: ...  # memory/sizes/i8, memory/sizes/f32

        @case("zero_grid", "launch", needs=elements("f32", tile=64))
        def zero_grid(session: Session) -> None: ...               # memory/zero_grid

    Args:
        family: the first word of the ids.
        profile: of the cases; those that need an fp8 type are of profile fp8.
        source: the origin of the expected values.
    """

    def __init__(self, family: str, profile: str, source: str = "NumPy") -> None:
        self.family, self.profile, self.source = family, profile, source
        self._cases: list[Case] = []

    def __iter__(self) -> Iterator[Case]:
        return iter(self._cases)

    def __call__(
        self,
        id_: str,
        subject: str,
        *,
        each: Mapping[str, Any] | Collection[str] | None = None,
        needs: Needs | Callable[[Any], Needs] = NOTHING,
        quick: bool | Collection[str] = False,
        time_limit: float = TIME_LIMIT,
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Decorate the body of a case, or of one for each of some values.

        Args:
            id_: what follows the family; where there are several, each has its name behind a slash.
            each: name -> what the body is given after the session; or names that are given
                themselves.
            needs: of the case; where there are several, what makes them of each value.
            quick: whether the case is; or the names of those that are.
        """

        def decorate(body: Callable[..., None]) -> Callable[..., None]:
            variants: dict[str, Any] = {"": None} if each is None else dict(each) if isinstance(each, Mapping) else {name: name for name in each}
            for name, value in variants.items():
                own = needs(value) if callable(needs) else needs
                fp8 = any(element.startswith("f8") for element in own.dtypes)
                self._cases.append(
                    Case(
                        f"{self.family}/{id_}/{name}" if name else f"{self.family}/{id_}",
                        profile="fp8" if fp8 else self.profile,
                        subject=subject,
                        run=functools.partial(_call, body, value) if each is not None else body,
                        needs=own,
                        time_limit=time_limit,
                        quick=quick if isinstance(quick, bool) else name in quick,
                        source=self.source,
                    )
                )
            return body

        return decorate


def _call(body: Callable[..., None], value: Any, session: Session) -> None:
    body(session, value)
