"""The disk cache: what it keeps, what it throws away, and what it survives."""

import concurrent.futures
import multiprocessing
import os
import random
import time
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.plugins.manifest import CodeObject, Parameter
from tilewright.runtime.storage import files
from tilewright.runtime.storage.artifact import Artifact, DamagedArtifactError, pack, unpack
from tilewright.runtime.storage.cache_keys import digest
from tilewright.runtime.storage.disk_cache import (
    DiskCache,
    default_directory,
    disk_cache,
    parse_size,
)


def artifact(seed: int, size: int = 100) -> Artifact:
    source = random.Random(seed)
    binary = source.randbytes(size)
    stages = {"tileir": f"kernel {seed} é", "obj": binary, "blob": source.randbytes(7)}
    parameters = (Parameter("x", "ptr<f32>", 16), Parameter("n", "i32"))
    return Artifact(
        digest(str(seed)),
        CodeObject(f"k{seed}", binary, stages, {"shared": seed, "asserts": ["a", "b"]}),
        parameters,
        {"lower": 1.5},
    )


def same(left: Artifact, right: Artifact) -> bool:
    return (
        left.key,
        left.code.name,
        left.code.binary,
        left.code.stages,
        left.code.metadata,
        left.parameters,
        left.timings,
    ) == (
        right.key,
        right.code.name,
        right.code.binary,
        right.code.stages,
        right.code.metadata,
        right.parameters,
        right.timings,
    )


@given(
    st.binary(max_size=300),
    st.dictionaries(
        st.text(max_size=5), st.one_of(st.text(max_size=20), st.binary(max_size=20)), max_size=4
    ),
)
def test_artifacts_round_trip(binary, stages):
    before = Artifact("ab", CodeObject("k", binary, stages, {"a": [1, 2.5, None]}), (), {})
    assert same(before, unpack(pack(before)))


