"""The command line."""

import json
import os
import re
import subprocess
import sys
import textwrap

import pytest

import tilewright as tw
from tilewright.errors import BackendError
from tilewright.ir.parser import parse_module
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import Capabilities, CodeObject, Device, Manifest, Target
from tilewright.plugins.registry import Registry, registry
from tilewright.runtime.devices import device_registry
from tilewright.runtime.storage.tuning_record import Record
from tilewright.tools import cli
from tilewright.tools.cli import main
from tilewright.tools.doctor import examine
from tilewright.tools.inspect import parse_assignments, split_top
from tilewright.tools.printing import size_text

KERNELS = """
import tilewright as tw
import tilewright.language as tl


@tw.jit
def add(x, y, out, n, BLOCK: tl.constexpr, SCALE: tl.constexpr = 1):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, (tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask)) * SCALE, mask=mask)


@tw.autotune(configs=[tw.Config({"BLOCK": 8})], key=["n"])
@tw.jit
def tuned(x, n: "i64", BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), n)


@tw.jit
def broken(x):
    tl.store(x, unknown_name)
"""


pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "kernels_for_inspection.py"
    path.write_text(KERNELS)
    return str(path)


class Machine:
    """A backend for an imagined machine."""

    __name__ = "machine"

    def __init__(self, found=1, fail=None):
        self.found, self.fail = found, fail

    @hookimpl
    def tilewright_backend(self):
        return Manifest(
            "machine",
            "7.1",
            "imagined",
            ("xpu",),
            ("m1", "m2"),
            Capabilities(frozenset({"f32", "i32", "i64"}), power_of_two=False),
            options={"depth": 3},
        )

    @hookimpl
    def tilewright_devices(self):
        if self.fail:
            raise self.fail
        return [
            Device("machine", "xpu", index, f"unit {index}", {"cores": 4})
            for index in range(self.found)
        ]

    @hookimpl
    def tilewright_target(self, device):
        return Target("machine", device.properties.get("arch", "m1"), kind=device.kind)

    @hookimpl
    def tilewright_lower(self, module, target, options):
        return CodeObject(
            module.kernel.name,
            b"\xff\0",
            {
                "tileir": str(module),
                "listing": f"{target.arch} depth {options['depth']}",
                "obj": b"\xff\0",
            },
            {},
            {"listing": 1.25},
        )


@pytest.fixture
def machine():
    names = []

    def register(**arguments):
        registry().register(Machine(**arguments), "machine")
        names.append("machine")

    yield register
    for name in names:
        registry().unregister(name)
    device_registry.forget()


# ---- backends


def test_backends_lists_what_is_installed(run, machine):
    machine(found=2)
    code, out, _ = run("backends")
    assert code == 0
    assert "machine 7.1 (registered in this process): imagined" in out
    assert "  xpu:1  unit 1  (cores 4)" in out
    assert re.search(r"^reference \S+ \(tilewright ", out, re.M)


def test_backends_as_json(run, machine):
    machine()
    code, out, _ = run("backends", "--json")
    report = json.loads(out)
    assert code == 0
    (entry,) = [entry for entry in report["backends"] if entry["name"] == "machine"]
    assert entry["devices"] == [
        {"kind": "xpu", "index": 0, "name": "unit 0", "properties": {"cores": 4}}
    ]
    assert entry["capabilities"]["dtypes"] == ["f32", "i32", "i64"]
    assert entry["options"]["depth"] == 3
    assert report["default_order"]["xpu"] == ["machine"]


def test_backends_shows_what_is_broken(run, machine, monkeypatch):
    machine(fail=ZeroDivisionError("driver"))
    monkeypatch.setattr(
        Registry,
        "broken",
        lambda self: {"bad": BackendError("backend 'bad' is disabled: for a reason")},
    )
    code, out, _ = run("backends")
    assert code == 0
    assert "cannot run kernels: backend 'machine'" in out
    assert "ZeroDivisionError: driver" in out
    assert "disabled: backend 'bad' is disabled: for a reason" in out


