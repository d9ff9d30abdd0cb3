"""Code objects: what loaders look at, and what cannot be linked."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import amd_kernels as kernels
import pytest
from amd_support import ARCHS, compiled, sections

from tilewright.errors import LoweringError, OutOfResources
from tilewright.llvm.codegen.compile import compile_to_object
from tilewright.tools import cli
from tilewright_amd.codegen import prints
from tilewright_amd.target import TRIPLE
from tilewright_amd.toolchain.linker import link

ADD = "x=*fp32:16, y=*fp32:16, z=*fp32:16, n=i32"


def symbols(data: bytes, table: str) -> dict[str, tuple[int, int, int]]:
    """Name -> (kind, section, value)."""
    found = sections(data)
    _, _, offset, size = found[table]
    _, _, names, _ = found[".dynstr" if table == ".dynsym" else ".strtab"]
    rows = {}
    for name, info, _, section, value, _ in struct.iter_unpack(
        "<IBBHQQ", data[offset : offset + size]
    ):
        rows[data[names + name : data.index(0, names + name)].decode()] = (
            info & 15,
            section,
            value,
        )
    return rows


@pytest.mark.parametrize("arch", ARCHS)
def test_a_code_object_has_what_loaders_read(arch: str) -> None:
    code = compiled(kernels.add, ADD, arch, {"BLOCK": 1024})
    data, listing = code.stages["hsaco"], code.stages["amdgcn"]
    assert isinstance(data, bytes) and isinstance(listing, str) and code.binary == data
    assert f"amdgcn-amd-amdhsa--{arch}" in listing and ".amdhsa_code_object_version 5" in listing
    assert data[:9] == b"\x7fELF\x02\x01\x01\x40\x03"  # of HSA, in the ABI of version 5
    assert struct.unpack_from("<HH", data, 16) == (3, 224)
    programs, (count,) = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)
    segments = [struct.unpack_from("<IIQQQQQQ", data, programs + 56 * i) for i in range(count)]
    loaded = [segment for segment in segments if segment[0] == 1]
    assert loaded[0][3] == 0 and [segment[3] for segment in loaded] == sorted(
        segment[3] for segment in loaded
    )
    assert all(segment[2] % 4096 == segment[3] % 4096 for segment in loaded)
    found = sections(data)
    for table in (".dynsym", ".symtab"):
        kernel, descriptor = symbols(data, table)["add"], symbols(data, table)["add.kd"]
        assert (kernel[0], descriptor[0]) == (2, 1) and descriptor[1] > 0
        assert kernel[2] == found[".text"][1] and descriptor[2] % 64 == 0
        # the descriptor says how far the code is from it
        _, address, offset, _ = found[".rodata"]
        (distance,) = struct.unpack_from("<q", data, offset + descriptor[2] - address + 16)
        assert descriptor[2] + distance == kernel[2]
    assert found[".note"][0] == 7 and b"amdhsa.kernels" in data


def test_addresses_of_constants_are_relative_or_in_a_table() -> None:
    text = """
@numbers = private unnamed_addr addrspace(4) constant [4 x i32] [i32 5, i32 6, i32 7, i32 8]
@shown = addrspace(1) global [4 x i32] zeroinitializer
@place = addrspace(1) global ptr addrspace(1) @shown
define amdgpu_kernel void @k(ptr addrspace(1) %out, i32 %i) {
  %at = getelementptr i32, ptr addrspace(4) @numbers, i32 %i
  %x = load i32, ptr addrspace(4) %at
  store i32 %x, ptr addrspace(1) %out
  store i32 %x, ptr addrspace(1) @shown
  ret void
}
"""
    data = link(compile_to_object(text, triple=TRIPLE, cpu="gfx942"))
    found = sections(data)
    offset, size = found[".rela.dyn"][2:]
    rows = list(struct.iter_unpack("<QQq", data[offset : offset + size]))
    shown = symbols(data, ".dynsym")["shown"][2]
    places = {symbols(data, ".dynsym")["place"][2], found[".got"][1]}
    assert {(place, kind, addend) for place, kind, addend in rows} == {
        (place, 13, shown) for place in places
    }


def test_what_cannot_be_linked_is_told() -> None:
    text = """
