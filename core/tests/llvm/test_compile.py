"""Object code and assembly from LLVM IR text, and what happens to text LLVM rejects."""

import ctypes
import gc
import os
from dataclasses import replace

import pytest

from tilewright.errors import LoweringError, write_reproducer
from tilewright.llvm.assembly.assembly_operands import AssemblyOperand
from tilewright.llvm.assembly.inline_assembly import emit_inline_asm
from tilewright.llvm.codegen.compile import (
    LONG,
    assembly,
    assembly_and_object,
    compile_to_object,
    host_target,
    options_set,
    parse,
    target_machine,
)
from tilewright.llvm.codegen.link import load_object
from tilewright.llvm.codegen.subprocess_codegen import has_inline_assembly
from tilewright.llvm.emission.writer import ModuleWriter
from tilewright.testing.threads import side_by_side

ADD = "define i64 @add(i64 %a, i64 %b) {\n  %c = add i64 %a, %b\n  ret i64 %c\n}\n"
LOOP = """
define i64 @sum(i64 %n) {
entry:
  %i = alloca i64
  store i64 0, ptr %i
  %v = load i64, ptr %i
  %w = add i64 %v, %n
  ret i64 %w
}
"""
NOT_DOMINATED = (
    "define i64 @f(i64 %x) {\n  %y = add i64 %z, 1\n  %z = add i64 %y, 1\n  ret i64 %y\n}\n"
)
ASSEMBLY = 'define void @g() {\n  call void asm sideeffect "nop", ""()\n  ret void\n}\n'
TYPE_ERROR = "define i64 @f(i64 %x) {\n  %y = fadd float %x, 1.0\n  ret i64 %x\n}\n"


def host():
    triple, cpu, features = host_target()
    return {"triple": triple, "cpu": cpu, "features": features}


def test_an_object_runs():
    loaded = load_object(compile_to_object(ADD, **host()), ["add"])
    assert (
        ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(loaded.address("add"))(
            40, 2
        )
        == 42
    )


def test_timings_are_filled_in():
    timings = {}
    compile_to_object(ADD, timings=timings, **host())
    assert set(timings) == {"parse", "codegen"} and all(value > 0 for value in timings.values())


def test_equal_text_gives_equal_code():
    assert compile_to_object(ADD, **host()) == compile_to_object(ADD, **host())


@pytest.mark.parametrize("more", ["", ASSEMBLY], ids=["here", "in a process of its own"])
@pytest.mark.parametrize(
    "text, reason",
    [
        (NOT_DOMINATED, "dominate all uses"),
        (TYPE_ERROR, "defined with type 'i64'"),
        ("define i64 @f( {", "expected type"),
    ],
)
def test_rejected_text_is_kept_as_a_reproducer(text, reason, more, tmp_path, monkeypatch):
    text = more + text
    monkeypatch.setenv("TILEWRIGHT_REPRODUCER_DIR", str(tmp_path / "new"))
    for compile_ in (compile_to_object, assembly):
        with pytest.raises(LoweringError, match=reason) as caught:
            compile_(text, **host())
        (file,) = (tmp_path / "new").iterdir()
        assert file.read_text() == text
        assert str(file) in str(caught.value) and "defect of the backend" in str(caught.value)


