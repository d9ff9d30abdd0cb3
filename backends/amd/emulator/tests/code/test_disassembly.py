"""Code objects run from their bytes where AMD's disassembler is installed; what is no code object
is refused in any case."""

from __future__ import annotations

import llvmlite.binding as llvm
import numpy as np
import pytest
from test_compiled_kernels import ATOMICS, EXCHANGE, LOOPS, exchanged
from wave_kernels import TARGETS, compiled, launch

from tilewright_amd_emulator import WaveError, disassembled
from tilewright_amd_emulator.code.disassembly import _library, _trimmed


def _object(ir: str, target: str) -> bytes:
    compiled(ir, target)  # initializes the target
    module = llvm.parse_assembly(ir)
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(
        cpu=target, opt=2, reloc="pic"
    )
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    passes.getModulePassManager().run(module, passes)
    return bytes(machine.emit_object(module))


def _there() -> bool:
    try:
        _library()
    except WaveError:
        return False
    return True


@pytest.mark.skipif(not _there(), reason="rocm-bindings-compiler is not installed")
@pytest.mark.parametrize("target", TARGETS)
def test_the_bytes_do_what_the_text_does(target: str) -> None:
    x = np.arange(1024, dtype=np.float32)
    (_, out), covered = launch(
        disassembled(_object(EXCHANGE, target)),
        [x, np.zeros_like(x)],
        b"",
        (4, 1, 1),
        256,
        1024,
        "random",
    )
    np.testing.assert_array_equal(out, exchanged(x))
    _, by_text = launch(
        compiled(EXCHANGE, target), [x, np.zeros_like(x)], b"", (4, 1, 1), 256, 1024, "random"
    )
    assert covered == by_text
    arrays = [
        np.zeros(4, np.int32),
        np.zeros(640, np.int32),
        np.zeros(1, np.float32),
        *(np.zeros(1, np.uint32) for _ in range(3)),
    ]
    outputs, _ = launch(disassembled(_object(ATOMICS, target)), arrays, b"", (10, 1, 1), 64)
    assert outputs[2][0] == 640 * 639 / 2 and outputs[5][0] == 30


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"", "not a 64-bit ELF"), (b"\x7fELF\x02" + bytes(59), "not a 64-bit ELF")],
)
def test_what_is_no_code_object_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(WaveError, match=message):
        disassembled(data)


def test_a_machine_that_is_not_supported_is_named() -> None:
    data = bytearray(_object(EXCHANGE, "gfx942"))
    data[48] = 0x21
    with pytest.raises(WaveError, match="machine 0x21 is not supported"):
        disassembled(bytes(data))


def test_code_that_is_not_linked_is_refused() -> None:
    with pytest.raises(WaveError, match="link it first"):
        disassembled(_object(LOOPS, "gfx1100"))


def test_code_behind_the_last_end_that_goes_back_into_the_program_is_kept() -> None:
    texts = [
        "s_cbranch_scc0 2",
        "s_endpgm",
        "v_mov_b32_e32 v0, 0",
        "s_branch 65532",
        "s_nop 0",
        "s_nop 0",
    ]
    body = [(4 * place, 4, text) for place, text in enumerate(texts)]
    assert _trimmed(body) == body[:4]
