"""Triton's launch call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Launcher:
    """``kernel.run``: Triton's launch call.

    ``run(x, y, z, stream, function, packed metadata, launch metadata, enter hook, exit hook,
    *arguments)`` with every argument of the kernel, constants included, in order. Called with the
    grid as one tuple it is Tilewright's, ``run(grid, stream, values)``.
    """

    __slots__ = ("_launch", "_pick")

    def __init__(
        self, launch: Callable[..., None], pick: Callable[[tuple[Any, ...]], tuple[Any, ...]]
    ) -> None:
        self._launch, self._pick = launch, pick

    def __call__(self, x: Any, y: Any, z: Any, *rest: Any) -> None:
        if not rest:
            self._launch(x, y, z)
            return
        stream, _, _, metadata, enter, leave, *arguments = rest
        if enter is not None and metadata is not None:
            enter(metadata)
        if x > 0 and y > 0 and z > 0:
            self._launch((x, y, z), stream, self._pick(tuple(arguments)))
        if leave is not None and metadata is not None:
            leave(metadata)
