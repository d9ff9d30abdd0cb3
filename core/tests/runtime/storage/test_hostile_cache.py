"""A cache directory in any state: kernels compile and run, nothing hangs, and what is wrong is said
once."""

import errno
import hashlib
import os
import warnings

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime import tuning_records
from tilewright.runtime.storage import files
from tilewright.runtime.storage.artifact import MAGIC, DamagedArtifactError, pack, unpack
from tilewright.runtime.storage.disk_cache import disk_cache


@tw.jit
def put(y, a):
    tl.store(y, a)


def launch():
    """Launch as a new process would; the compiled kernel."""
    put.clear_cache()
    return put[(1,)](np.zeros(1), 2)


def fill(path):
    (path / "inside").write_text("of somebody")


#: what lies in place of an entry -> (how to put it there, whether the entry can be replaced)
IN_PLACE = {
    "nothing in it": (lambda path: path.write_bytes(b""), True),
    "half an entry": (
        lambda path: path.write_bytes(path.with_suffix(".whole").read_bytes()[:200]),
        True,
    ),
    "garbage": (lambda path: path.write_bytes(os.urandom(3000)), True),
    "another entry": (lambda path: path.write_bytes(pack(other(path))), True),
    "an empty directory": (lambda path: path.mkdir(), True),
    "a full directory": (lambda path: (path.mkdir(), fill(path)), False),
    "a pipe": (lambda path: os.mkfifo(path), True),
    "a link to nothing": (lambda path: path.symlink_to("/nowhere/at/all"), True),
    "a link to itself": (lambda path: path.symlink_to(path), True),
    "a file with a hole of 1 TiB": (
        lambda path: (
            path.write_bytes(path.with_suffix(".whole").read_bytes()),
            os.truncate(path, 1 << 40),
        ),
        True,
    ),
    "an endless device": (lambda path: path.symlink_to("/dev/zero"), True),
}


def other(path):
    found = unpack(path.with_suffix(".whole").read_bytes())
    found.key = "0" * 64
    return found


@pytest.mark.skipif(os.name != "posix", reason="pipes, links and devices")
@pytest.mark.parametrize("put_there", IN_PLACE.values(), ids=IN_PLACE)
def test_anything_in_place_of_an_entry(recorder, put_there):
    place, replaced = put_there
    entry = disk_cache().path(launch().hash)
    entry.rename(entry.with_suffix(".whole"))
    place(entry)
    disk_cache()._warned.clear()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert not launch().cache_hit
        again = launch()
    assert again.cache_hit is replaced
    assert len({str(warning.message).partition(",")[0] for warning in seen}) == len(
        seen
    )  # each kind once
    assert all(warning.filename == __file__ for warning in seen), seen  # reported at the launch
    if not replaced:
        assert (entry / "inside").exists()  # nothing of anybody's is deleted
        assert disk_cache()._writable is not False  # other entries are kept all the same
        assert any("cannot be kept in the cache" in str(warning.message) for warning in seen)


@pytest.mark.skipif(os.name != "posix", reason="files with holes")
def test_a_file_larger_than_the_cache_is_removed_unread(recorder):
    entry = disk_cache().path(launch().hash)
    os.truncate(entry, 1 << 40)
    disk_cache()._warned.clear()
    with pytest.warns(RuntimeWarning, match="larger than a kernel can be"):
        assert not launch().cache_hit
    assert entry.stat().st_size < 1 << 30


@pytest.mark.parametrize("failing", ["write", "replace"])
def test_a_full_disk(recorder, monkeypatch, failing):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    class FullFile:
        def __init__(self, handle, *_, **__):
            self.handle = handle

        def __enter__(self):
            return self

        def __exit__(self, *_):
            os.close(self.handle)

        write = full

    if failing == "write":
        monkeypatch.setattr(files.os, "fdopen", FullFile)
    else:
        monkeypatch.setattr(files.os, "replace", full)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            assert not launch().cache_hit
    (warning,) = seen
    assert "cannot be written" in str(warning.message)
    assert "No space left" in str(warning.message)
    assert [path for path in disk_cache().directory.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("directory", ["/proc/nowhere/cache", "/dev/null/cache", "x" * 400])
def test_a_directory_that_cannot_be_made(recorder, monkeypatch, tmp_path, directory):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / directory))
    with pytest.warns(RuntimeWarning, match="cannot be (written|read)"):
        launch()
    assert not launch().cache_hit
    assert not disk_cache().info().writable


