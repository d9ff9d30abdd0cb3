"""Every public name of Triton 3.6, 3.8 and 3.9 is there, and takes the arguments that it takes in
Triton.

``triton_names.json`` lists them: release -> module -> name -> "class", the parameters, or null. 3.8
is whole, the others are what differs from it.
"""

import importlib
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.compat.triton.outside import OutsideError

pytest.importorskip("torch")

RELEASES = json.loads(Path(__file__).with_name("triton_names.json").read_text())

#: Parts of Triton's compiler, launcher and Proton: they raise an error that says so.
OUTSIDE = {
    "triton.backends.driver": {
        "decompose_descriptor",
        "expand_signature",
        "wrap_handle_tensordesc_impl",
    },
    "triton.compiler.compiler": {"convert_type_repr", "parse"},
    "triton.testing": {"cublas"},
    "triton.runtime.jit": {
        "DependenciesFinder",
        "create_function_from_signature",
        "get_def_col_number",
        "get_def_line_number",
    },
}

#: Classes that are the same as Tilewright's and are made by the runtime: their constructors are not
#: Triton's.
MADE_BY_THE_RUNTIME = {
    ("triton.runtime.jit", "BoundConstexprFunction.__init__"),
    ("triton.runtime.jit", "BoundConstexprFunction.cache_key"),
    ("triton.runtime.jit", "KernelParam.__init__"),
    ("triton.language.core", "tuple_type.__init__"),
}
#: Methods of kernels that device functions of Tilewright's own library lack.
OF_KERNELS_ONLY = {
    ("triton.runtime.jit", "JITCallable.get_capture_scope"),
    ("triton.runtime.jit", "JITCallable.type"),
}
#: Attributes that instances have.
OF_INSTANCES = {
    "triton.language.core": {"block_type.scalar", "dtype.scalar", "pointer_type.scalar"}
}
#: What a release renamed or dropped, where a later one is followed: the parameter that is not taken
#: by that name.
RENAMED = {
    ("triton.language.core", "tensor.gather"): {"indices"},
    ("triton.compiler.compiler", "LazyDict.add"): {"func"},
    ("triton.runtime.jit", "MockTensor.wrap_dtype"): {"arg"},
    ("triton.runtime.jit", "JITFunction.repr"): {"_"},
    ("triton.language.core", "tensor.atomic_store"): {"value"},
    ("triton.language.core", "tensor.atomic_poll"): {"expected_value"},
}


def cases():
    for release, modules in RELEASES.items():
        for module, names in modules.items():
            for name, signature in names.items():
                yield pytest.param(
                    module,
                    name,
                    signature,
                    id=f"{release}-{module.removeprefix('triton.') or 'triton'}-{name}",
                )


def parameters(signature):
    """Parse ``"x, axis=None, *rest"`` to [(name, has a default)]; a bare ``*`` is omitted."""
    parts, depth, part = [], 0, ""
    for character in signature + ",":
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += character
    found = [(part.split(":")[0].split("=")[0].strip(), "=" in part) for part in parts if part]
    return [
        (name, default)
        for name, default in found
        if name not in ("*", "/") and not name.startswith("_semantic")
    ]


def find(module, name):
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def callable_of(found):
    """What is called, where what was found stands for a function of the language."""
    return getattr(found, "fn", found) if hasattr(found, "cache_key") else found


@pytest.mark.parametrize(("module", "name", "signature"), list(cases()))
def test_name(module, name, signature):
    if name.split(".")[0] in OUTSIDE.get(module, ()):
        with pytest.raises(OutsideError):
            find(module, name)
        return
    if (
        name in OF_INSTANCES.get(module, ())
        or (module, name) in OF_KERNELS_ONLY | MADE_BY_THE_RUNTIME
    ):
        find(module, name.split(".")[0])
        return
    found = find(module, name)
    if signature in (None, "class") or not callable(found):
        assert signature != "class" or isinstance(found, type)
        return
    owner = find(module, name.rpartition(".")[0]) if "." in name else None
    if name.endswith(".__init__"):
        found = (
            owner.__new__
            if owner.__init__ is object.__init__
            or "dtype" in [base.__name__ for base in owner.__mro__]
            else owner.__init__
        )
    check_calls(callable_of(found), parameters(signature), RENAMED.get((module, name), set()), name)


def check_calls(function, wanted, renamed, name):
    """Calls that are right by Triton's signature bind: everything by position, and everything by
    name but the first and what is variadic."""
    try:
        ours = inspect.signature(function)
    except ValueError:
        pytest.fail(f"{name} has no signature")
    own = [
        parameter
        for parameter in ours.parameters.values()
        if parameter.name not in ("_semantic", "_generator")
    ]
    ours = ours.replace(parameters=own)
    stars = any(parameter.startswith("*") for parameter, _ in wanted)
    plain = [(parameter, default) for parameter, default in wanted if not parameter.startswith("*")]
    takes_self = (
        bool(own)
        and own[0].name in ("self", "cls", "pointer", "input", "x", "src", "a", "base")
        and len(own) > 0
    )
    given = [parameter for parameter, _ in plain]
    if (
        given
        and given[0] == "self"
        and not (takes_self or (own and own[0].kind is own[0].VAR_POSITIONAL))
    ):
        given = given[1:]  # a static method, or one that is bound already
    elif not given and takes_self and own[0].name == "self":
        given = ["self"]
    keyword_only = {parameter.name for parameter in own if parameter.kind is parameter.KEYWORD_ONLY}
    positional = [parameter for parameter in given if parameter not in keyword_only]
    if not stars:
        ours.bind(*positional, **{parameter: 0 for parameter in given if parameter in keyword_only})
    first, rest = given[:1], given[1:]
    if not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in own):
        required = [parameter for parameter in rest if parameter not in renamed]
        ours.bind_partial(*first, **dict.fromkeys(required, 0))


def test_the_lists_of_exceptions_are_short_and_real():
    assert (
        sum(map(len, OUTSIDE.values()))
        + len(MADE_BY_THE_RUNTIME)
        + len(OF_KERNELS_ONLY)
        + len(RENAMED)
        < 30
    )
    for module, name in (*MADE_BY_THE_RUNTIME, *OF_KERNELS_ONLY, *RENAMED):
        assert any(name in RELEASES[release].get(module, {}) for release in RELEASES), (
            module,
            name,
        )


def test_a_missing_name_and_a_missing_parameter_are_noticed():
    with pytest.raises(AttributeError):
        find("triton.language", "no_such_function")
    with pytest.raises(TypeError):
        check_calls(lambda x, axis: 0, parameters("x, axis, keep_dims=False"), set(), "sample")
    with pytest.raises(TypeError):
        check_calls(lambda x, dim: 0, parameters("x, axis"), set(), "sample")


@pytest.mark.parametrize("name", ["Config", "compile"])
def test_any_name_can_be_the_first_that_a_program_uses(name) -> None:
    code = f"from tilewright.compat import triton\ntriton.{name}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
