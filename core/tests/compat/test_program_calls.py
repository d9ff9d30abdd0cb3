"""Uses of Triton's runtime objects by published programs, call by call.

Each test is named after the program.
"""

import copy
import inspect
import json
import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tilewright_cpu")

import tilewright.language as tl  # noqa: E402
from tilewright.compat import triton  # noqa: E402


@triton.jit
def scaled(x, out, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * factor, mask=offsets < n)


def three(given):
    return 3.0


@triton.autotune([triton.Config({"BLOCK": size}) for size in (32, 64)], key=["n"])
@triton.heuristics({"factor": three})
@triton.jit
def tuned(x, out, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * factor, mask=offsets < n)


def arguments():
    x = torch.arange(100.0)
    return x, torch.empty_like(x)


def grid(given):
    return (triton.cdiv(100, given["BLOCK"]),)


# ---- the autotuner


def test_flaggems_and_pytorch_name_an_autotuner_by_its_plain_function():
    assert (
        inspect.isfunction(tuned.base_fn)
        and tuned.base_fn is tuned.fn.fn.fn
        and tuned.base_fn.__name__ == "tuned"
    )
    assert not hasattr(tuned.fn, "base_fn"), (
        "heuristics have none in Triton, and are looked through by .fn"
    )


def test_unsloth_copies_an_autotuner_for_each_device():
    assert tuned.base_fn.__name__ == "tuned"
    other = copy.copy(tuned)
    other.cache = {}
    other.configs = tuned.configs[:1]
    x, out = arguments()
    other[grid](x, out, n=100)
    assert (
        torch.equal(out, 3 * x)
        and tuned.cache == {}
        and str(other.best_config).startswith("BLOCK: 32, num_warps: 4")
    )
    assert pickle.loads(pickle.dumps(other)).base_fn is tuned.base_fn


def test_vllm_launches_the_configuration_that_was_found():
    """Its ``launch_autotuned`` calls the kernel inside with the keywords of the configuration."""
    x, out = arguments()
    kernel = triton.autotune([triton.Config({"BLOCK": 64})], key=["n"])(triton.jit(scaled.fn))
    given = {"x": x, "out": out, "factor": 2.0, "n": 100}
    kernel[grid](**given)
    config = kernel.best_config
    assert kernel.keys == ["n"] and config.pre_hook is None
    out.zero_()
    kernel.fn[grid](**given, **config.all_kwargs())
    assert torch.equal(out, 2 * x)


# ---- what is known of devices


def test_vllm_derives_the_keys_of_launches_of_a_kernel_that_never_ran():
    """With the settings that Triton adds to each launch, of an autotuner around heuristics around a
    kernel."""
    device = triton.runtime.driver.active.get_current_device()
    kernel = triton.jit(scaled.fn)
    wrapped = triton.autotune([triton.Config({"BLOCK": size}) for size in (32, 64)], key=["n"])(
        triton.heuristics({"factor": three})(kernel)
    )
    x, out = arguments()
    given = {"x": x, "out": out, "n": 100}
    wrapped.nargs = {}
    configs = wrapped.prune_configs(dict(given))
    wrapped.nargs = None
    _, keys, _, _, binder = kernel.device_caches[device]
    debug = kernel.debug or triton.knobs.runtime.debug
    settings = {
        "debug": debug,
        "instrumentation_mode": triton.knobs.compilation.instrumentation_mode,
    }
    assert triton.knobs.runtime.add_stages_inspection_hook is None
    found = set()
    for config in configs:
        named = {**given, **config.all_kwargs()}
        for name, heuristic in wrapped.fn.values.items():
            named[name] = heuristic(named)
        _, specialization, options = binder(**named, **settings)
        found.add(triton.runtime.jit.compute_cache_key(keys, specialization, options))
    assert len(found) == 2 and not kernel.device_caches[device][0]
    for size in (32, 64):
        kernel[grid](x, out, 3.0, 100, BLOCK=size)
    assert set(kernel.device_caches[device][0]) == found


def test_vllm_lets_go_of_kernels_that_were_compiled_for_tuning():
    device = triton.runtime.driver.active.get_current_device()
    kernel = triton.jit(scaled.fn)
    x, out = arguments()
    cache = kernel.device_caches[device][0]
    before = set(cache)
    kernel.warmup(x, out, 3.0, 100, 64, grid=(2,))
    assert before == set() and len(cache) == 1
    for key in cache.keys() - before:
        del cache[key]
    kernel[grid](x, out, 3.0, 100, BLOCK=64)
    assert torch.equal(out, 3 * x) and len(kernel.device_caches[device][0]) == 1


