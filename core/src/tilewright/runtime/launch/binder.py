"""Functions generated for each kernel: binding of arguments, and the fast path of a launch.

For ``def add(x, y, n, BLOCK: tl.constexpr = 64)`` the launcher that is generated reads, with every
helper's name prefixed by ``_tw_``:

    def add(grid, /, x, y, n, BLOCK=default_3, **options):
        block = BLOCK if type(BLOCK) is int else constant(BLOCK)
        key = (s0[type(x)](x), s1[type(y)](y), s2[type(n)](n), block, choice())
        if options: key = (*key, *options.items())
        args = (x, y, n, BLOCK)
        plan = plans.get(key)
        if plan is None: plan = miss(key, args, options)
        ...

so that a launch whose signature was seen costs the binding Python does anyway, the kinds of the
arguments, one dictionary lookup and the launcher.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.errors import BindingError, similar, with_help
from tilewright.runtime.arguments.array_protocols import ArgumentError
from tilewright.runtime.compiler.specialize import constant_key, specializer
from tilewright.runtime.devices import backend_choice
from tilewright.runtime.hooks import hooks
from tilewright.runtime.launch.grid import grid_of, sizes
from tilewright.runtime.options import known_options, option_key

if TYPE_CHECKING:
    from tilewright.language.definitions.callable import FunctionParameter, JitCallable
    from tilewright.runtime.launch.launch_plan import Plan


class Binder(NamedTuple):
    """The generated functions.

    Attributes:
        launch: ``launch(grid, *args, **keywords)``: the fast path; returns the compiled kernel,
            None where a hook vetoed.
        bind: ``bind(*args, **keywords)`` -> (arguments in parameter order, their kinds, the other
            keywords).
    """

    launch: Callable[..., Any]
    bind: Callable[..., tuple[tuple[Any, ...], tuple[Any, ...], dict[str, Any]]]


def make_binder(
    kernel: JitCallable,
    plans: Mapping[Any, Plan],
    miss: Callable[[tuple[Any, ...], tuple[Any, ...], dict[str, Any]], Plan | None],
    check_globals: Callable[[], None],
) -> Binder:
    """Generate the functions of a kernel.

    Args:
        plans: its plans by the kinds, the choice of a backend and the options of a launch.
        miss: makes the plan of such a key, for these arguments and options, and puts it there; None
            where a hook vetoed.
        check_globals: called before a launch whose plan is known, where the kernel reads globals.

    Raises:
        CompilationError: see :attr:`JitCallable.params`.
    """
    params = kernel.params
    names: dict[str, Any] = {
        "_tw_type": type,
        "_tw_int": int,
        "_tw_callable": callable,
        "_tw_tuple": tuple,
        "_tw_constant": constant_key,
        "_tw_option_key": option_key,
        "_tw_choice": backend_choice.current.get,
        "_tw_plans": plans,
        "_tw_miss": miss,
        "_tw_check": check_globals,
        "_tw_refusals": ArgumentError,
        "_tw_blame": partial(_blame, kernel),
        "_tw_self": kernel,
        "_tw_grid_of": grid_of,
        "_tw_sizes": sizes,
        "_tw_enter": hooks.launch_enter.calls,
        "_tw_exit": hooks.launch_exit.calls,
    }
    kinds = ", ".join(_kind_source(parameter, names) for parameter in params)
    signature = _signature_source(params, names)
    arguments = "".join(f"{parameter.name}, " for parameter in params)
    by_name = ", ".join(f"{parameter.name!r}: {parameter.name}" for parameter in params)
    launch_parameters = ", ".join(
        part for part in ("_tw_grid, /", *signature, "**_tw_options") if part
    )
    bind_parameters = ", ".join(part for part in (*signature, "**_tw_options") if part)
    kinds = f"{kinds}, " if kinds else ""
    name = kernel.__name__ if kernel.__name__.isidentifier() else "_tw_launch"  # a lambda's is none
    source = f"""
def {name}({launch_parameters}):
    try:
        _tw_key = ({kinds}_tw_choice(), )
    except _tw_refusals as _tw_error:
        raise _tw_blame(_tw_error, ({arguments})) from _tw_error.__cause__
    if _tw_options:
        _tw_key = (*_tw_key, *_tw_options.items())
    _tw_args = ({arguments})
    try:
        _tw_plan = _tw_plans.get(_tw_key)
    except TypeError:  # an option that is not hashable
        _tw_key = (*_tw_key[:{len(params) + 1}], *_tw_option_key(_tw_options.items()))
        _tw_plan = _tw_plans.get(_tw_key)
    if _tw_plan is None:
        _tw_plan = _tw_miss(_tw_key, _tw_args, _tw_options)
        if _tw_plan is None:
            return None
    elif _tw_self.used_global_vals:
        _tw_check()
    if _tw_callable(_tw_grid):
        _tw_grid = _tw_grid_of(_tw_grid, {{{by_name}{", " if by_name else ""}**_tw_options}})
    else:
        _tw_grid = _tw_sizes(_tw_grid)
    if _tw_enter or _tw_exit:
        _tw_plan.kernel.launch(_tw_grid, None, _tw_args)
    elif 0 not in _tw_grid:
        _tw_plan.launcher(_tw_grid, None, _tw_plan.pick(_tw_args))
    return _tw_plan.kernel


