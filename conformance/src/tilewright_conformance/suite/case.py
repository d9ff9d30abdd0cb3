"""A case of the suite, its requirements on a backend, and its outcome.

    def body(session: Session) -> None:
        x = session.rng.standard_normal(1000).astype(np.float32)
        out = np.empty_like(x)
        session.launch(exp_kernel, (8,), x, out, 1000, BLOCK=128)
        session.check(out, np.exp(x.astype(np.float64)), ulp=2)

    needs = Needs(dtypes=frozenset({"f32"}))
    Case("math/exp/f32/random", profile="math", subject="exp", run=body, needs=needs)

A case does not test a backend that lacks what the case needs: the engine demands a refusal there
(see :mod:`tilewright_conformance.suite.engine.judge`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tilewright.plugins.manifest import Capabilities

if TYPE_CHECKING:
    from tilewright_conformance.suite.session import Session

#: The profiles a backend can claim, in the order of a bring-up.
PROFILES = (
    "core",
    "math",
    "memory",
    "control",
    "matmul",
    "atomics",
    "descriptors",
    "fp8",
    "launch",
    "autotune",
    "exact",
    "gradients",
    "perf",
)

#: Seconds a case may take where it does not say otherwise, its compilation included.
TIME_LIMIT = 30.0

_ID = re.compile(r"[a-z0-9][A-Za-z0-9_.+-]*(/[A-Za-z0-9_.+-]+)+")


class Status(StrEnum):
    """The status of a case after its run."""

    PASSED = "passed"
    #: a wrong result, a broken promise, or silent acceptance of what the backend does not declare
    FAILED = "failed"
    #: the backend does not declare what the case needs, and refused it with a diagnostic of its
    #: own
    NOT_SUPPORTED = "not-supported"
    ERROR = "error"  #: an exception that is no refusal, or a refusal of what the backend declares
    CRASHED = "crashed"  #: the process that ran the case died, or took more memory than it may
    TIMED_OUT = "timed-out"
    SKIPPED = "skipped"  #: not run; the message says why


@dataclass(frozen=True)
class Needs:
    """A case's requirements, in the terms of :class:`tilewright.plugins.manifest.Capabilities`.

    Attributes:
        dtypes: element types, by their text in Tile IR (``"f32"``, ``"f8e4m3fn"``).
        dot: pairs (operand, accumulator) of element types.
        dot_precisions: values of ``input_precision`` other than the default.
        dot_shape: (M, N, K) of the smallest dot; none where there is no dot.
        orders: pairs (operation, order) of reductions, scans and dots in another order than
            ``any``.
        atomics: pairs (element type, kind).
        features: names such as ``"descriptors"``, ``"print"``.
        any_extent: tile extents that are no powers of two.
        tile_elements: elements of the largest tile.
    """

    dtypes: frozenset[str] = frozenset()
    dot: frozenset[tuple[str, str]] = frozenset()
    dot_precisions: frozenset[str] = frozenset()
    dot_shape: tuple[int, int, int] | None = None
    orders: frozenset[tuple[str, str]] = frozenset()
    atomics: frozenset[tuple[str, str]] = frozenset()
    features: frozenset[str] = frozenset()
    any_extent: bool = False
    tile_elements: int = 1

    def missing(self, capabilities: Capabilities) -> tuple[str, ...]:
        """Describe the requirements that a backend does not declare, in a fixed order."""
        found = [f"dtype {name}" for name in sorted(self.dtypes - capabilities.dtypes)]
        found += [
            f"dot {a} into {b}" for a, b in sorted(self.dot) if b not in capabilities.dot.get(a, ())
        ]
        found += [
            f"dot precision {name}"
            for name in sorted(self.dot_precisions.difference(capabilities.dot_precisions))
        ]
        if self.dot_shape is not None and any(
            own < minimum for own, minimum in zip(self.dot_shape, capabilities.min_dot, strict=True)
        ):
            found.append(f"dot of {'x'.join(map(str, self.dot_shape))}")
        found += [
            f"order {order} of {name}"
            for name, order in sorted(self.orders)
            if order not in capabilities.orders.get(name, ())
        ]
        found += [
            f"atomic {kind} on {element}"
            for element, kind in sorted(self.atomics)
            if kind not in capabilities.atomics.get(element, ())
        ]
        found += [f"feature {name}" for name in sorted(self.features - capabilities.features)]
        if self.any_extent and capabilities.power_of_two:
            found.append("extents that are no powers of two")
        if self.tile_elements > capabilities.max_tile_elements:
            found.append(f"tiles of {self.tile_elements} elements")
        return tuple(found)

    def capabilities(self) -> Capabilities:
        """The capabilities of a backend that declares these requirements and nothing more."""
        dot: dict[str, tuple[str, ...]] = {}
        for operand, accumulator in sorted(self.dot):
            dot[operand] = (*dot.get(operand, ()), accumulator)
        orders: dict[str, frozenset[str]] = {}
        for name, order in sorted(self.orders):
            orders[name] = orders.get(name, frozenset()) | {order}
        atomics: dict[str, frozenset[str]] = {}
        for element, kind in sorted(self.atomics):
            atomics[element] = atomics.get(element, frozenset()) | {kind}
        return Capabilities(
            dtypes=self.dtypes,
            dot=dot,
            dot_precisions=("ieee", *sorted(self.dot_precisions)),
            min_dot=self.dot_shape or (1, 1, 1),
            orders=orders,
            atomics=atomics,
            power_of_two=not self.any_extent,
            max_tile_elements=self.tile_elements,
            features=self.features,
        )

    def __or__(self, other: Needs) -> Needs:
        """The needs of both."""
        shapes = [shape for shape in (self.dot_shape, other.dot_shape) if shape is not None]
        return Needs(
            self.dtypes | other.dtypes,
            self.dot | other.dot,
            self.dot_precisions | other.dot_precisions,
            (min(s[0] for s in shapes), min(s[1] for s in shapes), min(s[2] for s in shapes))
            if shapes
            else None,
            self.orders | other.orders,
            self.atomics | other.atomics,
            self.features | other.features,
            self.any_extent or other.any_extent,
            max(self.tile_elements, other.tile_elements),
        )


@dataclass(frozen=True)
class Case:
    """One thing a backend must do.

    Attributes:
        id: stable across versions of the suite: family, subject, dtype and variant,
            ``"math/exp/f32/special"``.
        profile: one of :data:`PROFILES`.
        subject: the operation or function that is tested (``"exp"``, ``"tl.sum"``): reports group
            by it.
        run: the test; it returns where all is well, and raises otherwise (an AssertionError is a
            failure, everything else an error). It is called anew for each run, in any process, and
            takes its random numbers from ``session.rng`` alone.
        needs: what the backend has to declare for the case to apply.
        time_limit: seconds of wall time, compilation included.
        quick: whether ``--quick`` runs it.
        source: a line that says what the expected values come from, for reports.
        alone: no other case runs beside it: it measures time.
    """

    id: str
    profile: str
    subject: str
    run: Callable[[Session], None] = field(compare=False, repr=False)
    needs: Needs = Needs()
    time_limit: float = TIME_LIMIT
    quick: bool = False
    source: str = ""
    alone: bool = False

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise ValueError(
                "the id of a case is words of letters, digits and _.+- with slashes between them, "
                f"not {self.id!r}"
            )
        if self.profile not in PROFILES:
            raise ValueError(
                f"{self.id}: the profile must be one of {', '.join(PROFILES)}, not {self.profile!r}"
            )
        if not self.subject or not self.time_limit > 0:
            raise ValueError(
                f"{self.id}: a case has a subject and a positive time limit, not {self.subject!r} "
                f"and {self.time_limit!r}"
            )

    @property
    def family(self) -> str:
        """The first word of the id."""
        return self.id.partition("/")[0]


@dataclass(frozen=True)
class Outcome:
    """The outcome of one case.

    Attributes:
        case: the case's id.
        status: see :class:`Status`.
        message: why, where it did not pass; for ``not-supported`` the backend's own diagnostic.
        exception: name of the exception's type, where there was one.
        numbers: measurements: ``ulp`` (maximum error in units in the last place), ``compared``
            (elements), and what the case noted.
        seconds: wall time.
    """

    case: str
    status: Status
    message: str = ""
    exception: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", Status(self.status))
        object.__setattr__(self, "numbers", MappingProxyType(dict(self.numbers)))

    def as_json(self) -> dict[str, Any]:
        """The outcome as JSON-able data; :meth:`from_json` reads it."""
        return {
            "case": self.case,
            "status": self.status.value,
            "message": self.message,
            "exception": self.exception,
            "numbers": dict(self.numbers),
            "seconds": self.seconds,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Outcome:
        """Raises TypeError or ValueError where ``data`` is not of the form of :meth:`as_json`."""
        return cls(**data)
