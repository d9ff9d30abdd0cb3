"""Compilation of a kernel: frontend, passes, the backend's lowering, behind the disk cache.

Each stage is timed. The cache key is made of the source's key, the specialisation, the options, the
target, which globals may be read and the versions of everything that writes code, so that a warm
start runs neither frontend nor lowering.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.environment import ALLOW_GLOBALS, flag
from tilewright.errors import BackendError, LoweringError, TilewrightError, write_reproducer
from tilewright.forks import setting_up
from tilewright.ir.order import ANY, CONTRACT, TREE
from tilewright.plugins.manifest import CodeObject, Parameter, Target
from tilewright.plugins.registry import Backend, registry
from tilewright.recursion import SPLIT, deep_recursion
from tilewright.runtime.arguments.float_arguments import facts_of_compilation, widened
from tilewright.runtime.compiler.capability_check import check_declared, check_options
from tilewright.runtime.compiler.specialize import attribute_facts
from tilewright.runtime.preparation import Preparation
from tilewright.runtime.storage.artifact import Artifact
from tilewright.runtime.storage.cache_keys import (
    UnstableError,
    backend_version,
    core_version,
    digest,
    libraries_text,
    stable_text,
)
from tilewright.runtime.storage.disk_cache import disk_cache

if TYPE_CHECKING:
    from tilewright.ir import Module
    from tilewright.language.definitions.callable import JitCallable


@dataclass(frozen=True)
class Specialization:
    """One kernel to compile: source, types, constants, facts about arguments, options.

    Attributes:
        fn: the kernel.
        signature: parameter -> type text, nested tuples of them, or ``"constexpr"``.
        constants: values of the constexpr entries; items of tuples are named ``t.0``.
        attributes: facts of runtime entries, ``{"x": {"divisibility": 16}}``.
        options: every option of the backend's manifest.
        name: the kernel's symbol, where it is not the function's name.
        ir_override: path of a file of Tile IR text that is compiled in place of the source.
        before_passes: done to the frontend's module, before any pass.
        differentiated: calls of functions that have a derivative of their own stay calls, for
            ``before_passes``.
    """

    fn: JitCallable
    signature: Mapping[str, Any]
    constants: Mapping[str, Any] = field(default_factory=dict)
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    name: str | None = None
    ir_override: str | None = None
    before_passes: Preparation | None = None
    differentiated: bool = False


def cache_key(kernel: Specialization, backend: Backend, target: Target) -> str | None:
    """Return the disk cache's key (hex SHA-256); None if a constant has no stable text."""
    target = backend.completed(target)
    try:
        key = digest(
            core_version(),
            backend_version(backend),
            kernel.fn.cache_key,
            stable_text(dict(kernel.signature)),
            stable_text(dict(kernel.constants)),
            attribute_facts(kernel.attributes),
            stable_text(dict(kernel.options)),
            target.key,
            stable_text((kernel.name, getattr(kernel.fn, "version", None))),
            "" if kernel.ir_override is None else Path(kernel.ir_override).read_text(),
            libraries_text(kernel.options.get("extern_libs")),
            "any global" if flag(ALLOW_GLOBALS) else "",
        )
    except UnstableError:
        return None
    if kernel.before_passes is not None:
        key = digest(key, "before passes", kernel.before_passes.name)
    return digest(key, "differentiated") if kernel.differentiated else key


@setting_up()
def compile_kernel(
    kernel: Specialization,
    backend: Backend,
    target: Target,
    *,
    keep_stages: bool = False,
    anew: bool = False,
    texts: bool = True,
    preparation: Preparation | None = None,
) -> Artifact:
    """Compile a kernel, or find it in the disk cache.

    Args:
        keep_stages: compile anew and keep the text of every stage, the frontend's and each pass's
            included, for inspection.
        anew: compile though the disk cache has the kernel, and keep the result there.
        texts: keep the stages that are texts; else the code alone.
        preparation: done to the module before it is lowered.

    Raises:
        CompilationError: the source breaks a rule of the language.
        LoweringError, OutOfResources: the backend cannot lower it.
    """
    target = backend.completed(target)
    key = cache_key(kernel, backend, target)
    if key is not None and preparation is not None:
        key = digest(key, preparation.name)
    cache = disk_cache()
    if key is not None and not keep_stages and not anew:
        found = cache.get(key, kernel.fn.__name__)
        if found is not None:
            return found
    try:
        with deep_recursion():
            artifact = _compiled(kernel, backend, target, key, keep_stages, preparation)
    except RecursionError:
        name = kernel.fn.__name__
        raise kernel.fn.definition_error(
            f"{name} is nested too deeply to be compiled by backend {backend.name!r}", SPLIT
        ) from None
    if not texts:
        artifact.code.stages = {
            name: stage
            for name, stage in artifact.code.stages.items()
            if not isinstance(stage, str)
        }
    if key is not None and not keep_stages:
        try:
            cache.put(artifact)
        except TypeError as error:
            raise _defect(
                backend, f"tilewright_lower gave metadata that is not JSON-able: {error}"
            ) from error
    return artifact