declare void @elsewhere()
define amdgpu_kernel void @k() {
  call void @elsewhere()
  ret void
}
"""
    with pytest.raises(LoweringError, match="there is no 'elsewhere' on the GPU"):
        link(compile_to_object(text, triple=TRIPLE, cpu="gfx942"))
    with pytest.raises(LoweringError, match="relocatable ELF object"):
        link(b"MZ")


def test_stages_are_shown_without_a_gpu(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    file = Path(__file__).resolve().parents[1] / "amd_kernels.py"
    signature = "*fp32:16,*fp32:16,*fp32:16,i32:16"
    command = (
        f"inspect {file}:add --backend amd --arch gfx942 --signature {signature} --constants "
        "BLOCK=1024"
    ).split()
    assert cli.main(command) == 0
    text = capsys.readouterr().out
    stages = ["tileir", "simt", "layouts", "llir", "amdgcn", "hsaco", "resources"]
    assert [name for name in re.findall(r"^## (\w+)", text, re.M) if name in stages] == stages
    assert re.search(
        r"^registers +\d+ a thread \(by the code generator\)$", text, re.M
    ) and re.search(r"^occupancy +100%", text, re.M)
    assert cli.main([part.replace("gfx942", "gfx803") for part in command]) != 0
    assert "has no target 'gfx803'" in capsys.readouterr().err


@pytest.mark.parametrize("arch", ARCHS)
def test_accesses_are_16_bytes_wide(arch: str) -> None:
    listing = compiled(kernels.add, ADD.replace("n=i32", "n=i32:16"), arch, {"BLOCK": 1024}).stages[
        "amdgcn"
    ]
    assert isinstance(listing, str)
    wide = "b128" if arch.startswith("gfx1") else "dwordx4"
    assert (listing.count(f"global_load_{wide}"), listing.count(f"global_store_{wide}")) == (
        (4, 2) if arch.startswith("gfx1") else (2, 1)
    )


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_what_is_not_there_is_refused(arch: str) -> None:
    with pytest.raises(
        LoweringError, match=r"inline assembly at .* in called_by_mistake: invalid instruction"
    ):
        compiled(kernels.called_by_mistake, "x=*fp32:16, out=*fp32:16", arch)
    with pytest.raises(OutOfResources, match=r"shared memory.*gathered.*num_warps=8"):
        compiled(
            kernels.gathered,
            "x=*fp64:16, places=*i32:16, out=*fp64:16",
            arch,
            {"ROWS": 256, "COLUMNS": 128},
            num_warps=8,
        )
    with pytest.raises(LoweringError, match="waves_per_eu must be"):
        compiled(kernels.add, ADD, arch, {"BLOCK": 1024}, waves_per_eu=99)
    with pytest.raises(OutOfResources, match="threads"):
        compiled(kernels.add, ADD, arch, {"BLOCK": 1024}, num_warps=64)


def test_what_is_printed_is_in_the_metadata() -> None:
    code = compiled(kernels.says, "x=*fp32:16", "gfx942")
    assert code.metadata["prints"] == {
        "formats": [("pid (%d, %d, %d) idx () x: %f\n", ("i32", "i32", "i32", "double"))],
        "words": 5,
    }
    assert compiled(kernels.add, ADD, "gfx942", {"BLOCK": 1024}).metadata["prints"] is None


def test_records_are_written_as_c_would() -> None:
    form = "%d %u %3d %lld %llu 0x%02x 0x%016llx %f 100%% %f\n"
    types = ("i32", "i32", "i32", "i64", "i64", "i32", "i64", "double", "double")
    words = (
        2**32 - 5,
        2**32 - 5,
        7,
        2**64 - 1,
        2**64 - 1,
        10,
        2**64 - 16,
        0x3FF8000000000000,
        0xFFF0000000000000,
    )
    expected = (
        "-5 4294967291   7 -1 18446744073709551615 0x0a 0xfffffffffffffff0 1.500000 100% -inf\n"
    )
    assert prints.line(form, types, words) == expected


def test_a_failed_assertion_is_a_trap() -> None:
    listing = compiled(kernels.checks, "x=*i32:16, n=i32", "gfx942", debug=True).stages["amdgcn"]
    assert isinstance(listing, str) and "s_trap 2" in listing