def test_reproducers_are_named_by_content(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_REPRODUCER_DIR", str(tmp_path))
    assert write_reproducer("a") == write_reproducer("a") != write_reproducer("b")


@pytest.mark.parametrize(
    "there", ["a link", "a file of other content", "a file of another user", "a directory"]
)
def test_reproducers_leave_alone_what_lies_at_their_path(tmp_path, monkeypatch, there):
    monkeypatch.setenv("TILEWRIGHT_REPRODUCER_DIR", str(tmp_path / "folder"))
    path = write_reproducer("text")
    path.unlink()
    target = tmp_path / "target"
    target.write_text("of somebody")
    if there == "a link":
        path.symlink_to(target)
    elif there == "a directory":
        path.mkdir()
    else:
        path.write_text("other" if there == "a file of other content" else "text")
        if there == "a file of another user":
            try:
                os.chown(path, 12345, -1)
            except PermissionError:
                pytest.skip("only the administrator gives files away")
    before = path.lstat()
    written = write_reproducer("text")
    assert written != path and written.parent == path.parent and written.suffix == path.suffix
    assert written.read_text() == "text" and written.stat().st_mode & 0o777 == 0o600
    assert path.lstat() == before and target.read_text() == "of somebody"


def test_target_machines_are_made_once():
    assert target_machine(**host()) is target_machine(**host())
    assert target_machine(**host()) is not target_machine(**host(), opt=0)


@pytest.mark.parametrize("more", ["", ASSEMBLY], ids=["here", "in a process of its own"])
def test_an_unknown_target_is_named(more):
    with pytest.raises(LoweringError, match=r"^this LLVM generates no code for 'pdp11-dec-unix'"):
        compile_to_object(more + ADD, triple="pdp11-dec-unix")


def test_passes_run_only_where_asked():
    def body(**options):
        return [line.strip() for line in assembly(LOOP, **host(), **options).splitlines()]

    plain, promoted = body(), body(passes=["sroa"])
    assert len(promoted) < len(plain)
    assert len(body(passes=["O2"])) <= len(promoted)
    with pytest.raises(ValueError, match="no pass 'polish'"):
        body(passes=["polish"])


def test_code_for_another_architecture():
    assert "add" in assembly(ADD, triple="aarch64-unknown-linux-gnu")
    assert compile_to_object(ADD, triple="aarch64-unknown-linux-gnu")[:4] == b"\x7fELF"


def test_threads_compile_at_once():
    def work(number):
        for i in range(5):
            name = f"f{number}_{i}"
            loaded = load_object(
                compile_to_object(ADD.replace("@add", f"@{name}"), **host()), [name]
            )
            assert (
                ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(
                    loaded.address(name)
                )(number, i)
                == number + i
            )

    side_by_side(4, work)


def test_modules_may_end_in_any_order(tmp_path, monkeypatch):
    """A module kept by an exception's frames, in a cycle, is freed with what it needs."""
    monkeypatch.setenv("TILEWRIGHT_REPRODUCER_DIR", str(tmp_path))
    for _ in range(20):
        try:
            parse(NOT_DOMINATED)
        except LoweringError as error:
            cycle = [error]
            cycle.append(cycle)
        module = parse(ADD)
        cycle.append(module)
        del cycle, module
        gc.collect(0)  # the youngest objects


def test_assembly_that_the_assembler_rejects_is_an_error_and_not_the_end() -> None:
    text = (
        'define i32 @f(i32 %x) {\n  %y = call i32 asm "frobnicate $1, $0", "=r,r"(i32 %x)\n'
        "  ret i32 %y\n}\n"
    )
    with pytest.raises(LoweringError, match=r"(?s)rejects the inline assembly.*frobnicate"):
        compile_to_object(text, **host())
    good = text.replace("frobnicate $1, $0", "")
    assert compile_to_object(good, **host())[:4] == b"\x7fELF"


@pytest.mark.parametrize(
    ("assembly", "apart"),
    [
        ('asm sideeffect "", "~{memory}"()', False),
        ('asm sideeffect "", "~{memory},~{nonsense}"()', True),
        ('asm "", "~{memory}"()', True),
        ('asm sideeffect "", "~{memory}"()\n  call void asm sideeffect "nop", "~{memory}"()', True),
        ('asm sideeffect "nop", ""()\n  call void asm sideeffect "", "~{memory}"()', True),
        ('asm sideeffect "", "=v,=v,0,1"(i32 %x, i32 %y), !dbg !3', False),
        ('asm "", "=s,0"(i32 7) memory(none)', False),
        ('asm "", "=s,0"(i32 7) memory(none), !srcloc !3', True),
        ('asm "s_mov_b32 $0, 7", "=s"() memory(none)', True),
        ('asm sideeffect "", "=v,0"(i32 %x), !srcloc !3', True),
        ('asm sideeffect "nop", "=v,0"(i32 %x)', True),
        ("@asm()", False),
    ],
)
def test_a_mark_without_instructions_is_no_assembly(assembly: str, apart: bool) -> None:
    assert (
        has_inline_assembly(f"define void @f() {{\n  call void {assembly}\n  ret void\n}}\n")
        is apart
    )


@pytest.mark.parametrize("passes", [(), ("O2",)])
def test_assembly_and_object_together_are_those_of_each_alone(passes: tuple[str, ...]) -> None:
    marked = LOOP.replace("  %v", '  call void asm sideeffect "", "~{memory}"()\n  %v')
    rejected = LOOP.replace("  %v", '  call void asm sideeffect "nop", "~{memory}"()\n  %v')
    for text in (ADD, LOOP, marked, rejected):
        alone = (
            assembly(text, passes=passes, **host()),
            compile_to_object(text, passes=passes, **host()),
        )
        assert assembly_and_object(text, passes=passes, **host()) == alone


def test_long_text_has_options_of_its_own() -> None:
    """They are for that text alone: the process does not keep them, and shorter text does not get
    them."""
    settings = {"triple": "x86_64-unknown-linux-gnu", "if_long": ("--x86-asm-syntax=intel",)}
    long = ADD + "; a line\n" * LONG
    assert ".intel_syntax" in assembly(long, **settings)
    assert ".intel_syntax" not in assembly(ADD, **settings)
    assert compile_to_object(long, **settings) == compile_to_object(ADD, **settings)
    with pytest.raises(LoweringError, match="has no pass"):
        assembly(long, **settings, passes=["nonsense"])
    assert "--x86-asm-syntax=intel" not in options_set()


def test_an_input_that_is_an_output_by_number_has_its_register():
    """The output's number, whichever comes first, and its width: of a group of elements too."""
    module = ModuleWriter()
    w = module.function("f", [("i32", "a"), ("i64", "b"), ("i16", "c"), ("i16", "d")])
    letters = {"r": "i32", "l": "i64"}
    narrow, wide = AssemblyOperand("i32", 32), AssemblyOperand("i64", 64)
    emit_inline_asm(
        w,
        letters,
        "text",
        "=r,=l,1,0",
        [narrow, wide],
        [replace(wide, name="%b"), replace(narrow, name="%a")],
    )
    emit_inline_asm(
        w,
        letters,
        "text",
        "=l,=r,1,0",
        [wide, narrow],
        [replace(narrow, name="%a"), replace(wide, name="%b")],
    )
    w.ret()
    calls = [
        line.partition("(")[2].rpartition(")")[0]
        for line in module.text().splitlines()
        if "call" in line
    ]
    assert [call.rpartition("(")[2] if "(" in call else call for call in calls] == [
        "i64 %b, i32 %a",
        "i32 %a, i64 %b",
    ]
    with pytest.raises(LoweringError, match="constraint '2' in '=r,2' is none of r, l"):
        emit_inline_asm(w, letters, "text", "=r,2", [narrow], [replace(narrow, name="%a")])
