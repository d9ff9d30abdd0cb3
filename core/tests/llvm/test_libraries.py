"""Linking of bitcode libraries: the functions that a program uses, run on this machine."""

import ctypes

import llvmlite.binding as llvm
import pytest

from tilewright.errors import LoweringError
from tilewright.llvm.codegen.compile import compile_to_object, host_target, parse
from tilewright.llvm.codegen.libraries import Libraries, paths_of
from tilewright.llvm.codegen.link import load_object

COUNTING = """
@counter = global i32 40
@unused = global i32 1
@step = constant i32 2

define i32 @next(i32 %by) {
  %step = load i32, ptr @step
  %scaled = call i32 @helper(i32 %by, i32 %step)
  %before = load i32, ptr @counter
  %after = add i32 %before, %scaled
  store i32 %after, ptr @counter
  ret i32 %after
}

define i32 @helper(i32 %x, i32 %y) noinline {
  %z = mul i32 %x, %y
  ret i32 %z
}

define i32 @other() {
  ret i32 0
}
"""
PROGRAM = (
    "declare i32 @next(i32)\ndefine i32 @program(i32 %x) {\n  %y = call i32 @next(i32 %x)\n"
    "  ret i32 %y\n}"
)


@pytest.fixture
def library(tmp_path):
    def make(text, name="lib", triple=""):
        module = llvm.parse_assembly(text)
        module.triple = triple
        path = tmp_path / f"{name}.bc"
        path.write_bytes(module.as_bitcode())
        return {name: path}

    return make


def test_what_is_called_is_linked_and_the_rest_dropped(library):
    triple, cpu, features = host_target()
    libraries = Libraries(library(COUNTING), triple)
    assert (
        "next" in libraries
        and "nothing" not in libraries
        and libraries.signature("next") == ("i32", ("i32",))
    )
    text = libraries.linked(PROGRAM, cpu, features)
    module = parse(text)
    values = (*module.functions, *module.global_variables)
    assert {value.name: value.linkage for value in values} == {
        "program": llvm.Linkage.external, "next": llvm.Linkage.internal,
        "helper": llvm.Linkage.internal, "counter": llvm.Linkage.external,
        "step": llvm.Linkage.external,
    }  # fmt: skip
    loaded = load_object(
        compile_to_object(text, triple=triple, cpu=cpu, features=features), ["program", "counter"]
    )
    program = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(loaded.address("program"))
    assert [program(1), program(10)] == [42, 62]
    assert ctypes.c_int32.from_address(loaded.address("counter")).value == 62  # a host finds it
    assert libraries.linked(PROGRAM, cpu, features) == text  # and the libraries are as they were


def test_a_library_calls_another(library):
    triple, cpu, features = host_target()
    outer = library(
        (
            "declare i32 @inner(i32)\ndefine i32 @next(i32 %x) {\n"
            "  %y = call i32 @inner(i32 %x)\n  ret i32 %y\n}"
        ),
        "outer",
    )
    inner = library("define i32 @inner(i32 %x) {\n  %y = add i32 %x, 7\n  ret i32 %y\n}", "inner")
    for order in ({**outer, **inner}, {**inner, **outer}):
        text = Libraries(order, triple).linked(PROGRAM, cpu, features)
        loaded = load_object(
            compile_to_object(text, triple=triple, cpu=cpu, features=features), ["program"]
        )
        assert ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(loaded.address("program"))(3) == 10


def test_symbols_that_clash_are_refused(library):
    triple, cpu, features = host_target()
    libraries = Libraries(
        library(COUNTING + "define i32 @program(i32 %x) {\n  ret i32 0\n}"), triple
    )
    with pytest.raises(
        LoweringError,
        match=(
            r"library 'lib' of extern_libs cannot be linked to the kernel: .*symbol multiply "
            r"defined"
        ),
    ):
        libraries.linked(PROGRAM, cpu, features)


def test_what_is_no_library_of_the_target_is_refused(library, tmp_path):
    (tmp_path / "text").write_text("not bitcode")
    for paths, said in (
        (
            {"a": tmp_path / "absent.bc"},
            r"library 'a' of extern_libs \(.*absent.bc\) cannot be read: No such file",
        ),
        (
            {"a": tmp_path / "text"},
            r"library 'a' of extern_libs \(.*text\) is no bitcode that LLVM [\d.]+ reads",
        ),
        (
            library(COUNTING, triple="amdgcn-amd-amdhsa"),
            r"is for amdgcn-amd-amdhsa, and the kernel is compiled for nvptx64-nvidia-cuda",
        ),
    ):
        with pytest.raises(LoweringError, match=said):
            Libraries(paths, "nvptx64-nvidia-cuda")


def test_the_option_is_names_and_paths(tmp_path):
    assert paths_of(None) == paths_of(()) == {}
    assert paths_of({"a": str(tmp_path)}) == paths_of((("a", str(tmp_path)),)) == {"a": tmp_path}
    for wrong in (3, [1], {"a": 1}):
        with pytest.raises(
            LoweringError, match="extern_libs must map names to paths of bitcode files, not be"
        ):
            paths_of(wrong)
