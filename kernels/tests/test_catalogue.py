"""Walks over the catalogue: every operation has a sample, faultless accesses, right results."""

import gc
import importlib
import inspect
from pathlib import Path

import fork_server
import numpy as np
import pytest
from catalogue import SAMPLES
from checks import FRAMEWORKS, TOLERANCES, check_gradients, check_operation

import tilewright as tw
import tilewright_kernels as tk
from tilewright_kernels.operations import Operation

#: Exported functions that are no operations: settings, plans, and conversions by the host.
NO_OPERATIONS = {
    "adamw_8bit_state", "apply_to", "pack_weights", "plan", "set_defaults", "unpack_weights",
    "use_defaults", "use_references", "weights_from_awq", "weights_from_gptq", "weights_from_hqq",
}  # fmt: skip
#: Operations that others consist of, whose samples have them.
PARTS = {"grouped_swiglu": "expert_swiglu"}
#: Kernels that read addresses from memory, of which checked mode knows no argument.
OF_ADDRESSES = {"adamw", "adamw_8bit"}
#: Kernels of rows, a table, a matmul, atomic counts, and addresses.
QUICK = ["rms_norm", "embedding", "matmul", "histogram", "adamw"]

NARROW = [each for each in SAMPLES.values() if not each.is_wide]
WIDE = [each for each in SAMPLES.values() if each.is_wide]


def check(sample, dtype="float32", frameworks=("numpy",), layouts=("rows",)):
    tolerance = TOLERANCES[dtype] * sample.tolerance
    given = (sample.function, sample.reference, sample.arrays, sample.settings)
    options = {"own": sample.own, "dtype": dtype, "rtol": tolerance, "atol": tolerance}
    layouts = layouts if sample.any_strides else ("contiguous",)
    check_operation(
        *given, **options, frameworks=frameworks, layouts=layouts, with_out=sample.takes_out
    )
    if sample.wrt and "torch" in FRAMEWORKS:
        check_gradients(*given, **options, wrt=sample.wrt, layouts=layouts)


def test_every_operation_has_a_sample():
    exported = {
        name
        for name in tk.__all__
        if inspect.isfunction(getattr(tk, name)) and not name.endswith("_reference")
    }
    sampled = {each.exported for each in SAMPLES.values()}
    assert exported - NO_OPERATIONS - set(PARTS) == sampled
    assert set(PARTS.values()) <= sampled and exported >= NO_OPERATIONS | set(PARTS)


@pytest.mark.parametrize(
    "sample", [each for each in NARROW if each.exported not in OF_ADDRESSES], ids=str
)
def test_kernels_have_no_faults_in_checked_mode(sample):
    with tw.backend("reference", checked=True):
        check(sample)


@pytest.mark.full
@pytest.mark.parametrize("sample", WIDE, ids=str)
def test_kernels_of_wide_rows_have_no_faults_in_debug_mode(sample, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "1")
    check(sample)


def test_checked_mode_reports_a_wrong_number_of_columns(monkeypatch):
    from tilewright_kernels.rows import softmax

    launched = softmax.SOFTMAX.launch

    def one_column_more(run, y, x):
        def wrong(kernel, grid, *arguments, **keywords):
            counts = (each + 1 if type(each) is int and each == 70 else each for each in arguments)
            run(kernel, grid, *counts, **keywords)

        launched(wrong, y, x)

    monkeypatch.setattr(softmax.SOFTMAX, "launch", one_column_more)
    with tw.backend("reference", checked=True), pytest.raises(tw.KernelError, match="bounds"):
        check(SAMPLES["softmax"], layouts=("contiguous",))


@pytest.mark.parametrize("name", sorted(OF_ADDRESSES))
def test_kernels_of_addresses_keep_what_lies_around_arrays(name):
    sample = SAMPLES[name]
    memory, given = [], {}
    for argument, arrays in sample.arrays.items():
        given[argument] = []
        for each in arrays:
            around = np.full(each.size + 128, np.nan, np.float32)
            view = around[64:-64].reshape(each.shape)
            view[...] = each
            memory.append(around)
            given[argument].append(view)
    originals = [each.copy() for each in memory]
    tk.adamw(*given.values(), 1) if name == "adamw" else tk.adamw_8bit(
        *given.values(), [tk.adamw_8bit_state(each) for each in given["parameters"]], 1
    )
    for around, before in zip(memory, originals, strict=True):
        assert np.isnan(around[:64]).all() and np.isnan(around[-64:]).all()
        assert np.isfinite(around[64:-64]).all()
    assert not np.array_equal(memory[1], originals[1], equal_nan=True)


@pytest.mark.full
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=str)
def test_results_and_gradients_equal_those_in_float64(sample):
    for dtype in sample.dtypes:
        check(sample, dtype, FRAMEWORKS, ("contiguous", "columns"))


@pytest.mark.full
def test_samples_take_all_gradients(monkeypatch):
    pytest.importorskip("torch")
    folder = Path(tk.__path__[0])
    for file in folder.rglob("*.py"):
        if file.stem != "jax_functions":
            importlib.import_module(".".join(file.relative_to(folder.parent).with_suffix("").parts))
    declared = {
        each.name: each
        for each in gc.get_objects()
        if isinstance(each, Operation) and each.gradients is not None
    }
    taken = set()
    for name, each in declared.items():

        def gradients(*given, name=name, original=each.gradients):
            taken.add(name)
            return original(*given)

        monkeypatch.setattr(each, "gradients", gradients)
    for sample in NARROW:
        if sample.wrt:
            check(sample)
    assert taken >= {*declared}


@pytest.mark.gpu
@pytest.mark.parametrize("sample", SAMPLES.values(), ids=str)
def test_runs_on_a_gpu_have_the_same_bits(sample):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    import repeated_samples

    for dtype in sample.dtypes:
        repeated_samples.check(sample, dtype, "cuda", repeats=20)


def emulated(target, dtype, names=()):
    pytest.importorskip("torch")
    pytest.importorskip("tilewright_amd_emulator")
    script = Path(__file__).with_name("emulated_samples.py")
    found = fork_server.run([str(script), target, dtype, *names], timeout=1800)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("target", ["gfx942"])
def test_kernels_of_each_kind_run_on_an_emulated_gpu(target):
    emulated(target, "float32", QUICK)


@pytest.mark.full
@pytest.mark.parametrize("target", ["gfx942", "gfx950", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_all_operations_run_on_emulated_gpus(target, dtype):
    emulated(target, dtype)