# ---- inspect


def test_inspect_prints_every_stage_with_its_time(run, machine, file):
    machine()
    code, out, err = run(
        "inspect",
        f"{file}:add",
        "--signature",
        "*fp32:16, *fp32, *fp32, i32",
        "--constants",
        "BLOCK=64",
        "--backend",
        "machine",
    )
    assert code == 0, err
    headings = re.findall(r"^## (.*)$", out, re.M)
    assert headings[0] == "source"
    assert headings[1].startswith("frontend  ")
    assert "listing  1.25 ms" in headings
    assert headings[-2:] == ["times (ms)", "roofline"]
    assert "m1 depth 3" in out
    assert "(2 bytes)" in out
    assert re.search(r"^total +\d", out, re.M)
    assert "x: ptr<f32>, y: ptr<f32>, out: ptr<f32>, n: i32" in out
    assert 'loc("' not in out


def test_inspect_prints_one_stage_that_can_be_read_back(run, machine, file, tmp_path):
    machine()
    common = [
        "--signature",
        "x=*fp32, y=*fp32, out=*fp32, n=i32",
        "--constants",
        "BLOCK=64,SCALE=2",
        "--backend",
        "machine",
    ]
    code, text, _ = run("inspect", f"{file}:add", *common, "--stage", "frontend")
    assert code == 0
    module = parse_module(text)
    assert module.kernel.name == "add"
    assert str(module) == text
    _, located, _ = run("inspect", f"{file}:add", *common, "--stage", "frontend", "--locations")
    assert 'loc("' in located
    _, after_cse, _ = run("inspect", f"{file}:add", *common, "--stage", "cse")
    assert after_cse == "" or parse_module(after_cse)
    written = tmp_path / "k.tileir"
    written.write_text(located)
    code, listing, _ = run(
        "inspect",
        str(written),
        "--backend",
        "machine",
        "--stage",
        "listing",
        "--option",
        "depth=9",
        "--arch",
        "m2",
    )
    assert (code, listing) == (0, "m2 depth 9\n")
    code, out, _ = run("inspect", str(written), "--backend", "machine")
    assert code == 0
    assert "## parsed" in out


def test_inspect_uses_annotations_and_looks_inside_autotuners(run, machine, file):
    machine()
    code, out, err = run(
        "inspect",
        f"{file}:tuned",
        "--signature",
        "*fp32",
        "--constants",
        "BLOCK=8",
        "--backend",
        "machine",
        "--stage",
        "tileir",
    )
    assert code == 0, err
    assert "%n: i64" in out


def test_inspect_on_the_reference(run, file):
    code, out, err = run(
        "inspect",
        f"{file}:add",
        "--signature",
        "*fp32, *fp32, *fp32, i32",
        "--constants",
        "BLOCK=64",
        "--backend",
        "reference",
        "--stage",
        "tileir",
    )
    assert code == 0, err
    assert parse_module(out).kernel.name == "add"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["FILE:nothing"], "has no kernel 'nothing'; it has add, tuned, broken"),
        (["FILE"], "has 3 kernels; name one"),
        (["missing.py:add"], "there is no file 'missing.py'"),
        (["missing.tileir"], "missing.tileir cannot be read"),
        (["FILE:add"], "parameter 'x' of add needs a type in --signature"),
        (["FILE:add"], "x=*fp32, or for a descriptor x=tensordesc<fp16[64,64]>"),
        (
            ["FILE:add", "--signature", "*fp32,*fp32,*fp32,i32"],
            "parameter 'BLOCK' of add needs --constants BLOCK=",
        ),
        (
            ["FILE:add", "--signature", "*fp32,*fp32,*fp32,i32,i32"],
            "has 5 types for 4 runtime parameters",
        ),
        (["FILE:add", "--constants", "BLOC=3"], "has no parameter BLOC"),
        (["FILE:add", "--constants", "BLOCK"], "expected NAME=VALUE"),
        (
            ["FILE:add", "--signature", "*fp32:x,*fp32,*fp32,i32", "--constants", "BLOCK=4"],
            "divisibility of 'x' is an integer",
        ),
        (["FILE:add", "--arch", "m9"], "has no target 'm9'; it has m1, m2"),
        (
            [
                "FILE:add",
                "--signature",
                "*fp32,*fp32,*fp32,i32",
                "--constants",
                "BLOCK=4",
                "--stage",
                "ptx",
            ],
            "there is no stage 'ptx'; the stages are source, frontend",
        ),
    ],
)
def test_inspect_refuses_what_it_cannot_do(run, machine, file, arguments, message):
    machine()
    code, _, err = run(
        "inspect",
        *[argument.replace("FILE", file) for argument in arguments],
        "--backend",
        "machine",
    )
    assert code == 2
    assert message in err


