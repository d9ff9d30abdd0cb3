"""Groups of configurations that compute the same bits.

A configuration's signature follows from its Tile IR where that states each order of additions, else
from launches on random numbers. Each such launch is repeated with smaller batch sizes, which must
leave the bits of the rows that remain as they are.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright import logs
from tilewright.errors import AutotunerError, LaunchError
from tilewright.passes.analysis.batch_sizes import BatchSize, batch_sizes
from tilewright.passes.analysis.bit_signature import bit_signature, unordered_addition
from tilewright.runtime.compiler.config import Config
from tilewright.runtime.compiler.parallel_compile import Trial
from tilewright.runtime.launch.grid import grid_of
from tilewright.runtime.tuning.probe_arrays import (
    ProbeArguments,
    bits_of_memory,
    digest_of_bits,
    first_wrong,
    float_type_of,
)
from tilewright.runtime.tuning.restored_arrays import changed_by

#: Batch sizes to launch with: a constant, few and many rows with the remainders of common tiles,
#: and one that is divisible as large ones are.
_BATCHES = (1, 3, 16, 33)
#: Launches on different numbers: at least, with smaller batch sizes too, and at most.
_DRAWS, _MAX_DRAWS = 2, 8
#: Elements of f32 and wider, and of narrower floats, whose rounding hides most differences.
_ELEMENTS, _NARROW_ELEMENTS = 1 << 12, 1 << 17

#: A batch size, and the value to launch with.
Batch = tuple[str, int]


@dataclass
class BitGroups:
    """Signatures of configurations, and the reasons why others have none."""

    signatures: dict[Config, str] = field(default_factory=dict)
    failures: list[tuple[Config, Exception]] = field(default_factory=list)


@dataclass(frozen=True)
class ProbedLaunch:
    """The launch whose configurations are probed.

    Attributes:
        kernel: its name, for messages.
        positional, keywords: its arguments by name; grid: its grid.
        prepare: does what precedes a launch of a configuration, with other positional arguments
            and keywords; launch: does it, and launches.
        compile: compiles the kernels of trials, and yields each configuration that is ready.
        trial: makes the trial of a configuration with other values of batch sizes.
        on_error: called with each configuration whose source breaks a rule of the language.
        disqualifying: errors of configurations that cannot be launched.
        batch_names: names of the batch sizes; None where they are to be found.
    """

    kernel: str
    positional: Mapping[str, Any]
    keywords: Mapping[str, Any]
    grid: Any
    prepare: Callable[[Config, dict[str, Any], dict[str, Any]], object]
    launch: Callable[[Config, dict[str, Any], dict[str, Any]], object]
    compile: Callable[[Sequence[Trial]], Any]
    trial: Callable[[Config, Sequence[Batch]], Trial | None]
    on_error: Callable[[Config, Exception], None]
    disqualifying: tuple[type[Exception], ...]
    batch_names: Sequence[str] | None = None

    @property
    def named(self) -> dict[str, Any]:
        return {**self.positional, **self.keywords}

    def groups(self, trials: Sequence[Trial]) -> BitGroups:
        """Return the signatures of trials, and those that have other bits for each launch.

        Raises:
            AutotunerError: an array is neither NumPy's nor PyTorch's.
        """
        found = BitGroups()
        classes = self._classes(trials, found)
        if len(classes) == 1 and None not in (known := {name for name, _ in classes}):
            (text,) = known
            members = classes[0][1]
            found.signatures = {trial.config: _short(str(text)) for trial in members}
            return found
        probed: dict[Config, tuple[list[Trial], list[Batch], Trial]] = {}
        for name, members in classes:
            first = members[0]
            batches = self._batches(first) if name is None else []
            probed[first.config] = members, batches, first
        with_batches = [
            self.trial(config, batches) or trial if batches else trial
            for config, (_, batches, trial) in probed.items()
        ]
        for config in self.compile(with_batches):
            members, batches, trial = probed[config]
            try:
                signature = self._signature(trial, batches)
            except _VaryingBitsError as error:
                reason = AutotunerError(str(error))
                found.failures += [(member.config, reason) for member in members]
            except self.disqualifying as error:
                found.failures.append((config, error))
            except LaunchError as error:
                if not str(error).startswith(ProbeArguments.copier):
                    raise
                raise AutotunerError(
                    f"the bits of {self.kernel} cannot be compared: {error}"
                ) from error
            else:
                found.signatures |= {member.config: signature for member in members}
        return found

    def _classes(
        self, trials: Sequence[Trial], found: BitGroups
    ) -> list[tuple[str | None, list[Trial]]]:
        """Return trials that are known to have equal bits together, each with its signature.

        The signature is None, and the trial alone, where the Tile IR does not tell.
        """
        known: dict[str, list[Trial]] = {}
        unknown: list[tuple[str | None, list[Trial]]] = []
        for trial in trials:
            try:
                modules = [wanted.module() for wanted in trial.wanted]
            except Exception as error:
                self.on_error(trial.config, error)
                continue
            additions = [one for module in modules if (one := unordered_addition(module))]
            if additions:
                reason = (
                    f"{additions[0].spec.name} at {additions[0].location} adds floats to memory "
                    "in the order in which programs run"
                )
                found.failures.append((trial.config, AutotunerError(reason)))
                continue
            texts = [bit_signature(module) for module in modules]
            if texts and None not in texts:
                known.setdefault("; ".join(map(str, texts)), []).append(trial)
            else:
                unknown.append((None, [trial]))
        return [*known.items(), *unknown]

    def _batches(self, trial: Trial) -> list[Batch]:
        """Return the smaller batch sizes to launch a trial with."""
        named = self.named
        if self.batch_names is not None:
            sizes = [BatchSize(name, False) for name in self.batch_names]
        else:
            sizes = batch_sizes(trial.wanted[0].module()) if trial.wanted else []
        found = []
        for size in sizes:
            value = named.get(size.name)
            if type(value) is not int:
                continue
            if size.divides and not self._sizes_grid(trial, size.name):
                _tell(
                    f"{self.kernel} divides by the batch size {size.name}, and the grid is not "
                    f"computed from meta[{size.name!r}]: no smaller batch is compared"
                )
                continue
            found += [(size.name, batch) for batch in _BATCHES if batch < value]
        return found

    def _sizes_grid(self, trial: Trial, name: str) -> bool:
        """Return whether the grid is computed from an argument."""
        meta = {**self.named, **trial.config.all_kwargs()}
        try:
            larger = grid_of(self.grid, {**meta, name: meta[name] << 12})
            return callable(self.grid) and grid_of(self.grid, meta) != larger
        except Exception:  # it needs more than the arguments
            return False

    # ---- launches

    def _signature(self, trial: Trial, batches: Sequence[Batch]) -> str:
        """Return the signature of what a configuration computes.

        Raises:
            _VaryingBitsError: its bits change from launch to launch, or with the batch.
        """
        stored = changed_by(trial)
        digests: list[str] = []
        draw, draws = 0, _DRAWS
        while draw < draws:
            arguments = ProbeArguments(draw)

            def left(
                step: Callable[[Config, dict[str, Any], dict[str, Any]], object],
                batch: Batch | None = None,
                arguments: ProbeArguments = arguments,
            ) -> dict[str, Any]:
                arrays = self._after(step, trial.config, arguments, batch)
                return {
                    name: bits_of_memory(array)
                    for name, array in arrays.items()
                    if not stored or name.partition("[")[0] in stored
                }

            whole = left(self.launch)
            if draw < _DRAWS:
                before = left(self.prepare)
                for batch in (None, *batches):
                    self._compare(before, left(self.launch, batch), whole, batch)
            digests += [f"{name} {digest_of_bits(bits)}" for name, bits in whole.items()]
            if draw == 0:
                draws = self._draws(stored)
            draw += 1
        return _short("\n".join(digests))

    def _after(
        self,
        step: Callable[[Config, dict[str, Any], dict[str, Any]], object],
        config: Config,
        arguments: ProbeArguments,
        batch: Batch | None,
    ) -> dict[str, Any]:
        """Return copies of the arrays after a step of a launch."""
        copied, arrays = arguments.copies(self.named)
        if batch is not None:
            copied[batch[0]] = batch[1]
        positional = {name: copied[name] for name in self.positional}
        step(config, positional, {name: copied[name] for name in self.keywords})
        return arrays

    def _compare(
        self,
        before: Mapping[str, Any],
        part: Mapping[str, Any],
        whole: Mapping[str, Any],
        batch: Batch | None,
    ) -> None:
        for name, bits in part.items():
            if first_wrong(before[name], bits, whole[name]) is None:
                continue
            if batch is None:
                raise _VaryingBitsError(f"bits of argument {name} change from launch to launch")
            size, value = batch
            raise _VaryingBitsError(
                f"bits of argument {name} depend on the batch: with {size}={value} rows that both "
                f"launches compute differ from those with {size}={self.named[size]}. If {size} is "
                "no batch size, name those in autotune(invariant=[...])"
            )

    def _draws(self, stored: Mapping[str, bool]) -> int:
        """Return the number of draws whose outputs show any difference in their order."""
        arrays = {
            name: array
            for name, array in ProbeArguments(0).copies(self.named)[1].items()
            if not stored or name.partition("[")[0] in stored
        }
        types = [float_type_of(array) for array in arrays.values()]
        if not any(types):
            return _DRAWS
        is_wide = any(type_ is not None and type_.bits >= 32 for type_ in types)
        elements: int = sum(array.size for array in arrays.values())
        needed = -(-(_ELEMENTS if is_wide else _NARROW_ELEMENTS) // max(1, elements))
        return min(max(needed, _DRAWS), _MAX_DRAWS)


class _VaryingBitsError(Exception):
    """The bits of a configuration depend on more than its arguments' values."""


def _tell(message: str) -> None:
    if logs.TUNING.on(logging.INFO):
        logs.TUNING.tell(message, logging.INFO)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
