"""A cache that others could write to is not used: its entries are code."""

import os
import stat

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime import tuning_records
from tilewright.runtime.storage import private_folder
from tilewright.runtime.storage.disk_cache import disk_cache
from tilewright.runtime.storage.tuning_record import Record
from tilewright.tools.doctor import examine

pytestmark = pytest.mark.skipif(os.name != "posix", reason="owners and modes of POSIX systems")


def launch():
    """Compile a kernel that this process has not compiled yet."""

    @tw.jit
    def put(x):
        tl.store(x, 1)

    put[(1,)](np.zeros(1))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TILEWRIGHT_CACHE_SHARED", raising=False)
    return tmp_path / "cache"


def entries():
    return disk_cache().info().entries


def test_a_new_folder_is_its_owners_alone(folder):
    before = os.umask(0o002)
    try:
        launch()
        assert entries() > 0 and stat.S_IMODE(folder.stat().st_mode) == 0o700
    finally:
        os.umask(before)


def test_records_make_the_folder_private_too(folder):
    before = os.umask(0o002)
    try:
        assert tuning_records.keep(Record("k", "s", "k", "d", "t", "c", "b"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_a_folder_that_others_can_write_to_is_not_used(folder, monkeypatch, mode):
    folder.mkdir()
    folder.chmod(mode)
    with pytest.warns(
        RuntimeWarning,
        match=(
            r"the kernel cache is not used: others can write to .*: chmod 700 .* or "
            r"TILEWRIGHT_CACHE_SHARED=1"
        ),
    ):
        launch()
    assert entries() == 0 and not disk_cache().info().writable
    (finding,) = [finding for finding in examine() if finding.name == "cache"]
    assert not finding.ok and "not used: others can write to" in finding.text
    monkeypatch.setenv("TILEWRIGHT_CACHE_SHARED", "1")
    launch()
    assert entries() > 0


def test_what_lies_in_a_folder_of_others_is_not_run(folder, monkeypatch):
    launch()
    artifact_there = [path.stem for path in folder.glob("*/*.kernel")]
    folder.chmod(0o777)
    from tilewright.runtime.storage.disk_cache import DiskCache

    with pytest.warns(RuntimeWarning, match="is not used"):
        assert DiskCache(folder).get(artifact_there[0]) is None
    folder.chmod(0o700)
    assert DiskCache(folder).get(artifact_there[0]) is not None


def test_a_folder_of_another_user_is_not_used_but_the_administrators_is(folder, monkeypatch):
    folder.mkdir(mode=0o700)
    owner = folder.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    said = private_folder.distrust(folder)
    assert (said == "") if owner == 0 else ("belongs to another user" in said)
    monkeypatch.setattr(os, "geteuid", lambda: owner)
    assert private_folder.distrust(folder) == ""


def test_the_owner_decides_where_it_can_be_changed(folder):
    folder.mkdir(mode=0o700)
    try:
        os.chown(folder, 12345, -1)
    except PermissionError:
        pytest.skip("only the administrator gives folders away")
    assert f"{folder} belongs to another user (uid 12345)" in private_folder.distrust(folder)
