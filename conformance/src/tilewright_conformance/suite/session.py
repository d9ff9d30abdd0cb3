"""The backend under test, as cases see it: launches, arrays, comparison and capabilities."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

import tilewright as tw
from tilewright.errors import BackendError, TilewrightError
from tilewright.ir import Module
from tilewright.ir.types import DescriptorType, PointerType, Type
from tilewright.plugins.manifest import Capabilities, Device, Memory, Parameter, Target
from tilewright.plugins.registry import Backend, registry
from tilewright.runtime.devices import device_registry
from tilewright_conformance.suite.capture import captured_output
from tilewright_conformance.suite.comparison import MismatchError, Rules, compare
from tilewright_conformance.suite.placement import Placement

Array = np.ndarray[Any, Any]


class Subject:
    """The first device of a backend: what is tested. One serves all sessions of a process.

    Raises:
        BackendError: the backend is not installed, is broken, has no device, declares no
            capabilities, or has no ``tilewright_memory``.
    """

    def __init__(self, name: str) -> None:
        self.backend: Backend = registry().get(name)
        self.device: Device = device_registry.find(self.backend, None)
        self.target: Target = device_registry.target_of(self.backend, self.device)
        self.memory: Memory = self.backend.require("tilewright_memory", device=self.device)
        if self.target.capabilities is None:
            raise BackendError(f"backend {name!r} declares no capabilities")
        self.capabilities: Capabilities = self.target.capabilities


@functools.cache
def _reference() -> Subject:
    return Subject("reference")


class Session:
    """The context of one run of one case.

    Args:
        subject: the backend under test.
        case_id: with ``seed``, it determines the random numbers.
        seed: of the run.
        quick: a case may do less.
        judges_speed: whether demands on times must hold; without it, a case measures once.

    Attributes:
        rng: the case's random numbers: the same for a case and a seed in every process, whatever
            ran before.
        numbers: measurements for the report; ``ulp`` (the maximum error where units in the last
            place are the only bound), ``ulp_allowed`` (there) and ``compared`` (elements) are kept
            by :meth:`check`.
        checks: how many demands were made so far. A case that makes none is an error: it could not
            fail.
    """

    def __init__(
        self,
        subject: Subject,
        case_id: str,
        seed: int = 0,
        *,
        quick: bool = False,
        judges_speed: bool = True,
    ) -> None:
        self.subject, self.case_id, self.seed, self.quick = subject, case_id, seed, quick
        self.judges_speed = judges_speed
        digest = hashlib.sha256(case_id.encode()).digest()
        self.rng = np.random.default_rng([seed, *np.frombuffer(digest, np.uint32).tolist()])
        self.numbers: dict[str, float] = {}
        self.checks = 0

    # ---- what the backend is

    @property
    def backend(self) -> str:
        """The backend's name."""
        return self.subject.backend.name

    @property
    def capabilities(self) -> Capabilities:
        """The backend's declared capabilities."""
        return self.subject.capabilities

    @property
    def strict(self) -> dict[str, Any]:
        """Launch options for functions as exact as the shared ones.

        Pass them as ``session.launch(..., **session.strict)``.
        """
        return {"math": "strict"} if "math" in self.subject.backend.manifest.options else {}

    @property
    def reference(self) -> Session:
        """The same case on the reference interpreter, for expected values.

        Its random numbers are a fresh start of this session's.
        """
        return Session(_reference(), self.case_id, self.seed, quick=self.quick)

    # ---- running

    def launch(self, kernel: Any, grid: Any, *args: Any, **options: Any) -> Any:
        """Run ``kernel[grid](*args, **options)`` on the backend and copy the arrays back.

        Args:
            kernel: a kernel of ``tilewright.jit``, with whatever stands around it (heuristics, an
                autotuner).
            args: NumPy arrays of any strides (views of one array share memory on the device as they
                do on the host), ``TensorDescriptor`` over such, ``tilewright.reinterpret`` of such
                (bits of bf16 and fp8), :class:`~tilewright_conformance.suite.placement.Addresses`,
                numbers, tuples of these.
            options: constants, further arguments by name, launch options.

        Returns:
            The kernel launch's result.

        Raises:
            OutOfBoundsWriteError: the kernel wrote to memory around an array.
        """
        place = self.placement()
        placed = [place(value) for value in args]
        named = {name: place(value) for name, value in options.items()}
        with self.use():
            found = kernel[grid](*placed, **named)
        place.fetch()
        return found

    def run_module(
        self,
        module: Module,
        arguments: Sequence[Any],
        grid: tuple[int, int, int] = (1, 1, 1),
        *,
        with_passes: bool = True,
        **options: Any,
    ) -> None:
        """Run a module's kernel as the runtime would: passes, lowering, loading and launching.

        ``module`` stays as it is.

        Args:
            arguments: as the reference takes them: arrays (bf16 and fp8 as bits), numbers,
                ``DescriptorValue``; arrays are changed in place.
            with_passes: run the passes; without them the backend lowers the module as it stands,
                except for operations that its manifest wants decomposed.
            options: launch options, beyond the manifest's defaults; multiplication and addition are
                not fused unless they say so.
        """
        from tilewright.ir.parser import parse_module
        from tilewright.runtime.compiler.compile import lower_module, take_apart

        backend = self.subject.backend
        options = {**backend.manifest.options, "enable_fp_fusion": False, **options}
        fresh = parse_module(str(module), backend.table)
        if with_passes:
            artifact = lower_module(fresh, options, backend, self.subject.target)
            code, parameters = artifact.code, artifact.parameters
        else:
            parameters = tuple(
                Parameter(argument.name, str(argument.type)) for argument in fresh.kernel.arguments
            )
            take_apart(fresh, backend)
            code = backend.require(
                "tilewright_lower", module=fresh, target=self.subject.target, options=options
            )
        loaded = backend.require("tilewright_load", code=code, device=self.subject.device)
        launch = backend.require(
            "tilewright_launcher", loaded=loaded, parameters=parameters, options=options
        )
        place = self.placement()
        placed = [
            place(value, _element(argument.type))
            for value, argument in zip(arguments, module.kernel.arguments, strict=True)
        ]
        launch(grid, None, tuple(placed))
        place.fetch()

    @staticmethod
    def run_reference(
        module: Module, arguments: Sequence[Any], grid: tuple[int, int, int] = (1, 1, 1)
    ) -> None:
        """Interpret a module's kernel; arrays among ``arguments`` are changed in place."""
        from tilewright.reference.interpreter import run

        with np.errstate(all="ignore"):
            run(module, list(arguments), grid)

    def placement(self) -> Placement:
        """A place for arrays that outlive a launch.

        ``place = session.placement(); x = place(array); ...; place.fetch()``
        """
        return Placement(self.subject.device, self.subject.memory)

    def use(self) -> contextlib.AbstractContextManager[Any]:
        """Run the block's launches on the backend, with arrays of a :meth:`placement`.

        ``with session.use(): kernel[grid](...)``
        """
        return tw.backend(self.backend)

    def synchronize(self) -> None:
        """Wait for the device."""
        self.subject.memory.synchronize()

    @contextlib.contextmanager
    def printed(self, errors: bool = False) -> Iterator[list[str]]:
        """Collect the lines that kernels print in the block, complete when the block ends.

        Kernels print by way of Python or straight to the process's output.

        Args:
            errors: collect standard error, too.
        """
        lines: list[str] = []
        text = io.StringIO()
        with (
            captured_output((1, 2) if errors else (1,)) as native,
            contextlib.redirect_stdout(text),
        ):
            yield lines
            with contextlib.suppress(
                BackendError
            ):  # a kernel has failed, and the block has seen it
                self.synchronize()
        lines += (text.getvalue() + "".join(native)).splitlines()

    # ---- demanding

    def check(
        self,
        found: Array,
        expected: ArrayLike,
        *,
        ulp: float = 0.0,
        rtol: float = 0.0,
        atol: Any = 0.0,
        type_: Type | str | None = None,
        zero_sign: bool = True,
        flush: bool = False,
        name: str = "result",
    ) -> None:
        """Demand that an array holds the expected values.

        See :func:`~tilewright_conformance.suite.comparison.compare` and ``Rules`` for the
        arguments.

        Raises:
            MismatchError: it does not.
        """
        self.checks += 1
        error = compare(found, expected, type_, Rules(ulp, rtol, atol, zero_sign, flush), name)
        if not (rtol or np.any(atol)) and error >= self.numbers.get("ulp", 0.0):
            self.numbers.update(ulp=error, ulp_allowed=ulp)
        self.numbers["compared"] = self.numbers.get("compared", 0) + found.size

    def require(self, condition: object, message: str) -> None:
        """Demand that something holds.

        Raises:
            MismatchError: with ``message``.
        """
        self.checks += 1
        if not condition:
            raise MismatchError(message)

    @contextlib.contextmanager
    def raises(
        self,
        kind: type[BaseException] | tuple[type[BaseException], ...] = TilewrightError,
        match: str = "",
    ) -> Iterator[None]:
        """Demand that the block raises an exception of a kind whose text matches ``match``.

        Raises:
            MismatchError: nothing was raised, or the text is another; an exception of another kind
                propagates.
        """
        self.checks += 1
        wanted = (
            kind.__name__ if isinstance(kind, type) else " or ".join(one.__name__ for one in kind)
        )
        try:
            yield
        except kind as error:
            if not re.search(match, str(error)):
                raise MismatchError(
                    f"the {type(error).__name__} should say {match!r}; it says: {error}"
                ) from error
            return
        raise MismatchError(
            f"a {wanted} was due{f', saying {match!r}' if match else ''}, and nothing was raised"
        )

    def note(self, **numbers: float) -> None:
        """Keep measurements for the report."""
        self.numbers.update(numbers)


def _element(type_: Type) -> str:
    """The element type of a pointer or descriptor argument, as Tile IR text; else empty."""
    if isinstance(type_, PointerType):
        return str(type_.pointee)
    return str(type_.element) if isinstance(type_, DescriptorType) else ""
