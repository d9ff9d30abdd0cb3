"""Inline assembly: real instructions, assembled by AMD's LLVM and executed on emulated waves; and
what is said of assembly that cannot be."""

from __future__ import annotations

import ctypes
import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import amd_kernels as kernels
import numpy as np
import pytest
from amd_emulated import launched
from amd_support import compiled

import tilewright.language as tl
from tilewright.errors import LoweringError
from tilewright.plugins.registry import registry
from tilewright_amd import manifest
from tilewright_amd.toolchain import rocm_llvm
from tilewright_amd.toolchain.rocm_llvm import empty_library

assembled = pytest.mark.skipif(bool(rocm_llvm.missing()), reason="rocm-bindings-compiler is needed")
TYPES = [("gfx942", 64), ("gfx1201", 32)]
N = 256
SIGNATURE = "*i32, *i32, *i32"


def run(
    arch: str, assembly: str, constraints: str, element: Any = tl.int32, pack: int = 1
) -> tuple[np.ndarray[Any, Any], ...]:
    """The results of assembly on N numbers x and y."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(-(1 << 31), 1 << 31, (2, N)).astype(np.int32)
    out = np.zeros(N, np.int32)
    launched(
        compiled(
            kernels.assembly,
            SIGNATURE,
            arch,
            constants(assembly, constraints, element, pack),
            num_warps=2,
        ),
        [x, y, out],
    )
    return x, y, out


def constants(
    assembly: str, constraints: str, element: Any = tl.int32, pack: int = 1
) -> Mapping[str, Any]:
    return {
        "ASSEMBLY": assembly,
        "CONSTRAINTS": constraints,
        "ELEMENT": element,
        "PACK": pack,
        "N": N,
    }


@assembled
@pytest.mark.parametrize(("arch", "lanes"), TYPES)
def test_vector_instructions(arch: str, lanes: int) -> None:
    x, y, out = run(arch, "v_xor_b32 $0, $1, $2\nv_not_b32 $0, $0", "=&v,v,v")
    assert np.array_equal(out, ~(x ^ y))
    x, y, out = run(
        arch, "v_mul_lo_u32 v7, $1, $2\nv_xor_b32 $0, v7, $2", "={v9},r,r,~{v7},~{memory}"
    )
    with np.errstate(over="ignore"):
        assert np.array_equal(out, x * y ^ y)


@assembled
@pytest.mark.parametrize(("arch", "lanes"), TYPES)
def test_halves_share_a_register(arch: str, lanes: int) -> None:
    x, y, out = run(arch, "v_pk_add_u16 $0, $1, $2", "=v,v,v", tl.int16, 2)
    with np.errstate(over="ignore"):
        assert np.array_equal(out.view(np.int16), x.view(np.int16) + y.view(np.int16))


@assembled
@pytest.mark.parametrize(("arch", "lanes"), TYPES)
def test_local_memory_exchanges_values_of_lanes(arch: str, lanes: int) -> None:
    wait = "s_wait_dscnt 0" if arch == "gfx1201" else "s_waitcnt lgkmcnt(0)"
    upper = "\nv_mbcnt_hi_u32_b32 $0, -1, $0" if lanes == 64 else ""
    neighbour = f"v_mbcnt_lo_u32_b32 $0, -1, 0{upper}\nv_xor_b32 $0, 1, $0\nv_lshlrev_b32 $0, 2, $0"
    x, _, out = run(arch, f"{neighbour}\nds_bpermute_b32 $0, $0, $1\n{wait}", "=&v,v,v,~{memory}")
    # a thread has some elements, and the next one those that follow
    assert [
        distance for distance in (1, 2, 4, 8) if np.array_equal(out, x[np.arange(N) ^ distance])
    ]


@assembled
@pytest.mark.parametrize(("arch", "lanes"), TYPES)
def test_scalar_registers(arch: str, lanes: int) -> None:
    out = np.zeros(4, np.int32)
    launched(compiled(kernels.scalar_assembly, "*i32, i32", arch, num_warps=1), [out, 1234])
    assert out.tolist() == [3 * 1234, 32, ~1234, 0]


@assembled
def test_assembly_stays_where_its_lanes_are_together() -> None:
    """It may exchange values of lanes: LLVM sinks it into no branch that some of them take."""
    text = str(
        compiled(
            kernels.assembly, SIGNATURE, "gfx942", constants("v_xor_b32 $0, $1, $2", "=v,v,v")
        ).stages["llir"]
    )
    calls = [line for line in text.splitlines() if "v_xor_b32" in line]
    assert calls and all(re.search(r"\) convergent(,|$)", line) for line in calls)


@assembled
@pytest.mark.parametrize("arch", ["gfx90a", "gfx950", "gfx1100"])
def test_every_family_is_assembled_for(arch: str) -> None:
    x, y, out = run(arch, "v_bfi_b32 $0, $1, $2, 0", "=v,v,v")
    assert np.array_equal(out, x & y)


@assembled
def test_accumulator_registers() -> None:
    x, _, out = run(
        "gfx942", "v_accvgpr_write_b32 a3, $1\ns_nop 7\nv_accvgpr_read_b32 $0, a3", "=v,v,v,~{a3}"
    )
    assert np.array_equal(out, x)


@assembled
@pytest.mark.parametrize(
    ("assembly", "constraints", "said"),
    [
        (
            "s_nop 0\nfrobnicate $0, $1, $2",
            "=v,v,v",
            "invalid instruction (line 2 of it)\n    frobnicate v",
        ),
        ("v_add_u32 $0, a0, $1", "=v,v,v", "invalid operand for instruction\n    v_add_u32 v"),
        (
            "s_nop 0",
            "=v,v,v,v",
            "constraints '=v,v,v,v' have 3 inputs, which 2 elements do not fill",
        ),
        ("s_nop 0", "=q,v,v", "constraint 'q' in '=q,v,v' is none of r, v, s, a"),
        (
            "v_mov_b32 $0, $1",
            "={v999},v,v",
            "could not allocate output register for constraint '{v999}'",
        ),
        ("v_mov_b32 $0, $7", "=v,v,v", "invalid operand in inline asm: 'v_mov_b32 $0, $7'"),
        ("v_mov_b32 $0, $1", "=v,s,v", "constraint 's' in '=v,s,v' takes what all lanes share"),
    ],
)
def test_what_is_wrong_with_assembly_is_told_at_its_line(
    assembly: str, constraints: str, said: str
) -> None:
    line = next(
        number
        for number, text in enumerate(Path(kernels.__file__).read_text().splitlines(), 1)
        if text.startswith("    found = tl.inline_asm_elementwise(")
    )
    with pytest.raises(LoweringError) as caught:
        compiled(kernels.assembly, SIGNATURE, "gfx942", constants(assembly, constraints))
    text = str(caught.value)
    assert text.startswith(f"inline assembly at {kernels.__file__}:{line}:") and said in text, text


def test_without_an_assembler_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocm_llvm, "_PACKAGE", "rocm_bindings_that_nobody_has")
    declared = manifest.manifest().capabilities
    assert "inline_asm" not in declared.features
    backend = registry().get("amd")
    monkeypatch.setattr(
        backend, "manifest", dataclasses.replace(backend.manifest, capabilities=declared)
    )
    with pytest.raises(LoweringError) as caught:
        compiled(kernels.assembly, SIGNATURE, "gfx942", constants("s_nop 0", "=v,v,v"))
    text = str(caught.value)
    assert (
        kernels.__file__ in text
        and "does not declare feature 'inline_asm'" in text
        and "pip install rocm-bindings-compiler" in text
    )


def test_a_library_with_nothing_in_it_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "nothing.so"
    file.write_bytes(empty_library("libnothing_of_the_tests.so.1"))
    ctypes.CDLL(str(file))
    # found by its name from now on, as by a library that needs it
    ctypes.CDLL("libnothing_of_the_tests.so.1")
    with pytest.raises(OSError, match="no_such_library"):
        ctypes.CDLL("no_such_library.so.1")