@pytest.mark.parametrize(
    "words",
    [
        ["k.py:k", "--constants", "N=1", "M='a'", "--backend", "cpu"],
        ["--constants=N=1", "M='a'", "k.py:k"],
    ],
)
def test_values_without_commas_are_joined_by_commas_in_the_message(words, capsys):
    with pytest.raises(SystemExit):
        main(["explain", *words])
    err = capsys.readouterr().err
    assert "error: unrecognized arguments: " in err
    assert "separate the values of --constants by commas: --constants N=1,M='a'\n" in err


def test_other_unknown_words_get_no_help(capsys):
    with pytest.raises(SystemExit):
        main(["explain", "k.py:k", "--constants", "N=1", "--more"])
    assert capsys.readouterr().err.endswith("error: unrecognized arguments: --more\n")


def test_inspect_shows_the_kernels_own_error(run, machine, file):
    machine()
    code, _, err = run("inspect", f"{file}:broken", "--signature", "*fp32", "--backend", "machine")
    assert code == 1
    assert err.startswith("CompilationError")
    assert "unknown_name" in err


def test_inspect_of_text_that_is_no_ir(run, machine, tmp_path):
    machine()
    (tmp_path / "bad.tileir").write_text("tilewright.ir 1.0\n\nkernel @k( {\n")
    code, _, err = run("inspect", str(tmp_path / "bad.tileir"), "--backend", "machine")
    assert code == 2
    assert "is not valid Tile IR" in err


def test_an_unknown_backend(run, file):
    code, _, err = run("inspect", f"{file}:add", "--backend", "npu")
    assert code == 1
    assert "no backend named 'npu' is installed" in err and "pip" not in err


def test_texts_split_at_commas_outside_brackets():
    assert split_top("*fp32, tensordesc<fp16[64,64]> ,(i32,i32),") == [
        "*fp32",
        "tensordesc<fp16[64,64]>",
        "(i32,i32)",
    ]
    assert parse_assignments(["A=1,B=(2, 3)", "C=text", "D=None"]) == {
        "A": 1,
        "B": (2, 3),
        "C": "text",
        "D": None,
    }


# ---- cache


def test_cache_info_and_clear(run, file):
    import numpy as np

    from tilewright.runtime import tuning_records
    from tilewright.tools.inspect import find_kernel

    kernel = find_kernel(f"{file}:add")
    x = np.zeros(8, np.float32)
    with tw.backend("reference"):
        kernel[(1,)](x, x, x, 8, BLOCK=4)
        assert (
            run("cache", "clear")[0] == 0
        )  # the first launch of a process may keep the native dispatcher's code as well
        kernel[(1,)](x, x, x, 8, BLOCK=8)
    tuning_records.keep(Record("k", "s", "k", "d", "t", "sp", "b"))
    code, out, _ = run("cache", "info")
    assert code == 0
    assert re.search(r"kernels +1\n", out)
    assert re.search(r"size +[\d.]+ (B|KiB) of 2\.0 GiB", out)
    assert re.search(r"tuning records +1", out)
    report = json.loads(run("cache", "info", "--json")[1])
    assert (report["entries"], report["tuning_records"], report["writable"]) == (1, 1, True)
    code, out, _ = run("cache", "clear")
    assert code == 0
    assert "removed 1 kernels and 1 tuning records" in out
    assert json.loads(run("cache", "clear", "--json")[1])["removed"] == 0


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 20, "3.0 MiB"), (5 << 30, "5.0 GiB")],
)
def test_sizes_for_people(size, text):
    assert size_text(size) == text


