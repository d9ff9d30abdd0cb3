"""A barrier, a wait or an address that is wrong is found, by an error or by a wrong result, under
one of the two schedules."""

from __future__ import annotations

import re

import numpy as np
import pytest
from test_compiled_kernels import EXCHANGE, TO_LDS, exchanged
from wave_kernels import BARRIER, SCHEDULES, TARGETS, WAVE64, compiled, kernel, launch

from tilewright_amd_emulator import WaveError

_BARRIERS = ("s_barrier", "s_barrier_signal")


#: a barrier alone, which nothing is waited for at
_BARE = """  call void asm sideeffect "", "~{memory}"()
  call void @llvm.amdgcn.s.barrier()
  call void asm sideeffect "", "~{memory}"()
"""


def _survives(text: str, schedule: str, seed: int = 0) -> bool:
    """Return whether the exchange through shared memory yields the right result."""
    x = np.arange(1, 1025, dtype=np.float32)
    try:
        (_, out), _ = launch(text, [x, np.zeros_like(x)], b"", (4, 1, 1), 256, 1024, schedule, seed)
    except WaveError:
        return False
    return bool(np.array_equal(out, exchanged(x)))


def _lines(text: str) -> list[str]:
    return text.splitlines()


def _without(text: str, place: int, count: int = 1) -> str:
    lines = _lines(text)
    return "\n".join(lines[:place] + lines[place + count :])


def _places(text: str, names: tuple[str, ...]) -> list[int]:
    return [i for i, line in enumerate(_lines(text)) if (line.split() or [""])[0] in names]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("number", range(3))
def test_a_missing_barrier_is_found(target: str, number: int) -> None:
    text = compiled(EXCHANGE, target)
    places = _places(text, _BARRIERS)
    assert len(places) == 3
    mutant = _without(text, places[number], 2 if "signal" in _lines(text)[places[number]] else 1)
    assert not all(_survives(mutant, schedule) for schedule in SCHEDULES)


@pytest.mark.parametrize("target", TARGETS)
def test_every_missing_wait_is_found(target: str) -> None:
    text = compiled(EXCHANGE, target)
    places = [
        i
        for i, line in enumerate(_lines(text))
        if re.match(r"\s+s_wait(cnt|_loadcnt|_dscnt|_kmcnt)", line)
    ]
    if target == "gfx1201":
        # The first one waits for data; others of this name wait for caches to be invalidated, which
        # has no effect here.
        only_caches = [i for i in places if re.match(r"\s+s_wait_loadcnt 0x0", _lines(text)[i])][1:]
        places = [i for i in places if i not in only_caches]
    assert len(places) >= 5
    for place in places:
        mutant = _without(text, place)
        assert not all(_survives(mutant, schedule) for schedule in SCHEDULES), _lines(text)[place]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("pattern", "becomes"),
    [
        (r"(\s+global_load_\w+ .*off)$", r"\1 offset:4"),
        (r"(\s+global_store_\w+ .*off)$", r"\1 offset:-4"),
        (r"(\s+ds_(?:read|load)_b32 .*)$", r"\1 offset:4"),
        (r"(\s+ds_(?:write|store)_b32 .*)$", r"\1 offset:4"),
        (r"0xff,", "0x1ff,"),
        (r"(v_lshl_or_b32 \S+ \S+) 8,", r"\1 9,"),
        (r"(\s+global_load_\w+ .*off)$", r"\1 offset:2"),
    ],
)
def test_an_address_that_is_wrong_is_found(target: str, pattern: str, becomes: str) -> None:
    text = compiled(EXCHANGE, target)
    mutant, count = re.subn(pattern, becomes, text, count=1, flags=re.M)
    assert count == 1
    assert not _survives(mutant, "lockstep")


#: thread t of 256 stores to global memory, and loads what thread 255 - t stored
THROUGH_GLOBAL = kernel(
    f"""  %p = getelementptr i32, ptr addrspace(1) %x, i32 %t
  %j = sub i32 255, %t
  %q = getelementptr i32, ptr addrspace(1) %x, i32 %j
  %m = mul i32 %t, 3
  store i32 %m, ptr addrspace(1) %p
{BARRIER}  %v = load i32, ptr addrspace(1) %q
  %o = getelementptr i32, ptr addrspace(1) %y, i32 %t
  store i32 %v, ptr addrspace(1) %o""",
    "ptr addrspace(1) %x, ptr addrspace(1) %y",
    threads=256,
)


@pytest.mark.parametrize("target", TARGETS)
def test_a_store_that_is_not_waited_for_is_found(target: str) -> None:
    text = compiled(THROUGH_GLOBAL, target)

    def right(candidate: str, schedule: str) -> bool:
        zero = np.zeros(256, np.int32)
        try:
            (_, out), _ = launch(candidate, [zero, zero], b"", (1, 1, 1), 256, 0, schedule)
        except WaveError:
            return False
        return bool(np.array_equal(out, 3 * np.arange(256)[::-1]))

    assert right(text, "lockstep") and right(text, "random")
    places = [
        i
        for i, line in enumerate(_lines(text))
        if re.match(r"\s+(s_waitcnt_vscnt|s_wait_storecnt)", line)
    ]
    if target in WAVE64:  # accesses of a workgroup are in order: LLVM has no wait here
        assert not places
        return
    assert not right(_without(text, places[0]), "random")


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
def test_a_copy_to_shared_memory_that_is_not_waited_for_is_found(target: str) -> None:
    text = compiled(TO_LDS, target)
    x = np.arange(128, dtype=np.int32)
    place = _places(text, ("s_waitcnt",))[1]
    assert "vmcnt" in _lines(text)[place]

    def right(candidate: str) -> bool:
        (_, out), _ = launch(candidate, [x, np.zeros_like(x)], b"", (1, 1, 1), 128, 512)
        return bool(np.array_equal(out, x[::-1]))

    assert right(text) and not right(_without(text, place))