def test_headers_of_wrong_types_are_damage():
    from tilewright.plugins.manifest import CodeObject
    from tilewright.runtime.storage.artifact import Artifact

    code = CodeObject("k", b"x")
    for attribute, wrong in (("metadata", 5), ("name", 7), ("key", 3)):
        artifact = Artifact("ab", code, ())
        holder = artifact if attribute == "key" else artifact.code
        right = getattr(holder, attribute)
        setattr(holder, attribute, wrong)
        try:
            packed = pack(artifact)
        finally:
            setattr(holder, attribute, right)
        with pytest.raises(DamagedArtifactError):
            unpack(packed)


def test_a_header_that_is_nested_too_deep_is_damage():
    header = b'{"key": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    body = len(header).to_bytes(8, "little") + header
    with pytest.raises(DamagedArtifactError, match="its header cannot be read"):
        unpack(MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body)


# ---- records of tuning

BENCH = {"do_bench": lambda call, quantiles: (call(), [1.0, 1.0, 1.0])[1]}


@tw.jit
def fill_block(y, BLOCK: tl.constexpr):
    tl.store(y + tl.arange(0, BLOCK), 1)


def tuned():
    """The listener's view of a tuning as a new process would do it: (best configuration, from a
    record)."""
    tuner = tw.autotune([tw.Config({"BLOCK": 8}), tw.Config({"BLOCK": 16})], key=[], **BENCH)(
        fill_block
    )
    tuner[(1,)](np.zeros(64))
    return tuner.best_config, tuner.bench_time == 0.0


DEEP = "[" * 100_000
RECORDS = {
    "empty": lambda text: "",
    "half": lambda text: text[:60],
    "bytes": lambda text: b"\xff\xfe\x00",
    "list": lambda text: "[]",
    "null": lambda text: "null",
    "deep": lambda text: DEEP,
    "no such best": lambda text: text.replace('"best": "', '"best": "X'),
    "best of no text": lambda text: text.replace('"best": ', '"best": [], "b": '),
    "version": lambda text: text.replace('"version": 1', '"version": 9'),
    "timings": lambda text: text.replace('"timings": {', '"timings": {"a": 5, '),
    "texts for times": lambda text: text.replace("1.0", '"1"'),
}


@pytest.mark.parametrize("damage", RECORDS.values(), ids=RECORDS)
def test_a_damaged_record_is_none(recorder, damage):
    tuned()
    assert tuned()[1]
    (path,) = tuning_records.directory().glob("*.json")
    text = damage(path.read_text())
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    best, recorded = tuned()
    assert best in (tw.Config({"BLOCK": 8}), tw.Config({"BLOCK": 16}))
    assert not recorded
    assert tuned()[1]  # and it was written anew


@pytest.mark.skipif(os.name != "posix", reason="pipes")
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_pipe_or_directory_in_place_of_a_record(recorder, make):
    tuned()
    (path,) = tuning_records.directory().glob("*.json")
    path.unlink()
    make(path)
    assert not tuned()[1]
    assert tuned()[1]


def test_a_warning_of_a_backend_is_told_where_the_kernel_is_launched(recorder):
    """Backends like ours keep code of their own in the cache, and call its functions from frames of
    their own."""
    inside = {"__name__": "tilewright_cpu.native_launch", "warn_user": files.warn_user}
    exec(
        compile(
            "def call():\n    warn_user('damaged')\n",
            "/elsewhere/tilewright_cpu/native_launch.py",
            "exec",
        ),
        inside,
    )
    with pytest.warns(RuntimeWarning, match="damaged") as seen:
        inside["call"]()
    assert [warning.filename for warning in seen] == [__file__]
