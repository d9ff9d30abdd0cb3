"""Objects linked into the process."""

import ctypes
import gc
import math
import subprocess
import sys

import pytest

from tilewright.errors import LoweringError
from tilewright.llvm.codegen.compile import compile_to_object, host_target
from tilewright.llvm.codegen.link import load_object


def compiled(text):
    triple, cpu, features = host_target()
    return compile_to_object(text, triple=triple, cpu=cpu, features=features)


def test_symbols_of_the_process_are_seen():
    loaded = load_object(
        compiled(
            "declare double @erf(double)\ndefine double @f(double %x) {\n"
            "  %y = call double @erf(double %x)\n  ret double %y\n}"
        ),
        ["f"],
    )
    assert ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(loaded.address("f"))(0.5) == math.erf(
        0.5
    )


def test_imports_are_seen():
    callback = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: 3 * x)
    address = ctypes.cast(callback, ctypes.c_void_p).value
    text = (
        "declare i64 @callback(i64)\ndefine i64 @f(i64 %x) {\n  %y = call i64 @callback(i64 %x)\n"
        "  ret i64 %y\n}"
    )
    loaded = load_object(compiled(text), ["f"], {"callback": address})
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address("f"))(14) == 42


#: Takes all of the address space but holes that are far apart, the lowest of which alone has room
#: for a whole object, and links one.
CROWDED = """
import ctypes, mmap, sys
from tilewright.llvm.codegen.compile import compile_to_object, host_target
from tilewright.llvm.codegen.link import load_object

HOLE, ROOM = 96 << 10, 8 << 20
triple, cpu, features = host_target()
numbers = ", ".join(f"i64 {i}" for i in range(8000))
body = "".join(f"  %x{i + 1} = call i64 asm sideeffect \\"leaq {i}($1), $0\\", \\"=r,r\\"(i64 %x{i})\\n" for i in range(10000))
text = f"@t = constant [8000 x i64] [{numbers}]\\ndefine i64 @f(i64 %x0) {{\\n{body}"
text += "  %at = getelementptr i64, ptr @t, i64 %x10000\\n  %y = load i64, ptr %at\\n  ret i64 %y\\n}\\n"
binary = compile_to_object(text, triple=triple, cpu=cpu, features=features, opt=0)
load_object(compile_to_object("define void @g() {\\n  ret void\\n}", triple=triple, cpu=cpu, features=features), ["g"])
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype, libc.munmap.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_size_t)
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
spare = bytearray(64 << 20)
del spare
taken, size = [], 1 << 44
while size >= 64 << 10:
    found = libc.mmap(None, size, 0, 0x4022, -1, 0)
    if found in (None, ctypes.c_void_p(-1).value):
        size >>= 1
    else:
        taken.append((found, size))
large = sorted(found for found, size in taken if size >= 1 << 35)
assert len(large) > 3, "the address space is not free enough for this test"
libc.munmap(large[0], ROOM)
for found in large[1:]:
    libc.munmap(found, HOLE)
loaded = load_object(binary, ["f"])
print(ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(loaded.address("f"))(-sum(range(10000)) + 77))
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or host_target()[0].partition("-")[0] != "x86_64",
    reason="by flags of Linux, in code of x86-64",
)
def test_objects_are_linked_where_the_address_space_is_crowded():
    done = subprocess.run(
        [sys.executable, "-c", CROWDED], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "77"), done.stderr


def test_objects_with_equal_symbols_do_not_meet():
    texts = [
        (
            f"@state = global i64 {i}\ndefine i64 @f() {{\n  %x = load i64, ptr @state\n"
            f"  ret i64 %x\n}}"
        )
        for i in range(3)
    ]
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
        load_object(
            compiled(
                "declare void @nosuch()\ndefine void @f() {\n  call void @nosuch()\n  ret void\n}"
            ),
            ["f"],
        )
