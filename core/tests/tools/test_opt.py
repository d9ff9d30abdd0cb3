"""``tilewright opt``: passes and stages by name, on files and standard input, for targets of all
kinds; what is wrong is said."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tilewright.ir import TABLE, Module, OpSpec
from tilewright.ir.table import Operand
from tilewright.plugins.hooks import hookimpl
from tilewright.plugins.manifest import Capabilities, Device, Manifest, Target
from tilewright.plugins.registry import registry
from tilewright.runtime.devices import device_registry
from tilewright.simt.compile import STAGES
from tilewright.simt.emulator import EmulatedTarget
from tilewright.simt.target.simt_target import Stage
from tilewright.testing.stage_text import plain
from tilewright.tools import cli

TEXT = """tilewright.ir 1.0

kernel @k(%p: ptr<f32> {divisibility = 16}) {
  %a = arange {start = 0, end = 64} : tile<64xi32>
  %s = splat %p : tile<64xptr<f32>>
  %at = addptr %s, %a : tile<64xptr<f32>>
  %x = load %at : tile<64xf32> loc("k.py":3:4 in "k")
  %b = add %x, %x : tile<64xf32>
  %c = add %x, %x : tile<64xf32>
  store %at, %c
  return
}
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run(*arguments, text=...)`` of ``tilewright opt -``: (exit code, standard output, standard
    error)."""

    def call(*arguments: str, text: str = TEXT, file: str | None = "-") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        try:
            code = cli.main(["opt", *([file] if file is not None else []), *arguments])
        except SystemExit as error:
            code = int(str(error.code))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


class Lanes(EmulatedTarget):
    """A target with warps of four lanes, and an additional stage after the toolkit's first."""

    def stages(self, stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
        own = Stage(
            "mark",
            lambda module, target, options: module.attributes.update(depth=options["depth"]),
            "says how deep",
        )
        return stages[0], own, *stages[1:]


class Machine:
    """A backend for an imagined machine, built on the toolkit where ``simt`` says so."""

    __name__ = "machine"
    OPS = (OpSpec("machine.twice", "x + x", (Operand("x"),), TABLE["neg"].rule),)

    def __init__(self, simt: bool) -> None:
        self.simt = simt

    @hookimpl
    def tilewright_backend(self) -> Manifest:
        return Manifest(
            "machine",
            "1.0",
            "imagined",
            ("xpu",),
            ("m1", "m2"),
            Capabilities(frozenset({"f32"})),
            options={"depth": 3},
            ops=self.OPS,
        )

    @hookimpl
    def tilewright_devices(self) -> list[Device]:
        return []

    @hookimpl
    def tilewright_target(self, device: Device) -> Target:
        return Target("machine", device.properties["arch"], kind=device.kind)

    @hookimpl
    def tilewright_passes(self, target: Target, options: Any, passes: Any) -> Any:
        def rename(module: Module) -> bool:
            """Call the module by its target."""
            module.attributes["target"] = target.arch
            return True

        return [*passes, rename]

    @hookimpl
    def tilewright_simt_target(self, target: Target, options: Any) -> Any:
        return Lanes(4) if self.simt else None


@pytest.fixture(params=[True, False], ids=["toolkit", "own"])
def machine(request: pytest.FixtureRequest) -> Iterator[bool]:
    registry().register(Machine(request.param), "machine")
    yield request.param
    registry().unregister("machine")
    device_registry.forget()


def test_passes_run_in_order_and_the_text_is_printed(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "k.tileir"
    path.write_text(TEXT)
    expected = (
        TEXT.replace("  %c = add %x, %x : tile<64xf32>\n", "")
        .replace("%c", "%b")
        .replace(' loc("k.py":3:4 in "k")', "")
    )
    assert run("--passes", "cse,dce", file=str(path)) == (0, expected, "")
    assert run("--passes", "cse", "--passes", "dce", "--verify") == (0, expected, "")


def test_without_passes_the_text_is_printed_as_it_was_read(run: Run) -> None:
    assert run("--locations") == (0, TEXT, "")


def test_stages_run_for_the_emulated_machine(run: Run) -> None:
    code, first, _ = run(
        "--target", "emulator:4", "--options", "num_warps=2", "--passes", "cse,prepare,layouts"
    )
    assert code == 0
    assert (
        plain(first).splitlines()[1]
        == "#L0 = layout<64, registers [(1) (2) (32)], lanes [(4) (8)], warps [(16)]>"
    )
    # a stage goes on from the text of the one before, and the toolkit's text is read without a
    # target too
    code, second, _ = run("--target", "emulator:4", "--passes", "allocate", text=first)
    assert code == 0 and "attributes {warps = 2, shared_bytes = 0}" in second
    assert run(text=second) == (0, second, "")
    assert (
        "lanes [(4) (8) (16) (32) (0)]" not in first
        and "lanes [(1) (2) (4) (8) (16)]" in run("--target", "emulator", "--passes", "layouts")[1]
    )


def test_a_backend_on_the_toolkit_brings_its_machine_stages_options_and_operations(
    run: Run, machine: bool
) -> None:
    if not machine:
        code, _, error = run("--target", "machine:m2", "--passes", "layouts")
        assert code == 2
        assert (
            "'layouts' is a stage of the GPU toolkit, and backend 'machine' is not built on "
            "it: --target takes emulator, emulator:LANES, or"
        ) in error
        return
    code, out, _ = run("--target", "machine:m2", "--passes", "rename,mark", "--options", "depth=7")
    assert code == 0 and out.startswith('tilewright.ir 1.0 {target = "m2", depth = 7}\n')
    assert "lanes [(4) (8)]" in run("--target", "machine:m1", "--passes", "layouts")[1]
    twice = TEXT.replace("%c = add %x, %x", "%c = machine.twice %x")
    code, out, _ = run("--target", "machine:m1", text=twice)
    assert code == 0 and "machine.twice %x" in out
    code, _, error = run(text=twice)
    assert code == 2 and "there is no operation 'machine.twice'" in error


def test_the_list_is_of_the_target(run: Run, machine: bool) -> None:
    code, out, _ = run("--list", file=None)
    names = [line.split()[0] for line in out.splitlines()]
    assert code == 0 and names == [
        "canonicalize",
        "cse",
        "licm",
        "dce",
        "inline",
        "expand_math",
        "decompose",
    ]
    assert run("--list", "--target", "emulator", file=None)[1].split().count("stage") >= len(STAGES)
    lines = run("--list", "--target", "machine:m1", file=None)[1].splitlines()
    assert any(
        line.split(maxsplit=1) == ["rename", "Call the module by its target."] for line in lines
    )
    assert any(line.startswith("mark") for line in lines) is machine


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--passes", "canonicalise"),
            (
                "there is no pass 'canonicalise'; did you mean canonicalize? There are "
                "canonicalize, cse, licm"
            ),
        ),
        (("--passes", "xyz"), "there is no pass 'xyz'. There are canonicalize, cse"),
        (
            ("--passes", "layout", "--target", "emulator"),
            "there is no pass 'layout'; did you mean layouts? There are ",
        ),
        (
            ("--passes", "cse,layouts"),
            (
                "'layouts' is a stage of the GPU toolkit, and no target is named: --target takes "
                "emulator"
            ),
        ),
        (("--target", "emulator:6"), "emulator:LANES takes a power of two, not '6'"),
        (("--target", "emulator:x"), "emulator:LANES takes a power of two, not 'x'"),
        (
            ("--target", "emulator", "--options", "num_warp=3"),
            "there is no option 'num_warp'; did you mean num_warps? There are num_warps",
        ),
        (("--options", "num_warps"), "expected NAME=VALUE, not 'num_warps'"),
    ],
)
def test_wrong_names_are_refused_with_those_there_are(
    run: Run, arguments: tuple[str, ...], message: str
) -> None:
    code, out, error = run(*arguments)
    assert (code, out) == (2, "") and error.startswith("tilewright opt: ") and message in error