def test_helion_compiles_by_what_the_device_caches_have():
    """It looks a launch up, and compiles and keeps it where it is not there: the launch then takes
    that."""
    kernel = triton.jit(scaled.fn)
    x, out = arguments()
    args, keywords = (x, out, 3.0, 100), {"BLOCK": 64, "num_warps": 8}
    keywords["debug"] = keywords.get("debug", kernel.debug) or False
    kernels, keys, target, backend, binder = kernel.device_caches[x.device]
    bound, specialization, options = binder(*args, **keywords)
    key = triton.runtime.jit.compute_cache_key(keys, specialization, options)
    assert kernels.get(key, None) is None
    packed, signature, constants, attributes = kernel._pack_args(
        backend, keywords, bound, specialization, options
    )
    source = kernel.ASTSource(kernel, signature, constants, attributes)
    kernels[key] = compiled = kernel.compile(source, target=target, options=packed.__dict__)
    assert isinstance(compiled, kernel.CompiledKernel)
    compiled._helion_compilation_success = True
    compiled._init_handles()
    vars(compiled).setdefault("_helion_resident_program_capacity_cache", {})
    launched = kernel[grid](*args, **keywords)
    assert launched is compiled and torch.equal(out, 3 * x) and compiled.metadata.num_warps == 8
    assert signature == {
        "x": "*fp32",
        "out": "*fp32",
        "factor": "fp32",
        "n": "i32",
        "BLOCK": "constexpr",
    } and constants == {(4,): 64}
    assert attributes == {
        (0,): [["tt.divisibility", 16]],
        (1,): [["tt.divisibility", 16]],
        (3,): [],
    }
    with pytest.raises(KeyError, match="Keyword argument block was specified but unrecognised"):
        kernel._pack_args(backend, {"block": 3}, bound, specialization, options)


# ---- compiled kernels


def test_tritonparse_puts_its_function_of_launch_metadata_into_compiled_kernels():
    """It does when it hears of the compilation, for the launches after."""
    heard = []

    def told(*, fn, **facts):
        fn.jit_function.launch_metadata = lambda grid, metadata, named: {
            "grid_of_mine": grid,
            "named": sorted(named),
            "warps": metadata.num_warps,
        }

    def entered(metadata):
        heard.append(metadata.get())

    kernel = triton.jit(scaled.fn)
    x, out = arguments()
    triton.knobs.runtime.jit_post_compile_hook = told
    triton.knobs.runtime.launch_enter_hook.add(entered)
    try:
        kernel[(2,)](x, out, 3.0, 100, BLOCK=64)
    finally:
        triton.knobs.runtime.launch_enter_hook.remove(entered)
        triton.knobs.runtime.jit_post_compile_hook = None
    (facts,) = heard
    assert (
        facts["grid_of_mine"][:1] == (2,)
        and facts["named"] == ["BLOCK", "factor", "n", "out", "x"]
        and facts["warps"] == 4
    )


def test_sglang_repeats_launches_without_their_hooks():
    compiled = scaled[(2,)](*arguments(), 3.0, 100, BLOCK=64)
    x, out = arguments()
    assert len(compiled.src.signature) == 5 == len(scaled.params) and isinstance(
        triton.knobs.runtime.launch_enter_hook, triton.knobs.HookChain
    )
    assert not triton.knobs.runtime.launch_enter_hook.calls
    stream = triton.runtime.driver.active.get_current_stream(0)
    compiled.run(
        2,
        1,
        1,
        stream,
        compiled.function,
        compiled.packed_metadata,
        None,
        None,
        None,
        x,
        out,
        3.0,
        100,
        64,
    )
    assert torch.equal(out, 3 * x)


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def redirected(folder, name):
    """As aiter's: a constructor of three arguments that names other paths of a kernel's facts and
    code, while a folder is registered."""
    from triton.compiler.compiler import CompiledKernel

    construct = CompiledKernel.__init__

    def replaced(self, src, metadata_group, hash):
        found = next((key[:-5] for key in metadata_group if key.endswith(".json")), None)
        if found == name:
            metadata_group[f"{name}.json"] = str(folder / f"{name}.json")
            metadata_group[f"{name}.hsaco"] = str(folder / f"{name}.hsaco")
        construct(self, src, metadata_group, hash)

    return CompiledKernel, replaced


def compiled_for(target, source=scaled, **options):
    signature = {"x": "*fp32", "out": "*fp32", "factor": "fp32", "n": "i32", "BLOCK": "constexpr"}
    return triton.compile(
        triton.compiler.ASTSource(source, signature, {"BLOCK": 64}), target=target, options=options
    )


def test_aiter_takes_facts_and_code_from_a_folder_of_its_own(directory, monkeypatch):
    pytest.importorskip("tilewright_amd")
    from triton.backends.compiler import GPUTarget

    target = GPUTarget("hip", "gfx942", 64)
    first = compiled_for(target, num_warps=8)
    folder = directory / "own"
    folder.mkdir()
    for ending in ("json", "hsaco"):
        (folder / f"scaled.{ending}").write_bytes(
            (
                directory / "cache" / triton.runtime.cache._base32(first.hash) / f"scaled.{ending}"
            ).read_bytes()
        )
    class_, replaced = redirected(folder, "scaled")
    monkeypatch.setattr(class_, "__init__", replaced)
    found = compiled_for(target, num_warps=4)
    assert (
        found.metadata.num_warps == 8
        and found.kernel == found.asm["hsaco"] == first.asm["hsaco"]
        and found.hash != first.hash
    )
    assert (
        found.metadata_group["scaled.json"] == str(folder / "scaled.json")
        and found.src.fn is scaled
    )
    assert (
        found.asm["ttir"]
        == compiled_for(target, source=triton.jit(scaled.fn), num_warps=4).asm["ttir"]
    )
    (folder / "scaled.hsaco").write_bytes(first.asm["hsaco"] + b"tuned")
    assert compiled_for(target).kernel.endswith(b"tuned")
    (folder / "scaled.json").unlink()
    with pytest.raises(FileNotFoundError):
        compiled_for(target)