def _compiled(
    kernel: Specialization,
    backend: Backend,
    target: Target,
    key: str | None,
    keep_stages: bool,
    preparation: Preparation | None,
) -> Artifact:
    """Compile a kernel without reading the disk cache."""
    timings: dict[str, float] = {}
    stages: dict[str, str | bytes] = {}
    started = time.perf_counter()
    module = build_module(kernel, backend, target)
    timings["frontend"] = _milliseconds(started)
    if keep_stages:
        stages["source"] = kernel.fn.src
        stages["frontend"] = str(module)
    return lower_module(
        module,
        kernel.options,
        backend,
        target,
        key=key or "",
        timings=timings,
        stages=stages,
        keep_stages=keep_stages,
        preparation=preparation,
    )


def build_module(kernel: Specialization, backend: Backend, target: Target) -> Module:
    """Build the Tile IR of a kernel with the frontend alone, and prepare it for the passes.

    Raises:
        CompilationError: the source breaks a rule of the language.
    """
    if kernel.ir_override is not None:
        from tilewright.ir.parser import parse_module

        module = parse_module(Path(kernel.ir_override).read_text(), backend.table)
        if kernel.before_passes is not None:
            kernel.before_passes.run(module)
        return module
    from tilewright.frontend.compile import compile_function
    from tilewright.language.options import GIVEN, Options

    options = dict(kernel.options)
    known = {name: options.pop(name) for name in GIVEN if name in options}
    attributes = facts_of_compilation(kernel.attributes)

    def compiled(signature: Mapping[str, Any]) -> Module:
        return compile_function(
            kernel.fn,
            signature,
            kernel.constants,
            attributes,
            Options(
                target=_with_replaced_dots(backend.completed(target), kernel.before_passes),
                default_order=_default_order(kernel, backend.completed(target)),
                differentiated=kernel.differentiated,
                extra=options,
                **known,
            ),
        )

    module = compiled(kernel.signature)
    if len(attributes) < len(kernel.attributes):
        signature = widened(module, kernel.signature, kernel.attributes)
        module = module if signature is None else compiled(signature)
    if kernel.options.get("invariant"):
        # compilers fuse a multiplication with an addition or not by what else the code holds
        for function in module.functions.values():
            function.attributes[CONTRACT] = False
    if kernel.name is not None:
        _rename(module, kernel.name)
    if kernel.before_passes is not None:
        kernel.before_passes.run(module)
    return module


def _default_order(kernel: Specialization, target: Target) -> str:
    """Return the order of the reductions and scans that state none.

    It is the kernel's own, else ``tree`` for invariant launches on targets that have it.
    """
    order = kernel.fn.order
    if order != ANY or not kernel.options.get("invariant") or target.capabilities is None:
        return order
    orders = target.capabilities.orders
    return TREE if all(TREE in orders.get(name, ()) for name in ("reduce", "scan")) else ANY


def _with_replaced_dots(target: Target, preparation: Preparation | None) -> Target:
    """Return a target that also has the dots which a preparation replaces."""
    capabilities = target.capabilities
    if preparation is None or capabilities is None or not preparation.replaced_dots:
        return target
    dots = {**capabilities.dot, **dict(preparation.replaced_dots)}
    return replace(target, capabilities=replace(capabilities, dot=dots))


def _rename(module: Module, name: str) -> None:
    function = module.kernel
    del module.functions[function.name]
    function.name = name
    module.add(function)