def test_files_and_texts_that_are_none(run: Run, tmp_path: Path) -> None:
    code, _, error = run(file=str(tmp_path / "nothing"))
    assert code == 2 and "nothing cannot be read: No such file" in error
    code, _, error = run(file=None)
    assert code == 2 and "name a FILE of text, or - for standard input" in error
    code, _, error = run(text=TEXT.replace("addptr %s", "addptr %z"))
    assert code == 2
    assert error.splitlines() == [
        (
            "tilewright opt: standard input: line 6, column 16: %z is not defined before it is "
            "read here"
        ),
        "    %at = addptr %z, %a : tile<64xptr<f32>>",
        "                 ^",
    ]
    code, _, error = run(
        text=TEXT.replace("%x = load %at : tile<64xf32>", "%x = load %at : tile<64xf64>")
    )
    assert code == 2 and "standard input breaks a rule: load in @k" in error


def test_a_pass_that_cannot_run_says_which_it_is(run: Run) -> None:
    code, out, error = run("--target", "emulator", "--passes", "barriers")
    assert (code, out) == (1, "")
    assert error.startswith(
        "LoweringError: barriers cannot run on this module, for which another pass may have "
        "to come before: KeyError: 'warps'"
    )


def test_what_a_pass_breaks_is_found_where_asked_for(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.passes import pipeline

    def spoil(module: Module) -> bool:
        module.kernel.body.first.results[0].name = "spoilt"  # type: ignore[union-attr]
        module.kernel.argument_attributes.clear()
        return True

    monkeypatch.setattr(pipeline, "STANDARD", (spoil,))
    assert run("--passes", "spoil")[0] == 0
    code, _, error = run("--passes", "spoil", "--verify")
    assert (
        code == 1
        and "after spoil the module breaks a rule: @k has 1 arguments and attributes for 0" in error
    )


ABS = """tilewright.ir 1.0

kernel @k(%p: ptr<i32>, %x: i32) {
  %y = abs %x : i32
  %z = mulhi %y, %x : i32
  store %p, %z
  return
}
"""


def test_operations_are_taken_apart_for_a_backend_or_as_far_as_there_is_a_way(run: Run) -> None:
    code, out, _ = run("--passes", "decompose", text=ABS)
    assert code == 0 and "abs" not in out and "mulhi" not in out and "select" in out

    class Plugin:
        __name__ = "vega"

        @hookimpl
        def tilewright_backend(self) -> Manifest:
            lowers = frozenset({"constant", "cmp", "sub", "select", "mulhi", "store"})
            return Manifest(
                "vega",
                "1",
                "few",
                ("xpu",),
                ("t",),
                Capabilities(frozenset({"i32"})),
                lowers=lowers,
                priority=-10,
            )

        @hookimpl
        def tilewright_target(self, device: Device) -> Target:
            return Target("vega", "t", kind="xpu")

        @hookimpl
        def tilewright_devices(self) -> list[Device]:
            return [Device("vega", "xpu", 0, "x")]

    registry().register(Plugin(), "vega")
    try:
        code, out, err = run("--target", "vega:t", "--passes", "decompose", text=ABS)
        assert code == 0 and "abs" not in out and "mulhi" in out, err
        assert (
            "Decompose operations that vega does not lower, or not in their types"
            in run("--target", "vega:t", "--list", file=None)[1]
        )
    finally:
        registry().unregister("vega")
