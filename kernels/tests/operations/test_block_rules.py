"""Rules that choose block sizes: records before the model, and the search that makes records."""

import os
from dataclasses import dataclass, fields

import numpy as np
import pytest

import tilewright_kernels as tk
from tilewright.plugins.registry import registry
from tilewright.runtime.devices import device_registry
from tilewright.tools.cli import main
from tilewright_kernels.attention.blocks import forward_blocks
from tilewright_kernels.linear.blocks import matmul_blocks, plain_matmul_blocks
from tilewright_kernels.operations import block_records, devices
from tilewright_kernels.operations.block_records import SHIPPED, BlockRecord, add, read, records_of
from tilewright_kernels.operations.block_rules import RULES, block_rule, trying
from tilewright_kernels.operations.devices import Device, device_of
from tilewright_kernels.rows.shapes import tile_of_rows
from tilewright_kernels.tuning import block_search, tuning_cases
from tilewright_kernels.tuning.tuning_cases import TuningCase

HOPPER = Device("hopper", 132, "sm_90")


@pytest.fixture(autouse=True)
def own_records(tmp_path, monkeypatch):
    """Keep this machine's records in a folder of the test's."""

    def forget():
        records_of.cache_clear()
        for rule in RULES.values():
            rule.forget()

    monkeypatch.setattr(block_records, "own_folder", lambda: tmp_path)
    forget()
    yield tmp_path
    forget()


def record(folder, rule, key, blocks, family="sm_90"):
    return add(folder, family, {rule: {key: BlockRecord(blocks, 1.0, 2.0)}})


def matmul_key(device, m, n, k):
    arguments = plain_matmul_blocks._arguments((m, n, k, 32, device), {})
    return plain_matmul_blocks.key(arguments)


def test_records_come_before_the_model(own_records):
    sizes = (3000, 4096, 4096, 32)
    model = matmul_blocks(*sizes, HOPPER)
    assert plain_matmul_blocks(*sizes, HOPPER) == model
    plain_matmul_blocks.forget()
    records_of.cache_clear()
    record(own_records, "matmul", matmul_key(HOPPER, *sizes[:3]), {"m": 32, "num_warps": 2})
    found = plain_matmul_blocks(*sizes, HOPPER)
    assert (found.m, found.num_warps, found.n) == (32, 2, model.n)
    # rows are known up to a power of two, columns are not; other families have other records
    assert plain_matmul_blocks(2049, *sizes[1:], HOPPER).m == 32
    assert plain_matmul_blocks(2048, *sizes[1:], HOPPER).num_warps != 2
    assert plain_matmul_blocks(3000, 4097, *sizes[2:], HOPPER).num_warps != 2
    ampere = Device("ampere", 108, "sm_80")
    assert plain_matmul_blocks(*sizes, ampere) == matmul_blocks(*sizes, ampere)
    invariant = plain_matmul_blocks(*sizes, HOPPER, is_invariant=True)
    assert invariant == matmul_blocks(*sizes, HOPPER, is_invariant=True)


def test_kernels_run_with_blocks_of_a_record(own_records):
    a = np.random.default_rng(0).standard_normal((40, 48)).astype(np.float32)
    key = matmul_key(device_of(a), 40, 40, 48)
    record(own_records, "matmul", key, {"m": 16, "n": 16, "k": 16}, device_of(a).target)
    with trying("matmul") as trial:
        tk.matmul(a, a.T)
    ((arguments, model),) = trial.calls
    chosen = plain_matmul_blocks(**arguments)
    assert (chosen.m, chosen.n, chosen.k) == (16, 16, 16) != (model.m, model.n, model.k)
    np.testing.assert_allclose(tk.matmul(a, a.T), a @ a.T, rtol=1e-4, atol=1e-4)


def test_a_file_in_the_package_is_found_after_own_records(own_records, tmp_path, monkeypatch):
    shipped = tmp_path / "shipped"
    monkeypatch.setattr(block_records, "SHIPPED", shipped)
    keys = [f"kernel={name},n_columns=4096,values=1" for name in ("rms_norm", "l2_norm")]
    for key in keys:
        record(shipped, "rows", key, {"num_warps": 2})
    record(own_records, "rows", keys[1], {"num_warps": 4})
    found = [tile_of_rows(name, 4000, 1, HOPPER) for name in ("rms_norm", "l2_norm", "softmax")]
    assert [each.num_warps for each in found] == [2, 4, 8]


