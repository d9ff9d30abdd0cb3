"""Records of a session: a tree of scopes and launches for Hatchet, and a list for a time line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Node:
    """A scope, a frame of Python, or a kernel.

    Attributes:
        metrics: sums; of a kernel ``count`` and ``time (ns)``, and what its launches say
            (``flops16``, ``bytes`` …).
        facts: what is the same for all launches of a kernel (``device_id`` …).
    """

    name: str
    metrics: dict[str, float] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    children: dict[str, Node] = field(default_factory=dict)

    def at(self, path: Sequence[str]) -> Node:
        """The node below this one, made where it is not there."""
        here = self
        for name in path:
            here = here.children.setdefault(name, Node(name))
        return here

    def add(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self.metrics[name] = self.metrics.get(name, 0) + value

    def literal(self) -> dict[str, Any]:
        """The node and all below it as Hatchet writes them."""
        return {
            "frame": {"name": self.name, "type": "function"},
            "metrics": {**self.metrics, **self.facts},
            "children": [child.literal() for child in self.children.values()],
        }


@dataclass(frozen=True)
class Span:
    """One launch on a time line, in microseconds since the session began."""

    name: str
    path: tuple[str, ...]
    kind: str
    device: int
    begin: float
    length: float

    def literal(self) -> dict[str, Any]:
        """The launch as an event of Chrome's trace viewer."""
        return {
            "name": self.name,
            "cat": "kernel",
            "ph": "X",
            "ts": self.begin,
            "dur": self.length,
            "pid": self.kind,
            "tid": self.device,
            "args": {"call_stack": ["ROOT", *self.path]},
        }