#: two copies of 256 words in flight: the first is reversed behind a barrier while the second is
#: on its way, then the second
TWO_COPIES = kernel(
    f"""  %w = lshr i32 %t, 6
  %u = call i32 @llvm.amdgcn.readfirstlane.i32(i32 %w)
  %run = shl i32 %u, 10
  %to = getelementptr i8, ptr addrspace(3) @lds, i32 %run
  %to.2 = getelementptr i8, ptr addrspace(3) %to, i32 4096
  %from = getelementptr <4 x i32>, ptr addrspace(1) %x, i32 %t
  %from.2 = getelementptr <4 x i32>, ptr addrspace(1) %from, i32 256
  call void @llvm.amdgcn.global.load.lds(ptr addrspace(1) %from, ptr addrspace(3) %to, i32 16, i32 0, i32 0), !alias.scope !3
  call void @llvm.amdgcn.global.load.lds(ptr addrspace(1) %from.2, ptr addrspace(3) %to.2, i32 16, i32 0, i32 0), !alias.scope !3
  call void @llvm.amdgcn.s.waitcnt(i32 {0x71})
{_BARE}  %m = sub i32 255, %t
  %q = getelementptr <4 x i32>, ptr addrspace(3) @lds, i32 %m
  %v = load <4 x i32>, ptr addrspace(3) %q, !alias.scope !5, !noalias !3
  call void @llvm.amdgcn.s.waitcnt(i32 {0x70})
{_BARE}  %q.2 = getelementptr <4 x i32>, ptr addrspace(3) %q, i32 256
  %v.2 = load <4 x i32>, ptr addrspace(3) %q.2, !alias.scope !5, !noalias !3
  %o = getelementptr <4 x i32>, ptr addrspace(1) %y, i32 %t
  %o.2 = getelementptr <4 x i32>, ptr addrspace(1) %o, i32 256
  store <4 x i32> %v, ptr addrspace(1) %o
  store <4 x i32> %v.2, ptr addrspace(1) %o.2""",
    "ptr addrspace(1) noalias %x, ptr addrspace(1) noalias %y",
    """@lds = external addrspace(3) global [0 x i32], align 16
declare i32 @llvm.amdgcn.readfirstlane.i32(i32)
declare void @llvm.amdgcn.s.waitcnt(i32 immarg)
declare void @llvm.amdgcn.global.load.lds(ptr addrspace(1), ptr addrspace(3), i32 immarg, i32 immarg, i32 immarg)
!1 = !{!"memory"}
!2 = !{!"copies", !1}
!3 = !{!2}
!4 = !{!"accesses", !1}
!5 = !{!4}
""",
    256,
)


def test_copies_that_are_waited_for_one_by_one() -> None:
    """Mutants of waits and barriers fail.

    They lack a wait or a barrier, or wait for one copy too few.
    """
    text = compiled(TWO_COPIES, "gfx950")
    x = np.arange(2048, dtype=np.int32)

    def right(candidate: str, schedule: str) -> bool:
        try:
            (_, out), _ = launch(
                candidate, [x, np.full_like(x, -1)], b"", (1, 1, 1), 256, 8192, schedule
            )
        except WaveError:
            return False
        return bool(np.array_equal(out.reshape(2, 256, 4), x.reshape(2, 256, 4)[:, ::-1]))

    assert all(right(text, schedule) for schedule in SCHEDULES)
    lines = _lines(text)
    waits = [place for place in _places(text, ("s_waitcnt",)) if "vmcnt" in lines[place]]
    assert [re.findall(r"vmcnt\((\d)\)", lines[place]) for place in waits] == [["1"], ["0"]]
    mutants = [_without(text, place) for place in (*waits, *_places(text, ("s_barrier",)))]
    for place in waits:
        count = int(re.findall(r"vmcnt\((\d)\)", lines[place])[0])
        mutants.append(
            "\n".join(
                [
                    *lines[:place],
                    lines[place].replace(f"vmcnt({count})", f"vmcnt({count + 1})"),
                    *lines[place + 1 :],
                ]
            )
        )
    assert len(mutants) == 6
    for mutant in mutants:
        assert not all(right(mutant, schedule) for schedule in SCHEDULES)


def test_the_error_names_register_instruction_and_line() -> None:
    text = compiled(EXCHANGE, "gfx942")
    (place,) = [i for i, line in enumerate(_lines(text)) if "vmcnt(0)" in line]
    x = np.zeros(1024, np.float32)
    with pytest.raises(
        WaveError,
        match=(
            r"line \d+: ds_write_b32 v0, v4: reads v4, which line \d+ \(global_load_dword v4, "
            r".*\) has not loaded yet"
        ),
    ):
        launch(_without(text, place), [x, x], b"", (4, 1, 1), 256, 1024)


@pytest.mark.parametrize("seed", range(8))
def test_the_right_kernel_survives_any_order(seed: int) -> None:
    for target in ("gfx942", "gfx1100"):
        assert _survives(compiled(EXCHANGE, target), "random", seed)
