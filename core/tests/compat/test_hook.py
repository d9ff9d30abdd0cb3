"""Modules that answer to Triton's names, in this process and in others."""

import importlib
import os
import subprocess
import sys
import textwrap
import venv

import pytest

import tilewright.language
from tilewright.compat import triton as ours
from tilewright.compat.triton import hook
from tilewright.compat.triton.outside import OutsideModuleError, OutsideNameError


def run(*arguments, cwd):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
    )


def test_modules_are_the_same_objects_under_both_names():
    import triton
    import triton.language as tl
    import triton.language.extra.libdevice
    import triton.runtime.jit
    from triton.language.extra import libdevice

    assert triton is ours
    assert tl is tilewright.language
    assert tl.float32 is tilewright.language.float32
    assert triton.runtime.jit is importlib.import_module("tilewright.compat.triton.runtime.jit")
    assert libdevice is tilewright.language.libdevice is triton.language.extra.libdevice
    assert tuple(map(int, triton.__version__.split(".")[:2])) == (3, 8)
    assert ours.__spec__.name == "tilewright.compat.triton"


def test_the_language_of_a_backend_is_the_same_object_under_all_its_names():
    own = pytest.importorskip("tilewright_nvidia.language")
    import triton
    import triton.language.extra.cuda.libdevice
    from triton.language.extra import cuda
    from triton.language.extra.cuda import gdc_wait

    assert (
        cuda is own is triton.language.extra.cuda is tilewright.language.extra.cuda
        and gdc_wait is own.gdc_wait
    )
    assert triton.language.extra.cuda.libdevice is tilewright.language.libdevice


def test_the_driver_object_is_not_replaced_by_its_module():
    import triton.runtime.driver  # noqa: F401
    from triton.runtime import driver

    assert type(driver).__name__ == "DriverConfig"
    assert sys.modules["triton.runtime.driver"].driver is driver


def test_driver_modules_can_be_reloaded_and_are_lazy():
    import triton

    importlib.reload(sys.modules["triton.runtime.driver"])
    importlib.reload(sys.modules["triton.runtime"])
    assert triton.runtime.driver._active is None and triton.runtime.driver._default is None
    assert isinstance(triton.runtime.driver.active, triton.backends.driver.DriverBase)


@pytest.mark.parametrize(
    "name",
    [
        "triton._C.libproton",
        "triton.ops",
        "triton.experimental.gsan",
        "triton.experimental.gluon.language.nvidia",
    ],
)
def test_modules_outside_say_so(name):
    with pytest.raises(
        OutsideModuleError, match=r"outside what tilewright\.compat\.triton provides"
    ) as caught:
        importlib.import_module(name)
    assert isinstance(caught.value, ImportError)
    assert caught.value.name


def test_unknown_and_private_modules_are_not_found():
    for name in ("triton.no_such_module", "triton.hook", "triton.outside"):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(name)


def test_names_outside_say_so():
    import triton.runtime.jit

    with pytest.raises(OutsideNameError, match="Triton's launcher"):
        triton.runtime.jit.create_function_from_signature
    with pytest.raises(OutsideNameError, match="instrumentation passes"):
        triton.instrumentation
    with pytest.raises(AttributeError):
        triton.no_such_name


def test_deactivating_gives_the_name_back():
    import triton  # noqa: F401

    hook.deactivate()
    try:
        assert "triton" not in sys.modules and not any(
            name.startswith("triton.") for name in sys.modules
        )
        assert not hook.is_active()
    finally:
        hook.activate()
    assert importlib.import_module("triton") is ours


REAL = {"triton/__init__.py": "WHO = 'real'\n", "triton/language.py": "WHO = 'real language'\n"}


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))


def test_an_installed_triton_is_found_unless_the_shim_is_asked_for(tmp_path):
    write(tmp_path, REAL)
    plain = run("-c", "import tilewright, triton; print(triton.WHO)", cwd=tmp_path)
    assert plain.stdout.strip() == "real", plain.stderr
    shimmed = run(
        "-c",
        (
            "import tilewright.compat.triton, triton, triton.language as tl; "
            "print(hasattr(triton, 'WHO'), tl.__name__)"
        ),
        cwd=tmp_path,
    )
    assert shimmed.stdout.split() == ["False", "tilewright.language"], shimmed.stderr


def test_a_triton_imported_before_is_refused(tmp_path):
    write(tmp_path, REAL)
    found = run("-c", "import triton, tilewright.compat.triton", cwd=tmp_path)
    assert found.returncode != 0
    assert "another triton was imported before tilewright.compat.triton" in found.stderr


SCRIPT = {
    "script.py": """
        import sys
        import beside
        import triton

        if __name__ == "__main__":
            print(triton.__version__, sys.argv[1:], beside.X, __file__.endswith("script.py"))
    """,
    "beside.py": "X = 5\n",
}


@pytest.mark.parametrize("arguments", [("script.py",), ("-m", "script")])
def test_programs_run_under_the_shim(tmp_path, arguments):
    write(tmp_path, SCRIPT)
    found = run("-m", "tilewright.compat.triton", *arguments, "a", "--b", cwd=tmp_path)
    assert found.stdout.strip() == "3.8.0 ['a', '--b'] 5 True", found.stderr


def test_code_runs_under_the_shim_and_errors_end_it(tmp_path):
    found = run(
        "-m",
        "tilewright.compat.triton",
        "-c",
        "import sys, triton; print(sys.argv); sys.exit(7)",
        "x",
        cwd=tmp_path,
    )
    assert (found.returncode, found.stdout.strip()) == (7, "['-c', 'x']")
    usage = run("-m", "tilewright.compat.triton", cwd=tmp_path)
    assert usage.returncode == 2 and "usage:" in usage.stderr


def test_importing_the_shim_imports_little(tmp_path):
    found = run(
        "-c",
        (
            "import sys, tilewright.compat.triton; print([m for m in ('numpy', 'torch', "
            "'llvmlite', 'tilewright.ir') if m in sys.modules])"
        ),
        cwd=tmp_path,
    )
    assert found.stdout.strip() == "[]", found.stderr


@pytest.mark.parametrize(
    "path",
    ["", ", env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)}"],
    ids=["inherited", "of sys.path"],
)
def test_children_have_the_shim_where_python_runs_no_lines_of_site_directories(tmp_path, path):
    """An environment whose own site directory has nothing, the packages on PYTHONPATH; a
    ``sitecustomize`` that was there still runs."""
    venv.create(tmp_path / "bare", symlinks=True)
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "sitecustomize.py").write_text("import sys; sys.theirs = True")
    program = "import sys, triton; print(triton.__spec__.name, hasattr(sys, 'theirs'))"
    parent = (
        f"import os, subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}], "
        f"check=True{path})"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "theirs"), *filter(None, sys.path)]),
    }
    environment.pop("TILEWRIGHT_TRITON", None)
    command = [tmp_path / "bare" / "bin" / "python", "-m", "tilewright.compat.triton", "-c", parent]
    found = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=900
    )
    assert found.stdout == "tilewright.compat.triton True\n", found.stderr
