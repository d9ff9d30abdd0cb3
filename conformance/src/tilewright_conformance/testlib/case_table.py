"""Statements of cases: a family's table, with a decorator for bodies and a method for rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from tilewright_conformance.oracles.dtypes import IR
from tilewright_conformance.suite.case import TIME_LIMIT, Case, Needs
from tilewright_conformance.suite.session import Session

#: The needs of a case that runs no kernel, or one whose types every backend has.
NOTHING = Needs()


def elements(*names: str, tile: int = 1, features: Collection[str] = (), **more: Any) -> Needs:
    """The needs of a kernel of some element types, by their names in Tile IR or in the language.

    Booleans lie in memory as i8.

    Args:
        tile: elements of the largest tile.
        more: other attributes of :class:`Needs`; sets are frozen.
    """
    texts = frozenset(IR.get(name, name) for name in names)
    carriers = {"i8"} if "i1" in texts else set()
    for name, value in more.items():
        more[name] = frozenset(value) if isinstance(value, set) else value
    return Needs(texts | carriers, tile_elements=tile, features=frozenset(features), **more)


class Table:
    """Cases made of the functions that are their bodies, iterated in the order of the text.

        case = Table("memory", "memory")

        @case("sizes", "tl.load", each={"i8": "i8", "f32": "f32"}, needs=elements, quick=("f32",))
        def sizes(session: Session, element: str) -> None: ...  # memory/sizes/i8, memory/sizes/f32

        @case("zero_grid", "launch", needs=elements("f32", tile=64))
        def zero_grid(session: Session) -> None: ...               # memory/zero_grid

    A family whose cases are rows of data yields ``table.case(...)`` for each.

    Args:
        family: the first word of the ids.
        profile: of the cases.
        source: the origin of the expected values.
        narrow: the profile of the cases that need an fp8 type.
    """

    def __init__(
        self, family: str, profile: str, source: str = "NumPy", narrow: str = "fp8"
    ) -> None:
        self.family, self.profile, self.source, self.narrow = family, profile, source, narrow
        self._cases: list[Case] = []

    def __iter__(self) -> Iterator[Case]:
        return iter(self._cases)

    def case(
        self,
        id_: str,
        subject: str,
        run: Callable[[Session], None],
        *types: str,
        quick: bool = False,
        source: str = "",
        **needs: Any,
    ) -> Case:
        """Return a case of a kernel of some element types; it is not kept.

        Args:
            id_: the part of the id behind the family.
            types, needs: as :func:`elements` takes them.
        """
        return self._made(
            id_, subject, run, elements(*types, **needs), quick, source or self.source
        )

    def _made(
        self,
        id_: str,
        subject: str,
        run: Callable[[Session], None],
        needs: Needs,
        quick: bool,
        source: str,
        time_limit: float = TIME_LIMIT,
    ) -> Case:
        is_narrow = any(element.startswith("f8") for element in needs.dtypes)
        profile = self.narrow if is_narrow else self.profile
        id_ = f"{self.family}/{id_}"
        return Case(id_, profile, subject, run, needs, time_limit, quick, source)

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
            variants: dict[str, Any] = (
                {"": None}
                if each is None
                else dict(each)
                if isinstance(each, Mapping)
                else {name: name for name in each}
            )
            for name, value in variants.items():
                own = needs(value) if callable(needs) else needs
                run = functools.partial(_call, body, value) if each is not None else body
                is_quick = quick if isinstance(quick, bool) else name in quick
                path = f"{id_}/{name}" if name else id_
                self._cases.append(
                    self._made(path, subject, run, own, is_quick, self.source, time_limit)
                )
            return body

        return decorate


def _call(body: Callable[..., None], value: Any, session: Session) -> None:
    body(session, value)
