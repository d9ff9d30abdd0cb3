"""All cases of the suite: finding the families, and looking cases up by id, pattern or profile."""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import importlib
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

import numpy as np

from tilewright_conformance.suite.case import PROFILES, Case

#: The packages of the suite's own families.
CASES = tuple(f"tilewright_conformance.cases.{folder}" for folder in (*PROFILES, "mixed"))


class CatalogueError(ValueError):
    """A family breaks a rule of the catalogue, or an id or pattern names no case."""


class Catalogue:
    """The cases of some families; a family is imported when it is first needed.

    Args:
        packages: each a package whose modules are families.
    """

    def __init__(self, packages: Sequence[str] = CASES) -> None:
        self.packages = tuple(packages)
        self._modules: dict[str, str] = {}
        for name in self.packages:
            # computed: families of cases, the suite's own or a vendor's
            package = importlib.import_module(name)
            for module in pkgutil.iter_modules(package.__path__):
                if module.name.startswith("_"):
                    continue
                if module.name in self._modules:
                    raise CatalogueError(
                        f"two families are named {module.name!r}: {self._modules[module.name]} and "
                        f"{name}.{module.name}"
                    )
                self._modules[module.name] = f"{name}.{module.name}"
        self._families: dict[str, dict[str, Case]] = {}

    @property
    def families(self) -> tuple[str, ...]:
        """The names of the families, sorted."""
        return tuple(sorted(self._modules))

    def family(self, name: str) -> dict[str, Case]:
        """The cases of a family by id, in its order.

        Raises:
            CatalogueError: there is none of that name, or it breaks a rule: ids begin with the
                family's name and are unique.
        """
        found = self._families.get(name)
        if found is None:
            if name not in self._modules:
                raise CatalogueError(
                    f"there is no family {name!r}; families are {', '.join(self.families)}"
                )
            with _uncollected():
                # computed: families of cases, the suite's own or a vendor's
                module = importlib.import_module(self._modules[name])
                found = {}
                for case in module.cases():
                    if case.family != name:
                        raise CatalogueError(
                            f"{module.__name__}: the id of each case begins with {name}/, and one "
                            f"is {case.id!r}"
                        )
                    if case.id in found:
                        raise CatalogueError(
                            f"{module.__name__}: two cases have the id {case.id!r}"
                        )
                    found[case.id] = case
            if not found:
                raise CatalogueError(f"{module.__name__} has no cases")
            self._families[name] = found
        return found

    def __iter__(self) -> Iterator[Case]:
        for name in self.families:
            yield from self.family(name).values()

    def __getitem__(self, id_: str) -> Case:
        """The case of an id.

        Raises:
            CatalogueError: there is none.
        """
        family = id_.partition("/")[0]
        found = self.family(family).get(id_) if family in self._modules else None
        if found is None:
            raise CatalogueError(f"the suite has no case {id_!r}")
        return found

    def matching(self, pattern: str) -> list[Case]:
        """The cases whose ids match a pattern of the shell (``math/exp/*``).

        An id matches itself, and a prefix that ends in a slash all below it.
        """
        if pattern.endswith("/"):
            pattern += "*"
        literal = pattern.partition("/")[0]
        families = (literal,) if literal in self._modules and "/" in pattern else self.families
        return [
            case
            for name in families
            for case in self.family(name).values()
            if case.id == pattern or fnmatchcase(case.id, pattern)
        ]

    def select(
        self, *, profiles: Iterable[str] = (), patterns: Iterable[str] = (), quick: bool = False
    ) -> list[Case]:
        """The cases of the named profiles that match one of the patterns, in the catalogue's order.

        No profile or no pattern stands for all.

        Raises:
            CatalogueError: there is no such profile, or a pattern matches nothing.
        """
        profiles, patterns = tuple(profiles), tuple(patterns)
        for profile in profiles:
            if profile not in PROFILES:
                raise CatalogueError(
                    f"there is no profile {profile!r}; profiles are {', '.join(PROFILES)}"
                )
        chosen: set[str] | None = None
        for pattern in patterns:
            matched = {case.id for case in self.matching(pattern)}
            if not matched:
                raise CatalogueError(f"no case matches {pattern!r}")
            chosen = matched | (chosen or set())
        return [
            case
            for case in self
            if (not profiles or case.profile in profiles)
            and (chosen is None or case.id in chosen)
            and (case.quick or not quick)
        ]

    def digest(self) -> str:
        """A digest of the ids and profiles of all cases, equal for equal catalogues."""
        text = "\n".join(sorted(f"{case.id} {case.profile}" for case in self))
        return hashlib.sha256(text.encode()).hexdigest()


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Disable garbage collection in the block.

    Collections while thousands of lasting objects are made take half as long again as making them.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def catalogue(packages: tuple[str, ...] = CASES) -> Catalogue:
    """The catalogue of this process."""
    return _catalogue(packages)  # named or not, the packages have one


_catalogue = functools.cache(Catalogue)


def drawn(cases: Sequence[Case], count: int, seed: int) -> list[Case]:
    """``count`` of some cases, drawn by a seed, in their order: what a run of a sample runs."""
    kept = np.random.default_rng(seed).permutation(len(cases))[:count]
    return [cases[index] for index in sorted(kept)]