def test_shipped_records_are_of_rules_and_legal():
    for path in SHIPPED.glob("*.json"):
        for name, records in read(path).items():
            for key, each in records.items():
                assert each.milliseconds < each.model_milliseconds, key
                values = dict(part.split("=") for part in key.split(","))
                wanted = RULES[name]._signature.parameters.keys() - {"device"}
                assert values.keys() - {"threads"} == wanted, key


def test_files_of_other_versions_are_refused(tmp_path):
    path = record(tmp_path, "matmul", "m=1", {"m": 16})
    assert read(path)["matmul"]["m=1"].blocks == {"m": 16}
    path.write_text(path.read_text().replace('"version": 1', '"version": 0'))
    with pytest.raises(ValueError, match="no file of block records of version 1"):
        read(path)


@dataclass(frozen=True)
class _Blocks:
    m: int
    num_stages: int


@pytest.fixture
def searched(monkeypatch, own_records):
    """Return a function that searches the blocks of a rule, whose times are given."""

    def search(milliseconds, result):
        rule = block_rule("of the test", rounded=("n",))(lambda n, device: _Blocks(32, 2))
        device = Device("hopper", 132, "sm_90")
        launched = []

        def call():
            launched.append(rule(5, device))
            return np.full(3, result(launched[-1]), np.float32)

        def race(timer, called, best, **options):
            called()
            return [milliseconds(launched[-1])] * 3

        monkeypatch.setattr(block_search, "race", race)
        case = TuningCase("of the test", "five", lambda: call)
        path = block_search.search(lambda _: [case], backend="cpu", folder=own_records, budget=None)
        del RULES["of the test"]
        return None if path is None else read(path)["of the test"]

    return search


def test_the_search_goes_on_from_the_best(searched):
    found = searched(lambda blocks: 1 + abs(blocks.m - 128), lambda blocks: 1.0)
    assert found == {"n=8": BlockRecord({"m": 128}, 1, 97)}


def test_blocks_with_other_results_get_no_record(searched):
    assert searched(lambda blocks: 100 / blocks.m, lambda blocks: blocks.m) is None


def test_small_gains_get_no_record(searched):
    assert searched(lambda blocks: 1.0 - blocks.m / 1e5, lambda blocks: 1.0) is None


def test_the_command_measures_on_the_cpu(own_records, monkeypatch, capsys):
    def cases(arrays):
        yield TuningCase("matmul", "small", lambda: tuning_cases._matmul(arrays, 16, 32, 32))

    monkeypatch.setattr(tuning_cases, "cases", cases)
    monkeypatch.setattr(block_search, "_LIMITS", {"n": (16, 32)})
    monkeypatch.setattr(block_search, "_WORTH", 2.0)
    folder = own_records / "records"
    command = ["tune", "tilewright_kernels:matmul", "--backend", "cpu", "--records", str(folder)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "matmul" in printed and "small" in printed
    for path in folder.glob("*.json"):
        ((key, each),) = read(path)["matmul"].items()
        assert key.startswith("m=16,n=32,k=32,bits=32")
        assert each.blocks.keys() <= {
            each.name for each in fields(matmul_blocks(1, 1, 1, 8, HOPPER))
        }


def test_the_search_reaches_all_rules_on_a_cpu():
    """A case's call reaches its rule, with the arguments of one key."""
    for case in tuning_cases.cases(tuning_cases.Arrays(is_on_gpu=False)):
        call = case.prepare()
        with trying(case.rule) as trial:
            call()
        keys = {RULES[case.rule].key(arguments) for arguments, _ in trial.calls}
        assert len(keys) == 1, case


def test_attention_keeps_blocks_of_keys_that_divide_those_of_queries():
    blocks = forward_blocks(512, 512, 64, 4, True, device_of(np.ones(1)))
    wrong = type(blocks)(16, 32, 1, 1)
    assert tuning_cases.is_legal("attention", blocks, {})
    assert not tuning_cases.is_legal("attention", wrong, {})


def test_a_cpu_has_the_cores_that_its_backend_names(monkeypatch):
    backend = registry().for_device_kind("cpu")[0]
    cores = device_registry.find(backend, None).properties["cores"]
    devices._cpu.cache_clear()
    # as where an OpenMP runtime has bound this thread to one core
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    assert device_of(np.ones(1)).processors == cores