# ---- doctor


def test_doctor_of_a_sound_installation(run):
    code, out, _ = run("doctor")
    assert code == 0, out
    for name in (
        "python",
        "numpy",
        "pluggy",
        "llvmlite",
        "cache",
        "backend reference",
        "default backend",
    ):
        assert re.search(rf"^ok +{name} ", out, re.M), name
    assert out.endswith("everything works\n")
    findings = json.loads(run("doctor", "--json")[1])
    assert all(finding["ok"] for finding in findings)


def test_doctor_finds_a_backend_that_fails(run, machine):
    machine(fail=OSError("no driver"))
    code, out, _ = run("doctor")
    assert code == 1
    assert re.search(r"^BROKEN +backend machine .*OSError: no driver", out, re.M)
    assert "checks failed" in out


def test_doctor_finds_a_disabled_plugin_and_a_cache_it_cannot_write(run, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "file" / "x"))
    monkeypatch.setattr(Registry, "broken", lambda self: {"bad": BackendError("why")})
    code, out, _ = run("doctor")
    assert code == 1
    assert re.search(r"^BROKEN +cache .*cannot be written", out, re.M)
    assert re.search(r"^BROKEN +backend bad +why", out, re.M)


def test_doctor_goes_on_after_any_failure(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_SIZE", "nonsense")
    findings = {finding.name: finding for finding in examine()}
    assert not findings["cache"].ok
    assert findings["backend reference"].ok


def test_doctor_without_any_device(monkeypatch):
    monkeypatch.setattr(Registry, "backends", lambda self: [])
    findings = {finding.name: finding for finding in examine()}
    assert not findings["default backend"].ok
    assert "pip install" in findings["default backend"].text


# ---- the program


@pytest.mark.parametrize("arguments", [[], ["nothing"], ["cache"], ["cache", "burn"], ["inspect"]])
def test_wrong_usage(run, arguments):
    code, _, err = run(*arguments)
    assert code == 2
    assert "usage: tilewright" in err


def test_it_runs_as_a_program(tmp_path):
    environment = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path)}
    program = [sys.executable, "-m", "tilewright.tools.cli"]
    version = subprocess.run(
        [*program, "--version"],
        capture_output=True,
        text=True,
        timeout=900,
        check=True,
        env=environment,
    )
    assert version.stdout == f"tilewright {tw.__version__}\n"
    file = tmp_path / "one.py"
    file.write_text(
        textwrap.dedent("""
        import tilewright as tw

        @tw.jit
        def only(x):
            pass
        """)
    )
    result = subprocess.run(
        [
            *program,
            "inspect",
            str(file),
            "--signature",
            "*fp32",
            "--backend",
            "reference",
            "--stage",
            "tileir",
        ],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env=environment,
    )
    assert result.returncode == 0, result.stderr
    assert "kernel @only(%x: ptr<f32>" in result.stdout


def test_without_a_command_the_commands_are_listed(capsys):
    assert cli.main([]) == 2
    told = capsys.readouterr().err
    listed = {line.split()[0] for line in told.splitlines() if re.match(r" {4}\w", line)}
    assert {"backends", "inspect", "explain", "tune", "doctor", "new-backend"} <= listed
