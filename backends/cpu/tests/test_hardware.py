"""The hardware of targets, and the decisions that follow from it, for simulated processors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.errors import BackendError
from tilewright.ir.parser import parse_module
from tilewright.plugins.registry import registry
from tilewright.runtime.devices.device_registry import named_target
from tilewright_cpu import target
from tilewright_cpu.hardware import NAMED, USUAL_CACHES, hardware_of, vector_unit
from tilewright_cpu.hardware import named_target as row_target
from tilewright_cpu.lower import lower
from tilewright_cpu.runtime import load


@pytest.mark.parametrize(
    ("arch", "features", "bits", "registers"),
    [
        ("x86-64", {"sse2"}, 128, 16),
        ("x86-64", {"avx", "avx2"}, 256, 16),
        ("x86-64", {"avx", "avx512f"}, 512, 32),
        ("aarch64", {"neon"}, 128, 32),
        ("riscv64", {"v"}, 128, 32),
        ("riscv64", {"v", "zvl256b"}, 256, 32),
        ("riscv64", set(), 128, 16),
        ("loongarch64", set(), 128, 16),
    ],
)
def test_vectors_by_features(arch: str, features: set[str], bits: int, registers: int) -> None:
    unit = vector_unit(arch, frozenset(features))
    assert (unit.bits, unit.registers) == (bits, registers)


def write_cache(root: Path, number: int, **files: str) -> None:
    folder = root / f"index{number}"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text + "\n")


def test_caches_are_read_from_the_system(tmp_path: Path) -> None:
    usual = {"coherency_line_size": "64"}
    write_cache(
        tmp_path,
        0,
        level="1",
        type="Data",
        size="48K",
        ways_of_associativity="12",
        shared_cpu_list="0,64",
        **usual,
    )
    write_cache(
        tmp_path,
        1,
        level="1",
        type="Instruction",
        size="32K",
        ways_of_associativity="8",
        shared_cpu_list="0,64",
        **usual,
    )
    write_cache(
        tmp_path,
        2,
        level="2",
        type="Unified",
        size="2048K",
        ways_of_associativity="16",
        shared_cpu_list="0,64",
        **usual,
    )
    write_cache(
        tmp_path,
        3,
        level="3",
        type="Unified",
        size="105M",
        ways_of_associativity="15",
        shared_cpu_list="0-31,64-95",
        **usual,
    )
    write_cache(tmp_path, 4, level="4", type="Unified", size="unknown", **usual)
    found = target.caches(tmp_path)
    assert [(cache.level, cache.bytes, cache.ways, cache.sharing) for cache in found] == [
        (1, 48 << 10, 12, 2),
        (2, 2 << 20, 16, 2),
        (3, 105 << 20, 15, 64),
    ]
    limits = target.cache_limits(found)
    assert limits == {
        "l1d_bytes": 48 << 10,
        "l1d_ways": 12,
        "l2_bytes": 2 << 20,
        "l2_ways": 16,
        "l3_bytes": 105 << 20,
        "line_bytes": 64,
    }


def test_what_the_system_does_not_tell_is_usual(tmp_path: Path) -> None:
    assert target.cache_limits(target.caches(tmp_path / "nothing")) == USUAL_CACHES
    write_cache(tmp_path, 0, level="1", type="Data", size="64K")
    assert target.cache_limits(target.caches(tmp_path)) == {**USUAL_CACHES, "l1d_bytes": 64 << 10}


@pytest.mark.parametrize(
    ("text", "count"), [("0", 1), ("0-3", 4), ("0-1,8-9", 4), ("", 1), ("0,2,4", 3)]
)
def test_lists_of_processors(text: str, count: int) -> None:
    assert target.processors(text) == count


@pytest.mark.parametrize("name", NAMED)
def test_decisions_for_every_named_processor_fit_it(name: str) -> None:
    found = hardware_of(row_target(name))
    rows, vectors = found.block
    assert rows * vectors + vectors + 1 <= found.registers
    assert rows * vectors >= 8 and vectors * found.vector_bytes <= 4 * found.limit("line_bytes")
    assert found.tiled_panel_bytes < found.limit("l1d_bytes")
    assert found.panel_bytes < found.packed_bytes < found.limit("l2_bytes")
    assert found.column_rows <= found.limit("l1d_ways")
    assert found.can("fused") == (name not in ("x86-64", "x86-64-v2"))


def test_decisions_move_with_the_quantities() -> None:
    milan, sapphire, apple = (
        hardware_of(row_target(name)) for name in ("znver3", "sapphirerapids", "apple-m1")
    )
    assert milan.block == (6, 2) and sapphire.block == (6, 4)
    assert milan.far_bytes == sapphire.far_bytes == 1024 and apple.far_bytes == 4096
    assert milan.tiled_panel_bytes == 16 << 10 and sapphire.tiled_panel_bytes == 24 << 10
    assert (milan.panel_bytes, sapphire.panel_bytes, apple.panel_bytes) == (
        64 << 10,
        256 << 10,
        1536 << 10,
    )
    assert (milan.packed_bytes, sapphire.packed_bytes) == (256 << 10, 1 << 20)
    assert not milan.can("ldexp") and sapphire.can("ldexp") and not apple.can("ldexp")


def test_a_processor_is_a_target_by_its_name() -> None:
    backend = registry().get("cpu")
    found = named_target(backend, "neoverse-v1")
    assert (
        found.arch == "aarch64"
        and found.cpu == "neoverse-v1"
        and found.limits["l1d_bytes"] == 64 << 10
    )
    assert target.llvm_target(found)[0] == "aarch64-unknown-linux-gnu"
    with pytest.raises(BackendError, match="has no target 'z80'; it has x86-64, x86-64-v2"):
        named_target(backend, "z80")


def test_code_for_another_processor_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    module = parse_module(
        "tilewright.ir 1.0\nkernel @one(%x: ptr<i32>, %v: i32) {\n  store %x, %v\n  return\n}\n"
    )
    other = "aarch64" if target.host().arch == "x86-64" else "x86-64"
    with pytest.raises(
        BackendError, match=f"kernel one is compiled for {other}, and this machine is"
    ):
        load(lower(module, row_target(other), {}))
    code = lower(module, target.host(), {})
    assert load(code).function
    monkeypatch.setitem(code.metadata, "features", [*code.metadata["features"], "amx-fp64", "sse9"])
    with pytest.raises(BackendError, match="with amx-fp64, sse9, which this machine lacks"):
        load(code)