@setting_up()
def lower_module(
    module: Module,
    options: Mapping[str, Any],
    backend: Backend,
    target: Target,
    *,
    key: str = "",
    timings: dict[str, float] | None = None,
    stages: dict[str, str | bytes] | None = None,
    keep_stages: bool = False,
    preparation: Preparation | None = None,
) -> Artifact:
    """Check a module against the target's capabilities, run the backend's passes and lower it.

    The passes change the module in place.

    Raises:
        LoweringError, OutOfResources: the module needs undeclared capabilities, or the backend
            cannot lower it.
    """
    from tilewright.passes import pipeline

    timings = {} if timings is None else timings
    stages = {} if stages is None else stages
    target = backend.completed(target)
    if target.capabilities is not None:
        started = time.perf_counter()
        check_options(options, target.capabilities, backend.name, module.kernel.name)
        check_declared(module, target.capabilities, backend.name)
        timings["declared"] = _milliseconds(started)
    passes, own = _passes(backend, target, options)
    started = time.perf_counter()
    try:
        if keep_stages:
            for number, pass_ in enumerate(passes, 1):
                pass_started = time.perf_counter()
                pipeline.run(module, (pass_,))
                name = f"{number} {pipeline.pass_name(pass_)}"
                timings[name] = _milliseconds(pass_started)
                stages[name] = str(module)
        else:
            pipeline.run(module, passes)
    except TilewrightError:
        raise
    except Exception as error:
        if not own:
            raise
        raise _defect(
            backend, f"one of its passes failed: {type(error).__name__}: {error}"
        ) from error
    timings["passes"] = _milliseconds(started)
    if preparation is not None:
        preparation.run(module)
    parameters = parameters_of(module)
    if backend.manifest.lowers or backend.manifest.computes:
        started = time.perf_counter()
        take_apart(module, backend)
        timings["decomposed"] = _milliseconds(started)
        if keep_stages:
            stages["decomposed"] = str(module)
    started = time.perf_counter()
    try:
        code = backend.require("tilewright_lower", module=module, target=target, options=options)
    except BackendError as error:
        raise _with_reproducer(error, module) from error.__cause__
    timings["lower"] = _milliseconds(started)
    if not isinstance(code, CodeObject):
        raise _defect(backend, f"tilewright_lower gave a {type(code).__name__}, not a CodeObject")
    timings.update({f"lower.{stage}": milliseconds for stage, milliseconds in code.timings.items()})
    if keep_stages:
        code.stages = {**stages, **code.stages}
    return Artifact(key, code, parameters, timings)


def passes_of(
    backend: Backend, target: Target, options: Mapping[str, Any]
) -> Sequence[Callable[[Module], Any]]:
    """Return the passes that a module goes through before a backend lowers it.

    Raises:
        BackendError: the backend gave something else than a sequence of passes.
    """
    return _passes(backend, target, options)[0]


def _passes(
    backend: Backend, target: Target, options: Mapping[str, Any]
) -> tuple[Sequence[Callable[[Module], Any]], bool]:
    """Return the passes, and whether they are the backend's own."""
    from tilewright.passes.pipeline import STANDARD

    own = backend.call("tilewright_passes", target=target, options=options, passes=STANDARD)
    if own is None:
        return STANDARD, False
    if not isinstance(own, Sequence) or not all(map(callable, own)):
        raise _defect(backend, f"tilewright_passes gave {own!r:.100}, not a sequence of passes")
    return own, True


def take_apart(module: Module, backend: Backend) -> None:
    """Legalize in place the operations and types that a backend's manifest excludes.

    The kernel's parameters stay the same.
    """
    lowers, computes = backend.manifest.lowers, backend.manifest.computes
    if lowers or computes:
        from tilewright.passes.decompose.catalogue import decompose

        decompose(module, lowers or {spec.name for spec in backend.table}, computes)


def parameters_of(module: Module) -> tuple[Parameter, ...]:
    """Return the parameters of a module's kernel for its launcher."""
    from tilewright.passes.analysis.argument_access import stored_arguments

    kernel, stored = module.kernel, stored_arguments(module)
    return tuple(
        Parameter(
            argument.name, str(argument.type), int(facts.get("divisibility", 1)), position in stored
        )
        for position, (argument, facts) in enumerate(
            zip(kernel.arguments, kernel.argument_attributes, strict=True)
        )
    )


def compile_job(kernel: Specialization, backend_name: str, target: Target) -> bytes:
    """Compile in a worker thread or process and return the packed artifact.

    The arguments and the result can be pickled.
    """
    from tilewright.runtime.storage.artifact import pack

    return pack(compile_kernel(kernel, registry().get(backend_name), target))


def _defect(backend: Backend, what: str) -> BackendError:
    return BackendError(
        f"backend {backend.name!r} ({backend.distribution}): {what}. Report this to its authors."
    )


def _with_reproducer(error: BackendError, module: Module) -> BackendError:
    """Add the path of a reproducer file with the module to an error from a backend's defect.

    An unforeseen exception is such a defect.
    """
    if (
        error.__cause__ is None
        or isinstance(error.__cause__, TilewrightError)
        or type(error) not in (BackendError, LoweringError)
    ):
        return error
    return type(error)(
        f"{error}\nreproducer, in Tile IR: {write_reproducer(str(module), '.tileir')}"
    )


def _milliseconds(started: float) -> float:
    return (time.perf_counter() - started) * 1e3