def _tw_bind({bind_parameters}):
    try:
        return ({arguments}), ({kinds}), _tw_options
    except _tw_refusals as _tw_error:
        raise _tw_blame(_tw_error, ({arguments})) from _tw_error.__cause__


_tw_bind.__name__ = _tw_bind.__qualname__ = {kernel.__name__!r}
"""
    exec(compile(source, f"<launcher of {kernel.__name__}>", "exec"), names)
    return Binder(_explained(kernel, names[name], 1), _explained(kernel, names["_tw_bind"], 0))


def _explained(
    kernel: JitCallable, function: Callable[..., Any], skipped: int
) -> Callable[..., Any]:
    """Wrap ``function`` so that Python's binding errors become explained BindingErrors.

    The first ``skipped`` arguments are not the kernel's.
    """

    def call(*args: Any, **keywords: Any) -> Any:
        try:
            return function(*args, **keywords)
        except TypeError as error:
            trace = error.__traceback__
            if trace is not None and trace.tb_next is None:  # raised by the call itself
                raise _unbound(
                    kernel, error, len(args) - skipped, keywords, function.__code__.co_name
                ) from None
            raise

    return call


def _unbound(
    kernel: JitCallable, error: TypeError, given: int, keywords: Mapping[str, Any], name: str
) -> BindingError:
    """Make the error for a launch that Python cannot bind, with spelling suggestions."""
    params = [parameter for parameter in kernel.params if not parameter.variadic]
    missing = [p.name for p in params[given:] if not p.has_default and p.name not in keywords]
    free = [p.name for p in params[given:] if p.name not in keywords]
    options = known_options()
    unknown = [
        keyword
        for keyword in keywords
        if keyword not in kernel.arg_names and keyword not in options
    ]
    takes = sum(not parameter.keyword_only for parameter in params)
    message = str(error).replace(f"{name}()", f"{kernel.__name__}()", 1)
    if given > takes and len(params) == len(kernel.params):  # Python counts the grid, too
        message = f"{kernel.__name__}() takes {takes} positional arguments but {given} were given"
    remedies = []
    for keyword in unknown:
        meant = similar(keyword, free, shortened=True)
        if not meant and len(missing) == len(unknown) == 1:
            meant = f"did you mean {missing[0]}?"
        remedies.append(
            f"{kernel.__name__} has no parameter {keyword}{': ' if meant else ''}{meant}"
        )
    remedies = remedies or [
        f"the parameters of {kernel.__name__} are {', '.join(kernel.arg_names)}"
    ]
    return BindingError(with_help(message, "; ".join(remedies)))


def _blame(kernel: JitCallable, error: ArgumentError, arguments: tuple[Any, ...]) -> ArgumentError:
    """Add the names of kernel and parameter to the error of an argument."""
    for parameter, value in zip(kernel.params, arguments, strict=True):
        try:
            _kind_of(parameter, value)
        except ArgumentError as found:
            error = found
            break
    else:
        return error
    return type(error)(f"{kernel.__name__}: argument {parameter.name!r}: {error}")


def _kind_of(parameter: FunctionParameter, value: Any) -> Any:
    if parameter.is_constexpr:
        return constant_key(value)
    return specializer(
        not parameter.do_not_specialize, not parameter.do_not_specialize_on_alignment
    )[type(value)](value)


def _signature_source(params: list[FunctionParameter], names: dict[str, Any]) -> list[str]:
    """Format the parameters as source, with defaults by name and ``*`` before keyword-only ones."""
    parts: list[str] = []
    starred = False
    for parameter in params:
        if parameter.variadic:
            parts.append(f"*{parameter.name}")
            starred = True
            continue
        if parameter.keyword_only and not starred:
            parts.append("*")
            starred = True
        if parameter.has_default:
            default = f"_tw_default_{parameter.num}"
            names[default] = parameter.default
            parts.append(f"{parameter.name}={default}")
        else:
            parts.append(parameter.name)
    return parts


def _kind_source(parameter: FunctionParameter, names: dict[str, Any]) -> str:
    name = parameter.name
    if parameter.is_constexpr:
        return f"({name} if _tw_type({name}) is _tw_int else _tw_constant({name}))"
    helper = f"_tw_s{parameter.num}"
    names[helper] = specializer(
        not parameter.do_not_specialize, not parameter.do_not_specialize_on_alignment
    )
    return f"{helper}[_tw_type({name})]({name})"
