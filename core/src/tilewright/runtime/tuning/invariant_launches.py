"""Launches of an autotuner's kernel that compare the bits of its configurations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tilewright.runtime import tuning_records
from tilewright.runtime.compiler import parallel_compile
from tilewright.runtime.compiler.config import Config
from tilewright.runtime.compiler.parallel_compile import Trial
from tilewright.runtime.tuning import tuning_keys
from tilewright.runtime.tuning.bit_groups import Batch, ProbedLaunch
from tilewright.runtime.tuning.candidates import TuningTarget
from tilewright.runtime.tuning.invariant_tuning import Anchor, InvariantTuning


def begin(
    kernel: Any,
    types: Any,
    named: Mapping[str, Any],
    configs: Sequence[Config],
    place: TuningTarget,
    *,
    anchors: Mapping[Any, Anchor],
    mode: str,
    keeps: bool,
    has_identity: bool,
    source_file: str | None,
) -> InvariantTuning:
    """Return the choice of bits for a tuning, which may be made already.

    Args:
        kernel: the innermost kernel.
        types: those of the arrays, for anchors that are known in this process alone.
        named: the launch's arguments by name.
        anchors: those of this process, by name.
        mode: of the tuning.
        keeps: whether results are kept on disk.
        has_identity: whether the tuning has a text that is the same in every process.
        source_file: the file that defines the kernel.
    """
    identity = tuning_keys.record_key(kernel, (), named, configs, place) if has_identity else None
    name: Any = (types, place.target.key)
    if identity is not None:
        text = ";".join(filter(None, (identity.key, tuning_keys.bits_text(place))))
        name = identity = identity._replace(key=text)
    own = mode != "deterministic" and keeps
    find = partial(tuning_records.find, own=own, source_file=source_file)
    return InvariantTuning(
        getattr(kernel, "__name__", "kernel"),
        configs,
        name,
        identity,
        anchors.get(name),
        keeps=mode in ("on", "refresh") and keeps,
        find=None if mode in ("memory", "model") else find,
    )


class InvariantLaunch:
    """A launch whose configurations are compared.

    Attributes:
        positional: the positional arguments by name.
    """

    def __init__(
        self,
        fn: Any,
        arg_names: Sequence[str],
        args: tuple[Any, ...],
        grid: Any,
        keywords: dict[str, Any],
        on_error: Callable[[Config, Exception], None],
    ) -> None:
        """Begin.

        Args:
            fn: what is launched; on_error: called with each configuration that cannot be.
        """
        self._fn, self._grid, self._keywords, self._on_error = fn, grid, keywords, on_error
        self.positional = dict(zip(arg_names, args, strict=False))

    def probed(
        self,
        *,
        prepare: Callable[..., object],
        launch: Callable[..., object],
        compiling: Mapping[str, Any],
        disqualifying: tuple[type[Exception], ...],
        batch_names: Sequence[str] | None,
    ) -> ProbedLaunch:
        """Return the description of the launch for its comparison.

        Args:
            compiling: keywords of ``compile_trials``. The others: see :class:`ProbedLaunch`.
        """
        return ProbedLaunch(
            kernel=self._fn.__name__,
            positional=self.positional,
            keywords=self._keywords,
            grid=self._grid,
            prepare=prepare,
            launch=partial(launch, self._grid),
            compile=partial(parallel_compile.compile_trials, on_error=self._on_error, **compiling),
            trial=self.trial,
            on_error=self._on_error,
            disqualifying=disqualifying,
            batch_names=batch_names,
        )

    def trial(self, config: Config, batches: Sequence[Batch] = ()) -> Trial | None:
        """Make a trial that compiles a configuration for smaller batch sizes, too.

        None where it cannot be launched.
        """
        found = parallel_compile.trials_of(
            [config], partial(self._warm_up, batches), self._on_error
        )
        return found[0] if found else None

    def _warm_up(self, batches: Sequence[Batch], config: Config) -> None:
        self._warm_up_with({}, config)
        for name, value in batches:
            self._warm_up_with({name: value}, config)

    def _warm_up_with(self, replaced: Mapping[str, int], config: Config) -> None:
        positional = [replaced.get(name, value) for name, value in self.positional.items()]
        keywords = {name: replaced.get(name, value) for name, value in self._keywords.items()}
        self._fn.run(
            *positional, grid=self._grid, warmup=True, **{**config.all_kwargs(), **keywords}
        )