@given(st.data())
def test_any_changed_or_missing_byte_is_noticed(data):
    packed = pack(artifact(1))
    position = data.draw(st.integers(0, len(packed) - 1))
    changed = bytearray(packed)
    changed[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(DamagedArtifactError):
        unpack(bytes(changed))
    with pytest.raises(DamagedArtifactError):
        unpack(packed[:position])


def test_an_artifact_of_another_key_is_refused():
    with pytest.raises(DamagedArtifactError, match="another key"):
        unpack(pack(artifact(1)), "0" * 64)


def test_what_is_put_is_got(tmp_path):
    cache = DiskCache(tmp_path / "deep" / "er")
    kernel = artifact(3)
    assert cache.get(kernel.key) is None
    assert cache.put(kernel)
    found = cache.get(kernel.key)
    assert found is not None
    assert same(found, kernel)
    assert found.cache_hit
    assert not kernel.cache_hit
    assert [path.suffix for path in (tmp_path / "deep").rglob("*") if path.is_file()] == [".kernel"]


def test_a_damaged_entry_is_a_miss_removed_and_told_once(tmp_path):
    cache = DiskCache(tmp_path)
    kernels = [artifact(seed) for seed in range(2)]
    for kernel in kernels:
        cache.put(kernel)
        path = cache.path(kernel.key)
        path.write_bytes(path.read_bytes()[:-3] + b"zzz")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert [cache.get(kernel.key) for kernel in kernels] == [None, None]
    (warning,) = seen
    assert "removed a damaged entry" in str(warning.message)
    assert "checksum" in str(warning.message)
    assert not any(cache.path(kernel.key).exists() for kernel in kernels)
    assert cache.put(kernels[0])
    assert cache.get(kernels[0].key) is not None


def test_a_pickle_in_place_of_an_entry_is_not_executed(tmp_path):
    import pickle

    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    cache = DiskCache(tmp_path)
    key = digest("bomb")
    cache.path(key).parent.mkdir()
    cache.path(key).write_bytes(pickle.dumps(Bomb()))
    with pytest.warns(RuntimeWarning, match="damaged"):
        assert cache.get(key) is None
    assert not (tmp_path / "exploded").exists()


def test_what_was_read_longest_ago_is_evicted(tmp_path):
    size = len(pack(artifact(0, 10_000)))
    cache = DiskCache(tmp_path, cap=4 * size + size // 2)
    kernels = [artifact(seed, 10_000) for seed in range(6)]
    now = time.time()
    for age, kernel in enumerate(kernels[:4]):
        cache.put(kernel)
        os.utime(cache.path(kernel.key), (now - 1000 + age, now - 1000 + age))
    assert cache.get(kernels[0].key) is not None  # used now, so kernel 1 is the oldest
    cache.put(kernels[4])
    assert [cache.path(kernel.key).exists() for kernel in kernels[:5]] == [
        True,
        False,
        True,
        True,
        True,
    ]
    assert cache.info().size <= cache.cap
    cache.put(kernels[5])
    assert not cache.path(kernels[2].key).exists()
    assert cache.info().size <= cache.cap


def test_an_entry_larger_than_the_cache_is_not_kept(tmp_path):
    cache = DiskCache(tmp_path, cap=500)
    assert not cache.put(artifact(1, 1000))
    assert cache.info().entries == 0


def test_a_cap_of_zero_turns_the_cache_off(tmp_path):
    cache = DiskCache(tmp_path, cap=0)
    assert not cache.put(artifact(1))
    assert cache.get(artifact(1).key) is None
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_told_once(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    cache = DiskCache(blocked / "cache")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for seed in range(3):
            assert cache.get(artifact(seed).key) is None
            assert not cache.put(artifact(seed))
    (warning,) = seen
    assert "cannot be written" in str(warning.message)
    assert "TILEWRIGHT_CACHE_DIR" in str(warning.message)
    assert not cache.info().writable


@pytest.mark.skipif(
    os.name == "nt" or os.geteuid() == 0, reason="permissions do not bind this user"
)
def test_a_read_only_directory_is_read(tmp_path):
    cache = DiskCache(tmp_path)
    cache.put(artifact(1))
    other = DiskCache(tmp_path)
    tmp_path.chmod(0o500)
    try:
        assert other.get(artifact(1).key) is not None
        with pytest.warns(RuntimeWarning, match="cannot be written"):
            assert not other.put(artifact(2))
    finally:
        tmp_path.chmod(0o700)


def test_a_failed_write_leaves_nothing_behind(tmp_path, monkeypatch):
    def refuse(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", refuse)
    cache = DiskCache(tmp_path)
    with pytest.warns(RuntimeWarning, match="No space left"):
        assert not cache.put(artifact(1))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_leftovers_of_crashed_writers_go(tmp_path):
    cache = DiskCache(tmp_path)
    cache.put(artifact(1))
    folder = cache.path(artifact(1).key).parent
    old, young = folder / "a.tmp", folder / "b.tmp"
    old.write_bytes(b"1")
    young.write_bytes(b"1")
    os.utime(old, (time.time() - 7200,) * 2)
    assert cache.info().entries == 1
    assert not old.exists()
    assert young.exists()


def test_clear(tmp_path):
    cache = DiskCache(tmp_path)
    for seed in range(3):
        cache.put(artifact(seed))
    (tmp_path / "tuning").mkdir()
    (tmp_path / "tuning" / "x.json").write_text("{}")
    assert cache.clear() == 3
    assert cache.info().entries == 0
    assert (tmp_path / "tuning" / "x.json").exists()


def _hammer(directory: str, seed: int) -> int:
    """Write, read and evict the same few entries as the other processes; counts reads that gave
    wrong bytes."""
    source = random.Random(seed)
    kernels = [artifact(number, 5000) for number in range(8)]
    size = len(pack(kernels[0]))
    cache = DiskCache(__import__("pathlib").Path(directory), cap=5 * size)
    wrong = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(150):
            kernel = source.choice(kernels)
            if source.random() < 0.5:
                cache.put(kernel)
            else:
                found = cache.get(kernel.key)
                wrong += found is not None and not same(found, kernel)
    return wrong


def test_four_processes_share_a_cache(tmp_path):
    context = multiprocessing.get_context(
        "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    )
    with concurrent.futures.ProcessPoolExecutor(4, mp_context=context) as pool:
        assert list(pool.map(_hammer, [str(tmp_path)] * 4, range(4), timeout=900)) == [0, 0, 0, 0]
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert left
    assert all(path.suffix == ".kernel" for path in left)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1000", 1000),
        ("2K", 2048),
        ("1.5m", 3 << 19),
        ("2G", 2 << 30),
        ("1 GiB", 1 << 30),
        ("0", 0),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "x", "-1", "1Q", "G"])
def test_sizes_that_are_none(text):
    with pytest.raises(ValueError, match="TILEWRIGHT_CACHE_SIZE"):
        parse_size(text)


def test_the_environment_names_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "here"))
    monkeypatch.setenv("TILEWRIGHT_CACHE_SIZE", "3M")
    assert disk_cache().directory == tmp_path / "here"
    assert disk_cache().cap == 3 << 20
    assert disk_cache() is disk_cache()
    monkeypatch.delenv("TILEWRIGHT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if os.name == "posix" and __import__("sys").platform != "darwin":
        assert default_directory() == tmp_path / "tilewright"
