"""Probes: small programs that show the behavior of public names against an independent oracle.

    @tw.jit
    def running_sum(x, y, N: tl.constexpr):
        at = tl.arange(0, N)
        tl.store(y + at, tl.cumsum(tl.load(x + at)))

    @probe("tl.cumsum")
    def _cumsum(on: Machine, rng: Any) -> None:
        x, y = rng.standard_normal(64), np.empty(64)
        on(running_sum)[(1,)](x, y, N=64)
        np.testing.assert_allclose(y, np.cumsum(x))

A probe raises where a name does not do what it should. It launches through the machine that it
receives, so that one text runs on every backend; the first probe of a function that has a page of
its own is also the example of that page.
"""

# Kernels are typed by the compiler, call by call; to Python they are untyped.
# mypy: ignore-errors

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from tilewright_conformance.api_coverage.machines import Machine

Body = Callable[[Machine, Any], None]
B = TypeVar("B", bound=Body)


@dataclass(frozen=True)
class Probe:
    """One program.

    Attributes:
        title: the file of its family and its name in there.
        names: what it shows, as the table of the surface spells them (``tl.load``, ``tensor.sum``,
            ``triton.jit``).
        body: ``body(machine, random generator)``; raises where something is wrong.
        host: it launches no kernel that depends on a backend, so it is run once.
        feature: what a backend must declare for it; on others the probe is run by ``otherwise``.
        languages: names below ``tl.extra`` that it uses; where no installed backend brings one of
            them it is not run.
        target: the kind of targets whose assembly it needs (``"cuda"``); on others it is run by
            ``otherwise``.
        otherwise: shows the documented error of backends that lack ``feature`` or ``target``.
    """

    title: str
    names: tuple[str, ...]
    body: Body
    host: bool = False
    feature: str = ""
    target: str = ""
    languages: tuple[str, ...] = ()
    otherwise: Body | None = None


#: every probe that was declared, by title
PROBES: dict[str, Probe] = {}


def probe(
    *names: str,
    host: bool = False,
    feature: str = "",
    target: str = "",
    languages: tuple[str, ...] = (),
    otherwise: Body | None = None,
) -> Callable[[B], B]:
    """Declare the function as a probe of ``names``; see :class:`Probe`."""

    def declare(body: B) -> B:
        add_probe(
            body.__name__.strip("_"),
            names,
            body,
            host=host,
            feature=feature,
            target=target,
            languages=languages,
            otherwise=otherwise,
        )
        return body

    return declare


def add_probe(name: str, names: Iterable[str], body: Body, **options: Any) -> None:
    """Declare a probe that is made from a row of a table.

    Raises:
        ValueError: its family has another probe of that name.
    """
    title = f"{body.__module__.rpartition('.')[2]}.{name}"
    if title in PROBES:
        raise ValueError(f"there are two probes {title!r}")
    PROBES[title] = Probe(title, tuple(names), body, **options)