def test_aiter_s_folder_is_looked_for_by_kernels_of_other_names_too(monkeypatch):
    class_, replaced = redirected(None, "another")
    monkeypatch.setattr(class_, "__init__", replaced)
    x, out = arguments()
    triton.jit(scaled.fn)[(2,)](x, out, 3.0, 100, BLOCK=64)
    assert torch.equal(out, 3 * x)


@pytest.mark.parametrize("source", ["own", "described"])
def test_kernels_are_loaded_from_the_files_that_a_program_has_kept(source, directory):
    """As Triton's developers compare compilers: files are copied, and read with what is known of
    signature and hash alone."""
    from triton.compiler.compiler import CompiledKernel

    first = triton.jit(scaled.fn)[(2,)](*arguments(), 3.0, 100, BLOCK=64, num_warps=8)
    kept = {}
    for name, path in first.metadata_group.items():
        (directory / name).write_bytes(Path(path).read_bytes())
        kept[name] = str(directory / name)
    src = (
        first.src
        if source == "own"
        else SimpleNamespace(
            signature=first.src.signature,
            constants={},
            fn=SimpleNamespace(arg_names=list(first.src.signature)),
        )
    )
    kernel = CompiledKernel(src, kept, first.hash)
    kernel._init_handles()
    x, out = arguments()
    kernel[(2, 1, 1)](x, out, 3.0, 100, 64)
    assert torch.equal(out, 3 * x)
    assert (
        kernel.src is src
        and kernel.hash == first.hash
        and kernel.metadata == first.metadata
        and kernel.metadata_group == kept
    )
    assert {name: kernel.asm[name] for name in ("ttir", "source")} == {
        name: first.asm[name] for name in ("ttir", "source")
    } and kernel.kernel == first.kernel
    out.zero_()
    kernel.run(
        2,
        1,
        1,
        None,
        kernel.function,
        kernel.packed_metadata,
        None,
        None,
        None,
        x,
        out,
        3.0,
        100,
        64,
    )
    assert torch.equal(out, 3 * x) and kernel.n_spills == 0


def test_files_of_other_compilers_are_refused(directory):
    from triton.compiler.compiler import CompiledKernel

    from tilewright.compat.triton.compiler.group import ForeignFilesError

    first = triton.jit(scaled.fn)[(2,)](*arguments(), 3.0, 100, BLOCK=64)
    group = dict(first.metadata_group)
    facts = json.loads(Path(group["scaled.json"]).read_text())
    path = directory / "scaled.json"
    group["scaled.json"] = str(path)

    def refused(pattern, **changes):
        path.write_text(json.dumps({**facts, **changes}))
        with pytest.raises(ForeignFilesError, match=pattern):
            CompiledKernel(first.src, group, first.hash)

    refused(
        "was written by Triton 3.6.0, whose code is launched in a way of its own",
        tilewright=None,
        triton_version="3.6.0",
    )
    refused(
        "was written by tilewright 0.0.1; cpu 0, and this is .*: compile the kernel again",
        tilewright={**facts["tilewright"], "versions": ["tilewright 0.0.1", "cpu 0"]},
    )
    del group["scaled.binary"]
    refused("the code of scaled is in scaled.binary, which is not among the kernel's files")
    with pytest.raises(ForeignFilesError, match=r"one that ends with .json, and there are x.ptx"):
        CompiledKernel(first.src, {"x.ptx": "nowhere"}, first.hash)


@triton.jit
def added(x, y, out, n, BLOCK: tl.constexpr, TWICE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask)
    tl.store(out + offsets, total * 2 if TWICE else total, mask=mask)


def test_pytorch_finds_the_kernels_of_an_exported_program_by_their_constants():
    """``torch.export`` reads the constants of compiled kernels from their keys."""
    from torch._export.serde.serialize import get_triton_kernel_and_cache_entry
    from torch._higher_order_ops.triton_kernel_wrap import (
        kernel_side_table,
        triton_kernel_wrapper_functional,
    )

    def found(**constants):
        graph = torch.fx.Graph()
        given = {"kernel_idx": kernel_side_table.add_kernel(added), "kwargs": constants}
        return get_triton_kernel_and_cache_entry(
            graph.call_function(triton_kernel_wrapper_functional, kwargs=given)
        )

    (x, out), launched = arguments(), {}
    for block, twice in ((64, True), (64, False), (16, True)):
        launched[block, twice] = added[(7,)](x, x, out, 100, BLOCK=block, TWICE=twice)
    for (block, twice), compiled in launched.items():
        assert found(BLOCK=block, TWICE=twice) == (added, compiled)
    with pytest.raises(AssertionError, match="couldn't find a kernel cache entry"):
        found(BLOCK=32, TWICE=True)
