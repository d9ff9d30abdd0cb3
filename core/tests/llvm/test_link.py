"""Objects linked into the process."""

import ctypes
import gc
import math

import pytest

from tilewright.errors import LoweringError
from tilewright.llvm.compile import compile_to_object, host_target
from tilewright.llvm.link import load_object


def compiled(text):
    triple, cpu, features = host_target()
    return compile_to_object(text, triple=triple, cpu=cpu, features=features)


def test_symbols_of_the_process_are_seen():
    loaded = load_object(compiled("declare double @erf(double)\ndefine double @f(double %x) {\n  %y = call double @erf(double %x)\n  ret double %y\n}"), ["f"])
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(loaded.address("f"))(0.5) == math.erf(0.5)


def test_imports_are_seen():
    callback = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: 3 * x)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    text = "declare i64 @callback(i64)\ndefine i64 @f(i64 %x) {\n  %y = call i64 @callback(i64 %x)\n  ret i64 %y\n}"
    loaded = load_object(compiled(text), ["f"], {"callback": address})
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address("f"))(14) == 42


def test_objects_with_equal_symbols_do_not_meet():
    texts = [f"@state = global i64 {i}\ndefine i64 @f() {{\n  %x = load i64, ptr @state\n  ret i64 %x\n}}" for i in range(3)]
    loaded = [load_object(compiled(text), ["f", "state"]) for text in texts]
    assert [ctypes.CFUNCTYPE(ctypes.c_int64)(each.address("f"))() for each in loaded] == [0, 1, 2]
    ctypes.c_int64.from_address(loaded[1].address("state")).value = 50
    assert [ctypes.CFUNCTYPE(ctypes.c_int64)(each.address("f"))() for each in loaded] == [0, 50, 2]


def test_code_is_unmapped_when_nobody_needs_it_and_others_stay():
    binary = compiled("define i64 @f() {\n  ret i64 7\n}")
    kept = load_object(binary, ["f"])
    for _ in range(50):
        load_object(binary, ["f"])
    gc.collect()
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(kept.address("f"))() == 7


@pytest.mark.parametrize("binary", [b"", b"\x7fELF nonsense", b"something else"])
def test_damaged_objects_are_refused(binary):
    with pytest.raises(LoweringError, match="cannot link object code with symbols f"):
        load_object(binary, ["f"])


def test_truncated_objects_are_refused():
    binary = compiled("define i64 @f() {\n  ret i64 7\n}")
    with pytest.raises(LoweringError, match="cannot link"):
        load_object(binary[: len(binary) // 2], ["f"])


def test_missing_symbols_are_refused(capfd):
    with pytest.raises(LoweringError, match="nosuch"):
        load_object(compiled("define i64 @f() {\n  ret i64 7\n}"), ["nosuch"])
    with pytest.raises(LoweringError, match="cannot link"):
        load_object(compiled("declare void @nosuch()\ndefine void @f() {\n  call void @nosuch()\n  ret void\n}"), ["f"])
