"""``tl.extra``: modules of the language that installed backends bring. Programs of their own,
beside plugins installed as wheels would be."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import fork_server
import pytest

import tilewright.language as tl
from tilewright.language.backend_modules import AbsentLanguageError, AbsentModuleError, names
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import Capabilities, Manifest, ManifestError
from tilewright.plugins.registry import registry

PLUGIN = """
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import Capabilities, Manifest

@hookimpl
def tilewright_backend():
    return Manifest("NAME", "1", "for tests", ("xpu",), ("t",), Capabilities(frozenset({"f32"})), language=LANGUAGE, priority=PRIORITY)
"""
LANGUAGE = '''
"""A vendor's part of the language."""
import tilewright as tw
import tilewright.language as tl
from tilewright.language import libdevice
from tilewright.language.binding import builtin

@builtin
def six(_semantic=None):
    return tl.constexpr(6)

def _helper(n):
    return n + 1

@tw.constexpr_function
def successor(n):
    return _helper(n)

@tw.jit
def times_seven(x):
    return x * successor(six())

__all__ = ["libdevice", "six", "successor", "times_seven"]
'''


def install(
    folder: Path,
    name: str,
    language: str,
    *,
    text: str = LANGUAGE,
    priority: int = -500,
    version: str = "1.0",
    editable: bool = False,
) -> None:
    """A distribution ``v-NAME`` whose plugin and language are in the package ``v_NAME``."""
    package = folder / f"v_{name}"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("")
    plugin = (
        PLUGIN.replace("NAME", name)
        .replace("LANGUAGE", repr({language: f"v_{name}.words"}))
        .replace("PRIORITY", str(priority))
    )
    (package / "plugin.py").write_text(plugin)
    (package / "words.py").write_text(text)
    info = folder / f"v_{name}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: v-{name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(f"[tilewright]\n{name} = v_{name}.plugin\n")
    if editable:
        (info / "direct_url.json").write_text(
            json.dumps({"url": folder.as_uri(), "dir_info": {"editable": True}})
        )


def run(folder: Path, program: str, *, interpreter: bool = False) -> str:
    """Run a program with a folder's distributions, in a new interpreter for one about imports."""
    (folder / "program.py").write_text(textwrap.dedent(program))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            str(Path(path).resolve()) for path in (folder, *filter(None, sys.path))
        ),
    }
    environment["TILEWRIGHT_CACHE_DIR"] = str(folder / "cache")
    file = str(folder / "program.py")
    if interpreter:
        found = subprocess.run(
            [sys.executable, file], capture_output=True, text=True, timeout=120, env=environment
        )
    else:
        found = fork_server.run([file], timeout=120, env=environment)
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    install(folder, "acme", "vega")
    install(folder, "later", "vega", priority=-600)
    install(folder, "torn", "rent", text="import no_such_module")
    install(folder, "pack", "whole")
    (folder / "v_pack" / "words.py").unlink()
    (folder / "v_pack" / "words").mkdir()
    (folder / "v_pack" / "words" / "__init__.py").write_text("")
    (folder / "v_pack" / "words" / "deep.py").write_text(LANGUAGE)
    return folder


def test_a_backends_module_is_found_however_it_is_spelled(site: Path) -> None:
    program = """
        import sys
        import tilewright.language as tl
        assert "tilewright.plugins.registry" not in sys.modules  # nothing is looked for before a name is asked for
        from tilewright.language.extra import vega
        from tilewright.language.extra.vega.libdevice import tanh
        import tilewright.language.extra.vega as same
        import v_acme.words
        assert vega is same is tl.extra.vega is v_acme.words
        assert v_acme.words.__spec__.name == v_acme.words.__name__ == "v_acme.words"
        assert tanh is tl.extra.libdevice.tanh and "v_later.words" not in sys.modules
        assert {"libdevice", "vega", "rent"} <= set(dir(tl.extra))

        from tilewright.language.extra.whole.deep import six as deep_six
        import v_pack.words.deep
        assert deep_six is v_pack.words.deep.six is tl.extra.whole.deep.six and tl.extra.whole is v_pack.words

        import tilewright.compat.triton
        import triton.language.extra.vega.libdevice
        from triton.language.extra.vega import six
        from triton.language.extra import vega as again
        from triton.language.extra.whole import deep
        assert deep is v_pack.words.deep
        assert again is vega is triton.language.extra.vega is sys.modules["triton.language.extra.vega"] and six is vega.six
        from tilewright.compat.triton import hook
        hook.deactivate()
        assert not [name for name in sys.modules if name.split(".")[0] == "triton"] and tl.extra.vega is vega
    """
    run(site, program, interpreter=True)


def test_kernels_call_what_it_has_on_any_backend(site: Path) -> None:
    program = """
        import numpy as np
        import tilewright as tw
        import tilewright.language as tl
        from tilewright.language.extra.vega import times_seven

        @tw.jit
        def kernel(x):
            tl.store(x, times_seven(tl.load(x)) + tl.extra.vega.six())

        x = np.full(1, 5, np.int32)
        kernel[(1,)](x, backend="reference")
        print(x[0])
    """
    assert run(site, program).split() == ["41"]


def test_what_no_backend_brings_is_refused_and_what_is_broken_names_its_backend(site: Path) -> None:
    program = """
        import pytest
        import numpy as np
        import tilewright as tw
        import tilewright.language as tl
        import tilewright.compat.triton, triton

        missing = r"tl\\.extra has no 'nope': no installed backend brings language of that name; there are .*libdevice, rent, vega, whole"
        with pytest.raises(AttributeError, match=missing):
            tl.extra.nope
        with pytest.raises(ImportError, match=missing):
            from tilewright.language.extra import nope
        with pytest.raises(ModuleNotFoundError, match=missing):
            import tilewright.language.extra.nope.libdevice
        with pytest.raises(ModuleNotFoundError, match=missing):
            from triton.language.extra.nope import word
        assert not hasattr(tl.extra, "nope") and not hasattr(tl.extra, "__wrapped__")

        @tw.jit
        def kernel(x):
            tl.store(x, tl.extra.nope.word())

        with pytest.raises(tw.CompilationError, match=missing) as caught:
            kernel[(1,)](np.zeros(1, np.int32), backend="reference")
        assert "program.py" in str(caught.value) and "tl.extra.nope" in str(caught.value)

        broken = r"'rent' of tl\\.extra is v_torn\\.words of backend 'torn' \\(v-torn 1\\.0\\), which cannot be imported: .*no_such_module"
        with pytest.raises(ImportError, match=broken):
            from tilewright.language.extra import rent
        with pytest.raises(ImportError, match=broken):
            tl.extra.rent
    """
    run(site, program)


KEYS = """
    import tilewright as tw
    import tilewright.language as tl
    from tilewright.language.extra.vega import six
    from v_acme.words import Mode

    @tw.jit
    def by_path(x):
        tl.store(x, tl.extra.vega.six())

    @tw.jit
    def by_name(x):
        tl.store(x, six())

    @tw.jit
    def by_function(x):
        tl.store(x, tl.extra.vega.successor(1))

    @tw.jit
    def by_class(x):
        tl.static_assert(Mode is not None)

    @tw.jit
    def without(x):
        tl.store(x, 6)

    for kernel in (by_path, by_name, by_function, by_class, without):
        print(kernel.cache_key)
"""
WITH_CLASS = f"{LANGUAGE}\nclass Mode:\n    pass\n"


def test_another_version_or_text_of_the_module_is_another_key(tmp_path: Path) -> None:
    program = textwrap.dedent(KEYS)

    def keys(**facts: Any) -> list[str]:
        for info in tmp_path.glob("*.dist-info"):
            shutil.rmtree(info)
        install(tmp_path, "acme", "vega", **{"text": WITH_CLASS, **facts})
        return run(tmp_path, program).split()

    first = keys()
    assert keys() == first
    changed = [False, False, False, False, True]
    assert [a == b for a, b in zip(first, keys(version="2.0"), strict=True)] == changed
    worked_on = keys(editable=True)
    edited = keys(editable=True, text=WITH_CLASS.replace("constexpr(6)", "constexpr(16)"))
    assert [a == b for a, b in zip(worked_on, edited, strict=True)] == changed


def test_a_builtin_of_a_programs_own_counts_by_its_modules_text(tmp_path: Path) -> None:
    def key(text: str) -> str:
        (tmp_path / "own.py").write_text(text)
        return run(
            tmp_path,
            """
            import tilewright as tw
            import tilewright.language as tl
            import own

            @tw.jit
            def kernel(x):
                tl.store(x, own.six())

            print(kernel.cache_key)
            """,
        )

    assert key(LANGUAGE) == key(LANGUAGE) != key(LANGUAGE.replace("constexpr(6)", "constexpr(16)"))


# -- in this process -------------------------------------------------------------------------------


class Vendor:
    """A backend that brings the language ``vega``, and can do nothing else."""

    def __init__(self, name: str, module: str, priority: int) -> None:
        self.name = self.__name__ = name
        self.module, self.priority = module, priority

    @hookimpl
    def tilewright_backend(self) -> Manifest:
        capabilities = Capabilities(frozenset({"f32"}))
        return Manifest(
            self.name,
            "1",
            "for tests",
            ("xpu",),
            ("t",),
            capabilities,
            language={"vega": self.module},
            priority=self.priority,
        )


@pytest.fixture
def bring(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ModuleType]]:
    """``bring(backend, module, priority)`` registers a backend with a language, and gives its
    module."""
    registered = []

    def register(name: str, module: str, priority: int = -500) -> ModuleType:
        made = ModuleType(module)
        made.__spec__ = ModuleSpec(module, None)
        monkeypatch.setitem(sys.modules, module, made)
        registry().register(Vendor(name, module, priority), name)
        registered.append(name)
        return made

    yield register
    for name in registered:
        registry().unregister(name)


def test_modules_come_and_go_with_their_backends(bring: Callable[..., ModuleType]) -> None:
    assert "vega" not in names()
    first = bring("one", "words_of_one")
    assert (
        tl.extra.vega is first
        and "vega" in names()
        and sys.modules["tilewright.language.extra.vega"] is first
    )
    better = bring("two", "words_of_two", priority=-100)
    assert tl.extra.vega is better
    registry().unregister("two")
    assert tl.extra.vega is first
    registry().unregister("one")
    with pytest.raises(AbsentLanguageError, match="'vega'"):
        _ = tl.extra.vega
    assert "tilewright.language.extra.vega" not in sys.modules and "words_of_one" in sys.modules


def test_the_errors_can_be_pickled() -> None:
    for kind in (AbsentLanguageError, AbsentModuleError):
        made = pickle.loads(pickle.dumps(kind("why")))
        assert type(made) is kind and str(made) == "why"


@pytest.mark.parametrize(
    ("language", "rule"),
    [
        ({"libdevice": "a.b"}, "'libdevice' cannot be a name below tl.extra"),
        ({"_own": "a.b"}, "'_own' cannot be a name"),
        ({"two words": "a.b"}, "'two words' cannot be a name"),
        ({"vega": "a.b:c"}, "'vega' must be the full name of a module"),
        ({"vega": 5}, "'vega' must be the full name of a module"),
        (("vega",), "language must be a mapping"),
    ],
)
def test_a_malformed_language_says_which_rule_it_breaks(language: Any, rule: str) -> None:
    with pytest.raises(ManifestError, match=rule):
        Manifest("n", "1", "s", ("xpu",), ("t",), Capabilities(frozenset()), language=language)
