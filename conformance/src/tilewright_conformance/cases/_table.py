"""Families as tables: a decorator that makes cases of the function that is a case's body."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from tilewright_conformance.case import TIME_LIMIT, Case, Needs
from tilewright_conformance.session import Session


class Table:
    """Collects cases; iterating gives them in the order of the text.

        table = Table("control")

        @table("control/while/collatz", "while", dtypes="u64")
        def collatz(session: Session) -> None: ...

        @table("control/print", "print", each={"i8": -5, "u8": 250}, quick=("i8",))
        def integers(session: Session, value: int) -> None: ...      # control/print/i8 and control/print/u8

    Args:
        profile: of all cases.
    """

    def __init__(self, profile: str) -> None:
        self.profile = profile
        self._cases: list[Case] = []

    def __iter__(self) -> Iterator[Case]:
        return iter(self._cases)

    def __call__(
        self,
        id_: str,
        subject: str,
        *,
        each: Mapping[str, Any] | None = None,
        dtypes: str | Callable[[str, Any], str] = "",
        features: str = "",
        tile: int = 1,
        quick: bool | Collection[str] = False,
        time_limit: float = TIME_LIMIT,
    ) -> Callable[[Callable[..., None]], Callable[..., None]]:
        """Decorate the body of a case, or of a case for each of some values.

        Args:
            id_: of the case; where there are several, each has its name behind a slash.
            each: name -> what the body is given after the session.
            dtypes: texts of element types in Tile IR, with blanks between; or a function of a variant's name and value that gives them.
            features: names with blanks between.
            tile: elements of the largest tile.
            quick: all of them, or the names of those that are.
        """

        def decorate(body: Callable[..., None]) -> Callable[..., None]:
            for name, value in ({"": None} if each is None else each).items():
                texts = dtypes if isinstance(dtypes, str) else dtypes(name, value)
                run: Callable[[Session], None] = body if each is None else functools.partial(_given, body, value)
                self._cases.append(
                    Case(
                        f"{id_}/{name}" if name else id_,
                        self.profile,
                        subject,
                        run,
                        Needs(frozenset(texts.split()), features=frozenset(features.split()), tile_elements=tile),
                        time_limit,
                        quick if isinstance(quick, bool) else name in quick,
                        "Python and NumPy",
                    )
                )
            return body

        return decorate


def _given(body: Callable[..., None], value: Any, session: Session) -> None:
    body(session, value)
